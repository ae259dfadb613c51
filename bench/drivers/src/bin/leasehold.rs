//! Leasehold itself: `layout=hash` is `client.lock`, `layout=setnx` is `client.setnx_lock`. With `calls=blocking` the same
//! calls block a plain thread, `client.lock` only.
//!
//! All settings are the defaults but the watchdog time, which the run about renewals sets for all contenders alike. A handle
//! is made for every acquire, as in a program that gets the name with the request.

use std::process::ExitCode;

use bench_drivers::{Args, BlockingContender, Contender, Error, drive, drive_blocking};
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
    let url = args.need("url")?;
    let url = args.text("ca").map_or_else(|| url.into(), |ca| format!("{url}?ca={ca}"));
    let client = Client::connect(url).watchdog(args.lease()?).await?;
    Ok(Leasehold { client, setnx: args.text("layout") == Some("setnx") })
}

struct Blocking(Client);

impl BlockingContender for Blocking {
    type Lock = String;
    type Held = Guard;

    fn lock(&self, name: &str) -> String {
        name.into()
    }

    fn acquire(&self, name: &String) -> Result<Guard, Error> {
        Ok(self.0.lock(name).acquire().block()?)
    }

    fn release(&self, guard: Guard) -> Result<(), Error> {
        guard.release().block()?;
        Ok(())
    }
}

fn connect_blocking(args: &Args) -> Result<Blocking, Error> {
    Ok(Blocking(Client::connect(args.need("url")?).watchdog(args.lease()?).block()?))
}

/// The recorder that a service would have, with the buckets of `examples/prometheus`. Histograms are summed up each second, far more
/// often than by a service, because a run lasts for a second.
#[cfg(feature = "metrics")]
fn install_recorder() -> Result<(), Error> {
    const BUCKETS: &[f64] = &[0.001, 0.005, 0.025, 0.1, 0.5, 2.0, 10.0, 60.0];
    let metrics =
        metrics_exporter_prometheus::PrometheusBuilder::new().set_buckets(BUCKETS)?.install_recorder()?;
    std::thread::spawn(move || {
        loop {
            std::thread::sleep(std::time::Duration::from_secs(1));
            metrics.run_upkeep();
        }
    });
    Ok(())
}

fn main() -> ExitCode {
    #[cfg(feature = "metrics")]
    install_recorder().expect("a process has no recorder when it begins");
    let is_blocking = std::env::args().any(|word| word == "calls=blocking");
    if is_blocking { drive_blocking(connect_blocking) } else { drive(connect) }
}
