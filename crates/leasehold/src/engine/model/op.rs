//! The steps of a case, and how they are drawn.

use std::time::Duration;

use proptest::prelude::*;

use crate::engine::{Family, Kind};
use crate::lease::Lease;

/// Clients, and owners of each.
pub(super) const CLIENTS: usize = 3;
pub(super) const OWNERS: usize = 2 * CLIENTS;
/// Names of a case, each of a family of its own: on a server two families cannot share one.
pub(super) const NAMES: usize = 2;

/// A list of steps, on names of these families.
#[derive(Debug, Clone)]
pub(super) struct Case {
    pub(super) families: [Family; NAMES],
    pub(super) ops: Vec<Op>,
}

/// The subject of one step: owner `who`, or a client that owns nothing, at one of the names.
#[derive(Debug, Clone, Copy)]
pub(super) struct At {
    pub(super) who: usize,
    pub(super) name: usize,
    /// Which kind of the name's family, or which set of a group.
    pub(super) pick: usize,
}

#[derive(Debug, Clone)]
pub(super) enum Op {
    /// Tries once; re-enters a hold.
    Try(At, How),
    /// Tries once to acquire the plain locks of all names, all or none.
    TryAll(At, How),
    /// Tries, and joins the wait queue if the lock is busy.
    Wait(At, How),
    /// Leaves the wait queue without the lock.
    GiveUp(At),
    Release(At),
    /// All of it or one count.
    Undo(At, bool),
    Renew(At, Length),
    Force(At),
    LetGo(At),
    Adjust(At, Count),
    /// Seconds.
    Advance(u64),
    /// A client is gone: it leaves its wait queues, and its holds expire.
    Die(usize),
}

/// The options of an attempt.
#[derive(Debug, Clone, Copy)]
#[expect(clippy::struct_excessive_bools, reason = "each of them can be set independently")]
pub(super) struct How {
    pub(super) length: Length,
    pub(super) amount: u32,
    pub(super) steal: bool,
    pub(super) fenced: bool,
    pub(super) upgrade: bool,
    pub(super) prefer_writers: bool,
}

/// The operation on a counter, where its family supports it.
#[derive(Debug, Clone, Copy)]
pub(super) enum Count {
    TrySet(u32, bool),
    Set(u32),
    Add(i32),
    Give(u32, bool),
    GiveIds(bool),
    SetLease(Length),
    Drain,
    Down,
    Delete,
}

/// A length of which no multiple of a second is the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Length {
    Short,
    Middle,
    Long,
    /// As long as the owner lives.
    Kept,
}

/// Longer than any step of the time, so that a living client renews in time.
pub(super) const KEPT: Duration = Duration::from_millis(20_500);

impl Length {
    pub(super) fn time(self) -> Duration {
        Duration::from_millis(match self {
            Self::Short => 1_500,
            Self::Middle => 4_500,
            Self::Long => 12_500,
            Self::Kept => return KEPT,
        })
    }

    pub(super) fn lease(self) -> Lease {
        match self {
            Self::Kept => Lease::Kept(KEPT),
            fixed => Lease::Fixed(fixed.time()),
        }
    }
}

/// The values of a group, and the sets of them that an owner may request.
pub(super) const VALUES: [&str; 3] = ["a", "b", "c"];
pub(super) const SETS: [&[&str]; 6] = [&["a"], &["b"], &["a", "b"], &["c"], &["b", "c"], &["a", "b", "c"]];

/// Which kinds a family has.
pub(super) fn kinds(family: Family) -> &'static [Kind] {
    match family {
        Family::Lock => &[Kind::Lock, Kind::Fair, Kind::Spin],
        Family::SetNx => &[Kind::SetNx],
        Family::Rw => &[Kind::Read, Kind::Write],
        Family::Semaphore => &[Kind::Semaphore],
        Family::LeasedSemaphore => &[Kind::LeasedSemaphore],
        Family::Group => &[Kind::Group],
        Family::Latch => &[Kind::Latch],
    }
}

pub(super) fn case() -> impl Strategy<Value = Case> {
    // The more operations a family has, the more often it is drawn.
    let family = || {
        prop_oneof![
            4 => Just(Family::Lock),
            4 => Just(Family::Rw),
            3 => Just(Family::Group),
            3 => Just(Family::LeasedSemaphore),
            2 => Just(Family::Semaphore),
            1 => Just(Family::SetNx),
            1 => Just(Family::Latch),
        ]
    };
    let ops = proptest::collection::vec(op(), 1..=60);
    ([family(), family()], ops).prop_map(|(families, ops)| Case { families, ops })
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        24 => (at(), how()).prop_map(|(at, how)| Op::Try(at, how)),
        2 => (at(), how()).prop_map(|(at, how)| Op::TryAll(at, how)),
        12 => (at(), how()).prop_map(|(at, how)| Op::Wait(at, how)),
        3 => at().prop_map(Op::GiveUp),
        18 => at().prop_map(Op::Release),
        5 => (at(), any::<bool>()).prop_map(|(at, all)| Op::Undo(at, all)),
        6 => (at(), length()).prop_map(|(at, length)| Op::Renew(at, length)),
        2 => at().prop_map(Op::Force),
        2 => at().prop_map(Op::LetGo),
        14 => (at(), count()).prop_map(|(at, count)| Op::Adjust(at, count)),
        8 => prop_oneof![Just(1), Just(2), Just(3), Just(5), Just(10)].prop_map(Op::Advance),
        1 => (0..CLIENTS).prop_map(Op::Die),
    ]
}

fn at() -> impl Strategy<Value = At> {
    (0..OWNERS, 0..NAMES, 0..6_usize).prop_map(|(who, name, pick)| At { who, name, pick })
}

fn length() -> impl Strategy<Value = Length> {
    prop_oneof![
        3 => Just(Length::Short),
        2 => Just(Length::Middle),
        2 => Just(Length::Long),
        3 => Just(Length::Kept),
    ]
}

fn how() -> impl Strategy<Value = How> {
    let seldom = || proptest::bool::weighted(0.1);
    let often = || proptest::bool::weighted(0.3);
    (length(), 1..=3_u32, seldom(), often(), often(), any::<bool>()).prop_map(
        |(length, amount, steal, fenced, upgrade, prefer_writers)| How {
            length,
            amount,
            steal,
            fenced,
            upgrade,
            prefer_writers,
        },
    )
}

fn count() -> impl Strategy<Value = Count> {
    prop_oneof![
        4 => (0..=4_u32, proptest::bool::weighted(0.4)).prop_map(|(count, ends)| Count::TrySet(count, ends)),
        1 => (0..=5_u32).prop_map(Count::Set),
        2 => (-2..=3_i32).prop_map(Count::Add),
        1 => (1..=2_u32, any::<bool>()).prop_map(|(count, create)| Count::Give(count, create)),
        2 => any::<bool>().prop_map(Count::GiveIds),
        2 => length().prop_map(Count::SetLease),
        1 => Just(Count::Drain),
        3 => Just(Count::Down),
        1 => Just(Count::Delete),
    ]
}
