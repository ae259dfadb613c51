//! The hand-over of a lock between tasks of one client, without a request to the server.

#![expect(clippy::unwrap_used, reason = "every case is the body of a test")]

use std::collections::HashSet;
use std::future::{IntoFuture, poll_fn};
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use leasehold::{AcquireError, Client, Guard, InvalidRequestError, Lock, Loss, Operation, Owner};
use leasehold_testkit::resp::Connection;
use leasehold_testkit::server::{Flavour, Server};
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::{SECOND, Waiter, connect, granted, keys, soon, subscribed, until};

const WATCHDOG: Duration = Duration::from_secs(1);

/// Runs every case with each kind of lock that supports local hand-over.
macro_rules! with_each_lock {
    ($($case:ident)+) => {
        with_each_lock! { hash Which::Hash: $($case)+ }
        with_each_lock! { setnx Which::SetNx: $($case)+ }
    };
    ($name:ident $which:path: $($case:ident)+) => {
        mod $name {
            use super::{Flavour, Which};

            on_both! { $($case)+ }

            $(async fn $case(flavour: Flavour) {
                super::$case(flavour, $which).await;
            })+
        }
    };
}

with_each_lock! {
    own_261_many_tasks_of_one_client_send_few_requests
    own_260_the_next_task_of_a_client_takes_over_the_hold_unchanged
    own_262_every_acquire_has_its_own_owner_without_local_handover
    own_263_a_waiter_for_an_owner_a_lease_or_a_token_acquires_from_the_server
    own_264_another_client_gets_its_turn_beside_many_tasks_of_one_client
    own_265_a_hold_handed_over_to_an_unpolled_waiter_is_released_in_time
    a_hold_handed_over_to_a_waiter_that_leaves_goes_to_the_next_waiter
    a_hold_handed_over_to_the_last_waiter_is_freed_when_the_waiter_leaves
    a_loss_after_a_hand_over_is_reported_to_the_current_holder
    own_266_a_waiter_acquires_a_lock_whose_handed_over_hold_was_lost
    a_client_that_shuts_down_releases_a_hold_in_hand_over
}

/// The lock that is handed over.
#[derive(Clone, Copy)]
enum Which {
    Hash,
    SetNx,
}

impl Which {
    fn lock(self, client: &Client) -> Lock {
        match self {
            Self::Hash => client.lock("n"),
            Self::SetNx => client.setnx_lock("n"),
        }
    }

    fn channel(self) -> &'static str {
        match self {
            Self::Hash => "redisson_lock__channel:{n}",
            Self::SetNx => "leasehold_setnx__channel:{n}",
        }
    }
}

type Acquiring = Pin<Box<Operation<Result<Guard, AcquireError>>>>;

/// A client that detects a loss soon.
async fn watchful(server: &Server) -> Client {
    Client::connect(server.url()).watchdog(WATCHDOG).await.expect("the server is there")
}

/// Waits for the lock, and releases it at once. Returns the owner under which it held the lock.
fn passer(which: Which, server: &Server, client: &Client) -> tokio::task::JoinHandle<String> {
    let (acquire, port) = (which.lock(client).acquire(), server.port());
    tokio::spawn(async move {
        let _guard = acquire.await.expect("the lock");
        owner_at(port, which)
    })
}

/// The owner that the server has for the lock. A guard whose owner was queried is not handed over.
fn owner_at(port: u16, which: Which) -> String {
    let mut server = Connection::open(port).expect("the server is there");
    let reply = match which {
        Which::Hash => server.call(&["HKEYS", "n"]).expect("a reply").elements()[0].clone(),
        Which::SetNx => server.call(&["GET", "n"]).expect("a reply"),
    };
    reply.as_str().expect("an owner").to_owned()
}

/// A waiter in the queue that is no longer polled.
async fn asleep(which: Which, server: &Server, client: &Client) -> Acquiring {
    let mut acquiring = Box::pin(which.lock(client).acquire().into_future());
    let is_subscribed = async { subscribed(server, which.channel(), 1).await };
    tokio::select! {
        _ = &mut acquiring => panic!("the lock is held"),
        () = is_subscribed => {}
    }
    // Its last retry before it sleeps; no event reports the end of it.
    let _ = tokio::time::timeout(Duration::from_millis(100), &mut acquiring).await;
    acquiring
}

/// A guard of a hold that was handed over by another task of this client. Whether a hand-over happens depends on the speed
/// of the machine, so this retries until it does.
async fn passed_on(which: Which, server: &Server, client: &Client) -> Guard {
    loop {
        let first = which.lock(client).acquire().await.unwrap();
        let (before, after) = (passer(which, server, client), which.lock(client).acquire());
        subscribed(server, which.channel(), 1).await;
        let after = tokio::spawn(after.into_future());
        sleep(Duration::from_millis(20)).await;
        first.release().await.unwrap();
        let (owner, guard) = (soon("the first waiter", before).await.unwrap(), granted(after).await);
        if owner_at(server.port(), which) == owner {
            return guard;
        }
        guard.release().await.unwrap();
    }
}

