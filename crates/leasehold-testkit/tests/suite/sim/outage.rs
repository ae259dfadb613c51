//! Connections that break, parts of the server that are down, replies and messages that are lost.

use std::future::IntoFuture;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use leasehold::{Client, Loss};
use leasehold_testkit::primitive::Primitive;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use super::{LATENCY, MILLISECOND, NAME, SECOND, connect, granted, locks, soon, start};

/// Two names, one on each part of the server.
const PARTS: [&str; 2] = ["a", "b"];

#[tokio::test(start_paused = true)]
async fn an_outage_of_one_shard_does_not_affect_the_other_shard() {
    for (down, up) in [(PARTS[0], PARTS[1]), (PARTS[1], PARTS[0])] {
        let (simulation, other) = start().await;
        let client = Client::connect(simulation.url()).watchdog(SECOND * 5).await.unwrap();
        let lost = client.lock(down).acquire().await.unwrap();
        let kept = client.lock(up).acquire().await.unwrap();
        let waiter = tokio::spawn(other.lock(up).acquire().into_future());
        sleep(SECOND).await;
        simulation.outage_of(down);
        let error = client.lock(down).try_acquire().await.unwrap_err();
        assert!(error.is_unavailable(), "{error}");
        assert_eq!(lost.lost().await, Loss::Unreachable);
        sleep(SECOND * 20).await;
        assert!(kept.is_held(), "it is renewed all the time");
        kept.release().await.unwrap();
        let next = granted(waiter).await;
        assert!(client.lock(up).try_acquire().await.unwrap().is_none());
        next.release().await.unwrap();
        simulation.clear();
        sleep(SECOND).await;
        client.lock(down).try_acquire().await.unwrap().expect("a free lock").release().await.unwrap();
        assert_eq!(simulation.names(), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn a_waiter_on_a_reachable_shard_acquires_the_lock_while_another_shard_is_down() {
    let (simulation, client) = start().await;
    let holds = connect(&simulation).await;
    let [down, up] = PARTS;
    let holders = (holds.lock(down).acquire().await.unwrap(), holds.lock(up).acquire().await.unwrap());
    let waits = |name| tokio::spawn(client.lock(name).acquire().into_future());
    let (of_down, of_up) = (waits(down), waits(up));
    sleep(SECOND).await;
    simulation.outage_of(down);
    drop(holders);
    sleep(MILLISECOND).await;
    assert!(of_up.is_finished() && !of_down.is_finished());
    sleep(SECOND * 5).await;
    simulation.clear();
    granted(of_up).await.release().await.unwrap();
    granted(of_down).await.release().await.unwrap();
    assert_eq!(simulation.names(), 0);
}

#[tokio::test(start_paused = true)]
async fn waiters_wait_through_an_outage_within_their_limits() {
    for kind in 0..5 {
        let (simulation, client) = start().await;
        let impatient = Client::connect(simulation.url()).outage_limit(SECOND * 5).await.unwrap();
        let holds = connect(&simulation).await;
        let holder = locks(&holds)[kind].acquire().await.unwrap();
        let (lock, limited) = (locks(&client)[kind].clone(), locks(&impatient)[kind].clone());
        let rides = tokio::spawn(lock.acquire().into_future());
        let times_out = tokio::spawn(lock.acquire().wait(SECOND * 10).into_future());
        let gives_up = tokio::spawn(limited.acquire().into_future());
        sleep(SECOND * 2).await;
        simulation.outage();
        let begun = Instant::now();
        let error = gives_up.await.unwrap().unwrap_err();
        assert!(error.is_unavailable(), "{lock:?}: {error}");
        let took = begun.elapsed();
        assert!(
            (SECOND * 5..=SECOND * 5 + MILLISECOND).contains(&took),
            "{lock:?}: the limit of its client, not {took:?}"
        );
        let error = times_out.await.unwrap().unwrap_err();
        assert!(error.is_unavailable(), "{lock:?}: {error}");
        assert_eq!(begun.elapsed().as_millis(), 8000, "{lock:?}: its own limit");
        drop(holder);
        sleep(SECOND * 10).await;
        assert!(!rides.is_finished());
        simulation.clear();
        let ended = Instant::now();
        let guard = granted(rides).await;
        assert!(guard.is_held() && ended.elapsed() < SECOND * 2, "{lock:?}: {:?}", ended.elapsed());
        guard.release().await.unwrap();
        sleep(SECOND).await;
        assert_eq!(simulation.names(), 0, "{lock:?}");
    }
}

/// No message reports it.
#[tokio::test(start_paused = true)]
async fn a_waiter_retries_at_once_when_an_outage_is_over() {
    for kind in 0..5 {
        let (simulation, client) = start().await;
        let holds = connect(&simulation).await;
        let _holder = locks(&holds)[kind].acquire().await.unwrap();
        let waiter = tokio::spawn(locks(&client)[kind].acquire().into_future());
        sleep(SECOND).await;
        simulation.outage();
        assert!(simulation.lose_hold(NAME));
        sleep(SECOND * 5).await;
        simulation.clear();
        let ended = Instant::now();
        granted(waiter).await.release().await.unwrap();
        assert!(ended.elapsed() < SECOND / 20, "lock {kind}: {:?}", ended.elapsed());
    }
}

#[tokio::test(start_paused = true)]
async fn a_hold_is_reported_as_lost_before_its_lease_ends_on_the_server() {
    for kind in 0..5 {
        let (simulation, _other) = start().await;
        let client = Client::connect(simulation.url()).watchdog(SECOND * 5).await.unwrap();
        let guard = locks(&client)[kind].acquire().await.unwrap();
        // A while after a renewal.
        sleep(MILLISECOND * 10_700).await;
        simulation.outage();
        let begun = Instant::now();
        assert_eq!(guard.lost().await, Loss::Unreachable);
        assert!(!guard.is_held());
        // Longer than until the next tick of a clock.
        sleep(MILLISECOND * 10).await;
        assert!(simulation.lose_hold(NAME), "{guard:?}: the server still has it");
        assert!(begun.elapsed() > SECOND * 3, "not before it has to be: {:?}", begun.elapsed());
    }
}

#[tokio::test(start_paused = true)]
async fn a_renewed_lease_counts_from_the_request_and_not_from_the_reply() {
    let (simulation, _other) = start().await;
    let (watchdog, margin) = (SECOND * 6, MILLISECOND * 60);
    let client = Client::connect(simulation.url()).watchdog(watchdog).await.unwrap();
    let guard = client.lock(NAME).acquire().await.unwrap();
    // Longer than the margin: a lease that counts from the reply ends after the lease on the server.
    let latency = margin * 5;
    simulation.latency(latency);
    sleep(watchdog / 3 + latency * 2 + MILLISECOND * 10).await;
    let left = guard.remaining();
    assert!(left > watchdog * 2 / 3, "the hold was renewed: {left:?}");
    assert!(left + latency * 2 + margin <= watchdog, "the time until the reply counts: {left:?}");
    simulation.outage();
    assert_eq!(soon("the loss", guard.lost()).await, Loss::Unreachable);
    assert!(simulation.lose_hold(NAME), "the server still has it");
}

/// The server has executed the request, and the lease of a plain lock is replaced.
#[tokio::test(start_paused = true)]
async fn a_lease_shortened_by_a_re_entry_without_a_reply_is_not_trusted() {
    let (simulation, client) = start().await;
    let lock = client.lock(NAME);
    let guard = lock.acquire().lease(SECOND * 60).await.unwrap();
    simulation.lose_reply();
    let again = lock.try_acquire().as_owner(guard.owner()).lease(SECOND * 5).await;
    assert!(again.unwrap_err().is_unavailable());
    assert_eq!(soon("the loss", guard.lost()).await, Loss::Expired);
    assert!(simulation.lose_hold(NAME), "the server still has it");
}

#[tokio::test(start_paused = true)]
async fn an_outage_shorter_than_the_lease_loses_no_hold() {
    for kind in 0..5 {
        let (simulation, _other) = start().await;
        let client = Client::connect(simulation.url()).watchdog(SECOND * 5).await.unwrap();
        let guard = locks(&client)[kind].acquire().await.unwrap();
        for _ in 0..5 {
            sleep(MILLISECOND * 1700).await;
            simulation.outage();
            sleep(SECOND * 3).await;
            simulation.clear();
        }
        sleep(SECOND * 10).await;
        assert!(guard.is_held(), "{guard:?}");
        guard.release().await.unwrap();
        assert_eq!(simulation.names(), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn a_restart_without_data_is_reported_to_the_holder_within_a_second() {
    for kind in 0..5 {
        let (simulation, client) = start().await;
        let guard = locks(&client)[kind].acquire().await.unwrap();
        let waiter = tokio::spawn(locks(&connect(&simulation).await)[kind].acquire().into_future());
        sleep(SECOND).await;
        simulation.restart_empty();
        let begun = Instant::now();
        let loss = soon("the loss", guard.lost()).await;
        assert!(matches!(loss, Loss::Gone | Loss::TakenOver), "{guard:?}: {loss:?}");
        assert!(begun.elapsed() < SECOND, "not by the end of the lease: {:?}", begun.elapsed());
        granted(waiter).await.release().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_restart_without_data_and_without_waiters_is_reported_as_a_hold_that_is_gone() {
    for kind in 0..5 {
        let (simulation, client) = start().await;
        let guard = locks(&client)[kind].acquire().await.unwrap();
        simulation.restart_empty();
        let begun = Instant::now();
        assert_eq!(soon("the loss", guard.lost()).await, Loss::Gone);
        assert!(begun.elapsed() < SECOND, "not by the next renewal: {:?}", begun.elapsed());
    }
}

/// Loses this many replies in a row.
async fn counted_once(lost: usize) {
    let (simulation, client) = start().await;
    let lose = || (0..lost).for_each(|_| simulation.lose_reply());
    let semaphore = client.semaphore("s");
    lose();
    assert!(semaphore.try_set_permits(3).await.unwrap());
    lose();
    assert_eq!(semaphore.add_permits(2).await.unwrap(), 5);
    lose();
    assert_eq!(semaphore.drain().await.unwrap(), 5);
    lose();
    semaphore.release(4).await.unwrap();
    assert_eq!(semaphore.available().await.unwrap(), 4);
    let latch = client.latch("l");
    lose();
    assert!(latch.try_set_count(3).await.unwrap());
    for left in [2, 1] {
        lose();
        assert_eq!(latch.count_down().await.unwrap(), left);
    }
    assert_eq!(latch.count().await.unwrap(), 1);
    lose();
    assert!(semaphore.delete().await.unwrap() && latch.delete().await.unwrap());
    assert_eq!(simulation.names(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_counter_change_counts_once_although_its_replies_are_lost() {
    for lost in 1..4 {
        counted_once(lost).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_counter_change_executed_late_by_a_broken_connection_counts_once() {
    let (simulation, client) = start().await;
    let (semaphore, latch) = (client.semaphore("s"), client.latch("l"));
    assert!(semaphore.try_set_permits(3).await.unwrap() && latch.try_set_count(3).await.unwrap());
    simulation.latency(LATENCY);
    simulation.act_late(SECOND * 5);
    let changes = (tokio::spawn(semaphore.add_permits(2)), tokio::spawn(latch.count_down()));
    sleep(LATENCY / 2).await;
    simulation.cut();
    assert_eq!(soon("the permits", changes.0).await.unwrap(), Ok(5));
    assert_eq!(soon("the latch", changes.1).await.unwrap(), Ok(2));
    sleep(SECOND * 10).await;
    assert_eq!((semaphore.available().await, latch.count().await), (Ok(5), Ok(2)));
}

/// A waiter that has missed the message retries when the lease that it saw has expired, or by itself after 30 s.
#[tokio::test(start_paused = true)]
async fn a_lost_message_strands_no_waiter() {
    for of in Primitive::ALL {
        let (simulation, client) = start().await;
        of.create(&client, NAME).await;
        let (first, second) = (connect(&simulation).await, connect(&simulation).await);
        let holder = of.acquire(&client, NAME, None).await.unwrap();
        let waiters = [first, second].map(|client| {
            let acquiring = of.acquire(&client, NAME, None);
            tokio::spawn(async { acquiring.await.unwrap().release().await.unwrap() })
        });
        sleep(SECOND).await;
        (0..4).for_each(|_| simulation.lose_message());
        holder.release().await.unwrap();
        for waiter in waiters {
            let done = timeout(SECOND * 61, waiter).await;
            done.unwrap_or_else(|_| panic!("{of:?}: a waiter is stranded")).unwrap();
        }
        of.remove(&client, NAME).await;
        assert_eq!(simulation.names(), 0, "{of:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn doubled_messages_strand_no_waiter_and_admit_no_two_holders() {
    for of in Primitive::ALL {
        let (simulation, client) = start().await;
        of.create(&client, NAME).await;
        simulation.double_messages();
        simulation.latency(MILLISECOND);
        let (is_inside, turns) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        let mut tasks = JoinSet::new();
        for _ in 0..3 {
            let client = connect(&simulation).await;
            for _ in 0..3 {
                let (client, is_inside, turns) = (client.clone(), Arc::clone(&is_inside), Arc::clone(&turns));
                tasks.spawn(async move {
                    for _ in 0..10 {
                        let held = of.acquire(&client, NAME, None).await.unwrap();
                        assert!(!is_inside.swap(true, Ordering::SeqCst), "{of:?}: two are inside");
                        sleep(MILLISECOND).await;
                        is_inside.store(false, Ordering::SeqCst);
                        turns.fetch_add(1, Ordering::SeqCst);
                        drop(held);
                    }
                });
            }
        }
        let all = timeout(SECOND * 29, tasks.join_all()).await;
        assert!(all.is_ok(), "{of:?}: a waiter is stranded after {turns:?} turns");
        sleep(SECOND).await;
        of.remove(&client, NAME).await;
        assert_eq!(simulation.names(), 0, "{of:?}");
    }
}

/// Connections break repeatedly while many tasks of several clients acquire and release.
#[tokio::test(start_paused = true)]
async fn repeatedly_broken_connections_strand_no_waiter_and_admit_no_two_holders() {
    for of in Primitive::ALL {
        let (simulation, client) = start().await;
        of.create(&client, NAME).await;
        simulation.latency(MILLISECOND);
        let is_inside = Arc::new(AtomicBool::new(false));
        let mut tasks = JoinSet::new();
        for _ in 0..3 {
            let client = connect(&simulation).await;
            for _ in 0..3 {
                let (client, is_inside) = (client.clone(), Arc::clone(&is_inside));
                tasks.spawn(async move {
                    let mut turns = 0;
                    while turns < 10 {
                        let held = match of.acquire(&client, NAME, None).await {
                            Ok(held) => held,
                            Err(error) => {
                                assert!(error.is_unavailable(), "{error}");
                                sleep(LATENCY).await;
                                continue;
                            }
                        };
                        turns += 1;
                        assert!(!is_inside.swap(true, Ordering::SeqCst), "{of:?}: two are inside");
                        sleep(MILLISECOND).await;
                        is_inside.store(false, Ordering::SeqCst);
                        drop(held);
                    }
                });
            }
        }
        let breaks = async {
            loop {
                sleep(MILLISECOND * 37).await;
                simulation.cut();
            }
        };
        tokio::select! {
            () = breaks => {}
            all = timeout(SECOND * 29, tasks.join_all()) => assert!(all.is_ok(), "{of:?}: a waiter is stranded"),
        }
        sleep(SECOND * 3).await;
        of.remove(&client, NAME).await;
        assert_eq!(simulation.names(), 0, "{of:?}");
    }
}
