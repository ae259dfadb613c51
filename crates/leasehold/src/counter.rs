//! A count by name, as semaphores and latches use it.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::client::Shared;
use crate::engine::{Adjust, Adjusted, Change, Reply, Resource};
use crate::error::{ChangeError, InvalidRequestError, QueryError, ServerError, Subject};
use crate::operation::Operation;
use crate::owner::OwnerId;

/// A client's handle of the count of one resource.
#[derive(Clone)]
pub(crate) struct Counter {
    pub(crate) shared: Arc<Shared>,
    pub(crate) resource: Result<Resource, InvalidRequestError>,
}

impl Counter {
    /// Changes the count exactly once, however often the request must be sent.
    pub(crate) fn change<T>(
        &self,
        adjust: Result<Adjust, InvalidRequestError>,
        map: impl FnOnce(i64) -> T + Send + 'static,
    ) -> Operation<Result<T, ChangeError>> {
        self.change_within(None, adjust, map)
    }

    /// The same for at most this long, or for as long as an outage may last.
    pub(crate) fn change_within<T>(
        &self,
        limit: Option<Duration>,
        adjust: Result<Adjust, InvalidRequestError>,
        map: impl FnOnce(i64) -> T + Send + 'static,
    ) -> Operation<Result<T, ChangeError>> {
        self.shared.operation(self.resource.clone(), move |shared, resource| async move {
            let limit = limit.unwrap_or(shared.outage_limit);
            match adjusted(&shared, &resource, adjust?, limit).await {
                Ok(Adjusted::Done(number)) => Ok(map(number)),
                Err(cause @ ServerError::Unavailable(_)) => {
                    Err(ChangeError::Unknown { cause, subject: Subject::default() })
                }
                Ok(Adjusted::NotSent(cause)) | Err(cause) => Err(cause.into()),
            }
        })
    }

    /// Queries a number.
    pub(crate) fn query<T>(
        &self,
        query: Adjust,
        map: impl FnOnce(i64) -> T + Send + 'static,
    ) -> Operation<Result<T, QueryError>> {
        self.shared.operation(self.resource.clone(), |shared, resource| async move {
            match adjusted(&shared, &resource, query, shared.outage_limit).await? {
                Adjusted::Done(number) => Ok(map(number)),
                Adjusted::NotSent(cause) => Err(cause.into()),
            }
        })
    }
}

fn adjusted(shared: &Shared, resource: &Resource, adjust: Adjust, patience: Duration) -> Reply<Adjusted> {
    let request = OwnerId::fresh(shared.id, 1);
    let change = Change { request, adjust, patience };
    shared.engine.adjust(resource, &change)
}

/// Checks a number of permits: Redisson counts them in 32 bits with a sign.
pub(crate) fn checked(permits: u32) -> Result<u32, InvalidRequestError> {
    if i32::try_from(permits).is_ok() {
        Ok(permits)
    } else {
        Err(InvalidRequestError::TooManyPermits { given: permits })
    }
}

impl fmt::Debug for Counter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.resource.as_ref().map(|resource| resource.name.as_str()).fmt(f)
    }
}
