//! What a change makes of the number of a semaphore or a latch: no request and no state.

use std::time::Duration;

use crate::engine::{Adjust, Kind};

/// The number after a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Next {
    Same,
    Is(i64, Until),
    Gone,
}

/// How long a number stays.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Until {
    /// As long as before.
    Same,
    Deleted,
    After(Duration),
}

/// The result of a change, and the number after it. There is none before if it is not set.
pub(super) fn changed(kind: Kind, adjust: &Adjust, before: Option<i64>) -> (i64, Next) {
    match (kind, adjust, before) {
        (_, Adjust::Delete, _) => {
            (before.is_some().into(), if before.is_some() { Next::Gone } else { Next::Same })
        }
        (_, Adjust::TrySet { count, ttl }, None) => {
            (1, Next::Is((*count).into(), ttl.map_or(Until::Deleted, Until::After)))
        }
        (Kind::Latch, Adjust::CountDown, Some(before)) if before > 1 => {
            (before - 1, Next::Is(before - 1, Until::Same))
        }
        (Kind::Latch, Adjust::CountDown, Some(_)) => (0, Next::Gone),
        (Kind::Semaphore, Adjust::Add(permits), before) => {
            let sum = before.unwrap_or_default().saturating_add((*permits).into());
            (sum, Next::Is(sum, Until::Deleted))
        }
        (Kind::Semaphore, Adjust::Give { count, .. }, Some(before)) => {
            (1, Next::Is(before.saturating_add((*count).into()), Until::Same))
        }
        (Kind::Semaphore, Adjust::Give { count, create: true }, None) => {
            (1, Next::Is((*count).into(), Until::Deleted))
        }
        (Kind::Semaphore, Adjust::Drain, Some(before)) => (before, Next::Is(0, Until::Deleted)),
        _ => (0, Next::Same),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_change_has_its_result_and_its_next_number() {
        use Next::{Gone, Is, Same};
        let set = |count| Adjust::TrySet { count, ttl: None };
        let give = |create| Adjust::Give { count: 2, create };
        for (kind, adjust, before, expected) in [
            (Kind::Latch, set(3), None, (1, Is(3, Until::Deleted))),
            (Kind::Latch, set(3), Some(1), (0, Same)),
            (Kind::Latch, Adjust::CountDown, Some(2), (1, Is(1, Until::Same))),
            (Kind::Latch, Adjust::CountDown, Some(1), (0, Gone)),
            (Kind::Latch, Adjust::CountDown, Some(0), (0, Gone)),
            (Kind::Latch, Adjust::CountDown, None, (0, Same)),
            (Kind::Semaphore, Adjust::Add(-5), Some(2), (-3, Is(-3, Until::Deleted))),
            (Kind::Semaphore, give(false), None, (0, Same)),
            (Kind::Semaphore, give(true), None, (1, Is(2, Until::Deleted))),
            (Kind::Semaphore, give(false), Some(-1), (1, Is(1, Until::Same))),
            (Kind::Semaphore, Adjust::Drain, Some(7), (7, Is(0, Until::Deleted))),
            (Kind::Semaphore, Adjust::Delete, Some(7), (1, Gone)),
            (Kind::Semaphore, Adjust::Delete, None, (0, Same)),
        ] {
            assert_eq!(changed(kind, &adjust, before), expected, "{kind:?} {adjust:?} {before:?}");
        }
    }
}
