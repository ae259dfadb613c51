//! Abandoned operations are rolled back, after any outage and with any access rights on the server.

#![expect(clippy::unwrap_used, reason = "every case is the body of a test")]

use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::task::{Context, Waker};
use std::time::Duration;

use leasehold::{Client, Guard};
use leasehold_testkit::proxy::{Proxy, Which};
use leasehold_testkit::server::{Flavour, Server};
use tokio::time::sleep;

use crate::{SECOND, connect, keys, soon, take_as_redisson, until};

on_both! {
    a_fair_waiter_that_gives_up_in_a_long_outage_leaves_no_hold
    a_lock_with_an_extended_lease_is_released_after_an_outage_longer_than_the_first_lease
    a_lock_is_released_after_an_outage_though_the_reply_to_its_extension_was_lost
    an_acquire_that_a_dead_connection_executes_after_its_undo_is_undone_without_client_info
    an_acquire_that_a_dead_connection_executes_after_its_undo_is_undone_without_client_kill
    an_undo_made_after_a_reconnection_is_repeated
    an_acquire_that_a_dead_connection_executes_after_its_lease_is_undone
    a_refused_undo_is_retried_until_the_server_accepts_undos_again
    a_retried_undo_does_not_end_the_next_hold_of_its_owner
    undos_sent_ahead_of_a_failed_acquire_are_repeated_on_the_next_connection
    a_connection_of_another_client_with_the_same_number_is_not_killed
}

/// Whether no lock is held; other keys of a primitive do not count.
fn is_free(server: &Server) -> bool {
    !keys(server).contains(&"n".to_owned())
}

/// Drops a guard during an outage of more than a second, after which its lock has to be free.
async fn is_given_back_after_an_outage(guard: Guard, server: &Server, proxy: &Proxy) {
    proxy.refuse();
    drop(guard);
    sleep(SECOND * 3 / 2).await;
    proxy.heal();
    until("the lock is free", || is_free(server)).await;
}

/// A client that soon gives up connections as dead.
async fn impatient(url: String) -> Client {
    Client::connect(url).response_timeout(Duration::from_millis(300)).await.unwrap()
}

async fn a_fair_waiter_that_gives_up_in_a_long_outage_leaves_no_hold(flavour: Flavour) {
    let server = Server::start(flavour);
    let proxy = Proxy::start(server.port());
    let client = impatient(proxy.url()).await;
    let lock = client.fair_lock("n");
    take_as_redisson(&server, "n", SECOND * 600);
    let owner = leasehold::Owner::number(7);
    let waiter = tokio::spawn(lock.acquire().as_owner(&owner).lease(SECOND * 600).into_future());
    until("the waiter is queued", || keys(&server).contains(&"redisson_lock_queue:{n}".into())).await;
    sleep(Duration::from_millis(100)).await;
    // The lock is freed and the waiter is notified. Its next request reaches the server, and the reply is lost.
    proxy.lose_each_reply_once(Which::Command);
    let channel = format!("redisson_lock__channel:{{n}}:{}:7", client.id());
    server.cli(&["DEL", "n"]);
    server.cli(&["PUBLISH", &channel, "0"]);
    until("the server grants it", || !is_free(&server)).await;
    proxy.refuse();
    waiter.abort();
    // Longer than a waiter without a heartbeat stays in the queue.
    sleep(Duration::from_millis(3500)).await;
    proxy.heal();
    until("the lock is free", || is_free(&server)).await;
}

async fn a_lock_with_an_extended_lease_is_released_after_an_outage_longer_than_the_first_lease(
    flavour: Flavour,
) {
    let server = Server::start(flavour);
    let proxy = Proxy::start(server.port());
    let client = impatient(proxy.url()).await;
    for lock in [client.lock("n"), client.rw_lock("n").write().into(), client.group_lock("n", ["a"])] {
        let guard = lock.acquire().lease(SECOND).await.unwrap();
        guard.extend(SECOND * 600).await.unwrap();
        is_given_back_after_an_outage(guard, &server, &proxy).await;
    }
}

