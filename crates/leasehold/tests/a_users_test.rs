//! How a service that uses locks is tested: its own code, a lock with faults, and a paused clock.

#![expect(clippy::disallowed_methods, reason = "tests may use the clock and the tasks of their runtime")]

use std::time::Duration;

use leasehold::test::Simulation;
use leasehold::{Client, Error, Loss};

/// The service: issues one coupon, unless another client is issuing.
async fn issue_coupon(client: &Client, stock: &mut u32) -> Result<u32, Error> {
    let guard = client.lock("coupon:42").acquire().wait(Duration::from_secs(2)).await?;
    let issued = guard.run(async {
        let seen = *stock;
        tokio::time::sleep(Duration::from_secs(60)).await;
        *stock = seen - 1;
        *stock
    });
    Ok(issued.await?)
}

async fn start() -> (Simulation, Client) {
    let simulation = Simulation::new();
    let client = Client::connect(simulation.url()).await.expect("no outage yet");
    (simulation, client)
}

#[tokio::test(start_paused = true)]
async fn a_busy_lock_is_a_time_out_and_leaves_the_stock_unchanged() {
    let (simulation, client) = start().await;
    let _other = simulation.take_over("coupon:42");
    let mut stock = 5;
    assert!(issue_coupon(&client, &mut stock).await.unwrap_err().is_contended());
    assert_eq!(stock, 5);
}

#[tokio::test(start_paused = true)]
async fn a_busy_lock_that_is_freed_in_time_is_acquired() {
    let (simulation, client) = start().await;
    let other = simulation.take_over("coupon:42");
    let issued = tokio::spawn(async move { issue_coupon(&client, &mut 5).await });
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(simulation.waiters("coupon:42"), 1);
    drop(other);
    assert_eq!(issued.await.unwrap(), Ok(4));
    assert_eq!((simulation.waiters("coupon:42"), simulation.names()), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn an_outage_is_not_reported_as_contention() {
    let (simulation, client) = start().await;
    simulation.outage();
    assert!(issue_coupon(&client, &mut 5).await.unwrap_err().is_unavailable());
    simulation.clear();
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(issue_coupon(&client, &mut 5).await, Ok(4));
}

/// Loses the lock in the middle of the work, and returns the loss that the service reports, and its stock.
async fn lost<T>(lose: impl FnOnce(&Simulation) -> T) -> (Option<Loss>, u32) {
    let (simulation, client) = start().await;
    let work = tokio::spawn(async move {
        let mut stock = 5;
        (issue_coupon(&client, &mut stock).await.expect_err("the lock is lost").loss(), stock)
    });
    tokio::time::sleep(Duration::from_millis(500)).await;
    let _until_the_end = lose(&simulation);
    work.await.expect("the service does not panic")
}

#[tokio::test(start_paused = true)]
async fn a_lock_lost_during_the_work_stops_the_work() {
    let gone = lost(|simulation| assert!(simulation.lose_hold("coupon:42"))).await;
    assert_eq!(gone, (Some(Loss::Gone), 5));
    let taken_over = lost(|simulation| simulation.take_over("coupon:42")).await;
    assert_eq!(taken_over, (Some(Loss::TakenOver), 5));
    let unreachable = lost(Simulation::outage).await;
    assert_eq!(unreachable, (Some(Loss::Unreachable), 5));
}

#[tokio::test(start_paused = true)]
async fn a_lost_reply_leaves_no_lock_behind() {
    let (simulation, client) = start().await;
    simulation.lose_reply();
    assert!(issue_coupon(&client, &mut 5).await.unwrap_err().is_unavailable());
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(simulation.names(), 0);
}
