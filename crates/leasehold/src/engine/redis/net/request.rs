//! A request: the call, and the handler of its reply.

use std::fmt::Display;
use std::sync::OnceLock;

use tokio::sync::oneshot;

use super::resp::{self, BulkStrings, Value};
use crate::engine::remote::store::{LateNotice, StoreError};
use crate::error::ServerError;

/// A script and, once it was needed, its hash.
#[derive(Debug)]
pub(crate) struct Script {
    text: &'static str,
    hash: OnceLock<String>,
}

impl Script {
    pub(crate) const fn new(text: &'static str) -> Self {
        Self { text, hash: OnceLock::new() }
    }

    fn hash(&self) -> &str {
        self.hash.get_or_init(|| sha1_smol::Sha1::from(self.text).digest().to_string())
    }
}

/// The script or command to run, with its keys and arguments. Names and values are arguments, never script text.
#[derive(Debug, Clone)]
pub(crate) struct Call {
    command: Command,
    keys: BulkStrings,
    arguments: BulkStrings,
}

#[derive(Debug, Clone, Copy)]
enum Command {
    Script(&'static Script),
    /// The same, where two commands can replace it: [`Encoding::Native`].
    CompareAndDelete(&'static Script),
    /// A built-in command of the server, which needs no script.
    Builtin(&'static str),
}

/// How a script is identified in a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Encoding {
    /// By its hash, for a server that has the script.
    Sha,
    /// In full, which loads it into the server.
    Source,
    /// Not at all: two commands replace the script that deletes a key with a given value and announces it, and there are two
    /// replies.
    Native(Delete),
}

/// The server's own command for the first of these two; the second is `PUBLISH`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Delete {
    /// Redis from 8.4 on.
    Delex,
    /// Valkey from 9 on.
    DelIfEq,
}

impl Call {
    pub(crate) fn new(script: &'static Script) -> Self {
        Self::of(Command::Script(script))
    }

    /// A script that deletes its key if it has the value of the first argument, and publishes that on the channel of the second.
    pub(crate) fn compare_and_delete(script: &'static Script) -> Self {
        Self::of(Command::CompareAndDelete(script))
    }

    /// A plain command: first its key, then its arguments.
    pub(crate) fn command(name: &'static str) -> Self {
        Self::of(Command::Builtin(name))
    }

    fn of(command: Command) -> Self {
        Self { command, keys: BulkStrings::default(), arguments: BulkStrings::default() }
    }

    pub(crate) fn key(mut self, key: &str) -> Self {
        self.keys.push_bytes(key.as_bytes());
        self
    }

    pub(crate) fn arg(mut self, argument: impl Display) -> Self {
        self.arguments.push(argument);
        self
    }

    pub(crate) fn bytes(mut self, argument: &[u8]) -> Self {
        self.arguments.push_bytes(argument);
        self
    }

    /// Whether both run the same script.
    pub(super) fn has_script_of(&self, other: &Self) -> bool {
        let script = |call: &Self| match call.command {
            Command::Script(script) | Command::CompareAndDelete(script) => Some(script),
            Command::Builtin(_) => None,
        };
        script(self).zip(script(other)).is_some_and(|(one, other)| std::ptr::eq(one, other))
    }

    /// Encodes the call.
    fn write(&self, encoding: Encoding, out: &mut Vec<u8>) {
        let strings = self.keys.len() + self.arguments.len();
        match (self.command, encoding) {
            (Command::Builtin(name), _) => {
                resp::begin(out, 1 + strings);
                resp::bulk_string(out, name.as_bytes());
            }
            (_, Encoding::Native(delete)) => return self.write_native(delete, out),
            (Command::Script(script) | Command::CompareAndDelete(script), _) => {
                resp::begin(out, 3 + strings);
                let (name, script) = match encoding {
                    Encoding::Source => ("EVAL", script.text),
                    _ => ("EVALSHA", script.hash()),
                };
                resp::bulk_string(out, name.as_bytes());
                resp::bulk_string(out, script.as_bytes());
                resp::number(out, self.keys.len());
            }
        }
        self.keys.write(out);
        self.arguments.write(out);
    }

    fn write_native(&self, delete: Delete, out: &mut Vec<u8>) {
        let (name, operator) = match delete {
            Delete::Delex => ("DELEX", Some("IFEQ")),
            Delete::DelIfEq => ("DELIFEQ", None),
        };
        let mut arguments = self.arguments.iter();
        let mut next = || arguments.next().unwrap_or_default();
        resp::begin(out, 3 + operator.iter().len());
        resp::bulk_string(out, name.as_bytes());
        self.keys.write(out);
        operator.inspect(|operator| resp::bulk_string(out, operator.as_bytes()));
        resp::bulk_string(out, &next());
        resp::begin(out, 3);
        for string in [&b"PUBLISH"[..], &next(), b"0"] {
            resp::bulk_string(out, string);
        }
    }

    /// The server's error, with the details that older servers leave out: which command of a script, and which keys.
    fn explain(&self, refusal: String) -> String {
        if refusal.contains("can't run this command") {
            let commands = self.commands_at(&refusal).join(" or ");
            return format!("{refusal}; the command is {commands}");
        }
        if refusal.contains("access") && refusal.contains("key") {
            let keys: Vec<_> = self.keys.iter().collect();
            return format!("{refusal}; the keys are {}", String::from_utf8_lossy(&keys.join(&b' ')));
        }
        refusal
    }

