//! How a service that uses locks is tested: with faults on demand, and a clock that waits for nothing.
//!
//! The service is an import of many pages, which takes an hour. Its tests (`tests/import.rs`) lose the lock in the middle,
//! cut the server off for a moment and for too long, and wait for another importer; together they take some milliseconds.
//! Three things make that possible:
//!
//! - The feature `test-util` of `leasehold`, among the dev-dependencies only: [`leasehold::test::Simulation`] is a server
//!   with faults. The service does not know about it, since a client is made from a URL.
//! - `#[tokio::test(start_paused = true)]`: when all tasks wait, the clock jumps to the next event. Leases, renewals and waits
//!   follow that clock.
//! - The service takes its client and its output as arguments.
//!
//! ```text
//! cargo test -p paused-time-tests
//! ```

use std::time::Duration;

use leasehold::{Client, Error};
use tokio::sync::mpsc::UnboundedSender;

/// How many pages there are.
pub const PAGES: u32 = 60;
/// How long one page takes.
pub const PAGE: Duration = Duration::from_secs(60);
/// The name of the lock.
pub const LOCK: &str = "import";

/// Imports all pages, on one machine at a time. Each page is sent to `written` when it is done.
///
/// # Errors
///
/// When another import ran for the whole wait of 5 minutes, the lock was lost, or there is no server.
pub async fn import(client: &Client, written: &UnboundedSender<u32>) -> Result<(), Error> {
    let all = async {
        for page in 1..=PAGES {
            tokio::time::sleep(PAGE).await;
            // A receiver that is gone does not mind a page.
            let _ = written.send(page);
        }
        Ok(())
    };
    client.lock(LOCK).acquire().wait(Duration::from_secs(300)).run(all).await
}
