//! What a lock has to do to be measured.

use std::future::Future;

use crate::args::Error;

/// A lock library, connected to its server.
pub trait Contender: Send + Sync + 'static {
    /// What one has while one holds a lock.
    type Held: Send + 'static;

    /// Waits for the lock of a name, as long as it takes.
    fn acquire(&self, name: &str) -> impl Future<Output = Result<Self::Held, Error>> + Send;

    /// Gives it back, and waits until that is known to be done.
    fn release(&self, held: Self::Held) -> impl Future<Output = Result<(), Error>> + Send;
}
