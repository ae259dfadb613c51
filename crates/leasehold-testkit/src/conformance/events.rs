//! What a client reports of its locks, against what the case has done.

use std::time::Duration;

use leasehold::{Event, EventLock, Events, Loss};
use tokio::time::sleep;

use super::Outcome;
use super::common::{LEASE, MOMENT, Waiter, soon, until_waiting};
use crate::bench::Bench;

/// The next event about a lock: in short, its lock, and the length that it tells.
async fn next(events: &mut Events) -> (&'static str, EventLock, Option<Duration>) {
    match soon(events.recv()).await.expect("the client is there") {
        Event::Granted { lock, waited, .. } => ("granted", lock, Some(waited)),
        Event::TimedOut { lock, waited, .. } => ("timed out", lock, Some(waited)),
        Event::Released { lock, held_for, .. } => ("released", lock, held_for),
        Event::Lost { lock, held_for, cause: Loss::Expired, .. } => ("expired", lock, held_for),
        other => panic!("{other:?}"),
    }
}

pub async fn own_440_events_tell_what_happens_to_locks(bench: &Bench) -> Outcome {
    let client = bench.client().await;
    let (lock, mut events) = (client.lock(bench.name("lock")), client.events());
    let guard = lock.acquire().await?;
    let inner = guard.reenter().await?;
    let (what, of, waited) = next(&mut events).await;
    assert_eq!((what, of.name(), of.kind()), ("granted", bench.name("lock").as_str(), "lock"));
    assert_eq!((of.owner(), waited), (&guard.owner(), Some(Duration::ZERO)));
    assert!(lock.acquire().wait(MOMENT).await.is_err());
    let (what, waiter, waited) = next(&mut events).await;
    assert_eq!(what, "timed out", "a re-entry is not reported");
    assert!(waiter.owner() != of.owner() && waited > Some(Duration::ZERO), "{waited:?}");
    let waiter = Waiter::begin(lock.acquire().lease(LEASE)).await;
    until_waiting(&client, 1).await;
    sleep(MOMENT).await;
    drop(inner);
    guard.release().await?;
    let (what, same, held_for) = next(&mut events).await;
    assert_eq!((what, same), ("released", of), "once, by the last guard");
    assert!(held_for >= Some(MOMENT * 2), "{held_for:?}");
    let expires = waiter.outcome().await?;
    let (what, of, waited) = next(&mut events).await;
    assert!(what == "granted" && waited >= Some(MOMENT), "{what} {waited:?}");
    soon(expires.lost()).await;
    drop(expires);
    let (what, same, held_for) = next(&mut events).await;
    assert_eq!((what, same), ("expired", of));
    assert!(held_for >= Some(LEASE / 2), "{held_for:?}");
    client.shutdown(MOMENT).await;
    assert!(matches!(soon(events.recv()).await, Some(Event::ShutDown { left_to_expire: 0, .. })));
    drop((lock, client));
    assert_eq!(soon(events.recv()).await, None);
    Ok(())
}

pub async fn own_441_events_that_a_slow_receiver_missed_are_counted_in_their_place(bench: &Bench) -> Outcome {
    const KEPT: u64 = 1024;
    let client = bench.client().await;
    let (lock, mut slow, mut gone) = (client.lock(bench.name("lock")), client.events(), client.events());
    let pairs = KEPT / 2 + 3;
    for _ in 0..pairs {
        lock.acquire().await?.release().await?;
    }
    assert!(matches!(soon(gone.recv()).await, Some(Event::Granted { .. })));
    drop(gone);
    for _ in 0..KEPT / 2 {
        assert_eq!([next(&mut slow).await.0, next(&mut slow).await.0], ["granted", "released"]);
    }
    lock.acquire().await?.release().await?;
    assert_eq!(soon(slow.recv()).await, Some(Event::Missed(6)));
    assert_eq!([next(&mut slow).await.0, next(&mut slow).await.0], ["granted", "released"]);
    Ok(())
}

pub async fn own_448_receives_that_wait_together_get_an_event_each_and_all_end_with_the_client(
    bench: &Bench,
) -> Outcome {
    let client = bench.client().await;
    let (lock, mut events) = (client.lock(bench.name("lock")), client.events());
    let mut two = || [(); 2].map(|()| tokio::spawn(events.recv()));
    let receives = two();
    sleep(MOMENT).await;
    lock.acquire().await?.release().await?;
    let mut names = Vec::new();
    for receive in receives {
        names.push(match soon(receive).await? {
            Some(Event::Granted { .. }) => "granted",
            Some(Event::Released { .. }) => "released",
            other => panic!("{other:?}"),
        });
    }
    names.sort_unstable();
    assert_eq!(names, ["granted", "released"]);
    let receives = two();
    sleep(MOMENT).await;
    drop((lock, client));
    for receive in receives {
        assert_eq!(soon(receive).await?, None);
    }
    Ok(())
}
