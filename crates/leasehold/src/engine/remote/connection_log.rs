//! The log lines about the connection to a server: INFO when there is one, WARN when an outage begins.

use super::Inner;
use super::store::{Shard, Store};
use crate::error::Rounded;
use crate::events::Event;

impl<S: Store> Inner<S> {
    /// A shard is connected, for the first time or again.
    pub(super) fn connected(&self, shard: Shard) {
        let outage = self.shards.up(shard);
        let server = self.store.server(shard);
        if server.is_empty() {
            // An engine without a server.
            return;
        }
        if let Some(observer) = self.observer.get() {
            observer.connected(&server, outage);
        }
        match outage {
            None => tracing::info!(server, "connected"),
            Some(outage) => {
                let lost = self.renewal.lost_since_outage(shard);
                tracing::info!(server, after = %Rounded(outage), lost, "connected again");
            }
        }
    }

    /// An outage of a shard has begun: how many locks are at stake, and for how long the first of them lasts.
    pub(super) fn log_outage(&self, shard: Shard) {
        let (server, (locks, lasts)) = (self.store.server(shard), self.renewal.at_stake(shard));
        let lasts = lasts.map(|lasts| tracing::field::display(Rounded(lasts)));
        if let Some(observer) = self.observer.get() {
            observer.report(|| Event::Disconnected { server: server.clone() });
        }
        tracing::warn!(
            server,
            locks,
            lasts,
            "the server cannot be reached: locks that are not renewed in time are lost"
        );
    }
}
