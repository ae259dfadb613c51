//! The intended differences, as far as they show on the server.

/// The text of `interop/differences.toml`.
const DIFFERENCES: &str = include_str!("../../../../../interop/differences.toml");

/// A line that is expected to differ: `PRIMITIVE -|+ PATTERN`, where `*` stands for anything.
struct Expected {
    id: String,
    line: String,
    seen: bool,
}

pub(super) struct Differences {
    expected: Vec<Expected>,
    /// Differences that were found and are not listed.
    unexpected: Vec<String>,
    /// Primitives that could not be checked.
    left_out: Vec<String>,
}

impl Differences {
    /// Reads the lines of the file that matter here: the ids, and the lists called `shows`.
    pub(super) fn read() -> Self {
        let (mut id, mut inside, mut expected) = ("", false, Vec::new());
        for line in DIFFERENCES.lines() {
            if let Some(given) = line.strip_prefix("id = ") {
                id = given.trim_matches('"');
            }
            let begins = line.starts_with("shows = [");
            if begins || inside {
                inside = !line.ends_with(']');
                let listed = line.trim_start_matches("shows = [").trim().trim_end_matches([']', ',']);
                if !listed.is_empty() {
                    let text = listed.strip_prefix('"').and_then(|text| text.strip_suffix('"'));
                    let line = text.unwrap_or_else(|| panic!("not one string to a line: {line}")).into();
                    expected.push(Expected { id: id.into(), line, seen: false });
                }
            }
        }
        Self { expected, unexpected: Vec::new(), left_out: Vec::new() }
    }

    /// The id of the difference that lists this line, or a note that there is none.
    pub(super) fn expects(&mut self, primitive: &str, sign: char, line: &str) -> String {
        let whole = format!("{primitive} {sign} {line}");
        let found = self.expected.iter_mut().find(|expected| matches(&expected.line, &whole));
        if let Some(expected) = found {
            expected.seen = true;
            return format!("({})", expected.id);
        }
        self.unexpected.push(whole);
        "(NOT LISTED)".into()
    }

    pub(super) fn leave_out(&mut self, primitive: &str) {
        self.left_out.push(format!("{primitive} "));
    }

    /// Differences that are not listed, and lines of the list that are no longer needed.
    pub(super) fn complaints(&self) -> Vec<String> {
        let mut complaints: Vec<_> =
            self.unexpected.iter().map(|line| format!("differences.toml does not list: {line}")).collect();
        for Expected { id, line, seen } in &self.expected {
            if !seen && !self.left_out.iter().any(|primitive| line.starts_with(primitive)) {
                complaints.push(format!("differences.toml lists what is not so any more: {id}: {line}"));
            }
        }
        complaints
    }
}

/// Whether a text matches a pattern in which `*` stands for anything.
fn matches(pattern: &str, text: &str) -> bool {
    let mut parts = pattern.split('*');
    let Some(mut rest) = parts.next().and_then(|first| text.strip_prefix(first)) else { return false };
    let mut last = None;
    for part in parts {
        last = Some(part);
        let Some(at) = rest.find(part) else { return false };
        rest = &rest[at + part.len()..];
    }
    // What follows the last star is the end, and without one there is nothing left.
    last.map_or(rest.is_empty(), |last| last.is_empty() || text.ends_with(last))
}

#[test]
fn a_star_in_a_pattern_matches_any_text() {
    for (pattern, text, like) in [
        ("a", "a", true),
        ("a", "ab", false),
        ("a*", "abc", true),
        ("a*c", "abc", true),
        ("a*c", "abcd", false),
        ("a*b*d", "aXbYd", true),
        ("a*b*d", "aXd", false),
        ("*", "", true),
    ] {
        assert_eq!(matches(pattern, text), like, "{pattern} {text}");
    }
}
