//! Which waiters for fair locks a client includes in its queue heartbeats.

#![expect(clippy::unwrap_used, reason = "every case is the body of a test")]

use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::task::{Context, Waker};

use leasehold::Owner;
use leasehold_testkit::server::{Flavour, Server};
use tokio::time::sleep;

use crate::{SECOND, connect, strings, take_as_redisson, until};

on_both! {
    a_waiter_that_has_left_a_fair_lock_is_in_no_heartbeat
}

async fn a_waiter_that_has_left_a_fair_lock_is_in_no_heartbeat(flavour: Flavour) {
    let server = Server::start(flavour);
    let client = connect(server.url()).await;
    let lock = client.fair_lock("n");
    let waits = |number: u32| lock.acquire().as_owner(Owner::number(number));
    let field = |number: u32| format!("{}:{number}", client.id());
    let queue = || strings(&server.cli(&["LRANGE", "redisson_lock_queue:{n}", "0", "-1"]));
    take_as_redisson(&server, "n", SECOND * 600);
    // This waiter stays: the heartbeats continue for it.
    let stays = tokio::spawn(waits(1).into_future());
    until("a waiter is queued", || queue() == [field(1)]).await;

    // The reply to the only request of each arrives after its caller is gone.
    for number in 10..15 {
        let mut dropped = waits(number).into_future();
        assert!(Pin::new(&mut dropped).poll(&mut Context::from_waker(Waker::noop())).is_pending());
    }
    assert!(waits(20).wait(SECOND / 5).await.unwrap_err().is_contended());
    let aborted = tokio::spawn(waits(21).into_future());
    until("another waiter is queued", || queue().contains(&field(21))).await;
    aborted.abort();
    until("those that have gone have left the queue", || queue() == [field(1)]).await;
    // Enough time for the replies to their leave requests; no event reports their arrival.
    sleep(SECOND / 5).await;

    let (mut monitor, mut sent) = (server.monitor(), Vec::new());
    let mentions = |line: &String, number: u32| line.contains(&format!("\"{}\"", field(number)));
    until("three heartbeats of the waiter that stays", || {
        sent.extend(monitor.take_sent());
        sent.iter().filter(|line| mentions(line, 1)).count() >= 3
    })
    .await;
    for number in (10..15).chain(20..22) {
        let said = sent.iter().find(|line| mentions(line, number));
        assert!(said.is_none(), "the waiter {number} has left, and the client reports {said:?}");
    }
    stays.abort();
}
