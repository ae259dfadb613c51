//! Dropping a future at every point where it can be dropped: no hold, no waiter, no wake-up lost.

use std::future::Future;
use std::pin::Pin;
use std::task::Context;
use std::time::Duration;

use leasehold::test::Faults;
use leasehold::{AcquireError, Client, Guard, Owner};
use leasehold_testkit::primitive::{Held, Primitive};
use tokio::time::{Instant, sleep, timeout};

use crate::cut::{Cut, Ended, cut_off, everywhere};

/// What the answers of the engine are like.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Answers {
    AtOnce,
    Late,
    FirstLost,
    AllLost,
}

const LATE: Duration = Duration::from_millis(10);
const NAME: &str = "n";

impl Answers {
    pub(crate) const ALL: &[Self] = &[Self::AtOnce, Self::Late, Self::FirstLost, Self::AllLost];

    pub(crate) fn arrange(self, faults: &Faults) {
        match self {
            Self::AtOnce => {}
            Self::Late => faults.delay(LATE),
            Self::FirstLost => faults.lose_reply(),
            Self::AllLost => (0..1000).for_each(|_| faults.lose_reply()),
        }
    }
}

/// Runs `case` for each of these, every way to answer and every place to cut.
async fn with_each<C, F>(all: &[Primitive], case: C)
where
    C: Fn(Primitive, Answers, Cut) -> F,
    F: Future<Output = bool>,
{
    for of in all {
        everywhere(Answers::ALL, |answers, cut| case(*of, answers, cut)).await;
    }
}

/// After whatever happened: it can be had at once, and when it is given back nothing is left.
async fn nothing_is_left(of: Primitive, client: &Client, faults: &Faults, what: impl std::fmt::Debug) {
    faults.clear();
    assert_eq!(faults.waiters(NAME), 0, "{of:?}, {what:?}");
    let held = of.try_acquire(client, NAME).await.unwrap();
    assert!(held.is_some(), "it is not free: {of:?}, {what:?}");
    drop(held);
    of.remove(client, NAME).await;
    assert_eq!(faults.names(), 0, "{of:?}, {what:?}");
}

/// A client, and what it is about.
async fn begin(of: Primitive) -> (Client, Faults) {
    let (client, faults) = leasehold::test::memory();
    of.create(&client, NAME).await;
    (client, faults)
}

