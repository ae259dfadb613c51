//! How a service that uses locks is tested: its own code, a lock that misbehaves, and no time passing.

#![expect(clippy::disallowed_methods, reason = "tests may use the clock and the tasks of their runtime")]

use std::time::Duration;

use leasehold::{AcquireError, Client};

/// The service: issues one coupon, unless somebody else is issuing.
async fn issue_coupon(client: &Client, stock: &mut u32) -> Result<u32, AcquireError> {
    let guard = client.lock("coupon:42").acquire().wait(Duration::from_secs(2)).await?;
    let issued = guard.run(async {
        let seen = *stock;
        tokio::time::sleep(Duration::from_secs(1)).await;
        *stock = seen - 1;
        *stock
    });
    let left = issued.await.map_err(AcquireError::Lost)?;
    Ok(left)
}

#[tokio::test(start_paused = true)]
async fn a_busy_lock_is_a_time_out_and_the_stock_stays() {
    let (client, faults) = leasehold::test::memory();
    let _stranger = faults.take_over("coupon:42");
    let mut stock = 5;
    assert!(issue_coupon(&client, &mut stock).await.unwrap_err().is_contended());
    assert_eq!(stock, 5);
}

#[tokio::test(start_paused = true)]
async fn an_outage_is_not_contention() {
    let (client, faults) = leasehold::test::memory();
    faults.outage();
    assert!(issue_coupon(&client, &mut 5).await.unwrap_err().is_unavailable());
    faults.clear();
    assert_eq!(issue_coupon(&client, &mut 5).await, Ok(4));
}

#[tokio::test(start_paused = true)]
async fn a_lock_that_is_lost_in_the_middle_stops_the_work() {
    let (client, faults) = leasehold::test::memory();
    let work = tokio::spawn(async move {
        let mut stock = 5;
        (issue_coupon(&client, &mut stock).await, stock)
    });
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert!(faults.lose_hold("coupon:42"));
    let (outcome, stock) = work.await.unwrap();
    assert!(matches!(outcome, Err(AcquireError::Lost(leasehold::Loss::Gone))));
    assert_eq!(stock, 5);
}

#[tokio::test(start_paused = true)]
async fn a_lost_reply_leaves_no_lock_behind() {
    let (client, faults) = leasehold::test::memory();
    faults.lose_reply();
    assert!(issue_coupon(&client, &mut 5).await.unwrap_err().is_unavailable());
    assert_eq!(faults.names(), 0);
}
