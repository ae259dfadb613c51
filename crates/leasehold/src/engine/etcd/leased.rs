//! Permits of a leased semaphore that guards hold.
//!
//! Those that are kept are bound to the session of their client. Those with a fixed lease have it to themselves, so it may end
//! later than the client; and those without a lease stay until they are released.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use super::counted::given;
use super::keys;
use super::link::Link;
use super::messages::{LeaseId, Lives};
use super::permits::{Ends, Permits, Run, key_of, runs_in, span_of};
use super::state::{MOST, State, Step, find};
use super::timed::Unused;
use super::{Cluster, calls};
use crate::engine::remote::store::{Given, StoreError, Taken, Verdict};
use crate::engine::{Busy, HoldKey};
use crate::env::{self, Instant};
use crate::lease::{Lease, PERMANENT};

impl Cluster {
    pub(super) async fn take_permits(
        self: &Arc<Self>,
        hold_key: &HoldKey,
        lease: Lease,
    ) -> Result<Taken, StoreError> {
        let (link, begun) = (self.link()?, env::now());
        let span = keys::all(&hold_key.resource);
        let mut unused: Option<Unused> = None;
        loop {
            let state = State::read(&link, &[&span]).await?;
            let permits = Permits::parse(&hold_key.resource, &state)?;
            if permits.has(hold_key) {
                return Ok(Taken::CountDiffers);
            }
            if !permits.is_free(hold_key) {
                return Ok(Taken::Busy(Busy::default()));
            }
            let (ends, id) = match (lease, &unused) {
                (Lease::Kept(length), _) => (Ends::Kept(length), link.client.lease),
                (Lease::Fixed(PERMANENT), _) => (Ends::Never, 0),
                (Lease::Fixed(length), Some(unused)) => (Ends::After(length), unused.id()),
                (Lease::Fixed(length), None) => {
                    unused = Some(self.grant(&link, begun, length).await?);
                    continue;
                }
            };
            let mut step = permits.take(hold_key, ends, id);
            step.push(self.record(&link, hold_key.owner.client));
            let made = step.make_recorded(&link).await;
            if !matches!(made, Ok(None)) {
                // If there is no reply, they may be taken.
                unused.take().into_iter().for_each(Unused::keep);
            }
            if let Some(revision) = made? {
                let session = self.holds(&link, hold_key, (key_of(hold_key), revision), None);
                if let Ends::Kept(_) = ends {
                    return Ok(Taken::Bound(None, session));
                }
                if let Some(place) = self.places.lock().get(hold_key) {
                    place.outlasts = true;
                }
                return Ok(Taken::Granted(None));
            }
        }
    }

    /// Releases what is left of a hold.
    pub(super) async fn give_permits(self: &Arc<Self>, hold_key: &HoldKey) -> Result<Given, StoreError> {
        let link = self.link()?;
        self.holds_no_more(&link, hold_key);
        let mut count = 0;
        loop {
            let runs = runs(&link, hold_key).await?;
            if runs.is_empty() {
                return Ok(given(count == hold_key.amount));
            }
            let (mut step, some) = (Step::default(), &runs[..runs.len().min(MOST)]);
            for run in some {
                step.remove(&run.key);
            }
            if step.make(&link).await?.is_some() {
                count += some.iter().map(Run::count).sum::<u32>();
                self.end_leases(some.iter().filter_map(Run::own_lease).collect::<BTreeSet<_>>());
            }
        }
    }

    /// Whether all permits of a hold with a lease of its own are taken. If so, they are for at least `length` from now.
    pub(super) async fn renew_permits(
        self: &Arc<Self>,
        hold_key: &HoldKey,
        length: Duration,
    ) -> Result<Verdict, StoreError> {
        let (link, begun) = (self.link()?, env::now());
        let mut unused: Option<Unused> = None;
        loop {
            let runs = runs(&link, hold_key).await?;
            if runs.iter().map(Run::count).sum::<u32>() != hold_key.amount {
                self.holds_no_more(&link, hold_key);
                return Ok(Verdict::Gone);
            }
            // Of a lease that another client ends, this one knows only how long it may be.
            let longest = |run: &Run| match (run.ends(), self.timers.ends(run.key.lease)) {
                (Ends::After(_), Some(ends)) => Some(length).filter(|length| ends < begun + *length),
                // A check without a length leaves it.
                (Ends::After(longest), None) => Some(length.max(longest)).filter(|_| !length.is_zero()),
                _ => None,
            };
            let shorter: Vec<_> = runs.iter().filter(|run| longest(run).is_some()).collect();
            let Some(length) = runs.iter().filter_map(longest).max().filter(|_| !length.is_zero()) else {
                return Ok(Verdict::Held);
            };
            if self.move_to(&link, &shorter, begun, length, &mut unused).await? {
                return Ok(Verdict::Held);
            }
        }
    }

