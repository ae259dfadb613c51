//! Dropping a future at every poll, under every network fault: no hold, no waiter and no wake-up is lost. The same without a
//! network, on the engine inside the process.

use std::fmt::Debug;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use leasehold::test::{Embedded, Simulation};
use leasehold::{AcquireError, Client, Guard, Owner};
use leasehold_testkit::cut::{Cut, Ended, cut_off, everywhere};
use leasehold_testkit::primitive::{Held, Primitive};
use tokio::time::{Instant, sleep};

use super::{LATENCY, MILLISECOND, NAME, SECOND, begun, soon, start};

/// The network fault, from the moment when a case begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Network {
    /// The engine inside the process.
    No,
    AtOnce,
    Slow,
    FirstReplyLost,
    RepliesLost,
    /// An outage with the first request in flight.
    Outage,
    /// The connection breaks with the first request in flight, which the server executes later.
    ActsLate,
}

impl Network {
    pub(super) const ALL: &[Self] = &[
        Self::No,
        Self::AtOnce,
        Self::Slow,
        Self::FirstReplyLost,
        Self::RepliesLost,
        Self::Outage,
        Self::ActsLate,
    ];

    pub(super) fn begin(self, engine: &Engine) {
        let Engine::Server(simulation) = engine else { return };
        if matches!(self, Self::Slow | Self::Outage | Self::ActsLate) {
            simulation.latency(LATENCY);
        }
        let of = Arc::clone(simulation);
        match self {
            Self::No | Self::AtOnce | Self::Slow => {}
            Self::FirstReplyLost => simulation.lose_reply(),
            Self::RepliesLost => (0..4).for_each(|_| simulation.lose_reply()),
            Self::Outage => drop(tokio::spawn(async move {
                sleep(LATENCY / 2).await;
                of.outage();
                sleep(SECOND).await;
                of.clear();
            })),
            Self::ActsLate => drop(tokio::spawn(async move {
                sleep(LATENCY / 2).await;
                of.act_late(SECOND / 3);
                of.cut();
            })),
        }
    }

    /// How long after the end of a case all started operations are over.
    fn settles_in(self) -> Duration {
        match self {
            Self::No | Self::AtOnce => MILLISECOND,
            Self::Slow => LATENCY * 3,
            // Longer than the time-outs of four replies; shorter than the time until the first renewal, whose reply could be
            // lost, too, and than a lease that the client no longer tracks.
            _ => SECOND * 9,
        }
    }
}

/// The engine that the clients of a case share.
pub(super) enum Engine {
    Process(Embedded),
    Server(Arc<Simulation>),
}

impl Engine {
    pub(super) fn new(network: Network) -> Self {
        match network {
            Network::No => Self::Process(Embedded::new()),
            _ => Self::Server(Arc::new(Simulation::new())),
        }
    }

    pub(super) async fn connect(&self) -> Client {
        let url = match self {
            Self::Process(engine) => engine.url(),
            Self::Server(simulation) => simulation.url(),
        };
        Client::connect(url).await.unwrap()
    }

    /// Waits until all started operations are over, and ends the faults.
    pub(super) async fn settle(&self, network: Network) {
        sleep(network.settles_in()).await;
        if let Self::Server(simulation) = self {
            simulation.clear();
        }
    }

    /// No acquire waits any more.
    pub(super) fn nothing_waits(&self, what: impl Debug) {
        let waiters = match self {
            Self::Process(engine) => engine.waiters(NAME),
            Self::Server(simulation) => simulation.waiters(NAME),
        };
        assert_eq!(waiters, 0, "{what:?}");
    }

    /// No name is held or waited for any more.
    pub(super) fn is_empty(&self, what: impl Debug) {
        let names = match self {
            Self::Process(engine) => engine.names(),
            Self::Server(simulation) => simulation.names(),
        };
        assert_eq!(names, 0, "{what:?}");
    }
}

/// An engine with the primitive of the case.
async fn begin(of: Primitive, network: Network) -> (Engine, Client) {
    let engine = Engine::new(network);
    let client = engine.connect().await;
    of.create(&client, NAME).await;
    (engine, client)
}

/// After a case: another client acquires it at once, and nothing is left after the release.
async fn nothing_is_left(of: Primitive, network: Network, engine: &Engine, what: impl Debug) {
    engine.settle(network).await;
    let what = (of, network, what);
    engine.nothing_waits(&what);
    let other = engine.connect().await;
    let held = of.try_acquire(&other, NAME).await.unwrap();
    let held = held.unwrap_or_else(|| panic!("it is not free: {what:?}"));
    held.release().await.unwrap();
    of.remove(&other, NAME).await;
    engine.is_empty(what);
}

