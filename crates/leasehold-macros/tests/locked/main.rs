//! Functions under the attribute, on locks in memory.

#![expect(clippy::unwrap_used, reason = "a failing test names its line")]

mod errors;
mod functions;
mod kinds;
mod loss;
mod names;
mod times;

use leasehold::Client;

/// Two clients of one memory, which contend with each other.
async fn clients(memory: &str) -> (Client, Client) {
    let url = format!("memory:{memory}");
    (Client::connect(&url).await.unwrap(), Client::connect(&url).await.unwrap())
}
