//! One simulated connection: requests reach the server in order, and their replies come back in order; with reordering only those
//! about one name do.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::SimServer;
use crate::engine::remote::store::{Done, StoreError};
use crate::env;
use crate::error::ServerError;
use crate::name::Name;

/// How long a client waits for a reply before it replaces the connection.
pub(super) const RESPONSE_TIMEOUT: Duration = Duration::from_secs(2);

/// A request on its way.
pub(super) trait Job: Send {
    /// The names it is about; none means all.
    fn names(&self) -> &[Name];

    /// The server carries it out.
    fn execute(&mut self, server: &SimServer);

    /// The server's part of it, to be carried out whatever happens to its client.
    fn detach(&mut self) -> Box<dyn FnOnce(&SimServer) + Send>;

    /// Its outcome is read: the result, or the error if there is none.
    fn complete(self: Box<Self>, error: Option<StoreError>);
}

/// A request that runs on the server.
pub(super) struct Request<T, D, F> {
    names: Vec<Name>,
    run: Option<F>,
    result: Option<Result<T, ServerError>>,
    done: D,
}

impl<T, D, F> Request<T, D, F> {
    pub(super) fn new(names: Vec<Name>, done: D, run: F) -> Self {
        Self { names, run: Some(run), result: None, done }
    }
}

impl<T, D, F> Job for Request<T, D, F>
where
    T: Send,
    D: Done<T>,
    F: FnOnce(&SimServer) -> Result<T, ServerError> + Send + 'static,
{
    fn names(&self) -> &[Name] {
        &self.names
    }

    fn detach(&mut self) -> Box<dyn FnOnce(&SimServer) + Send> {
        let run = self.run.take();
        Box::new(move |server| drop(run.map(|run| run(server))))
    }

    fn execute(&mut self, server: &SimServer) {
        self.result = self.run.take().map(|run| run(server));
    }

    fn complete(self: Box<Self>, error: Option<StoreError>) {
        let late = || Err(ServerError::Unavailable("it was not carried out".into()));
        let result = self.result.unwrap_or_else(late);
        self.done.done(error.map_or_else(|| result.map_err(StoreError::Refused), Err));
    }
}

/// One connection, until it breaks.
#[derive(Clone)]
pub(super) struct Link {
    requests: UnboundedSender<Box<dyn Job>>,
    broken: Arc<Broken>,
}

/// Whether the connection is broken.
#[derive(Default)]
struct Broken {
    is_broken: Mutex<bool>,
    changed: Notify,
}

impl Broken {
    fn set(&self) {
        *self.state() = true;
        self.changed.notify_waiters();
    }

    async fn wait(&self) {
        loop {
            let changed = self.changed.notified();
            if *self.state() {
                return;
            }
            changed.await;
        }
    }

    fn state(&self) -> MutexGuard<'_, bool> {
        self.is_broken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Link {
    /// A connection of the client whose task calls this. Requests reach the server whatever happens to the client; replies are
    /// read where the client runs.
    pub(super) fn new(server: &Arc<SimServer>) -> Self {
        let (requests, sent) = unbounded_channel();
        let (replies, carried_out) = unbounded_channel();
        let broken = Arc::<Broken>::default();
        server.spawn(there(Arc::clone(server), sent, replies, Arc::clone(&broken)));
        env::spawn(back(Arc::clone(server), carried_out, Arc::clone(&broken)));
        Self { requests, broken }
    }

    /// Sends a request; it is returned if the connection is broken.
    pub(super) fn send(&self, job: Box<dyn Job>) -> Option<Box<dyn Job>> {
        let broken = self.broken.state();
        if *broken {
            return Some(job);
        }
        self.requests.send(job).err().map(|unsent| unsent.0)
    }

    /// Breaks the connection. Requests in flight have no outcome.
    pub(super) fn cut(&self) {
        self.broken.set();
    }

    pub(super) fn is_broken(&self) -> bool {
        *self.broken.state()
    }

    /// Resolves when the connection is broken.
    pub(super) async fn broken(&self) {
        self.broken.wait().await;
    }
}

/// A reply in flight.
enum Back {
    /// It was carried out.
    Reply(Box<dyn Job>),
    /// The server refuses it.
    Refusal(Box<dyn Job>, ServerError),
    /// No reply, although it was carried out.
    Silence(Box<dyn Job>),
    /// No reply: it did not reach the server.
    Gone(Box<dyn Job>),
}

/// One direction of a connection. Items that wait when it is free are carried together: latency does not limit throughput.
struct Direction<T> {
    comes: UnboundedReceiver<T>,
    /// The items that are carried together, in order.
    together: VecDeque<T>,
}

impl<T> Direction<T> {
    fn new(comes: UnboundedReceiver<T>) -> Self {
        Self { comes, together: VecDeque::new() }
    }

