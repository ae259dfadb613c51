//! Clients that are made before they are connected, and what they say about it.

use std::future::IntoFuture;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use leasehold::Client;
use leasehold::test::{Schedule, Simulation};
use leasehold_testkit::waits::Wait;
use tokio::time::{Instant, sleep};

use super::{MILLISECOND, NAME, SECOND, granted, soon};

/// A server of each kind.
fn servers() -> [Simulation; 3] {
    [Simulation::new(), Simulation::sessions(), Simulation::connections()]
}

#[tokio::test(start_paused = true)]
async fn a_lazy_client_waits_for_its_server() {
    for simulation in servers() {
        simulation.outage();
        let client = Client::connect(simulation.url()).lazy().unwrap();
        let waiter = tokio::spawn(client.lock(NAME).acquire().into_future());
        let begun = Instant::now();
        let error = client.lock(NAME).try_acquire().await.unwrap_err();
        assert!(error.is_unavailable() && error.to_string().contains("not connected yet"), "{error}");
        assert!(begun.elapsed().is_zero());
        sleep(SECOND * 5).await;
        let error = client.lock(NAME).try_acquire().await.unwrap_err();
        assert!(error.to_string().contains("not connected yet: a fault of the test"), "{error}");
        assert!(!waiter.is_finished());
        simulation.clear();
        granted(waiter).await.release().await.unwrap();
        assert_eq!(simulation.names(), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn a_lazy_client_of_a_server_that_is_there_is_connected_soon() {
    for of in Wait::ALL {
        let simulation = Simulation::new();
        of.create(&Client::connect(simulation.url()).await.unwrap()).await;
        let client = Client::connect(simulation.url()).lazy().unwrap();
        let begun = Instant::now();
        soon("the wait", of.begin(&client, None, false)).await.unwrap();
        assert!(begun.elapsed() < SECOND / 5, "{of:?}: {:?}", begun.elapsed());
    }
}

#[tokio::test(start_paused = true)]
async fn ping_and_status_follow_an_outage() {
    for simulation in servers() {
        simulation.outage();
        let client = Client::connect(simulation.url()).lazy().unwrap();
        for is_first in [true, false] {
            sleep(SECOND * 5).await;
            let status = client.status();
            assert_eq!((status.connected, status.server.as_deref()), (false, Some(simulation.url())));
            assert_eq!(
                (status.lasting, status.last_error.as_deref()),
                (SECOND * 5, Some("a fault of the test"))
            );
            let error = client.ping().await.unwrap_err();
            assert_eq!((error.is_unavailable(), error.server()), (true, Some(simulation.url())));
            assert_eq!(error.to_string().contains("not connected yet"), is_first, "{error}");

            simulation.clear();
            sleep(SECOND).await;
            let status = client.status();
            assert!(
                status.connected && status.lasting > SECOND / 2 && status.lasting <= SECOND,
                "{status:?}"
            );
            assert_eq!(status.last_error, None);
            simulation.latency(MILLISECOND * 10);
            assert_eq!(client.ping().await.unwrap().as_millis(), 20, "to the server and back");
            simulation.deny();
            let error = client.ping().await.unwrap_err();
            assert!(!error.is_transient() && client.status().connected, "{error}");
            simulation.clear();
            simulation.outage();
        }
    }
}

#[tokio::test(start_paused = true)]
async fn the_status_of_a_connected_client_counts_from_its_connection() {
    let simulation = Simulation::new();
    let client = Client::connect(simulation.url()).await.unwrap();
    sleep(SECOND * 3).await;
    let status = client.status();
    assert_eq!((status.connected, status.lasting), (true, SECOND * 3));
    // One part of the server is enough for an outage.
    simulation.outage_of(NAME);
    sleep(SECOND).await;
    assert!(!client.status().connected);
}

#[tokio::test(start_paused = true)]
async fn a_lazy_client_dropped_before_its_first_connection_ends() {
    let simulation = Simulation::new();
    simulation.outage();
    let client = Client::connect(simulation.url()).lazy().unwrap();
    let waiter = tokio::spawn(client.lock(NAME).acquire().wait(SECOND * 2).into_future());
    drop(client);
    let error = soon("the wait", waiter).await.unwrap().unwrap_err();
    assert!(error.is_unavailable(), "{error}");
    simulation.clear();
    sleep(SECOND).await;
    assert_eq!((simulation.waiters(NAME), simulation.names()), (0, 0));
}

/// On hosts of a schedule, where a seed fixes the order.
#[test]
fn lazy_clients_of_several_hosts_exclude_each_other() {
    for seed in 0..20 {
        Schedule::run(seed, async |schedule| {
            let (simulation, value) = (Simulation::new(), Arc::new(AtomicU32::new(0)));
            simulation.outage();
            let workers = [(); 3].map(|()| {
                let (url, value) = (simulation.url().to_owned(), Arc::clone(&value));
                schedule.host().spawn(async move {
                    let client = Client::connect(url).lazy().unwrap();
                    for _ in 0..5 {
                        let guard = client.lock(NAME).acquire().wait(SECOND * 60).await.unwrap();
                        let read = value.load(Ordering::SeqCst);
                        sleep(MILLISECOND).await;
                        value.store(read + 1, Ordering::SeqCst);
                        guard.release().await.unwrap();
                    }
                })
            });
            sleep(SECOND * 5).await;
            assert_eq!(value.load(Ordering::SeqCst), 0, "seed {seed}");
            simulation.clear();
            for worker in workers {
                worker.await;
            }
            assert_eq!(value.load(Ordering::SeqCst), 15, "seed {seed}");
        });
    }
}
