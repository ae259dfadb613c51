//! A connection to the server: opening it, calling on it, and what its errors mean to us.

use std::convert::Infallible;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::{oneshot, watch};

use super::super::address::Address;
use super::super::script::{Call, Deletes, Encoding};
use super::handshake::Hello;
use super::identity::Identity;
use super::pipeline::{Pipeline, PushHandler, Sink, unavailable};
use super::request::{OnReply, RawReply, ReplyMode, Request};
use super::resp::Value;
use super::stream::Stream;
use crate::engine::remote::store::StoreError;
use crate::error::Failure;

/// Where and how to connect.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    pub(crate) address: Address,
    pub(crate) label: String,
    pub(crate) connect_timeout: Duration,
    pub(crate) response_timeout: Duration,
    /// The runtime on which the client was made, if it was made on one.
    pub(crate) callers: Option<Handle>,
    /// Counts how often the server of a connection was found to be a replica. The other connection leads to the same.
    pub(crate) demotions: Arc<watch::Sender<u64>>,
}

impl Settings {
    /// Opens a connection. What the server pushes is told to `on_push`; what comes with it ends when the connection does.
    pub(crate) async fn open(&self, on_push: PushHandler) -> Result<(Connection, Ended), Failure> {
        let limit = self.connect_timeout;
        let late = || Failure::Unavailable(format!("no connection within {limit:?}"));
        tokio::time::timeout(limit, self.connect(on_push)).await.unwrap_or_else(|_| Err(late()))
    }

    async fn connect(&self, on_push: PushHandler) -> Result<(Connection, Ended), Failure> {
        let stream = Stream::connect(&self.address.place, self.connect_timeout).await;
        let stream = stream.map_err(|error| unavailable(&error))?;
        let (alive, ended) = oneshot::channel();
        let pipeline = Pipeline::start(stream, self.clone(), on_push, alive);
        let connection =
            Connection(Arc::new(Shared { pipeline, deletes: OnceLock::new(), denied: Arc::default() }));
        // All in one round trip.
        let send = |call| connection.send(call);
        let hello = send(self.hello());
        let database =
            (self.address.database > 0).then(|| send(Call::command("SELECT").arg(self.address.database)));
        // What the server does not like to know about us, or does not know how to, is no reason not to lock.
        let setinfo = || Call::command("CLIENT").arg("SETINFO");
        drop(send(setinfo().arg("LIB-NAME").arg("leasehold")));
        drop(send(setinfo().arg("LIB-VER").arg(env!("CARGO_PKG_VERSION"))));
        if !self.label.is_empty() {
            let name: String =
                self.label.chars().map(|c| if c.is_ascii_graphic() { c } else { '-' }).collect();
            drop(send(Call::command("CLIENT").arg("SETNAME").arg(name)));
        }
        Hello::read(&hello.await.map_err(|trouble| self.refused(trouble))?).check()?;
        if let Some(database) = database {
            database.await?;
        }
        Ok((connection, ended))
    }

    /// What the refusal of `HELLO` means. A server that does not know it may repeat what it was given, password included.
    fn refused(&self, trouble: CommandError) -> Failure {
        let text = match Failure::from(trouble) {
            Failure::Denied(text) => text,
            other => return other,
        };
        let lower = text.to_ascii_lowercase();
        if lower.contains("unknown command") || lower.starts_with("noproto") {
            return Failure::Denied(NO_RESP3.into());
        }
        if lower.contains("max number of clients") {
            return Failure::Unavailable(text);
        }
        if self.address.is_repeated_in(&text) {
            return Failure::Denied("what it says is withheld, because it repeats the password".into());
        }
        Failure::Denied(text)
    }

    fn hello(&self) -> Call {
        let hello = Call::command("HELLO").arg(3);
        let Address { user, password, .. } = &self.address;
        if user.is_none() && password.is_none() {
            return hello;
        }
        let user = user.as_deref().unwrap_or("default");
        hello.arg("AUTH").arg(user).arg(password.as_deref().unwrap_or_default())
    }
}

const NO_RESP3: &str =
    "it does not know RESP3, the protocol that is needed: use Redis from 6.0.6 on, or Valkey";

/// Fails when the connection has ended.
pub(crate) type Ended = oneshot::Receiver<Infallible>;

/// One connection. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Connection(Arc<Shared>);

struct Shared {
    pipeline: Pipeline,
    /// What the server has in place of a script, once it was asked.
    deletes: OnceLock<Deletes>,
    /// It does not let us use it.
    denied: Arc<AtomicBool>,
}

