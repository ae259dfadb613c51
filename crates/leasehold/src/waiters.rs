//! Who waits for a lock.

use std::time::Duration;

use crate::engine::{Kind, Query};
use crate::env;
use crate::error::QueryError;
use crate::identity::ClientInfo;
use crate::lock::Lock;
use crate::operation::Operation;
use crate::owner::Owner;

/// The waiters for a lock, as far as the engine knows them, from [`Lock::waiters`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Waiters {
    /// How many there are at least.
    pub at_least: usize,
    /// The waiters that are known by their owner, the front waiter first: those of a [fair lock](crate::FairLock), of all
    /// processes. Empty for other locks.
    pub queue: Vec<Waiter>,
}

/// A waiter in the queue of a fair lock.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Waiter {
    /// The owner that waits.
    pub owner: Owner,
    /// The client of the owner, as far as it is known. Only the first hundred waiters are looked up.
    pub client: Option<ClientInfo>,
}

/// How many waiters are looked up.
const LOOKED_UP: usize = 100;
/// … and for how long.
const LOOK_UP_TIME: Duration = Duration::from_millis(500);

impl Lock {
    /// Who waits for the lock, as far as the engine knows.
    ///
    /// | Engine | Known |
    /// |---|---|
    /// | Redis, Valkey | the queue of a fair lock; for other locks how many clients are subscribed to its messages, each with one waiter or more, if the user of the server has the right to `PUBSUB NUMSUB`, and otherwise the waiters of this client. A spin lock has no subscribers |
    /// | `file:` | the waiters of this client |
    /// | `memory:` | all waiters |
    ///
    /// # Errors
    ///
    /// As for [`holder`](Lock::holder).
    ///
    /// # Cancel safety
    ///
    /// A query changes nothing.
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let client = leasehold::Client::connect("memory:").await?;
    /// let lock = client.lock("stock:7");
    /// assert_eq!(lock.waiters().await?.at_least, 0);
    /// # Ok(())
    /// # }
    /// ```
    pub fn waiters(&self) -> Operation<Result<Waiters, QueryError>> {
        self.shared.operation(self.resource.clone(), |shared, resource| async move {
            let mut waiters = Waiters::default();
            if resource.kind == Kind::Fair {
                let queue = shared.engine.inspect(&Query::Queue(&resource)).await?.queue;
                // All are sent before a reply is awaited.
                let asked: Vec<_> = queue
                    .iter()
                    .take(LOOKED_UP)
                    .map(|owner| shared.engine.inspect(&Query::Client(&resource, owner.at(shared.id).client)))
                    .collect();
                let mut clients = Vec::new();
                let replies = async {
                    for reply in asked {
                        clients.push(reply.await.ok().and_then(|result| result.client).map(|info| *info));
                    }
                };
                let _ = env::within(LOOK_UP_TIME, replies).await;
                let clients = clients.into_iter().chain(std::iter::repeat(None));
                waiters
                    .queue
                    .extend(queue.into_iter().zip(clients).map(|(owner, client)| Waiter { owner, client }));
            }
            let known = shared.engine.inspect(&Query::Waiters(&resource)).await?.waiters;
            waiters.at_least = known.max(waiters.queue.len());
            Ok(waiters)
        })
    }
}
