//! Locks: a function of the server about one name, on the connection that has the name.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio::sync::oneshot;

use super::home::{Function, Home};
use super::lane::{Job, Task};
use super::packets::Value;
use super::places::{Grant, LANES, Lane, Place};
use super::{LOOK_AGAIN, Server};
use crate::engine::remote::store::{Given, StoreError, Take, Taken, Topic};
use crate::engine::{Busy, HoldKey, Holding, Resource};
use crate::env;
use crate::error::ServerError;
use crate::session::Session;

/// How often a waiter without a lane polls: between the first and both together.
const POLL: Duration = Duration::from_millis(50);
const POLL_SPREAD: u64 = 150;
/// How soon a waiter retries while the lock of another owner of this client is being released.
const SOON: Duration = Duration::from_millis(50);

/// The parameters of [`Store::take`](crate::engine::remote::store::Store::take) that count here.
pub(super) struct Entry {
    hold_key: HoldKey,
    held: u32,
    fenced: bool,
    waits: bool,
}

impl Entry {
    pub(super) fn new(take: &Take<'_>) -> Self {
        let Take { hold_key, held, fenced, waits, .. } = *take;
        Self { hold_key: hold_key.clone(), held, fenced, waits }
    }
}

impl Server {
    /// The name of a lock on the server.
    pub(super) fn name(&self, resource: &Resource) -> Result<String, StoreError> {
        self.address.rule.on_server(resource.name.as_str()).map_err(StoreError::Refused)
    }

    pub(super) async fn take(self: &Arc<Self>, entry: &Entry) -> Result<Taken, StoreError> {
        let Entry { hold_key, held, fenced, waits } = entry;
        let name = self.name(&hold_key.resource)?;
        if *held > 0 {
            return self.mint(hold_key, &name).await;
        }
        {
            let mut places = self.places.lock();
            if let Some(Grant { token, session }) = places.claim(&name, hold_key) {
                return Ok(Taken::Bound(fenced.then_some(token), session));
            }
            match places.names.get(&name) {
                // The lane is before any new try in the queue of the server.
                Some(Place::Waiting(..)) => return Ok(busy(Some(LOOK_AGAIN))),
                // To the server all owners of this client are one: it would grant the lock again.
                Some(_) => return Ok(busy(Some(SOON))),
                None => {}
            }
        }
        let home = self.home()?;
        let function = if *fenced { Function::TakeFenced } else { Function::Take };
        let token = match home.call(function, &name).await? {
            Value::Number(0) => None,
            Value::Number(number) => Some(number),
            Value::Null if *fenced => None,
            _ => {
                let text = "the server has not tried to acquire the lock".into();
                return Err(StoreError::Refused(ServerError::Unavailable(text)));
            }
        };
        let Some(token) = token else { return Ok(busy(self.line_up(hold_key, &name, *waits))) };
        let mut places = self.places.lock();
        if home.session.loss().is_some() {
            let text = "the connection has ended that had the lock".into();
            return Err(StoreError::Unknown(ServerError::Unavailable(text)));
        }
        let session = Arc::clone(&home.session);
        places.names.insert(name, Place::Home(hold_key.clone(), home));
        Ok(Taken::Bound(fenced.then_some(token), session))
    }

    /// A lock is busy: a lane waits for it, if there is a waiter and a lane. Returns when the waiter should retry by itself.
    fn line_up(self: &Arc<Self>, hold_key: &HoldKey, name: &str, waits: bool) -> Option<Duration> {
        let topic: Topic = (hold_key.resource.clone(), None);
        let mut places = self.places.lock();
        if !waits || !places.watched.contains(&topic) {
            return None;
        }
        let poll = POLL + Duration::from_millis(env::random_below(POLL_SPREAD));
        let mut task = None;
        let lane = if let Some(lane) = places.wake() {
            if lane.jobs.send(Job::Wait(name.to_owned(), topic.clone())).is_err() {
                return Some(poll);
            }
            lane
        } else {
            let is_blocked = places.blocked_until.is_some_and(|until| env::now() < until);
            let Some(home) = places.home.clone().filter(|_| !is_blocked && places.lanes < LANES) else {
                return Some(poll);
            };
            places.numbers += 1;
            places.lanes += 1;
            let (number, (sender, jobs)) = (places.numbers, unbounded_channel());
            task = Some(Task { server: Arc::clone(self), number, home: Arc::clone(&home), jobs });
            Lane { number, jobs: sender, home }
        };
        places.names.insert(name.to_owned(), Place::Waiting(lane, topic.clone()));
        drop(places);
        if let Some(task) = task {
            self.spawn(task.run(name.to_owned(), topic));
        }
        Some(LOOK_AGAIN)
    }