/// Why a command has no result.
#[derive(Debug)]
pub(crate) enum CommandError {
    /// There was no connection to send it on.
    NotSent(Failure),
    /// The connection ended before the reply.
    Lost(Failure),
    /// The server does not know the script, and has done nothing.
    NoScript,
    /// The server said no, or nothing yet.
    Server(Failure),
}

impl From<CommandError> for StoreError {
    fn from(error: CommandError) -> Self {
        match error {
            CommandError::NotSent(failure) => Self::NotSent(failure),
            CommandError::Lost(failure) => Self::Unknown(failure),
            other => Self::Refused(other.into()),
        }
    }
}

impl CommandError {
    /// What an error of the server means to us.
    pub(crate) fn from_server(text: String) -> Self {
        Self::Server(match code(&text) {
            "NOSCRIPT" => return Self::NoScript,
            // Said by servers that will do it later.
            "LOADING" | "BUSY" | "READONLY" | "MISCONF" | "OOM" | "CLUSTERDOWN" | "MASTERDOWN"
            | "TRYAGAIN" | "NOREPLICAS" => Failure::Unavailable(text),
            _ if text.contains("WRONGTYPE") => Failure::NotALock,
            _ => Failure::Denied(text),
        })
    }

    /// The same with another text, where there is one.
    pub(crate) fn map_text(self, map: impl FnOnce(String) -> String) -> Self {
        match self {
            Self::Server(Failure::Unavailable(text)) => Self::Server(Failure::Unavailable(map(text))),
            Self::Server(Failure::Denied(text)) => Self::Server(Failure::Denied(map(text))),
            other => other,
        }
    }
}

/// The word with which an error begins, and which says what error it is.
///
/// Servers before Redis 7 put the error of a command inside a script behind words of their own: `ERR Error running script
/// (call to f_…): @user_script:1: @user_script: 1: -READONLY …`.
pub(crate) fn code(text: &str) -> &str {
    let wrapped = text.strip_prefix("ERR Error running script").and_then(|text| {
        let (_line, error) = text.rsplit("user_script:").next()?.split_once(": ")?;
        Some(error.trim_start_matches('-'))
    });
    wrapped.unwrap_or(text).split(' ').next().unwrap_or_default()
}

/// Waits for an answer that a connection may end without.
pub(crate) async fn received(answer: oneshot::Receiver<RawReply>) -> RawReply {
    answer
        .await
        .unwrap_or_else(|_| Err(CommandError::Lost(Failure::Unavailable("the connection is closed".into()))))
}

impl From<CommandError> for Failure {
    fn from(trouble: CommandError) -> Self {
        match trouble {
            CommandError::NotSent(failure) | CommandError::Lost(failure) | CommandError::Server(failure) => {
                failure
            }
            CommandError::NoScript => {
                Self::Denied("the server forgets scripts as soon as it is told them".into())
            }
        }
    }
}

impl Connection {
    /// Puts a call behind those that are there. It goes with the next [`flush`](Self::flush), and this tells whether there has
    /// to be one, because no other caller is about to write. `sink` says what the reply is for; it comes back when the
    /// connection has ended.
    pub(crate) fn put(
        &self,
        call: Call,
        encoding: Encoding,
        sink: impl FnOnce(Call, ReplyMode) -> Sink,
    ) -> Result<bool, Sink> {
        let deletes = self.deletes(encoding);
        let announcement = call.announcement(deletes);
        let mode = match encoding {
            Encoding::Source => ReplyMode::Source,
            Encoding::Sha if announcement.is_some() => ReplyMode::Native(Arc::clone(&self.0.denied)),
            Encoding::Sha => ReplyMode::Sha,
        };
        let Some(announcement) = announcement else {
            return self.0.pipeline.put(0, |out| {
                call.write(encoding, deletes, out);
                sink(call, mode)
            });
        };
        let (first, done) = oneshot::channel();
        // If it cannot be put, nor can the other.
        let _ = self.0.pipeline.put(0, |out| {
            call.write(encoding, deletes, out);
            Sink::Once(first)
        });
        self.0.pipeline.put(0, |out| {
            announcement.write(Encoding::Sha, deletes, out);
            Sink::Pair(done, Box::new(sink(call, mode)))
        })
    }

    /// Puts a call whose reply does something.
    pub(crate) fn put_request(&self, call: Call, on_reply: Box<dyn OnReply>) -> Result<bool, Sink> {
        self.put(call, Encoding::Sha, |call, mode| Sink::Request(Request { call, mode, on_reply }))
    }

    /// Sees to it that what was put is sent.
    pub(crate) fn flush(&self) {
        self.0.pipeline.flush();
    }

    fn deletes(&self, encoding: Encoding) -> Deletes {
        let only_by_script = encoding == Encoding::Source || self.0.denied.load(Ordering::Relaxed);
        if only_by_script { Deletes::ByScript } else { *self.0.deletes.get().unwrap_or(&Deletes::ByScript) }
    }

