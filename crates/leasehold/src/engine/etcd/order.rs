//! Requests before attempts: a lock that this client has released is free for its next attempt, whichever owner makes it. And attempts
//! at permits before the number of free ones is read or changed, and the loss of a hold before the next grant.

use std::collections::HashMap;
use std::sync::Arc;

use tokio::sync::watch::{Receiver, Sender, channel};

use crate::mutex::Mutex;
use crate::name::Name;

/// The requests that are not over, by name.
#[derive(Debug, Default)]
pub(super) struct Order {
    requests: Arc<Requests>,
}

type Requests = Mutex<HashMap<Name, Vec<Receiver<()>>>>;

/// A request, which is over when this is dropped.
#[derive(Debug)]
pub(super) struct Request {
    requests: Arc<Requests>,
    name: Name,
    /// Dropping it is the message; none once it is dropped.
    over: Option<Sender<()>>,
}

impl Drop for Request {
    fn drop(&mut self) {
        drop(self.over.take());
        let mut requests = self.requests.lock();
        if let Some(of_name) = requests.get_mut(&self.name) {
            of_name.retain(|one| one.has_changed().is_ok());
            if of_name.is_empty() {
                requests.remove(&self.name);
            }
        }
    }
}

/// The requests before another one.
#[derive(Debug, Default)]
pub(super) struct Before(Vec<Receiver<()>>);

impl Order {
    /// A request begins.
    pub(super) fn begin(&self, name: &Name) -> Request {
        let (over, is_over) = channel(());
        self.requests.lock().entry(name.clone()).or_default().push(is_over);
        Request { requests: Arc::clone(&self.requests), name: name.clone(), over: Some(over) }
    }

    /// Another request begins: these have to be over before it is sent.
    pub(super) fn before(&self, name: &Name) -> Before {
        Before(self.requests.lock().get(name).cloned().unwrap_or_default())
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
        let first = order.begin(&name);
        let before = order.before(&name);
        let second = order.begin(&name);
        let waiting = tokio::spawn(before.over());
        tokio::task::yield_now().await;
        assert!(!waiting.is_finished());
        drop(first);
        waiting.await.unwrap();
        order.before(&Name::new("", "other").unwrap()).over().await;
        drop(second);
        assert!(order.requests.lock().is_empty(), "what is over is not kept");
    }
}
