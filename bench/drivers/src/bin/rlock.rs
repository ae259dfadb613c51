//! rlock, with its default options: it tries every 100 ms, and renews at half the lease.

use std::process::ExitCode;

use bench_drivers::{Args, Contender, Error, drive};
use rlock::AcquireOptions;
use rlock::async_lock::{RLock, RLockGuard};

struct Rlock {
    manager: RLock,
    options: AcquireOptions,
}

impl Contender for Rlock {
    type Held = RLockGuard;

    async fn acquire(&self, name: &str) -> Result<RLockGuard, Error> {
        Ok(self.manager.acquire_mutex_with_options(name, self.options.clone()).await?)
    }

    async fn release(&self, mut guard: RLockGuard) -> Result<(), Error> {
        Ok(guard.release().await?)
    }
}

async fn connect(args: &Args) -> Result<Rlock, Error> {
    let options = AcquireOptions::builder().ttl(args.lease()?).build()?;
    Ok(Rlock { manager: RLock::new(args.need("url")?).await?, options })
}

fn main() -> ExitCode {
    drive(connect)
}
