//! Dropping a future at every point where it can be dropped: no hold, no waiter, no wake-up lost.
//!
//! Every case is run again and again, cancelled one poll later each time, until it is not cancelled any more: once
//! right after the poll that came back pending, and once in place of the next poll, when it has just been woken.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use leasehold::test::Faults;
use leasehold::{Client, Guard, Owner};
use tokio::time::{Instant, sleep, timeout};

/// Where the future is dropped.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Cut {
    After(usize),
    InPlaceOf(usize),
}

/// Polls a future until it is done or cut off.
pub(crate) struct CutOff<F> {
    future: Pin<Box<F>>,
    cut: Cut,
    polls: usize,
}

pub(crate) fn cut_off<F: Future>(cut: Cut, future: F) -> CutOff<F> {
    CutOff { future: Box::pin(future), cut, polls: 0 }
}

/// How a future ended.
#[derive(Debug, PartialEq)]
pub(crate) enum Ended<T> {
    Done(T),
    Cut,
}

impl<F: Future> Future for CutOff<F> {
    type Output = Ended<F::Output>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        self.polls += 1;
        if matches!(self.cut, Cut::InPlaceOf(poll) if poll == self.polls) {
            return Poll::Ready(Ended::Cut);
        }
        if let Poll::Ready(output) = self.future.as_mut().poll(context) {
            return Poll::Ready(Ended::Done(output));
        }
        if matches!(self.cut, Cut::After(poll) if poll == self.polls) {
            return Poll::Ready(Ended::Cut);
        }
        Poll::Pending
    }
}

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
    pub(crate) fn arrange(self, faults: &Faults) {
        match self {
            Self::AtOnce => {}
            Self::Late => faults.delay(LATE),
            Self::FirstLost => faults.lose_reply(),
            Self::AllLost => (0..1000).for_each(|_| faults.lose_reply()),
        }
    }
}

/// Runs `case` for every way to answer and every place to cut, until the cut comes too late.
pub(crate) async fn everywhere<C, F>(case: C)
where
    C: Fn(Answers, Cut) -> F,
    F: Future<Output = bool>,
{
    for answers in [Answers::AtOnce, Answers::Late, Answers::FirstLost, Answers::AllLost] {
        for kind in [Cut::After, Cut::InPlaceOf] {
            let mut polls = 1;
            while case(answers, kind(polls)).await {
                polls += 1;
                assert!(polls < 1000, "{answers:?}: it is always cut, so it never ends");
            }
        }
    }
}

/// After whatever happened: the lock can be had at once, and when it is given back nothing is left.
async fn nothing_is_left(client: &Client, faults: &Faults, what: impl std::fmt::Debug) {
    faults.clear();
    assert_eq!(faults.waiters(NAME), 0, "{what:?}");
    let guard = client.lock(NAME).try_acquire().await.unwrap();
    assert!(guard.is_some(), "the lock is not free: {what:?}");
    drop(guard);
    assert_eq!(faults.names(), 0, "{what:?}");
}

