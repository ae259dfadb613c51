//! Which locks are held.

use leasehold::{Client, HeldLock, Holder, Listing, LockKind, Owner};

use super::Outcome;
use super::common::LONG_LEASE;
use crate::bench::{Bench, VIEW};

/// The name of each lock of this case, without what all names of the case begin with.
fn named(bench: &Bench, listing: &Listing) -> Vec<(String, LockKind)> {
    let name =
        |lock: &HeldLock| lock.name.strip_prefix(&bench.name("")).expect("a name of the case").to_owned();
    listing.locks.iter().map(|lock| (name(lock), lock.kind)).collect()
}

/// Whether a holder is this owner, as far as another client of the engine can tell.
fn is_of(bench: &Bench, holder: &Holder, owner: &Owner) -> bool {
    let shown = holder.owner.as_ref();
    if bench.lacks(VIEW) {
        let client = |owner: &Owner| owner.to_string().split(':').next().map(str::to_owned);
        shown.and_then(client) == client(owner)
    } else {
        shown == Some(owner)
    }
}

async fn labelled(bench: &Bench) -> Client {
    bench.client_with(|connect| connect.label("web-3")).await
}

pub async fn own_450_the_locks_that_are_held_are_listed_with_their_holders(bench: &Bench) -> Outcome {
    let (client, elsewhere) = (labelled(bench).await, bench.client().await);
    let of_case = bench.name("*");
    assert_eq!(elsewhere.list(&of_case).await?.locks, []);
    let guards =
        [client.lock(bench.name("a")).acquire().await?, client.lock(bench.name("b")).acquire().await?];
    let entered = guards[0].reenter().await?;
    let free = client.lock(bench.name("c")).acquire().await?;
    free.release().await?;
    for seen_from in [&client, &elsewhere] {
        let listing = seen_from.list(&of_case).await?;
        assert!(listing.is_complete);
        let both = ["a", "b"].map(|name| (name.to_owned(), LockKind::Lock));
        assert_eq!(named(bench, &listing), both, "in the order of their names");
        for (lock, guard) in listing.locks.iter().zip(&guards) {
            assert_eq!(lock.holders, 1);
            assert!(is_of(bench, &lock.holder, &guard.owner()), "{lock:?}");
            let client = lock.holder.client.as_ref().expect("its client is known");
            assert_eq!((client.label.as_deref(), client.pid), (Some("web-3"), Some(std::process::id())));
        }
    }
    // Another client of some engines sees neither.
    let own = client.list(bench.name("a")).await?;
    assert_eq!(own.locks[0].holder.holds, 2);
    assert!(own.locks[0].holder.remaining > LONG_LEASE / 10, "{own:?}");
    entered.release().await?;
    for guard in guards {
        guard.release().await?;
    }
    assert_eq!(elsewhere.list(&of_case).await?.locks, []);
    Ok(())
}

pub async fn own_451_a_pattern_selects_names_within_the_namespace(bench: &Bench) -> Outcome {
    let client = bench.client().await;
    let guards =
        ["x:1", "x:12", "y:1", "y[1]"].map(|name| client.lock(bench.name(name)).acquire().into_future());
    let mut held = Vec::new();
    for guard in guards {
        held.push(guard.await?);
    }
    for (pattern, expected) in [
        ("*", &["x:1", "x:12", "y:1", "y[1]"][..]),
        ("x:*", &["x:1", "x:12"]),
        ("?:1", &["x:1", "y:1"]),
        ("*1*", &["x:1", "x:12", "y:1", "y[1]"]),
        ("y[1]", &["y[1]"]),
        ("x:1", &["x:1"]),
        ("x", &[]),
    ] {
        let listing = client.list(bench.name(pattern)).await?;
        let names: Vec<_> = named(bench, &listing).into_iter().map(|(name, _)| name).collect();
        assert_eq!(names, expected, "{pattern}");
    }
    // Names are shown without the namespace, and others are not found.
    let namespace = bench.name("x:");
    let within = bench.client_with(|connect| connect.namespace(&namespace)).await;
    let names: Vec<_> = within.list("*").await?.locks.into_iter().map(|lock| lock.name).collect();
    assert_eq!(names, ["1", "12"]);
    assert_eq!(within.find("12").await?.expect("it is held").name, "12");
    for guard in held {
        guard.release().await?;
    }
    Ok(())
}

