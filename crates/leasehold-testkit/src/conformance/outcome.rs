//! How a case ends.

use std::error::Error;
use std::fmt;
use std::panic::Location;

use leasehold::{AcquireError, ChangeError, InvalidRequestError, QueryError, WaitError};

/// The result of a case: with `?` a step has to succeed for the case to continue.
pub type Outcome = Result<(), Failed>;

/// A step failed that had to succeed.
pub struct Failed {
    at: &'static Location<'static>,
    error: Box<dyn Error + Send + Sync>,
}

impl Failed {
    /// The feature that the engine lacks, if that is why.
    pub(super) fn unsupported(&self) -> Option<&str> {
        let error: &(dyn Error + 'static) = match self.error.downcast_ref::<leasehold::Error>() {
            Some(leasehold::Error::Acquire(error)) => error,
            Some(leasehold::Error::Query(error)) => error,
            _ => &*self.error,
        };
        let invalid = if let Some(AcquireError::Invalid { cause: invalid, .. }) = error.downcast_ref() {
            invalid
        } else if let Some(QueryError::Invalid { cause: invalid, .. }) = error.downcast_ref() {
            invalid
        } else if let Some(ChangeError::Invalid { cause: invalid, .. }) = error.downcast_ref() {
            invalid
        } else if let Some(WaitError::Invalid { cause: invalid, .. }) = error.downcast_ref() {
            invalid
        } else {
            error.downcast_ref()?
        };
        if let InvalidRequestError::Unsupported { what, .. } = invalid { Some(what) } else { None }
    }
}

impl Failed {
    /// Whether a lock was lost.
    pub(super) fn is_loss(&self) -> bool {
        matches!(self.error.downcast_ref(), Some(leasehold::Error::Lost(_)))
    }
}

impl<E: Error + Send + Sync + 'static> From<E> for Failed {
    #[track_caller]
    fn from(error: E) -> Self {
        Self { at: Location::caller(), error: Box::new(error) }
    }
}

impl fmt::Debug for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.at, self.error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_case_reports_its_file_and_line() {
        fn fails() -> Outcome {
            "x".parse::<u8>()?;
            Ok(())
        }
        let text = format!("{:?}", fails().unwrap_err());
        assert!(text.starts_with(&format!("{}:{}:", file!(), line!() - 4)), "{text}");
    }
}