    /// The permits of a hold have no guard any more: those that were kept last for one more lease.
    pub(super) async fn detach_permits(self: &Arc<Self>, hold_key: &HoldKey) -> Result<(), StoreError> {
        let (link, begun) = (self.link()?, env::now());
        self.holds_no_more(&link, hold_key);
        let mut unused: Option<Unused> = None;
        loop {
            let runs = runs(&link, hold_key).await?;
            let kept = |run: &Run| match run.ends() {
                Ends::Kept(length) => Some(length),
                _ => None,
            };
            let Some(length) = runs.iter().find_map(kept) else { return Ok(()) };
            let kept: Vec<_> = runs.iter().filter(|run| kept(run).is_some()).collect();
            if self.move_to(&link, &kept, begun, length, &mut unused).await? {
                return Ok(());
            }
        }
    }

    /// The guard of permits is gone, and they stay taken for `rest` from now. False if none of them were.
    pub(super) async fn abandon_permits(
        self: &Arc<Self>,
        hold_key: &HoldKey,
        rest: Duration,
    ) -> Result<bool, StoreError> {
        let (link, begun) = (self.link()?, env::now());
        self.holds_no_more(&link, hold_key);
        let mut unused: Option<Unused> = None;
        loop {
            let runs = runs(&link, hold_key).await?;
            if runs.is_empty() {
                return Ok(false);
            }
            let all: Vec<_> = runs.iter().collect();
            if self.move_to(&link, &all, begun, rest, &mut unused).await? {
                return Ok(true);
            }
        }
    }

    /// Moves permits to a lease that ends so long after `begun`, perhaps to one that an earlier attempt has left unused; false if they
    /// were changed before.
    async fn move_to(
        self: &Arc<Self>,
        link: &Arc<Link>,
        runs: &[&Run],
        begun: Instant,
        length: Duration,
        unused: &mut Option<Unused>,
    ) -> Result<bool, StoreError> {
        let lease = match unused.take() {
            Some(unused) => unused,
            None => self.grant(link, begun, length).await?,
        };
        let mut step = Step::default();
        for run in runs {
            step.expect(&run.key.key, Some(&run.key));
            step.put(&run.key.key, Ends::After(length).format(), lease.id());
        }
        match step.make(link).await {
            Ok(None) => {
                *unused = Some(lease);
                Ok(false)
            }
            // If there is no reply, they may have been moved.
            made => {
                lease.keep();
                made?;
                self.end_leases(runs.iter().filter_map(|run| run.own_lease()).collect::<BTreeSet<_>>());
                Ok(true)
            }
        }
    }

    /// How many milliseconds are left of the lease of a permit: -1 if it has none, -2 if it is not taken.
    pub(super) async fn rest_of(&self, link: &Link, run: Option<&Run>) -> Result<i64, StoreError> {
        let Some(run) = run else { return Ok(-2) };
        let length = match run.ends() {
            Ends::Never => return Ok(-1),
            Ends::Kept(length) => return Ok(milliseconds(length)),
            Ends::After(length) => length,
        };
        if let Some(ends) = self.timers.ends(run.key.lease) {
            return Ok(milliseconds(ends.saturating_duration_since(env::now())).max(1));
        }
        // The server knows whole seconds, and has rounded the length up.
        let lives: Lives = link.call(calls::TIME_TO_LIVE, LeaseId { id: run.key.lease }).await?;
        if lives.ttl < 0 {
            return Ok(-2);
        }
        Ok(milliseconds(Duration::from_secs(lives.ttl.unsigned_abs()).min(length)).max(1))
    }
}

/// The permits of a hold that are still taken.
async fn runs(link: &Link, hold_key: &HoldKey) -> Result<Vec<Run>, StoreError> {
    Ok(runs_in(&hold_key.resource, &find(link, &span_of(hold_key)).await?))
}

fn milliseconds(length: Duration) -> i64 {
    i64::try_from(length.as_millis()).unwrap_or(i64::MAX)
}