async fn a_lock_is_released_after_an_outage_though_the_reply_to_its_extension_was_lost(flavour: Flavour) {
    let server = Server::start(flavour);
    let proxy = Proxy::start(server.port());
    let client = impatient(proxy.url()).await;
    let guard = client.lock("n").acquire().lease(SECOND).await.unwrap();
    proxy.lose_reply_once(Which::Command);
    guard.extend(SECOND * 600).await.unwrap_err();
    is_given_back_after_an_outage(guard, &server, &proxy).await;
}

/// A server that denies a user this subcommand of `CLIENT`.
fn server_without(flavour: Flavour, right: &str) -> (Server, impl Fn(&Proxy) -> String) {
    // Redis before 7 can only allow subcommands.
    let others =
        ["client|id", "client|info", "client|kill", "client|setname"].map(|other| format!("+{other}"));
    let others: Vec<_> = others.into_iter().filter(|other| other[1..] != *right).collect();
    assert_eq!(others.len(), 3, "{right}");
    let rule = format!("user ann on >secret ~* &* +@all -client {}", others.join(" "));
    let server = Server::builder(flavour).config(rule).start();
    (server, |proxy: &Proxy| format!("redis://ann:secret@127.0.0.1:{}", proxy.port()))
}

/// A request that is held back on a dead connection, and delivered after its undo was made on the next one.
async fn held_back_beyond_its_undo(flavour: Flavour, right: &str) {
    let (server, url) = server_without(flavour, right);
    let proxy = Proxy::start(server.port());
    let client = impatient(url(&proxy)).await;
    let lock = client.lock("n");
    lock.acquire().await.unwrap().release().await.unwrap();
    proxy.half_open(Which::Command);
    let failed = lock.try_acquire().lease(SECOND * 600).await;
    assert!(failed.is_err_and(|error| error.is_unavailable()));
    // On a new connection, after the undo there.
    crate::acquired(&lock).await.release().await.unwrap();
    proxy.heal();
    sleep(Duration::from_millis(100)).await;
    until("a late grant is undone", || is_free(&server)).await;
}

async fn an_acquire_that_a_dead_connection_executes_after_its_undo_is_undone_without_client_info(
    flavour: Flavour,
) {
    held_back_beyond_its_undo(flavour, "client|info").await;
    held_back_beyond_its_undo(flavour, "client|id").await;
}

async fn an_acquire_that_a_dead_connection_executes_after_its_undo_is_undone_without_client_kill(
    flavour: Flavour,
) {
    held_back_beyond_its_undo(flavour, "client|kill").await;
}

async fn an_undo_made_after_a_reconnection_is_repeated(flavour: Flavour) {
    let (server, url) = server_without(flavour, "client|kill");
    let proxy = Proxy::start(server.port());
    let client = impatient(url(&proxy)).await;
    let lock = client.lock("n");
    lock.acquire().await.unwrap().release().await.unwrap();
    proxy.half_open(Which::Command);
    let mut acquiring = lock.acquire().lease(SECOND * 600).into_future();
    assert!(Pin::new(&mut acquiring).poll(&mut Context::from_waker(Waker::noop())).is_pending());
    let mut all = client.multi_lock(["x", "y"]).acquire().lease(SECOND * 600).into_future();
    assert!(Pin::new(&mut all).poll(&mut Context::from_waker(Waker::noop())).is_pending());
    // The connection is replaced, and only then do the callers give up.
    crate::acquired(&client.lock("m")).await.release().await.unwrap();
    drop((acquiring, all));
    sleep(Duration::from_millis(100)).await;
    proxy.heal();
    sleep(Duration::from_millis(100)).await;
    until("a late grant is undone", || keys(&server).is_empty()).await;
}

