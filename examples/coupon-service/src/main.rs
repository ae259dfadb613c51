//! A web service that issues coupons, of which there are a limited number, on any number of machines.
//!
//! The list of the winners is in Redis, and a plain list: it is read, checked, and then written. Only the lock makes that
//! one step. See `README.md` for how to run it, and `tests/load.rs` for what it withstands.

mod shop;
mod store;
mod web;

use std::env;
use std::error::Error;
use std::io::Write as _;
use std::sync::Arc;
use std::time::Duration;

use leasehold::Client;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};

use self::shop::Shop;
use self::store::Store;

/// How long coupons that are being issued may take when the service ends.
const GRACE: Duration = Duration::from_secs(5);

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    // Neither waits for a server: the service starts without one, and `/ready` says so.
    let client = Client::from_env()?.lazy()?;
    let store = Store::lazy(&setting("COUPON_STORE", "redis://127.0.0.1"))?;
    let coupons = setting("COUPONS", "100").parse()?;
    let shop = Arc::new(Shop::new(client.clone(), store, coupons));

    let listener = TcpListener::bind(setting("COUPON_LISTEN", "127.0.0.1:8080")).await?;
    println!("listening on {}", listener.local_addr()?);
    std::io::stdout().flush()?;
    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    let end = async move {
        tokio::select! { _ = terminate.recv() => {} _ = interrupt.recv() => {} }
    };
    // Requests that have begun are replied to.
    axum::serve(listener, web::routes(shop)).with_graceful_shutdown(end).await?;
    // A coupon may still be issued for a caller that has hung up: its lock is waited for.
    let report = client.shutdown(GRACE).await;
    println!("ended, with {} locks still held", report.left_to_expire);
    Ok(())
}

fn setting(name: &str, default: &str) -> String {
    env::var(name).unwrap_or_else(|_| default.into())
}
