//! The replies of an engine, in a form that can be compared; and where the two engines differ on purpose.

use std::time::Duration;

use crate::engine::{Attempt, Busy, HoldKey, Holding, Kind, Released, Renewed};
use crate::owner::OwnerId;

/// A reply: text that has to be the same, and a time that has to be nearly the same.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Observed {
    text: String,
    time: Option<Duration>,
}

/// How far two times may be apart.
pub(super) const NEARLY: Duration = Duration::from_millis(50);

impl Observed {
    pub(super) fn text(text: impl Into<String>) -> Self {
        Self { text: text.into(), time: None }
    }

    /// Whether both replies are the same. In memory a renewed hold always has its whole lease left; on a server its last
    /// renewal was `kept` ago.
    pub(super) fn agrees(&self, server: &Self, kept: Duration) -> bool {
        let near = match (self.time, server.time) {
            (Some(memory), Some(server)) => memory <= server + kept + NEARLY && server <= memory + NEARLY,
            (memory, server) => memory == server,
        };
        self.text == server.text && near
    }
}

/// The result of an attempt on both engines.
pub(super) fn attempts([memory, server]: &[Attempt; 2], key: &HoldKey) -> [Observed; 2] {
    let differs = retry_times_differ(memory, key.resource.kind);
    [memory, server].map(|attempt| match attempt {
        Attempt::Granted(_, token) => Observed::text(format!("granted, token {token:?}")),
        Attempt::Busy(busy) => {
            let holder = busy.holder.filter(|_| !has_many_holders(key.resource.kind));
            let text = format!("busy, held by {holder:?}, position {:?}", busy.position);
            Observed { text, time: busy.retry_in.filter(|_| !differs) }
        }
        Attempt::Gone => Observed::text("gone"),
        Attempt::WouldDeadlock => Observed::text("would deadlock"),
        Attempt::OwnerSpent => Observed::text("owner spent"),
        Attempt::NotSent(failure) => Observed::text(format!("not sent: {failure}")),
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
fn retry_times_differ(memory: &Attempt, kind: Kind) -> bool {
    let Attempt::Busy(Busy { retry_in, holder, position, .. }) = memory else { return false };
    retry_in.is_none()
        || kind == Kind::SetNx
        || position.is_some_and(|position| position > 1)
        || kind == Kind::Read && holder.is_none()
}

pub(super) fn released(released: &Released) -> Observed {
    Observed::text(match released {
        Released::Left(left, _) => format!("{left} left"),
        Released::NotHeld => "not held".into(),
    })
}

pub(super) fn renewed(renewed: &Renewed) -> Observed {
    Observed::text(match renewed {
        Renewed::Until(_) => "renewed",
        Renewed::Gone => "gone",
    })
}

/// The holder. Of several readers each engine reports any, unless the queried owner is among them.
pub(super) fn holding(holding: Option<&Holding>, queried: Option<OwnerId>) -> Observed {
    let Some(Holding { owner, count, remaining }) = holding else { return Observed::text("free") };
    let text = match queried {
        Some(queried) if *owner != Some(queried) => "held by others".into(),
        _ => format!("held by {owner:?}, {count} times"),
    };
    Observed { text, time: Some(*remaining) }
}

/// A number that is a time.
pub(super) fn lease(ms: i64) -> Observed {
    match u64::try_from(ms) {
        Ok(ms) => Observed { text: "lease".into(), time: Some(Duration::from_millis(ms)) },
        Err(_) => Observed::text(format!("lease {ms}")),
    }
}
