//! Valid names of a lock.

use leasehold::{AcquireError, QueryError};

use super::Outcome;
use super::common::{is_free_for, taken};
use crate::bench::Bench;

pub async fn hd_02_locks_with_different_names_are_independent(bench: &Bench) -> Outcome {
    let client = bench.client().await;
    let (one, two) = (client.lock(bench.name("one")), client.lock(bench.name("two")));
    let guard = taken(&one).await?;
    assert!(is_free_for(&two).await?);
    guard.release().await?;
    assert!(is_free_for(&one).await?);
    Ok(())
}

pub async fn hd_09_unusual_lock_names_work_and_invalid_lock_names_are_refused(bench: &Bench) -> Outcome {
    let client = bench.client().await;
    let longest = "x".repeat(leasehold::limits::LONGEST_NAME - bench.name("").len());
    let backslashes = "\\".repeat(1000);
    for odd in ["", " ", "\\", "\0", "a b\nc", "{tag}:x", "öffentlich/鍵/🔑", &backslashes, &longest] {
        let lock = client.lock(bench.name(odd));
        let guard = taken(&lock).await?;
        assert_eq!(guard.name(), bench.name(odd));
        assert!(!is_free_for(&lock).await?, "{odd}");
        guard.release().await?;
    }
    let too_long = bench.name(&longest) + "x";
    for impossible in ["", &too_long, &bench.name("{"), &bench.name("{}"), "{x}"] {
        let lock = client.lock(impossible);
        assert!(matches!(lock.acquire().await, Err(AcquireError::Invalid { .. })), "{impossible}");
        assert!(matches!(lock.is_locked().await, Err(QueryError::Invalid { .. })), "{impossible}");
    }
    Ok(())
}

pub async fn hd_10_lock_names_are_case_sensitive(bench: &Bench) -> Outcome {
    let client = bench.client().await;
    for length in [1, 1000] {
        let (upper, lower) = ("A".repeat(length), "a".repeat(length));
        let _upper = taken(&client.lock(bench.name(&upper))).await?;
        let _lower = taken(&client.lock(bench.name(&lower))).await?;
    }
    Ok(())
}

pub async fn hd_21_a_namespace_is_a_prefix_of_the_lock_name(bench: &Bench) -> Outcome {
    let namespace = bench.name("app:");
    let inside = bench.client_with(|connect| connect.namespace(&namespace)).await;
    let outside = bench.client().await;
    let guard = taken(&inside.lock("stock")).await?;
    assert_eq!(guard.name(), bench.name("app:stock"));
    assert!(is_free_for(&outside.lock(bench.name("stock"))).await?);
    assert!(!is_free_for(&outside.lock(bench.name("app:stock"))).await?);
    Ok(())
}
