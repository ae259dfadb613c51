//! Invalid input is refused with a reason before any request, and valid input works.

use std::time::Duration;

use leasehold::test::Embedded;
use leasehold::{AcquireError, Client, ConnectError, ExtendError, InvalidRequestError};

const MS: Duration = Duration::from_millis(1);

/// Acquires with this name in every possible way, and expects the same refusal from all of them.
async fn refused(client: &Client, name: &str) -> InvalidRequestError {
    let lock = client.lock(name);
    let Err(AcquireError::Invalid { cause: invalid, .. }) = lock.acquire().await else {
        panic!("{name:.80} was taken")
    };
    assert_eq!(lock.try_acquire().await.unwrap_err(), invalid.clone().into());
    assert_eq!(lock.acquire().steal().await.unwrap_err(), invalid.clone().into());
    assert_eq!(lock.is_locked().await, Err(invalid.clone().into()));
    assert_eq!(lock.force_unlock().await, Err(invalid.clone().into()));
    let by_owner = lock.as_owner(leasehold::Owner::this_thread()).release().await;
    assert_eq!(by_owner, Err(invalid.clone().into()));
    invalid
}

#[tokio::test]
async fn invalid_lock_names_are_refused_with_the_reason() {
    let engine = Embedded::new();
    let client = Client::connect(engine.url()).await.unwrap();
    assert_eq!(refused(&client, "").await, InvalidRequestError::EmptyName);
    let enormous = "x".repeat(leasehold::limits::LONGEST_NAME + 1);
    assert_eq!(refused(&client, &enormous).await, InvalidRequestError::NameTooLong { bytes: 65_537 });
    for split in ["a{b", "{}", "x{}y", "a}b", "}{"] {
        let text = refused(&client, split).await.to_string();
        assert!(text.contains(&format!("{split:?}")) && text.contains("cluster slots"), "{text}");
    }
    let long_and_split = format!("{}{{", "x".repeat(60_000));
    assert!(refused(&client, &long_and_split).await.to_string().len() < 400);
    assert_eq!(engine.names(), 0);
}