/// Runs `case` for each of these, on every network and with every place to cut.
async fn with_each<C, F>(all: &[Primitive], case: C)
where
    C: Fn(Primitive, Network, Cut) -> F,
    F: Future<Output = bool>,
{
    for of in all {
        everywhere(Network::ALL, |network, cut| case(*of, network, cut)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_dropped_acquire_of_a_free_lock_leaves_nothing_behind() {
    with_each(Primitive::ALL, |of, network, cut| async move {
        let (engine, client) = begin(of, network).await;
        network.begin(&engine);
        let ended = cut_off(cut, of.acquire(&client, NAME, None)).await;
        let was_cut = matches!(ended, Ended::Cut);
        drop(ended);
        nothing_is_left(of, network, &engine, cut).await;
        was_cut
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_dropped_try_leaves_nothing_behind() {
    with_each(Primitive::ALL, |of, network, cut| async move {
        let (engine, client) = begin(of, network).await;
        network.begin(&engine);
        let ended = cut_off(cut, of.try_acquire(&client, NAME)).await;
        let was_cut = matches!(ended, Ended::Cut);
        drop(ended);
        nothing_is_left(of, network, &engine, cut).await;
        was_cut
    })
    .await;
}

/// A waiter that retries when its attempt had no reply, and releases at once.
async fn comes_in(acquire: impl Fn() -> Acquiring) {
    for _ in 0..5 {
        match acquire().await {
            Ok(held) => return drop(held),
            Err(error) => assert!(error.is_unavailable(), "{error}"),
        }
    }
    panic!("no attempt had a reply");
}

type Acquiring = std::pin::Pin<Box<dyn Future<Output = Result<Held, AcquireError>> + Send>>;

/// When the network fault begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum When {
    /// With the waiter's first request.
    Asked,
    /// When the lock is released.
    Released,
}

/// A holder, the waiter that is cut off, one behind it at the same client, and one at a third client. The holder releases;
/// the other two waiters get the lock, each long before a waiter would retry by itself.
async fn between_waiters<A>(
    of: Primitive,
    network: Network,
    when: When,
    cut: Cut,
    acquire: impl FnOnce(Client) -> A,
) -> bool
where
    A: Future<Output = Result<Held, AcquireError>> + Send + 'static,
{
    let (engine, client) = begin(of, network).await;
    let (holds, third) = (engine.connect().await, engine.connect().await);
    let holder = of.acquire(&holds, NAME, None).await.unwrap();
    if let When::Asked = when {
        network.begin(&engine);
    }
    let first = tokio::spawn(cut_off(cut, acquire(client.clone())));
    if let When::Asked = when {
        engine.settle(network).await;
    }
    sleep(MILLISECOND).await;
    let others = [client, third]
        .map(|client| tokio::spawn(comes_in(move || Box::pin(of.acquire(&client, NAME, None)) as Acquiring)));
    sleep(MILLISECOND).await;
    if let When::Released = when {
        network.begin(&engine);
    }
    drop(holder);
    let what = format!("{of:?}, {network:?}, {when:?}, {cut:?}");
    let mut freed = Instant::now();
    let ended = soon(&format!("the first waiter ends: {what}"), first).await.unwrap();
    let was_cut = matches!(ended, Ended::Cut);
    if matches!(ended, Ended::Done(Ok(_))) {
        freed = Instant::now();
    }
    drop(ended);
    for other in others {
        soon(&format!("another waiter gets the lock: {what}"), other).await.unwrap();
    }
    if network == Network::No {
        assert_eq!(freed.elapsed(), Duration::ZERO, "every waiter is notified by the one before: {what}");
    }
    nothing_is_left(of, network, &engine, (when, cut)).await;
    was_cut
}

/// The first of the waiters waits without a limit, or for `wait`.
async fn waiting_for(wait: Option<Duration>) {
    for when in [When::Asked, When::Released] {
        with_each(Primitive::ALL, |of, network, cut| {
            between_waiters(of, network, when, cut, move |client| of.acquire(&client, NAME, wait))
        })
        .await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_dropped_waiter_strands_no_other_waiter() {
    waiting_for(None).await;
}

#[tokio::test(start_paused = true)]
async fn a_waiter_that_times_out_or_is_dropped_strands_no_other_waiter() {
    waiting_for(Some(MILLISECOND * 15)).await;
}

#[tokio::test(start_paused = true)]
async fn a_dropped_waiter_of_a_named_owner_strands_no_other_waiter() {
    for when in [When::Asked, When::Released] {
        with_each(Primitive::LOCKS, |of, network, cut| {
            between_waiters(of, network, when, cut, move |client| async move {
                of.lock(&client, NAME).acquire().as_owner(Owner::number(7)).await.map(Held::Lock)
            })
        })
        .await;
    }
}

/// For a lock that is not released: its lease expires.
#[tokio::test(start_paused = true)]
async fn a_dropped_waiter_for_the_end_of_a_lease_leaves_nothing_behind() {
    with_each(Primitive::LOCKS, |of, network, cut| async move {
        let (engine, client) = begin(of, network).await;
        let holder = of.lock(&engine.connect().await, NAME).acquire().lease(SECOND).await.unwrap();
        network.begin(&engine);
        let ended = soon("the waiter ends", cut_off(cut, of.acquire(&client, NAME, None))).await;
        let was_cut = matches!(ended, Ended::Cut);
        drop(ended);
        sleep(SECOND).await;
        assert!(!holder.is_held());
        nothing_is_left(of, network, &engine, cut).await;
        was_cut
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_dropped_release_is_carried_out() {
    with_each(Primitive::ALL, |of, network, cut| async move {
        let (engine, client) = begin(of, network).await;
        let held = of.acquire(&client, NAME, None).await.unwrap();
        network.begin(&engine);
        let was_cut = matches!(cut_off(cut, held.release()).await, Ended::Cut);
        nothing_is_left(of, network, &engine, cut).await;
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
async fn a_dropped_release_of_one_of_two_holds_is_carried_out() {
    with_each(Primitive::REENTRANT, |of, network, cut| async move {
        let (engine, client) = begin(of, network).await;
        let (outer, inner) = entered_twice(of, &client).await;
        network.begin(&engine);
        let was_cut = matches!(cut_off(cut, inner.release()).await, Ended::Cut);
        engine.settle(network).await;
        let holds = of.lock(&client, NAME).hold_count(outer.owner()).await.unwrap();
        assert_eq!(holds, 1, "{of:?}, {network:?}, {cut:?}");
        assert!(outer.is_held(), "{of:?}, {network:?}, {cut:?}");
        assert_eq!(outer.release().await.unwrap().holds_left, 0);
        nothing_is_left(of, network, &engine, cut).await;
        was_cut
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_dropped_release_in_the_owners_name_leaves_nothing_behind() {
    with_each(Primitive::REENTRANT, |of, network, cut| async move {
        let (engine, client) = begin(of, network).await;
        let owner = Owner::number(7);
        let guard = of.lock(&client, NAME).acquire().as_owner(&owner).await.unwrap();
        network.begin(&engine);
        let ended = cut_off(cut, of.lock(&client, NAME).as_owner(&owner).release()).await;
        drop(guard);
        nothing_is_left(of, network, &engine, cut).await;
        matches!(ended, Ended::Cut)
    })
    .await;
}

/// Two futures change one hold at the same time, and one of them is dropped in the middle of its step.
#[tokio::test(start_paused = true)]
async fn a_dropped_re_entry_beside_other_steps_of_its_hold_leaves_nothing_behind() {
    with_each(Primitive::REENTRANT, |of, network, cut| async move {
        let (engine, client) = begin(of, network).await;
        let (outer, inner) = entered_twice(of, &client).await;
        network.begin(&engine);
        let reentry = tokio::spawn(cut_off(cut, outer.reenter()));
        let release = tokio::spawn(inner.release());
        let third = tokio::spawn(outer.reenter());
        tokio::task::yield_now().await;
        drop(outer);
        let was_cut = matches!(reentry.await.unwrap(), Ended::Cut);
        drop((release.await.unwrap(), third.await.unwrap()));
        nothing_is_left(of, network, &engine, cut).await;
        was_cut
    })
    .await;
}

/// A step that waits for the step lock of a hold gets it, and is dropped before it can use it.
#[tokio::test(start_paused = true)]
async fn a_step_dropped_when_granted_the_step_lock_leaves_nothing_behind() {
    let (simulation, client) = start().await;
    let outer = client.lock(NAME).acquire().await.unwrap();
    simulation.latency(LATENCY);
    let (first, second) = (begun(outer.reenter()), begun(outer.reenter()));
    let inner = first.await.unwrap();
    drop((outer, inner));
    drop(second);
    sleep(LATENCY * 3).await;
    assert_eq!(simulation.names(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_dropped_re_entry_does_not_change_the_hold_count() {
    with_each(Primitive::REENTRANT, |of, network, cut| async move {
        let (engine, client) = begin(of, network).await;
        let (outer, inner) = entered_twice(of, &client).await;
        network.begin(&engine);
        let ended = cut_off(cut, outer.reenter()).await;
        let was_cut = matches!(ended, Ended::Cut);
        let entered = matches!(ended, Ended::Done(Ok(_)));
        engine.settle(network).await;
        let holds = of.lock(&client, NAME).hold_count(outer.owner()).await.unwrap();
        assert_eq!(holds, 2 + u32::from(entered), "{of:?}, {network:?}, {cut:?}");
        assert!(outer.is_held() && inner.is_held(), "{of:?}, {network:?}, {cut:?}");
        drop((ended, outer, inner));
        nothing_is_left(of, network, &engine, cut).await;
        was_cut
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_dropped_extension_does_not_keep_a_released_lock_held() {
    with_each(Primitive::LOCKS, |of, network, cut| async move {
        let (engine, client) = begin(of, network).await;
        let guard = of.lock(&client, NAME).acquire().lease(SECOND * 20).await.unwrap();
        network.begin(&engine);
        let was_cut = matches!(cut_off(cut, guard.extend(SECOND * 600)).await, Ended::Cut);
        drop(guard);
        nothing_is_left(of, network, &engine, cut).await;
        was_cut
    })
    .await;
}
