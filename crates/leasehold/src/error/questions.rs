//! The questions that every error answers.

use super::server::ServerError;
use super::subject::Subject;
use crate::loss::Loss;

/// What an error means to a caller that wants to know what to do next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Class {
    /// The server replied, and the lock was not free in time.
    Contended,
    /// There was no reply.
    Unavailable,
    /// The hold has ended.
    Lost(Loss),
    /// The same call will fail again.
    Final,
}

impl From<&ServerError> for Class {
    fn from(error: &ServerError) -> Self {
        match error {
            ServerError::Unavailable(_) => Self::Unavailable,
            ServerError::Denied(_) | ServerError::NotALock => Self::Final,
        }
    }
}

/// An error of an operation: its class and its subject.
pub(crate) trait Classified {
    fn class(&self) -> Class;

    fn subject(&self) -> Option<&Subject>;

    fn subject_mut(&mut self) -> Option<&mut Subject>;

    /// The same error, about `subject` unless it has one.
    fn about(mut self, subject: &Subject) -> Self
    where
        Self: Sized,
    {
        if let Some(own) = self.subject_mut() {
            own.fill(subject);
        }
        self
    }
}

/// Gives errors the public methods that answer the questions.
macro_rules! answers_questions {
    ($($error:ty),+ $(,)?) => {$(
        impl $error {
            /// Whether the server replied, and another owner held the lock, or the permits or the latch were not
            /// available in time: a later retry may succeed.
            #[must_use]
            pub fn is_contended(&self) -> bool {
                $crate::error::Classified::class(self) == $crate::error::Class::Contended
            }

            /// Whether the server could not be reached or gave no reply: the state of the lock is unknown.
            #[must_use]
            pub fn is_unavailable(&self) -> bool {
                $crate::error::Classified::class(self) == $crate::error::Class::Unavailable
            }

            /// Whether the same call can succeed later without a change of code or settings.
            #[must_use]
            pub fn is_transient(&self) -> bool {
                self.is_contended() || self.is_unavailable()
            }

            /// Whether the hold was lost: the work under it may have run unprotected.
            #[must_use]
            pub fn is_lost(&self) -> bool {
                self.loss().is_some()
            }

            /// Why the hold was lost, if it was.
            #[must_use]
            pub fn loss(&self) -> Option<$crate::loss::Loss> {
                match $crate::error::Classified::class(self) {
                    $crate::error::Class::Lost(loss) => Some(loss),
                    _ => None,
                }
            }

            /// The name of the lock, semaphore, latch or key, namespace included, where the error is about one.
            #[must_use]
            pub fn name(&self) -> Option<&str> {
                $crate::error::Classified::subject(self).and_then($crate::error::Subject::name)
            }

            /// The URL of the server without credentials; `None` for an engine inside the process.
            #[must_use]
            pub fn server(&self) -> Option<&str> {
                $crate::error::Classified::subject(self).and_then($crate::error::Subject::server)
            }
        }
    )+};
}

pub(crate) use answers_questions;
