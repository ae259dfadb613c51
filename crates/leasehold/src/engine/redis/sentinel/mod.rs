//! The sentinels of a primary: they are asked all the time which server it is.
//!
//! After a failover the old primary looks well and grants locks for ten seconds more, and one that crashed and was restarted is
//! an empty primary until the sentinels notice it. So no address is used without a sentinel's present word, and a switch ends
//! the connections to the old primary at once.

mod verdict;

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;

use self::verdict::{Answer, Named, Nowhere, Verdict};
use super::address::{Endpoint, Sentinels};
use super::net::{Call, Opened, Pipeline, Push, PushHandler, Reconnect, Settings, Value};
use crate::engine::remote::store::StoreError;
use crate::env;
use crate::error::ServerError;
use crate::mutex::Mutex;

/// How often each sentinel is asked, if it announces nothing.
const PERIOD: Duration = Duration::from_secs(1);
/// How many periods there are between two questions for the other sentinels.
const RARELY: u32 = 10;
/// The channel on which sentinels announce failovers.
const SWITCHES: &str = "+switch-master";

/// The primary that the sentinels name.
#[derive(Debug)]
pub(crate) struct Primary {
    sentinels: Sentinels,
    verdict: Mutex<Verdict>,
    /// The number of the round. A new one begins whenever a connection is to be opened: every sentinel is asked at once.
    round: watch::Sender<u64>,
    /// Notified of each answer.
    heard: Notify,
    /// Those that have a connection, by their own ids: a sentinel has a name in the URL and an address in the lists of others.
    ids: Mutex<HashSet<String>>,
    /// Sentinels that were found and have no task yet.
    found: Mutex<Vec<Endpoint>>,
    has_found: Notify,
    /// Counts the switches, and whatever else ends the connections to the primary.
    moves: Arc<watch::Sender<u64>>,
}

impl Primary {
    pub(crate) fn new(sentinels: Sentinels, moves: Arc<watch::Sender<u64>>) -> Self {
        let mut verdict = Verdict::default();
        let mut found = sentinels.endpoints.clone();
        found.retain(|endpoint| verdict.add(endpoint));
        Self {
            sentinels,
            verdict: Mutex::new(verdict),
            round: watch::Sender::new(0),
            heard: Notify::new(),
            ids: Mutex::default(),
            found: Mutex::new(found),
            has_found: Notify::new(),
            moves,
        }
    }

    /// The name of the primary, and its sentinels.
    pub(crate) fn sentinels(&self) -> &Sentinels {
        &self.sentinels
    }

    /// Where the primary is now: every sentinel is asked, and one has to confirm it.
    pub(crate) async fn endpoint(&self) -> Result<Endpoint, ServerError> {
        let mut round = 0;
        self.round.send_modify(|number| {
            *number += 1;
            round = *number;
        });
        loop {
            let heard = self.heard.notified();
            tokio::pin!(heard);
            // Registered before the look: an answer in between is not missed.
            heard.as_mut().enable();
            if let Some(primary) = self.verdict.lock().primary(round) {
                return primary.map_err(failure);
            }
            heard.await;
        }
    }

    /// Whether a server was named, and is only late.
    pub(crate) fn is_known(&self) -> bool {
        matches!(self.verdict.lock().primary(*self.round.borrow()), Some(Ok(_)))
    }

    /// Why there is no primary so far.
    pub(crate) fn nowhere(&self) -> ServerError {
        failure(self.verdict.lock().nowhere())
    }

    /// Asks the sentinels until it is dropped.
    pub(crate) async fn run(self: &Arc<Self>, settings: &Settings) {
        let mut tasks = JoinSet::new();
        loop {
            for sentinel in std::mem::take(&mut *self.found.lock()) {
                let settings = settings.of_sentinel(sentinel.clone(), &self.sentinels);
                tasks.spawn(Arc::clone(self).keep_asking(sentinel, settings));
            }
            tokio::select! {
                () = self.has_found.notified() => {}
                Some(_) = tasks.join_next() => {}
            }
        }
    }

    /// Asks one sentinel. Ends if it is one that was found, and cannot be reached for long.
    async fn keep_asking(self: Arc<Self>, sentinel: Endpoint, settings: Settings) {
        let is_configured = self.sentinels.endpoints.contains(&sentinel);
        let (mut reconnect, mut failures) = (Reconnect::default(), 0_u32);
        let mut rounds = self.round.subscribe();
        let switched = Arc::new(Notify::new());
        loop {
            let round = *rounds.borrow_and_update();
            let announce: PushHandler = {
                let (switched, primary) = (Arc::clone(&switched), self.sentinels.primary.clone());
                Arc::new(move |push| {
                    if is_switch(push, &primary) {
                        switched.notify_one();
                    }
                })
            };
            let failure = match settings.open(announce).await {
                Ok(Opened { pipeline: connection, ended, .. }) => {
                    reconnect.opened();
                    failures = 0;
                    let asking = self.ask(&sentinel, &connection, &mut rounds, &switched);
                    tokio::select! {
                        biased;
                        _ = ended => ServerError::Unavailable("the connection has ended".into()),
                        failure = asking => failure,
                    }
                }
                Err(failure) => {
                    failures += 1;
                    reconnect.failed(&sentinel, "the address of the primary", &failure);
                    failure
                }
            };
            if !is_configured && failures > GIVEN_UP {
                self.verdict.lock().remove(&sentinel);
                self.heard.notify_waiters();
                return;
            }
            let said = match failure {
                ServerError::Denied(text) => Answer::Denied(text),
                ServerError::Unavailable(text) => Answer::Failed(text),
                other => Answer::Failed(other.to_string()),
            };
            self.hear(&sentinel, said, round);
            tokio::select! {
                () = tokio::time::sleep(reconnect.pause()) => {}
                // A connection is to be opened: it cannot wait.
                _ = rounds.changed() => {}
            }
        }
    }

