//! Fencing at the resource: the check of tokens, and the error for a stale one.

use std::sync::atomic::{AtomicU64, Ordering};

use thiserror::Error;

/// The greatest fencing token that a resource inside this process has seen.
///
/// A lease can end while its holder is paused, and the holder cannot detect it in time. The resource can: it refuses every
/// token below the greatest it has seen. That number only rises, and any number of threads may share it.
///
/// That protects only if every writer has a token (see [`FencedGuard`](crate::FencedGuard)), and commits before it
/// releases the lock. [`check`](Fence::check) and the write must be atomic: keep the fence behind the same mutex as the
/// data, or let a database do both in one statement, as `examples/fencing` does. A fence in memory is gone when the
/// process ends; [`starting_at`](Fence::starting_at) restores a stored token.
///
/// ```
/// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let client = leasehold::Client::connect("memory:").await?;
/// use std::sync::Mutex;
/// use leasehold::{Fence, StaleTokenError};
///
/// struct Account { fence: Fence, balance: i64 }
///
/// fn write(account: &Mutex<Account>, token: u64, balance: i64) -> Result<(), StaleTokenError> {
///     let mut account = account.lock().unwrap();
///     account.fence.check(token)?;
///     account.balance = balance;
///     Ok(())
/// }
///
/// let account = Mutex::new(Account { fence: Fence::new(), balance: 100 });
/// let lock = client.fenced_lock("account:7");
/// let paused = lock.acquire().await?.token();  // its lease is over …
/// let next = lock.acquire().await?.token();    // … when the next holder writes
/// write(&account, next, 150)?;
/// let late = write(&account, paused, 90).unwrap_err();
/// assert_eq!((late.token, late.highest), (1, 2));
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Default)]
pub struct Fence {
    highest: AtomicU64,
}

impl Fence {
    /// A fence that has seen no token.
    #[must_use]
    pub const fn new() -> Self {
        Self::starting_at(0)
    }

    /// A fence that has seen this token, which was stored with the data.
    #[must_use]
    pub const fn starting_at(token: u64) -> Self {
        Self { highest: AtomicU64::new(token) }
    }

    /// Accepts a token unless a greater one was checked before. The same token is accepted again.
    ///
    /// # Errors
    ///
    /// [`StaleTokenError`] with both numbers: the holder of this token has lost its lock to a holder that has written already.
    pub fn check(&self, token: u64) -> Result<(), StaleTokenError> {
        let highest = self.highest.fetch_max(token, Ordering::SeqCst);
        if token < highest { Err(StaleTokenError { token, highest }) } else { Ok(()) }
    }

    /// The greatest token seen so far; zero if there was none.
    #[must_use]
    pub fn highest(&self) -> u64 {
        self.highest.load(Ordering::SeqCst)
    }
}

/// A fencing token that arrived after a greater one: another holder has had the lock since.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("the fencing token {token} is stale: a holder with {highest} has written since")]
#[non_exhaustive]
pub struct StaleTokenError {
    /// The refused token.
    pub token: u64,
    /// The greatest token seen before it.
    pub highest: u64,
}

impl StaleTokenError {
    pub(crate) fn new(token: u64, highest: u64) -> Self {
        Self { token, highest }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_67_a_fence_rejects_every_token_below_the_greatest_seen() {
        let fence = Fence::new();
        for (token, passes) in [(1, true), (1, true), (3, true), (2, false), (3, true), (u64::MAX, true)] {
            assert_eq!(fence.check(token).is_ok(), passes, "{token}");
        }
        let late = fence.check(7).unwrap_err();
        assert_eq!((late.token, late.highest), (7, u64::MAX));
        assert_eq!(
            late.to_string(),
            "the fencing token 7 is stale: a holder with 18446744073709551615 has written since"
        );
        assert!(Fence::starting_at(5).check(4).is_err() && Fence::starting_at(5).check(5).is_ok());
    }

    #[test]
    fn threads_share_the_greatest_token_of_a_fence() {
        let fence = Fence::new();
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let fence = &fence;
                scope.spawn(move || {
                    let mut last = 0;
                    for turn in 0..10_000 {
                        let token = turn * 4 + thread;
                        match fence.check(token) {
                            Ok(()) => last = token,
                            Err(stale) => assert!(stale.highest > token && stale.highest > last),
                        }
                        assert!(fence.highest() >= token);
                    }
                });
            }
        });
        assert_eq!(fence.highest(), 39_999);
    }
}
