//! The operations that a lock needs to be measured.

use std::future::Future;

use crate::args::Error;

/// A lock library, connected to its server.
pub trait Contender: Send + Sync + 'static {
    /// A held lock.
    type Held: Send + 'static;

    /// Waits for the lock of a name, without a limit.
    fn acquire(&self, name: &str) -> impl Future<Output = Result<Self::Held, Error>> + Send;

    /// Releases it, and waits until the release is confirmed.
    fn release(&self, held: Self::Held) -> impl Future<Output = Result<(), Error>> + Send;
}
