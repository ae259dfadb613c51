//! Locks inside one process: `layout=leasehold` is Leasehold's memory engine, `layout=tokio` a plain
//! `tokio::sync::Mutex` for each name in a map in 64 parts.

use std::collections::HashMap;
use std::hash::{BuildHasher as _, RandomState};
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};

use bench_drivers::{Args, Contender, Error, drive};
use leasehold::{Client, Guard};
use tokio::sync::OwnedMutexGuard;

enum Memory {
    Leasehold(Client),
    Tokio(Box<Map>),
}

struct Map {
    hasher: RandomState,
    parts: [Mutex<HashMap<String, Arc<tokio::sync::Mutex<()>>>>; 64],
}

impl Map {
    fn of(&self, name: &str) -> Arc<tokio::sync::Mutex<()>> {
        let part = &self.parts[self.hasher.hash_one(name) as usize % self.parts.len()];
        let mut part = part.lock().unwrap_or_else(PoisonError::into_inner);
        match part.get(name) {
            Some(mutex) => Arc::clone(mutex),
            None => Arc::clone(part.entry(name.to_owned()).or_default()),
        }
    }
}

enum Held {
    Leasehold(Guard),
    Tokio(OwnedMutexGuard<()>),
}

impl Contender for Memory {
    type Held = Held;

    async fn acquire(&self, name: &str) -> Result<Held, Error> {
        Ok(match self {
            Self::Leasehold(client) => Held::Leasehold(client.lock(name).acquire().await?),
            Self::Tokio(map) => Held::Tokio(map.of(name).lock_owned().await),
        })
    }

    async fn release(&self, held: Held) -> Result<(), Error> {
        match held {
            Held::Leasehold(guard) => drop(guard.release().await?),
            Held::Tokio(guard) => drop(guard),
        }
        // Neither of them ever waits for a server, so nothing else would allow the other tasks to run.
        tokio::task::consume_budget().await;
        Ok(())
    }
}

async fn connect(args: &Args) -> Result<Memory, Error> {
    if args.need("layout")? == "leasehold" {
        return Ok(Memory::Leasehold(Client::connect("memory:").await?));
    }
    let parts = std::array::from_fn(|_| Mutex::default());
    Ok(Memory::Tokio(Box::new(Map { hasher: RandomState::new(), parts })))
}

fn main() -> ExitCode {
    drive(connect)
}
