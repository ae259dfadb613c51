//! A lock that goes from task to task of one client without the server's hearing of it.

#![expect(clippy::unwrap_used, reason = "every case is the body of a test")]

use std::collections::HashSet;
use std::future::{IntoFuture, poll_fn};
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use leasehold::{AcquireError, Client, Guard, Loss, Operation, Owner};
use leasehold_testkit::server::{Flavour, Server};
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::{SECOND, Waiter, connect, granted, keys, soon, subscribed, until};

const CHANNEL: &str = "redisson_lock__channel:{n}";
const WATCHDOG: Duration = Duration::from_secs(1);

on_both! {
    many_tasks_ask_seldom
    the_next_task_has_the_hold_as_it_is
    each_has_an_owner_of_its_own_if_it_is_off
    whoever_wants_an_owner_a_lease_or_a_token_gets_it_from_the_server
    others_get_their_turn
    what_nobody_comes_for_is_given_back
    an_heir_that_leaves_lets_the_next_one_have_it
    the_last_heir_that_leaves_frees_the_lock
    a_loss_is_told_to_whoever_has_the_lock_now
    a_lock_that_was_lost_goes_to_those_who_wait
    a_client_that_shuts_down_keeps_nothing
}

type Acquiring = Pin<Box<Operation<Result<Guard, AcquireError>>>>;

/// A client that soon notices a loss.
async fn watchful(server: &Server) -> Client {
    Client::connect(server.url()).watchdog(WATCHDOG).await.expect("the server is there")
}

/// Waits for the lock, and gives it back at once. Tells under which owner it had it.
fn passer(client: &Client) -> tokio::task::JoinHandle<Owner> {
    let acquire = client.lock("n").acquire();
    tokio::spawn(async move { acquire.await.expect("the lock").owner() })
}

/// Somebody who stands in line and is not polled any more.
async fn asleep(server: &Server, client: &Client) -> Acquiring {
    let mut acquiring = Box::pin(client.lock("n").acquire().into_future());
    let is_subscribed = async { subscribed(server, CHANNEL, 1).await };
    tokio::select! {
        _ = &mut acquiring => panic!("the lock is held"),
        () = is_subscribed => {}
    }
    // Its last look before it sleeps, of which nothing tells when it is over.
    let _ = tokio::time::timeout(Duration::from_millis(100), &mut acquiring).await;
    acquiring
}

/// A guard of a hold that somebody else of this client had just before. Whether it goes this way depends on how fast the
/// machine is, so this tries until it does.
async fn passed_on(server: &Server, client: &Client) -> Guard {
    loop {
        let first = client.lock("n").acquire().await.unwrap();
        let (before, after) = (passer(client), client.lock("n").acquire());
        subscribed(server, CHANNEL, 1).await;
        let after = tokio::spawn(after.into_future());
        sleep(Duration::from_millis(20)).await;
        first.release().await.unwrap();
        let (owner, guard) = (soon("the first waiter", before).await.unwrap(), granted(after).await);
        if guard.owner() == owner {
            return guard;
        }
        guard.release().await.unwrap();
    }
}

/// Puts the hold on its way to somebody who is asleep; that one, and the owner of the hold.
async fn on_its_way_to_a_sleeper(server: &Server, client: &Client) -> (Acquiring, Owner) {
    let first = client.lock("n").acquire().await.unwrap();
    let before = passer(client);
    subscribed(server, CHANNEL, 1).await;
    sleep(Duration::from_millis(20)).await;
    let sleeper = asleep(server, client).await;
    first.release().await.unwrap();
    (sleeper, soon("the first waiter", before).await.unwrap())
}

/// How often the server has been asked.
fn requests(server: &Server) -> usize {
    let info = server.cli(&["INFO", "commandstats"]);
    let calls = |line: &str| line.split(['=', ',']).nth(1).and_then(|calls| calls.parse::<usize>().ok());
    let lines = info.as_str().expect("text").lines();
    lines.filter(|line| line.starts_with("cmdstat_eval")).filter_map(calls).sum()
}

