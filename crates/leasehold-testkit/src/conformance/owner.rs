//! The owners of holds.

use leasehold::{AcquireError, InvalidRequestError, Loss, Owner, ReleaseError};

use super::Outcome;
use super::common::{is_free_for, on_a_thread, soon};
use crate::bench::{Bench, VIEW};

pub async fn lk_03_an_owner_holds_the_lock_from_acquire_to_release(bench: &Bench) -> Outcome {
    let lock = bench.lock().await;
    let me = Owner::unique();
    assert!(!lock.is_held_by(&me).await?);
    let guard = lock.acquire().as_owner(&me).await?;
    assert!(lock.is_held_by(&me).await?);
    guard.release().await?;
    assert!(!lock.is_held_by(&me).await?);
    Ok(())
}

pub async fn lk_04_a_thread_does_not_hold_the_lock_of_another_thread(bench: &Bench) -> Outcome {
    let lock = bench.lock().await;
    let ask_elsewhere = || {
        let lock = lock.clone();
        on_a_thread(move || lock.is_held_by(Owner::this_thread()).block())
    };
    let guard = lock.acquire().as_owner(Owner::this_thread()).await?;
    assert!(lock.is_held_by(Owner::this_thread()).await?);
    assert!(!ask_elsewhere().await?);
    guard.release().await?;
    assert!(!ask_elsewhere().await?);
    Ok(())
}

pub async fn lk_05_a_hold_belongs_to_its_owner_and_not_to_the_handle(bench: &Bench) -> Outcome {
    let client = bench.client().await;
    let (here, there) = (client.lock(bench.name("lock")), client.lock(bench.name("lock")));
    let (first, second) = (Owner::number(1), Owner::number(2));
    let (of_first, of_second) = (here.try_acquire().as_owner(&first), here.try_acquire().as_owner(&second));

    let _first = of_first.await?.expect("the lock is free");
    assert!(there.is_held_by(&first).await?);
    there.as_owner(&first).release().await?;
    assert!(!here.is_held_by(&first).await?);

    let _second = of_second.await?.expect("the lock is free again");
    assert!(there.is_held_by(&second).await?);
    there.as_owner(&second).release().await?;
    assert!(!here.is_held_by(&first).await? && !here.is_held_by(&second).await?);
    Ok(())
}

pub async fn lk_09_only_the_owner_can_release_the_lock(bench: &Bench) -> Outcome {
    let (lock, elsewhere) = (bench.lock().await, bench.lock().await);
    let guard = lock.acquire().as_owner(Owner::number(1)).await?;
    for (lock, number) in [(&lock, 2), (&elsewhere, 1)] {
        let refused = lock.as_owner(Owner::number(number)).release().await;
        assert!(matches!(refused, Err(ReleaseError::NotOwner { .. })), "{refused:?}");
    }
    assert!(guard.is_held() && lock.is_locked().await?);
    assert_eq!(guard.release().await?.holds_left, 0);
    Ok(())
}

pub async fn hd_04_a_second_release_is_an_error_and_does_not_affect_the_next_hold(bench: &Bench) -> Outcome {
    let lock = bench.lock().await;
    let (first, second) = (Owner::unique(), Owner::unique());
    lock.acquire().as_owner(&first).await?.release().await?;
    let guard = lock.acquire().as_owner(&second).await?;
    let again = lock.as_owner(&first).release().await;
    assert!(matches!(again, Err(ReleaseError::NotOwner { .. })), "{again:?}");
    assert!(guard.is_held() && !is_free_for(&lock).await?);
    guard.release().await?;
    Ok(())
}

pub async fn own_14_the_printed_form_of_an_owner_identifies_the_same_owner(bench: &Bench) -> Outcome {
    bench.needs(VIEW)?;
    let (lock, elsewhere) = (bench.lock().await, bench.lock().await);
    let outer = lock.acquire().as_owner(Owner::number(7)).await?;
    let same: Owner = outer.owner().to_string().parse()?;
    let inner = soon(lock.acquire().as_owner(&same)).await?;
    assert_eq!(elsewhere.hold_count(&same).await?, 2);
    assert!(elsewhere.is_held_by(&same).await? && !elsewhere.is_held_by(Owner::number(7)).await?);
    assert_eq!(inner.release().await?.holds_left, 1);
    assert_eq!(outer.release().await?.holds_left, 0);
    Ok(())
}

pub async fn own_34_only_the_client_of_an_owner_acquires_and_releases_in_its_name(bench: &Bench) -> Outcome {
    let (lock, elsewhere) = (bench.lock().await, bench.lock().await);
    let guard = lock.acquire().await?;
    let owner = guard.owner();
    let acquired = elsewhere.acquire().as_owner(&owner).await;
    let foreign = |cause: &InvalidRequestError| *cause == InvalidRequestError::ForeignOwner(owner.clone());
    assert!(matches!(&acquired, Err(AcquireError::Invalid { cause, .. }) if foreign(cause)), "{acquired:?}");
    let released = elsewhere.as_owner(&owner).release().await;
    assert!(matches!(&released, Err(ReleaseError::Invalid { cause, .. }) if foreign(cause)), "{released:?}");
    assert!(guard.is_held());
    assert_eq!(lock.hold_count(&owner).await?, 1);
    Ok(())
}

/// The owner of a plain guard can be named like any other, and whichever guard is released first, the count is right.
pub async fn own_35_the_generated_owner_of_a_guard_can_be_named(bench: &Bench) -> Outcome {
    let (lock, elsewhere) = (bench.lock().await, bench.lock().await);
    let first = lock.acquire().await?;
    let second = lock.acquire().as_owner(first.owner()).await?;
    drop(first);
    assert!(second.is_held() && !is_free_for(&elsewhere).await?);
    let third = lock.acquire().as_owner(second.owner()).await?;
    assert_eq!(second.release().await?.holds_left, 1);
    assert_eq!(lock.as_owner(third.owner()).release().await?.holds_left, 0);
    assert_eq!(soon(third.lost()).await, Loss::Gone);
    assert!(!third.is_held() && is_free_for(&elsewhere).await?);

    // Which hold an acquire enters is determined when it is awaited, not when it is described.
    let first = lock.acquire().await?;
    let me = first.owner();
    let described = lock.acquire().as_owner(&me).into_future();
    first.release().await?;
    let outer = lock.acquire().as_owner(&me).await?;
    assert_eq!(soon(described).await?.release().await?.holds_left, 1);
    assert!(outer.is_held());
    Ok(())
}

pub async fn own_15_a_release_in_the_owners_name_ends_the_guard_of_the_owner(bench: &Bench) -> Outcome {
    let lock = bench.lock().await;
    let owner = Owner::unique();
    let guard = lock.acquire().as_owner(&owner).await?;
    assert_eq!(lock.as_owner(&owner).release().await?.holds_left, 0);
    assert!(!guard.is_held());
    assert_eq!(soon(guard.lost()).await, Loss::Gone);
    assert!(is_free_for(&lock).await?);
    assert!(matches!(guard.release().await, Err(ReleaseError::NotHeld { loss: Loss::Gone, .. })));
    Ok(())
}