    /// Mints a token for an owner that holds the lock.
    async fn mint(&self, hold_key: &HoldKey, name: &str) -> Result<Taken, StoreError> {
        let Some(held) = self.held(name, hold_key) else { return Ok(Taken::CountDiffers) };
        let (token, session) = match held {
            Held::Home(home) => {
                let Value::Number(token) = home.call(Function::Token, "").await? else {
                    return Ok(Taken::CountDiffers);
                };
                (token, Arc::clone(&home.session))
            }
            Held::Lane(jobs, session) => {
                let Some(token) = ask(&jobs, Job::Token).await? else { return Ok(Taken::CountDiffers) };
                (token, session)
            }
        };
        Ok(Taken::Bound(Some(token), session))
    }

    /// Whether an owner holds its lock.
    pub(super) async fn is_there(&self, hold_key: &HoldKey) -> Result<bool, StoreError> {
        let name = self.name(&hold_key.resource)?;
        match self.held(&name, hold_key) {
            None => Ok(false),
            Some(Held::Home(home)) => {
                let id = home.call(Function::HeldBy, &name).await?;
                Ok(id == Value::Number(home.id.into()))
            }
            Some(Held::Lane(jobs, _)) => ask(&jobs, Job::IsThere).await,
        }
    }

    /// The connection by which an owner holds a lock.
    fn held(&self, name: &str, hold_key: &HoldKey) -> Option<Held> {
        let places = self.places.lock();
        match places.names.get(name)? {
            Place::Home(of, home) if of.owner == hold_key.owner => Some(Held::Home(Arc::clone(home))),
            Place::Lane(of, lane, grant) if of.owner == hold_key.owner => {
                Some(Held::Lane(lane.jobs.clone(), Arc::clone(&grant.session)))
            }
            _ => None,
        }
    }

    /// Releases the lock of an owner, if it has it. A hold that has ended with its connection is never released on another.
    pub(super) async fn give(&self, hold_key: &HoldKey) -> Result<Given, StoreError> {
        let name = self.name(&hold_key.resource)?;
        if self.held(&name, hold_key).is_none() {
            return Ok(given(false));
        }
        let place = self.places.lock().names.remove(&name);
        Ok(given(match place {
            Some(Place::Home(_, home)) => {
                let is_current = home.session.loss().is_none();
                is_current && home.call(Function::Release, &name).await? == Value::Number(1)
            }
            Some(Place::Lane(_, lane, _)) => {
                let was_held = ask(&lane.jobs, Job::Release).await?;
                self.places.lock().rest(lane);
                was_held
            }
            _ => false,
        }))
    }

    /// The holder of a resource.
    pub(super) async fn holder(&self, resource: &Resource) -> Result<Option<Holding>, StoreError> {
        let name = self.name(resource)?;
        let value = self.home()?.call(Function::HeldBy, &name).await?;
        if value == Value::Null {
            return Ok(None);
        }
        let places = self.places.lock();
        let own = match places.names.get(&name) {
            Some(Place::Home(of, home)) => Some((of.owner, home.session.remaining())),
            Some(Place::Lane(of, _, grant)) => Some((of.owner, grant.session.remaining())),
            _ => None,
        };
        let (owner, remaining) = own.map_or((None, Duration::ZERO), |(owner, rest)| (Some(owner), rest));
        Ok(Some(Holding { owner, count: 1, remaining }))
    }
}

/// The connection by which a lock is held.
enum Held {
    Home(Arc<Home>),
    Lane(UnboundedSender<Job>, Arc<Session>),
}

/// Gives a job to a lane, and returns its outcome. A lane that has ended holds nothing.
async fn ask<T>(
    jobs: &UnboundedSender<Job>,
    job: impl FnOnce(oneshot::Sender<Result<T, StoreError>>) -> Job,
) -> Result<T, StoreError> {
    let (reply, replied) = oneshot::channel();
    let ended = || ServerError::Unavailable("the connection of the lock has ended".into());
    if jobs.send(job(reply)).is_err() {
        return Err(StoreError::NotSent(ended()));
    }
    replied.await.unwrap_or_else(|_| Err(StoreError::Unknown(ended())))
}

fn busy(retry_in: Option<Duration>) -> Taken {
    Taken::Busy(Busy { retry_in, ..Busy::default() })
}

fn given(was_held: bool) -> Given {
    Given { left: was_held.then_some(0), subscribers: Some(0) }
}
