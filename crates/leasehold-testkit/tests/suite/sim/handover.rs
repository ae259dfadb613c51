//! The hand-over of a hold between waiters of one client, without a request.

use std::future::IntoFuture;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};

use leasehold::{AcquireError, Client, Event, Events, Guard, Lock, Operation, Owner};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

use super::{MILLISECOND, NAME, SECOND, begun, connect, granted, soon, start};

/// The locks that support local hand-over.
fn passed_on(client: &Client) -> [Lock; 2] {
    [client.lock(NAME), client.setnx_lock(NAME)]
}

/// The owner that the server has for the lock, by a handle of another client: a client that has shown an owner of its own to
/// a caller does not hand its hold over.
async fn owner_at_server(lock: &Lock) -> Owner {
    lock.holder().await.unwrap().expect("a holder").owner.expect("an owner of this library")
}

/// A waiter that releases the lock at once. Returns the owner under which it held the lock.
fn passer(lock: &Lock, elsewhere: &Lock) -> JoinHandle<Owner> {
    let (lock, elsewhere) = (lock.clone(), elsewhere.clone());
    tokio::spawn(async move {
        let guard = lock.acquire().await.unwrap();
        let owner = owner_at_server(&elsewhere).await;
        drop(guard);
        owner
    })
}

#[tokio::test(start_paused = true)]
async fn waiters_of_one_client_share_one_hold_in_fifo_order() {
    let (simulation, client) = start().await;
    let other = connect(&simulation).await;
    for (lock, elsewhere) in passed_on(&client).into_iter().zip(passed_on(&other)) {
        let holder = lock.acquire().await.unwrap();
        let order = Arc::new(Mutex::new(Vec::new()));
        let waiters: Vec<_> = (0..10)
            .map(|number| {
                let (lock, elsewhere, order) = (lock.clone(), elsewhere.clone(), Arc::clone(&order));
                tokio::spawn(async move {
                    let guard = lock.acquire().await.unwrap();
                    let owner = owner_at_server(&elsewhere).await;
                    order.lock().unwrap().push((number, owner));
                    sleep(MILLISECOND).await;
                    assert!(guard.is_held());
                })
            })
            .collect();
        sleep(SECOND).await;
        drop(holder);
        for waiter in waiters {
            soon("a waiter", waiter).await.unwrap();
        }
        let (numbers, owners): (Vec<_>, Vec<_>) = order.lock().unwrap().drain(..).unzip();
        assert!(numbers.iter().copied().eq(0..10), "{lock:?}: {numbers:?}");
        assert!(owners.iter().all(|owner| *owner == owners[0]), "{lock:?}: it is one hold of the server");
        sleep(SECOND).await;
        assert_eq!(simulation.names(), 0, "{lock:?}");
    }
}

/// Many tasks of one client that acquire and release without end, each holding for this long.
fn crowd(lock: &Lock, holds: std::time::Duration, turns: &Arc<AtomicUsize>) -> Vec<JoinHandle<()>> {
    let one = |_| {
        let (lock, turns) = (lock.clone(), Arc::clone(turns));
        tokio::spawn(async move {
            loop {
                let _guard = lock.acquire().await.unwrap();
                turns.fetch_add(1, Ordering::SeqCst);
                if holds.is_zero() {
                    tokio::task::yield_now().await;
                } else {
                    sleep(holds).await;
                }
            }
        })
    };
    (0..32).map(one).collect()
}

/// The most turns and the longest time of a crowd before another client gets the lock.
async fn waits_behind_a_crowd(kind: usize, holds: std::time::Duration) -> (usize, std::time::Duration) {
    let (simulation, client) = start().await;
    simulation.latency(MILLISECOND);
    let other = passed_on(&connect(&simulation).await)[kind].clone();
    let turns = Arc::new(AtomicUsize::new(0));
    let crowd = crowd(&passed_on(&client)[kind], holds, &turns);
    sleep(SECOND).await;
    let mut most = (0, std::time::Duration::ZERO);
    for _ in 0..20 {
        let (before, begun) = (turns.load(Ordering::SeqCst), Instant::now());
        let guard = soon("another client gets a turn", other.acquire().into_future()).await.unwrap();
        most.0 = most.0.max(turns.load(Ordering::SeqCst) - before);
        most.1 = most.1.max(begun.elapsed());
        guard.release().await.unwrap();
        sleep(MILLISECOND * 7).await;
    }
    crowd.iter().for_each(JoinHandle::abort);
    sleep(SECOND).await;
    assert_eq!(simulation.names(), 0);
    most
}

