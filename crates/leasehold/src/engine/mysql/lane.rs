//! A lane: a connection that waits for one lock, and holds it when it is granted.
//!
//! A connection that waits can do nothing else, and a lock cannot move from one connection to another. So a lane holds nothing else
//! while it waits, and is the home of the lock that it has waited for.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc::UnboundedReceiver;
use tokio::sync::oneshot;

use super::connection::{Call, Connection, Rows, number, refused};
use super::home::{Function, Home, silent};
use super::places::Grant;
use super::{LOOK_AGAIN, Server, WITHOUT_LANES};
use crate::engine::remote::store::{StoreError, Topic, report};
use crate::env;
use crate::error::ServerError;
use crate::loss::Loss;
use crate::session::Session;

/// The server's own limit of a wait: a year.
pub(super) const WAIT: &str = "SELECT GET_LOCK(?, 31536000)";
const RELEASE: &str = "SELECT RELEASE_LOCK(?)";
const HELD_BY: &str = "SELECT IS_USED_LOCK(?)";
const TOKEN: &str = "SELECT UUID_SHORT()";
/// How long a waiter has to take a lock that was granted to its lane. A waiter that is not polled does not.
const TURN: Duration = Duration::from_secs(2);
/// A waiter that has missed its wake-up finds the lock when it looks.
const _: () = assert!(LOOK_AGAIN.as_millis() < TURN.as_millis());
/// How long a lane is kept without anything to do.
const REST: Duration = Duration::from_secs(5);

/// What a lane is told to do.
#[derive(Debug)]
pub(super) enum Job {
    /// It rests, and is to wait for this name.
    Wait(String, Topic),
    /// It holds a lock, and is to release it. The reply says whether it was there.
    Release(oneshot::Sender<Result<bool, StoreError>>),
    /// Whether its lock is still there.
    IsThere(oneshot::Sender<Result<bool, StoreError>>),
    /// Another token for its lock.
    Token(oneshot::Sender<Result<Option<u64>, StoreError>>),
}

/// The task of one lane.
pub(super) struct Task {
    pub(super) server: Arc<Server>,
    pub(super) number: u64,
    pub(super) home: Arc<Home>,
    /// Ends when nobody needs the lane any more.
    pub(super) jobs: UnboundedReceiver<Job>,
}

impl Drop for Task {
    fn drop(&mut self) {
        self.server.places.lock().lanes -= 1;
    }
}

impl Task {
    /// Waits for this name, and for others after it, until nobody needs the lane any more.
    pub(super) async fn run(mut self, mut name: String, mut topic: Topic) {
        let mut connection = match self.server.open_lane(&self.home).await {
            Ok(connection) => connection,
            Err(reason) => return self.failed(&name, &topic, &reason),
        };
        while let Some(grant) = self.wait(&mut connection, &name, &topic).await {
            // Its end frees the lock, if it still has one.
            if !self.hold(&mut connection, &name, &topic, &grant).await {
                return;
            }
            let Some(next) = self.rest(&mut connection).await else { return };
            (name, topic) = next;
        }
    }

    /// Waits for the lock. None if nobody wants it any more, or the connection is of no use: it has to be dropped then.
    async fn wait(&mut self, connection: &mut Connection, name: &str, topic: &Topic) -> Option<Grant> {
        let id = connection.id;
        let waited = tokio::select! {
            biased;
            waited = connection.one(Call::new(WAIT, [name])) => Some(waited),
            _ = self.jobs.recv() => None,
        };
        let Some(waited) = waited else {
            // Without it, the server would notice later that nobody waits. If the lock was granted just now, the end of the
            // connection frees it.
            let id = id.to_string();
            let interrupted = self.home.call(Function::Interrupt, &id);
            let _ = env::within(self.server.patience.reply, interrupted).await;
            return None;
        };
        // From here on the server waits for the next call no longer than for any connection that is silent.
        let begun = env::now();
        let reason = match waited {
            Ok(rows) if number(&rows) == Some(1) => {
                let minted =
                    env::within(self.server.patience.reply, connection.one(Call::new(TOKEN, []))).await;
                match minted.map(|minted| minted.map(|rows| number(&rows))) {
                    Some(Ok(Some(token))) => {
                        let session = Session::new(self.server.patience.deadline(begun));
                        let grant = Grant { token, session };
                        if !self.server.places.lock().granted(name, self.number, grant.clone()) {
                            return None;
                        }
                        report(&self.server.events, |events| events.freed(topic));
                        return Some(grant);
                    }
                    Some(Err(reason)) => reason,
                    Some(Ok(None)) => ServerError::Unavailable("a token was not granted".into()),
                    None => self.server.patience.late(),
                }
            }
            Ok(Ok(_)) => ServerError::Unavailable("a wait for a lock was interrupted".into()),
            Ok(Err(error)) => refused(error),
            Err(reason) => reason,
        };
        self.failed(name, topic, &reason);
        None
    }

