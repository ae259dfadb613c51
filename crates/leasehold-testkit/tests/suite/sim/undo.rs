//! A step that is rolled back stays rolled back, and nothing else is rolled back.

use std::future::IntoFuture;
use std::time::Duration;

use leasehold::test::Simulation;
use leasehold::{AcquireError, Client, Guard, Lock, Loss, Owner};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

use super::{LATENCY, MILLISECOND, NAME, SECOND, begun, connect, granted, locks, start};

/// Drops a guard during an outage of more than a second, after which its lock has to be free.
async fn is_given_back_after_an_outage(guard: Guard, simulation: &Simulation) {
    simulation.outage();
    drop(guard);
    sleep(SECOND * 3).await;
    simulation.clear();
    sleep(SECOND).await;
    assert_eq!(simulation.names(), 0, "the lock is free");
}

/// The undo of its queue position has the time limit of that position, and the undo of its possible hold has a longer one.
#[tokio::test(start_paused = true)]
async fn a_fair_waiter_that_gives_up_in_a_long_outage_leaves_no_hold() {
    let (simulation, client) = start().await;
    let holder = connect(&simulation).await.fair_lock(NAME).acquire().await.unwrap();
    let lock = client.fair_lock(NAME);
    let waiter = tokio::spawn(lock.acquire().as_owner(Owner::number(7)).lease(SECOND * 600).into_future());
    sleep(SECOND).await;
    assert_eq!(lock.queue().await.unwrap().len(), 1, "the waiter is queued");
    // The release, the message and the waiter's request each need one latency.
    simulation.latency(LATENCY);
    drop(holder);
    sleep(LATENCY * 7 / 2).await;
    assert_eq!(simulation.names(), 1, "the server has granted it, and the reply is under way");
    simulation.outage();
    waiter.abort();
    // Longer than a waiter without a heartbeat stays in the queue.
    sleep(SECOND * 4).await;
    simulation.clear();
    sleep(SECOND).await;
    assert_eq!(simulation.names(), 0, "the lock is free");
}

