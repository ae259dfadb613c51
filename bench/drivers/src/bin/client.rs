//! The baseline without lock logic on the same runtime: the plain Redis client crate, with two connections that take turns,
//! and the same commands that the library sends.
//!
//! For the hand-over between processes it takes the same steps as the library, written by hand for one task: try,
//! subscribe, try again, wait for a message, try again. Then one connection is for commands and one for messages.
//! With `sockets=apart` they are on a thread of their own, as the library's are: the remaining difference is the library's
//! cost.

use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use bench_drivers::wire::{ACQUIRE, CLIENT_ID, LEASE_MS, RELEASE, SETNX_RELEASE, channel, setnx_channel};
use bench_drivers::{Args, Contender, Error, drive};
use redis::aio::MultiplexedConnection;
use redis::{
    AsyncConnectionConfig, Client, Cmd, ProtocolVersion, PushInfo, PushKind, RedisError, Script,
    TlsCertificates, Value,
};
use tokio::runtime::Handle;
use tokio::sync::Mutex;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

struct Baseline {
    connections: Vec<MultiplexedConnection>,
    turn: AtomicUsize,
    owners: AtomicU64,
    setnx: bool,
    acquire: String,
    release: String,
    /// The source of messages, where there is contention; and the channel that is subscribed.
    messages: Option<Mutex<Messages>>,
}

struct Messages {
    connection: MultiplexedConnection,
    pushes: UnboundedReceiver<PushInfo>,
    subscribed: bool,
}

struct Held {
    name: String,
    owner: String,
    connection: MultiplexedConnection,
}

impl Baseline {
    fn acquire_command(&self, name: &str, owner: &str) -> Cmd {
        if self.setnx {
            return redis::cmd("SET").arg(name).arg(owner).arg("NX").arg("PX").arg(LEASE_MS).to_owned();
        }
        let mut command = redis::cmd("EVALSHA");
        command.arg(&self.acquire).arg(1).arg(name).arg(owner).arg(LEASE_MS).arg(0).arg(0);
        command
    }

    fn release_command(&self, held: &Held) -> Cmd {
        let mut command = redis::cmd("EVALSHA");
        command.arg(&self.release).arg(1).arg(&held.name).arg(&held.owner);
        if self.setnx {
            command.arg(setnx_channel(&held.name));
        } else {
            command.arg(1).arg(LEASE_MS).arg(channel(&held.name));
        }
        command
    }

    async fn attempt(&self, held: &mut Held) -> Result<bool, Error> {
        let command = self.acquire_command(&held.name, &held.owner);
        Ok(match held.connection.send_packed_command(&command).await? {
            Value::Okay | Value::Int(1) => true,
            Value::Nil | Value::Array(_) => false,
            other => return Err(format!("unexpected reply to an acquire: {other:?}").into()),
        })
    }
}

impl Contender for Baseline {
    type Held = Held;

    async fn acquire(&self, name: &str) -> Result<Held, Error> {
        let owner = format!("{CLIENT_ID}:{}", self.owners.fetch_add(1, Ordering::Relaxed));
        let turn = self.turn.fetch_add(1, Ordering::Relaxed) % self.connections.len();
        let mut held = Held { name: name.to_owned(), owner, connection: self.connections[turn].clone() };
        if self.attempt(&mut held).await? {
            return Ok(held);
        }
        let Some(messages) = &self.messages else {
            return Err("the lock is busy, and the baseline does not wait".into());
        };
        let mut messages = messages.lock().await;
        if !messages.subscribed {
            let name = if self.setnx { setnx_channel(name) } else { channel(name) };
            messages.connection.subscribe(name).await?;
            messages.subscribed = true;
        }
        loop {
            if self.attempt(&mut held).await? {
                return Ok(held);
            }
            loop {
                let push = messages.pushes.recv().await.ok_or("the connection for messages has ended")?;
                if push.kind == PushKind::Message {
                    break;
                }
            }
        }
    }

    async fn release(&self, mut held: Held) -> Result<(), Error> {
        let command = self.release_command(&held);
        match held.connection.send_packed_command(&command).await? {
            // Freed; one less for each subscriber.
            Value::Int(..=-2) => Ok(()),
            other => Err(format!("unexpected reply to a release: {other:?}").into()),
        }
    }
}

async fn connect(args: &Args) -> Result<Baseline, Error> {
    let url = args.need("url")?;
    let separator = if url.contains('?') { '&' } else { '?' };
    let url = format!("{url}{separator}protocol=resp3");
    let client = match args.text("ca") {
        Some(ca) => {
            let root_cert = Some(std::fs::read(ca)?);
            Client::build_with_tls(url, TlsCertificates { client_tls: None, root_cert })?
        }
        None => Client::open(url)?,
    };
    debug_assert_eq!(client.get_connection_info().redis_settings().protocol(), ProtocolVersion::RESP3);
    let setnx = args.text("layout") == Some("setnx");
    // Under contention one of the two is for messages.
    let waits = args.text("job") == Some("contend");
    // A connection stays on the runtime on which it was opened.
    let runtime = if args.text("sockets") == Some("apart") { apart()? } else { Handle::current() };
    let (connections, messages) = runtime.spawn(open(client, waits)).await??;
    let load = async |text: &str, mut connection: MultiplexedConnection| {
        Script::new(text).load_async(&mut connection).await
    };
    let acquire = load(ACQUIRE, connections[0].clone()).await?;
    let release = load(if setnx { SETNX_RELEASE } else { RELEASE }, connections[0].clone()).await?;
    // Owners of different processes must differ.
    let first = (args.number::<u64>("process")? + 1) << 40;
    Ok(Baseline {
        connections,
        turn: AtomicUsize::new(0),
        owners: AtomicU64::new(first),
        setnx,
        acquire,
        release,
        messages,
    })
}

/// Two connections for commands, or one and one for messages.
async fn open(
    client: Client,
    waits: bool,
) -> Result<(Vec<MultiplexedConnection>, Option<Mutex<Messages>>), RedisError> {
    let mut connections = Vec::new();
    for _ in 0..if waits { 1 } else { 2 } {
        connections.push(client.get_multiplexed_async_connection().await?);
    }
    let messages = if waits {
        let (push, pushes) = unbounded_channel();
        let config = AsyncConnectionConfig::new().set_push_sender(push);
        let connection = client.get_multiplexed_async_connection_with_config(&config).await?;
        Some(Mutex::new(Messages { connection, pushes, subscribed: false }))
    } else {
        None
    };
    Ok((connections, messages))
}

/// A runtime on a thread of its own.
fn apart() -> Result<Handle, Error> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let handle = runtime.handle().clone();
    std::thread::Builder::new().spawn(move || runtime.block_on(std::future::pending::<()>()))?;
    Ok(handle)
}

fn main() -> ExitCode {
    drive(connect)
}
