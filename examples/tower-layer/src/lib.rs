//! A tower layer that lets one request at a time through for each key, on all machines together.
//!
//! The key is a function of the request: an account, a file, a tenant. A request waits until the one before it is done, and
//! fails with [`leasehold::Error`] if that takes too long, or if the lock is lost on the way. The service behind the layer is
//! not called before the lock is held, and a caller that drops the response future releases the lock, or leaves the queue.
//!
//! ```
//! use std::time::Duration;
//!
//! use leasehold::Client;
//! use lock_layer::LockLayer;
//! use tower::{BoxError, ServiceBuilder, ServiceExt, service_fn};
//!
//! # #[tokio::main] async fn main() -> Result<(), BoxError> {
//! let client = Client::connect("memory:").await?;
//! let transfers = ServiceBuilder::new()
//!     .layer(LockLayer::new(client, |account: &u32| format!("account:{account}")).wait(Duration::from_secs(2)))
//!     .service(service_fn(|account: u32| async move { Ok::<_, BoxError>(format!("transferred from {account}")) }));
//! assert_eq!(transfers.oneshot(7).await?, "transferred from 7");
//! # Ok(())
//! # }
//! ```
//!
//! In axum the error of a layer has to become a response: put `axum::error_handling::HandleErrorLayer` in front of this one.
//! What the layer protects is the future of the response. A body that is streamed after it is not under the lock.

mod service;

use std::time::Duration;

use leasehold::Client;
use tower::Layer;

pub use self::service::LockService;

/// How long a request waits, unless it is set.
const WAIT: Duration = Duration::from_secs(10);

/// Puts a service behind a lock for each key.
#[derive(Clone, Debug)]
pub struct LockLayer<K> {
    client: Client,
    key: K,
    wait: Duration,
}

impl<K> LockLayer<K> {
    /// A layer whose locks are named by `key`.
    pub fn new(client: Client, key: K) -> Self {
        Self { client, key, wait: WAIT }
    }

    /// How long a request waits for its lock; 10 s unless it is set.
    #[must_use]
    pub fn wait(self, wait: Duration) -> Self {
        Self { wait, ..self }
    }
}

impl<S, K: Clone> Layer<S> for LockLayer<K> {
    type Service = LockService<S, K>;

    fn layer(&self, inner: S) -> Self::Service {
        LockService::new(inner, self.clone())
    }
}
