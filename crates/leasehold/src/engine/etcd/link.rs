//! The connection to one member of the cluster, and the session of the client.
//!
//! The session is a lease, which a stream of heartbeats keeps alive. It may outlive the connection: the next one, to the next
//! member, continues it. Its deadline follows from what the server has granted, and from the time before the request was sent.
//!
//! A member renews leases by itself if it takes itself for the leader, and old versions do so while others have chosen another one:
//! that one lets the lease run out. So a read goes before each heartbeat, to which a member replies only by a leader that a majority
//! follows after the read was sent, and the deadline counts from before the read.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::watch::Sender;
use tokio_stream::wrappers::UnboundedReceiverStream;
use tonic::Streaming;

use super::address::Member;
use super::calls::{self, Failure, causes, late};
use super::connection::{Account, Connection};
use super::keys;
use super::messages::{Grant, Granted, LeaseId, Lives, Range, Ranged, Revoked, WatchReply, WatchRequest};
use crate::engine::remote::store::StoreError;
use crate::env::{self, Instant};
use crate::error::ServerError;
use crate::lease::margin;
use crate::loss::Loss;
use crate::mutex::Mutex;
use crate::session::Session;
use crate::tls::TlsOptions;

/// The least time after which a heartbeat counts as unanswered.
const SHORTEST_BEAT: Duration = Duration::from_millis(500);
/// The longest time to live that etcd grants, in seconds.
const LONGEST: i64 = 9_000_000_000;

/// The session of a client.
#[derive(Debug, Clone)]
pub(super) struct ClientSession {
    /// The id of its lease.
    pub(super) lease: i64,
    pub(super) session: Arc<Session>,
    /// Whether the key that tells who the client is was written.
    pub(super) is_recorded: Arc<AtomicBool>,
}

/// A connection that serves requests.
#[derive(Debug)]
pub(super) struct Link {
    connection: Connection,
    pub(super) member: String,
    pub(super) client: ClientSession,
    pub(super) watches: UnboundedSender<WatchRequest>,
    limit: Duration,
    /// Notified when a heartbeat is due at once, or a request had no reply.
    hurry: Notify,
    fault: Mutex<Option<ServerError>>,
    /// Why it is given up, if it is: then no request waits for a reply.
    over: Sender<Option<ServerError>>,
}

/// The streams of a connection.
pub(super) struct Streams {
    beats: UnboundedSender<LeaseId>,
    replies: Streaming<Lives>,
    /// How long the server has granted the lease for.
    ttl: Duration,
    watches: UnboundedReceiver<WatchRequest>,
}

/// Why a connection serves no more requests.
#[derive(Debug)]
pub(super) enum Fall {
    /// There is no connection, or it is of no use.
    Broken(ServerError),
    /// The session is lost, and the connection may be there.
    Session,
}

/// The limits of a connection.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    pub(super) connect: Duration,
    pub(super) reply: Duration,
    /// The time to live of the lease, in seconds.
    pub(super) ttl: i64,
}

impl Link {
    /// Connects to a member, and continues the session `before`, or begins one if that is lost.
    pub(super) async fn open(
        member: &Member,
        tls: Option<&TlsOptions>,
        account: Account,
        limits: Limits,
        before: Option<&ClientSession>,
    ) -> Result<(Self, Streams), ServerError> {
        let limit = limits.reply;
        let connection = Connection::open(member, tls, account, limits.connect, limit).await?;
        let (client, begun) = if let Some(before) = before.filter(|before| before.session.loss().is_none()) {
            let begun = env::now();
            read_by_leader(&connection, before.lease).await?;
            (before.clone(), begun)
        } else {
            if let Some(before) = before {
                // As long as it is there, its keys keep all waiters out, those of this client included.
                revoke(&connection, before.lease).await?;
            }
            // This is written by the leader, so no read is needed before the first heartbeat.
            let begun = env::now();
            (grant(&connection, limits).await?, begun)
        };
        let (beats, outgoing) = unbounded_channel();
        let _ = beats.send(LeaseId { id: client.lease });
        let first = async {
            let opened = connection.stream(calls::KEEP_ALIVE, UnboundedReceiverStream::new(outgoing)).await;
            let mut replies: Streaming<Lives> = opened?;
            let first = replies.message().await.map_err(|status| unavailable(&status))?;
            Ok((replies, first))
        };
        let (replies, first) = env::within(limit, first).await.unwrap_or_else(|| Err(late(limit)))?;
        let ttl = alive(&client.session, first, begun)
            .ok_or_else(|| ServerError::Unavailable("the lease of this client is gone".into()))?;
        let (sender, watches) = unbounded_channel();
        let link = Self {
            connection,
            member: member.to_string(),
            client,
            watches: sender,
            limit,
            hurry: Notify::new(),
            fault: Mutex::default(),
            over: Sender::default(),
        };
        Ok((link, Streams { beats, replies, ttl, watches }))
    }