#[tokio::test(start_paused = true)]
async fn a_free_lock() {
    everywhere(|answers, cut| async move {
        let (client, faults) = leasehold::test::memory();
        answers.arrange(&faults);
        let ended = cut_off(cut, client.lock(NAME).acquire().into_future()).await;
        let was_cut = matches!(ended, Ended::Cut);
        drop(ended);
        nothing_is_left(&client, &faults, (answers, cut)).await;
        was_cut
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn one_attempt() {
    everywhere(|answers, cut| async move {
        let (client, faults) = leasehold::test::memory();
        answers.arrange(&faults);
        let ended = cut_off(cut, client.lock(NAME).try_acquire().into_future()).await;
        let was_cut = matches!(ended, Ended::Cut);
        drop(ended);
        nothing_is_left(&client, &faults, (answers, cut)).await;
        was_cut
    })
    .await;
}

/// A holder, the waiter that is cut off, and a second waiter behind it. The holder lets go after a second; whatever
/// became of the first waiter, the second has the lock as soon as it can.
async fn two_waiters(answers: Answers, cut: Cut, wait: Option<Duration>, owner: Option<Owner>) -> bool {
    let (client, faults) = leasehold::test::memory();
    let lock = client.lock(NAME);
    let holder = lock.acquire().await.unwrap();
    // What is lost is lost to the first waiter: its first answer, or those after it was woken.
    if matches!(answers, Answers::Late | Answers::FirstLost) {
        answers.arrange(&faults);
    }
    let mut acquire = lock.acquire();
    if let Some(wait) = wait {
        acquire = acquire.wait(wait);
    }
    if let Some(owner) = &owner {
        acquire = acquire.as_owner(owner);
    }
    let first = tokio::spawn(cut_off(cut, acquire.into_future()));
    sleep(Duration::from_millis(500)).await;
    if !matches!(answers, Answers::Late) {
        faults.clear();
    }
    let second = tokio::spawn(async move {
        let guard = lock.acquire().await.unwrap();
        (guard, Instant::now())
    });
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
    assert!(granted - freed <= at_most, "{:?} late: {answers:?} {cut:?}", granted - freed);
    drop(guard);
    nothing_is_left(&client, &faults, (answers, cut)).await;
    was_cut
}

#[tokio::test(start_paused = true)]
async fn a_busy_lock_that_is_released() {
    everywhere(|answers, cut| two_waiters(answers, cut, None, None)).await;
}

#[tokio::test(start_paused = true)]
async fn a_busy_lock_that_is_released_to_a_named_owner() {
    everywhere(|answers, cut| two_waiters(answers, cut, None, Some(Owner::number(7)))).await;
}

#[tokio::test(start_paused = true)]
async fn a_wait_that_times_out() {
    everywhere(|answers, cut| two_waiters(answers, cut, Some(Duration::from_millis(700)), None)).await;
}

#[tokio::test(start_paused = true)]
async fn a_wait_that_times_out_before_anybody_else_waits() {
    everywhere(|answers, cut| two_waiters(answers, cut, Some(Duration::from_millis(5)), None)).await;
}

/// Like a waiter on a lock whose lease runs out instead of being released.
#[tokio::test(start_paused = true)]
async fn a_busy_lock_whose_lease_runs_out() {
    everywhere(|answers, cut| async move {
        let (client, faults) = leasehold::test::memory();
        let holder = client.lock(NAME).acquire().lease(Duration::from_secs(1)).await.unwrap();
        answers.arrange(&faults);
        let ended =
            timeout(Duration::from_secs(100), cut_off(cut, client.lock(NAME).acquire().into_future())).await;
        let was_cut = matches!(ended.expect("it ends"), Ended::Cut);
        sleep(Duration::from_secs(2)).await;
        assert!(!holder.is_held());
        nothing_is_left(&client, &faults, (answers, cut)).await;
        was_cut
    })
    .await;
}

async fn entered_twice(client: &Client) -> (Guard, Guard) {
    let outer = client.lock(NAME).acquire().await.unwrap();
    let inner = outer.reenter().await.unwrap();
    (outer, inner)
}

#[tokio::test(start_paused = true)]
async fn a_re_entry() {
    everywhere(|answers, cut| async move {
        let (client, faults) = leasehold::test::memory();
        let (outer, inner) = entered_twice(&client).await;
        answers.arrange(&faults);
        let ended = cut_off(cut, outer.reenter()).await;
        let was_cut = matches!(ended, Ended::Cut);
        let entered = matches!(ended, Ended::Done(Ok(_)));
        faults.clear();
        let holds = client.lock(NAME).hold_count(&outer.owner()).await.unwrap();
        assert_eq!(holds, 2 + u32::from(entered), "{answers:?} {cut:?}");
        drop((ended, outer, inner));
        nothing_is_left(&client, &faults, (answers, cut)).await;
        was_cut
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_release_of_one_of_two_holds() {
    everywhere(|answers, cut| async move {
        let (client, faults) = leasehold::test::memory();
        let (outer, inner) = entered_twice(&client).await;
        answers.arrange(&faults);
        let was_cut = matches!(cut_off(cut, inner.release()).await, Ended::Cut);
        faults.clear();
        let holds = client.lock(NAME).hold_count(&outer.owner()).await.unwrap();
        assert_eq!(holds, 1, "{answers:?} {cut:?}");
        assert!(outer.is_held());
        assert_eq!(outer.release().await.unwrap().holds_left, 0);
        nothing_is_left(&client, &faults, (answers, cut)).await;
        was_cut
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_release_in_the_owners_name() {
    everywhere(|answers, cut| async move {
        let (client, faults) = leasehold::test::memory();
        let owner = Owner::number(7);
        let guard = client.lock(NAME).acquire().as_owner(&owner).await.unwrap();
        answers.arrange(&faults);
        let ended = cut_off(cut, client.lock(NAME).as_owner(&owner).release()).await;
        drop(guard);
        let was_cut = matches!(ended, Ended::Cut);
        nothing_is_left(&client, &faults, (answers, cut)).await;
        was_cut
    })
    .await;
}

/// Two futures step on one hold at a time, and one of them is dropped in the middle of its step.
#[tokio::test(start_paused = true)]
async fn a_re_entry_while_guards_of_the_same_hold_come_and_go() {
    everywhere(|answers, cut| async move {
        let (client, faults) = leasehold::test::memory();
        let (outer, inner) = entered_twice(&client).await;
        answers.arrange(&faults);
        let reentry = tokio::spawn(cut_off(cut, outer.reenter()));
        let release = tokio::spawn(inner.release());
        let third = tokio::spawn(outer.reenter());
        tokio::task::yield_now().await;
        drop(outer);
        let was_cut = matches!(reentry.await.unwrap(), Ended::Cut);
        drop((release.await.unwrap(), third.await.unwrap()));
        nothing_is_left(&client, &faults, (answers, cut)).await;
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
    nothing_is_left(&client, &faults, "a dropped step").await;
}
