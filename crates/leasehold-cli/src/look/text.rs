//! Locks as text and as JSON.

use std::time::{Duration, SystemTime};

use leasehold::{ClientInfo, HeldLock, Holder};
use serde_json::{Map, Value, json};

use crate::duration::human;

/// The gap between two columns.
const GAP: &str = "  ";
/// The fewest columns that are left to names and to holders.
const LEAST: usize = 10;

/// The table of `ls`, in lines that fit into so many columns, if there is such a limit.
pub(super) fn table(locks: &[HeldLock], columns: Option<usize>) -> Vec<String> {
    let rows = locks.iter().map(|lock| {
        [lock.name.escape_debug().to_string(), lock.kind.to_string(), who(lock), left(&lock.holder)]
    });
    let titles = ["NAME", "KIND", "HOLDER", "LEASE LEFT"].map(str::to_owned);
    let rows: Vec<_> = std::iter::once(titles).chain(rows).collect();
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let [mut name, kind, mut holder, left] = [0, 1, 2, 3].map(width);
    if let Some(columns) = columns {
        let room = columns.saturating_sub(kind + left + 3 * GAP.len());
        if name + holder > room {
            // Each has half of the room, and what the other one does not need.
            name = name.min((room / 2).max(room.saturating_sub(holder)).max(LEAST));
            holder = holder.min(room.saturating_sub(name).max(LEAST));
        }
    }
    let line = |[named, what, held, ends]: &[String; 4]| {
        let (named, held) = (shortened(named, name), cut(held, holder));
        let text = format!("{named:<name$}{GAP}{what:<kind$}{GAP}{held:<holder$}{GAP}{ends}");
        text.trim_end().to_owned()
    };
    rows.iter().map(line).collect()
}

/// A text that fits into so many columns.
pub(super) fn cut(text: &str, columns: usize) -> String {
    if text.chars().count() <= columns {
        return text.to_owned();
    }
    text.chars().take(columns.saturating_sub(1)).chain(['…']).collect()
}

/// A name that fits into so many columns: names often differ at their end.
fn shortened(name: &str, columns: usize) -> String {
    let length = name.chars().count();
    if length <= columns {
        return name.to_owned();
    }
    let end = columns / 2;
    let begin = columns.saturating_sub(end + 1);
    name.chars().take(begin).chain(['…']).chain(name.chars().skip(length - end)).collect()
}

/// The holder, and how many others there are.
pub(super) fn who(lock: &HeldLock) -> String {
    match lock.holders {
        0 | 1 => holder(&lock.holder),
        holders => format!("{} +{}", holder(&lock.holder), holders - 1),
    }
}

/// The client of a holder as far as it is known, or its owner.
fn holder(holder: &Holder) -> String {
    match (&holder.client, &holder.owner) {
        (Some(client), _) if client.label.is_some() || client.program.is_some() || client.host.is_some() => {
            client.to_string().escape_debug().to_string()
        }
        (_, Some(owner)) => owner.to_string(),
        (Some(ClientInfo { pid: Some(pid), .. }), None) => format!("pid {pid}"),
        (Some(ClientInfo { lease: Some(lease), .. }), None) => {
            format!("another program, under lease {lease}")
        }
        (_, None) => unknown(),
    }
}

fn unknown() -> String {
    "not known".into()
}

/// What is left of a lease.
fn left(holder: &Holder) -> String {
    match holder.remaining {
        Duration::ZERO | Duration::MAX => "none".into(),
        left => human(left),
    }
}

/// Which lock is held, and its holder: the beginning of a sentence.
pub(super) fn held(lock: &HeldLock) -> String {
    let lease = match lock.holder.remaining {
        Duration::ZERO => "until its process ends".into(),
        Duration::MAX => "and never expires".into(),
        left => format!("and its lease ends in {} unless renewed", human(left)),
    };
    format!("the lock {:?} is held by {}, {lease}", lock.name, who(lock))
}

/// What is known besides the lock itself.
#[derive(Debug, Default)]
pub(super) struct Details {
    /// How many waiters there are at least, and those in the queue of a fair lock.
    pub(super) waiters: Option<(usize, Vec<String>)>,
    /// `None` where there are none.
    pub(super) last_token: Option<u64>,
}