    /// Asks a sentinel on one connection, until that fails.
    async fn ask(
        &self,
        sentinel: &Endpoint,
        connection: &Pipeline,
        rounds: &mut watch::Receiver<u64>,
        switched: &Notify,
    ) -> ServerError {
        // Without the right to subscribe, switches are found by asking.
        if let Err(StoreError::Unknown(failure)) = connection.subscribe(true, &[SWITCHES.into()]).await {
            return failure;
        }
        if let Ok(Value::Text(id)) = connection.send(Call::command("SENTINEL").arg("MYID")).await {
            self.ids.lock().insert(String::from_utf8_lossy(&id).into_owned());
        }
        for count in 1_u32.. {
            let round = *rounds.borrow_and_update();
            let said = match self.question(connection).await {
                Ok(said) => said,
                Err(StoreError::Refused(ServerError::Denied(text))) => Answer::Denied(text),
                Err(error) => return error.into(),
            };
            self.hear(sentinel, said, round);
            // Not at once: those of the URL are to be known by then.
            if count % RARELY == 2
                && let Err(failure) = self.find_others(connection).await
            {
                return failure;
            }
            tokio::select! {
                biased;
                _ = rounds.changed() => {}
                () = switched.notified() => {}
                () = tokio::time::sleep(PERIOD) => {}
            }
        }
        unreachable!("the count does not end")
    }

    /// Asks for the address and the epoch, in one round trip.
    async fn question(&self, connection: &Pipeline) -> Result<Answer, StoreError> {
        let call = |what| Call::command("SENTINEL").arg(what).arg(&self.sentinels.primary);
        let address = connection.send(call("GET-MASTER-ADDR-BY-NAME"));
        let primary = connection.send(call("MASTER"));
        let Some(endpoint) = endpoint(&address.await?) else { return Ok(Answer::Unknown) };
        let epoch = match primary.await {
            Ok(reply) => field(&reply, "config-epoch").and_then(|epoch| epoch.parse().ok()),
            // Without the right to ask for it.
            Err(StoreError::Refused(_)) => None,
            Err(error) => return Err(error),
        };
        Ok(Answer::Primary(Named { endpoint, epoch }))
    }

    /// Adds the sentinels that this one knows.
    async fn find_others(&self, connection: &Pipeline) -> Result<(), ServerError> {
        let call = Call::command("SENTINEL").arg("SENTINELS").arg(&self.sentinels.primary);
        let others = match connection.send(call).await {
            Ok(Value::Array(others)) => others,
            // Without the right to ask for them, those of the URL have to do.
            Ok(_) | Err(StoreError::Refused(_)) => return Ok(()),
            Err(error) => return Err(error.into()),
        };
        let others = others.iter().filter_map(|other| {
            let port = field(other, "port")?.parse().ok()?;
            let is_new = field(other, "runid").is_none_or(|id| !self.ids.lock().contains(id));
            is_new.then(|| field(other, "ip").map(|host| Endpoint::Tcp(host.to_owned(), port)))?
        });
        for other in others {
            if self.verdict.lock().add(&other) {
                self.found.lock().push(other);
                self.has_found.notify_one();
            }
        }
        Ok(())
    }

    fn hear(&self, sentinel: &Endpoint, said: Answer, round: u64) {
        let (is_first, primary) = {
            let mut verdict = self.verdict.lock();
            (verdict.is_open(), verdict.hear(sentinel, said, round, env::now()))
        };
        if let Some(Named { endpoint, epoch }) = primary {
            let name = &self.sentinels.primary;
            tracing::info!(%name, server = %endpoint, epoch, %sentinel, "the sentinels name this primary");
            if !is_first {
                self.moves.send_modify(|moves| *moves += 1);
            }
        }
        self.heard.notify_waiters();
    }
}

/// After how many failed connections in a row a sentinel that was found is forgotten: about a minute.
const GIVEN_UP: u32 = 60;

fn failure(nowhere: Nowhere) -> ServerError {
    match nowhere {
        Nowhere::ForNow(text) => ServerError::Unavailable(text),
        Nowhere::ForGood(text) => ServerError::Denied(text),
    }
}

/// Whether a push announces a failover of this primary.
fn is_switch(push: &Push, primary: &str) -> bool {
    let [Value::Text(kind), Value::Text(_), Value::Text(payload)] = push.as_slice() else { return false };
    let name = payload.split(|byte| *byte == b' ').next();
    kind == b"message" && name == Some(primary.as_bytes())
}

/// The address in the reply of a sentinel; none if it knows no such primary.
fn endpoint(reply: &Value) -> Option<Endpoint> {
    let Value::Array(parts) = reply else { return None };
    let [Value::Text(host), Value::Text(port)] = parts.as_slice() else { return None };
    let port = std::str::from_utf8(port).ok()?.parse().ok()?;
    Some(Endpoint::Tcp(String::from_utf8(host.clone()).ok()?, port))
}

/// The value of a field: names and values alternate.
fn field<'a>(reply: &'a Value, name: &str) -> Option<&'a str> {
    let Value::Array(parts) = reply else { return None };
    parts.as_chunks().0.iter().find_map(|[key, value]| match (key, value) {
        (Value::Text(key), Value::Text(value)) if key == name.as_bytes() => std::str::from_utf8(value).ok(),
        _ => None,
    })
}