async fn many_tasks_ask_seldom(flavour: Flavour) {
    const TASKS: usize = 32;
    const TURNS: usize = 100;
    let server = Server::start(flavour);
    let client = connect(server.url()).await;
    let value = Arc::new(Mutex::new(0));
    let mut tasks = JoinSet::new();
    for _ in 0..TASKS {
        let (lock, value) = (client.lock("n"), Arc::clone(&value));
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

async fn the_next_task_has_the_hold_as_it_is(flavour: Flavour) {
    let server = Server::start(flavour);
    let client = connect(server.url()).await;
    let guard = passed_on(&server, &client).await;
    assert!(guard.is_held() && guard.remaining() > SECOND * 20);
    let lock = client.lock("n");
    let holder = lock.holder().await.unwrap().expect("a holder");
    assert_eq!((holder.owner, holder.holds), (Some(guard.owner()), 1));
    assert!(lock.is_held_by(&guard.owner()).await.unwrap());
    let again = guard.reenter().await.unwrap();
    assert_eq!(again.release().await.unwrap().holds_left, 1);
    assert_eq!(guard.release().await.unwrap().holds_left, 0);
    assert_eq!(keys(&server), [""; 0]);
}

async fn each_has_an_owner_of_its_own_if_it_is_off(flavour: Flavour) {
    let server = Server::start(flavour);
    let client = connect(server.url()).await;
    let mut tasks = JoinSet::new();
    for _ in 0..8 {
        let lock = client.lock("n").local_handover(false);
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

async fn whoever_wants_an_owner_a_lease_or_a_token_gets_it_from_the_server(flavour: Flavour) {
    let server = Server::start(flavour);
    let client = connect(server.url()).await;
    let mut tasks = JoinSet::new();
    for _ in 0..8 {
        let lock = client.lock("n");
        tasks.spawn(async move {
            for _ in 0..50 {
                drop(lock.acquire().await.unwrap());
            }
        });
    }
    let (lock, me) = (client.lock("n"), Owner::unique());
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

async fn others_get_their_turn(flavour: Flavour) {
    let server = Server::start(flavour);
    let (crowd, other) = (connect(server.url()).await, connect(server.url()).await);
    let turns = Arc::new(Mutex::new(0_usize));
    let mut tasks = JoinSet::new();
    for _ in 0..32 {
        let (lock, turns) = (crowd.lock("n"), Arc::clone(&turns));
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
            let guard = other.lock("n").acquire().await.unwrap();
            between.push(*turns.lock().unwrap() - before);
            guard.release().await.unwrap();
        }
        between
    };
    let between = soon("the turns of the other one", others).await;
    tasks.shutdown().await;
    // A hold goes round at most so often, and while the other one comes, it may be taken once more.
    let most = between.iter().max().expect("some");
    assert!(*most <= 2 * 256, "{between:?}");
}

async fn what_nobody_comes_for_is_given_back(flavour: Flavour) {
    let server = Server::start(flavour);
    let (client, other) = (connect(server.url()).await, connect(server.url()).await);
    let (sleeper, _) = on_its_way_to_a_sleeper(&server, &client).await;
    let guard = soon("the other one", other.lock("n").acquire().into_future()).await.unwrap();
    guard.release().await.unwrap();
    // It has lost its turn, not its place.
    let guard = soon("whoever slept", sleeper).await.unwrap();
    assert!(guard.is_held());
}

async fn an_heir_that_leaves_lets_the_next_one_have_it(flavour: Flavour) {
    let server = Server::start(flavour);
    let client = connect(server.url()).await;
    let (sleeper, _) = on_its_way_to_a_sleeper(&server, &client).await;
    let next: Waiter = tokio::spawn(client.lock("n").acquire().into_future());
    tokio::task::yield_now().await;
    drop(sleeper);
    granted(next).await.release().await.unwrap();
    assert_eq!(keys(&server), [""; 0]);
}

async fn the_last_heir_that_leaves_frees_the_lock(flavour: Flavour) {
    let server = Server::start(flavour);
    let client = connect(server.url()).await;
    let (sleeper, _) = on_its_way_to_a_sleeper(&server, &client).await;
    drop(sleeper);
    until("the lock is free", || keys(&server).is_empty()).await;
    client.lock("n").try_acquire().await.unwrap().expect("a free lock").release().await.unwrap();
}

async fn a_loss_is_told_to_whoever_has_the_lock_now(flavour: Flavour) {
    let server = Server::start(flavour);
    let client = watchful(&server).await;
    let guard = passed_on(&server, &client).await;
    let watcher = tokio::spawn(guard.lost());
    server.cli(&["DEL", "n"]);
    assert_eq!(soon("the loss", watcher).await.unwrap(), Loss::Gone);
    assert!(!guard.is_held());
    guard.release().await.unwrap_err();
}

async fn a_lock_that_was_lost_goes_to_those_who_wait(flavour: Flavour) {
    let server = Server::start(flavour);
    let client = watchful(&server).await;
    let guard = passed_on(&server, &client).await;
    let next: Waiter = tokio::spawn(client.lock("n").acquire().into_future());
    subscribed(&server, CHANNEL, 1).await;
    // Nobody is told of that.
    server.cli(&["DEL", "n"]);
    granted(next).await.release().await.unwrap();
    assert!(!guard.is_held());
}

async fn a_client_that_shuts_down_keeps_nothing(flavour: Flavour) {
    let server = Server::start(flavour);
    let client = connect(server.url()).await;
    let (mut sleeper, _) = on_its_way_to_a_sleeper(&server, &client).await;
    let shutdown = tokio::spawn(client.shutdown(SECOND).into_future());
    let told = soon("the end of the wait", poll_fn(|context| sleeper.as_mut().poll(context))).await;
    drop(told);
    assert_eq!(soon("the shutdown", shutdown).await.unwrap().left_to_expire, 0);
    until("the lock is free", || keys(&server).is_empty()).await;
}
