//! A semaphore that is deleted, and another one of the same name.

#![expect(clippy::unwrap_used, reason = "every case is the body of a test")]

use leasehold::{Loss, ReleaseError};
use leasehold_testkit::server::{Flavour, Server};
use tokio::time::sleep;

use crate::{SECOND, connect, keys, pttl, soon, until};

on_both! {
    permits_of_a_deleted_counter_are_not_returned_to_the_next_semaphore
    releasing_the_guard_of_a_deleted_semaphore_does_not_create_a_semaphore
    the_record_of_permits_lasts_no_longer_than_its_semaphore
    leased_permits_of_a_deleted_counter_are_not_returned_to_the_next_semaphore
    releasing_leased_permits_of_a_deleted_semaphore_does_not_create_a_semaphore
    leased_permits_last_when_the_time_to_live_of_their_semaphore_is_removed
}

const RECORD: &str = "leasehold_permits:{n}";
const PERMITS: &str = "{n}:timeout";

/// Redisson's `delete()` of a semaphore does not delete the record.
async fn permits_of_a_deleted_counter_are_not_returned_to_the_next_semaphore(flavour: Flavour) {
    let server = Server::start(flavour);
    let client = connect(server.url()).await;
    let semaphore = client.semaphore("n");
    for how in ["set", "add", "release"] {
        assert!(semaphore.try_set_permits(10).await.unwrap());
        let (released, dropped) = (semaphore.acquire(3).await.unwrap(), semaphore.acquire(2).await.unwrap());
        server.cli(&["DEL", "n"]);
        match how {
            "set" => assert!(semaphore.try_set_permits(10).await.unwrap()),
            "add" => assert_eq!(semaphore.add_permits(10).await.unwrap(), 10),
            _ => semaphore.release(10).await.unwrap(),
        }
        let of_the_next = semaphore.acquire(4).await.unwrap();
        let outcome = released.release().await;
        assert!(matches!(outcome, Err(ReleaseError::NotHeld { loss: Loss::Gone, .. })), "{how}: {outcome:?}");
        drop(dropped);
        of_the_next.release().await.unwrap();
        assert_eq!(semaphore.available().await.unwrap(), 10, "{flavour:?}: {how}");
        assert!(semaphore.delete().await.unwrap());
    }
}

async fn releasing_the_guard_of_a_deleted_semaphore_does_not_create_a_semaphore(flavour: Flavour) {
    let server = Server::start(flavour);
    let client = connect(server.url()).await;
    let semaphore = client.semaphore("n");
    for ends in [false, true] {
        assert!(semaphore.try_set_permits(10).ttl(SECOND * 60).await.unwrap());
        let (released, dropped) = (semaphore.acquire(3).await.unwrap(), semaphore.acquire(2).await.unwrap());
        if ends {
            server.cli(&["PEXPIRE", "n", "1"]);
            until("its time is over", || server.cli(&["EXISTS", "n"]) == 0).await;
        } else {
            server.cli(&["DEL", "n"]);
        }
        let outcome = released.release().await;
        assert!(matches!(outcome, Err(ReleaseError::NotHeld { loss: Loss::Gone, .. })), "{outcome:?}");
        drop(dropped);
        assert_eq!(semaphore.available().await.unwrap(), 0);
        until("nothing is left", || keys(&server).is_empty()).await;
    }
}

async fn the_record_of_permits_lasts_no_longer_than_its_semaphore(flavour: Flavour) {
    let server = Server::start(flavour);
    let client = connect(server.url()).await;
    let semaphore = client.semaphore("n");
    assert!(semaphore.try_set_permits(10).ttl(SECOND * 60).await.unwrap());
    let first = semaphore.acquire(1).await.unwrap();
    assert!((50_000..=60_000).contains(&pttl(&server, RECORD)));
    semaphore.release(1).await.unwrap();
    assert!((50_000..=60_000).contains(&pttl(&server, RECORD)), "a change by a number leaves it");
    semaphore.add_permits(1).await.unwrap();
    let day = 24 * 60 * 60 * 1000;
    assert!((day - 60_000..=day).contains(&pttl(&server, RECORD)), "neither has an end now");
    server.cli(&["PEXPIRE", "n", "300"]);
    let second = semaphore.acquire(1).await.unwrap();
    assert!(pttl(&server, RECORD) <= 300);
    until("all of it is over", || keys(&server).is_empty()).await;
    // By a client that does not write the record.
    server.cli(&["SET", "n", "10"]);
    for permits in [first, second] {
        assert!(matches!(permits.release().await, Err(ReleaseError::NotHeld { loss: Loss::Gone, .. })));
    }
    assert_eq!(server.cli(&["GET", "n"]), "10");
}