    /// The next item to arrive, and whether it is the first of those that are carried together; none at the end of the channel.
    /// `choose` selects the next one among them.
    async fn next(&mut self, choose: impl FnOnce(&VecDeque<T>) -> usize) -> Option<(T, bool)> {
        let is_first = self.together.is_empty();
        if is_first {
            self.together.push_back(self.comes.recv().await?);
            self.together.extend(std::iter::from_fn(|| self.comes.try_recv().ok()));
        }
        let next = choose(&self.together);
        self.together.remove(next).map(|next| (next, is_first))
    }
}

/// Which request reaches the server next: with reordering, the last one that may overtake those before it.
fn next_request(server: &SimServer, requests: &VecDeque<Box<dyn Job>>) -> usize {
    if !server.faults().is_reordered {
        return 0;
    }
    let may_overtake = |at: &usize| {
        let mut before = requests.iter().take(*at);
        before.all(|before| are_disjoint(before.names(), requests[*at].names()))
    };
    (0..requests.len()).rev().find(may_overtake).unwrap_or(0)
}

fn are_disjoint(some: &[Name], others: &[Name]) -> bool {
    !some.is_empty() && !others.is_empty() && !some.iter().any(|name| others.contains(name))
}

/// Carries requests to the server.
async fn there(
    server: Arc<SimServer>,
    requests: UnboundedReceiver<Box<dyn Job>>,
    replies: UnboundedSender<Back>,
    broken: Arc<Broken>,
) {
    let mut requests = Direction::new(requests);
    loop {
        let (mut job, is_first) = tokio::select! {
            biased;
            () = broken.wait() => break,
            next = requests.next(|requests| next_request(&server, requests)) => match next {
                Some(next) => next,
                None => return,
            },
        };
        let latency = server.faults().latency;
        if is_first && !latency.is_zero() {
            tokio::select! {
                biased;
                () = broken.wait() => {
                    let _ = replies.send(lost(&server, job));
                    break;
                }
                () = env::sleep_for(latency) => {}
            }
        }
        let refusal = server.faults().refusal.clone();
        let reply = if let Some(refusal) = refusal {
            Back::Refusal(job, refusal)
        } else {
            job.execute(&server);
            if server.loses_reply() { Back::Silence(job) } else { Back::Reply(job) }
        };
        // The other direction exists as long as this one.
        let _ = replies.send(reply);
    }
    requests.comes.close();
    while let Some((job, _)) = requests.next(|_| 0).await {
        let _ = replies.send(lost(&server, job));
    }
}

/// Carries replies back.
async fn back(server: Arc<SimServer>, replies: UnboundedReceiver<Back>, broken: Arc<Broken>) {
    let mut replies = Direction::new(replies);
    while let Some((reply, is_first)) = replies.next(|_| 0).await {
        let (job, error) = match reply {
            Back::Reply(job) => (job, None),
            Back::Refusal(job, refusal) => (job, Some(StoreError::Refused(refusal))),
            Back::Silence(job) => {
                let silent = Arc::clone(&broken);
                env::spawn(async move {
                    env::sleep_for(RESPONSE_TIMEOUT).await;
                    silent.set();
                });
                // Replies arrive in order: none after it is read either.
                broken.wait().await;
                job.complete(Some(gone()));
                continue;
            }
            Back::Gone(job) => {
                job.complete(Some(gone()));
                continue;
            }
        };
        let latency = server.faults().latency;
        let arrives = async {
            if is_first && !latency.is_zero() {
                env::sleep_for(latency).await;
            }
        };
        let is_broken = tokio::select! {
            biased;
            () = broken.wait() => true,
            () = arrives => false,
        };
        job.complete(if is_broken { Some(gone()) } else { error });
    }
}

/// A request that had not reached the server when the connection broke. Its client sees the failure at once; the server may carry
/// the request out later.
fn lost(server: &Arc<SimServer>, mut job: Box<dyn Job>) -> Back {
    let acts_late = server.faults().acts_late;
    if let Some(delay) = acts_late {
        let (run, of) = (job.detach(), Arc::clone(server));
        server.spawn(async move {
            env::sleep_for(delay).await;
            run(&of);
        });
    }
    Back::Gone(job)
}

fn gone() -> StoreError {
    StoreError::Unknown(ServerError::Unavailable("the connection is closed".into()))
}
