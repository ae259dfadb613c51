//! When the command has to end, so that it is dead before another owner can acquire the lock.

use std::time::Duration;

use tokio::time::sleep;

use super::clock;
use super::held::Held;

/// The plan for a lock that is no longer renewed: a request to end, then a kill, then the deadline.
///
/// All times count back from the guard's own deadline, which already lies a safety margin before the server's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Plan {
    /// SIGTERM when no more than this is left; none if it is not more than `kill`.
    pub(super) term: Duration,
    /// SIGKILL when no more than this is left: the time that killing and dying take, even on a busy machine.
    pub(super) kill: Duration,
    /// The deadline of the warden, in case we cannot kill the command ourselves. See [`Warden`](super::warden::Warden).
    pub(super) last: Duration,
    /// How often to check whether the deadline has moved.
    pub(super) check_every: Duration,
    /// How much earlier than expected a deadline by `max_hold` may be: the safety margin, and the time from the request for
    /// the lock to the reply that grants it.
    pub(super) slack: Duration,
    /// The lock has no deadline, so neither has the command.
    endless: bool,
}

/// The least time between the kill and the deadline, unless the lease is too short for that.
const SHORTEST_DEATH: Duration = Duration::from_millis(100);
/// The longest time between two checks.
const LONGEST_CHECK: Duration = Duration::from_secs(1);

impl Plan {
    /// The shortest lease that leaves time for a request to end and for dying.
    pub(crate) const SHORTEST_LEASE: Duration = Duration::from_millis(200);
    /// The grace unless it is given.
    pub(super) const GRACE: Duration = Duration::from_secs(2);

    /// The plan for a lock that has a deadline: that of a lease, which this process has to renew, or of `max_hold`.
    pub(super) fn new(lease: Duration, max_hold: Option<Duration>, grace: Duration) -> Self {
        let shortest = shortest(lease, max_hold);
        // A healthy lease never falls below two thirds, so an early kill costs time only in an outage.
        let kill = (shortest / 30).max(SHORTEST_DEATH).min(shortest / 6);
        let term = grace.min(longest_grace(lease, max_hold));
        let check_every = (lease / 6).min(LONGEST_CHECK);
        Self { term, kill, last: kill / 2, check_every, slack: lease / 3, endless: false }
    }

    /// The plan for a lock that is kept while this process lives, even stopped, and that has no `max_hold`.
    pub(super) fn endless(lease: Duration) -> Self {
        Self { endless: true, ..Self::new(lease, None, Self::GRACE) }
    }

    /// When a command under this guard must be dead at the latest, counted from the start of the machine. `None` if the
    /// lock has no deadline.
    pub(super) fn latest(&self, guard: &Held) -> Option<Duration> {
        // In this order: a pause in between makes it earlier, not later.
        let now = clock::since_boot();
        (!self.endless).then(|| now.saturating_add(guard.remaining().saturating_sub(self.last)))
    }

    /// Whether the command receives SIGTERM before it is killed.
    pub(super) fn asks_first(&self) -> bool {
        self.term > self.kill
    }
}

/// The longest grace that makes sense. A lease is renewed when a third of it is over, so that a healthy one never
/// has less than two thirds left: below one third there is no doubt.
pub(super) fn longest_grace(lease: Duration, max_hold: Option<Duration>) -> Duration {
    shortest(lease, max_hold) / 3
}

fn shortest(lease: Duration, max_hold: Option<Duration>) -> Duration {
    max_hold.map_or(lease, |max_hold| lease.min(max_hold))
}

/// Resolves when the guard has more than half of the longest possible time left, or has lost the lock.
///
/// A lock that was granted by a late reply may have little time left until it is renewed, which happens at once. A command
/// that began before that would be ended needlessly.
pub(super) async fn fresh(guard: &Held, lease: Duration, max_hold: Option<Duration>) {
    let half = shortest(lease, max_hold) / 2;
    while guard.is_held() && guard.remaining() < half {
        sleep(Duration::from_millis(1)).await;
    }
}

/// Resolves when the guard has no more than `limit` left, at once if it already has no more.
///
/// Renewals move the deadline during the sleep, so it checks again after each sleep.
pub(super) async fn falls_to(guard: &Held, limit: Duration) {
    loop {
        let left = guard.remaining().saturating_sub(limit);
        if left.is_zero() {
            return;
        }
        sleep(left).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(lease: u64, max_hold: Option<u64>, grace: u64) -> (u64, u64) {
        let ms = Duration::from_millis;
        let plan = Plan::new(ms(lease), max_hold.map(ms), ms(grace));
        assert!(plan.last < plan.kill && plan.kill * 6 <= shortest(ms(lease), max_hold.map(ms)));
        let ms = |time: Duration| u64::try_from(time.as_millis()).unwrap();
        (ms(plan.term), ms(plan.kill))
    }

    #[test]
    fn the_stop_request_comes_one_grace_before_the_deadline_and_the_kill_follows() {
        assert_eq!(plan(30_000, None, 2000), (2000, 1000));
        assert_eq!(plan(3_600_000, None, 600_000), (600_000, 120_000));
    }

    #[test]
    fn the_grace_is_never_more_than_a_third_of_the_lease() {
        assert_eq!(plan(1000, None, 2000), (333, 100));
        assert_eq!(plan(30_000, Some(3000), 2000), (1000, 100));
        assert_eq!(plan(1000, Some(7_200_000), 2000), (333, 100));
    }

    #[test]
    fn the_shortest_lease_has_room_for_the_stop_request_and_the_kill() {
        let shortest = u64::try_from(Plan::SHORTEST_LEASE.as_millis()).unwrap();
        assert_eq!(plan(shortest, None, 2000), (66, 33));
    }

    #[test]
    fn without_grace_the_command_is_killed_without_a_stop_request() {
        let plan = |grace| Plan::new(Duration::from_secs(1), None, Duration::from_millis(grace));
        assert!(!plan(0).asks_first());
        assert!(!plan(100).asks_first());
        assert!(plan(101).asks_first());
    }

    #[tokio::test]
    async fn a_command_under_a_lock_without_a_deadline_has_none() {
        let client = leasehold::Client::connect("memory:").await.unwrap();
        let guard = client.lock("x").acquire().await.unwrap().into();
        let lease = Duration::from_secs(30);
        assert!(Plan::new(lease, None, Plan::GRACE).latest(&guard).is_some());
        assert_eq!(Plan::endless(lease).latest(&guard), None);
    }

    #[tokio::test(start_paused = true)]
    async fn the_wait_for_a_lease_to_fall_to_a_limit_ends_at_that_limit() {
        let client = leasehold::Client::connect("memory:").await.unwrap();
        let lease = Duration::from_secs(10);
        let guard = client.lock("x").acquire().lease(lease).await.unwrap().into();
        falls_to(&guard, Duration::from_secs(3)).await;
        let left = guard.remaining();
        assert!(left <= Duration::from_secs(3) && left > Duration::from_millis(2900), "{left:?}");
    }
}