    /// Holds the lock until it is released; false if it was not, and the connection has to end.
    async fn hold(&mut self, connection: &mut Connection, name: &str, topic: &Topic, grant: &Grant) -> bool {
        let (session, patience) = (&grant.session, self.server.patience);
        let mut begun = env::now();
        let turn_ends = begun + TURN;
        let mut is_claimed = false;
        loop {
            let beat = begun + patience.idle / 3;
            let wake_up = if is_claimed { beat } else { beat.min(turn_ends) };
            let job = tokio::select! {
                biased;
                reason = connection.ended() => {
                    self.lost(name, topic, session, Loss::Gone, &reason);
                    return false;
                }
                job = self.jobs.recv() => match job {
                    Some(job) => Some(job),
                    None => return false,
                },
                () = env::sleep_until(wake_up) => None,
            };
            if !is_claimed && env::now() >= turn_ends {
                if self.server.places.lock().is_left_over(name, self.number) {
                    return false;
                }
                is_claimed = true;
            }
            let sent = env::now();
            let work = self.serve(connection, name, job);
            let (loss, reason) = match env::within(session.remaining(), work).await {
                Some(Ok(is_released)) => {
                    session.set_deadline(patience.deadline(sent));
                    begun = sent;
                    match session.loss() {
                        _ if is_released => return true,
                        None => continue,
                        Some(loss) => (loss, silent()),
                    }
                }
                Some(Err(reason)) => (Loss::Gone, reason),
                None => (Loss::Unreachable, silent()),
            };
            self.lost(name, topic, session, loss, &reason);
            return false;
        }
    }

    /// Does a job, or sends a heartbeat. True if the lock is released.
    async fn serve(
        &self,
        connection: &mut Connection,
        name: &str,
        job: Option<Job>,
    ) -> Result<bool, ServerError> {
        match job {
            // The lane rests only when it has released its lock.
            None | Some(Job::Wait(..)) => connection.ping().await.map(|()| false),
            Some(Job::Release(reply)) => {
                // If it fails, the end of the connection frees the lock. The caller may be gone.
                let _ = reply.send(Ok(release(connection, name).await?));
                Ok(true)
            }
            Some(Job::IsThere(reply)) => {
                let rows = connection.one(Call::new(HELD_BY, [name])).await?;
                let id = u64::from(connection.id);
                let _ = reply.send(outcome(&rows, |number| number == Some(id)));
                Ok(false)
            }
            Some(Job::Token(reply)) => {
                let rows = connection.one(Call::new(TOKEN, [])).await?;
                let _ = reply.send(outcome(&rows, |number| number));
                Ok(false)
            }
        }
    }

    /// Rests until there is another name to wait for; None if the connection has to end.
    async fn rest(&mut self, connection: &mut Connection) -> Option<(String, Topic)> {
        let rest = REST.min(self.server.patience.idle / 2);
        let is_broken = tokio::select! {
            biased;
            _ = connection.ended() => true,
            job = self.jobs.recv() => return wanted(job),
            () = env::sleep_for(rest) => false,
        };
        if self.server.places.lock().retire(self.number) {
            return None;
        }
        let (name, topic) = wanted(self.jobs.recv().await)?;
        if is_broken {
            self.failed(&name, &topic, &ServerError::Unavailable("the connection has ended".into()));
            return None;
        }
        Some((name, topic))
    }

    /// The lane is of no use: its waiters retry, without lanes for a moment.
    fn failed(&self, name: &str, topic: &Topic, reason: &ServerError) {
        tracing::debug!(lock = %topic.0, error = %reason, "a connection that waits for a lock was lost");
        {
            let mut places = self.server.places.lock();
            places.lane_is_gone(name, self.number);
            places.blocked_until = Some(env::now() + WITHOUT_LANES);
        }
        report(&self.server.events, |events| events.freed(topic));
    }

    /// The lock that this lane held is lost.
    fn lost(&self, name: &str, topic: &Topic, session: &Arc<Session>, loss: Loss, reason: &ServerError) {
        tracing::debug!(lock = %topic.0, error = %reason, "the connection of a lock was lost");
        session.lose(loss);
        self.server.places.lock().lane_is_gone(name, self.number);
        report(&self.server.events, |events| events.session_lost(session, loss));
        report(&self.server.events, |events| events.freed(topic));
    }
}

fn wanted(job: Option<Job>) -> Option<(String, Topic)> {
    if let Some(Job::Wait(name, topic)) = job { Some((name, topic)) } else { None }
}

/// Releases a lock, in spite of interruptions. False if it was not held.
async fn release(connection: &mut Connection, name: &str) -> Result<bool, ServerError> {
    let release = Call::new(RELEASE, [name]);
    let rows = connection.one(release.clone()).await?;
    if let Err(interruption) = &rows {
        connection.release_after(interruption, release).await?;
        return Ok(true);
    }
    Ok(number(&rows) == Some(1))
}

/// The outcome of a job whose reply is one number.
fn outcome<T>(rows: &Rows, read: impl FnOnce(Option<u64>) -> T) -> Result<T, StoreError> {
    match rows {
        Ok(_) => Ok(read(number(rows))),
        Err(error) => Err(StoreError::Unknown(refused(error.clone()))),
    }
}

#[cfg(test)]
mod tests {
    use super::super::connection::script::{self, INTERRUPTED, NULL, ONE, PREPARED, Reply};
    use super::*;

    async fn released(replies: &'static [Reply]) -> Result<bool, ServerError> {
        release(&mut script::connection(replies).await, "n").await
    }

    #[tokio::test]
    async fn a_release_on_a_lane_that_was_interrupted_is_repeated() {
        assert!(released(&[PREPARED, ONE]).await.unwrap());
        assert!(!released(&[PREPARED, NULL]).await.unwrap());
        assert!(released(&[INTERRUPTED, PREPARED, INTERRUPTED, ONE]).await.unwrap());
        assert!(released(&[PREPARED, INTERRUPTED, NULL]).await.unwrap(), "it was carried out before");
        assert!(released(&[INTERRUPTED; 4]).await.is_err());
    }
}
