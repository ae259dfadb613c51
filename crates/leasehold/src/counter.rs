//! A count by name, as semaphores and latches use it.

use std::fmt;
use std::sync::Arc;

use crate::client::Shared;
use crate::engine::{Adjust, Adjusted, Change, Resource};
use crate::error::{ChangeError, ServerError, InvalidRequestError, QueryError};
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
        let counter = self.clone();
        Operation::new(async move {
            match counter.adjust(adjust?)?.await {
                Ok(Adjusted::Done(number)) => Ok(map(number)),
                Err(failure @ ServerError::Unavailable(_)) => Err(ChangeError::Unknown { cause: failure, .. }),
                Ok(Adjusted::NotSent(failure)) | Err(failure) => Err(ChangeError::Server { cause: failure, .. }),
            }
        })
    }

    /// Queries a number.
    pub(crate) fn query<T>(
        &self,
        query: Adjust,
        map: impl FnOnce(i64) -> T + Send + 'static,
    ) -> Operation<Result<T, QueryError>> {
        let counter = self.clone();
        Operation::new(async move {
            match counter.adjust(query)?.await? {
                Adjusted::Done(number) => Ok(map(number)),
                Adjusted::NotSent(failure) => Err(failure.into()),
            }
        })
    }

    fn adjust(&self, adjust: Adjust) -> Result<crate::engine::Reply<Adjusted>, InvalidRequestError> {
        let request = OwnerId::fresh(self.shared.id, 1);
        let change = Change { request, adjust, patience: self.shared.outage_limit };
        Ok(self.shared.engine.adjust(self.resource.as_ref().map_err(Clone::clone)?, &change))
    }
}

/// Checks a number of permits: Redisson counts them in 32 bits with a sign.
pub(crate) fn checked(permits: u32) -> Result<u32, InvalidRequestError> {
    if i32::try_from(permits).is_ok() { Ok(permits) } else { Err(InvalidRequestError::TooManyPermits { given: permits }) }
}

impl fmt::Debug for Counter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.resource.as_ref().map(|resource| resource.name.as_str()).fmt(f)
    }
}
