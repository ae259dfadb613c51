//! The service that a layer makes.

use std::mem;
use std::pin::Pin;
use std::task::{Context, Poll};

use tower::{BoxError, Service};

use crate::LockLayer;

/// A service behind a lock for each key. Made by [`LockLayer`].
#[derive(Clone, Debug)]
pub struct LockService<S, K> {
    inner: S,
    settings: LockLayer<K>,
}

impl<S, K> LockService<S, K> {
    pub(crate) fn new(inner: S, settings: LockLayer<K>) -> Self {
        Self { inner, settings }
    }
}

impl<S, K, R> Service<R> for LockService<S, K>
where
    S: Service<R, Error: Into<BoxError>, Future: Send, Response: Send> + Clone + Send + 'static,
    K: Fn(&R) -> String,
    R: Send + 'static,
{
    type Response = S::Response;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<S::Response, BoxError>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(context).map_err(Into::into)
    }

    fn call(&mut self, request: R) -> Self::Future {
        let LockLayer { client, key, wait } = &self.settings;
        let acquire = client.lock(key(&request)).acquire().wait(*wait);
        // The instance that said it is ready is the one to call; a clone takes its place.
        let clone = self.inner.clone();
        let mut inner = mem::replace(&mut self.inner, clone);
        // A block, so that the service is called under the lock and not before.
        let work = async move { inner.call(request).await.map_err(Into::into) };
        Box::pin(acquire.run(work))
    }
}
