//! The home connection: every try, every release and every heartbeat. What is pending at one moment goes in one statement.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::oneshot;

use super::connection::{Call, Connection, Rows, refused};
use super::packets::Value;
use crate::engine::remote::store::StoreError;
use crate::env::{self, Instant};
use crate::error::ServerError;
use crate::lease::margin;
use crate::loss::Loss;
use crate::session::Session;

/// How many functions are in one statement at most, and how many requests are read before they are sent.
const MOST: usize = 64;
const AT_ONCE: usize = 4 * MOST;

/// A function of the server about one name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Function {
    Take,
    /// With a token.
    TakeFenced,
    Release,
    /// Which connection holds it.
    HeldBy,
    /// A token, for a name that is held.
    Token,
    /// Ends the statement of another connection, whose id is in place of the name.
    Interrupt,
    Nothing,
}

impl Function {
    /// Its text, and whether it has a parameter.
    fn sql(self) -> (&'static str, bool) {
        match self {
            Self::Take => ("GET_LOCK(?, 0)", true),
            Self::TakeFenced => ("IF(GET_LOCK(?, 0), UUID_SHORT(), NULL)", true),
            Self::Release => ("RELEASE_LOCK(?)", true),
            Self::HeldBy => ("IS_USED_LOCK(?)", true),
            Self::Token => ("UUID_SHORT()", false),
            Self::Interrupt => ("KILL QUERY ?", true),
            Self::Nothing => ("1", false),
        }
    }

    /// One statement that calls it for so many names.
    fn statement(self, names: usize) -> String {
        let (sql, _) = self.sql();
        if self == Self::Interrupt {
            sql.to_owned()
        } else {
            format!("SELECT {}", vec![sql; names].join(", "))
        }
    }

    fn most(self) -> usize {
        if self == Self::Interrupt { 1 } else { MOST }
    }
}

/// A request to the home connection.
#[derive(Debug)]
struct Request {
    function: Function,
    name: String,
    reply: oneshot::Sender<Result<Value, StoreError>>,
}

/// The home connection as others see it.
#[derive(Debug)]
pub(super) struct Home {
    /// Its id on the server.
    pub(super) id: u32,
    pub(super) session: Arc<Session>,
    /// A name that it holds for as long as it lives, and no other connection.
    pub(super) mark: String,
    requests: UnboundedSender<Request>,
}

impl Home {
    /// Calls a function about a name.
    pub(super) async fn call(&self, function: Function, name: &str) -> Result<Value, StoreError> {
        let (reply, replied) = oneshot::channel();
        let request = Request { function, name: name.to_owned(), reply };
        let ended = || ServerError::Unavailable("the connection has ended".into());
        if self.requests.send(request).is_err() {
            return Err(StoreError::NotSent(ended()));
        }
        replied.await.unwrap_or_else(|_| Err(StoreError::Unknown(ended())))
    }
}

/// How long the server waits for a connection that is silent, and how long this client waits for a reply.
#[derive(Debug, Clone, Copy)]
pub(super) struct Patience {
    pub(super) idle: Duration,
    pub(super) reply: Duration,
}

impl Patience {
    /// Until when a connection may be trusted that has sent something at `begun` and got a reply.
    pub(super) fn deadline(self, begun: Instant) -> Instant {
        begun + self.idle - margin(self.idle)
    }

    pub(super) fn late(self) -> ServerError {
        ServerError::Unavailable(format!("no reply within {:?}", self.reply))
    }
}

/// The reason why a connection is given up whose locks cannot be trusted any more.
pub(super) fn silent() -> ServerError {
    ServerError::Unavailable(
        "the server was silent for longer than it keeps the locks of a silent client".into(),
    )
}

/// What the I/O thread does with the home connection.
pub(super) struct Worker {
    connection: Connection,
    requests: UnboundedReceiver<Request>,
    session: Arc<Session>,
    patience: Patience,
    begun: Instant,
}

/// The home connection, which got its last reply to what was sent at `begun`, and its worker.
pub(super) fn begin(
    connection: Connection,
    mark: String,
    patience: Patience,
    begun: Instant,
) -> (Arc<Home>, Worker) {
    let session = Session::new(patience.deadline(begun));
    let (sender, requests) = unbounded_channel();
    let home = Home { id: connection.id, session: Arc::clone(&session), mark, requests: sender };
    (Arc::new(home), Worker { connection, requests, session, patience, begun })
}

impl Worker {
    /// Serves until the connection is of no use, and returns why. Its session is lost then.
    pub(super) async fn serve(mut self) -> (Loss, ServerError) {
        let (loss, reason) = self.keep_serving().await;
        self.session.lose(loss);
        (loss, reason)
    }

    async fn keep_serving(&mut self) -> (Loss, ServerError) {
        loop {
            let beat = env::sleep_until(self.begun + self.patience.idle / 3);
            let first = tokio::select! {
                biased;
                reason = self.connection.ended() => return (Loss::Gone, reason),
                request = self.requests.recv() => request,
                () = beat => None,
            };
            let begun = env::now();
            // Its end would free all locks, so a server that is slow is waited for as long as the locks may be trusted.
            let done = env::within(self.session.remaining(), self.round(first)).await;
            match done {
                Some(Ok(replies)) => {
                    self.session.set_deadline(self.patience.deadline(begun));
                    self.begun = begun;
                    if let Some(loss) = self.session.loss() {
                        return (loss, silent());
                    }
                    for (request, reply) in replies {
                        // The caller may be gone: it has an undo, or wanted only to know.
                        let _ = request.send(reply);
                    }
                }
                Some(Err(reason)) => return (Loss::Gone, reason),
                None => return (Loss::Unreachable, silent()),
            }
        }
    }

