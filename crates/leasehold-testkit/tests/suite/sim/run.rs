//! Work under a lock whose release gets no reply.

use leasehold::{Client, Error, MultiLock};
use tokio::time::sleep;

use super::{SECOND, soon, start};

#[tokio::test(start_paused = true)]
async fn work_that_is_done_is_a_success_without_a_reply_to_the_release() {
    let (simulation, client) = start().await;
    let lock = client.lock("n");
    let done = lock.acquire().run(async {
        simulation.outage();
        Ok::<_, Error>(7)
    });
    assert_eq!(soon("the work", done).await, Ok(7));
    simulation.clear();
    // The release goes on in the background.
    sleep(SECOND).await;
    assert!(!lock.is_locked().await.unwrap());
}

#[tokio::test(start_paused = true)]
async fn the_error_of_work_counts_without_a_reply_to_the_release() {
    let (simulation, client) = start().await;
    let own = Error::from(leasehold::Loss::Shutdown);
    let failed = client.lock("n").acquire().run(async {
        simulation.outage();
        Err::<(), _>(own.clone())
    });
    assert_eq!(soon("the work", failed).await, Err(own.clone()));
}

#[tokio::test(start_paused = true)]
async fn work_that_outlasts_an_outage_is_dropped_when_the_lease_is_over() {
    let (simulation, client) = start().await;
    let lost = client.lock("n").acquire().run(async {
        simulation.outage();
        std::future::pending::<Result<(), Error>>().await
    });
    let error = tokio::time::timeout(SECOND * 60, lost).await.unwrap().unwrap_err();
    assert!(matches!(&error, Error::Lost(lost) if lost.loss == leasehold::Loss::Unreachable), "{error:?}");
}

/// One release has no reply, and another one finds that its lock is gone: that is the worse of the two.
#[tokio::test(start_paused = true)]
async fn a_lost_member_counts_beside_a_release_without_a_reply() {
    for order in [["a", "b"], ["b", "a"]] {
        let (simulation, silent) = start().await;
        let memory = format!("memory:run-member-{}", order[0]);
        let (client, other) =
            (Client::connect(&memory).await.unwrap(), Client::connect(&memory).await.unwrap());
        let both = MultiLock::new([silent.lock(order[0]), client.lock(order[1])]);
        let guard = both.acquire().await.unwrap();
        simulation.outage();
        other.lock(order[1]).force_unlock().await.unwrap();
        let error = guard.release().await.unwrap_err();
        assert!(matches!(&error, leasehold::ReleaseError::NotHeld { .. }), "{order:?}: {error:?}");
    }
}
