//! A hold that a failover undoes, because it had not reached the replica.

use leasehold_testkit::peer::Pending;

use super::behind::Behind;
use crate::setup::until;

const RUST: &str = "10000/undone";
const JAVA: &str = "10000/next";

/// A lock that Rust holds, and whose holder writes when it knows that the lock is lost, if it writes at all.
pub(super) struct Undone {
    name: String,
    holder: Pending,
}

impl Undone {
    pub(super) async fn begin(behind: &Behind<'_>, topic: &str) -> Self {
        let name = format!("{topic}:undone");
        let holder = behind.rust.tell(RUST, &format!("turn-after-loss {name} {topic}"));
        until("the lock is held", || behind.primary().cli(&["EXISTS", &name]) == 1).await;
        Self { name, holder }
    }

    /// Removes the hold from the new primary, as if it had never had it, and gives the lock to Java.
    pub(super) async fn lose(&self, behind: &Behind<'_>) {
        let Self { name, .. } = self;
        assert_eq!(behind.primary().cli(&["DEL", name]), 1, "the hold was replicated");
        assert_eq!(behind.java.ask(JAVA, &format!("lock plain {name}")).await, "held");
    }

    /// Checks that the holder was told of it, and did not write. Returns what it said.
    pub(super) async fn end(self, behind: &Behind<'_>) -> String {
        let said = self.holder.ok().await;
        assert!(said.ends_with("nothing written"), "the holder knew that its lock was lost: {said}");
        assert_eq!(behind.java.ask(JAVA, &format!("unlock plain {}", self.name)).await, "released");
        said
    }
}
