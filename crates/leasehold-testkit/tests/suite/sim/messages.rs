//! Messages that do not arrive: their connection breaks, or the server denies the subscription.

use std::future::IntoFuture;

use tokio::time::{Instant, sleep};

use super::{LATENCY, MILLISECOND, NAME, SECOND, connect, granted, locks, start};

/// A lock that is released while the connection for messages is broken: the waiter gets it when that is restored, long
/// before the lease that it saw expires.
#[tokio::test(start_paused = true)]
async fn a_waiter_retries_when_messages_are_restored() {
    for kind in 0..5 {
        let (simulation, holder) = start().await;
        simulation.latency(LATENCY);
        let client = connect(&simulation).await;
        let held = locks(&holder)[kind].acquire().await.unwrap();
        let waiter = tokio::spawn(locks(&client)[kind].acquire().into_future());
        sleep(SECOND).await;
        simulation.message_outage();
        sleep(MILLISECOND * 100).await;
        held.release().await.unwrap();
        sleep(MILLISECOND * 10).await;
        simulation.clear();
        let begun = Instant::now();
        granted(waiter).await.release().await.unwrap();
        assert!(begun.elapsed() < SECOND, "{kind}: {:?}", begun.elapsed());
        assert_eq!(simulation.names(), 0);
    }
}

/// The waiter arrives while there are no messages: it sends its request without waiting for them, and is notified once they
/// arrive.
#[tokio::test(start_paused = true)]
async fn a_waiter_that_arrives_in_a_message_outage_is_notified_of_the_next_release() {
    let (simulation, holder) = start().await;
    let client = connect(&simulation).await;
    let held = holder.lock(NAME).acquire().await.unwrap();
    simulation.message_outage();
    sleep(SECOND).await;
    let waiter = tokio::spawn(client.lock(NAME).acquire().into_future());
    sleep(SECOND).await;
    simulation.clear();
    sleep(SECOND).await;
    assert!(!waiter.is_finished());
    let begun = Instant::now();
    held.release().await.unwrap();
    granted(waiter).await.release().await.unwrap();
    assert!(begun.elapsed() < MILLISECOND * 100, "{:?}", begun.elapsed());
    assert_eq!(simulation.names(), 0);
}

/// The connection breaks while a waiter subscribes, and is not restored: the waiter retries once more all the same.
#[tokio::test(start_paused = true)]
async fn a_waiter_retries_though_its_subscription_failed() {
    let (simulation, holder) = start().await;
    let client = connect(&simulation).await;
    let held = holder.lock(NAME).acquire().await.unwrap();
    simulation.latency(LATENCY);
    let waiter = tokio::spawn(client.lock(NAME).acquire().into_future());
    // The waiter has the reply that the lock is held, and its subscription is in flight.
    sleep(LATENCY * 2 + MILLISECOND * 3).await;
    simulation.message_outage();
    held.release().await.unwrap();
    granted(waiter).await.release().await.unwrap();
    assert_eq!(simulation.names(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_client_without_the_right_to_subscribe_polls_until_the_right_is_granted() {
    let (simulation, holder) = start().await;
    let client = connect(&simulation).await;
    let held = holder.lock(NAME).acquire().await.unwrap();
    simulation.deny_messages();
    let waits = || tokio::spawn(client.lock(NAME).acquire().into_future());
    let waiter = waits();
    sleep(SECOND).await;
    let begun = Instant::now();
    held.release().await.unwrap();
    let held = granted(waiter).await;
    let took = begun.elapsed();
    assert!((MILLISECOND..=MILLISECOND * 201).contains(&took), "it polls: {took:?}");

    simulation.clear();
    simulation.cut_messages();
    let waiter = waits();
    sleep(SECOND).await;
    let begun = Instant::now();
    // By another client, so that it is no local hand-over.
    assert!(holder.lock(NAME).force_unlock().await.unwrap());
    drop(held);
    granted(waiter).await.release().await.unwrap();
    assert!(begun.elapsed() < MILLISECOND * 10, "it is notified: {:?}", begun.elapsed());
    assert_eq!(simulation.names(), 0);
}
