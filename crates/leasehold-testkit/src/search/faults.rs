//! The faults of a round, and their schedule.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use super::history::History;
use crate::dice::Dice;
use crate::proxy::{Proxy, Which};

/// A fault between one client and the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// Nothing passes.
    Freeze(Which),
    /// All connections are closed; new ones work.
    Cut(Which),
    /// The next reply is lost with its connection.
    LoseReply,
    /// The first reply to each command is lost with its connection.
    LoseEachReply,
    /// Commands pass, replies do not.
    Swallow(Which),
    /// Nothing passes on the current connections; new ones work.
    HalfOpen(Which),
    /// All connections are closed, new ones refused.
    Refuse,
    /// Replies are late.
    Delay(Duration),
    /// No published message arrives.
    DropMessages,
}

impl Fault {
    pub(super) fn begin(self, proxy: &Proxy) {
        match self {
            Self::Freeze(which) => proxy.blackhole(which),
            Self::Cut(which) => proxy.cut(which),
            Self::LoseReply => proxy.lose_reply_once(Which::Command),
            Self::LoseEachReply => proxy.lose_each_reply_once(Which::Command),
            Self::Swallow(which) => proxy.hold_replies(which),
            Self::HalfOpen(which) => proxy.half_open(which),
            Self::Refuse => proxy.refuse(),
            Self::Delay(time) => proxy.delay(Which::All, time),
            Self::DropMessages => proxy.drop_messages(),
        }
    }

    fn any(dice: &mut Dice) -> Self {
        let which = dice.one_of(&[Which::All, Which::All, Which::Command, Which::PubSub]);
        match dice.roll(9) {
            0 => Self::Freeze(which),
            1 => Self::Cut(which),
            2 => Self::LoseReply,
            3 => Self::LoseEachReply,
            4 => Self::Swallow(which),
            5 => Self::HalfOpen(which),
            6 => Self::Refuse,
            7 => Self::Delay(dice.between(Duration::from_millis(1), Duration::from_millis(40))),
            _ => Self::DropMessages,
        }
    }
}

/// A fault, when it begins after the one before it has ended, and how long it lasts.
#[derive(Clone, Copy, Debug)]
pub(super) struct Act {
    fault: Fault,
    pause: Duration,
    lasts: Duration,
}

/// Faults of one client that together take no longer than `length`.
pub(super) fn script(dice: &mut Dice, length: Duration) -> Vec<Act> {
    let mut acts = Vec::new();
    let mut left = length;
    loop {
        let act = Act {
            fault: Fault::any(dice),
            pause: dice.between(Duration::from_millis(20), Duration::from_millis(400)),
            lasts: dice.between(Duration::from_millis(10), Duration::from_millis(900)),
        };
        let Some(rest) = left.checked_sub(act.pause + act.lasts) else { return acts };
        left = rest;
        acts.push(act);
    }
}

/// Injects them, on a thread that no runtime can block. Afterwards there is no fault.
pub(super) fn play(
    client: usize,
    proxy: Arc<Proxy>,
    acts: Vec<Act>,
    history: Arc<History>,
) -> thread::JoinHandle<()> {
    thread::spawn(move || {
        for Act { fault, pause, lasts } in acts {
            thread::sleep(pause);
            history.fault(format!("fault of client {client}: {fault:?} for {lasts:.0?}"));
            fault.begin(&proxy);
            thread::sleep(lasts);
            proxy.heal();
            history.note(format!("client {client} is healed"));
        }
    })
}
