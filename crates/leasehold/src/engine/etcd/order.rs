//! Deletions before attempts: a lock that this client has released is free for its next attempt, whichever owner makes it.

use std::collections::HashMap;

use tokio::sync::watch::{Receiver, Sender, channel};

use crate::mutex::Mutex;
use crate::name::Name;

/// The deletions that are not over, by name.
#[derive(Debug, Default)]
pub(super) struct Order {
    deletions: Mutex<HashMap<Name, Vec<Receiver<()>>>>,
}

/// A deletion, which is over when this is dropped.
#[derive(Debug)]
pub(super) struct Deletion(#[expect(dead_code, reason = "dropping it is the message")] Sender<()>);

/// The deletions before an attempt.
#[derive(Debug, Default)]
pub(super) struct Before(Vec<Receiver<()>>);

impl Order {
    /// A deletion begins.
    pub(super) fn delete(&self, name: &Name) -> Deletion {
        let (over, is_over) = channel(());
        let mut deletions = self.deletions.lock();
        deletions.retain(|_, all| {
            all.retain(|one| one.has_changed().is_ok());
            !all.is_empty()
        });
        deletions.entry(name.clone()).or_default().push(is_over);
        Deletion(over)
    }

    /// An attempt begins: these have to be over before it is sent.
    pub(super) fn before(&self, name: &Name) -> Before {
        Before(self.deletions.lock().get(name).cloned().unwrap_or_default())
    }
}

impl Before {
    pub(super) async fn over(self) {
        for mut one in self.0 {
            // Nothing is ever sent: it resolves when the sender is dropped.
            let _ = one.changed().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_attempt_waits_for_the_deletions_before_it_and_for_no_others() {
        let (order, name) = (Order::default(), Name::new("", "n").unwrap());
        let first = order.delete(&name);
        let before = order.before(&name);
        let _second = order.delete(&name);
        let waiting = tokio::spawn(before.over());
        tokio::task::yield_now().await;
        assert!(!waiting.is_finished());
        drop(first);
        waiting.await.unwrap();
        order.before(&Name::new("", "other").unwrap()).over().await;
    }
}
