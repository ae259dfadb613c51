//! Dropping a future wherever it can be dropped, with late and lost replies: nothing is left on the server.
//!
//! Each case runs repeatedly, cancelled one poll later each time until it completes, and then at some moments between polls.

use std::fmt::Debug;
use std::future::Future;
use std::pin::Pin;
use std::task::Context;
use std::time::Duration;

use leasehold::{AcquireError, Client, Guard, Lock, Owner, ReleaseError};
use leasehold_testkit::cut::{self, Cut, Ended};
use leasehold_testkit::primitive::{Held, PERMITS, Primitive};
use leasehold_testkit::proxy::{Proxy, Which};
use leasehold_testkit::server::{Flavour, Server};
use tokio::time::sleep;

use crate::{SECOND, channels, connect, keys, soon, subscribed, subscribers, until};

/// The output of the future, or nothing if it was cut off.
async fn cut_off<F: Future>(cut: Cut, future: F) -> Option<F::Output> {
    match soon("it ends", cut::cut_off(cut, future)).await {
        Ended::Done(output) => Some(output),
        Ended::Cut => None,
    }
}

/// The fault that is applied to replies to commands.
#[derive(Clone, Copy, Debug)]
enum ReplyFault {
    Late,
    EachLostOnce,
}

const LATE: Duration = Duration::from_millis(4);
const NAME: &str = "n";

/// The channel on which its releases are published.
fn channel(of: Primitive) -> &'static str {
    match of {
        Primitive::Plain | Primitive::Group => "redisson_lock__channel:{n}",
        Primitive::SetNx => "leasehold_setnx__channel:{n}",
        Primitive::Semaphore | Primitive::Leased => "redisson_sc:{n}",
    }
}

/// A lock by `SET … NX` is tested on Valkey, which deletes by a command.
fn flavour(of: Primitive) -> Flavour {
    if of == Primitive::SetNx { Flavour::Valkey } else { Flavour::Redis }
}

/// The keys that are there when it has no holder.
fn at_rest(of: Primitive) -> &'static [&'static str] {
    if matches!(of, Primitive::Semaphore | Primitive::Leased) { &[NAME] } else { &[] }
}

struct Stage {
    of: Primitive,
    server: Server,
    proxy: Proxy,
    /// Behind the proxy: the client whose futures are cut off.
    client: Client,
    /// Not behind it.
    other: Client,
    fault: ReplyFault,
}

impl Stage {
    async fn new(of: Primitive, fault: ReplyFault) -> Self {
        let server = Server::start(flavour(of));
        let proxy = Proxy::start(server.port());
        let (client, other) = (connect(proxy.url()).await, connect(server.url()).await);
        let stage = Self { of, server, proxy, client, other, fault };
        of.create(&stage.other, NAME).await;
        // The connection for pub/sub is open, and the server has the scripts.
        stage.begin_with_messages().await;
        stage
    }

    /// The lock of the client whose futures are cut off.
    fn lock(&self) -> Lock {
        self.of.lock(&self.client, NAME)
    }

    fn others_lock(&self) -> Lock {
        self.of.lock(&self.other, NAME)
    }

    /// By the client whose futures are cut off.
    fn acquire(&self, wait: Option<Duration>) -> impl Future<Output = Result<Held, AcquireError>> + use<> {
        self.of.acquire(&self.client, NAME, wait)
    }

    async fn taken_by_the_other(&self) -> Held {
        self.of.acquire(&self.other, NAME, None).await.expect("it is free")
    }

    async fn begin_with_messages(&self) {
        let held = self.taken_by_the_other().await;
        let waiter = tokio::spawn(self.acquire(None));
        subscribed(&self.server, channel(self.of), 1).await;
        drop(held);
        drop(soon("the waiter ends", waiter).await.expect("no panic").expect("it is free"));
        self.nothing_is_left("the beginning").await;
    }

    /// Starts the fault.
    fn storm(&self) {
        match self.fault {
            ReplyFault::Late => self.proxy.delay(Which::Command, LATE),
            ReplyFault::EachLostOnce => self.proxy.lose_each_reply_once(Which::Command),
        }
    }

    /// The count of an owner on the server, once all earlier requests are executed.
    async fn count(&self, owner: &Owner) -> u32 {
        loop {
            if let Ok(count) = self.lock().hold_count(owner).await {
                return count;
            }
            sleep(LATE).await;
        }
    }

    /// The lock is free, no channel has subscribers, and the client that was cut off acquires it at the first try.
    async fn nothing_is_left(&self, what: impl Debug) {
        let what = format!("{:?}, {:?}, {what:?}", self.of, self.fault);
        until(&format!("no key: {what}"), || keys(&self.server) == at_rest(self.of)).await;
        until(&format!("no channel: {what}"), || channels(&self.server).is_empty()).await;
        self.proxy.heal();
        let tried = loop {
            match self.of.try_acquire(&self.client, NAME).await {
                Ok(tried) => break tried,
                // There is no connection yet.
                Err(_) => sleep(Duration::from_millis(1)).await,
            }
        };
        let held = tried.unwrap_or_else(|| panic!("it is not free: {what}"));
        let released = held.release().await;
        // A connection whose reply was lost may break only now. The release continues on the next one.
        assert!(matches!(released, Ok(()) | Err(ReleaseError::Unknown { .. })), "{released:?}: {what}");
        until(&format!("it is given back: {what}"), || keys(&self.server) == at_rest(self.of)).await;
        if !at_rest(self.of).is_empty() {
            assert_eq!(self.server.cli(&["GET", NAME]), PERMITS.to_string().as_str(), "{what}");
        }
        // A subscription that was cut off may reach the server after all, right before its end.
        until(&format!("no channel in the end: {what}"), || channels(&self.server).is_empty()).await;
    }
}

