//! Holds that are bound to a session or to a connection: the client does what the server does not do for them.

use std::sync::Arc;
use std::time::Duration;

use leasehold::test::Simulation;
use leasehold::{AcquireError, Client, InvalidRequestError, Loss, Owner};
use leasehold_testkit::cut::{Cut, cut_off};
use tokio::sync::Mutex;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use super::{LATENCY, MILLISECOND, NAME, SECOND, connect, soon};

/// How long a session lasts without a heartbeat.
const SESSION: Duration = Duration::from_secs(10);
/// How long the server takes to notice that a connection is gone.
const UNNOTICED: Duration = Duration::from_secs(1);

fn services() -> [Simulation; 2] {
    [Simulation::sessions(), Simulation::connections()]
}

#[tokio::test(start_paused = true)]
async fn an_unsupported_operation_is_refused_with_the_reason_before_a_request() {
    for simulation in services() {
        let client = connect(&simulation).await;
        simulation.outage();
        let refused = client.semaphore("s").acquire(1).await.unwrap_err();
        let AcquireError::Invalid { cause: InvalidRequestError::Unsupported { what, engine, can }, .. } =
            refused
        else {
            panic!("{refused:?}")
        };
        assert_eq!((what.as_str(), &can[..]), ("semaphore", &["redis", "etcd", "file", "memory"][..]));
        assert!(simulation.url().starts_with(engine), "{engine}");
        let text = client.lock(NAME).acquire().steal().await.unwrap_err().to_string();
        assert!(text.contains("has no takeover (`steal`): use redis or etcd or memory"), "{text}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_heartbeat_renews_all_holds_of_a_session() {
    for simulation in services() {
        let client = connect(&simulation).await;
        let mut guards = Vec::new();
        for number in 0..20 {
            guards.push(client.lock(format!("{NAME}{number}")).acquire().await.unwrap());
        }
        sleep(SESSION * 20).await;
        assert!(guards.iter().all(|guard| guard.is_held() && guard.remaining() <= SESSION));
        drop(guards);
        sleep(SECOND).await;
        assert_eq!(simulation.names(), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn a_session_that_cannot_be_renewed_ends_all_its_holds_before_the_server_does() {
    let simulation = Simulation::sessions();
    let (client, begun) = (connect(&simulation).await, Instant::now());
    let guards = [client.lock("a").acquire().await.unwrap(), client.lock("b").acquire().await.unwrap()];
    simulation.outage();
    for guard in &guards {
        assert_eq!(soon("the loss is reported", guard.lost()).await, Loss::Unreachable);
    }
    assert!(begun.elapsed() < SESSION && simulation.names() == 2, "the server still has them");
    simulation.clear();
    let other = connect(&simulation).await;
    let next = soon("another client gets it", other.lock("a").acquire().into_future()).await.unwrap();
    assert!(begun.elapsed() + SECOND * 4 >= SESSION);
    next.release().await.unwrap();
    sleep(SECOND * 4).await;
    assert!(
        soon("so does the first, in a new session", client.lock("a").acquire().into_future())
            .await
            .unwrap()
            .is_held()
    );
}

#[tokio::test(start_paused = true)]
async fn a_broken_connection_ends_its_holds_at_once() {
    let simulation = Simulation::connections();
    let (client, other) = (connect(&simulation).await, connect(&simulation).await);
    let guard = client.lock(NAME).acquire().await.unwrap();
    let waiter = tokio::spawn(other.lock(NAME).acquire().into_future());
    sleep(MILLISECOND).await;
    simulation.cut();
    sleep(MILLISECOND).await;
    assert!(!guard.is_held());
    let cut = Instant::now();
    let next = soon("the waiter gets it", waiter).await.unwrap().unwrap();
    assert!(cut.elapsed() + MILLISECOND >= UNNOTICED);
    drop(guard);
    sleep(SECOND).await;
    assert!(next.is_held() && client.lock(NAME).try_acquire().await.unwrap().is_none());
}

#[tokio::test(start_paused = true)]
async fn an_expired_hold_is_released_by_the_client() {
    for simulation in services() {
        simulation.latency(LATENCY);
        let (client, other) = (connect(&simulation).await, connect(&simulation).await);
        let begun = Instant::now();
        let guard = client.lock(NAME).acquire().lease(SECOND).await.unwrap();
        let next = soon("another client gets it", other.lock(NAME).acquire().into_future()).await.unwrap();
        assert!(!guard.is_held() && begun.elapsed() >= SECOND && begun.elapsed() < SECOND * 2);
        drop(guard);
        sleep(SECOND).await;
        assert!(next.is_held() && client.lock(NAME).try_acquire().await.unwrap().is_none());
    }
}

#[tokio::test(start_paused = true)]
async fn the_release_of_an_expired_hold_does_not_affect_the_next_owner() {
    for simulation in services() {
        let (client, other) = (connect(&simulation).await, connect(&simulation).await);
        let over = client.lock(NAME).acquire().lease(SECOND).await.unwrap();
        over.lost().await;
        // A connection of the client already has it, and is granted it before the server receives the release by the first
        // owner.
        let next = soon("the next owner gets it", client.lock(NAME).acquire().into_future()).await.unwrap();
        drop(over);
        sleep(SECOND).await;
        assert!(next.is_held() && other.lock(NAME).try_acquire().await.unwrap().is_none());
        next.release().await.unwrap();
        assert!(other.lock(NAME).try_acquire().await.unwrap().is_some());
    }
}

#[tokio::test(start_paused = true)]
async fn owners_of_one_client_exclude_each_other() {
    for simulation in services() {
        simulation.latency(LATENCY);
        let client = connect(&simulation).await;
        let lock = client.lock(NAME).local_handover(false);
        // Both are in flight before the first reply.
        let (first, second) =
            tokio::join!(lock.try_acquire().into_future(), lock.try_acquire().into_future());
        let (first, second) = (first.unwrap(), second.unwrap());
        assert!(first.is_some() != second.is_some(), "{first:?}, {second:?}");
        drop((first, second));
        let (mut work, alone) = (JoinSet::new(), Arc::new(Mutex::new(())));
        for _ in 0..20 {
            let (lock, alone) = (lock.clone(), Arc::clone(&alone));
            work.spawn(async move {
                let guard = lock.acquire().await.unwrap();
                let alone = alone.try_lock().expect("one owner at a time");
                sleep(MILLISECOND * 3).await;
                drop(alone);
                drop(guard);
            });
        }
        soon("each has its turn", work.join_all()).await;
        sleep(SECOND).await;
        assert_eq!(simulation.names(), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn many_tries_that_fail_at_once_do_not_overflow_the_stack() {
    let simulation = Simulation::connections();
    simulation.latency(LATENCY);
    let client = connect(&simulation).await;
    let lock = client.lock(NAME).local_handover(false);
    let mut tries = JoinSet::new();
    for _ in 0..20_000 {
        tries.spawn(lock.try_acquire().into_future());
    }
    let granted = tries.join_all().await.into_iter().filter(|tried| tried.as_ref().unwrap().is_some());
    assert_eq!(granted.count(), 1);
}

#[tokio::test(start_paused = true)]
async fn an_undo_of_one_owner_does_not_end_the_hold_of_another_owner() {
    for simulation in services() {
        simulation.latency(LATENCY);
        let client = connect(&simulation).await;
        let lock = client.lock(NAME).local_handover(false);
        for polls in 1..5 {
            // It is dropped with its request in flight, and another owner sends a request at once.
            let cut = cut_off(Cut::After(polls), lock.acquire().into_future());
            let ((), guard) = tokio::join!(async { drop(cut.await) }, lock.acquire().into_future());
            let guard = guard.unwrap();
            sleep(SECOND).await;
            assert!(guard.is_held());
            let other = connect(&simulation).await;
            assert!(other.lock(NAME).try_acquire().await.unwrap().is_none(), "{polls}: it was given back");
            guard.release().await.unwrap();
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_re_entry_is_counted_by_the_client_without_a_request() {
    for simulation in services() {
        let client = connect(&simulation).await;
        let (lock, me) = (client.lock(NAME), Owner::unique());
        let outer = lock.acquire().as_owner(&me).await.unwrap();
        // No request is needed.
        simulation.outage();
        let inner = outer.reenter().await.unwrap();
        assert_eq!(inner.release().await.unwrap().holds_left, 1);
        simulation.clear();
        drop(outer);
        let free =
            soon("it is free", connect(&simulation).await.lock(NAME).acquire().into_future()).await.unwrap();
        free.release().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_waiter_is_woken_by_its_queue_position_or_its_blocked_call() {
    for simulation in services() {
        simulation.latency(LATENCY);
        let clients: [Client; 3] =
            [connect(&simulation).await, connect(&simulation).await, connect(&simulation).await];
        let lock = |client: &Client| client.lock(NAME).local_handover(false);
        let mut guard = lock(&clients[0]).acquire().await.unwrap();
        let mut waiters = Vec::new();
        for client in clients[1..].iter().chain(&clients[1..]) {
            waiters.push(tokio::spawn(lock(client).acquire().into_future()));
            sleep(LATENCY * 10).await;
        }
        for waiter in waiters {
            let released = Instant::now();
            drop(guard);
            guard = soon("it is the turn of the next", waiter).await.unwrap().unwrap();
            assert!(
                released.elapsed() < LATENCY * 12,
                "{:?}: not by looking now and then",
                released.elapsed()
            );
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_hold_removed_on_the_server_is_reported_as_lost_at_once() {
    for simulation in services() {
        let client = connect(&simulation).await;
        let guard = client.lock(NAME).acquire().await.unwrap();
        assert!(simulation.lose_hold(NAME));
        let begun = Instant::now();
        assert_eq!(soon("the loss is reported", guard.lost()).await, Loss::Gone);
        assert!(begun.elapsed() < SECOND);
    }
}
