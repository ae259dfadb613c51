//! distributed-lock-redis, with one server and the defaults of its builder: a lease of 30 s, renewed every 10 s.
//!
//! A run with another lease scales the other times with it, in the proportions of the defaults. Each acquire makes a lock of
//! its own, because a lock has one id, and two tasks with one id would not exclude each other.

use std::process::ExitCode;

use bench_drivers::{Args, Contender, Error, drive};
use distributed_lock_core::traits::{DistributedLock as _, LockHandle as _, LockProvider as _};
use distributed_lock_redis::{RedisLockHandle, RedisLockProvider};

struct DistributedLock(RedisLockProvider);

impl Contender for DistributedLock {
    type Held = RedisLockHandle;

    async fn acquire(&self, name: &str) -> Result<RedisLockHandle, Error> {
        Ok(self.0.create_lock(name).acquire(None).await?)
    }

    async fn release(&self, handle: RedisLockHandle) -> Result<(), Error> {
        Ok(handle.release().await?)
    }
}

async fn connect(args: &Args) -> Result<DistributedLock, Error> {
    let lease = args.lease()?;
    let builder = RedisLockProvider::builder().url(args.need("url")?).expiry(lease);
    Ok(DistributedLock(builder.extension_cadence(lease / 3).min_validity(lease * 9 / 10).build().await?))
}

fn main() -> ExitCode {
    drive(connect)
}
