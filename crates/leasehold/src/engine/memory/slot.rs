//! The memory engine's state of one name.

use super::group::Group;
use super::latch::Latch;
use super::lock::Lock;
use super::permits::Permits;
use super::primitive::{Counted, Exclusive, Holdable, Waited};
use super::rw::Rw;
use super::semaphore::Semaphore;
use crate::engine::Family;

/// The state of one family under one name.
#[derive(Debug)]
pub(super) enum Slot {
    Lock(Lock),
    /// Boxed like all others: the plain lock, of which there are most, need not be as large as the largest.
    Rw(Box<Rw>),
    Group(Box<Group>),
    Semaphore(Box<Semaphore>),
    Permits(Box<Permits>),
    Latch(Box<Latch>),
}

impl Slot {
    pub(super) fn new(family: Family) -> Self {
        match family {
            Family::Lock | Family::SetNx => Self::Lock(Lock::default()),
            Family::Rw => Self::Rw(Box::default()),
            Family::Group => Self::Group(Box::default()),
            Family::Semaphore => Self::Semaphore(Box::default()),
            Family::LeasedSemaphore => Self::Permits(Box::default()),
            Family::Latch => Self::Latch(Box::default()),
        }
    }

    pub(super) fn waited(&mut self) -> &mut dyn Waited {
        match self {
            Self::Lock(lock) => lock,
            Self::Rw(rw) => rw.as_mut(),
            Self::Group(group) => group.as_mut(),
            Self::Semaphore(semaphore) => semaphore.as_mut(),
            Self::Permits(permits) => permits.as_mut(),
            Self::Latch(latch) => latch.as_mut(),
        }
    }

    /// None for primitives that are not held.
    pub(super) fn holdable(&mut self) -> Option<&mut dyn Holdable> {
        Some(match self {
            Self::Lock(lock) => lock,
            Self::Rw(rw) => rw.as_mut(),
            Self::Group(group) => group.as_mut(),
            Self::Semaphore(semaphore) => semaphore.as_mut(),
            Self::Permits(permits) => permits.as_mut(),
            Self::Latch(_) => return None,
        })
    }

    /// None for primitives without exclusive holders.
    pub(super) fn exclusive(&mut self) -> Option<&mut dyn Exclusive> {
        Some(match self {
            Self::Lock(lock) => lock,
            Self::Rw(rw) => rw.as_mut(),
            Self::Group(group) => group.as_mut(),
            Self::Semaphore(_) | Self::Permits(_) | Self::Latch(_) => return None,
        })
    }

    /// None for primitives without a count.
    pub(super) fn counted(&mut self) -> Option<&mut dyn Counted> {
        Some(match self {
            Self::Semaphore(semaphore) => semaphore.as_mut(),
            Self::Permits(permits) => permits.as_mut(),
            Self::Latch(latch) => latch.as_mut(),
            Self::Lock(_) | Self::Rw(_) | Self::Group(_) => return None,
        })
    }
}
