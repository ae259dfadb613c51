//! Work that runs from the acquire of a lock to its release.

use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use leasehold::{AcquireError, Error, HoldView, Loss, MultiLock};
use tokio::sync::oneshot;
use tokio::time::sleep;

use super::common::{LEASE, MOMENT, is_free_for, on_a_thread, short_watchdog, soon};
use super::{Failed, Outcome};
use crate::bench::Bench;
use crate::cut::{Cut, Ended, cut_off, everywhere};

/// An error of the work, which can hold one of the library.
#[derive(Debug, PartialEq)]
enum OfWork {
    Own(&'static str),
    Lock(Error),
}

impl From<Error> for OfWork {
    fn from(error: Error) -> Self {
        Self::Lock(error)
    }
}

pub async fn own_330_run_holds_the_lock_while_its_work_runs_and_releases_it(bench: &Bench) -> Outcome {
    let (lock, elsewhere) = (bench.lock().await, bench.lock().await);
    let work = async {
        sleep(MOMENT).await;
        Ok::<_, Error>(elsewhere.is_locked().await?)
    };
    assert!(soon(lock.acquire().run(work)).await?, "it is held");
    assert!(is_free_for(&elsewhere).await?, "it is released before the result is there");

    let mut view = None;
    let work = async |hold: HoldView| {
        hold.check()?;
        Ok::<_, Error>(hold)
    };
    let kept = lock.acquire().run_with(|hold| {
        view = Some(hold.clone());
        work(hold)
    });
    let kept = soon(kept).await?;
    assert!(!kept.is_held() && kept.remaining() == Duration::ZERO, "a view holds nothing");
    assert_eq!(view.expect("the work has begun").check().expect_err("it cannot succeed").loss, Loss::Gone);
    Ok(())
}

pub async fn own_331_run_without_the_lock_begins_no_work(bench: &Bench) -> Outcome {
    let (lock, elsewhere) = (bench.lock().await, bench.lock().await);
    let held = elsewhere.acquire().await?;
    let has_begun = Arc::new(AtomicBool::new(false));
    let begun = Arc::clone(&has_begun);
    let work = async move {
        begun.store(true, Ordering::SeqCst);
        Ok::<_, Error>(())
    };
    let error = soon(lock.acquire().wait(MOMENT).run(work)).await.expect_err("it cannot succeed");
    assert!(matches!(&error, Error::Acquire(AcquireError::Timeout { .. })), "{error:?}");
    let begun = Arc::clone(&has_begun);
    let ran = soon(lock.try_acquire().run(async move {
        begun.store(true, Ordering::SeqCst);
        Ok::<_, Error>(())
    }));
    assert_eq!(ran.await?, None);
    assert!(!has_begun.load(Ordering::SeqCst));
    held.release().await?;
    assert_eq!(soon(lock.try_acquire().run(async { Ok::<_, Error>(7) })).await?, Some(7));
    assert!(is_free_for(&elsewhere).await?);
    Ok(())
}

pub async fn own_332_run_drops_its_work_when_the_lock_is_lost(bench: &Bench) -> Outcome {
    let lock = bench.lock_with(short_watchdog).await;
    let (running, stopped) = oneshot::channel::<()>();
    let work = async move {
        let _running = running;
        pending::<Result<(), OfWork>>().await
    };
    let error = soon(lock.acquire().lease(LEASE).run(work)).await.expect_err("it cannot succeed");
    assert!(matches!(&error, OfWork::Lock(Error::Lost(lost)) if lost.loss == Loss::Expired), "{error:?}");
    assert!(soon(stopped).await.is_err(), "the work was dropped");

    let removed = lock.acquire().run(async {
        bench.remove(&bench.name("lock")).await?;
        pending::<Outcome>().await
    });
    is_lost(soon(removed).await)
}

/// Whether the work of a case was ended by the loss of the lock.
fn is_lost(ended: Outcome) -> Outcome {
    match ended {
        Err(failed) if failed.is_loss() => Ok(()),
        Ok(()) => panic!("the lock is not lost"),
        failed => failed,
    }
}

pub async fn own_333_run_returns_the_error_of_its_work_unchanged(bench: &Bench) -> Outcome {
    let (lock, elsewhere) = (bench.lock().await, bench.lock().await);
    let failed = lock.acquire().run(async { Err::<(), _>(OfWork::Own("no coupon left")) });
    assert_eq!(soon(failed).await, Err(OfWork::Own("no coupon left")));
    assert!(is_free_for(&elsewhere).await?);
    Ok(())
}

/// The release finds that the lock is gone, if the guard has not noticed it before.
pub async fn own_334_run_reports_a_lock_that_was_gone_before_its_release(bench: &Bench) -> Outcome {
    let (lock, elsewhere) = (bench.lock().await, bench.lock().await);
    let freed = lock.acquire().run(async {
        elsewhere.force_unlock().await?;
        Ok(())
    });
    is_lost(soon(freed).await)
}

pub async fn own_335_run_releases_the_lock_when_its_work_panics(bench: &Bench) -> Outcome {
    let (lock, elsewhere) = (bench.lock().await, bench.lock().await);
    let panics = tokio::spawn(async move {
        lock.acquire()
            .run(async { if true { panic!("a panic of the test") } else { Ok::<_, Error>(()) } })
            .await
    });
    assert!(soon(panics).await.expect_err("it cannot succeed").is_panic());
    soon(elsewhere.acquire()).await?.release().await?;

    let lock = bench.lock().await;
    let panics = on_a_thread(move || {
        let work =
            move || lock.acquire().run_blocking(|_| -> Result<(), Error> { panic!("a panic of the test") });
        std::thread::spawn(work).join().is_err()
    });
    assert!(panics.await);
    soon(elsewhere.acquire()).await?.release().await?;
    Ok(())
}

pub async fn own_336_run_dropped_at_any_point_leaves_nothing(bench: &Bench) -> Outcome {
    let (lock, elsewhere) = (bench.lock().await, bench.lock().await);
    let case = async |is_busy: bool, cut: Cut| {
        let held = if is_busy { Some(elsewhere.acquire().await?) } else { None };
        let release = tokio::spawn(async move {
            sleep(MOMENT / 10).await;
            match held {
                Some(held) => held.release().await.map(drop),
                None => Ok(()),
            }
        });
        let (running, stopped) = oneshot::channel::<()>();
        let work = async move {
            let _running = running;
            tokio::task::yield_now().await;
            sleep(MOMENT / 10).await;
            Ok::<_, Error>(7)
        };
        let ended = soon(cut_off(cut, lock.acquire().run(work))).await;
        assert!(soon(stopped).await.is_err(), "{cut:?}: the work is gone with the future");
        soon(release).await??;
        // What was cut is released in the background.
        soon(elsewhere.acquire()).await?.release().await?;
        match ended {
            Ended::Done(done) => assert_eq!(done?, 7),
            Ended::Cut => return Ok::<_, Failed>(true),
        }
        Ok(false)
    };
    everywhere(
        &[false, true],
        |is_busy, cut| async move { case(is_busy, cut).await.expect("a step succeeds") },
    )
    .await;
    Ok(())
}

pub async fn own_337_blocking_work_has_the_same_outcomes(bench: &Bench) -> Outcome {
    let (lock, elsewhere) = (bench.lock().await, bench.lock().await);
    let (mine, theirs) = (lock.clone(), elsewhere.clone());
    let outcomes = on_a_thread(move || {
        let done = mine.acquire().run_blocking(|hold| {
            hold.check()?;
            Ok::<_, Error>(theirs.is_locked().block()?)
        });
        let failed = mine.acquire().run_blocking(|_| Err::<(), _>(OfWork::Own("no coupon left")));
        let busy = {
            let _held = theirs.acquire().block()?;
            mine.try_acquire().run_blocking(|_| Ok::<_, Error>(()))?
        };
        Ok::<_, Error>((done?, failed, busy))
    });
    assert_eq!(outcomes.await?, (true, Err(OfWork::Own("no coupon left")), None));

    // A loss ends no thread. It is reported after the work, unless the work has failed.
    let (mine, theirs) = (lock.clone(), elsewhere.clone());
    let (lost, failed) = on_a_thread(move || {
        let lose = |hold: &HoldView| {
            theirs.force_unlock().block().map_err(Error::from)?;
            // The clients of some engines are told, those of others ask.
            let has_noticed = || hold.check().is_err();
            (0..50).any(|_| {
                std::thread::sleep(Duration::from_millis(1));
                has_noticed()
            });
            Ok::<_, OfWork>(())
        };
        let lost = mine.acquire().run_blocking(|hold| lose(&hold));
        let failed = mine.acquire().run_blocking(|hold| {
            lose(&hold)?;
            Err::<(), _>(OfWork::Own("no coupon left"))
        });
        (lost, failed)
    })
    .await;
    match lost {
        Err(OfWork::Lock(Error::Lost(_))) => {}
        Err(OfWork::Lock(error)) => return Err(error.into()),
        lost => panic!("{lost:?}"),
    }
    assert_eq!(failed, Err(OfWork::Own("no coupon left")));
    assert!(is_free_for(&elsewhere).await?);
    Ok(())
}

async fn is_held(hold: HoldView) -> Result<bool, Error> {
    Ok(hold.is_held() && hold.remaining() > Duration::ZERO)
}

pub async fn own_338_work_runs_under_both_halves_of_a_read_write_lock(bench: &Bench) -> Outcome {
    let rw = bench.client().await.rw_lock(bench.name("rw"));
    assert!(soon(rw.read().acquire().run_with(is_held)).await?);
    assert!(soon(rw.write().acquire().run_with(is_held)).await?);
    assert!(!rw.write().is_locked().await?);
    Ok(())
}

pub async fn own_339_work_runs_under_a_fair_lock(bench: &Bench) -> Outcome {
    let fair = bench.client().await.fair_lock(bench.name("fair"));
    assert!(soon(fair.acquire().run_with(is_held)).await?);
    assert!(!fair.is_locked().await?);
    Ok(())
}

pub async fn own_340_work_under_a_fenced_lock_has_its_token(bench: &Bench) -> Outcome {
    let fenced = bench.client().await.fenced_lock(bench.name("fenced"));
    let token = || fenced.acquire().run_with(async |hold| Ok::<_, Error>(hold.token()));
    let (first, second) = (soon(token()).await?, soon(token()).await?);
    assert!(first.is_some() && first < second, "{first:?} {second:?}");
    Ok(())
}

pub async fn own_341_work_runs_under_several_locks(bench: &Bench) -> Outcome {
    let client = bench.client_with(short_watchdog).await;
    let names = [bench.name("one"), bench.name("two")];
    let both = MultiLock::new(names.clone().map(|name| client.lock(name)));
    assert!(soon(both.acquire().run_with(is_held)).await?);
    let removed = both.acquire().run(async {
        bench.remove(&names[1]).await?;
        pending::<Outcome>().await
    });
    is_lost(soon(removed).await)?;
    soon(both.acquire()).await?.release().await?;
    Ok(())
}

pub async fn own_342_work_runs_under_permits(bench: &Bench) -> Outcome {
    let counted = bench.client().await.semaphore(bench.name("counted"));
    counted.try_set_permits(1).await?;
    assert!(soon(counted.acquire(1).run_with(is_held)).await?);
    assert!(soon(counted.acquire(0).run_with(is_held)).await?, "none cannot be lost");
    assert_eq!(soon(counted.try_acquire(2).run_with(is_held)).await?, None);
    assert_eq!(counted.available().await?, 1);
    counted.delete().await?;
    Ok(())
}

pub async fn own_343_work_runs_under_leased_permits(bench: &Bench) -> Outcome {
    let leased = bench.client().await.leased_semaphore(bench.name("leased"));
    leased.try_set_permits(1).await?;
    assert!(soon(leased.acquire(1).run_with(is_held)).await?);
    assert_eq!(leased.available().await?, 1);
    leased.delete().await?;
    Ok(())
}