/// The text of `inspect`.
pub(super) fn lines(lock: &HeldLock, details: &Details) -> Vec<String> {
    let Holder { owner, holds, remaining, client, .. } = &lock.holder;
    let mut lines = vec![format!("{:?} is held", lock.name)];
    let mut say = |what: &str, value: String| lines.push(format!("  {what}: {value}"));
    say("kind", lock.kind.to_string());
    say("holder", who(lock));
    if let Some(owner) = owner {
        say("owner", owner.to_string());
    }
    if let Some(client) = client {
        let program = client.program.as_ref().map(|program| program.escape_debug().to_string());
        let version = client.version.as_ref().map(|version| format!("leasehold {}", version.escape_debug()));
        let parts: Vec<_> = program.into_iter().chain(version).collect();
        if !parts.is_empty() {
            say("program", parts.join(", "));
        }
        if let Some(age) = client.started.and_then(age) {
            say("client", format!("made {} ago, by the clocks of both machines", human(age)));
        }
        if let Some(address) = &client.address {
            say("address", address.escape_debug().to_string());
        }
    }
    match client.as_ref().and_then(|client| client.lease.as_ref()) {
        // There only the client itself knows how often it is entered.
        Some(lease) => say("lease id", lease.clone()),
        None => say("entered", if *holds == 1 { "once".into() } else { format!("{holds} times") }),
    }
    say(
        "lease",
        match *remaining {
            Duration::ZERO => "none: it is held until its process ends".into(),
            Duration::MAX => "none: it never expires".into(),
            left => format!("ends in {} unless renewed", human(left)),
        },
    );
    if let Some((at_least, queue)) = &details.waiters {
        say("waiters", if *at_least == 0 { "none known".into() } else { format!("{at_least} or more") });
        for (place, waiter) in queue.iter().enumerate() {
            say(&format!("waiter {}", place + 1), waiter.clone());
        }
    }
    if let Some(token) = details.last_token {
        say("last token", if token == 0 { "none".into() } else { token.to_string() });
    }
    lines
}

/// How long ago a moment was, if it is not to come.
#[expect(clippy::disallowed_methods, reason = "the moment was told by the wall clock of another machine")]
fn age(moment: SystemTime) -> Option<Duration> {
    SystemTime::now().duration_since(moment).ok()
}

/// A lock as JSON.
pub(super) fn object(lock: &HeldLock) -> Map<String, Value> {
    let Holder { owner, holds, remaining, client, .. } = &lock.holder;
    let lease_left = Some(remaining).filter(|left| !left.is_zero() && **left != Duration::MAX);
    let client = client.as_ref().map(|client| {
        let started = client.started.and_then(|at| at.duration_since(SystemTime::UNIX_EPOCH).ok());
        json!({
            "label": client.label,
            "host": client.host,
            "pid": client.pid,
            "program": client.program,
            "version": client.version,
            "started_ms": started.map(milliseconds),
            "address": client.address,
            "lease": client.lease,
        })
    });
    let lock = json!({
        "name": lock.name,
        "kind": lock.kind.to_string(),
        "holders": lock.holders,
        "holder": {
            "owner": owner.as_ref().map(ToString::to_string),
            "holds": holds,
            "client": client,
        },
        "lease_left_ms": lease_left.copied().map(milliseconds),
    });
    match lock {
        Value::Object(fields) => fields,
        _ => Map::new(),
    }
}

fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// A waiter of a fair lock.
pub(super) fn waiter(waiter: &leasehold::Waiter) -> String {
    match &waiter.client {
        Some(client) => client.to_string().escape_debug().to_string(),
        None => waiter.owner.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_that_is_too_long_is_cut_and_a_name_in_its_middle() {
        for (columns, text, name) in
            [(9, "stock:123", "stock:123"), (8, "stock:1…", "sto…:123"), (1, "…", "…")]
        {
            assert_eq!(
                (cut("stock:123", columns), shortened("stock:123", columns)),
                (text.into(), name.into())
            );
        }
    }
}
