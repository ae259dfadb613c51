//! The thread that owns the sockets and timers of one client.
//!
//! Everybody else only sends it messages. So a client works from any runtime and from none, outlives the runtime it
//! was made on, and keeps renewing while the user's runtime is blocked. Requests go out on one connection in the
//! order in which they were sent here: an undo never overtakes what it undoes.

use std::sync::Arc;
use std::time::Duration;

use redis::Value;
use tokio::sync::mpsc::{UnboundedSender, WeakUnboundedSender, unbounded_channel};
use tokio::sync::oneshot;

use super::beats::Beats;
use super::calls;
use super::connection::Settings;
use super::hints::Hints;
use super::keeper::Keeper;
use super::lasting::{Lasting, NotAsked, Note};
use super::link::Link;
use super::scripts::Call;
use super::subscriber;
use super::supervisor::{Outcome, Supervisor, Unsettled};
use crate::engine::Spot;
use crate::error::Failure;
use crate::time::{self, Instant};

pub(super) type Answer = Result<Value, Failure>;

/// A way to the thread.
#[derive(Debug, Clone)]
pub(super) struct Pipe(WeakUnboundedSender<Message>);

#[derive(Debug)]
pub(super) enum Message {
    /// Run this and tell how it went.
    Call(Request),
    /// Run this once, however often it has to be sent.
    Last(Lasting),
    /// A try of that has come to nothing.
    Again(Lasting),
    /// Take this note off the record.
    Forget(Note),
    /// What began with one of those has ended.
    Ended,
    /// See to it that this is undone, now or later.
    Abandon(Abandon),
    /// A try of this abandon has come to something, or to nothing.
    Tried(Unsettled, Outcome),
    /// The connection of this number is of no more use.
    Broken(u64),
    /// Finish what is owed, tell, and end.
    Close(oneshot::Sender<()>),
}

/// A call, how long its answer is of use, and who wants it.
#[derive(Debug)]
pub(super) struct Request {
    /// Whose count the call changes, if any.
    pub(super) about: Option<Spot>,
    pub(super) call: Call,
    pub(super) limit: Duration,
    pub(super) answer: oneshot::Sender<Answer>,
}

/// A count to be brought down, until its lease would have ended anyway.
#[derive(Debug, Clone)]
pub(super) struct Abandon {
    pub(super) spot: Spot,
    pub(super) count: u32,
    pub(super) until: Instant,
}

impl Abandon {
    pub(super) fn call(&self) -> Call {
        calls::abandon(&self.spot, self.count)
    }
}

impl Pipe {
    /// Sends a call, now; the answer can be awaited or dropped.
    pub(super) fn send(&self, call: Call) -> impl Future<Output = Answer> + Send + use<> {
        self.request(None, call, Duration::MAX)
    }

    /// Sends a call whose answer is of no use after `limit`.
    pub(super) fn send_within(
        &self,
        call: Call,
        limit: Duration,
    ) -> impl Future<Output = Answer> + Send + use<> {
        self.request(None, call, limit)
    }

    /// Sends a step from one count to the next. What is to be undone of the steps before goes first.
    pub(super) fn step(&self, spot: Spot, call: Call) -> impl Future<Output = Answer> + Send + use<> {
        self.request(Some(spot), call, Duration::MAX)
    }

    fn request(
        &self,
        about: Option<Spot>,
        call: Call,
        limit: Duration,
    ) -> impl Future<Output = Answer> + Send + use<> {
        let (answer, answered) = oneshot::channel();
        self.tell(Message::Call(Request { about, call, limit, answer }));
        async move { answered.await.unwrap_or_else(|_| Err(closed())) }
    }

    /// Sends a call that is recognised when it is repeated, until it is answered or its time is over.
    pub(super) fn last(
        &self,
        lasting: Lasting,
    ) -> impl Future<Output = Result<Answer, NotAsked>> + Send + use<> {
        let (lasting, outcome) = lasting.outcome();
        self.tell(Message::Last(lasting));
        outcome
    }

    /// Takes a note off the record, without anybody waiting for it.
    pub(super) fn forget(&self, note: Note) {
        self.tell(Message::Forget(note));
    }

    pub(super) fn abandon(&self, abandon: Abandon) {
        self.tell(Message::Abandon(abandon));
    }

    pub(super) fn tell(&self, message: Message) {
        if let Some(sender) = self.0.upgrade() {
            // A thread that has ended has nothing to do any more.
            let _ = sender.send(message);
        }
    }
}

fn closed() -> Failure {
    Failure::Unavailable("the client is closed".into())
}

/// The thread, as long as this lives.
#[derive(Debug)]
pub(super) struct Thread {
    sender: UnboundedSender<Message>,
    linger: Duration,
}

impl Thread {
    /// Starts the thread and waits until it is connected.
    pub(super) async fn start(
        settings: Settings,
        hints: Arc<Hints>,
        keeper: Arc<Keeper>,
        beats: Arc<Beats>,
        linger: Duration,
    ) -> Result<Self, Failure> {
        let (sender, receiver) = unbounded_channel();
        let pipe = Pipe(sender.downgrade());
        let (ready, is_ready) = oneshot::channel();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|error| Failure::Unavailable(format!("no event loop: {error}")))?;
        let work = move || {
            runtime.block_on(async move {
                match Link::open(&settings, 0, &pipe).await {
                    Ok(link) => {
                        let _ = ready.send(Ok(()));
                        tokio::spawn(subscriber::run(settings.clone(), Arc::clone(&hints)));
                        tokio::spawn(Arc::clone(&keeper).run(pipe.clone()));
                        tokio::spawn(beats.run(pipe.clone(), Arc::clone(&hints)));
                        Supervisor::new(settings, pipe, keeper, hints, link).run(receiver).await;
                    }
                    Err(failure) => drop(ready.send(Err(failure))),
                }
            });
        };
        std::thread::Builder::new()
            .name("leasehold-io".into())
            .spawn(work)
            .map_err(|error| Failure::Unavailable(format!("no thread: {error}")))?;
        is_ready.await.unwrap_or_else(|_| Err(closed()))?;
        Ok(Self { sender, linger })
    }

    pub(super) fn pipe(&self) -> Pipe {
        Pipe(self.sender.downgrade())
    }
}

impl Drop for Thread {
    /// Waits a moment for releases that are still on their way.
    fn drop(&mut self) {
        let (done, is_done) = oneshot::channel();
        if self.sender.send(Message::Close(done)).is_ok() {
            let limit = time::sleep_until(time::now() + self.linger);
            crate::block::block_on(crate::race::race(is_done, limit));
        }
    }
}
