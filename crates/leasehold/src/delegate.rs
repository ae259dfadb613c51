//! Locks that share the queries of the plain lock inside them, but not its `acquire`.

/// Gives a type the methods of its field `lock`, a [`Lock`](crate::Lock), that do not acquire it.
///
/// A type that dereferenced to `Lock` could be acquired as one: a fenced lock without its token, a read lock with a guard
/// that cannot be upgraded.
macro_rules! delegates_to_lock {
    ($outer:ty) => {
        impl $outer {
            /// The lock as seen by `owner`, for code that has no guard. See [`Lock::as_owner`](crate::Lock::as_owner).
            #[must_use]
            pub fn as_owner(&self, owner: impl std::borrow::Borrow<$crate::Owner>) -> $crate::OwnerLock {
                self.lock.as_owner(owner)
            }

            /// The holder of the lock, with its hold count, its remaining time and its client; `None` if the lock is free.
            ///
            /// # Errors
            ///
            /// As for [`Lock::holder`](crate::Lock::holder), and so for every query below.
            ///
            /// # Cancel safety
            ///
            /// A query changes nothing.
            pub fn holder(&self) -> $crate::Operation<Result<Option<$crate::Holder>, $crate::QueryError>> {
                self.lock.holder()
            }

            /// Who waits for the lock, as far as the engine knows. See [`Lock::waiters`](crate::Lock::waiters).
            ///
            /// # Errors
            ///
            /// As for [`Lock::holder`](crate::Lock::holder).
            pub fn waiters(&self) -> $crate::Operation<Result<$crate::Waiters, $crate::QueryError>> {
                self.lock.waiters()
            }

            /// Whether the lock is held.
            ///
            /// # Errors
            ///
            /// As for [`Lock::holder`](crate::Lock::holder).
            #[doc(alias = "isLocked")]
            pub fn is_locked(&self) -> $crate::Operation<Result<bool, $crate::QueryError>> {
                self.lock.is_locked()
            }

            /// Whether `owner` holds the lock.
            ///
            /// # Errors
            ///
            /// As for [`Lock::holder`](crate::Lock::holder).
            #[doc(alias = "isHeldByThread")]
            #[doc(alias = "isHeldByCurrentThread")]
            pub fn is_held_by(
                &self,
                owner: impl std::borrow::Borrow<$crate::Owner>,
            ) -> $crate::Operation<Result<bool, $crate::QueryError>> {
                self.lock.is_held_by(owner)
            }

            /// The hold count of `owner`: zero if it does not hold the lock.
            ///
            /// # Errors
            ///
            /// As for [`Lock::holder`](crate::Lock::holder).
            #[doc(alias = "getHoldCount")]
            pub fn hold_count(
                &self,
                owner: impl std::borrow::Borrow<$crate::Owner>,
            ) -> $crate::Operation<Result<u32, $crate::QueryError>> {
                self.lock.hold_count(owner)
            }

            /// How long until the lock expires if it is not renewed or released; `None` if it is free.
            ///
            /// # Errors
            ///
            /// As for [`Lock::holder`](crate::Lock::holder).
            #[doc(alias = "remainTimeToLive")]
            pub fn ttl(&self) -> $crate::Operation<Result<Option<std::time::Duration>, $crate::QueryError>> {
                self.lock.ttl()
            }

            /// The last fencing token that was issued for this name, to any client; zero if none was.
            ///
            /// # Errors
            ///
            /// As for [`Lock::holder`](crate::Lock::holder).
            #[doc(alias = "getToken")]
            pub fn last_token(&self) -> $crate::Operation<Result<u64, $crate::QueryError>> {
                self.lock.last_token()
            }

            /// Frees the lock in place of its holder; false if it had none. A tool for operators: see
            /// [`Lock::force_unlock`](crate::Lock::force_unlock).
            ///
            /// # Errors
            ///
            /// As for [`Lock::holder`](crate::Lock::holder). After a failure the lock may be free or not.
            ///
            /// # Cancel safety
            ///
            /// Once begun, it may take effect even if the future is dropped.
            #[doc(alias = "forceUnlock")]
            pub fn force_unlock(&self) -> $crate::Operation<Result<bool, $crate::QueryError>> {
                self.lock.force_unlock()
            }
        }
    };
}

pub(crate) use delegates_to_lock;