async fn leased_permits_of_a_deleted_counter_are_not_returned_to_the_next_semaphore(flavour: Flavour) {
    let server = Server::start(flavour);
    let client = connect(server.url()).await;
    let semaphore = client.leased_semaphore("n");
    for how in ["try to set", "set", "add"] {
        assert!(semaphore.try_set_permits(10).await.unwrap());
        let (released, dropped) = (semaphore.acquire(3).await.unwrap(), semaphore.acquire(2).await.unwrap());
        let lapsing = semaphore.acquire(1).lease(SECOND / 5).await.unwrap().forget();
        let permanent = semaphore.acquire(1).permanent().await.unwrap();
        server.cli(&["DEL", "n"]);
        match how {
            "try to set" => assert!(semaphore.try_set_permits(10).await.unwrap()),
            "set" => semaphore.set_permits(10).await.unwrap(),
            _ => assert_eq!(semaphore.add_permits(10).await.unwrap(), 10),
        }
        let of_the_next = semaphore.acquire(4).await.unwrap();
        let outcome = released.release().await;
        assert!(matches!(outcome, Err(ReleaseError::NotHeld { .. })), "{how}: {outcome:?}");
        drop(dropped);
        assert!(!semaphore.try_release(permanent).await.unwrap());
        sleep(SECOND / 4).await;
        assert!(!semaphore.try_release(lapsing).await.unwrap());
        assert_eq!(semaphore.acquired().await.unwrap(), 4, "{flavour:?}: {how}");
        of_the_next.release().await.unwrap();
        assert_eq!(semaphore.available().await.unwrap(), 10, "{flavour:?}: {how}");
        assert!(semaphore.delete().await.unwrap());
    }
}

async fn releasing_leased_permits_of_a_deleted_semaphore_does_not_create_a_semaphore(flavour: Flavour) {
    let server = Server::start(flavour);
    let client = connect(server.url()).await;
    let semaphore = client.leased_semaphore("n");
    for way in 0..4 {
        assert!(semaphore.try_set_permits(10).await.unwrap());
        let held = semaphore.acquire(3).await.unwrap();
        let lapsing = semaphore.acquire(1).lease(SECOND / 10).await.unwrap();
        let waits = tokio::spawn(semaphore.acquire(20).wait(SECOND / 2).into_future());
        server.cli(&["DEL", "n"]);
        match way {
            0 => assert!(matches!(held.release().await, Err(ReleaseError::NotHeld { .. }))),
            1 => drop(held),
            2 => assert!(!semaphore.try_release(held.ids()).await.unwrap()),
            _ => {
                sleep(SECOND / 5).await;
                assert_eq!(semaphore.available().await.unwrap(), 0);
                drop(held);
            }
        }
        assert!(soon("the wait ends", waits).await.unwrap().is_err());
        drop(lapsing);
        assert_eq!(semaphore.available().await.unwrap(), 0, "{flavour:?}: {way}");
        until("nothing is left", || keys(&server).is_empty()).await;
    }
}

async fn leased_permits_last_when_the_time_to_live_of_their_semaphore_is_removed(flavour: Flavour) {
    let server = Server::start(flavour);
    let client = connect(server.url()).await;
    let semaphore = client.leased_semaphore("n");
    assert!(semaphore.try_set_permits(3).await.unwrap());
    server.cli(&["PEXPIRE", "n", "300"]);
    let held = semaphore.acquire(2).await.unwrap();
    assert_eq!(semaphore.add_permits(1).await.unwrap(), 2);
    assert_eq!((pttl(&server, "n"), pttl(&server, PERMITS)), (-1, -1));
    sleep(SECOND / 2).await;
    held.release().await.unwrap();
    assert_eq!(semaphore.available().await.unwrap(), 4);
}
