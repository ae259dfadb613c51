//! The keys of a server, without the parts that differ each time: ids, and the milliseconds of times.

use leasehold_testkit::resp::Value;
use leasehold_testkit::server::Server;

/// The names for ids, and the permits that were seen.
#[derive(Default)]
pub(super) struct Names {
    owners: Vec<(String, String)>,
    permits: Vec<String>,
}

impl Names {
    pub(super) fn learn(&mut self, owner: &str, name: &str) {
        self.owners.push((owner.into(), name.into()));
    }

    /// Replaces `ID0`, `ID1` and so on by the permits that were seen.
    pub(super) fn with_ids(&self, command: &str) -> String {
        let numbered = self.permits.iter().enumerate();
        numbered.fold(command.into(), |text, (n, id)| text.replace(&format!("ID{n}"), id))
    }

    /// A reply; the ids of permits in it are recorded.
    pub(super) fn answer(&mut self, answer: &str) -> String {
        if !answer.split(',').all(|id| id.len() == 32 && id.bytes().all(|byte| byte.is_ascii_hexdigit())) {
            return answer.parse::<i64>().map_or_else(|_| self.text(answer), length);
        }
        let before = self.permits.len();
        self.permits.extend(answer.split(',').map(String::from));
        (before..self.permits.len()).map(|n| format!("ID{n}")).collect::<Vec<_>>().join(",")
    }

    /// A text with names for owners.
    pub(super) fn text(&self, text: &str) -> String {
        let known = self.owners.iter().fold(text.to_owned(), |text, (owner, name)| {
            // Not where a longer number begins with this one.
            match text.split_once(owner) {
                Some((before, after)) if !after.starts_with(|next: char| next.is_ascii_digit()) => {
                    format!("{before}{name}{after}")
                }
                _ => text,
            }
        });
        // An owner that was drawn for one hold.
        if is_owner(&known) { "OWNER".into() } else { known }
    }

    fn bytes(&self, bytes: &[u8]) -> String {
        let id = bytes.iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().concat();
        if let Some(n) = self.permits.iter().position(|permit| *permit == id) {
            return format!("ID{n}");
        }
        if bytes.len() == 16 && !bytes.iter().all(u8::is_ascii_graphic) {
            return "ID".into();
        }
        self.text(&String::from_utf8_lossy(bytes))
    }
}

fn is_owner(text: &str) -> bool {
    let Some((id, number)) = text.split_once(':') else { return false };
    id.len() == 36 && id.matches('-').count() == 4 && number.bytes().all(|byte| byte.is_ascii_digit())
}

/// A duration in whole minutes, rounded up, because no two runs are equally fast; up to two seconds over do not count. Other
/// numbers as they are.
fn length(number: i64) -> String {
    if number < 1000 { number.to_string() } else { format!("{} min", (number - 2000 + 59_999) / 60_000) }
}

/// One line for each key that belongs to `name`, but for Redisson's notes about its own requests.
pub(super) fn dump(server: &Server, name: &str, names: &Names) -> Vec<String> {
    let mut connection = server.connect();
    let mut call = |command: &[&str]| connection.call(command).expect("the server replies");
    let now = call(&["TIME"]);
    let part = |n: usize| now.elements()[n].as_str().expect("a number").parse::<i64>().expect("a number");
    let now = part(0) * 1000 + part(1) / 1000;
    let moment = |text: &str| match text.parse::<i64>() {
        Ok(922_337_203_685_477) => "never".into(),
        Ok(moment) if moment > 1_000_000_000_000 => format!("in {}", length(moment - now)),
        _ => text.to_owned(),
    };
    let text = |value: &Value| match value {
        Value::Bulk(bytes) => moment(&names.bytes(bytes)),
        other => moment(other.as_str().expect("a string")),
    };
    let mut lines = Vec::new();
    for key in call(&["KEYS", &format!("*{name}*")]).elements() {
        let key = key.as_str().expect("names are text");
        if key.starts_with("redisson_unlock_latch:") {
            continue;
        }
        let kind = call(&["TYPE", key]);
        let content = match kind.as_str().expect("a word") {
            "string" => text(&call(&["GET", key])),
            "hash" => pairs(&call(&["HGETALL", key]), &text),
            "zset" => pairs(&call(&["ZRANGE", key, "0", "-1", "WITHSCORES"]), &text),
            "list" => {
                let list = call(&["LRANGE", key, "0", "-1"]);
                format!("[{}]", list.elements().iter().map(text).collect::<Vec<_>>().join(", "))
            }
            // It was removed meanwhile.
            _ => continue,
        };
        let Value::Int(left) = call(&["PTTL", key]) else { panic!("a time to live is a number") };
        let left = if left < 0 { "for good".into() } else { format!("for {}", length(left.max(1000))) };
        lines.push(format!("{} = {content} {left}", names.text(key)));
    }
    lines.sort();
    lines
}

fn pairs(value: &Value, text: &impl Fn(&Value) -> String) -> String {
    let pair = |pair: &[Value]| format!("{}: {}", text(&pair[0]), text(&pair[1]));
    let mut pairs: Vec<_> = value.elements().chunks(2).map(pair).collect();
    pairs.sort();
    format!("{{{}}}", pairs.join(", "))
}