pub async fn own_452_the_kind_of_a_lock_is_found_by_its_name(bench: &Bench) -> Outcome {
    let (client, elsewhere) = (labelled(bench).await, bench.client().await);
    let name = bench.name("a");
    assert_eq!(elsewhere.find(&name).await?, None);
    let guard = client.lock(&name).acquire().await?;
    let found = elsewhere.find(&name).await?.expect("it is held");
    assert_eq!((found.name.as_str(), found.kind, found.holders), (name.as_str(), LockKind::Lock, 1));
    assert!(is_of(bench, &found.holder, &guard.owner()), "{found:?}");
    assert_eq!(found.holder.client.and_then(|client| client.label).as_deref(), Some("web-3"));
    guard.release().await?;
    assert_eq!(elsewhere.find(&name).await?, None);
    elsewhere.find("").await.expect_err("an empty name");
    Ok(())
}

pub async fn own_453_readers_and_writers_are_listed(bench: &Bench) -> Outcome {
    let (client, elsewhere) = (labelled(bench).await, bench.client().await);
    let lock = client.rw_lock(bench.name("rw"));
    let readers = [lock.read().acquire().await?, lock.read().acquire().await?];
    let found = elsewhere.find(bench.name("rw")).await?.expect("it is held");
    assert_eq!((found.kind, found.holders), (LockKind::Read, 2));
    for reader in readers {
        reader.release().await?;
    }
    let writer = lock.write().acquire().await?;
    let found = elsewhere.find(bench.name("rw")).await?.expect("it is held");
    // Files tell them from locks no more than `flock` does.
    assert!(matches!(found.kind, LockKind::Write | LockKind::Lock), "{found:?}");
    assert_eq!((found.holder.owner, found.holders), (Some(writer.owner()), 1));
    writer.release().await?;
    assert_eq!(elsewhere.list(bench.name("*")).await?.locks, []);
    Ok(())
}

pub async fn own_454_a_group_is_listed_as_long_as_a_value_is_held(bench: &Bench) -> Outcome {
    let (client, elsewhere) = (labelled(bench).await, bench.client().await);
    let guards = [
        client.group_lock(bench.name("g"), ["1", "2"]).acquire().await?,
        client.group_lock(bench.name("g"), ["3"]).acquire().await?,
    ];
    let listing = elsewhere.list(bench.name("*")).await?;
    assert_eq!(named(bench, &listing), [("g".to_owned(), LockKind::Group)]);
    let lock = &listing.locks[0];
    assert_eq!(lock.holders, 2);
    assert!(guards.iter().any(|guard| lock.holder.owner == Some(guard.owner())), "{lock:?}");
    for guard in guards {
        guard.release().await?;
    }
    assert_eq!(elsewhere.list(bench.name("*")).await?.locks, []);
    Ok(())
}

pub async fn own_455_setnx_locks_are_listed_if_they_are_asked_for(bench: &Bench) -> Outcome {
    let (client, elsewhere) = (labelled(bench).await, bench.client().await);
    let guard = client.setnx_lock(bench.name("s")).acquire().await?;
    let of_case = bench.name("*");
    assert_eq!(elsewhere.list(&of_case).await?.locks, []);
    let listing = elsewhere.list(&of_case).setnx().await?;
    assert_eq!(named(bench, &listing), [("s".to_owned(), LockKind::SetNx)]);
    assert_eq!(listing.locks[0].holder.owner, Some(guard.owner()));
    assert_eq!(elsewhere.find(bench.name("s")).await?.expect("it is held").kind, LockKind::SetNx);
    guard.release().await?;
    Ok(())
}