/// Runs a case with these, under every fault and with every cut. The case returns whether it was cut off.
async fn everywhere(all: &[Primitive], case: impl AsyncFn(&Stage, Cut) -> bool) {
    let faults = all.iter().flat_map(|of| [(*of, ReplyFault::Late), (*of, ReplyFault::EachLostOnce)]);
    for (of, fault) in faults {
        let stage = Stage::new(of, fault).await;
        cut::everywhere(&[fault], |_, cut| case(&stage, cut)).await;
        for moment in (0..24).step_by(2) {
            case(&stage, Cut::At(Duration::from_millis(moment))).await;
        }
    }
}

#[tokio::test]
async fn a_cancelled_acquire_of_a_free_lock_leaves_nothing_behind() {
    everywhere(Primitive::ALL, async |stage, cut| {
        stage.storm();
        let ended = cut_off(cut, stage.acquire(None)).await;
        let was_cut = ended.is_none();
        drop(ended);
        stage.nothing_is_left(cut).await;
        was_cut
    })
    .await;
}

#[tokio::test]
async fn a_cancelled_try_of_a_busy_lock_leaves_nothing_behind() {
    everywhere(Primitive::ALL, async |stage, cut| {
        let held = stage.taken_by_the_other().await;
        stage.storm();
        let ended = cut_off(cut, stage.of.try_acquire(&stage.client, NAME)).await;
        assert!(!matches!(ended, Some(Ok(Some(_)))));
        held.release().await.unwrap();
        stage.nothing_is_left(cut).await;
        ended.is_none()
    })
    .await;
}

/// A waiter that is cut off, and another one, in another client, that gets the lock whatever the outcome of the first.
#[tokio::test]
async fn a_waiter_acquires_a_released_lock_though_another_waiter_is_cancelled() {
    everywhere(Primitive::ALL, async |stage, cut| {
        let held = stage.taken_by_the_other().await;
        let second = stage.of.acquire(&stage.other, NAME, None);
        let second = tokio::spawn(async move { second.await.map(drop) });
        subscribed(&stage.server, channel(stage.of), 1).await;
        if matches!(stage.fault, ReplyFault::Late) {
            stage.storm();
        }
        let first = tokio::spawn(cut_off(cut, stage.acquire(None)));
        until("the first waits or is cut off", || {
            first.is_finished() || subscribers(&stage.server, channel(stage.of)) == 2
        })
        .await;
        // The fault begins when the waiter has found the lock busy.
        stage.storm();
        drop(held);
        let first = soon("the first ends", first).await.unwrap();
        let was_cut = first.is_none();
        drop(first);
        soon("the second ends", second).await.unwrap().unwrap();
        stage.nothing_is_left(cut).await;
        was_cut
    })
    .await;
}

#[tokio::test]
async fn a_wait_that_times_out_or_is_cancelled_leaves_nothing_behind() {
    everywhere(Primitive::ALL, async |stage, cut| {
        let held = stage.taken_by_the_other().await;
        let wait = Duration::from_millis(20);
        if matches!(stage.fault, ReplyFault::Late) {
            stage.storm();
        }
        let ended = cut_off(cut, stage.acquire(Some(wait))).await;
        assert!(!matches!(ended, Some(Ok(_))));
        stage.storm();
        held.release().await.unwrap();
        stage.nothing_is_left(cut).await;
        ended.is_none()
    })
    .await;
}

async fn entered_twice(stage: &Stage) -> (Guard, Guard) {
    let outer = stage.lock().acquire().await.expect("a free lock");
    let inner = outer.reenter().await.expect("a held lock");
    (outer, inner)
}

#[tokio::test]
async fn a_cancelled_re_entry_does_not_change_the_hold_count() {
    everywhere(Primitive::REENTRANT, async |stage, cut| {
        let (outer, inner) = entered_twice(stage).await;
        stage.storm();
        let ended = cut_off(cut, outer.reenter()).await;
        let entered = matches!(ended, Some(Ok(_)));
        assert_eq!(stage.count(&outer.owner()).await, 2 + u32::from(entered), "{cut:?}");
        assert!(outer.is_held());
        let was_cut = ended.is_none();
        drop((ended, outer, inner));
        stage.nothing_is_left(cut).await;
        was_cut
    })
    .await;
}

