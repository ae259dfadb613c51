//! The seam to the Redis client: opening a connection, sending on it, and what its errors mean to us.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::io::tcp::TcpSettings;
use redis::{AsyncConnectionConfig, Cmd, ConnectionInfo, ProtocolVersion, PushInfo, RedisError, Value};
use tokio::sync::mpsc::UnboundedSender;
use tokio::time::Instant;

use super::scripts::{Call, Deletes, Wording};
use crate::error::Failure;

/// Where and how to connect.
#[derive(Clone)]
pub(super) struct Settings {
    client: redis::Client,
    label: String,
    connect_timeout: Duration,
    pub(super) response_timeout: Duration,
}

impl Settings {
    pub(super) fn new(
        info: &ConnectionInfo,
        label: String,
        connect_timeout: Duration,
        response_timeout: Duration,
    ) -> Result<Self, Failure> {
        let redis = info.redis_settings().clone().set_protocol(ProtocolVersion::RESP3);
        let redis = redis.set_lib_name("leasehold", env!("CARGO_PKG_VERSION"));
        // A peer that is gone without a word is noticed by the kernel too, not only by our own time-outs.
        let keepalive = socket2::TcpKeepalive::new()
            .with_time(Duration::from_secs(10))
            .with_interval(Duration::from_secs(5));
        let tcp = TcpSettings::default().set_nodelay(true).set_keepalive(keepalive);
        #[cfg(target_os = "linux")]
        let tcp = tcp.set_user_timeout(Duration::from_secs(20));
        let info = info.clone().set_redis_settings(redis).set_tcp_settings(tcp);
        let client = redis::Client::open(info).map_err(|error| failure(&error))?;
        Ok(Self { client, label, connect_timeout, response_timeout })
    }

    /// Opens a connection. What the server pushes, and the news of its end, go to `pushes`.
    pub(super) async fn open(&self, pushes: UnboundedSender<PushInfo>) -> Result<Connection, Failure> {
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(self.connect_timeout))
            .set_response_timeout(None)
            .set_pipeline_buffer_size(NEVER_FULL)
            .set_push_sender(pushes);
        let opened = self.client.get_multiplexed_async_connection_with_config(&config).await;
        let connection = opened.map_err(|error| failure(&error))?;
        let heard = Arc::new(Mutex::new(Instant::now()));
        let connection = Connection {
            pipeline: connection,
            timeout: self.response_timeout,
            heard,
            deletes: Deletes::ByScript,
            denied: Arc::default(),
        };
        if !self.label.is_empty() {
            // A name that the server does not like, or a server that allows none, is no reason not to lock.
            let name: String =
                self.label.chars().map(|c| if c.is_ascii_graphic() { c } else { '-' }).collect();
            drop(connection.send(redis::cmd("CLIENT").arg("SETNAME").arg(name).clone()).await);
        }
        Ok(connection)
    }
}

/// How many requests the connection takes before it makes anybody wait. Those who wait there can be overtaken, and an
/// undo must not overtake what it undoes; so nobody ever waits.
const NEVER_FULL: usize = 1 << 24;

/// One connection. Cheap to clone.
#[derive(Clone)]
pub(super) struct Connection {
    pipeline: MultiplexedConnection,
    timeout: Duration,
    /// When anything was last heard of the server.
    heard: Arc<Mutex<Instant>>,
    deletes: Deletes,
    /// The server has a command for it, and does not let us use it.
    denied: Arc<AtomicBool>,
}

/// Why a command has no result.
#[derive(Debug)]
pub(super) enum Trouble {
    /// The connection is of no more use: it is gone, or did not answer in time.
    Broken(Failure),
    /// The server does not know the script, and has done nothing.
    NoScript,
    /// The server said no, or nothing yet.
    Refused(Failure),
}

impl From<Trouble> for Failure {
    fn from(trouble: Trouble) -> Self {
        match trouble {
            Trouble::Broken(failure) | Trouble::Refused(failure) => failure,
            Trouble::NoScript => Self::Denied("the server forgets scripts as soon as it is told them".into()),
        }
    }
}

impl Connection {
    /// Sends a command and waits for its answer. Commands are sent in the order of the first polls.
    pub(super) async fn send(&self, command: Cmd) -> Result<Value, Trouble> {
        self.send_within(command, Duration::MAX).await
    }

