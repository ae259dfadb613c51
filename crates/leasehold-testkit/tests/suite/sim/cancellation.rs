//! Dropping a future at every poll, whatever the network does: no hold, no waiter and no wake-up is lost.

use std::fmt::Debug;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use leasehold::test::Simulation;
use leasehold::{AcquireError, Client};
use leasehold_testkit::primitive::{Held, Primitive};
use tokio::time::sleep;

use super::{LATENCY, MILLISECOND, NAME, SECOND, connect, soon};
use crate::cut::{Cut, Ended, cut_off, everywhere};

/// What happens on the way to the server and back, from the moment when a case begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Network {
    AtOnce,
    Slow,
    FirstReplyLost,
    RepliesLost,
    /// With the first request under way.
    Outage,
    /// The connection breaks with the first request under way, which the server carries out later.
    ActsLate,
}

impl Network {
    const ALL: &[Self] =
        &[Self::AtOnce, Self::Slow, Self::FirstReplyLost, Self::RepliesLost, Self::Outage, Self::ActsLate];

    fn begin(self, simulation: &Arc<Simulation>) {
        if matches!(self, Self::Slow | Self::Outage | Self::ActsLate) {
            simulation.latency(LATENCY);
        }
        let of = Arc::clone(simulation);
        match self {
            Self::AtOnce | Self::Slow => {}
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

    /// How long after the end of a case what was begun is over.
    fn settles_in(self) -> Duration {
        match self {
            Self::AtOnce => MILLISECOND,
            Self::Slow => LATENCY * 3,
            // Longer than four replies are waited for; shorter than until the first renewal, whose reply could be lost, too, and
            // than a lease of which the client has lost sight.
            _ => SECOND * 9,
        }
    }
}

/// A server with what the case is about.
async fn begin(of: Primitive) -> (Arc<Simulation>, Client) {
    let simulation = Arc::new(Simulation::new());
    let client = connect(&simulation).await;
    of.create(&client, NAME).await;
    (simulation, client)
}

/// After a case: another client gets it at once, and when it gives it back nothing is left.
async fn nothing_is_left(of: Primitive, network: Network, simulation: &Simulation, what: impl Debug) {
    sleep(network.settles_in()).await;
    simulation.clear();
    let other = connect(simulation).await;
    let held = of.try_acquire(&other, NAME).await.unwrap();
    let held = held.unwrap_or_else(|| panic!("it is not free: {of:?}, {network:?}, {what:?}"));
    held.release().await.unwrap();
    of.remove(&other, NAME).await;
    assert_eq!(simulation.names(), 0, "{of:?}, {network:?}, {what:?}");
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
async fn an_acquire_of_a_free_lock_that_is_dropped_leaves_nothing() {
    with_each(Primitive::ALL, |of, network, cut| async move {
        let (simulation, client) = begin(of).await;
        network.begin(&simulation);
        let ended = cut_off(cut, of.acquire(&client, NAME, None)).await;
        let was_cut = matches!(ended, Ended::Cut);
        drop(ended);
        nothing_is_left(of, network, &simulation, cut).await;
        was_cut
    })
    .await;
}

/// A waiter that asks again when its attempt had no reply, and gives back at once what it gets.
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

/// When the network begins to be as it is.
#[derive(Clone, Copy, Debug)]
enum When {
    /// When the waiter asks for the first time.
    Asked,
    /// When the lock is released.
    Released,
}

/// A holder, the waiter that is cut off, one behind it at the same client, and one at a third client. The holder releases;
/// the other two waiters get the lock, each long before a waiter would look by itself.
async fn between_waiters(
    of: Primitive,
    network: Network,
    when: When,
    wait: Option<Duration>,
    cut: Cut,
) -> bool {
    let (simulation, client) = begin(of).await;
    let (holds, third) = (connect(&simulation).await, connect(&simulation).await);
    let holder = of.acquire(&holds, NAME, None).await.unwrap();
    if let When::Asked = when {
        network.begin(&simulation);
    }
    let first = tokio::spawn(cut_off(cut, of.acquire(&client, NAME, wait)));
    if let When::Asked = when {
        sleep(network.settles_in()).await;
        simulation.clear();
    }
    sleep(MILLISECOND).await;
    let others = [client, third]
        .map(|client| tokio::spawn(comes_in(move || Box::pin(of.acquire(&client, NAME, None)) as Acquiring)));
    sleep(MILLISECOND).await;
    if let When::Released = when {
        network.begin(&simulation);
    }
    drop(holder);
    let what = format!("{of:?}, {network:?}, {when:?}, {cut:?}");
    let ended = soon(&format!("the first waiter ends: {what}"), first).await.unwrap();
    let was_cut = matches!(ended, Ended::Cut);
    drop(ended);
    for other in others {
        soon(&format!("another waiter gets the lock: {what}"), other).await.unwrap();
    }
    nothing_is_left(of, network, &simulation, (when, cut)).await;
    was_cut
}

#[tokio::test(start_paused = true)]
async fn a_waiter_that_is_dropped_strands_no_other() {
    for when in [When::Asked, When::Released] {
        with_each(Primitive::ALL, |of, network, cut| between_waiters(of, network, when, None, cut)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_waiter_that_times_out_or_is_dropped_strands_no_other() {
    let wait = Some(MILLISECOND * 15);
    for when in [When::Asked, When::Released] {
        with_each(Primitive::ALL, |of, network, cut| between_waiters(of, network, when, wait, cut)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_release_that_is_dropped_is_carried_out() {
    with_each(Primitive::ALL, |of, network, cut| async move {
        let (simulation, client) = begin(of).await;
        let held = of.acquire(&client, NAME, None).await.unwrap();
        network.begin(&simulation);
        let was_cut = matches!(cut_off(cut, held.release()).await, Ended::Cut);
        nothing_is_left(of, network, &simulation, cut).await;
        was_cut
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_re_entry_that_is_dropped_does_not_count() {
    with_each(Primitive::REENTRANT, |of, network, cut| async move {
        let (simulation, client) = begin(of).await;
        let outer = of.lock(&client, NAME).acquire().await.unwrap();
        let inner = outer.reenter().await.unwrap();
        network.begin(&simulation);
        let ended = cut_off(cut, outer.reenter()).await;
        let was_cut = matches!(ended, Ended::Cut);
        let entered = matches!(ended, Ended::Done(Ok(_)));
        sleep(network.settles_in()).await;
        simulation.clear();
        let holds = of.lock(&client, NAME).hold_count(&outer.owner()).await.unwrap();
        assert_eq!(holds, 2 + u32::from(entered), "{of:?}, {network:?}, {cut:?}");
        assert!(outer.is_held() && inner.is_held(), "{of:?}, {network:?}, {cut:?}");
        drop((ended, outer, inner));
        nothing_is_left(of, network, &simulation, cut).await;
        was_cut
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn an_extension_that_is_dropped_keeps_no_lock_that_is_given_back() {
    with_each(Primitive::LOCKS, |of, network, cut| async move {
        let (simulation, client) = begin(of).await;
        let guard = of.lock(&client, NAME).acquire().lease(SECOND * 20).await.unwrap();
        network.begin(&simulation);
        let was_cut = matches!(cut_off(cut, guard.extend(SECOND * 600)).await, Ended::Cut);
        drop(guard);
        nothing_is_left(of, network, &simulation, cut).await;
        was_cut
    })
    .await;
}