#[tokio::test]
async fn a_cancelled_release_of_one_of_two_holds_is_carried_out() {
    everywhere(Primitive::REENTRANT, async |stage, cut| {
        let (outer, inner) = entered_twice(stage).await;
        stage.storm();
        let was_cut = cut_off(cut, inner.release()).await.is_none();
        assert_eq!(stage.count(&outer.owner()).await, 1, "{cut:?}");
        assert!(outer.is_held());
        drop(outer);
        stage.nothing_is_left(cut).await;
        was_cut
    })
    .await;
}

/// An undo whose reply is lost is repeated. It does not roll back a later hold of its owner.
#[tokio::test]
async fn an_undo_does_not_end_the_next_hold_of_its_owner() {
    for of in Primitive::LOCKS {
        undo_and_come_again(*of).await;
    }
}

async fn undo_and_come_again(of: Primitive) {
    let stage = Stage::new(of, ReplyFault::EachLostOnce).await;
    let owner = Owner::number(7);
    for round in 0..10 {
        stage.storm();
        let cut = Cut::After(1);
        while let Some(ended) = cut_off(cut, stage.lock().try_acquire().as_owner(&owner).into_future()).await
        {
            // There is no connection yet, after the round before.
            assert!(ended.is_err_and(|error| error.is_unavailable()), "round {round}");
            sleep(Duration::from_millis(1)).await;
        }
        let guard = loop {
            let again = stage.lock().acquire().wait(SECOND).as_owner(&owner);
            if let Ok(guard) = again.await {
                break guard;
            }
            sleep(Duration::from_millis(1)).await;
        };
        stage.proxy.heal();
        // Longer than the pause before an undo is repeated.
        sleep(Duration::from_millis(300)).await;
        assert!(guard.is_held(), "round {round}");
        assert_eq!(keys(&stage.server), [NAME], "round {round}: the guard reports that it is held");
        drop(guard);
        stage.nothing_is_left(round).await;
    }
}

/// The same when the server has lost the script of the undo, which is then sent once more, later.
#[tokio::test]
async fn an_undo_whose_script_is_sent_again_does_not_end_the_next_hold_of_its_owner() {
    let stage = Stage::new(Primitive::Plain, ReplyFault::Late).await;
    let (lock, owner) = (stage.lock(), Owner::number(7));
    for round in 0..3 {
        let held = stage.others_lock().acquire().await.unwrap();
        stage.server.cli(&["SCRIPT", "FLUSH"]);
        // The server has the script for acquiring again, and no other.
        assert!(stage.others_lock().try_acquire().await.unwrap().is_none());
        stage.proxy.delay(Which::Command, Duration::from_millis(200));
        let mut monitor = stage.server.monitor();
        assert!(cut_off(Cut::After(1), lock.acquire().as_owner(&owner).into_future()).await.is_none());
        let mut seen = 0;
        until("the server has seen the acquire and the undo", || {
            seen += monitor.take_sent().len();
            seen >= 2
        })
        .await;
        held.release().await.unwrap();
        let guard = loop {
            match lock.acquire().as_owner(&owner).await {
                Ok(guard) => break guard,
                Err(error) => assert!(error.is_unavailable(), "{error}"),
            }
        };
        sleep(Duration::from_millis(500)).await;
        assert!(guard.is_held(), "round {round}");
        assert_eq!(keys(&stage.server), [NAME], "round {round}: the guard reports that it is held");
        drop(guard);
        stage.nothing_is_left(round).await;
    }
}

/// The server and the network work: there is no reason for an error.
#[tokio::test]
async fn an_owner_can_drop_its_guard_and_acquire_again_at_once() {
    let server = Server::start(Flavour::Redis);
    let client = connect(server.url()).await;
    let (lock, owner) = (client.lock(NAME), Owner::this_thread());
    for _ in 0..50 {
        server.cli(&["SCRIPT", "FLUSH"]);
        for _ in 0..3 {
            let guard = lock.acquire().as_owner(&owner).await.unwrap();
            let inner = guard.reenter().await.unwrap();
            drop(inner);
            let inner = guard.reenter().await.unwrap();
            assert_eq!(server.cli(&["HVALS", NAME]).elements(), ["2"]);
            drop((guard, inner));
        }
        assert!(!lock.is_locked().await.unwrap());
    }
}

/// The future is kept unpolled with its reply until the lease has expired and another owner holds the lock.
#[tokio::test]
async fn a_reply_polled_after_its_lease_expired_does_not_affect_the_next_holder() {
    let server = Server::start(Flavour::Redis);
    let client = connect(server.url()).await;
    let mut late = client.lock(NAME).acquire().lease(SECOND / 5).into_future();
    let mut idle = Context::from_waker(std::task::Waker::noop());
    assert!(Pin::new(&mut late).poll(&mut idle).is_pending());
    until("the server has granted it", || !keys(&server).is_empty()).await;
    let next = soon("the next holder", client.lock(NAME).acquire().into_future()).await.expect("the lock");
    assert!(late.await.is_err_and(|error| error.is_unavailable()));
    assert!(next.is_held(), "it was notified of a loss that did not happen");
    assert_eq!(next.release().await.expect("it is held").holds_left, 0);
}
