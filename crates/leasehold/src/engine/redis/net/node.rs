//! One server: requests to it, and its connection for commands, which is replaced when it breaks.

use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::sync::{Notify, watch};

use super::super::registration;
use super::connect::{Ended, Opened, Settings};
use super::pipeline::{Pipeline, Push};
use super::reconnect::Reconnect;
use super::request::{Call, Encoding, OnReply, Request};
use super::resp::Value;
use super::target::REPLICA;
use crate::engine::remote::store::{Events, Shard, StoreError, report};
use crate::env;
use crate::error::ServerError;
use crate::mutex::Mutex;

/// One server. Requests to it are put from any thread, and are sent in this order.
pub(crate) struct Node {
    settings: Settings,
    shard: Shard,
    events: Weak<dyn Events>,
    /// What is sent on a new connection before everything else, when it replaces another.
    first: First,
    // Invariant: a request is put under the mutex, so those of one caller are in order across a change of the connection. No
    // reply is handled under it.
    state: Mutex<State>,
    /// Notifies the I/O thread when a request is rejected.
    rejects: Notify,
    /// The last connection that was installed.
    connected: watch::Sender<Option<Connected>>,
    closed: Notify,
    /// The process that made it. A fork has no I/O thread.
    process: u32,
}

/// A connection for commands that was made.
#[derive(Debug, Clone)]
pub(crate) struct Connected {
    /// Its address, as the server sees it, if the server tells it.
    pub(crate) address: Option<String>,
}

/// Makes the calls that precede all others on a new connection.
pub(crate) type First = Box<dyn Fn() -> Vec<Call> + Send + Sync>;

#[derive(Default)]
struct State {
    pipeline: Option<Arc<Pipeline>>,
    /// Requests without a connection. They are completed on the I/O thread, because their callers may hold a mutex.
    rejected: Vec<Request>,
    closed: bool,
}

impl Node {
    pub(crate) fn new(settings: Settings, shard: Shard, events: Weak<dyn Events>, first: First) -> Self {
        let (state, process) = (Mutex::default(), std::process::id());
        let ([rejects, closed], connected) = ([const { Notify::const_new() }; 2], watch::Sender::default());
        Self { settings, shard, events, first, state, rejects, connected, closed, process }
    }

    /// Sends a call.
    pub(crate) fn send(&self, call: Call, on_reply: Box<dyn OnReply>) {
        self.put(Request { call, encoding: Encoding::Sha, on_reply });
    }

    /// Sends a call whose reply is ignored: with the whole script, because it would not be sent again.
    pub(crate) fn post(&self, call: Call) {
        self.put(Request { call, encoding: Encoding::Source, on_reply: Box::new(None) });
    }

    /// Sends a call with the whole script, so that it need not be sent again. False if it could not be sent.
    pub(crate) fn send_source(&self, call: Call, on_reply: Box<dyn OnReply>) -> bool {
        let request = Request { call, encoding: Encoding::Source, on_reply };
        // It is flushed with the requests that follow it.
        self.state.lock().pipeline.as_ref().is_some_and(|pipeline| pipeline.put(request).is_ok())
    }

    /// Sends a request.
    pub(crate) fn put(&self, request: Request) {
        let mut state = self.state.lock();
        let put = match &state.pipeline {
            Some(pipeline) => pipeline.put(request),
            None => Err(request),
        };
        match put {
            Ok(true) => {
                let pipeline = state.pipeline.clone();
                // Unlocked first, so that other callers are not blocked.
                drop(state);
                pipeline.inspect(|pipeline| pipeline.flush());
            }
            // Another caller writes.
            Ok(false) => {}
            Err(request) if !state.closed && self.process == std::process::id() => {
                state.rejected.push(request);
                self.rejects.notify_one();
            }
            // The client is closed, or this is a fork of its process: the caller of a dropped request is notified by the drop.
            Err(request) => {
                drop(state);
                drop(request);
            }
        }
    }

    /// Ends the connection if nothing was received on it for `silence` although a reply is due.
    pub(crate) fn doubt(&self, silence: Duration) {
        let pipeline = self.state.lock().pipeline.clone();
        pipeline.inspect(|pipeline| pipeline.doubt(silence));
    }