    /// Sends a request, and returns its reply. If there is no such lease, the session is lost.
    pub(super) async fn call<Q, A>(&self, path: &'static str, request: Q) -> Result<A, StoreError>
    where
        Q: prost::Message + Clone + 'static,
        A: prost::Message + Default + 'static,
    {
        self.call_under(self.client.lease, path, request).await
    }

    /// The same for a request that needs this lease; zero if it may need several.
    pub(super) async fn call_under<Q, A>(
        &self,
        lease: i64,
        path: &'static str,
        request: Q,
    ) -> Result<A, StoreError>
    where
        Q: prost::Message + Clone + 'static,
        A: prost::Message + Default + 'static,
    {
        let mut over = self.over.subscribe();
        if let Some(reason) = over.borrow().clone() {
            return Err(StoreError::NotSent(reason));
        }
        let reply = tokio::select! {
            biased;
            reply = self.connection.call(path, request) => reply,
            Ok(reason) = over.wait_for(Option::is_some) => {
                let reason = reason.clone().unwrap_or_else(|| late(self.limit));
                Err(Failure::Other(StoreError::Unknown(reason)))
            }
        };
        reply.map_err(|failure| match failure {
            Failure::NoLease if lease != self.client.lease => {
                // Perhaps that of the session is gone, too.
                self.doubt_session();
                StoreError::Refused(ServerError::Unavailable("the lease of this hold is gone".into()))
            }
            Failure::NoLease => {
                self.client.session.lose(Loss::Gone);
                self.hurry.notify_one();
                StoreError::Refused(ServerError::Unavailable("the lease of this client is gone".into()))
            }
            Failure::NoToken(error) => StoreError::Refused(error),
            Failure::Other(error) => {
                if let StoreError::Unknown(reason) | StoreError::NotSent(reason) = &error {
                    self.break_off(reason.clone());
                }
                error
            }
        })
    }

    /// Ends the connection: the next one takes its place.
    pub(super) fn break_off(&self, reason: ServerError) {
        self.fault.lock().get_or_insert(reason);
        self.hurry.notify_one();
    }

    /// Sends a heartbeat at once: the session may be lost.
    pub(super) fn doubt_session(&self) {
        self.hurry.notify_one();
    }

    /// Gives the connection up: each request without a reply has an unknown outcome, and has it when this returns. So an outcome is
    /// never known to be unknown only after the next connection is there.
    pub(super) async fn give_up(&self, reason: &ServerError) {
        self.over.send_replace(Some(reason.clone()));
        self.over.closed().await;
    }

    /// Requests a lease of at least this length. Returns its id, and until when it may be trusted.
    pub(super) async fn grant(&self, length: Duration) -> Result<(i64, Instant), StoreError> {
        let begun = env::now();
        let granted: Granted = self.call(calls::GRANT, Grant { ttl: whole_seconds(length) }).await?;
        Ok((granted.id, deadline(begun, seconds(granted.ttl))))
    }

    /// Ends the session.
    pub(super) async fn end_session(&self) {
        // Without a reply it runs out by itself.
        self.revoke(self.client.lease).await;
    }

    /// Revokes a lease; false if it may still be there.
    pub(super) async fn revoke(&self, lease: i64) -> bool {
        revoke(&self.connection, lease).await.is_ok()
    }

    /// Keeps the session alive, and reports what the stream of watches says, until the connection is of no use.
    pub(super) async fn serve(&self, streams: Streams, report: impl Fn(WatchReply)) -> Fall {
        let Streams { beats, replies, ttl, watches } = streams;
        tokio::select! {
            biased;
            fall = self.keep_alive(beats, replies, ttl) => fall,
            fall = self.keep_watching(watches, report) => fall,
        }
    }

    async fn keep_alive(
        &self,
        beats: UnboundedSender<LeaseId>,
        mut replies: Streaming<Lives>,
        mut ttl: Duration,
    ) -> Fall {
        let session = &self.client.session;
        loop {
            tokio::select! {
                biased;
                () = self.hurry.notified() => {}
                () = env::sleep_for(ttl / 3) => {}
            }
            if let Some(fault) = self.fault.lock().take() {
                return Fall::Broken(fault);
            }
            if session.loss().is_some() {
                return Fall::Session;
            }
            let begun = env::now();
            let lease = self.client.lease;
            let beat = async {
                read_by_leader(&self.connection, lease).await?;
                // A stream that has ended has no reply.
                let _ = beats.send(LeaseId { id: lease });
                replies.message().await.map_err(|status| unavailable(&status))
            };
            let limit = (ttl / 10).clamp(SHORTEST_BEAT, self.limit.max(SHORTEST_BEAT));
            let reply = match env::within(limit, beat).await {
                Some(Ok(reply)) => reply,
                Some(Err(error)) => return Fall::Broken(error),
                None => return Fall::Broken(late(limit)),
            };
            if reply.is_none() {
                return Fall::Broken(ServerError::Unavailable("the connection was closed".into()));
            }
            match alive(session, reply, begun) {
                Some(granted) => ttl = granted,
                None => return Fall::Session,
            }
        }
    }

    async fn keep_watching(
        &self,
        requests: UnboundedReceiver<WatchRequest>,
        report: impl Fn(WatchReply),
    ) -> Fall {
        // It resolves with the first reply, so with the first watch.
        let opened = self.connection.stream(calls::WATCH, UnboundedReceiverStream::new(requests)).await;
        let mut replies: Streaming<WatchReply> = match opened {
            Ok(replies) => replies,
            Err(error) => return Fall::Broken(error),
        };
        loop {
            match replies.message().await {
                Ok(Some(reply)) => report(reply),
                Ok(None) => return Fall::Broken(ServerError::Unavailable("the watches were closed".into())),
                Err(status) => return Fall::Broken(unavailable(&status)),
            }
        }
    }
}

/// Reads what only a leader can reply to that a majority follows at that time: the key of this client, or that it may not read it.
async fn read_by_leader(connection: &Connection, lease: i64) -> Result<(), ServerError> {
    let range = Range { key: keys::client(lease), keys_only: true, ..Range::default() };
    let ranged: Result<Ranged, _> = connection.call(calls::RANGE, range).await;
    match ranged {
        // The server looks whose right it is when the leader has replied.
        Ok(_) | Err(Failure::Other(StoreError::Refused(ServerError::Denied(_)))) => Ok(()),
        Err(failure) => Err(failure.into_error()),
    }
}

async fn grant(connection: &Connection, limits: Limits) -> Result<ClientSession, ServerError> {
    let begun = env::now();
    let granted: Granted =
        connection.call(calls::GRANT, Grant { ttl: limits.ttl }).await.map_err(Failure::into_error)?;
    let session = Session::new(deadline(begun, seconds(granted.ttl)));
    Ok(ClientSession { lease: granted.id, session, is_recorded: Arc::default() })
}

/// Revokes a lease, and fails if there is no reply.
async fn revoke(connection: &Connection, lease: i64) -> Result<(), ServerError> {
    let revoked: Result<Revoked, _> = connection.call(calls::REVOKE, LeaseId { id: lease }).await;
    let Err(failure @ (Failure::Other(_) | Failure::NoToken(_))) = revoked else { return Ok(()) };
    let is_refused = matches!(failure, Failure::NoToken(_) | Failure::Other(StoreError::Refused(_)));
    let error = failure.into_error();
    tracing::debug!(%error, "a lease could not be revoked");
    if is_refused { Ok(()) } else { Err(error) }
}

/// Moves the deadline of a session whose heartbeat was sent at `begun`, and returns its time to live; `None` if it is lost.
fn alive(session: &Session, reply: Option<Lives>, begun: Instant) -> Option<Duration> {
    let ttl = reply.map_or(0, |reply| reply.ttl);
    if ttl <= 0 {
        session.lose(Loss::Gone);
        return None;
    }
    session.set_deadline(deadline(begun, seconds(ttl)));
    session.loss().is_none().then(|| seconds(ttl))
}

/// A length as the server takes it.
pub(super) fn whole_seconds(length: Duration) -> i64 {
    let seconds = length.as_secs().saturating_add((length.subsec_nanos() > 0).into());
    i64::try_from(seconds).unwrap_or(LONGEST).clamp(1, LONGEST)
}

fn seconds(ttl: i64) -> Duration {
    Duration::from_secs(ttl.max(0).unsigned_abs())
}

/// Until when a session may be trusted that the server has granted for `ttl` no earlier than `begun`.
fn deadline(begun: Instant, ttl: Duration) -> Instant {
    begun + ttl - margin(ttl)
}

fn unavailable(error: &dyn std::error::Error) -> ServerError {
    ServerError::Unavailable(causes(error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_are_rounded_up_to_what_etcd_grants() {
        let ms = |length| whole_seconds(Duration::from_millis(length));
        assert_eq!([1, 1000, 1001, 60_000].map(ms), [1, 1, 2, 60]);
        assert_eq!(whole_seconds(Duration::MAX), LONGEST);
    }
}
