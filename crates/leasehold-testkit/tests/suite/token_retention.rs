//! For how long counters of tokens are kept: what is refused, and engines without keys on a server.

use std::time::Duration;

use leasehold::{AcquireError, Client, ConnectError, InvalidRequestError};
use leasehold_testkit::bench::{Backend as _, Files};

const SECOND: Duration = Duration::from_secs(1);

#[tokio::test]
async fn own_475_a_retention_that_a_hold_can_outlive_is_refused() {
    let files = Files::new();
    for url in ["memory:", files.url()] {
        let options = || Client::connect(url).watchdog(2 * SECOND);
        for (given, too_short) in [(2 * SECOND, true), (SECOND, true), (2001 * SECOND / 1000, false)] {
            match options().token_retention(given).await {
                Err(ConnectError::Invalid(InvalidRequestError::TokenRetentionTooShort {
                    what, end, ..
                })) => {
                    assert_eq!((too_short, what, end), (true, "watchdog time-out", 2 * SECOND), "{url}");
                }
                other => assert!(!too_short, "{url}, {given:?}: {other:?}"),
            }
        }
        assert!(options().token_retention(Duration::MAX).await.is_err());

        let client = options().token_retention(5 * SECOND).await.unwrap();
        let lock = client.fenced_lock("n");
        let several = || client.multi_lock(["n", "m"]).acquire().fenced();
        for (what, refused) in [
            ("lease", lock.acquire().lease(5 * SECOND).await.map(drop)),
            ("max_hold", lock.acquire().max_hold(5 * SECOND).await.map(drop)),
            ("lease", lock.try_acquire().lease(5 * SECOND).await.map(drop)),
            ("lease", client.rw_lock("rw").write().acquire().fenced().lease(5 * SECOND).await.map(drop)),
            ("lease", several().lease(5 * SECOND).await.map(drop)),
            ("max_hold", several().max_hold(5 * SECOND).await.map(drop)),
        ] {
            let error = refused.unwrap_err();
            let given = 5 * SECOND;
            let expected = InvalidRequestError::TokenRetentionTooShort { given, what, end: given };
            assert!(matches!(&error, AcquireError::Invalid { cause, .. } if *cause == expected), "{error:?}");
            assert!(error.to_string().contains(what) && error.to_string().contains("5s"), "{error}");
        }
        // Without a token there is no counter.
        client.lock("n").acquire().lease(5 * SECOND).await.unwrap().release().await.unwrap();
        lock.acquire().lease(SECOND).await.unwrap().release().await.unwrap();
    }
}

#[tokio::test]
async fn own_476_counters_in_memory_and_in_files_stay() {
    let files = Files::new();
    for url in ["memory:", files.url()] {
        let retention = SECOND / 20;
        let client = Client::connect(url).watchdog(retention / 2).token_retention(retention).await.unwrap();
        let lock = client.fenced_lock("n");
        for expected in 1..=3 {
            let guard = lock.acquire().await.unwrap();
            assert_eq!(guard.token(), expected, "{url}");
            guard.release().await.unwrap();
            tokio::time::sleep(2 * retention).await;
        }
        assert_eq!(lock.last_token().await.unwrap(), 3, "{url}");
    }
}
