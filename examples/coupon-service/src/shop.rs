//! Issuing a coupon: read, check and write under a lock.

use std::time::Duration;

use leasehold::Client;
use redis::RedisError;
use thiserror::Error;

use crate::store::Store;

/// How long a caller waits for the callers before it.
const WAIT: Duration = Duration::from_secs(2);

/// Campaigns with a limited number of coupons each.
pub(crate) struct Shop {
    client: Client,
    store: Store,
    coupons: usize,
}

/// What a caller gets.
pub(crate) enum Outcome {
    /// The coupon of this number.
    Coupon(usize),
    SoldOut,
}

/// Why a caller gets nothing.
#[derive(Debug, Error)]
pub(crate) enum ShopError {
    #[error(transparent)]
    Lock(#[from] leasehold::Error),
    #[error("the list of winners: {0}")]
    Store(#[from] RedisError),
}

impl Shop {
    pub(crate) fn new(client: Client, store: Store, coupons: usize) -> Self {
        Self { client, store, coupons }
    }

    pub(crate) fn client(&self) -> &Client {
        &self.client
    }

    /// Issues one coupon. A user who has one already gets the same again, so a caller without a reply may retry.
    ///
    /// The work borrows from this function's arguments, and the future is `Send` all the same.
    ///
    /// # Errors
    ///
    /// When the lock was not free in time, or was lost, or the store does not reply.
    ///
    /// # Cancel safety
    ///
    /// Not while the winner is being written: a request that was sent arrives even if the future is dropped, which frees the
    /// lock. So it runs in a task of its own.
    pub(crate) async fn issue(&self, campaign: &str, user: &str) -> Result<Outcome, ShopError> {
        let lock = self.client.lock(format!("coupons:{campaign}"));
        let issue = async {
            let winners = self.store.winners(campaign).await?;
            if let Some(index) = winners.iter().position(|winner| winner == user) {
                return Ok(Outcome::Coupon(index + 1));
            }
            if winners.len() >= self.coupons {
                return Ok(Outcome::SoldOut);
            }
            self.store.add(campaign, user).await?;
            Ok(Outcome::Coupon(winners.len() + 1))
        };
        lock.acquire().wait(WAIT).run(issue).await
    }
}
