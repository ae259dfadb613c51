//! Waits that begin in an outage.

use std::future::IntoFuture;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use leasehold::test::Simulation;
use leasehold::{AcquireError, Client, QuorumLock, ServerError};
use leasehold_testkit::waits::Wait;
use tokio::task::JoinSet;
use tokio::time::{Duration, Instant, sleep, timeout};

use super::{MILLISECOND, NAME, SECOND, connect, granted, soon, start};

/// A client whose waits without a limit go on for this long in an outage.
async fn limited(simulation: &Simulation, limit: Duration) -> Client {
    Client::connect(simulation.url()).outage_limit(limit).await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_wait_that_begins_in_an_outage_succeeds_when_it_is_over() {
    for of in Wait::ALL {
        for limit in [None, Some(SECOND * 20), Some(Duration::MAX)] {
            let (simulation, client) = start().await;
            of.create(&client).await;
            simulation.outage();
            let waiter = tokio::spawn(of.begin(&client, limit, false));
            sleep(SECOND * 10).await;
            assert!(!waiter.is_finished(), "{of:?} {limit:?}");
            simulation.clear();
            let over = Instant::now();
            soon("the wait", waiter).await.unwrap().unwrap_or_else(|error| panic!("{of:?}: {error}"));
            assert!(over.elapsed() < SECOND / 5, "{of:?} {limit:?}: {:?}", over.elapsed());
            sleep(SECOND).await;
            assert_eq!(simulation.waiters(&of.name()), 0, "{of:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_wait_that_begins_in_an_outage_ends_as_unavailable_when_the_wait_is_over() {
    for of in Wait::ALL {
        let (simulation, _client) = start().await;
        // Shorter than the wait: the limit for waits without one does not count.
        let client = limited(&simulation, SECOND).await;
        of.create(&client).await;
        simulation.outage();
        let begun = Instant::now();
        let error = soon("the wait", of.begin(&client, Some(SECOND * 7), false)).await.unwrap_err();
        assert!(error.is_unavailable(), "{of:?}: {error}");
        assert_eq!(begun.elapsed().as_millis() / 10, 700, "{of:?}");
        let text = error.to_string();
        assert!(text.contains("a fault of the test; the wait of 7s ended in this outage"), "{text}");
        assert_eq!(simulation.waiters(&of.name()), 0, "{of:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_wait_without_a_limit_that_begins_in_an_outage_ends_after_the_limit_of_its_client() {
    for of in Wait::ALL {
        let (simulation, _client) = start().await;
        let client = limited(&simulation, SECOND * 4).await;
        of.create(&client).await;
        simulation.outage();
        // The outage has begun before: the limit counts from the first attempt of the wait.
        sleep(SECOND * 30).await;
        let begun = Instant::now();
        let error = soon("the wait", of.begin(&client, None, false)).await.unwrap_err();
        assert!(error.is_unavailable(), "{of:?}: {error}");
        assert_eq!(begun.elapsed().as_millis() / 10, 400, "{of:?}");
        assert!(error.to_string().contains("the wait ended after 4s of this outage"), "{error}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_wait_whose_limit_no_clock_can_count_outlasts_the_limit_for_outages() {
    for of in Wait::ALL {
        let (simulation, _client) = start().await;
        let client = limited(&simulation, SECOND).await;
        of.create(&client).await;
        simulation.outage();
        let mut waiter = tokio::spawn(of.begin(&client, Some(Duration::MAX), false));
        assert!(timeout(SECOND * 1000, &mut waiter).await.is_err(), "{of:?}");
        simulation.clear();
        soon("the wait", waiter).await.unwrap().unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_single_try_fails_at_once_in_an_outage() {
    for of in Wait::ALL {
        let (simulation, client) = start().await;
        of.create(&client).await;
        simulation.outage();
        let begun = Instant::now();
        let error = soon("the try", of.begin(&client, Some(Duration::ZERO), false)).await.unwrap_err();
        assert!(error.is_unavailable() && begun.elapsed().is_zero(), "{of:?}: {error}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_refusal_for_good_ends_a_wait_at_once() {
    for of in Wait::ALL {
        let (simulation, client) = start().await;
        of.create(&client).await;
        simulation.deny();
        let begun = Instant::now();
        let error = soon("the wait", of.begin(&client, Some(SECOND * 60), false)).await.unwrap_err();
        assert!(!error.is_transient() && begun.elapsed() < SECOND, "{of:?}: {error}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_wait_continues_through_an_outage_that_begins_with_its_first_request() {
    for of in Wait::ALL {
        let (simulation, client) = start().await;
        of.create(&client).await;
        simulation.latency(MILLISECOND * 10);
        let waiter = tokio::spawn(of.begin(&client, Some(SECOND * 60), false));
        sleep(MILLISECOND * 15).await;
        simulation.outage();
        sleep(SECOND * 5).await;
        assert!(!waiter.is_finished(), "{of:?}");
        simulation.clear();
        soon("the wait", waiter).await.unwrap().unwrap_or_else(|error| panic!("{of:?}: {error}"));
        sleep(SECOND).await;
        assert_eq!(simulation.waiters(&of.name()), 0, "{of:?}");
    }
}

/// The front waiter gets no reply, and the next waiter sends no request: neither has heard of the server when its wait is over.
#[tokio::test(start_paused = true)]
async fn a_waiter_behind_another_ends_as_unavailable_while_that_one_has_no_reply() {
    let (simulation, client) = start().await;
    simulation.outage();
    let front = tokio::spawn(client.lock(NAME).acquire().into_future());
    sleep(MILLISECOND).await;
    let next = tokio::spawn(client.lock(NAME).acquire().wait(SECOND * 6).into_future());
    sleep(SECOND * 5).await;
    simulation.clear();
    simulation.lose_reply();
    let error = soon("the next waiter", next).await.unwrap().unwrap_err();
    assert!(error.is_unavailable() && error.to_string().contains("ended in this outage"), "{error}");
    assert!(client.status().connected && !front.is_finished(), "the reply is still missing");
    granted(front).await.release().await.unwrap();
}

/// The front waiter has a reply, and the next waiter sends no request: for both the outage is over.
#[tokio::test(start_paused = true)]
async fn a_waiter_behind_another_outlasts_an_outage_that_is_over() {
    let (simulation, _client) = start().await;
    let other = connect(&simulation).await;
    let client = limited(&simulation, SECOND * 4).await;
    let held = other.lock(NAME).acquire().lease(SECOND * 600).await.unwrap();
    let front = tokio::spawn(client.lock(NAME).acquire().into_future());
    sleep(MILLISECOND).await;
    let next = tokio::spawn(client.lock(NAME).acquire().into_future());
    let limited = tokio::spawn(client.lock(NAME).acquire().wait(SECOND * 60).into_future());
    sleep(SECOND).await;
    simulation.outage();
    sleep(SECOND).await;
    simulation.clear();
    // For longer than the limit for outages, and than the wait.
    sleep(SECOND * 70).await;
    assert!(!front.is_finished() && !next.is_finished());
    let error = limited.await.unwrap().unwrap_err();
    assert!(error.is_contended(), "the server was there: {error}");
    held.release().await.unwrap();
    granted(front).await.release().await.unwrap();
    granted(next).await.release().await.unwrap();
}

/// The value is read, and written some time later: two holders at once would lose an update.
#[tokio::test(start_paused = true)]
async fn waiters_that_begin_in_an_outage_exclude_each_other() {
    let (simulation, _client) = start().await;
    let value = Arc::new(AtomicU32::new(0));
    let mut clients = Vec::new();
    for _ in 0..3 {
        clients.push(connect(&simulation).await);
    }
    simulation.outage();
    let mut tasks = JoinSet::new();
    for client in clients.iter().cycle().take(60) {
        let (acquire, value) = (client.lock(NAME).acquire().wait(SECOND * 60), Arc::clone(&value));
        tasks.spawn(async move {
            let guard = acquire.await.unwrap();
            let read = value.load(Ordering::SeqCst);
            sleep(MILLISECOND).await;
            assert!(guard.is_held());
            value.store(read + 1, Ordering::SeqCst);
            guard.release().await.unwrap();
        });
    }
    sleep(SECOND * 5).await;
    assert_eq!(value.load(Ordering::SeqCst), 0);
    simulation.clear();
    soon("all of them", tasks.join_all()).await;
    assert_eq!(value.load(Ordering::SeqCst), 60);
    assert_eq!(simulation.names(), 0);
}

#[tokio::test(start_paused = true)]
async fn waiters_of_a_client_that_begin_in_an_outage_are_served_in_the_order_of_arrival() {
    let (simulation, client) = start().await;
    simulation.outage();
    let (order, mut tasks) = (Arc::new(tokio::sync::Mutex::new(Vec::new())), JoinSet::new());
    for number in 0..10 {
        let (acquire, order) = (client.lock(NAME).acquire().into_future(), Arc::clone(&order));
        tasks.spawn(async move {
            let guard = acquire.await.unwrap();
            order.lock().await.push(number);
            guard.release().await.unwrap();
        });
        sleep(MILLISECOND).await;
    }
    simulation.clear();
    soon("all of them", tasks.join_all()).await;
    assert_eq!(*order.lock().await, (0..10).collect::<Vec<_>>());
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_ends_a_wait_that_began_in_an_outage() {
    for of in Wait::ALL {
        let (simulation, client) = start().await;
        of.create(&client).await;
        simulation.outage();
        let waiter = tokio::spawn(of.begin(&client, Some(SECOND * 60), false));
        sleep(SECOND).await;
        client.shutdown(Duration::ZERO).await;
        let begun = Instant::now();
        let error = soon("the wait", waiter).await.unwrap().unwrap_err();
        assert!(!error.is_transient() && begun.elapsed() < SECOND, "{of:?}: {error}");
    }
}

/// Servers of a quorum lock, each with a client.
async fn quorum(servers: usize) -> (Vec<Simulation>, Vec<Client>) {
    let simulations: Vec<_> = (0..servers).map(|_| Simulation::new()).collect();
    let mut clients = Vec::new();
    for simulation in &simulations {
        clients.push(limited(simulation, SECOND * 4).await);
    }
    (simulations, clients)
}

#[tokio::test(start_paused = true)]
async fn a_quorum_lock_waits_for_a_majority_and_not_for_a_minority() {
    let (servers, clients) = quorum(3).await;
    let lock = QuorumLock::new(&clients, NAME);
    servers[0].outage();
    let begun = Instant::now();
    let minority = lock.acquire().wait(SECOND * 60).into_future();
    soon("a minority is missing", minority).await.unwrap().release().await.unwrap();
    assert!(begun.elapsed() < SECOND / 10, "a minority is not waited for: {:?}", begun.elapsed());

    servers[1].outage();
    assert!(soon("the try", lock.try_acquire()).await.unwrap_err().is_unavailable());
    let begun = Instant::now();
    let error = soon("the wait", lock.acquire().wait(SECOND * 7).into_future()).await.unwrap_err();
    assert!(error.is_unavailable() && error.to_string().contains("ended in this outage"), "{error}");
    assert_eq!(begun.elapsed().as_millis() / 10, 700);
    let begun = Instant::now();
    let error = soon("the wait", lock.acquire().into_future()).await.unwrap_err();
    assert!(error.is_unavailable() && error.to_string().contains("after 4s of this outage"), "{error}");
    assert_eq!(begun.elapsed().as_millis() / 10, 400);

    let waiter = tokio::spawn(lock.acquire().wait(SECOND * 60).into_future());
    sleep(SECOND * 10).await;
    assert!(!waiter.is_finished());
    servers[1].clear();
    let over = Instant::now();
    soon("the majority", waiter).await.unwrap().unwrap().release().await.unwrap();
    assert!(over.elapsed() < SECOND * 2, "{:?}", over.elapsed());
    sleep(SECOND).await;
    assert_eq!(servers.iter().map(Simulation::names).sum::<usize>(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_quorum_lock_fails_at_once_only_if_too_many_servers_refuse_for_good() {
    let (servers, clients) = quorum(3).await;
    let lock = QuorumLock::new(&clients, NAME);
    servers[0].deny();
    servers[1].outage();
    let waiter = tokio::spawn(lock.acquire().wait(SECOND * 60).into_future());
    sleep(SECOND * 10).await;
    assert!(!waiter.is_finished(), "two of them can be a majority again");
    servers[1].clear();
    soon("the majority", waiter).await.unwrap().unwrap().release().await.unwrap();

    servers[1].deny();
    servers[2].outage();
    let begun = Instant::now();
    let error = soon("the wait", lock.acquire().wait(SECOND * 60).into_future()).await.unwrap_err();
    assert!(matches!(error, AcquireError::Server { cause: ServerError::Denied(_), .. }), "{error}");
    assert!(begun.elapsed() < SECOND, "{:?}", begun.elapsed());
}

/// The member that is held keeps its lease, which is fixed and shorter than the outage of the other server.
#[tokio::test(start_paused = true)]
async fn members_of_a_multi_lock_are_held_while_the_server_of_the_next_is_down() {
    let (servers, clients) = quorum(2).await;
    servers[1].outage();
    let both = leasehold::MultiLock::new([clients[0].lock("a"), clients[1].lock("b")]);
    let waiter = tokio::spawn(both.acquire().lease(SECOND).wait(SECOND * 60).into_future());
    sleep(SECOND * 10).await;
    assert!(!waiter.is_finished() && clients[0].lock("a").is_locked().await.unwrap());
    servers[1].clear();
    let guard = soon("both", waiter).await.unwrap().unwrap();
    assert!(guard.is_held() && guard.remaining() > SECOND / 2);
    guard.release().await.unwrap();
}
