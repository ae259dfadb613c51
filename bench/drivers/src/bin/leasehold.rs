//! Leasehold itself: `layout=hash` is `client.lock`, `layout=setnx` is `client.setnx_lock`.
//!
//! All settings are the defaults but the watchdog time, which the run about renewals sets for all contenders alike. A handle
//! is made for every acquire, as in a program that gets the name with the request.

use std::process::ExitCode;

use bench_drivers::{Args, Contender, Error, drive};
use leasehold::{Client, Guard};

struct Leasehold {
    client: Client,
    setnx: bool,
}

impl Contender for Leasehold {
    type Held = Guard;

    async fn acquire(&self, name: &str) -> Result<Guard, Error> {
        let lock = if self.setnx { self.client.setnx_lock(name) } else { self.client.lock(name) };
        Ok(lock.acquire().await?)
    }

    async fn release(&self, guard: Guard) -> Result<(), Error> {
        guard.release().await?;
        Ok(())
    }
}

async fn connect(args: &Args) -> Result<Leasehold, Error> {
    let client = Client::connect(args.need("url")?).watchdog(args.lease()?).await?;
    Ok(Leasehold { client, setnx: args.text("layout") == Some("setnx") })
}

fn main() -> ExitCode {
    drive(connect)
}
