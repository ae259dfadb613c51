//! The pub/sub connection, kept alive as long as the client lives, with the subscriptions that its waiters need.

mod subscriptions;

use std::sync::{Arc, Weak};

use tokio::sync::watch;

pub(super) use self::subscriptions::Subscriptions;
use super::net::{Call, Opened, Pipeline, Push, Reconnect, Settings, Value};
use crate::engine::remote::store::{Events, StoreError, report};
use crate::error::ServerError;

/// How many channels go into one request.
const CHUNK: usize = 500;

/// Subscribes, and reports messages.
pub(super) struct Subscriber {
    pub(super) settings: Settings,
    pub(super) subscriptions: Arc<Subscriptions>,
    pub(super) events: Weak<dyn Events>,
}

impl Subscriber {
    /// Runs until the client is dropped. The connection is opened when there is a waiter.
    pub(super) async fn run(&self) {
        let mut reconnect = Reconnect::default();
        // Whether a wanted message may have been missed.
        let mut gap = false;
        loop {
            while self.subscriptions.is_empty() {
                self.subscriptions.changed.notified().await;
            }
            let (subscriptions, events) = (Arc::clone(&self.subscriptions), Weak::clone(&self.events));
            // What moved before this connection does not apply to its server.
            let moved = self.settings.moves.subscribe();
            match self
                .settings
                .open(Arc::new(move |push: &Push| deliver(push, &subscriptions, &events)))
                .await
            {
                Ok(opened) => {
                    reconnect.opened();
                    self.subscriptions.link_up();
                    report(&self.events, |events| events.watch_denied(false));
                    let error = self.serve(opened, moved, gap).await.err().map(ServerError::from);
                    let (server, error) = (&self.settings.target, error.map(tracing::field::display));
                    tracing::debug!(%server, error, "the connection for messages has ended and is replaced");
                }
                Err(failure) => reconnect.failed(&self.settings.target, "messages", &failure),
            }
            gap = true;
            self.subscriptions.link_down();
            report(&self.events, |events| events.unwatched());
            let mut moved = self.settings.moves.subscribe();
            tokio::select! {
                () = tokio::time::sleep(reconnect.pause()) => {}
                // There is a new primary: it cannot wait.
                _ = moved.changed() => {}
            }
        }
    }

    /// Works on one connection until it breaks, or its server is not the primary any more.
    async fn serve(
        &self,
        opened: Opened,
        mut moved: watch::Receiver<u64>,
        gap: bool,
    ) -> Result<(), StoreError> {
        let Opened { pipeline: connection, mut ended, renew_after } = opened;
        let authentication = self.settings.keep_authenticated(&connection, renew_after);
        tokio::pin!(authentication);
        self.follow(&connection).await?;
        if gap {
            report(&self.events, |events| events.rewatched());
        }
        loop {
            tokio::select! {
                biased;
                _ = &mut ended => return Ok(()),
                _ = moved.changed() => return Ok(()),
                () = self.subscriptions.changed.notified() => self.follow(&connection).await?,
                () = &mut authentication => {}
                () = tokio::time::sleep(self.settings.target.probe_after()) => {
                    // `HELLO` needs no right, and its reply has the role.
                    let hello = connection.send(Call::command("HELLO")).await?;
                    if self.settings.target.check(&hello).is_err() {
                        self.settings.moves.send_modify(|moves| *moves += 1);
                        return Ok(());
                    }
                }
            }
        }
    }

    /// Subscribes and unsubscribes until the subscriptions are those that are wanted.
    async fn follow(&self, connection: &Pipeline) -> Result<(), StoreError> {
        loop {
            let (subscribe, unsubscribe) = self.subscriptions.take_changes();
            if subscribe.is_empty() && unsubscribe.is_empty() {
                return Ok(());
            }
            for channels in unsubscribe.chunks(CHUNK) {
                match connection.subscribe(false, channels).await {
                    // Messages that are not wanted do no harm.
                    Ok(()) | Err(StoreError::Refused(_)) => {}
                    Err(error) => return Err(error),
                }
            }
            for channels in subscribe.chunks(CHUNK) {
                match connection.subscribe(true, channels).await {
                    Ok(()) => {
                        let topics = self.subscriptions.subscribed(channels);
                        report(&self.events, |events| events.watching(&topics));
                    }
                    Err(StoreError::Refused(failure)) => {
                        let server = &self.settings.target;
                        tracing::debug!(%server, error = %failure, "the server refused SUBSCRIBE");
                        report(&self.events, |events| events.watch_denied(true));
                    }
                    Err(error) => return Err(error),
                }
            }
        }
    }
}

fn deliver(push: &Push, subscriptions: &Subscriptions, events: &Weak<dyn Events>) {
    if let [Value::Text(kind), Value::Text(channel), Value::Text(payload)] = push.as_slice()
        && kind == b"message"
        && let Some(events) = events.upgrade()
    {
        for topic in subscriptions.topics(&String::from_utf8_lossy(channel), payload) {
            events.freed(&topic);
        }
    }
}