    /// Connects, reports the result to `opened`, and replaces the connection whenever it has ended, until the node is closed.
    /// Without `opened` it begins as if a connection had ended.
    pub(crate) async fn run(&self, opened: Option<impl FnOnce(Result<(), ServerError>) + Send>) {
        let mut first = None;
        if let Some(opened) = opened {
            match Link::open_to_primary(&self.settings).await {
                Ok(link) => {
                    self.connect(&link);
                    opened(Ok(()));
                    first = Some(link);
                }
                Err(failure) => {
                    opened(Err(failure));
                    return self.close();
                }
            }
        }
        tokio::select! {
            biased;
            () = self.closed.notified() => {}
            () = self.keep_connected(first) => {}
            () = self.complete_rejected() => {}
        }
        self.close();
    }

    /// Resolves when the first connection is there.
    pub(crate) async fn connected(&self) {
        let _ = self.connected.subscribe().wait_for(Option::is_some).await;
    }

    /// Changes with each new connection.
    pub(crate) fn connections(&self) -> watch::Receiver<Option<Connected>> {
        self.connected.subscribe()
    }

    /// Stops sending, and drops the requests that have no reply yet.
    pub(crate) fn close(&self) {
        let mut state = self.state.lock();
        let left = std::mem::replace(&mut *state, State { closed: true, ..State::default() });
        drop(state);
        drop(left);
        self.closed.notify_one();
    }

    /// Installs a connection, and tells its server who the client is.
    fn connect(&self, link: &Link) {
        let mut state = self.state.lock();
        if state.closed {
            return;
        }
        let address = link.identity.as_ref().map(|identity| identity.address.clone());
        if let Some(identity) = &self.settings.options.identity {
            // If the connection has ended already, this is done on the next one.
            let _ = link.pipeline.put(registration::request(identity, address.clone()));
        }
        state.pipeline = Some(Arc::clone(&link.pipeline));
        drop(state);
        link.pipeline.flush();
        self.connected.send_replace(Some(Connected { address }));
    }

    /// The server of its connection, or of the next one.
    pub(crate) fn server(&self) -> String {
        self.settings.target.to_string()
    }

    async fn keep_connected(&self, mut link: Option<Link>) {
        let (mut reconnect, mut stale) = (Reconnect::default(), Stale::default());
        loop {
            if let Some(mut link) = link.take() {
                tokio::select! {
                    biased;
                    // It fails when the connection has ended.
                    _ = &mut link.ended => if link.moved.has_changed().unwrap_or(false) {
                        reconnect.demoted();
                    },
                    // Its server is not the primary any more, however well it looks.
                    _ = link.moved.changed() => {}
                    () = self.settings.keep_authenticated(&link.pipeline, link.renew_after) => {}
                }
                let server = &self.settings.target;
                tracing::debug!(%server, "the connection for commands has ended and is replaced");
                self.state.lock().pipeline = None;
                stale.add(link);
                report(&self.events, |events| events.down(self.shard));
            }
            let (next, may_act) = self.reconnect(&mut reconnect, &mut stale).await;
            next.send_first(&(self.first)());
            self.connect(&next);
            report(&self.events, |events| events.up(self.shard, may_act));
            link = Some(next);
        }
    }

    /// Opens the next connection, and ends the earlier ones on the server. Returns whether one of them may still act.
    async fn reconnect(&self, reconnect: &mut Reconnect, stale: &mut Stale) -> (Link, bool) {
        loop {
            let mut moved = self.settings.moves.subscribe();
            tokio::select! {
                () = tokio::time::sleep(reconnect.pause()) => {}
                // There is a new primary: it cannot wait.
                _ = moved.changed() => {}
            }
            match Link::open(&self.settings).await {
                Ok(link) => {
                    reconnect.opened();
                    match stale.kill(&link.pipeline).await {
                        Some(may_act) => return (link, may_act),
                        None => stale.add(link),
                    }
                }
                Err(failure) => {
                    reconnect.failed(&self.settings.target, "commands", &failure);
                    report(&self.events, |events| events.still_down(self.shard, failure));
                }
            }
        }
    }

    /// Completes the requests that had no connection.
    async fn complete_rejected(&self) {
        loop {
            self.rejects.notified().await;
            let rejected = std::mem::take(&mut self.state.lock().rejected);
            for request in rejected {
                request.replied(Some(Err(StoreError::NotSent(ServerError::Unavailable(
                    "not connected".into(),
                )))));
            }
        }
    }
}

/// A connection for commands.
struct Link {
    pipeline: Arc<Pipeline>,
    ended: Ended,
    renew_after: Option<Duration>,
    /// Changes when its server is found not to be the primary any more.
    moved: watch::Receiver<u64>,
    /// The server's identifier of it, if the server supports that.
    identity: Option<Identity>,
}

