//! A simulated server with faults on demand, to test code that uses locks.
//!
//! What a lock can do to your code in production, it can do here: be refused, be slow, answer too late, be lost in the middle
//! of the work. Under tokio's paused clock such a test takes no time. That clock is for a [`Simulation`] and for the engine
//! inside the process: a real server does not know of it.
//!
//! ```
//! use std::time::Duration;
//! use leasehold::test::Simulation;
//! use leasehold::{Client, Loss};
//!
//! /// The code under test: writes the report unless the lock is lost on the way.
//! async fn write_report(client: &Client) -> Result<&'static str, Loss> {
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
//!     assert_eq!(report.await.unwrap(), Err(Loss::TakenOver));
//! }
//! ```
//!
//! Code that is tested on the engine inside the process (`memory:`) needs no handle; [`Embedded`] looks into that engine.

pub use crate::engine::remote::sim::{Embedded, Simulation, Takeover};
pub use crate::env::sim::{Host, Schedule, Task, Trace};