    /// Sends a command, now; the reply can be awaited or dropped.
    pub(crate) fn send(&self, call: Call) -> impl Future<Output = RawReply> + Send + use<> {
        let (caller, reply) = oneshot::channel();
        // Where it cannot be put, the caller is dropped, and sees that there is no connection.
        let _ = self.put(call, Encoding::Sha, |_, _| Sink::Once(caller));
        self.flush();
        received(reply)
    }

    /// Ends the connection if nothing was heard on it for `silence` although a reply is due.
    pub(crate) fn doubt(&self, silence: Duration) {
        self.0.pipeline.doubt(silence);
    }

    /// Finds out what the server has in place of our scripts. Who may not ask uses the scripts.
    pub(crate) async fn learn(&self) -> Result<(), Failure> {
        let ask = Call::command("COMMAND").arg("INFO").arg("DELEX").arg("DELIFEQ");
        let deletes = match self.send(ask).await {
            Ok(Value::Array(known)) => match known.as_slice() {
                [Value::Array(_), _] => Deletes::Delex,
                [_, Value::Array(_)] => Deletes::DelIfEq,
                _ => Deletes::ByScript,
            },
            Err(CommandError::Lost(failure)) => return Err(failure),
            _ => Deletes::ByScript,
        };
        // It is asked once.
        let _ = self.0.deletes.set(deletes);
        Ok(())
    }

    /// Subscribes to channels, or ends the subscriptions, and waits until that is so.
    pub(crate) async fn listen(&self, on: bool, channels: &[Arc<str>]) -> Result<(), CommandError> {
        let (sink, answer) = oneshot::channel();
        let call = Call::command(if on { "SUBSCRIBE" } else { "UNSUBSCRIBE" });
        let call = channels.iter().fold(call, Call::arg);
        let _ = self.0.pipeline.put(channels.len(), |out| {
            call.write(Encoding::Sha, Deletes::ByScript, out);
            Sink::Once(sink)
        });
        self.flush();
        received(answer).await.map(drop)
    }

    /// By what the server knows this connection, if it tells.
    pub(crate) async fn identity(&self) -> Result<Option<Identity>, Failure> {
        match self.send(Call::command("CLIENT").arg("INFO")).await {
            Ok(Value::Text(info)) => Ok(std::str::from_utf8(&info).ok().and_then(Identity::parse)),
            Err(CommandError::Lost(failure)) => Err(failure),
            _ => Ok(None),
        }
    }

    /// Ends the connection. What was read on it has had its effect then.
    pub(crate) fn end(&self) {
        self.0.pipeline.end();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What Redis 6.2 says of an error inside a script.
    fn wrapped(error: &str) -> String {
        let hash = "5332031c6b470dc5a0dd9b4bf2030dea6d65de91";
        format!("ERR Error running script (call to f_{hash}): @user_script:1: @user_script: 1: {error}")
    }

    #[test]
    fn a_server_that_cannot_for_now_is_unavailable_also_where_it_says_so_inside_a_script() {
        for error in [
            "READONLY You can't write against a read only replica.",
            "OOM command not allowed when used memory > 'maxmemory'.",
            "BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.",
            "LOADING Redis is loading the dataset in memory",
            "MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist to disk.",
            "NOREPLICAS Not enough good replicas to write.",
            "MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.",
        ] {
            let after_redis_7 =
                format!("{error} script: 5332031c6b470dc5a0dd9b4bf2030dea6d65de91, on @user_script:1.");
            for text in [error.into(), wrapped(&format!("-{error}")), wrapped(error), after_redis_7] {
                let trouble = CommandError::from_server(text.clone());
                assert!(
                    matches!(trouble, CommandError::Server(Failure::Unavailable(_))),
                    "{text}: {trouble:?}"
                );
            }
        }
    }

    #[test]
    fn a_denial_is_one_also_where_it_is_said_inside_a_script() {
        let denial = "The user executing the script can't run this command or subcommand";
        for text in ["NOPERM this user has no permissions".into(), wrapped(denial), wrapped("")] {
            let trouble = CommandError::from_server(text);
            assert!(matches!(trouble, CommandError::Server(Failure::Denied(_))), "{trouble:?}");
        }
        let other_type = wrapped("WRONGTYPE Operation against a key holding the wrong kind of value");
        assert!(matches!(CommandError::from_server(other_type), CommandError::Server(Failure::NotALock)));
        let forgotten = CommandError::from_server("NOSCRIPT No matching script. Please use EVAL.".into());
        assert!(matches!(forgotten, CommandError::NoScript));
    }
}
