//! rslock, with one server in its list.
//!
//! Its documentation names no settings but the pause between tries, at most 200 ms, which stays. Its `acquire`
//! waits: it tries until it has the lock. It does not renew.

use std::process::ExitCode;
use std::time::Duration;

use bench_drivers::{Args, Contender, Error, drive};
use rslock::{LockGuard, LockManager};

struct Rslock {
    manager: LockManager,
    lease: Duration,
}

impl Contender for Rslock {
    type Held = LockGuard;

    async fn acquire(&self, name: &str) -> Result<LockGuard, Error> {
        Ok(self.manager.acquire(name, self.lease).await?)
    }

    async fn release(&self, guard: LockGuard) -> Result<(), Error> {
        guard.release().await;
        Ok(())
    }
}

async fn connect(args: &Args) -> Result<Rslock, Error> {
    Ok(Rslock { manager: LockManager::new(vec![args.need("url")?]), lease: args.lease()? })
}

fn main() -> ExitCode {
    drive(connect)
}
