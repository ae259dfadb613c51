//! What a client writes about itself: one flat JSON object in one line.

use std::fmt::{self, Display, Write as _};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::ClientInfo;

/// How much of a text is written, in characters.
const LONGEST_TEXT: usize = 200;
/// A longer text is not what a client has written.
const LONGEST: usize = 16 * 1024;

/// The text of a client.
pub(crate) fn to_json(info: &ClientInfo) -> String {
    let ClientInfo { label, host, pid, program, version, started, address, lease: _ } = info;
    let mut json = String::from("{");
    let mut field = |name: &str, value: Option<&dyn Display>| {
        if let Some(value) = value {
            let comma = if json.len() > 1 { "," } else { "" };
            let _ = write!(json, "{comma}\"{name}\":{value}");
        }
    };
    let text = |text: &Option<String>| text.as_ref().map(|text| Quoted(text.clone()));
    let texts = [("label", label), ("host", host), ("program", program), ("version", version)];
    for (name, value) in texts {
        field(name, text(value).as_ref().map(|text| text as &dyn Display));
    }
    field("pid", pid.as_ref().map(|pid| pid as &dyn Display));
    let started = started.and_then(|at| at.duration_since(UNIX_EPOCH).ok()).map(|since| since.as_millis());
    field("started", started.as_ref().map(|started| started as &dyn Display));
    field("address", text(address).as_ref().map(|text| text as &dyn Display));
    json.push('}');
    json
}

/// A JSON string.
struct Quoted(String);

impl Display for Quoted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_char('"')?;
        for letter in self.0.chars().take(LONGEST_TEXT) {
            match letter {
                '"' | '\\' => write!(f, "\\{letter}")?,
                letter if letter.is_control() => write!(f, "\\u{:04x}", u32::from(letter))?,
                letter => f.write_char(letter)?,
            }
        }
        f.write_char('"')
    }
}

/// A text of another client, which is shown in logs and on terminals: of a limited length, and without control characters.
fn shown(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '_' } else { c }).take(LONGEST_TEXT).collect()
}

/// What a client has written; `None` if this is something else. Fields of later versions are passed over.
pub(crate) fn from_json(json: &[u8]) -> Option<ClientInfo> {
    let json = std::str::from_utf8(json).ok().filter(|json| json.len() <= LONGEST)?;
    let mut rest = Rest(json.trim());
    let mut info = ClientInfo::default();
    rest.take('{')?;
    if rest.take('}').is_some() {
        return rest.0.is_empty().then_some(info);
    }
    loop {
        let name = rest.string()?;
        rest.take(':')?;
        match (name.as_str(), rest.value()?) {
            ("label", Scalar::Text(text)) => info.label = Some(shown(&text)),
            ("host", Scalar::Text(text)) => info.host = Some(shown(&text)),
            ("program", Scalar::Text(text)) => info.program = Some(shown(&text)),
            ("version", Scalar::Text(text)) => info.version = Some(shown(&text)),
            ("address", Scalar::Text(text)) => info.address = Some(shown(&text)),
            ("pid", Scalar::Other(number)) => info.pid = number.parse().ok(),
            ("started", Scalar::Other(number)) => info.started = time(number),
            _ => {}
        }
        if rest.take(',').is_none() {
            rest.take('}')?;
            return rest.0.is_empty().then_some(info);
        }
    }
}

fn time(milliseconds: &str) -> Option<SystemTime> {
    UNIX_EPOCH.checked_add(Duration::from_millis(milliseconds.parse().ok()?))
}

enum Scalar<'a> {
    Text(String),
    /// A number, or a word such as `null`.
    Other(&'a str),
}

/// The part that is not parsed yet.
struct Rest<'a>(&'a str);

impl<'a> Rest<'a> {
    /// Takes this character, and blanks around it.
    fn take(&mut self, character: char) -> Option<()> {
        self.0 = self.0.trim_start().strip_prefix(character)?.trim_start();
        Some(())
    }

    fn value(&mut self) -> Option<Scalar<'a>> {
        if self.0.starts_with('"') {
            return self.string().map(Scalar::Text);
        }
        let end = self.0.find([',', '}', '{', '[', ' '])?;
        let (word, rest) = self.0.split_at(end);
        self.0 = rest;
        (!word.is_empty()).then_some(Scalar::Other(word))
    }

    fn string(&mut self) -> Option<String> {
        let mut letters = self.0.strip_prefix('"')?.chars();
        let mut text = String::new();
        loop {
            match letters.next()? {
                '"' => break,
                '\\' => text.push(match letters.next()? {
                    'n' => '\n',
                    't' => '\t',
                    'r' => '\r',
                    'b' => '\u{8}',
                    'f' => '\u{c}',
                    'u' => {
                        let digits = letters.as_str().get(..4)?;
                        letters = letters.as_str()[4..].chars();
                        char::from_u32(u32::from_str_radix(digits, 16).ok()?)?
                    }
                    letter => letter,
                }),
                letter => text.push(letter),
            }
        }
        self.0 = letters.as_str();
        Some(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_client_writes_is_one_line_and_is_parsed_back() {
        let text = |text: &str| Some(text.to_owned());
        let info = ClientInfo {
            label: text("seat \"seller\"\\ {좌석}, :"),
            host: text("a.example"),
            pid: Some(412),
            program: text("billing"),
            version: text("0.1.0"),
            started: Some(UNIX_EPOCH + Duration::from_millis(1_763_485_200_123)),
            address: text("[::1]:4711"),
            lease: None,
        };
        let json = to_json(&info);
        assert_eq!(json.lines().count(), 1, "{json}");
        assert_eq!(from_json(json.as_bytes()), Some(info));
        assert_eq!(from_json(to_json(&ClientInfo::default()).as_bytes()), Some(ClientInfo::default()));
    }

    #[test]
    fn texts_of_other_clients_are_shown_without_control_characters_and_not_at_any_length() {
        let label =
            |label: &str| from_json(format!(r#"{{"label":"{label}"}}"#).as_bytes()).unwrap().label.unwrap();
        assert_eq!(label(r"a\u001b]0;b\nc"), "a_]0;b_c");
        assert_eq!(label(&"x".repeat(LONGEST_TEXT + 1)).len(), LONGEST_TEXT);
    }

    #[test]
    fn fields_that_are_not_known_are_passed_over_and_other_texts_are_no_client() {
        let json = br#" { "pid": 7, "zone": "b", "weight": -1.5e3, "is_new": true, "host":"a" } "#;
        let info = from_json(json).expect("a client");
        assert_eq!((info.pid, info.host.as_deref()), (Some(7), Some("a")));
        let long = format!("{{\"host\":\"{}\"}}", "x".repeat(LONGEST));
        for other in [
            "",
            "7",
            "{",
            "{}}",
            "[]",
            "{\"host\"}",
            "{\"host\":}",
            "{\"host\":\"a}",
            "{\"host\":[1]}",
            "{\"a\":{}}",
            "{\"host\":\"\\u00\"}",
            "{\"host\":\"\\ud800\"}",
            "{\"host\":\"\\u좌석\"}",
            &long,
        ] {
            assert_eq!(from_json(other.as_bytes()), None, "{other}");
        }
        assert_eq!(from_json(b"\xff"), None);
        assert_eq!(from_json(br#"{"pid":-1,"started":99999999999999999999}"#), Some(ClientInfo::default()));
    }
}
