//! Which client holds a lock, and which waits for it.

use leasehold::{AcquireError, ConnectOptions, Guard, Owner};
use tokio::time::sleep;

use super::Outcome;
use super::common::{LEASE, LONG_LEASE, MOMENT, Waiter, soon};
use crate::bench::{Bench, TRACED};

fn labelled(connect: ConnectOptions) -> ConnectOptions {
    connect.label("web-3")
}

/// Whether this is an owner of the client of a guard: not every server distinguishes the owners of one client.
fn is_client_of(owner: Option<&Owner>, guard: &Guard) -> bool {
    let client = |owner: &Owner| owner.to_string().split(':').next().map(str::to_owned);
    owner.is_some_and(|owner| client(owner) == client(&guard.owner()))
}

pub async fn own_401_the_holder_of_a_lock_is_traced_to_its_client(bench: &Bench) -> Outcome {
    bench.needs(TRACED)?;
    let (lock, elsewhere) = (bench.lock_with(labelled).await, bench.lock().await);
    assert_eq!(elsewhere.holder().await?, None);
    let guard = lock.acquire().await?;
    for seen_from in [&lock, &elsewhere] {
        let holder = seen_from.holder().await?.expect("it is held");
        assert!(is_client_of(holder.owner.as_ref(), &guard), "{holder:?}");
        let client = holder.client.expect("its client is known");
        assert_eq!((client.label.as_deref(), client.pid), (Some("web-3"), Some(std::process::id())));
        assert!(client.host.is_some_and(|host| !host.is_empty()));
    }
    guard.release().await?;
    assert_eq!(elsewhere.holder().await?, None);
    Ok(())
}

pub async fn own_402_an_anonymous_client_publishes_nothing(bench: &Bench) -> Outcome {
    bench.needs(TRACED)?;
    let anonymous = bench.lock_with(|connect| labelled(connect).anonymous()).await;
    let elsewhere = bench.lock().await;
    let guard = anonymous.acquire().await?;
    let holder = elsewhere.holder().await?.expect("it is held");
    assert!(is_client_of(holder.owner.as_ref(), &guard) && holder.client.is_none(), "{holder:?}");
    let over = soon(elsewhere.acquire().wait(MOMENT)).await.expect_err("the lock is busy");
    assert!(matches!(over, AcquireError::Timeout { client: None, .. }), "{over:?}");
    assert!(!over.to_string().contains("web-3"), "{over}");
    guard.release().await?;
    Ok(())
}

pub async fn own_403_a_wait_that_times_out_names_the_holder(bench: &Bench) -> Outcome {
    let (lock, elsewhere) = (bench.lock_with(labelled).await, bench.lock().await);
    let guard = lock.acquire().lease(LONG_LEASE).await?;
    // The holder is looked up for a tenth of the wait, which a busy machine may not be able to keep.
    let mut over = soon(elsewhere.acquire().wait(LEASE)).await.expect_err("the lock is busy");
    for _ in 0..9 {
        if !matches!(over, AcquireError::Timeout { holder: Some(_), client: None, .. }) {
            break;
        }
        over = soon(elsewhere.acquire().wait(LEASE * 2)).await.expect_err("the lock is busy");
    }
    assert!(over.is_contended(), "{over:?}");
    let text = over.to_string();
    let AcquireError::Timeout { holder, client, lease_left, .. } = over else { panic!("{over:?}") };
    if holder.is_none() {
        // The server does not tell a waiter which client it waits for.
        assert_eq!((client, lease_left), (None, None));
        return Ok(());
    }
    assert!(is_client_of(holder.as_ref(), &guard), "{text}");
    let client = client.expect("its client is known");
    assert_eq!((client.label.as_deref(), client.pid), (Some("web-3"), Some(std::process::id())));
    assert!(text.contains(&format!(" by {client} after ")), "{text}");
    // Where no server keeps a lease, none is named.
    assert!(lease_left.is_none_or(|left| !left.is_zero()), "{lease_left:?}");
    assert_eq!(lease_left.is_some(), text.contains("; its lease ends in "), "{text}");
    // One try queries nothing.
    let over = soon(elsewhere.acquire().wait(std::time::Duration::ZERO)).await.expect_err("the lock is busy");
    assert!(matches!(over, AcquireError::Timeout { client: None, lease_left: None, .. }), "{over:?}");
    guard.release().await?;
    Ok(())
}

pub async fn own_404_the_waiters_for_a_lock_are_counted(bench: &Bench) -> Outcome {
    let lock = bench.lock().await;
    assert_eq!(lock.waiters().await?.at_least, 0);
    let guard = lock.acquire().await?;
    let waiter = Waiter::begin(lock.acquire()).await;
    while lock.waiters().await?.at_least == 0 {
        sleep(MOMENT).await;
    }
    guard.release().await?;
    waiter.outcome().await?.release().await?;
    while lock.waiters().await?.at_least > 0 {
        sleep(MOMENT).await;
    }
    Ok(())
}

pub async fn own_405_the_queue_of_a_fair_lock_is_traced_to_its_clients(bench: &Bench) -> Outcome {
    let (client, other) = (bench.client().await, bench.client_with(labelled).await);
    let (lock, elsewhere) = (client.fair_lock(bench.name("lock")), other.fair_lock(bench.name("lock")));
    let guard = lock.acquire().await?;
    let waiter = Waiter::begin(elsewhere.acquire()).await;
    let waiters = loop {
        let waiters = lock.waiters().await?;
        if !waiters.queue.is_empty() {
            break waiters;
        }
        sleep(MOMENT).await;
    };
    assert!(waiters.at_least >= 1);
    let client = waiters.queue[0].client.as_ref().expect("its client is known");
    assert_eq!(client.label.as_deref(), Some("web-3"));
    guard.release().await?;
    let served = waiter.outcome().await?;
    assert_eq!(waiters.queue[0].owner, served.owner());
    served.release().await?;
    Ok(())
}