#[tokio::test(start_paused = true)]
async fn a_free_lock() {
    with_each(Primitive::ALL, |of, answers, cut| async move {
        let (client, faults) = begin(of).await;
        answers.arrange(&faults);
        let ended = cut_off(cut, of.acquire(&client, NAME, None)).await;
        let was_cut = matches!(ended, Ended::Cut);
        drop(ended);
        nothing_is_left(of, &client, &faults, (answers, cut)).await;
        was_cut
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn one_attempt() {
    with_each(Primitive::ALL, |of, answers, cut| async move {
        let (client, faults) = begin(of).await;
        answers.arrange(&faults);
        let ended = cut_off(cut, of.try_acquire(&client, NAME)).await;
        let was_cut = matches!(ended, Ended::Cut);
        drop(ended);
        nothing_is_left(of, &client, &faults, (answers, cut)).await;
        was_cut
    })
    .await;
}

/// A holder, the waiter that is cut off, and a second waiter behind it. The holder lets go after a second; whatever
/// became of the first waiter, the second has the lock as soon as it can.
async fn two_waiters<A>(of: Primitive, answers: Answers, cut: Cut, acquire: impl Fn(Client) -> A) -> bool
where
    A: Future<Output = Result<Held, AcquireError>> + Send + 'static,
{
    let (client, faults) = begin(of).await;
    let holder = of.acquire(&client, NAME, None).await.unwrap();
    // What is lost is lost to the first waiter: its first answer, or those after it was woken.
    if matches!(answers, Answers::Late | Answers::FirstLost) {
        answers.arrange(&faults);
    }
    let first = tokio::spawn(cut_off(cut, acquire(client.clone())));
    sleep(Duration::from_millis(500)).await;
    if !matches!(answers, Answers::Late) {
        faults.clear();
    }
    let second = of.acquire(&client, NAME, None);
    let second = tokio::spawn(async { (second.await.unwrap(), Instant::now()) });
    sleep(Duration::from_millis(500)).await;
    if matches!(answers, Answers::AllLost) {
        (0..3).for_each(|_| faults.lose_reply());
    }
    drop(holder);
    let mut freed = Instant::now();
    let ended = timeout(Duration::from_secs(100), first).await.expect("the first waiter ends").unwrap();
    let was_cut = matches!(ended, Ended::Cut);
    if matches!(ended, Ended::Done(Ok(_))) {
        freed = Instant::now();
    }
    drop(ended);
    let second = timeout(Duration::from_secs(100), second).await;
    let (guard, granted) = second.expect("the second waiter ends").unwrap();
    let at_most = if matches!(answers, Answers::Late) { LATE * 2 } else { Duration::ZERO };
    assert!(granted - freed <= at_most, "{:?} late: {of:?} {answers:?} {cut:?}", granted - freed);
    drop(guard);
    nothing_is_left(of, &client, &faults, (answers, cut)).await;
    was_cut
}

/// The first of two waits as long as it takes, or for so long.
async fn waiting_for(wait: Option<Duration>) {
    with_each(Primitive::ALL, |of, answers, cut| {
        two_waiters(of, answers, cut, move |client| of.acquire(&client, NAME, wait))
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_busy_lock_that_is_released() {
    waiting_for(None).await;
}

#[tokio::test(start_paused = true)]
async fn a_busy_lock_that_is_released_to_a_named_owner() {
    with_each(Primitive::LOCKS, |of, answers, cut| {
        two_waiters(of, answers, cut, move |client| async move {
            of.lock(&client, NAME).acquire().as_owner(&Owner::number(7)).await.map(Held::Lock)
        })
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_wait_that_times_out() {
    waiting_for(Some(Duration::from_millis(700))).await;
}

#[tokio::test(start_paused = true)]
async fn a_wait_that_times_out_before_anybody_else_waits() {
    waiting_for(Some(Duration::from_millis(5))).await;
}

/// Like a waiter on a lock whose lease runs out instead of being released.
#[tokio::test(start_paused = true)]
async fn a_busy_lock_whose_lease_runs_out() {
    with_each(Primitive::LOCKS, |of, answers, cut| async move {
        let (client, faults) = begin(of).await;
        let holder = of.lock(&client, NAME).acquire().lease(Duration::from_secs(1)).await.unwrap();
        answers.arrange(&faults);
        let ended = timeout(Duration::from_secs(100), cut_off(cut, of.acquire(&client, NAME, None))).await;
        let was_cut = matches!(ended.expect("it ends"), Ended::Cut);
        sleep(Duration::from_secs(2)).await;
        assert!(!holder.is_held());
        nothing_is_left(of, &client, &faults, (answers, cut)).await;
        was_cut
    })
    .await;
}

async fn entered_twice(of: Primitive, client: &Client) -> (Guard, Guard) {
    let outer = of.lock(client, NAME).acquire().await.unwrap();
    let inner = outer.reenter().await.unwrap();
    (outer, inner)
}

#[tokio::test(start_paused = true)]
async fn a_re_entry() {
    with_each(Primitive::REENTRANT, |of, answers, cut| async move {
        let (client, faults) = begin(of).await;
        let (outer, inner) = entered_twice(of, &client).await;
        answers.arrange(&faults);
        let ended = cut_off(cut, outer.reenter()).await;
        let was_cut = matches!(ended, Ended::Cut);
        let entered = matches!(ended, Ended::Done(Ok(_)));
        faults.clear();
        let holds = of.lock(&client, NAME).hold_count(&outer.owner()).await.unwrap();
        assert_eq!(holds, 2 + u32::from(entered), "{answers:?} {cut:?}");
        drop((ended, outer, inner));
        nothing_is_left(of, &client, &faults, (answers, cut)).await;
        was_cut
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_release_of_one_of_two_holds() {
    with_each(Primitive::REENTRANT, |of, answers, cut| async move {
        let (client, faults) = begin(of).await;
        let (outer, inner) = entered_twice(of, &client).await;
        answers.arrange(&faults);
        let was_cut = matches!(cut_off(cut, inner.release()).await, Ended::Cut);
        faults.clear();
        let holds = of.lock(&client, NAME).hold_count(&outer.owner()).await.unwrap();
        assert_eq!(holds, 1, "{answers:?} {cut:?}");
        assert!(outer.is_held());
        assert_eq!(outer.release().await.unwrap().holds_left, 0);
        nothing_is_left(of, &client, &faults, (answers, cut)).await;
        was_cut
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_release_in_the_owners_name() {
    with_each(Primitive::REENTRANT, |of, answers, cut| async move {
        let (client, faults) = begin(of).await;
        let owner = Owner::number(7);
        let guard = of.lock(&client, NAME).acquire().as_owner(&owner).await.unwrap();
        answers.arrange(&faults);
        let ended = cut_off(cut, of.lock(&client, NAME).as_owner(&owner).release()).await;
        drop(guard);
        let was_cut = matches!(ended, Ended::Cut);
        nothing_is_left(of, &client, &faults, (answers, cut)).await;
        was_cut
    })
    .await;
}

/// Two futures step on one hold at a time, and one of them is dropped in the middle of its step.
#[tokio::test(start_paused = true)]
async fn a_re_entry_while_guards_of_the_same_hold_come_and_go() {
    with_each(Primitive::REENTRANT, |of, answers, cut| async move {
        let (client, faults) = begin(of).await;
        let (outer, inner) = entered_twice(of, &client).await;
        answers.arrange(&faults);
        let reentry = tokio::spawn(cut_off(cut, outer.reenter()));
        let release = tokio::spawn(inner.release());
        let third = tokio::spawn(outer.reenter());
        tokio::task::yield_now().await;
        drop(outer);
        let was_cut = matches!(reentry.await.unwrap(), Ended::Cut);
        drop((release.await.unwrap(), third.await.unwrap()));
        nothing_is_left(of, &client, &faults, (answers, cut)).await;
        was_cut
    })
    .await;
}

/// A step that waits for its turn on a hold is given it, and dropped before it can use it.
#[tokio::test(start_paused = true)]
async fn a_step_that_is_dropped_when_its_turn_has_come() {
    let (client, faults) = leasehold::test::memory();
    let outer = client.lock(NAME).acquire().await.unwrap();
    faults.delay(LATE);
    let (mut first, mut second) = (outer.reenter(), outer.reenter());
    let mut idle = Context::from_waker(std::task::Waker::noop());
    assert!(Pin::new(&mut first).poll(&mut idle).is_pending());
    assert!(Pin::new(&mut second).poll(&mut idle).is_pending());
    let inner = first.await.unwrap();
    drop((outer, inner));
    drop(second);
    nothing_is_left(Primitive::Plain, &client, &faults, "a dropped step").await;
}
