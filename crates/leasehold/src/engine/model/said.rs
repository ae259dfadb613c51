//! The replies of an engine, in a form that can be compared; and where the two engines differ on purpose.

use std::time::Duration;

use crate::engine::{Attempt, Busy, Holding, Kind, Released, Renewed, Spot};
use crate::owner::OwnerId;

/// A reply: text that has to be the same, and a time that has to be nearly the same.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Said {
    words: String,
    time: Option<Duration>,
}

/// How far two times may be apart.
pub(super) const NEARLY: Duration = Duration::from_millis(50);

impl Said {
    pub(super) fn words(words: impl Into<String>) -> Self {
        Self { words: words.into(), time: None }
    }

    /// Whether both replies are the same. In memory a renewed hold always has its whole lease left; on a server its last
    /// renewal was `kept` ago.
    pub(super) fn agrees(&self, server: &Self, kept: Duration) -> bool {
        let near = match (self.time, server.time) {
            (Some(memory), Some(server)) => memory <= server + kept + NEARLY && server <= memory + NEARLY,
            (memory, server) => memory == server,
        };
        self.words == server.words && near
    }
}

/// The result of an attempt on both engines.
pub(super) fn attempts([memory, server]: &[Attempt; 2], spot: &Spot) -> [Said; 2] {
    let untold = is_untold(memory, spot.target.kind);
    [memory, server].map(|attempt| match attempt {
        Attempt::Granted(_, token) => Said::words(format!("granted, token {token:?}")),
        Attempt::Busy(busy) => {
            let holder = busy.holder.filter(|_| !has_many_holders(spot.target.kind));
            let words = format!("busy, held by {holder:?}, position {:?}", busy.position);
            Said { words, time: busy.retry_in.filter(|_| !untold) }
        }
        Attempt::Gone => Said::words("gone"),
        Attempt::Misfit => Said::words("misfit"),
        Attempt::OwnerSpent => Said::words("owner spent"),
        Attempt::NotAsked(failure) => Said::words(format!("not sent: {failure}")),
    })
}

/// Of several conflicting holders, each engine reports any: neither a hash nor a map has an order.
fn has_many_holders(kind: Kind) -> bool {
    matches!(kind, Kind::Write | Kind::Group)
}

/// Whether the engines return different retry times:
/// - A renewed hold has no end in memory, where its holder cannot die unnoticed; on a server it has its current end.
/// - Other libraries do not publish that a lock of one string is free: on a server waiters poll.
/// - In memory every waiter for a fair lock checks for a late front waiter; on a server the queue heartbeat does.
/// - How long a waiting writer blocks readers: a server returns the current time, memory the maximum.
fn is_untold(memory: &Attempt, kind: Kind) -> bool {
    let Attempt::Busy(Busy { retry_in, holder, position }) = memory else { return false };
    retry_in.is_none()
        || kind == Kind::SetNx
        || position.is_some_and(|position| position > 1)
        || kind == Kind::Read && holder.is_none()
}

pub(super) fn released(released: &Released) -> Said {
    Said::words(match released {
        Released::Left(left, _) => format!("{left} left"),
        Released::NotHeld => "not held".into(),
    })
}

pub(super) fn renewed(renewed: &Renewed) -> Said {
    Said::words(match renewed {
        Renewed::Until(_) => "renewed",
        Renewed::Gone => "gone",
    })
}

/// The holder. Of several readers each engine reports any, unless the queried owner is among them.
pub(super) fn holding(holding: Option<&Holding>, asked: Option<OwnerId>) -> Said {
    let Some(Holding { owner, count, remaining }) = holding else { return Said::words("free") };
    let words = match asked {
        Some(asked) if *owner != Some(asked) => "held by others".into(),
        _ => format!("held by {owner:?}, {count} times"),
    };
    Said { words, time: Some(*remaining) }
}

/// A number that is a time.
pub(super) fn lease(ms: i64) -> Said {
    match u64::try_from(ms) {
        Ok(ms) => Said { words: "lease".into(), time: Some(Duration::from_millis(ms)) },
        Err(_) => Said::words(format!("lease {ms}")),
    }
}
