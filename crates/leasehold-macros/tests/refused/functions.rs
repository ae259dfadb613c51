use std::future::Future;

use leasehold::{Client, Error, locked};

#[locked("n")]
struct Counter;

trait Job {
    #[locked("n")]
    async fn work(&self, client: &Client) -> Result<(), Error>;
}

#[locked("n")]
const fn constant(client: &Client) -> Result<(), Error> {
    Ok(())
}

#[locked("n")]
unsafe fn dangerous(client: &Client) -> Result<(), Error> {
    Ok(())
}

#[locked("n")]
async fn returns_nothing(client: &Client) {}

#[locked("n")]
async fn returns_a_number(client: &Client) -> u32 {
    1
}

#[locked("n")]
fn returns_a_future(client: &Client) -> impl Future<Output = Result<(), Error>> {
    async { Ok(()) }
}

#[locked("n", skip_if_busy)]
async fn always_returns_a_value(client: &Client) -> Result<u32, Error> {
    Ok(1)
}

fn main() {}
