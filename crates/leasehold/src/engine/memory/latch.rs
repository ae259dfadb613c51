//! The count-down latch in memory.

use std::sync::Arc;
use std::time::Duration;

use super::slot::Machine;
use crate::client_id::ClientId;
use crate::engine::aftermath::Aftermath;
use crate::engine::line::Line;
use crate::engine::{Adjust, Attempt, Claim, Holding, Released, Renewed, Spot, Target, Ticket};
use crate::lease::Lease;
use crate::owner::OwnerId;
use crate::term::Term;
use crate::time::Now;

#[derive(Debug, Default)]
pub(super) struct Latch {
    /// None when it was never set, or has been opened.
    count: Option<u32>,
    line: Line,
}

impl Machine for Latch {
    fn is_used(&self) -> bool {
        !self.line.is_empty()
    }

    fn is_idle(&self) -> bool {
        !self.is_used() && self.count.is_none()
    }

    fn adjust(&mut self, adjust: &Adjust, _now: &Now) -> (i64, Aftermath) {
        let nothing = Aftermath::default();
        match *adjust {
            Adjust::TrySet { .. } if self.count.is_some() => (0, nothing),
            Adjust::TrySet { count, .. } => {
                self.count = Some(count);
                (1, nothing)
            }
            Adjust::CountDown => {
                self.count = self.count.and_then(|count| count.checked_sub(1)).filter(|left| *left > 0);
                let left = self.count.unwrap_or(0);
                (left.into(), if left == 0 { self.open() } else { nothing })
            }
            Adjust::Delete => (self.count.take().is_some().into(), self.open()),
            Adjust::Count => (self.count.unwrap_or(0).into(), nothing),
            _ => unreachable!("that is for a semaphore"),
        }
    }

    fn line(&mut self, _target: &Target) -> &mut Line {
        &mut self.line
    }

    fn lines(&mut self) -> Vec<&mut Line> {
        vec![&mut self.line]
    }

    fn attempt(&mut self, _claim: &Claim, _turn: Option<Ticket>, _now: &Now) -> (Attempt, Aftermath) {
        unreachable!("a latch is not held")
    }

    fn release(&mut self, _spot: &Spot, _from: u32, _lease: Lease, _now: &Now) -> (Released, Aftermath) {
        unreachable!("a latch is not held")
    }

    fn force(&mut self, _target: &Target, _now: &Now) -> (bool, Aftermath) {
        unreachable!("a latch is not held")
    }

    fn renew(&mut self, _spot: &Spot, _length: Duration, _now: &Now) -> (Renewed, Aftermath) {
        unreachable!("a latch is not held")
    }

    fn abandon(&mut self, _spot: &Spot, _count: u32, _now: &Now) -> Aftermath {
        unreachable!("a latch is not held")
    }

    fn term(&self, _spot: &Spot) -> Option<Arc<Term>> {
        None
    }

    fn query(
        &mut self,
        _target: &Target,
        _owner: Option<OwnerId>,
        _now: &Now,
    ) -> (Option<Holding>, Aftermath) {
        unreachable!("a latch is not held")
    }

    fn retire(&mut self, _client: ClientId, _now: &Now) -> (usize, Aftermath) {
        (0, Aftermath::default())
    }

    #[cfg(feature = "test-util")]
    fn remove(&mut self, _now: &Now) -> (bool, Aftermath) {
        (self.count.take().is_some(), self.open())
    }
}

impl Latch {
    /// Lets everybody look.
    fn open(&mut self) -> Aftermath {
        Aftermath::waking(self.line.hint_all())
    }
}
