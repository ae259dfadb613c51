//! Every operation names its lock and its server in its error, and answers the questions of a caller.

use std::future::IntoFuture;
use std::time::Duration;

use leasehold::test::Simulation;
use leasehold::{AcquireError, Client, Error, Loss, Owner, ReleaseError};

const SECOND: Duration = Duration::from_secs(1);

async fn start() -> (Simulation, Client) {
    let simulation = Simulation::new();
    let client = Client::connect(simulation.url()).await.unwrap();
    (simulation, client)
}

/// The error of an operation, as one of all.
async fn error<T, E: Into<Error>>(operation: impl IntoFuture<Output = Result<T, E>>) -> Error {
    match operation.into_future().await {
        Ok(_) => panic!("it is refused"),
        Err(error) => error.into(),
    }
}

#[tokio::test(start_paused = true)]
async fn every_error_in_an_outage_names_the_lock_and_the_server() {
    let simulation = Simulation::new();
    // All of it takes less than a lease.
    let client = Client::connect(simulation.url()).outage_limit(SECOND / 10).await.unwrap();
    let (lock, rw, me) = (client.lock("x"), client.rw_lock("x"), Owner::unique());
    let guard = lock.acquire().as_owner(&me).await.unwrap();
    let writes = rw.write().acquire().await.unwrap();
    let permits = client.semaphore("x");
    permits.try_set_permits(2).await.unwrap();
    let held = permits.acquire(1).await.unwrap();
    simulation.outage();
    let (leased, latch) = (client.leased_semaphore("x"), client.latch("x"));
    let errors = [
        error(lock.acquire().wait(SECOND)).await,
        error(lock.try_acquire()).await,
        error(client.fair_lock("x").acquire()).await,
        error(client.fair_lock("x").queue()).await,
        error(client.fenced_lock("x").try_acquire()).await,
        error(client.setnx_lock("x").acquire()).await,
        error(client.spin_lock("x").acquire()).await,
        error(client.group_lock("x", ["a"]).acquire()).await,
        error(client.multi_lock(["x"]).acquire()).await,
        error(rw.read().acquire()).await,
        error(lock.holder()).await,
        error(lock.is_locked()).await,
        error(lock.ttl()).await,
        error(lock.last_token()).await,
        error(lock.force_unlock()).await,
        error(guard.reenter()).await,
        error(guard.extend(SECOND)).await,
        error(lock.as_owner(&me).release()).await,
        error(writes.downgrade()).await,
        error(permits.acquire(1)).await,
        error(permits.available()).await,
        error(permits.release(1)).await,
        error(held.release()).await,
        error(leased.acquire(1)).await,
        error(leased.total()).await,
        error(latch.count()).await,
        error(latch.count_down()).await,
        error(latch.opened()).await,
    ];
    for (number, error) in errors.iter().enumerate() {
        assert_eq!(error.name(), Some("x"), "{number}: {error}");
        assert_eq!(error.server(), Some(simulation.url()), "{number}: {error}");
        assert!(error.is_unavailable() && error.is_transient(), "{number}: {error}");
        assert!(!error.is_contended() && !error.is_lost(), "{number}: {error}");
        let text = error.to_string();
        assert!(text.contains("\"x\"") && text.contains(simulation.url()), "{number}: {text}");
        assert!(std::error::Error::source(error).is_none(), "{number}: the cause is in the text");
    }
}

#[tokio::test(start_paused = true)]
async fn an_error_about_a_lost_lock_names_the_loss_and_when_it_happened() {
    let (_simulation, client) = start().await;
    let guard = client.lock("x").acquire().lease(SECOND).await.unwrap();
    let inner = guard.reenter().await.unwrap();
    tokio::time::sleep(SECOND * 3).await;
    let errors = [
        error(guard.reenter()).await,
        error(guard.extend(SECOND)).await,
        guard.run(async {}).await.unwrap_err().into(),
        error(inner.release()).await,
    ];
    for error in errors {
        assert_eq!((error.name(), error.loss()), (Some("x"), Some(Loss::Expired)), "{error}");
        assert!(error.is_lost() && !error.is_transient(), "{error}");
    }
    let Err(ReleaseError::NotHeld { ago: Some(ago), .. }) = guard.release().await else {
        panic!("it is lost")
    };
    assert!((SECOND * 2..SECOND * 3).contains(&ago), "{ago:?}");
}

#[tokio::test(start_paused = true)]
async fn a_release_without_a_reply_says_when_an_extended_lock_is_free() {
    let (simulation, client) = start().await;
    let guard = client.lock("x").acquire().lease(SECOND * 10).await.unwrap();
    guard.extend(SECOND * 3600).await.unwrap();
    simulation.lose_reply();
    let released = guard.release().await;
    let Err(ReleaseError::Unknown { free_within: Some(within), .. }) = released else {
        panic!("{released:?}")
    };
    assert!((SECOND * 3500..SECOND * 3700).contains(&within), "{within:?}");
}

#[tokio::test(start_paused = true)]
async fn a_contended_wait_is_an_error_that_names_the_holder_and_whether_it_is_of_the_same_client() {
    let (simulation, client) = start().await;
    let other = Client::connect(simulation.url()).await.unwrap();
    let guard = client.lock("x").acquire().await.unwrap();
    for (waiter, is_of_own) in [(&client, true), (&other, false)] {
        let error = error(waiter.lock("x").acquire().wait(SECOND)).await;
        assert!(error.is_contended() && error.is_transient() && !error.is_unavailable(), "{error}");
        let text = error.to_string();
        let Error::Acquire(AcquireError::Timeout { client: of_holder, holder, .. }) = &error else {
            panic!("{error:?}")
        };
        assert_eq!((holder.as_ref(), of_holder.is_none()), (Some(&guard.owner()), is_of_own));
        let named = of_holder.as_ref().map_or_else(|| guard.owner().to_string(), ToString::to_string);
        assert!(text.contains(&format!("held by {named} after 1s")), "{text}");
        assert_eq!(text.contains("an owner of this client"), is_of_own, "{text}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_invalid_request_names_the_lock_and_no_server_in_its_text() {
    let (simulation, client) = start().await;
    let error = error(client.lock("x").acquire().lease(Duration::from_millis(1))).await;
    assert_eq!((error.name(), error.server()), (Some("x"), Some(simulation.url())));
    assert!(error.to_string().starts_with("lock \"x\": a lease of 1ms is too short"), "{error}");
    assert!(!error.is_transient() && !error.is_lost());
}
