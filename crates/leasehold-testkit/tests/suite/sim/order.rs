//! Grants, takeovers and removals take effect in the order in which the server made them, however late a caller polls.

use std::future::IntoFuture;

use leasehold::{Client, Guard, Loss};
use tokio::sync::mpsc::unbounded_channel;
use tokio::time::sleep;

use super::{LATENCY, MILLISECOND, NAME, SECOND, begun, connect, locks, soon, start};

/// Waits until a reply has been read; only a future that is not polled could report that.
async fn replied() {
    sleep(MILLISECOND).await;
}

#[tokio::test(start_paused = true)]
async fn a_grant_polled_late_does_not_override_a_later_take_over() {
    let (_simulation, client) = start().await;
    for lock in locks(&client) {
        let victim = begun(lock.try_acquire().into_future());
        replied().await;
        let thief = lock.acquire().steal().await.unwrap();
        let victim = victim.await.unwrap();
        assert!(
            victim.is_none(),
            "{lock:?}: another owner has taken it over, and the first guard reports {victim:?}"
        );
        assert!(thief.is_held(), "{lock:?}: nothing was taken from the thief");
        assert!(lock.is_held_by(thief.owner()).await.unwrap());
        thief.release().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_grant_polled_late_does_not_override_a_later_removal() {
    let (_simulation, client) = start().await;
    for lock in locks(&client) {
        let victim = begun(lock.try_acquire().into_future());
        replied().await;
        assert!(lock.force_unlock().await.unwrap());
        let victim = victim.await.unwrap();
        assert!(!victim.as_ref().is_some_and(Guard::is_held), "{lock:?}: it is removed, and not {victim:?}");
        assert!(!lock.is_locked().await.unwrap(), "{lock:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_grant_of_several_locks_polled_late_does_not_override_a_later_take_over() {
    let (simulation, client) = start().await;
    let victim = begun(client.multi_lock(["a", "c"]).try_acquire());
    replied().await;
    assert_eq!(simulation.names(), 2, "both are granted");
    let thief = client.lock("a").acquire().steal().await.unwrap();
    let victim = victim.await.unwrap();
    assert!(!victim.is_some_and(|guard| guard.is_held()) && thief.is_held());
    replied().await;
    assert_eq!(simulation.names(), 1, "what was granted of the others is given back");
    thief.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_removal_polled_late_does_not_end_a_later_grant() {
    let (_simulation, client) = start().await;
    for lock in locks(&client) {
        let first = lock.acquire().await.unwrap();
        let removal = begun(lock.force_unlock());
        assert_eq!(soon("the loss", first.lost()).await, Loss::ForceUnlocked);
        let second = lock.acquire().await.unwrap();
        assert!(removal.await.unwrap());
        assert!(second.is_held(), "{lock:?}: it was granted after the removal");
        second.release().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_deletion_of_a_semaphore_polled_late_does_not_end_later_permits() {
    let (_simulation, client) = start().await;
    let permits = client.leased_semaphore(NAME);
    assert!(permits.try_set_permits(1).await.unwrap());
    let first = permits.acquire(1).await.unwrap();
    let deletion = begun(permits.delete());
    assert_eq!(soon("the loss", first.lost()).await, Loss::Gone);
    assert!(permits.try_set_permits(1).await.unwrap());
    let second = permits.acquire(1).await.unwrap();
    assert!(deletion.await.unwrap());
    assert!(second.is_held(), "they were granted after the deletion");
}

#[tokio::test(start_paused = true)]
async fn a_grant_polled_after_a_reconnection_is_checked_on_the_new_connection() {
    let (simulation, client) = start().await;
    let other = connect(&simulation).await;
    for (lock, elsewhere) in locks(&client).into_iter().zip(locks(&other)) {
        let acquiring = begun(lock.try_acquire().into_future());
        replied().await;
        // The connection breaks, and the lock is lost before the next connection.
        simulation.cut();
        simulation.lose_hold(NAME);
        sleep(SECOND).await;
        let now = elsewhere.acquire().await.unwrap();
        let guard = acquiring.await.unwrap();
        assert!(!guard.is_some_and(|guard| guard.is_held()), "{lock:?} is held by another client");
        now.release().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_grant_that_is_never_polled_is_not_renewed() {
    let (simulation, other) = start().await;
    let client = Client::connect(simulation.url()).watchdog(SECOND).await.unwrap();
    for (lock, elsewhere) in locks(&client).into_iter().zip(locks(&other)) {
        let asleep = begun(lock.acquire().into_future());
        replied().await;
        let next = soon("another client gets the lock", elsewhere.acquire().into_future()).await.unwrap();
        let late = tokio::time::timeout(SECOND, asleep).await;
        assert!(!late.is_ok_and(|told| told.is_ok_and(|guard| guard.is_held())), "{lock:?}");
        assert!(next.is_held());
        next.release().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_grant_that_is_polled_just_in_time_is_renewed_from_then_on() {
    let (simulation, _other) = start().await;
    let client = Client::connect(simulation.url()).watchdog(SECOND).await.unwrap();
    for lock in locks(&client) {
        let acquiring = begun(lock.acquire().into_future());
        sleep(SECOND * 9 / 10).await;
        let guard = acquiring.await.unwrap();
        sleep(SECOND * 5).await;
        assert!(guard.is_held(), "{lock:?} is renewed like any other");
        assert_eq!(simulation.names(), 1);
        guard.release().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn two_concurrent_take_overs_leave_one_holder() {
    let (simulation, client) = start().await;
    let other = connect(&simulation).await;
    simulation.latency(LATENCY);
    for (lock, elsewhere) in locks(&client).into_iter().zip(locks(&other)) {
        for second in [&lock, &elsewhere] {
            let takeovers = [&lock, second].map(|lock| tokio::spawn(lock.acquire().steal().into_future()));
            let mut guards = Vec::new();
            for takeover in takeovers {
                guards.push(soon("a takeover", takeover).await.unwrap().unwrap());
            }
            // A client detects the takeover by another one when it renews its hold.
            sleep(SECOND * 15).await;
            let held = guards.iter().filter(|guard| guard.is_held()).count();
            assert_eq!(held, 1, "{lock:?}: {guards:?}");
            drop(guards);
            sleep(SECOND).await;
            assert_eq!(simulation.names(), 0, "{lock:?}");
        }
    }
}

/// Acquires these locks, with requests in this order; returns the names in the order of the replies.
async fn replies(client: &Client, names: [&'static str; 3]) -> Vec<&'static str> {
    let (told, mut tells) = unbounded_channel();
    for name in names {
        let (acquiring, told) = (begun(client.lock(name).acquire().into_future()), told.clone());
        tokio::spawn(async move {
            drop(acquiring.await.unwrap());
            told.send(name).unwrap();
        });
    }
    let mut order = Vec::new();
    while order.len() < names.len() {
        order.extend(soon("a reply", tells.recv()).await);
    }
    // Until all are released.
    sleep(SECOND).await;
    order
}

/// All of them are on one part of the server.
#[tokio::test(start_paused = true)]
async fn the_simulation_can_reorder_requests_about_different_names() {
    let (simulation, client) = start().await;
    simulation.latency(LATENCY);
    assert_eq!(replies(&client, ["b", "d", "f"]).await, ["b", "d", "f"]);
    simulation.reorder();
    assert_eq!(replies(&client, ["b", "d", "f"]).await, ["f", "d", "b"]);
    // An undo does not overtake the request that it rolls back.
    drop(["b", "d", "f"].map(|name| begun(client.lock(name).acquire().lease(SECOND * 600).into_future())));
    sleep(SECOND).await;
    assert_eq!(simulation.names(), 0);
    simulation.clear();
    simulation.latency(LATENCY);
    assert_eq!(replies(&client, ["b", "d", "f"]).await, ["b", "d", "f"]);
}
