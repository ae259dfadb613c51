//! Errors of the lock in the function's own error type.

use leasehold::{Client, Error};

use crate::{DAY, within};

#[derive(Debug)]
enum OfService {
    SoldOut,
    Lock(Error),
}

impl From<Error> for OfService {
    fn from(error: Error) -> Self {
        Self::Lock(error)
    }
}

#[leasehold::locked("n", wait = "20ms")]
async fn sell(client: &Client, left: u32) -> Result<u32, OfService> {
    left.checked_sub(1).ok_or(OfService::SoldOut)
}

#[leasehold::locked("n", wait = "20ms")]
fn sell_blocking(client: &Client, left: u32) -> Result<u32, OfService> {
    left.checked_sub(1).ok_or(OfService::SoldOut)
}

#[tokio::test(start_paused = true)]
async fn own_374_a_busy_lock_is_an_error_of_the_functions_own_type() {
    let client = Client::connect("memory:").await.unwrap();
    assert_eq!(sell(&client, 2).await.unwrap(), 1);
    assert!(matches!(sell(&client, 0).await, Err(OfService::SoldOut)));
    let held = client.lock("n").acquire().await.unwrap();
    let busy = within(DAY, sell(&client, 2)).await.unwrap_err();
    assert!(matches!(busy, OfService::Lock(error) if error.is_contended()));
    held.release().await.unwrap();
}

#[test]
fn a_busy_lock_is_an_error_of_a_plain_functions_own_type() {
    let client = Client::connect("memory:").block().unwrap();
    assert_eq!(sell_blocking(&client, 2).unwrap(), 1);
    assert!(matches!(sell_blocking(&client, 0), Err(OfService::SoldOut)));
    let held = client.lock("n").acquire().block().unwrap();
    let busy = sell_blocking(&client, 2).unwrap_err();
    assert!(matches!(busy, OfService::Lock(error) if error.is_contended()));
    held.release().block().unwrap();
}