#[tokio::test(start_paused = true)]
async fn a_lock_with_an_extended_lease_is_released_after_an_outage_longer_than_the_first_lease() {
    let (simulation, client) = start().await;
    for lock in locks(&client) {
        let guard = lock.acquire().lease(SECOND).await.unwrap();
        guard.extend(SECOND * 600).await.unwrap();
        is_given_back_after_an_outage(guard, &simulation).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_lock_is_released_after_an_outage_though_the_reply_to_its_extension_was_lost() {
    let (simulation, client) = start().await;
    for lock in locks(&client) {
        let guard = lock.acquire().lease(SECOND * 3).await.unwrap();
        simulation.lose_reply();
        guard.extend(SECOND * 600).await.unwrap_err();
        sleep(SECOND).await;
        is_given_back_after_an_outage(guard, &simulation).await;
    }
}

#[tokio::test(start_paused = true)]
async fn dropped_re_entries_and_guards_leave_the_hold_count_of_the_remaining_guards() {
    let (simulation, client) = start().await;
    for lock in [client.lock(NAME), client.group_lock(NAME, ["a"])] {
        let owner = Owner::number(7);
        let outer = lock.acquire().as_owner(&owner).await.unwrap();
        let inner = lock.acquire().as_owner(&owner).await.unwrap();
        simulation.latency(LATENCY);
        drop(begun(outer.reenter()));
        drop((inner, begun(outer.reenter())));
        sleep(SECOND).await;
        assert_eq!(lock.hold_count(&owner).await.unwrap(), 1, "{lock:?}");
        assert!(outer.is_held());
        drop(outer);
        sleep(SECOND).await;
        assert_eq!(simulation.names(), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn a_refused_undo_is_retried_until_the_server_accepts_undos_again() {
    let (simulation, client) = start().await;
    for lock in locks(&client) {
        let guard = lock.acquire().lease(SECOND * 600).await.unwrap();
        simulation.deny();
        drop(guard);
        sleep(SECOND * 5).await;
        assert_eq!(simulation.names(), 1);
        simulation.clear();
        sleep(SECOND).await;
        assert_eq!(simulation.names(), 0, "{lock:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_retried_undo_does_not_end_the_next_hold_of_its_owner() {
    let (simulation, client) = start().await;
    let owner = Owner::number(7);
    let guard = client.lock(NAME).acquire().as_owner(&owner).await.unwrap();
    simulation.deny();
    drop(guard);
    sleep(SECOND / 5).await;
    simulation.clear();
    // The same lock by another handle.
    let next = client.fair_lock(NAME).acquire().as_owner(&owner).await.unwrap();
    sleep(SECOND * 2).await;
    assert!(next.is_held() && client.lock(NAME).is_held_by(&owner).await.unwrap());
}

/// Breaks the connection, whose request is executed a few seconds later. Drops `dropped` before there is another connection.
async fn acts_late<T>(simulation: &Simulation, dropped: T) {
    simulation.act_late(SECOND * 5);
    simulation.cut();
    sleep(MILLISECOND).await;
    drop(dropped);
    sleep(SECOND * 4).await;
    assert_eq!(simulation.names(), 0, "it is not carried out yet");
}

/// Waits until a hold appears that no client wants, and until it is released.
async fn is_undone_after_it_acted(simulation: &Simulation, what: &str) {
    let begun = Instant::now();
    while simulation.names() == 0 {
        assert!(begun.elapsed() < SECOND * 3, "it is carried out: {what}");
        sleep(MILLISECOND).await;
    }
    sleep(SECOND).await;
    assert_eq!(simulation.names(), 0, "a late grant is undone: {what}");
}

#[tokio::test(start_paused = true)]
async fn an_acquire_that_a_broken_connection_executes_after_its_undo_is_undone() {
    for kind in 0..5 {
        let (simulation, client) = start().await;
        let lock = locks(&client)[kind].clone();
        simulation.latency(LATENCY);
        let acquiring = begun(lock.acquire().lease(SECOND * 600).into_future());
        sleep(LATENCY / 2).await;
        acts_late(&simulation, ()).await;
        drop(acquiring);
        is_undone_after_it_acted(&simulation, &format!("{lock:?}")).await;
    }
}

#[tokio::test(start_paused = true)]
async fn an_undo_made_before_a_reconnection_is_repeated_on_the_new_connection() {
    let (simulation, client) = start().await;
    simulation.latency(LATENCY);
    let one = begun(client.lock(NAME).acquire().lease(SECOND * 600).into_future());
    let all = begun(client.multi_lock(["b", "d"]).acquire().lease(SECOND * 600).into_future());
    sleep(LATENCY / 2).await;
    acts_late(&simulation, (one, all)).await;
    is_undone_after_it_acted(&simulation, "one and several locks").await;
}

/// The lease, which limits the time of the undo otherwise, begins when the request is executed.
#[tokio::test(start_paused = true)]
async fn an_acquire_that_a_broken_connection_executes_after_its_lease_is_undone() {
    let (simulation, client) = start().await;
    simulation.latency(LATENCY);
    let acquiring = begun(client.lock(NAME).acquire().lease(SECOND * 3).into_future());
    sleep(LATENCY / 2).await;
    acts_late(&simulation, acquiring).await;
    is_undone_after_it_acted(&simulation, "a short lease").await;
}

type Waiter = JoinHandle<Result<Guard, AcquireError>>;

/// Waiters for a lock at these clients. Their requests are lost with connections that cannot be ended, and executed five
/// seconds later.
async fn ask_twice(simulation: &Simulation, kind: usize, clients: &[Client]) -> Vec<Waiter> {
    simulation.latency(LATENCY);
    let holder = locks(&connect(simulation).await)[kind].acquire().await.unwrap();
    let acquire = |client| locks(client)[kind].acquire().lease(SECOND * 600).into_future();
    let waiters = clients.iter().map(|client| tokio::spawn(acquire(client))).collect();
    sleep(SECOND).await;
    drop(holder);
    // The release, the message and half of the round trip of the request.
    sleep(LATENCY * 5 / 2).await;
    simulation.act_late(SECOND * 5);
    simulation.cut();
    waiters
}

/// The waiter gets the lock under the same owner and releases it, all before that.
#[tokio::test(start_paused = true)]
async fn an_acquire_that_a_broken_connection_executes_after_the_release_is_undone() {
    for kind in 0..5 {
        let (simulation, client) = start().await;
        for waiter in ask_twice(&simulation, kind, std::slice::from_ref(&client)).await {
            let guard = granted(waiter).await;
            // Some are also requested without a message, and may have been granted before.
            sleep(SECOND).await;
            guard.release().await.unwrap();
        }
        sleep(SECOND * 20).await;
        assert_eq!(simulation.names(), 0, "lock {kind}");
    }
}

/// One waiter is faster. The other one gets a reply that the lock is held, and keeps waiting until it is dropped.
#[tokio::test(start_paused = true)]
async fn an_acquire_that_a_broken_connection_executes_after_its_waiter_gave_up_is_undone() {
    for kind in 0..5 {
        let (simulation, client) = start().await;
        let clients = [client, connect(&simulation).await];
        let (got, waits): (Vec<_>, Vec<_>) = {
            let waiters = ask_twice(&simulation, kind, &clients).await;
            sleep(SECOND).await;
            waiters.into_iter().partition(JoinHandle::is_finished)
        };
        assert_eq!((got.len(), waits.len()), (1, 1), "lock {kind}");
        waits.iter().for_each(JoinHandle::abort);
        sleep(SECOND).await;
        for waiter in got {
            granted(waiter).await.release().await.unwrap();
        }
        sleep(SECOND * 20).await;
        assert_eq!(simulation.names(), 0, "lock {kind}");
    }
}

/// The undo of a request is lost with the next connection, and executed after its waiter has got the lock.
#[tokio::test(start_paused = true)]
async fn an_undo_executed_late_does_not_end_the_later_hold_of_its_waiter() {
    for kind in 0..5 {
        let (simulation, client) = start().await;
        let elsewhere = locks(&connect(&simulation).await)[kind].clone();
        let waiters = ask_twice(&simulation, kind, std::slice::from_ref(&client)).await;
        // There is a new connection after 20 ms, on which the undo is sent first.
        sleep(MILLISECOND * 20 + LATENCY / 2).await;
        simulation.cut();
        for waiter in waiters {
            let guard = granted(waiter).await;
            sleep(SECOND * 8).await;
            assert!(guard.is_held() && elsewhere.is_locked().await.unwrap(), "lock {kind}");
        }
    }
}

/// The ways in which a client detects that its guard has lost the lock, before the guard is dropped.
const LOSSES: [&str; 5] = ["force_unlock", "steal", "check", "re-entry", "release"];

async fn loses(way: &str, simulation: &Simulation, lock: &Lock, guard: Guard) -> Option<Guard> {
    match way {
        "force_unlock" => assert!(lock.force_unlock().await.unwrap()),
        "steal" => drop(lock.acquire().steal().await.unwrap()),
        "check" => {
            assert!(simulation.lose_hold(NAME));
            simulation.cut();
            assert_eq!(guard.lost().await, Loss::Gone);
        }
        "re-entry" => {
            assert!(simulation.lose_hold(NAME));
            guard.reenter().await.unwrap_err();
        }
        _ => {
            assert!(simulation.lose_hold(NAME));
            guard.release().await.unwrap_err();
            return None;
        }
    }
    Some(guard)
}

/// The waiter gets the lock under the same owner and loses it, all before that.
#[tokio::test(start_paused = true)]
async fn an_acquire_that_a_broken_connection_executes_after_the_loss_is_undone() {
    for (kind, way) in (0..5).flat_map(|kind| LOSSES.map(|way| (kind, way))) {
        let (simulation, client) = start().await;
        let lock = locks(&client)[kind].clone();
        if kind == 1 && way == "re-entry" {
            // It has no count.
            continue;
        }
        for waiter in ask_twice(&simulation, kind, std::slice::from_ref(&client)).await {
            let guard = granted(waiter).await;
            sleep(SECOND).await;
            let guard = loses(way, &simulation, &lock, guard).await;
            assert!(guard.as_ref().is_none_or(|guard| !guard.is_held()), "lock {kind}, {way}");
            sleep(SECOND * 20).await;
            assert_eq!(simulation.names(), 0, "lock {kind}, {way}: the guard is not gone yet");
        }
    }
}

/// A guard of owner 7 at a client. An earlier request of that owner was lost, and is executed five seconds later.
async fn asked_twice(simulation: &Simulation, lock: &Lock, rival: &Lock) -> Guard {
    simulation.latency(LATENCY);
    let holder = rival.acquire().await.unwrap();
    let waiter = tokio::spawn(lock.acquire().as_owner(Owner::number(7)).into_future());
    sleep(SECOND).await;
    drop(holder);
    sleep(LATENCY * 5 / 2).await;
    simulation.act_late(SECOND * 5);
    simulation.cut();
    let guard = granted(waiter).await;
    // Some are also requested without a message, and may have been granted before.
    sleep(SECOND).await;
    guard
}

/// The reply to the release arrives when the next request of its owner is in flight.
#[tokio::test(start_paused = true)]
async fn the_undo_of_an_earlier_hold_does_not_end_the_next_hold_of_its_owner() {
    for kind in 0..5 {
        let (simulation, client) = start().await;
        let (lock, owner) = (locks(&client)[kind].clone(), Owner::number(7));
        let guard = asked_twice(&simulation, &lock, &locks(&connect(&simulation).await)[kind]).await;
        drop(begun(guard.release()));
        let guard = lock.acquire().as_owner(&owner).await.unwrap();
        sleep(SECOND).await;
        assert!(guard.is_held() && lock.is_held_by(&owner).await.unwrap(), "lock {kind}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_waiter_that_gives_up_does_not_end_the_pending_acquire_of_the_same_owner() {
    // Not in the queue of a fair lock, where both share one position.
    for kind in [0, 1, 3, 4] {
        let (simulation, client) = start().await;
        let (lock, owner) = (locks(&client)[kind].clone(), Owner::number(7));
        let rival = locks(&connect(&simulation).await)[kind].clone();
        asked_twice(&simulation, &lock, &rival).await.release().await.unwrap();
        let holder = rival.acquire().await.unwrap();
        let [waiter, other] = [(); 2].map(|()| tokio::spawn(lock.acquire().as_owner(&owner).into_future()));
        sleep(SECOND).await;
        drop(holder);
        // The release, the message and half of the round trip of the request.
        sleep(LATENCY * 5 / 2).await;
        other.abort();
        let guard = granted(waiter).await;
        sleep(SECOND).await;
        assert!(guard.is_held() && lock.is_held_by(&owner).await.unwrap(), "lock {kind}");
    }
}

/// A caller that is not queued retries once for the same owner, and gives up.
#[tokio::test(start_paused = true)]
async fn an_acquire_that_a_broken_connection_executes_after_the_next_try_of_its_owner_is_undone() {
    for kind in 0..6 {
        let (simulation, client) = start().await;
        simulation.latency(LATENCY);
        let lock = locks(&client).get(kind).cloned().unwrap_or_else(|| client.spin_lock(NAME));
        let holder = lock.acquire().await.unwrap();
        let attempt = || lock.acquire().as_owner(Owner::number(7)).wait(Duration::ZERO).lease(SECOND * 600);
        let first = begun(attempt().into_future());
        sleep(LATENCY / 2).await;
        simulation.act_late(SECOND * 5);
        simulation.cut();
        first.await.unwrap_err();
        sleep(SECOND).await;
        attempt().await.unwrap_err();
        holder.release().await.unwrap();
        sleep(SECOND * 20).await;
        assert_eq!(simulation.names(), 0, "lock {kind}");
    }
}
