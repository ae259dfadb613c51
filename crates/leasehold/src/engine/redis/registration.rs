//! The key that tells who a client is: one for each client, written anew long before it expires.
//!
//! No request waits for it, and no client fails without it. It outlives a client that is killed for a while, so that the holder
//! of a lock which expires meanwhile can be found.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::watch;

use super::commands;
use super::net::{Connected, Encoding, Node, OnReply, Reply, Request};
use crate::engine::remote::store::LateNotice;
use crate::env::jittered;
use crate::error::ServerError;
use crate::identity::{ClientInfo, Identity};

/// How long the key stays after it was last written.
const TTL: Duration = Duration::from_secs(300);
/// It is written anew after this time, or up to a half earlier: twice before it would expire.
const PERIOD: Duration = Duration::from_secs(120);

/// The registration of one client.
#[derive(Debug)]
pub(super) struct Registration {
    /// None for an anonymous client.
    identity: Option<Arc<Identity>>,
    /// A lock may stay taken after the client, and its holder is to be found until then.
    leaves_holds: AtomicBool,
}

impl Registration {
    pub(super) fn new(identity: Option<Arc<Identity>>) -> Self {
        Self { identity, leaves_holds: AtomicBool::new(false) }
    }

    /// Writes the key anew from time to time, until this is dropped. Each new connection begins by writing it.
    pub(super) async fn keep(&self, node: &Node) {
        match &self.identity {
            Some(identity) => {
                keep(node.connections(), |address| node.put(request(identity, address))).await;
            }
            None => std::future::pending().await,
        }
    }

    /// A lock of this client stays taken when the client is gone.
    pub(super) fn leaves_hold(&self) {
        self.leaves_holds.store(true, Ordering::Relaxed);
    }

    /// Deletes the key at the end of the client, without waiting for that.
    pub(super) fn end(&self, node: &Node) {
        if let Some(identity) = &self.identity
            && !self.leaves_holds.load(Ordering::Relaxed)
        {
            node.post(commands::unregister(identity.id));
        }
    }
}

/// Writes the key of a client whose connection has this address.
pub(super) fn request(identity: &Identity, address: Option<String>) -> Request {
    let info = ClientInfo { address, ..identity.info.clone() };
    let call = commands::register(identity.id, &info, TTL);
    Request { call, encoding: Encoding::Sha, on_reply: Box::new(Written) }
}

async fn keep(mut connections: watch::Receiver<Option<Connected>>, write: impl Fn(Option<String>)) {
    loop {
        tokio::select! {
            // It has begun by that.
            changed = connections.changed() => if changed.is_err() { return },
            () = tokio::time::sleep(jittered(PERIOD)) => {
                let connected = connections.borrow().clone();
                if let Some(Connected { address }) = connected {
                    write(address);
                }
            }
        }
    }
}

/// Logs that the key could not be written.
struct Written;

impl OnReply for Written {
    fn is_awaited(&self) -> bool {
        false
    }

    fn is_wanted(&self) -> bool {
        true
    }

    fn late(&mut self) -> Option<LateNotice> {
        None
    }

    fn replied(self: Box<Self>, reply: Reply) {
        if let Err(error) = reply {
            let error = ServerError::from(error);
            tracing::debug!(%error, "the server did not store who this client is: its locks show an id alone");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    /// Of some hundred thousand requests that a server handles in a second.
    #[test]
    fn ten_thousand_clients_write_less_than_two_hundred_keys_a_second() {
        assert!(10_000 / (PERIOD / 2).as_secs() < 200);
        assert!(TTL >= PERIOD * 2, "one write may fail");
    }

    #[tokio::test(start_paused = true)]
    async fn a_key_is_written_anew_once_a_period_while_there_is_a_connection() {
        let (connected, written) = (watch::Sender::new(None), Cell::new(0));
        let kept = keep(connected.subscribe(), |address| {
            assert_eq!(address.as_deref(), Some("127.0.0.1:4711"));
            written.set(written.get() + 1);
        });
        let changes = async {
            tokio::time::sleep(TTL).await;
            assert_eq!(written.get(), 0, "there is no connection");
            for _ in 0..9 {
                connected.send_replace(Some(Connected { address: Some("127.0.0.1:4711".into()) }));
                tokio::time::sleep(PERIOD / 3).await;
                assert_eq!(written.get(), 0, "the connection has begun by that");
            }
            tokio::time::sleep(PERIOD * 100).await;
            assert!((100..=200).contains(&written.get()), "{}", written.get());
        };
        tokio::select! {
            () = kept => panic!("it ended"),
            () = changes => {}
        }
    }
}
