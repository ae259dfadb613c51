//! Acquires and releases a lock in memory a given number of times: the program that `cargo xtask instructions` measures.
//!
//! It runs on one thread and without a runtime, so that two runs differ only by the seeds of the hash tables.

use std::error::Error;

use leasehold::Client;

fn main() -> Result<(), Box<dyn Error>> {
    let pairs: u64 = std::env::args().nth(1).ok_or("how many pairs?")?.parse()?;
    let client = Client::connect("memory:").block()?;
    for pair in 0..pairs {
        // As many names as a small service has, so that tables are neither empty nor one entry long.
        let guard = client.lock(format!("order:{}", pair % 100)).acquire().block()?;
        guard.release().block()?;
    }
    Ok(())
}
