//! The count-down latch in memory.

use super::primitive::{Counted, Waited};
use crate::engine::aftermath::Aftermath;
use crate::engine::wait_queue::WaitQueue;
use crate::engine::{Adjust, HoldKey, Resource, Ticket};
use crate::env::Now;

#[derive(Debug, Default)]
pub(super) struct Latch {
    /// None when it was never set, or has been opened.
    count: Option<u32>,
    wait_queue: WaitQueue,
}

impl Waited for Latch {
    fn is_used(&self) -> bool {
        !self.wait_queue.is_empty()
    }

    fn is_idle(&self) -> bool {
        !self.is_used() && self.count.is_none()
    }

    fn wait_queue(&mut self, _resource: &Resource) -> &mut WaitQueue {
        &mut self.wait_queue
    }

    fn wait_queues(&mut self) -> Vec<&mut WaitQueue> {
        vec![&mut self.wait_queue]
    }

    fn leave(&mut self, _key: &HoldKey, ticket: Ticket) -> Aftermath {
        self.wait_queue.leave(ticket, false)
    }
}

impl Counted for Latch {
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
            Adjust::Exists => (self.count.is_some().into(), nothing),
            _ => (0, nothing),
        }
    }
}

impl Latch {
    /// Wakes all waiters.
    fn open(&mut self) -> Aftermath {
        Aftermath::waking(self.wait_queue.notify_all())
    }
}
