//! A record of who held a lock and until when each guard was trusted, and its judge.
//!
//! All times are those of one clock, which all processes of the machine share. Each is recorded so that an error of the record can
//! only hide a violation: a grant when the caller has it, a deadline a little too early, a release before it is requested.

use std::fmt;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use leasehold::Guard;
use rustix::time::{ClockId, clock_gettime};

/// The time by the clock of the machine.
pub(crate) fn now() -> Duration {
    let now = clock_gettime(ClockId::Monotonic);
    let part = |number: i64| u64::try_from(number).expect("the clock began at zero");
    Duration::new(part(now.tv_sec), u32::try_from(now.tv_nsec).expect("less than a second"))
}

/// The deadline of a guard, if it is held.
pub(crate) fn deadline(guard: &Guard) -> Option<Duration> {
    let now = now();
    let remaining = guard.remaining();
    (guard.is_held() && !remaining.is_zero()).then(|| now + remaining)
}

/// The holds of one lock.
#[derive(Debug, Default)]
pub(crate) struct Record(Mutex<Vec<Hold>>);

/// One hold. The default one has no owner, and began with the clock.
#[derive(Debug, Clone, Default)]
struct Hold {
    owner: String,
    granted: Duration,
    /// The last of its deadlines.
    deadline: Duration,
    released: Option<Duration>,
}

/// The place of a hold in its record.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Number(usize);

impl Record {
    /// A lock was granted; none if its guard is lost already.
    pub(crate) fn granted(&self, owner: &str, guard: &Guard) -> Option<Number> {
        let deadline = deadline(guard)?;
        Some(self.granted_at(owner, now(), deadline))
    }

    /// The same at another time, with its first deadline.
    pub(crate) fn granted_at(&self, owner: &str, granted: Duration, deadline: Duration) -> Number {
        let mut holds = self.holds();
        holds.push(Hold { owner: owner.to_owned(), granted, deadline, released: None });
        Number(holds.len() - 1)
    }

    /// The guard was trusted until this deadline.
    pub(crate) fn trusted(&self, Number(number): Number, deadline: Duration) {
        let hold = &mut self.holds()[number];
        hold.deadline = hold.deadline.max(deadline);
    }

    /// The lock is about to be released.
    pub(crate) fn releases(&self, number: Number) {
        self.releases_at(number, now());
    }

    /// The same at another time.
    pub(crate) fn releases_at(&self, Number(number): Number, at: Duration) {
        self.holds()[number].released.get_or_insert(at);
    }

    /// Pairs of holds of which the second was granted while the first guard was trusted and its owner had not released.
    pub(crate) fn violations(&self) -> Vec<String> {
        let mut holds = self.holds().clone();
        holds.sort_by_key(|hold| hold.granted);
        let mut violations = Vec::new();
        for (number, one) in holds.iter().enumerate() {
            let is_before = |other: &Hold| one.released.is_some_and(|released| released <= other.granted);
            let too_early = holds[number + 1..].iter().take_while(|other| other.granted <= one.deadline);
            let too_early = too_early.filter(|other| !is_before(other));
            violations.extend(too_early.map(|other| format!("{one} beside {other}")));
        }
        violations
    }

    fn holds(&self) -> std::sync::MutexGuard<'_, Vec<Hold>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Display for Hold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { owner, granted, deadline, released } = self;
        write!(f, "{owner} (granted {granted:?}, until {deadline:?}, released {released:?})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    /// Holds with their grants, deadlines and releases.
    fn violations(holds: &[(u32, &[u32], Option<u32>)]) -> usize {
        let record = Record::default();
        for (granted, deadlines, released) in holds {
            let number = record.granted_at("one", SECOND * *granted, SECOND * deadlines[0]);
            deadlines.iter().for_each(|deadline| record.trusted(number, SECOND * *deadline));
            released.inspect(|at| record.releases_at(number, SECOND * *at));
        }
        record.violations().len()
    }

    #[test]
    fn a_grant_after_a_release_or_after_all_deadlines_is_none() {
        assert_eq!(violations(&[(1, &[9], Some(3)), (3, &[9], Some(4)), (5, &[9], None)]), 0);
        assert_eq!(violations(&[(1, &[3, 4], None), (5, &[9], None)]), 0);
        assert_eq!(violations(&[(1, &[3], Some(8)), (5, &[9], None)]), 0, "it was released late");
    }

    #[test]
    fn a_grant_before_any_deadline_of_another_is_a_violation() {
        assert_eq!(violations(&[(1, &[5], None), (4, &[9], None)]), 1);
        assert_eq!(
            violations(&[(4, &[9], None), (1, &[5], None)]),
            1,
            "in whichever order they are recorded"
        );
        assert_eq!(violations(&[(1, &[3, 6, 4], None), (5, &[9], None)]), 1, "an earlier one may be later");
        assert_eq!(violations(&[(1, &[5], Some(5)), (4, &[9], None)]), 1, "it was released too late");
        assert_eq!(
            violations(&[(1, &[9], None), (2, &[3], Some(3)), (4, &[9], None)]),
            2,
            "not only the next"
        );
    }
}