async fn an_acquire_that_a_dead_connection_executes_after_its_lease_is_undone(flavour: Flavour) {
    let lease = SECOND * 3;
    let (server, url) = server_without(flavour, "client|kill");
    let proxy = Proxy::start(server.port());
    let client = impatient(url(&proxy)).await;
    let lock = client.lock("n");
    lock.acquire().await.unwrap().release().await.unwrap();
    proxy.half_open(Which::Command);
    assert!(lock.try_acquire().lease(lease).await.is_err());
    sleep(lease).await;
    assert!(is_free(&server));
    proxy.heal();
    until("it is carried out", || !is_free(&server)).await;
    let begun = tokio::time::Instant::now();
    until("a late grant is undone", || is_free(&server)).await;
    assert!(begun.elapsed() < lease * 2 / 3, "not by the end of its lease: {:?}", begun.elapsed());
}

async fn a_refused_undo_is_retried_until_the_server_accepts_undos_again(flavour: Flavour) {
    let server = Server::builder(flavour).config("user ann on >secret ~* &* +@all").start();
    let client = connect(format!("redis://ann:secret@127.0.0.1:{}", server.port())).await;
    let guard = client.lock("n").acquire().lease(SECOND * 600).await.unwrap();
    server.cli(&["ACL", "SETUSER", "ann", "-@scripting"]);
    drop(guard);
    sleep(Duration::from_millis(300)).await;
    server.cli(&["ACL", "SETUSER", "ann", "+@all"]);
    until("the lock is free", || is_free(&server)).await;
}

async fn a_retried_undo_does_not_end_the_next_hold_of_its_owner(flavour: Flavour) {
    let server = Server::builder(flavour).config("user ann on >secret ~* &* +@all").start();
    let client = connect(format!("redis://ann:secret@127.0.0.1:{}", server.port())).await;
    let owner = leasehold::Owner::number(7);
    let guard = client.lock("n").acquire().as_owner(&owner).await.unwrap();
    server.cli(&["ACL", "SETUSER", "ann", "-@scripting"]);
    drop(guard);
    sleep(Duration::from_millis(200)).await;
    server.cli(&["ACL", "SETUSER", "ann", "+@all"]);
    let next =
        soon("the next hold", client.fair_lock("n").acquire().as_owner(&owner).into_future()).await.unwrap();
    sleep(SECOND * 3 / 2).await;
    assert!(next.is_held() && !is_free(&server), "it is the same lock, by another handle");
}

async fn a_connection_of_another_client_with_the_same_number_is_not_killed(flavour: Flavour) {
    let mut server = Server::start(flavour);
    let proxy = Proxy::start(server.port());
    let client = impatient(proxy.url()).await;
    drop(soon("a lock", client.lock("n").acquire().into_future()).await.unwrap());
    let id_of_ours = crate::number(&server.cli(&["CLIENT", "ID"]));
    proxy.refuse();
    // Its connection numbers begin anew, and other connections get the first ones.
    server.restart();
    let mut strangers: Vec<_> = (0..id_of_ours + 20).map(|_| server.connect()).collect();
    let numbers: Vec<_> = strangers
        .iter_mut()
        .map(|stranger| crate::number(&stranger.call(&["CLIENT", "ID"]).unwrap()))
        .collect();
    proxy.heal();
    crate::acquired(&client.lock("n")).await.release().await.unwrap();
    for (stranger, number) in strangers.iter_mut().zip(numbers) {
        let alive = stranger.call(&["CLIENT", "ID"]);
        assert!(alive.is_ok(), "the connection with the number {number} was killed");
    }
}

async fn undos_sent_ahead_of_a_failed_acquire_are_repeated_on_the_next_connection(flavour: Flavour) {
    let server = Server::start(flavour);
    let proxy = Proxy::start(server.port());
    let client = impatient(proxy.url()).await;
    let owner = leasehold::Owner::number(7);
    let acquire =
        |values: [&str; 2]| client.group_lock("n", values).acquire().as_owner(&owner).lease(SECOND * 600);
    let guards = (acquire(["a", "c"]).await.unwrap(), acquire(["b", "d"]).await.unwrap());
    proxy.half_open(Which::Command);
    drop(guards);
    // It needs some of the values of both guards, and fails with them.
    let failed = acquire(["a", "b"]).wait(Duration::ZERO).await;
    assert!(failed.is_err_and(|error| error.is_unavailable()));
    until("all values are free", || is_free(&server)).await;
}