/// The auxiliary keys of `{x}` are those of `x`, so the two locks would not be independent.
#[tokio::test]
async fn a_name_that_is_only_a_hash_tag_is_refused_for_every_kind() {
    let engine = Embedded::new();
    let client = Client::connect(engine.url()).await.unwrap();
    let refusal = refused(&client, "{x}").await;
    assert!(refusal.to_string().ends_with(r#"write "x""#), "{refusal}");
    let refused = Err(AcquireError::from(refusal.clone()));
    let rw = client.rw_lock("{x}");
    let quorum = leasehold::QuorumLock::new([&client], "{x}");
    let acquired = [
        client.fair_lock("{x}").acquire().await.map(drop),
        client.fenced_lock("{x}").acquire().await.map(drop),
        client.spin_lock("{x}").acquire().await.map(drop),
        client.setnx_lock("{x}").acquire().await.map(drop),
        client.group_lock("{x}", ["a"]).acquire().await.map(drop),
        client.multi_lock(["a", "{x}"]).acquire().await.map(drop),
        quorum.acquire().await.map(drop),
        rw.read().acquire().await.map(drop),
        rw.write().acquire().await.map(drop),
        client.semaphore("{x}").acquire(1).await.map(drop),
        client.leased_semaphore("{x}").acquire(1).await.map(drop),
    ];
    for (number, acquired) in acquired.into_iter().enumerate() {
        assert_eq!(acquired, refused, "number {number}");
    }
    assert_eq!(client.latch("{x}").try_set_count(1).await, Err(refusal.clone().into()));
    assert_eq!(client.latch("{x}").opened().await, Err(refusal.clone().into()));
    assert_eq!(client.semaphore("{x}").try_set_permits(1).await, Err(refusal.clone().into()));
    assert_eq!(client.fenced_write("{x}", 1, "v").await, Err(refusal.clone().into()));
    // With the namespace it is another name, or only then becomes the tag.
    let inside = Client::connect("memory:").namespace("app:").await.unwrap();
    assert!(inside.lock("{x}").try_acquire().await.unwrap().is_some());
    let inside = Client::connect("memory:").namespace("{").await.unwrap();
    assert_eq!(inside.lock("x}").acquire().await.map(drop), refused);
    assert_eq!(engine.names(), 0);
}

#[tokio::test]
async fn unusual_lock_names_work_and_are_distinct() {
    let engine = Embedded::new();
    let client = Client::connect(engine.url()).await.unwrap();
    let longest = "x".repeat(leasehold::limits::LONGEST_NAME);
    let names = [
        "\0",
        "a\0b",
        "a",
        "A",
        " ",
        "쿠폰:42",
        "🔒",
        "\\",
        "a{tag}b",
        "{tag}:x",
        "new\nline",
        "%s",
        &longest,
    ];
    let mut guards = Vec::new();
    for name in names {
        guards.push(client.lock(name).try_acquire().await.unwrap().unwrap());
        assert!(client.lock(name).try_acquire().await.unwrap().is_none(), "{name:.20}");
    }
    assert_eq!(engine.names(), names.len());
    drop(guards);
    assert_eq!(engine.names(), 0);
}

#[tokio::test(start_paused = true)]
async fn leases_out_of_range_are_refused() {
    let engine = Embedded::new();
    let client = Client::connect(engine.url()).await.unwrap();
    let lock = client.lock("a");
    for short in [Duration::ZERO, Duration::from_nanos(1), Duration::from_micros(999), MS, MS * 19] {
        for outcome in [lock.acquire().lease(short).await, lock.acquire().max_hold(short).await] {
            let error = outcome.unwrap_err();
            assert!(
                matches!(error, AcquireError::Invalid { cause: InvalidRequestError::TooShort { .. }, .. }),
                "{error}"
            );
            assert!(error.to_string().contains("the least is 20ms"), "{error}");
        }
        assert!(lock.try_acquire().lease(short).await.is_err());
        let connected = Client::connect("memory:").watchdog(short).await;
        assert!(matches!(connected, Err(ConnectError::Invalid(InvalidRequestError::TooShort { .. }))));
    }
    for long in [Duration::MAX, Duration::from_secs(u64::MAX), leasehold::limits::LONGEST_LEASE + MS] {
        for outcome in [lock.acquire().lease(long).await, lock.acquire().max_hold(long).await] {
            assert!(matches!(
                outcome,
                Err(AcquireError::Invalid { cause: InvalidRequestError::TooLong { .. }, .. })
            ));
        }
        assert!(Client::connect("memory:").watchdog(long).await.is_err());
    }
    assert_eq!(engine.names(), 0);

    let guard = lock.acquire().lease(MS * 20).await.unwrap();
    assert!(matches!(
        guard.extend(MS * 19).await,
        Err(ExtendError::Invalid { cause: InvalidRequestError::TooShort { .. }, .. })
    ));
    assert!(matches!(
        guard.extend(Duration::MAX).await,
        Err(ExtendError::Invalid { cause: InvalidRequestError::TooLong { .. }, .. })
    ));
    assert!(guard.is_held(), "a refused extension changes nothing");
}

#[tokio::test(start_paused = true)]
async fn the_shortest_and_the_longest_lease_work() {
    let client = Client::connect("memory:").await.unwrap();
    let shortest = client.lock("short").acquire().lease(MS * 20).await.unwrap();
    assert_eq!(shortest.remaining(), MS * 18, "lease minus margin");
    let longest = client.lock("long").acquire().lease(leasehold::limits::LONGEST_LEASE).await.unwrap();
    let listener = tokio::spawn(longest.lost());
    tokio::time::sleep(Duration::from_secs(3 * 365 * 24 * 3600)).await;
    assert!(longest.is_held() && !listener.is_finished());
    assert!(!shortest.is_held());
}

#[tokio::test(start_paused = true)]
async fn waits_of_any_duration_work() {
    let engine = Embedded::new();
    let client = Client::connect(engine.url()).await.unwrap();
    let lock = client.lock("a");
    let holder = lock.acquire().wait(Duration::MAX).await.unwrap();
    for wait in [Duration::ZERO, Duration::from_nanos(1), Duration::from_micros(500)] {
        let error = lock.acquire().wait(wait).await.unwrap_err();
        assert!(error.is_contended(), "{error}");
        assert!(error.to_string().contains(&format!("by {}", holder.owner())), "{error}");
    }
    assert_eq!(engine.waiters("a"), 0);
    let waiter = tokio::spawn(lock.acquire().wait(Duration::MAX).into_future());
    tokio::time::sleep(Duration::from_secs(90)).await;
    holder.release().await.unwrap();
    assert!(waiter.await.unwrap().unwrap().is_held());
    assert_eq!(client.shutdown(Duration::MAX).await.left_to_expire, 0);
}

#[tokio::test]
async fn unknown_urls_are_refused_without_showing_the_password() {
    for (url, what) in [("", "no scheme"), ("postgres://me:secret@host", "`postgres:` is not known")] {
        let error = Client::connect(url).await.unwrap_err();
        let text = error.to_string();
        assert!(matches!(error, ConnectError::Url(_)), "{text}");
        assert!(text.contains(what) && text.contains("`memory:NAME`") && !text.contains("secret"), "{text}");
    }
}
