//! The options that are times.

use std::time::Duration;

use leasehold::{Client, Error, HoldView, Loss};
use tokio::time::Instant;

use crate::{DAY, within};

#[leasehold::locked("n", wait = "1m30s")]
async fn patient(client: &Client) -> Result<(), Error> {
    Ok(())
}

struct Config {
    client: Client,
    patience: Duration,
}

impl Config {
    #[leasehold::locked("n", wait = self.patience)]
    async fn configured(&self) -> Result<(), Error> {
        Ok(())
    }
}

#[tokio::test(start_paused = true)]
async fn the_lock_is_waited_for_as_long_as_the_option_says() {
    let client = Client::connect("memory:").await.unwrap();
    let held = client.lock("n").acquire().await.unwrap();
    let begun = Instant::now();
    assert!(within(DAY, patient(&client)).await.unwrap_err().is_contended());
    assert_eq!(begun.elapsed().as_secs(), 90);
    let config = Config { client, patience: Duration::from_secs(7) };
    assert!(within(DAY, config.configured()).await.unwrap_err().is_contended());
    assert_eq!(begun.elapsed().as_secs(), 97);
    held.release().await.unwrap();
}

#[leasehold::locked("n", lease = "5s", guard = hold)]
async fn leased(client: &Client) -> Result<HoldView, Error> {
    assert!(hold.remaining() <= Duration::from_secs(5));
    hold.lost().await;
    Ok(hold)
}

#[leasehold::locked("n", max_hold = "1h", guard = hold)]
async fn limited(client: &Client) -> Result<HoldView, Error> {
    hold.lost().await;
    Ok(hold)
}

#[tokio::test(start_paused = true)]
async fn a_hold_ends_with_its_lease_and_with_max_hold() {
    let client = Client::connect("memory:").await.unwrap();
    let begun = Instant::now();
    assert!(
        matches!(within(DAY, leased(&client)).await, Err(Error::Lost(lost)) if lost.loss == Loss::Expired)
    );
    assert!(begun.elapsed() <= Duration::from_secs(5));
    let begun = Instant::now();
    assert!(
        matches!(within(DAY, limited(&client)).await, Err(Error::Lost(lost)) if lost.loss == Loss::MaxHold)
    );
    assert!(begun.elapsed() > Duration::from_secs(3500) && begun.elapsed() <= Duration::from_secs(3600));
}

#[leasehold::locked("n", min_hold = "1m", skip_if_busy)]
async fn once_a_minute(client: &Client) -> Result<Option<u32>, Error> {
    Ok(Some(7))
}

#[leasehold::locked("permits", kind = leased_semaphore(1), min_hold = "1m")]
async fn one_a_minute(client: &Client) -> Result<(), Error> {
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_lock_stays_taken_for_its_least_time() {
    let client = Client::connect("memory:").await.unwrap();
    assert_eq!(once_a_minute(&client).await.unwrap(), Some(7));
    assert_eq!(once_a_minute(&client).await.unwrap(), None);
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(once_a_minute(&client).await.unwrap(), Some(7));

    let begun = Instant::now();
    for _ in 0..2 {
        within(DAY, one_a_minute(&client)).await.unwrap();
    }
    assert_eq!(begun.elapsed().as_secs(), 60);
}