/// Hands the hold over to a waiter that is no longer polled.
async fn on_its_way_to_a_sleeper(which: Which, server: &Server, client: &Client) -> Acquiring {
    let first = which.lock(client).acquire().await.unwrap();
    let before = passer(which, server, client);
    subscribed(server, which.channel(), 1).await;
    sleep(Duration::from_millis(20)).await;
    let sleeper = asleep(which, server, client).await;
    first.release().await.unwrap();
    soon("the first waiter", before).await.unwrap();
    sleeper
}

/// How many requests the server has executed.
fn requests(server: &Server) -> usize {
    let info = server.cli(&["INFO", "commandstats"]);
    let calls = |line: &str| line.split(['=', ',']).nth(1).and_then(|calls| calls.parse::<usize>().ok());
    let lines = info.as_str().expect("text").lines();
    let is_ours = |line: &&str| line.starts_with("cmdstat_eval") || line.starts_with("cmdstat_set:");
    lines.filter(is_ours).filter_map(calls).sum()
}

async fn own_261_many_tasks_of_one_client_send_few_requests(flavour: Flavour, which: Which) {
    const TASKS: usize = 32;
    const TURNS: usize = 100;
    let server = Server::start(flavour);
    let client = connect(server.url()).await;
    let value = Arc::new(Mutex::new(0));
    let mut tasks = JoinSet::new();
    for _ in 0..TASKS {
        let (lock, value) = (which.lock(&client), Arc::clone(&value));
        tasks.spawn(async move {
            for turn in 0..TURNS {
                let guard = lock.acquire().await.unwrap();
                let seen = *value.lock().unwrap();
                tokio::task::yield_now().await;
                *value.lock().unwrap() = seen + 1;
                assert!(guard.is_held());
                if turn % 2 == 0 {
                    guard.release().await.unwrap();
                }
            }
        });
    }
    soon("all turns", tasks.join_all()).await;
    assert_eq!(*value.lock().unwrap(), TASKS * TURNS);
    until("the lock is free", || keys(&server).is_empty()).await;
    let asked = requests(&server);
    assert!(asked < TASKS * TURNS / 2, "{asked} requests for {} turns", TASKS * TURNS);
}

async fn own_260_the_next_task_of_a_client_takes_over_the_hold_unchanged(flavour: Flavour, which: Which) {
    let server = Server::start(flavour);
    let client = connect(server.url()).await;
    let guard = passed_on(which, &server, &client).await;
    assert!(guard.is_held() && guard.remaining() > SECOND * 20);
    let lock = which.lock(&client);
    let holder = lock.holder().await.unwrap().expect("a holder");
    assert_eq!((holder.owner, holder.holds), (Some(guard.owner()), 1));
    assert!(lock.is_held_by(guard.owner()).await.unwrap());
    let again = guard.reenter().await;
    match which {
        Which::Hash => assert_eq!(again.unwrap().release().await.unwrap().holds_left, 1),
        Which::SetNx => {
            assert!(
                matches!(again, Err(AcquireError::Invalid { cause: InvalidRequestError::NotReentrant, .. })),
                "{again:?}"
            );
        }
    }
    assert_eq!(guard.release().await.unwrap().holds_left, 0);
    assert_eq!(keys(&server), [""; 0]);
}

async fn own_262_every_acquire_has_its_own_owner_without_local_handover(flavour: Flavour, which: Which) {
    let server = Server::start(flavour);
    let client = connect(server.url()).await;
    let mut tasks = JoinSet::new();
    for _ in 0..8 {
        let lock = which.lock(&client).local_handover(false);
        tasks.spawn(async move {
            let mut owners = Vec::new();
            for _ in 0..10 {
                owners.push(lock.acquire().await.unwrap().owner().to_string());
            }
            owners
        });
    }
    let owners: Vec<_> = soon("all turns", tasks.join_all()).await.concat();
    assert_eq!(owners.iter().collect::<HashSet<_>>().len(), 80);
}

async fn own_263_a_waiter_for_an_owner_a_lease_or_a_token_acquires_from_the_server(
    flavour: Flavour,
    which: Which,
) {
    let server = Server::start(flavour);
    let client = connect(server.url()).await;
    let mut tasks = JoinSet::new();
    for _ in 0..8 {
        let lock = which.lock(&client);
        tasks.spawn(async move {
            for _ in 0..50 {
                drop(lock.acquire().await.unwrap());
            }
        });
    }
    let (lock, me) = (which.lock(&client), Owner::unique());
    tasks.spawn(async move {
        for turn in 1..=20 {
            let named = lock.acquire().as_owner(&me).await.unwrap();
            assert!(lock.is_held_by(&me).await.unwrap());
            drop(named);
            let leased = lock.acquire().lease(SECOND * 5).await.unwrap();
            assert!(leased.is_held() && leased.remaining() <= SECOND * 5);
            drop(leased);
            assert_eq!(lock.acquire().fenced().await.unwrap().token(), turn);
        }
    });
    soon("all turns", tasks.join_all()).await;
    until("the lock is free", || !keys(&server).contains(&"n".to_owned())).await;
}