    /// Sends this request with those that are pending, or a heartbeat.
    async fn round(&mut self, first: Option<Request>) -> Result<Vec<Reply>, ServerError> {
        let Some(first) = first else {
            self.connection.ping().await?;
            return Ok(Vec::new());
        };
        let mut pending: BTreeMap<Function, Vec<Request>> = BTreeMap::new();
        pending.entry(first.function).or_default().push(first);
        for _ in 1..AT_ONCE {
            let Ok(next) = self.requests.try_recv() else { break };
            pending.entry(next.function).or_default().push(next);
        }
        let pieces: Vec<Piece> =
            pending.into_iter().flat_map(|(function, all)| pieces(function, all)).collect();
        let statements: Vec<_> =
            pieces.iter().map(|piece| piece.function.statement(piece.requests.len())).collect();
        let calls: Vec<_> = pieces.iter().zip(&statements).map(|(piece, sql)| piece.call(sql)).collect();
        let rows = self.connection.run(&calls).await?;
        drop(calls);
        let mut replies = Vec::new();
        for (piece, rows) in pieces.into_iter().zip(rows) {
            let rows = self.recovered(&piece, rows).await?;
            replies.extend(piece.replies(rows));
        }
        Ok(replies)
    }

    /// A statement that was interrupted may have been carried out in part: tries are released, and releases repeated.
    async fn recovered(&mut self, piece: &Piece, rows: Rows) -> Result<Rows, ServerError> {
        let is_repeated = match piece.function {
            Function::Take | Function::TakeFenced => false,
            Function::Release => true,
            _ => return Ok(rows),
        };
        let Err(error) = rows else { return Ok(rows) };
        let sql = Function::Release.statement(piece.requests.len());
        self.connection.release_after(&error, piece.call(&sql)).await?;
        // A lock that was not there any more was released by what was interrupted: its connection is the same since it was granted.
        let released = || vec![vec![Value::Number(1); piece.requests.len()]];
        Ok(if is_repeated { Ok(released()) } else { Err(error) })
    }
}

/// Where the reply to a request goes, and the reply.
type Reply = (oneshot::Sender<Result<Value, StoreError>>, Result<Value, StoreError>);

/// Requests that share a statement.
struct Piece {
    function: Function,
    requests: Vec<Request>,
}

/// Requests in pieces of 64, 32, 16 … and one, so that there are few different statements.
fn pieces(function: Function, mut requests: Vec<Request>) -> Vec<Piece> {
    let mut pieces = Vec::new();
    while !requests.is_empty() {
        let length = (1 << requests.len().ilog2()).min(function.most());
        let rest = requests.split_off(length);
        pieces.push(Piece { function, requests: std::mem::replace(&mut requests, rest) });
    }
    pieces
}

impl Piece {
    fn call<'a>(&'a self, sql: &'a str) -> Call<'a> {
        let (_, has_parameter) = self.function.sql();
        let names = self.requests.iter().filter(|_| has_parameter).map(|request| request.name.as_str());
        Call::new(sql, names)
    }

    /// The reply to each request: one column each.
    fn replies(self, rows: Rows) -> Vec<Reply> {
        let refuse = |error: ServerError| Err(StoreError::Refused(error));
        let values = rows.map(|rows| rows.into_iter().next().unwrap_or_default());
        let mut values = values.map_err(refused).map(Vec::into_iter);
        let reply = |request: Request| {
            let value = match &mut values {
                Ok(values) => Ok(values.next().unwrap_or(Value::Null)),
                Err(error) => refuse(error.clone()),
            };
            (request.reply, value)
        };
        self.requests.into_iter().map(reply).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::super::connection::script::{self, INTERRUPTED, NULL, ONE, PREPARED, Reply};
    use super::*;

    /// The reply to a release on a connection whose server gives these replies.
    async fn released(replies: &'static [Reply]) -> Result<Value, StoreError> {
        let patience = Patience { idle: Duration::from_secs(30), reply: Duration::from_secs(2) };
        let connection = script::connection(replies).await;
        let (home, worker) = begin(connection, String::new(), patience, env::now());
        let served = tokio::spawn(worker.serve());
        let value = home.call(Function::Release, "n").await;
        served.abort();
        value
    }

    #[tokio::test]
    async fn a_release_that_was_interrupted_is_repeated_and_says_that_the_lock_was_held() {
        assert_eq!(released(&[PREPARED, ONE]).await.unwrap(), Value::Number(1));
        assert_eq!(released(&[PREPARED, NULL]).await.unwrap(), Value::Null);
        assert_eq!(released(&[INTERRUPTED, PREPARED, ONE]).await.unwrap(), Value::Number(1));
        // It was carried out in spite of the interruption, so there was nothing left to release.
        assert_eq!(released(&[PREPARED, INTERRUPTED, NULL]).await.unwrap(), Value::Number(1));
        // The end of the connection frees the lock.
        assert!(matches!(released(&[INTERRUPTED; 4]).await, Err(StoreError::Unknown(_))));
    }

    #[test]
    fn requests_are_gathered_in_few_different_statements() {
        let lengths = |count: usize| {
            let request =
                |_| Request { function: Function::Take, name: String::new(), reply: oneshot::channel().0 };
            let all = pieces(Function::Take, (0..count).map(request).collect());
            all.iter().map(|piece| piece.requests.len()).collect::<Vec<_>>()
        };
        assert_eq!(lengths(1), [1]);
        assert_eq!(lengths(11), [8, 2, 1]);
        assert_eq!(lengths(64), [64]);
        assert_eq!(lengths(135), [64, 64, 4, 2, 1]);
        assert_eq!(Function::Release.statement(2), "SELECT RELEASE_LOCK(?), RELEASE_LOCK(?)");
        assert_eq!(Function::Interrupt.statement(1), "KILL QUERY ?");
    }
}
