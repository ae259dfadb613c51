//! The end of a client.

use std::future::IntoFuture;
use std::sync::mpsc;

use leasehold::Client;
use tokio::time::sleep;

use super::{LATENCY, NAME, SECOND, begun, connect, locks, start};

#[tokio::test(start_paused = true)]
async fn a_client_dropped_with_pending_undos_leaves_nothing_behind() {
    for kind in 0..5 {
        let (simulation, client) = start().await;
        let lock = locks(&client)[kind].clone();
        simulation.latency(LATENCY);
        let guard = lock.acquire().lease(SECOND * 600).await.unwrap();
        let asked = begun(client.lock("m").acquire().lease(SECOND * 600).into_future());
        drop((guard, asked, lock, client));
        sleep(SECOND).await;
        assert_eq!(simulation.names(), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn a_client_dropped_in_an_outage_lingers_for_its_undos() {
    let (simulation, _other) = start().await;
    let client = Client::connect(simulation.url()).linger(SECOND * 5).await.unwrap();
    let guard = client.lock(NAME).acquire().lease(SECOND * 600).await.unwrap();
    simulation.outage();
    drop((guard, client));
    sleep(SECOND * 3).await;
    simulation.clear();
    sleep(SECOND).await;
    assert_eq!(simulation.names(), 0);
}

/// The change is sent again on the next connection, and its result is discarded there.
#[tokio::test(start_paused = true)]
async fn a_dropped_client_lingers_for_its_counter_changes() {
    let (simulation, other) = start().await;
    let client = Client::connect(simulation.url()).linger(SECOND * 5).await.unwrap();
    let semaphore = client.semaphore(NAME);
    assert!(semaphore.try_set_permits(1).await.unwrap());
    simulation.outage();
    drop((begun(semaphore.add_permits(2)), semaphore, client));
    sleep(SECOND).await;
    simulation.clear();
    sleep(SECOND).await;
    assert_eq!(other.semaphore(NAME).available().await.unwrap(), 3);
}

/// On a thread of its own: a runtime that is blocked cannot report it.
#[test]
fn dropping_the_last_handle_inside_a_runtime_does_not_block_the_runtime() {
    let (done, is_done) = mpsc::channel();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build();
        runtime.unwrap().block_on(async {
            let (simulation, _other) = start().await;
            let client = Client::connect(simulation.url()).linger(SECOND * 60).await.unwrap();
            let guard = client.lock(NAME).acquire().await.unwrap();
            simulation.outage();
            drop((guard, client));
        });
        done.send(()).unwrap();
    });
    is_done.recv_timeout(SECOND * 20).expect("the runtime is not blocked");
}

/// A position in the queue of a fair lock, and the flag of a waiting writer.
#[tokio::test(start_paused = true)]
async fn the_simulation_counts_queue_positions_and_flags_of_waiters() {
    let (simulation, client) = start().await;
    let fair = client.fair_lock(NAME);
    let rw = client.rw_lock("m").prefer_writers();
    let _held = (fair.acquire().await.unwrap(), rw.read().acquire().await.unwrap());
    let queued = tokio::spawn(fair.acquire().into_future());
    let flagged = tokio::spawn(rw.write().acquire().into_future());
    sleep(SECOND / 10).await;
    assert_eq!(simulation.names(), 2, "each name once");
    assert!(simulation.lose_hold(NAME) && simulation.lose_hold("m"));
    assert_eq!(simulation.names(), 2, "the waiters are not notified");
    queued.abort();
    sleep(SECOND / 10).await;
    assert_eq!(simulation.names(), 1);
    flagged.abort();
    sleep(SECOND / 10).await;
    assert_eq!(simulation.names(), 0);
}

/// They have no lease, and only their own client releases them.
#[tokio::test(start_paused = true)]
async fn permits_without_a_lease_stay_acquired_when_their_client_is_dropped_in_an_outage() {
    let (simulation, client) = start().await;
    let other = connect(&simulation).await;
    let semaphore = other.semaphore(NAME);
    assert!(semaphore.try_set_permits(2).await.unwrap());
    let permit = client.semaphore(NAME).acquire(1).await.unwrap();
    simulation.outage();
    drop((permit, client));
    sleep(SECOND).await;
    simulation.clear();
    sleep(SECOND * 60 * 60 * 25).await;
    assert_eq!(semaphore.available().await.unwrap(), 1);
}