async fn own_264_another_client_gets_its_turn_beside_many_tasks_of_one_client(
    flavour: Flavour,
    which: Which,
) {
    let server = Server::start(flavour);
    let (crowd, other) = (connect(server.url()).await, connect(server.url()).await);
    let turns = Arc::new(Mutex::new(0_usize));
    let mut tasks = JoinSet::new();
    for _ in 0..32 {
        let (lock, turns) = (which.lock(&crowd), Arc::clone(&turns));
        tasks.spawn(async move {
            loop {
                let _guard = lock.acquire().await.unwrap();
                *turns.lock().unwrap() += 1;
            }
        });
    }
    let others = async {
        let mut between = Vec::new();
        for _ in 0..50 {
            let before = *turns.lock().unwrap();
            let guard = which.lock(&other).acquire().await.unwrap();
            between.push(*turns.lock().unwrap() - before);
            guard.release().await.unwrap();
        }
        between
    };
    let between = soon("the turns of the other one", others).await;
    tasks.shutdown().await;
    // A hold is handed over at most this often, and may be acquired once more before the other client gets it.
    let most = between.iter().max().expect("some");
    assert!(*most <= 2 * 256, "{between:?}");
}

async fn own_265_a_hold_handed_over_to_an_unpolled_waiter_is_released_in_time(
    flavour: Flavour,
    which: Which,
) {
    let server = Server::start(flavour);
    let (client, other) = (connect(server.url()).await, connect(server.url()).await);
    let sleeper = on_its_way_to_a_sleeper(which, &server, &client).await;
    let guard = soon("the other one", which.lock(&other).acquire().into_future()).await.unwrap();
    guard.release().await.unwrap();
    // It has lost its turn, not its position in the queue.
    let guard = soon("the sleeping waiter", sleeper).await.unwrap();
    assert!(guard.is_held());
}

async fn a_hold_handed_over_to_a_waiter_that_leaves_goes_to_the_next_waiter(flavour: Flavour, which: Which) {
    let server = Server::start(flavour);
    let client = connect(server.url()).await;
    let sleeper = on_its_way_to_a_sleeper(which, &server, &client).await;
    let next: Waiter = tokio::spawn(which.lock(&client).acquire().into_future());
    tokio::task::yield_now().await;
    drop(sleeper);
    granted(next).await.release().await.unwrap();
    assert_eq!(keys(&server), [""; 0]);
}

async fn a_hold_handed_over_to_the_last_waiter_is_freed_when_the_waiter_leaves(
    flavour: Flavour,
    which: Which,
) {
    let server = Server::start(flavour);
    let client = connect(server.url()).await;
    let sleeper = on_its_way_to_a_sleeper(which, &server, &client).await;
    drop(sleeper);
    until("the lock is free", || keys(&server).is_empty()).await;
    which.lock(&client).try_acquire().await.unwrap().expect("a free lock").release().await.unwrap();
}

async fn a_loss_after_a_hand_over_is_reported_to_the_current_holder(flavour: Flavour, which: Which) {
    let server = Server::start(flavour);
    let client = watchful(&server).await;
    let guard = passed_on(which, &server, &client).await;
    let watcher = tokio::spawn(guard.lost());
    server.cli(&["DEL", "n"]);
    assert_eq!(soon("the loss", watcher).await.unwrap(), Loss::Gone);
    assert!(!guard.is_held());
    guard.release().await.unwrap_err();
}

async fn own_266_a_waiter_acquires_a_lock_whose_handed_over_hold_was_lost(flavour: Flavour, which: Which) {
    let server = Server::start(flavour);
    let client = watchful(&server).await;
    let guard = passed_on(which, &server, &client).await;
    let next: Waiter = tokio::spawn(which.lock(&client).acquire().into_future());
    subscribed(&server, which.channel(), 1).await;
    // No waiter is notified of that.
    server.cli(&["DEL", "n"]);
    granted(next).await.release().await.unwrap();
    assert!(!guard.is_held());
}

async fn a_client_that_shuts_down_releases_a_hold_in_hand_over(flavour: Flavour, which: Which) {
    let server = Server::start(flavour);
    let client = connect(server.url()).await;
    let mut sleeper = on_its_way_to_a_sleeper(which, &server, &client).await;
    let shutdown = tokio::spawn(client.shutdown(SECOND).into_future());
    let told = soon("the end of the wait", poll_fn(|context| sleeper.as_mut().poll(context))).await;
    drop(told);
    assert_eq!(soon("the shutdown", shutdown).await.unwrap().left_to_expire, 0);
    until("the lock is free", || keys(&server).is_empty()).await;
}