#[tokio::test(start_paused = true)]
async fn a_hold_handed_over_for_too_long_goes_to_another_client() {
    for kind in 0..2 {
        let (_, took) = waits_behind_a_crowd(kind, MILLISECOND * 10).await;
        assert!(took < MILLISECOND * 150, "lock {kind}: {took:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_hold_handed_over_too_often_goes_to_another_client() {
    for kind in 0..2 {
        let (turns, _) = waits_behind_a_crowd(kind, std::time::Duration::ZERO).await;
        assert!(turns <= 3 * 33, "lock {kind}: {turns} turns");
    }
}

type Acquiring = Operation<Result<Guard, AcquireError>>;

/// Hands the hold over to a waiter that is no longer polled, and checks that it has arrived.
async fn on_its_way_to_a_sleeper(lock: &Lock, elsewhere: &Lock) -> Acquiring {
    let first = lock.acquire().await.unwrap();
    let before = passer(lock, elsewhere);
    sleep(MILLISECOND).await;
    let mut sleeper = lock.acquire().into_future();
    for _ in 0..3 {
        sleeper = begun(sleeper);
        sleep(MILLISECOND).await;
    }
    first.release().await.unwrap();
    let owner = soon("the waiter before", before).await.unwrap();
    assert_eq!(owner_at_server(elsewhere).await, owner, "it is on its way to the next waiter");
    sleeper
}

#[tokio::test(start_paused = true)]
async fn an_unpolled_waiter_does_not_keep_a_handed_over_hold() {
    let (simulation, client) = start().await;
    let other = connect(&simulation).await;
    for (lock, elsewhere) in passed_on(&client).into_iter().zip(passed_on(&other)) {
        let sleeper = on_its_way_to_a_sleeper(&lock, &elsewhere).await;
        let begun = Instant::now();
        let guard = soon("another client", elsewhere.acquire().into_future()).await.unwrap();
        assert!(begun.elapsed() < SECOND, "{lock:?}: {:?}", begun.elapsed());
        guard.release().await.unwrap();
        // It has lost its turn, not its position in the queue.
        let guard = soon("the waiter that was not polled", sleeper).await.unwrap();
        guard.release().await.unwrap();
        assert_eq!(simulation.names(), 0, "{lock:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_hold_handed_over_to_a_leaving_waiter_goes_to_the_next_waiter() {
    let (simulation, client) = start().await;
    let other = connect(&simulation).await;
    for (lock, elsewhere) in passed_on(&client).into_iter().zip(passed_on(&other)) {
        let sleeper = on_its_way_to_a_sleeper(&lock, &elsewhere).await;
        let next = tokio::spawn(lock.acquire().into_future());
        sleep(MILLISECOND * 10).await;
        assert!(!next.is_finished(), "{lock:?}: it is not its turn");
        let begun = Instant::now();
        drop(sleeper);
        granted(next).await.release().await.unwrap();
        assert!(begun.elapsed() < MILLISECOND * 20, "{lock:?}: {:?}", begun.elapsed());
        assert_eq!(simulation.names(), 0, "{lock:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_lock_is_freed_when_the_last_waiter_of_a_hand_over_leaves() {
    let (simulation, client) = start().await;
    let other = connect(&simulation).await;
    for (lock, elsewhere) in passed_on(&client).into_iter().zip(passed_on(&other)) {
        let sleeper = on_its_way_to_a_sleeper(&lock, &elsewhere).await;
        drop(sleeper);
        sleep(MILLISECOND).await;
        assert_eq!(simulation.names(), 0, "{lock:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_dropped_re_entry_does_not_end_the_hold_of_the_next_waiter() {
    let (simulation, client) = start().await;
    simulation.latency(MILLISECOND);
    let lock = client.lock(NAME);
    for polls_late in [false, true] {
        let first = lock.acquire().await.unwrap();
        let second = tokio::spawn(lock.acquire().into_future());
        sleep(SECOND).await;
        let reentry = begun(first.reenter());
        if polls_late {
            sleep(MILLISECOND * 3).await;
        }
        drop((reentry, first));
        let second = granted(second).await;
        sleep(SECOND * 5).await;
        assert!(second.is_held() && lock.is_locked().await.unwrap());
        second.release().await.unwrap();
    }
    assert_eq!(simulation.names(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_loss_is_reported_to_the_current_guard_of_a_handed_over_hold() {
    let (simulation, other) = start().await;
    let client = Client::connect(simulation.url()).watchdog(SECOND).await.unwrap();
    for (lock, elsewhere) in passed_on(&client).into_iter().zip(passed_on(&other)) {
        let first = lock.acquire().await.unwrap();
        let (before, after) = (passer(&lock, &elsewhere), tokio::spawn(lock.acquire().into_future()));
        sleep(MILLISECOND * 10).await;
        drop(first);
        let (owner, guard) = (soon("the waiter before", before).await.unwrap(), granted(after).await);
        assert_eq!(owner_at_server(&elsewhere).await, owner, "it is the same hold");
        assert!(simulation.lose_hold(NAME));
        assert_eq!(soon("the loss", guard.lost()).await, leasehold::Loss::Gone, "{lock:?}");
    }
}

/// An acquire that is polled within the call that wakes it: an executor may run a task there, or on another thread meanwhile.
struct PolledAtOnce {
    /// The acquire, and then its guard.
    state: Mutex<(Option<Acquiring>, Option<Guard>)>,
    is_woken: AtomicBool,
}

impl PolledAtOnce {
    fn begin(acquiring: Acquiring) -> Arc<Self> {
        let state = Mutex::new((Some(acquiring), None));
        let begun = Arc::new(Self { state, is_woken: AtomicBool::new(false) });
        Arc::clone(&begun).wake();
        begun
    }
}

impl Wake for PolledAtOnce {
    fn wake(self: Arc<Self>) {
        self.is_woken.store(true, Ordering::SeqCst);
        // Woken by its own poll, it is polled again after that.
        while let Ok(mut state) = self.state.try_lock()
            && self.is_woken.swap(false, Ordering::SeqCst)
            && let Some(acquiring) = &mut state.0
        {
            let waker = Waker::from(Arc::clone(&self));
            if let Poll::Ready(acquired) = Pin::new(acquiring).poll(&mut Context::from_waker(&waker)) {
                *state = (None, Some(acquired.unwrap()));
            }
        }
    }
}

/// The next events of locks, of one owner.
async fn of_one_owner(events: &mut Events, count: usize) -> Vec<&'static str> {
    let (mut names, mut owners) = (Vec::new(), Vec::new());
    for _ in 0..count {
        let (name, lock) = match soon("an event", events.recv()).await {
            Some(Event::Granted { lock, .. }) => ("granted", lock),
            Some(Event::Released { lock, .. }) => ("released", lock),
            other => panic!("{other:?} after {names:?}"),
        };
        names.push(name);
        owners.push(lock.owner().clone());
    }
    assert!(owners.iter().all(|owner| *owner == owners[0]), "it is one hold of the server: {owners:?}");
    names
}

#[tokio::test(start_paused = true)]
async fn own_449_events_of_a_hold_that_is_handed_over_are_in_order() {
    let (_simulation, client) = start().await;
    for lock in passed_on(&client) {
        let mut events = client.events();
        let first = lock.acquire().await.unwrap();
        let next = PolledAtOnce::begin(lock.acquire().into_future());
        sleep(MILLISECOND * 10).await;
        drop(first);
        let guard = next.state.lock().unwrap().1.take().expect("it is woken by the release");
        guard.release().await.unwrap();
        let names = of_one_owner(&mut events, 4).await;
        assert_eq!(names, ["granted", "released", "granted", "released"], "{lock:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn own_449_a_hand_over_that_no_waiter_takes_gives_no_event() {
    let (simulation, other) = start().await;
    for (kind, elsewhere) in passed_on(&other).into_iter().enumerate() {
        let client = connect(&simulation).await;
        let (lock, mut events) = (passed_on(&client)[kind].clone(), client.events());
        drop(on_its_way_to_a_sleeper(&lock, &elsewhere).await);
        drop((lock, client));
        let names = of_one_owner(&mut events, 4).await;
        assert_eq!(names, ["granted", "released", "granted", "released"]);
        assert_eq!(soon("the end", events.recv()).await, None);
    }
}