/// How long to wait until an address that leads to a replica is tried again.
const REPLICA_PAUSE: Duration = Duration::from_millis(100);

impl Link {
    /// Opens the first connection of a client. While the address leads to a replica, it is looked up and tried again until the
    /// connect time-out: a failover may be under way.
    async fn open_to_primary(settings: &Settings) -> Result<Self, ServerError> {
        let (begun, limit) = (env::now(), settings.options.connect_timeout);
        loop {
            match Self::open(settings).await {
                Err(ServerError::Unavailable(text))
                    if text == REPLICA && begun.elapsed() + REPLICA_PAUSE < limit =>
                {
                    tokio::time::sleep(REPLICA_PAUSE).await;
                }
                outcome => return outcome,
            }
        }
    }

    async fn open(settings: &Settings) -> Result<Self, ServerError> {
        // What moves from now on concerns this connection.
        let moved = settings.moves.subscribe();
        // Connections for commands receive no pushes.
        let Opened { pipeline, ended, renew_after } = settings.open(Arc::new(|_: &Push| {})).await?;
        let identity = match pipeline.send(Call::command("CLIENT").arg("INFO")).await {
            Ok(Value::Text(info)) => std::str::from_utf8(&info).ok().and_then(Identity::parse),
            Err(StoreError::Unknown(failure)) => return Err(failure),
            _ => None,
        };
        Ok(Self { pipeline: Arc::new(pipeline), ended, renew_after, moved, identity })
    }
}

impl Link {
    /// Sends calls whose replies are ignored. The first one of each script has the text of it, so that none is sent again
    /// behind what follows.
    fn send_first(&self, calls: &[Call]) {
        for (index, call) in calls.iter().enumerate() {
            let is_known = index > 0 && calls[index - 1].has_script_of(call);
            let encoding = if is_known { Encoding::Sha } else { Encoding::Source };
            // If the connection has ended already, this is done on the next one.
            let _ = self.pipeline.put(Request { call: call.clone(), encoding, on_reply: Box::new(None) });
        }
        self.pipeline.flush();
    }
}

/// The connections that broke and whose requests the server may still carry out.
#[derive(Default)]
struct Stale(Vec<Option<Identity>>);

impl Stale {
    /// Adds a connection that has ended. Replies that were read on it have had their effect then.
    fn add(&mut self, link: Link) {
        link.pipeline.end();
        self.0.push(link.identity);
    }

    /// Ends them on the server, so that it carries out none of their requests after these were undone. Returns whether one may
    /// still act; nothing if the connection used for this broke, too.
    async fn kill(&mut self, by: &Pipeline) -> Option<bool> {
        let mut may_act = false;
        for identity in &self.0 {
            let Some(identity) = identity else {
                may_act = true;
                continue;
            };
            match by.send(identity.kill()).await {
                Ok(_) => {}
                Err(StoreError::Refused(_)) => may_act = true,
                Err(_) => return None,
            }
        }
        self.0.clear();
        Some(may_act)
    }
}

/// Identifies a connection among all that a server has, and had before it was restarted.
#[derive(Debug, PartialEq, Eq)]
struct Identity {
    id: String,
    address: String,
}

impl Identity {
    /// Parses the server's description of a connection.
    fn parse(info: &str) -> Option<Self> {
        let field = |name: &str| info.split(' ').find_map(|field| field.strip_prefix(name));
        let (id, address) = (field("id=")?, field("addr=")?);
        // All clients of a Unix socket have its path for an address, and ids restart after a restart.
        (!address.starts_with('/')).then(|| Self { id: id.into(), address: address.into() })
    }

    /// Ends the connection on the server, if both id and address match: after a restart the id may belong to another client.
    fn kill(&self) -> Call {
        let kill = Call::command("CLIENT").arg("KILL").arg("ID").arg(&self.id);
        kill.arg("ADDR").arg(&self.address)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_is_identified_by_its_number_and_its_address_together() {
        let info = "id=7 addr=127.0.0.1:4711 laddr=127.0.0.1:6379 fd=8 name= age=0 flags=N";
        let identity = Identity::parse(info).expect("both are there");
        assert_eq!(identity, Identity { id: "7".into(), address: "127.0.0.1:4711".into() });
        for info in
            ["", "id=7", "addr=127.0.0.1:4711", "id=7 laddr=127.0.0.1:6379", "id=7 addr=/run/redis.sock:0"]
        {
            assert_eq!(Identity::parse(info), None, "{info}");
        }
    }
}