    /// The commands in that line of the script which the server names.
    fn commands_at(&self, refusal: &str) -> Vec<&'static str> {
        let (Command::Script(script) | Command::CompareAndDelete(script)) = self.command else {
            return Vec::new();
        };
        let place = refusal.rsplit("user_script:").next().unwrap_or_default().trim_start();
        let number: String = place.chars().take_while(char::is_ascii_digit).collect();
        let line = number.parse::<usize>().ok().and_then(|number| number.checked_sub(1));
        let line = line.and_then(|line| script.text.lines().nth(line));
        let calls = line.unwrap_or_default().split("call('").skip(1);
        calls.filter_map(|call| call.split('\'').next()).collect()
    }
}

/// The outcome of a request.
pub(crate) type Reply = Result<Value, StoreError>;

/// The handler of a reply. It runs where the reply is read, before the next one is: the server carries out the requests of one
/// connection in their order, and a grant, a takeover and a removal of the same lock have a meaning only in that order.
pub(crate) trait OnReply: Send {
    /// Whether a caller waits for it, and has to be notified if it is late.
    fn is_awaited(&self) -> bool;

    /// Whether a call that the server did not carry out may be sent again.
    fn is_wanted(&self) -> bool;

    /// Notifies the caller that the reply is late. The reply is still handled when it arrives.
    fn late(&mut self) -> Option<LateNotice>;

    fn replied(self: Box<Self>, reply: Reply);
}

/// A task that waits for the reply; none if it is ignored.
impl OnReply for Option<oneshot::Sender<Reply>> {
    fn is_awaited(&self) -> bool {
        self.as_ref().is_some_and(|task| !task.is_closed())
    }

    fn is_wanted(&self) -> bool {
        true
    }

    fn late(&mut self) -> Option<LateNotice> {
        let task = self.take()?;
        Some(Box::new(|failure| drop(task.send(Err(StoreError::Refused(failure))))))
    }

    fn replied(self: Box<Self>, reply: Reply) {
        // The task may be gone.
        self.map(|task| task.send(reply));
    }
}

/// A call in flight, and the handler of its reply.
pub(crate) struct Request {
    pub(crate) call: Call,
    pub(crate) encoding: Encoding,
    pub(crate) on_reply: Box<dyn OnReply>,
}

impl Request {
    pub(super) fn write(&self, out: &mut Vec<u8>) {
        self.call.write(self.encoding, out);
    }

    /// Replaces a script by a command of the server, where there is one for it.
    pub(super) fn use_native(&mut self, delete: Delete) {
        if let (Command::CompareAndDelete(_), Encoding::Sha) = (self.call.command, self.encoding) {
            self.encoding = Encoding::Native(delete);
        }
    }

    pub(super) fn has_two_replies(&self) -> bool {
        matches!(self.encoding, Encoding::Native(_))
    }

    /// The reply has arrived; none if the server does not have the script, and has done nothing. A request that is returned has
    /// to be sent again.
    pub(super) fn replied(self, reply: Option<Reply>) -> Option<Self> {
        let reply = match (reply, self.encoding) {
            (None, Encoding::Source) => {
                Err(denied("the server does not keep the script that it was sent with this request".into()))
            }
            // A command was denied: nothing was done, and the script may do it.
            (None, _) | (Some(Err(StoreError::Refused(ServerError::Denied(_)))), Encoding::Native(_)) => {
                return Some(Self { encoding: Encoding::Source, ..self });
            }
            (Some(Err(StoreError::Refused(ServerError::Denied(text)))), _) => {
                Err(denied(self.call.explain(text)))
            }
            (Some(reply), _) => reply,
        };
        self.on_reply.replied(reply);
        None
    }
}

fn denied(text: String) -> StoreError {
    StoreError::Refused(ServerError::Denied(text))
}

#[cfg(test)]
mod tests {
    use super::super::resp::{Frame, take};
    use super::*;

    #[test]
    fn a_compare_and_delete_is_encoded_for_each_kind_of_server() {
        static SCRIPT: Script = Script::new("return 0");
        let call = Call::compare_and_delete(&SCRIPT).key("n").arg("me").arg("channel");
        let words = |encoding| {
            let mut out = Vec::new();
            call.write(encoding, &mut out);
            let mut rest = out.as_slice();
            let commands = std::iter::from_fn(|| match take(&mut rest) {
                Ok(Frame::Reply(Value::Array(words))) => Some(words),
                _ => None,
            });
            let text = |word| match word {
                Value::Text(word) => String::from_utf8(word).expect("text"),
                other => panic!("{other:?}"),
            };
            commands
                .map(|words| words.into_iter().map(text).collect::<Vec<_>>().join(" "))
                .collect::<Vec<_>>()
        };
        let announcement = "PUBLISH channel 0";
        assert_eq!(words(Encoding::Native(Delete::Delex)), ["DELEX n IFEQ me", announcement]);
        assert_eq!(words(Encoding::Native(Delete::DelIfEq)), ["DELIFEQ n me", announcement]);
        assert_eq!(words(Encoding::Sha), [format!("EVALSHA {} 1 n me channel", SCRIPT.hash())]);
        assert_eq!(words(Encoding::Source), ["EVAL return 0 1 n me channel"]);
    }

    #[test]
    fn a_refusal_that_names_a_missing_script_line_is_reported_unchanged() {
        static SCRIPT: Script = Script::new("return redis.call('get', KEYS[1])");
        let call = Call::new(&SCRIPT);
        for line in ["0", "99999", "18446744073709551615", "99999999999999999999999", "x", ""] {
            let refusal = format!("NOPERM this user can't run this command, on @user_script:{line}.");
            assert!(call.explain(refusal.clone()).starts_with(&refusal), "{line}");
        }
    }
}
