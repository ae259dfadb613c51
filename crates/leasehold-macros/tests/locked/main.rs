//! Functions under the attribute, on locks in memory.

// What some tests rely on: a warning would not fail them.
#![deny(non_snake_case, unfulfilled_lint_expectations)]
#![expect(clippy::unwrap_used, reason = "a failing test names its line")]

mod errors;
mod functions;
mod kinds;
mod loss;
mod names;
mod times;

use std::time::Duration;

use leasehold::Client;

/// The result of `work`, which has to be there in time.
async fn within<F: Future>(limit: Duration, work: F) -> F::Output {
    tokio::time::timeout(limit, work).await.expect("it ends in time")
}

const MINUTE: Duration = Duration::from_secs(60);
const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// Two clients of one memory, which contend with each other.
async fn clients(memory: &str) -> (Client, Client) {
    let url = format!("memory:{memory}");
    (Client::connect(&url).await.unwrap(), Client::connect(&url).await.unwrap())
}
