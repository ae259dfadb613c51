//! One server: its connection for commands, which is replaced when it breaks.

use std::sync::{Mutex, PoisonError, Weak};

use tokio::sync::Notify;

use super::connection::{CommandError, Connection, Ended, Settings};
use super::identity::Identity;
use super::lane::{Lane, Rejected};
use super::reconnect::Reconnect;
use crate::engine::remote::store::{Events, Shard, report};
use crate::error::Failure;

/// One server, and the way to it.
pub(crate) struct Node {
    settings: Settings,
    shard: Shard,
    lane: Lane,
    events: Weak<dyn Events>,
    /// What [`run`](Self::run) begins with.
    begun: Mutex<(Option<Rejected>, Option<Link>)>,
    closed: Notify,
}

/// A connection for commands.
struct Link {
    connection: Connection,
    ended: Ended,
    /// What the server knows it by, if it tells.
    identity: Option<Identity>,
}

impl Link {
    async fn open(settings: &Settings) -> Result<Self, Failure> {
        // Commands have no pushes.
        let (connection, ended) = settings.open(Box::new(|_| {})).await?;
        // Both questions in one round trip.
        let (identity, learned) = tokio::join!(biased; connection.identity(), connection.learn());
        let (identity, ()) = (identity?, learned?);
        Ok(Self { connection, ended, identity })
    }
}

/// The connections that broke and may still have something to do on the server.
#[derive(Default)]
struct Stale(Vec<Option<Identity>>);

impl Stale {
    /// Takes in a connection that is over. What was read on it has had its effect then.
    fn add(&mut self, link: Link) {
        link.connection.end();
        self.0.push(link.identity);
    }

    /// Ends them on the server, so that what they still have to do does not happen after it was undone. Whether one may still
    /// act; nothing if the connection that was to end them broke, too.
    async fn kill(&mut self, by: &Connection) -> Option<bool> {
        let mut may_act = false;
        for identity in &self.0 {
            let Some(identity) = identity else {
                may_act = true;
                continue;
            };
            match by.send(identity.kill()).await {
                Ok(_) => {}
                Err(CommandError::Server(_) | CommandError::NoScript) => may_act = true,
                Err(CommandError::Lost(_) | CommandError::NotSent(_)) => return None,
            }
        }
        self.0.clear();
        Some(may_act)
    }
}

impl Node {
    pub(crate) fn new(settings: Settings, shard: Shard, events: Weak<dyn Events>) -> Self {
        let (lane, rejected) = Lane::new();
        Self {
            settings,
            shard,
            lane,
            events,
            begun: Mutex::new((Some(rejected), None)),
            closed: Notify::new(),
        }
    }

    pub(crate) fn lane(&self) -> &Lane {
        &self.lane
    }

    /// Connects for the first time.
    pub(crate) async fn open(&self) -> Result<(), Failure> {
        let link = Link::open(&self.settings).await?;
        self.lane.connect(&link.connection);
        self.begun.lock().unwrap_or_else(PoisonError::into_inner).1 = Some(link);
        Ok(())
    }

    /// Replaces the connection whenever it has ended, until the node is closed.
    pub(crate) async fn run(&self) {
        let begun = std::mem::take(&mut *self.begun.lock().unwrap_or_else(PoisonError::into_inner));
        if let (Some(rejected), Some(link)) = begun {
            tokio::select! {
                biased;
                () = self.closed.notified() => {}
                () = self.keep_connected(link) => {}
                () = rejected.run() => {}
            }
        }
        self.lane.close();
    }

    pub(crate) fn close(&self) {
        self.lane.close();
        self.closed.notify_one();
    }

    async fn keep_connected(&self, mut link: Link) {
        let (mut reconnect, mut stale) = (Reconnect::default(), Stale::default());
        loop {
            // It fails when the connection has ended.
            let _ = (&mut link.ended).await;
            tracing::debug!("the connection is replaced");
            self.lane.disconnect();
            stale.add(link);
            report(&self.events, |events| events.down(self.shard));
            let may_act;
            (link, may_act) = self.reconnect(&mut reconnect, &mut stale).await;
            self.lane.connect(&link.connection);
            report(&self.events, |events| events.up(self.shard, may_act));
        }
    }

    /// Opens the next connection, and ends those before it on the server. Whether one of them may still act.
    async fn reconnect(&self, reconnect: &mut Reconnect, stale: &mut Stale) -> (Link, bool) {
        loop {
            tokio::time::sleep(reconnect.pause()).await;
            match Link::open(&self.settings).await {
                Ok(link) => {
                    reconnect.opened();
                    match stale.kill(&link.connection).await {
                        Some(may_act) => return (link, may_act),
                        None => stale.add(link),
                    }
                }
                Err(failure) => {
                    reconnect.failed("commands", &failure);
                    report(&self.events, |events| events.still_down(self.shard, failure));
                }
            }
        }
    }
}