    /// The same for an answer that is of no use after `limit`, which says nothing about the connection.
    pub(super) async fn send_within(&self, command: Cmd, limit: Duration) -> Result<Value, Trouble> {
        let mut connection = self.pipeline.clone();
        let answer = async move { connection.send_packed_command(&command).await?.extract_error() };
        match tokio::time::timeout(limit, self.bounded(answer)).await {
            Ok(answered) => answered,
            Err(_) => Err(Trouble::Refused(Failure::Unavailable(format!("no answer within {limit:?}")))),
        }
    }

    /// Runs a call. All of it is sent at the first poll.
    pub(super) async fn run(&self, call: &Call, wording: Wording, limit: Duration) -> Result<Value, Trouble> {
        let deletes = if self.denied.load(Ordering::Relaxed) { Deletes::ByScript } else { self.deletes };
        let (command, after) = call.commands(wording, deletes);
        let Some(after) = after else {
            return self.send_within(command, limit).await.map_err(|trouble| match trouble {
                Trouble::Refused(Failure::Denied(text)) => {
                    Trouble::Refused(Failure::Denied(call.explain(text)))
                }
                other => other,
            });
        };
        match tokio::join!(biased; self.send_within(command, limit), self.send(after)).0 {
            // Nothing was done, and a script may do it.
            Err(Trouble::Refused(Failure::Denied(_))) => {
                self.denied.store(true, Ordering::Relaxed);
                Err(Trouble::NoScript)
            }
            done => done,
        }
    }

    /// Finds out what the server has in place of our scripts. Who may not ask uses the scripts.
    pub(super) async fn learn(&mut self) -> Result<(), Failure> {
        let ask = redis::cmd("COMMAND").arg("INFO").arg("DELEX").arg("DELIFEQ").clone();
        self.deletes = match self.send(ask).await {
            Ok(Value::Array(known)) => match known.as_slice() {
                [Value::Array(_), _] => Deletes::Delex,
                [_, Value::Array(_)] => Deletes::DelIfEq,
                _ => Deletes::ByScript,
            },
            Err(Trouble::Broken(failure)) => return Err(failure),
            _ => Deletes::ByScript,
        };
        Ok(())
    }

    pub(super) async fn subscribe(&self, channels: &[String]) -> Result<(), Trouble> {
        let mut connection = self.pipeline.clone();
        self.bounded(connection.subscribe(channels)).await
    }

    pub(super) async fn unsubscribe(&self, channels: &[String]) -> Result<(), Trouble> {
        let mut connection = self.pipeline.clone();
        self.bounded(connection.unsubscribe(channels)).await
    }

    /// The number by which the server knows this connection, if it tells.
    pub(super) async fn id(&self) -> Result<Option<i64>, Failure> {
        match self.send(redis::cmd("CLIENT").arg("ID").clone()).await {
            Ok(Value::Int(id)) => Ok(Some(id)),
            Err(Trouble::Broken(failure)) => Err(failure),
            _ => Ok(None),
        }
    }

    /// Waits for an answer, but not for ever.
    async fn bounded<T>(&self, work: impl Future<Output = Result<T, RedisError>>) -> Result<T, Trouble> {
        let Ok(answer) = tokio::time::timeout(self.timeout, work).await else {
            let late = Failure::Unavailable(format!("no answer within {:?}", self.timeout));
            // If others were answered meanwhile, there was just too much to do.
            let silent = self.heard().elapsed() >= self.timeout;
            return Err(if silent { Trouble::Broken(late) } else { Trouble::Refused(late) });
        };
        *self.heard() = Instant::now();
        match answer {
            Ok(answer) => Ok(answer),
            Err(error) if error.code() == Some("NOSCRIPT") => Err(Trouble::NoScript),
            Err(error) if error.is_unrecoverable_error() || error.is_io_error() => {
                Err(Trouble::Broken(failure(&error)))
            }
            Err(error) => Err(Trouble::Refused(failure(&error))),
        }
    }

    fn heard(&self) -> MutexGuard<'_, Instant> {
        self.heard.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What an error of the client crate means to us.
fn failure(error: &RedisError) -> Failure {
    let text = error.to_string();
    match error.code() {
        // Said by servers that will do it later.
        Some(
            "LOADING" | "BUSY" | "READONLY" | "MISCONF" | "OOM" | "CLUSTERDOWN" | "MASTERDOWN" | "TRYAGAIN"
            | "NOREPLICAS",
        ) => Failure::Unavailable(text),
        Some("WRONGTYPE") => Failure::NotALock,
        // Older servers wrap what happens inside a script.
        Some(_) if text.contains("WRONGTYPE") => Failure::NotALock,
        Some(_) => Failure::Denied(text),
        None if error.kind() == redis::ErrorKind::AuthenticationFailed => Failure::Denied(text),
        None => Failure::Unavailable(text),
    }
}
