//! Work under a lock whose release gets no reply.

use leasehold::Error;
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
