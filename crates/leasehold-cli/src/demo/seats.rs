//! The counter that all users contend for.

use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};

use redis::AsyncCommands as _;
use redis::aio::MultiplexedConnection;

use super::gathering::Gathering;
use crate::error::Error;
use crate::url::Url;

/// How many seats of the gathering are taken, as the engine's store keeps it.
///
/// It can only be read and written: the lock has to protect the time between the two.
pub(crate) enum Seats {
    /// For `memory:` a value in memory. Relaxed, so that the lock alone orders the accesses.
    Memory(AtomicU32),
    /// For `file:` a file beside the lock. Its accesses are short, so they need no thread of their own.
    File(PathBuf),
    /// On a server a plain key.
    Server { connection: MultiplexedConnection, key: String },
}

/// If the demo is killed, its keys stay on the server for no longer than this.
const KEPT_SECONDS: u64 = 600;

impl Seats {
    /// The seats of a gathering, unchanged.
    pub(crate) async fn open(url: &Url, gathering: &Gathering) -> Result<Self, Error> {
        if url.is_memory() {
            return Ok(Self::Memory(AtomicU32::new(0)));
        }
        if let Some(directory) = url.directory() {
            return Ok(Self::File(directory.join(gathering.file())));
        }
        let client = redis::Client::open(url.secret()).map_err(Error::Seats)?;
        let connection = client.get_multiplexed_async_connection().await.map_err(Error::Seats)?;
        Ok(Self::Server { connection, key: gathering.seats() })
    }

    pub(crate) async fn taken(&self) -> Result<u32, Error> {
        match self {
            Self::Memory(taken) => Ok(taken.load(Ordering::Relaxed)),
            Self::File(path) => match fs::read_to_string(path) {
                // Another user has made it at this moment.
                Ok(text) if text.is_empty() => Ok(0),
                Ok(text) => {
                    text.trim_end().parse().map_err(|error| Error::SeatsFile(io::Error::other(error)))
                }
                Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(0),
                Err(error) => Err(Error::SeatsFile(error)),
            },
            Self::Server { connection, key } => {
                let taken: Option<u32> = connection.clone().get(key).await.map_err(Error::Seats)?;
                Ok(taken.unwrap_or(0))
            }
        }
    }

    pub(crate) async fn set_taken(&self, taken: u32) -> Result<(), Error> {
        match self {
            Self::Memory(value) => value.store(taken, Ordering::Relaxed),
            Self::File(path) => {
                // In place and always as long: without the lock, other users may read it at this moment.
                let file = OpenOptions::new().write(true).create(true).truncate(false).open(path);
                let written = file.and_then(|mut file| file.write_all(format!("{taken:010}\n").as_bytes()));
                written.map_err(Error::SeatsFile)?;
            }
            Self::Server { connection, key } => {
                let set: Result<(), _> = connection.clone().set_ex(key, taken, KEPT_SECONDS).await;
                set.map_err(Error::Seats)?;
            }
        }
        Ok(())
    }

    /// Removes the key from the server.
    pub(crate) async fn remove(&self) -> Result<(), Error> {
        match self {
            Self::Memory(value) => value.store(0, Ordering::Relaxed),
            // It is removed with its directory.
            Self::File(_) => {}
            Self::Server { connection, key } => {
                let removed: Result<(), _> = connection.clone().del(key).await;
                removed.map_err(Error::Seats)?;
            }
        }
        Ok(())
    }
}
