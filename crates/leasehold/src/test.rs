//! A simulated server with faults on demand, to test code that uses locks.
//!
//! The faults of production can be simulated here: a request is refused, a server is slow, a reply arrives too late, a lock is
//! lost during the work. Under tokio's paused clock such a test takes no time. That clock works with a [`Simulation`] and with
//! the engine inside the process, not with a real server.
//!
//! ```
//! use std::time::Duration;
//! use leasehold::test::Simulation;
//! use leasehold::{Client, Loss, LostError};
//!
//! /// The code under test: writes the report unless the lock is lost on the way.
//! async fn write_report(client: &Client) -> Result<&'static str, LostError> {
//!     let guard = client.lock("nightly-report").acquire().await.expect("the server is there");
//!     guard.run(async {
//!         tokio::time::sleep(Duration::from_secs(3600)).await;
//!         "written"
//!     }).await
//! }
//!
//! #[tokio::main(flavor = "current_thread", start_paused = true)] // in a test: #[tokio::test(start_paused = true)]
//! async fn main() {
//!     let simulation = Simulation::new();
//!     let client = Client::connect(simulation.url()).await.unwrap();
//!
//!     let report = tokio::spawn(async move { write_report(&client).await });
//!     tokio::time::sleep(Duration::from_secs(60)).await;
//!     let _other = simulation.take_over("nightly-report");
//!
//!     assert_eq!(report.await.unwrap().map_err(|lost| lost.loss), Err(Loss::TakenOver));
//! }
//! ```
//!
//! Code that is tested on the engine inside the process (`memory:`) needs no handle; [`Embedded`] inspects that engine.

pub use crate::engine::remote::sim::{Embedded, Simulation, Takeover};
pub use crate::env::sim::{Host, Schedule, Task, Trace};
