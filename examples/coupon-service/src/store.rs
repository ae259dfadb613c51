//! The winners of each campaign: a list in Redis.
//!
//! Its length is the number of coupons that were issued, so one write changes both. With a separate count, a process that is
//! killed between two writes would leave a count without a winner.

use std::time::Duration;

use redis::aio::{ConnectionManager, ConnectionManagerConfig};
use redis::{AsyncCommands as _, Client, RedisResult};

/// The lists. They are not atomic: between a read and a write, another process may write.
#[derive(Clone)]
pub(crate) struct Store {
    connection: ConnectionManager,
}

impl Store {
    /// Connects at the first request, and again after an outage.
    ///
    /// # Errors
    ///
    /// When the URL is malformed.
    pub(crate) fn lazy(url: &str) -> RedisResult<Self> {
        let config = ConnectionManagerConfig::new()
            .set_connection_timeout(Some(Duration::from_secs(1)))
            // A write without a reply may still take effect. A limit here would end the work, and free the lock, too early;
            // what ends it is the loss of the lock.
            .set_response_timeout(None);
        Ok(Self { connection: ConnectionManager::new_lazy_with_config(Client::open(url)?, config)? })
    }

    /// The winners so far.
    ///
    /// # Errors
    ///
    /// When the server does not reply.
    pub(crate) async fn winners(&self, campaign: &str) -> RedisResult<Vec<String>> {
        self.connection.clone().lrange(key(campaign), 0, -1).await
    }

    /// Adds a winner.
    ///
    /// # Errors
    ///
    /// When the server does not reply. The winner may be added nevertheless.
    pub(crate) async fn add(&self, campaign: &str, user: &str) -> RedisResult<()> {
        self.connection.clone().rpush(key(campaign), user).await
    }
}

fn key(campaign: &str) -> String {
    format!("winners:{campaign}")
}
