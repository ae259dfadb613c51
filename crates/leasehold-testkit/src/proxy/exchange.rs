//! Commands and replies on one connection, and which belong together.

use std::{collections::VecDeque, io};

use super::faults::Kind;
use crate::resp::{self, Value};

/// Commands without a reply on a connection.
#[derive(Debug, Default)]
pub(super) struct Exchange {
    pub(super) kind: Kind,
    /// Whether the server marks its pushes.
    pushes: bool,
    waiting: VecDeque<Command>,
}

/// A command as it was sent.
#[derive(Debug)]
pub(super) struct Command {
    pub(super) bytes: Vec<u8>,
    /// In upper case.
    pub(super) name: String,
    arguments: Vec<Value>,
}

/// A value that a server has sent.
#[derive(Debug, PartialEq)]
pub(super) enum Received {
    /// The reply, or one of several, to the command with these bytes.
    Reply { command: Vec<u8> },
    /// A published message.
    Message,
    /// Anything else: the reply to a command that sets up the connection, or a push.
    Other,
}

impl Command {
    /// Takes the command at the front of `buffer`, if it is complete.
    pub(super) fn take(buffer: &mut Vec<u8>) -> io::Result<Option<Self>> {
        let (arguments, length) = if buffer.first().is_none_or(|first| *first == b'*') {
            match resp::parse(buffer)? {
                Some((value, length)) => (value.elements().to_vec(), length),
                None => return Ok(None),
            }
        } else {
            // An inline command.
            let Some(end) = buffer.iter().position(|byte| *byte == b'\n') else { return Ok(None) };
            let line = String::from_utf8_lossy(&buffer[..end]);
            (line.split_whitespace().map(Value::from).collect(), end + 1)
        };
        let name = arguments.first().and_then(Value::as_str).unwrap_or_default().to_uppercase();
        Ok(Some(Self { bytes: buffer.drain(..length).collect(), name, arguments }))
    }

    fn subscribes(&self) -> bool {
        ["SUBSCRIBE", "PSUBSCRIBE", "SSUBSCRIBE"].contains(&self.name.as_str())
    }

    /// Whether there is a confirmation for each argument instead of one reply.
    fn is_confirmed(&self) -> bool {
        self.name.ends_with("SUBSCRIBE")
    }

    fn sets_up(&self) -> bool {
        let registers = |key: &Value| key.as_str().is_some_and(|key| key.starts_with("leasehold:client:"));
        ["HELLO", "AUTH", "CLIENT", "COMMAND", "SELECT"].contains(&self.name.as_str())
            || self.arguments.get(1).is_some_and(registers)
    }
}

impl Exchange {
    /// Adds a command.
    pub(super) fn sent(&mut self, command: Command) {
        if command.subscribes() {
            self.kind = Kind::PubSub;
        }
        if command.name == "HELLO" {
            self.pushes = command.arguments.get(1).is_some_and(|version| *version == "3");
        }
        self.waiting.push_back(command);
    }

    /// Classifies a value that the server has sent.
    pub(super) fn received(&mut self, value: &Value) -> Received {
        let unasked = match value {
            Value::Push(_) => true,
            Value::Array(_) => self.kind == Kind::PubSub && !self.pushes,
            _ => false,
        };
        match value.elements().first().and_then(Value::as_str) {
            Some("message" | "pmessage" | "smessage") if unasked => Received::Message,
            Some(kind) if unasked && kind.ends_with("subscribe") => self.confirmation(),
            _ if matches!(value, Value::Push(_)) => Received::Other,
            _ => match self.waiting.pop_front() {
                Some(command) if !command.sets_up() => Received::Reply { command: command.bytes },
                _ => Received::Other,
            },
        }
    }

    fn confirmation(&mut self) -> Received {
        // A command that ends all subscriptions has more confirmations than arguments; the others belong to no command.
        let Some(command) = self.waiting.front_mut().filter(|command| command.is_confirmed()) else {
            return Received::Other;
        };
        command.arguments.pop();
        let bytes = command.bytes.clone();
        if command.arguments.len() <= 1 {
            self.waiting.pop_front();
        }
        Received::Reply { command: bytes }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reply(command: &[&str]) -> Received {
        Received::Reply { command: resp::encode(command) }
    }

    fn exchange(commands: &[&[&str]]) -> Exchange {
        let mut exchange = Exchange::default();
        let mut buffer = commands.iter().flat_map(|command| resp::encode(command)).collect();
        while let Some(command) = Command::take(&mut buffer).unwrap() {
            exchange.sent(command);
        }
        assert!(buffer.is_empty());
        exchange
    }

    fn array(elements: &[&str]) -> Value {
        Value::Array(elements.iter().map(|text| Value::from(*text)).collect())
    }

    fn push(elements: &[&str]) -> Value {
        Value::Push(elements.iter().map(|text| Value::from(*text)).collect())
    }

    #[test]
    fn array_and_inline_commands_are_both_parsed() {
        let mut buffer = b"*1\r\n$4\r\nping\r\nget  k\r\n*2\r\n$3\r\nGET\r\n".to_vec();
        let mut name = || Command::take(&mut buffer).unwrap().map(|command| command.name);
        assert_eq!((name(), name(), name()), (Some("PING".into()), Some("GET".into()), None));
    }

    #[test]
    fn replies_are_matched_to_commands_in_order_without_the_set_up() {
        let mut exchange = exchange(&[&["HELLO", "3"], &["GET", "a"], &["LRANGE", "l", "0", "9"]]);
        assert_eq!(exchange.received(&array(&["server", "redis"])), Received::Other);
        assert_eq!(exchange.received(&push(&["invalidate", "a"])), Received::Other);
        assert_eq!(exchange.received(&"message".into()), reply(&["GET", "a"]));
        assert_eq!(exchange.received(&array(&["message", "c", "p"])), reply(&["LRANGE", "l", "0", "9"]));
        assert_eq!(exchange.received(&Value::Nil), Received::Other);
        assert_eq!(exchange.kind, Kind::Command);
    }

    #[test]
    fn subscriptions_are_confirmed_once_for_each_channel() {
        for value in [array, push] {
            let mut exchange = exchange(&[&["SUBSCRIBE", "a", "b"], &["UNSUBSCRIBE"], &["PING"]]);
            assert_eq!(exchange.kind, Kind::PubSub);
            for channel in ["a", "b"] {
                assert_eq!(
                    exchange.received(&value(&["subscribe", channel, "1"])),
                    reply(&["SUBSCRIBE", "a", "b"])
                );
                assert_eq!(exchange.received(&value(&["message", channel, "p"])), Received::Message);
            }
            assert_eq!(exchange.received(&value(&["unsubscribe", "a", "1"])), reply(&["UNSUBSCRIBE"]));
            assert_eq!(exchange.received(&value(&["unsubscribe", "b", "0"])), Received::Other);
            assert_eq!(exchange.received(&array(&["pong", ""])), reply(&["PING"]));
        }
    }
}
