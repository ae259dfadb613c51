//! Locks that are held in one language before a failover, and released after it for the other.

use std::time::Duration;

use leasehold_testkit::peer::{Peer, Pending};
use tokio::time::Instant;

use super::behind::Behind;

/// The watchdog time is so long that a waiter that misses a release waits for longer than a test does.
const HOLDER: &str = "120000/holder";
const EARLY: &str = "120000/early";
const LATE: &str = "120000/late";

/// Two locks that a process holds. A process of the other language waits for one of them already.
pub(super) struct Holds {
    awaited: String,
    held: String,
    early: Pending,
}

impl Holds {
    pub(super) async fn begin(behind: &Behind<'_>, (holder, other): (&Peer, &Peer), topic: &str) -> Self {
        let name = |what: &str| format!("{topic}:{what}:{}", holder.name());
        let (awaited, held) = (name("awaited"), name("held"));
        for name in [&awaited, &held] {
            assert_eq!(holder.ask(HOLDER, &format!("lock plain {name}")).await, "held");
        }
        let early = other.tell(EARLY, &format!("wait plain {awaited} 90000 -1"));
        behind.subscribed(&awaited).await;
        Self { awaited, held, early }
    }

    /// Checks that both are held after the failover, and that their release wakes a waiter from before it and one from after it.
    /// Returns the longer time to wake.
    pub(super) async fn end(self, behind: &Behind<'_>, (holder, other): (&Peer, &Peer)) -> Duration {
        let Self { awaited, held, early } = self;
        assert!(!early.is_answered(), "{awaited} is held");
        for name in [&awaited, &held] {
            assert_eq!(holder.ask(HOLDER, &format!("held plain {name}")).await, "true", "{name}");
            assert_eq!(other.ask(LATE, &format!("locked plain {name}")).await, "true", "{name}");
            assert_eq!(other.ask(LATE, &format!("try plain {name}")).await, "false", "{name}");
        }
        let late = other.tell(LATE, &format!("wait plain {held} 90000 -1"));
        for name in [&awaited, &held] {
            behind.subscribed(name).await;
        }
        let mut longest = Duration::ZERO;
        for (name, thread, waiter) in [(&awaited, EARLY, early), (&held, LATE, late)] {
            assert!(!waiter.is_answered(), "there was no release of {name}");
            let begun = Instant::now();
            let released = holder.tell(HOLDER, &format!("unlock plain {name}"));
            assert_eq!(waiter.ok().await, "true", "{name}");
            longest = longest.max(begun.elapsed());
            // Redisson replies when the replicas have the release, or after a second.
            assert_eq!(released.ok().await, "released");
            assert_eq!(other.ask(thread, &format!("unlock plain {name}")).await, "released");
        }
        longest
    }
}
