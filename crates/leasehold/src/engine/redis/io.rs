//! The thread that owns the sockets and timers of one client.
//!
//! Everybody else puts what is to be sent on the [desk](Desk) and is told when the answer has come. So a client works from
//! any runtime and from none, outlives the runtime it was made on, and keeps renewing while the user's runtime is blocked.
//! Where that runtime has the time, it reads; see [`home`](super::home).

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc::{UnboundedSender, WeakUnboundedSender, unbounded_channel};
use tokio::sync::oneshot;

use super::beats::Beats;
use super::connection::{Settings, received};
use super::desk::{Abandon, Desk, Outcome, Unsettled};
use super::hints::Hints;
use super::keeper::Keeper;
use super::lasting::{Lasting, NotAsked, Note};
use super::link::Link;
use super::request::{InOrder, Step};
use super::resp::Value;
use super::scripts::Call;
use super::subscriber;
use super::supervisor::Supervisor;
use crate::error::Failure;
use crate::time;

pub(super) type Answer = Result<Value, Failure>;

/// A way to the server, from anywhere.
#[derive(Clone)]
pub(super) struct Pipe {
    desk: Arc<Desk>,
    supervisor: WeakUnboundedSender<Message>,
}

/// What the supervisor is told.
#[derive(Debug)]
pub(super) enum Message {
    /// Run this once, however often it has to be sent.
    Last(Lasting),
    /// A try of that has come to nothing.
    Again(Lasting),
    /// Take this note off the record.
    Forget(Note),
    /// What began with one of those has ended.
    Ended,
    /// A try of this abandon has come to something, or to nothing. Go on with it after a pause, if there is to be one.
    Tried(Unsettled, Outcome, Option<Duration>),
    /// The connection of this number is of no more use.
    Broken(u64),
    /// Finish what is owed, tell, and end.
    Close(oneshot::Sender<()>),
}

/// A server may be busy for less than this without losing its connections, however short a lease is.
const SHORTEST_SILENCE: Duration = Duration::from_millis(500);

impl Pipe {
    /// Sends a call, now; the answer can be awaited or dropped.
    pub(super) fn send(&self, call: Call) -> impl Future<Output = Answer> + Send + use<> {
        self.request(None, call, None)
    }

    /// Sends a call whose reply is noted in the order of the replies, whether or not the answer is awaited.
    pub(super) fn send_in_order(
        &self,
        call: Call,
        in_order: InOrder,
    ) -> impl Future<Output = Answer> + Send + use<> {
        self.request(None, call, Some(in_order))
    }

    /// Sends a call whose answer is of no use after `limit`. To be awaited on the thread of the sockets.
    ///
    /// If the server has been silent for that long, too, the connection ends: what the call was to save may still be saved
    /// on another one, and the response time-out may be longer than there is time for.
    pub(super) fn send_within(
        &self,
        call: Call,
        limit: Option<Duration>,
    ) -> impl Future<Output = Answer> + Send + use<> {
        let answer = self.request(None, call, None);
        let desk = Arc::clone(&self.desk);
        async move {
            let Some(limit) = limit else { return answer.await };
            let answered = tokio::time::timeout(limit, answer).await;
            answered.unwrap_or_else(|_| {
                if let Some((connection, _)) = desk.connection() {
                    connection.doubt(limit.max(SHORTEST_SILENCE));
                }
                Err(Failure::Unavailable(format!("no answer within {limit:?}")))
            })
        }
    }

    /// Sends a step from one count to the next. What is to be undone of the steps before goes first.
    pub(super) fn step(
        &self,
        step: Step,
        call: Call,
        in_order: Option<InOrder>,
    ) -> impl Future<Output = Answer> + Send + use<> {
        self.request(Some(step), call, in_order)
    }

    fn request(
        &self,
        step: Option<Step>,
        call: Call,
        in_order: Option<InOrder>,
    ) -> impl Future<Output = Answer> + Send + use<> {
        let (caller, answer) = oneshot::channel();
        self.desk.send(step, call, in_order, caller);
        async move { Ok(received(answer).await?) }
    }

    /// Sends a call to whose answer nobody listens.
    pub(super) fn post(&self, call: Call) {
        self.desk.post(call);
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

    /// Sees to it that something is undone, now or later.
    pub(super) fn abandon(&self, abandon: Abandon) {
        self.desk.abandon(abandon);
    }

    pub(super) fn tell(&self, message: Message) {
        if let Some(supervisor) = self.supervisor.upgrade() {
            // One that has ended has nothing to do any more.
            let _ = supervisor.send(message);
        }
    }
}

/// The thread, as long as this lives.
pub(super) struct Thread {
    pipe: Pipe,
    supervisor: UnboundedSender<Message>,
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
        let (supervisor, receiver) = unbounded_channel();
        let desk = Arc::new(Desk::new(Arc::clone(&hints), supervisor.downgrade()));
        let pipe = Pipe { desk: Arc::clone(&desk), supervisor: supervisor.downgrade() };
        let own = pipe.clone();
        let (ready, is_ready) = oneshot::channel();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|error| Failure::Unavailable(format!("no event loop: {error}")))?;
        let work = move || {
            runtime.block_on(async move {
                match Link::open(&settings, 0, &pipe).await {
                    Ok(link) => {
                        desk.link_up(link, None);
                        let _ = ready.send(Ok(()));
                        tokio::spawn(subscriber::run(settings.clone(), Arc::clone(&hints)));
                        tokio::spawn(Arc::clone(&keeper).run(pipe.clone()));
                        tokio::spawn(beats.run(pipe.clone(), Arc::clone(&hints)));
                        Supervisor::new(settings, pipe, Arc::clone(&desk), keeper, hints).run(receiver).await;
                    }
                    Err(failure) => drop(ready.send(Err(failure))),
                }
                desk.close();
            });
        };
        std::thread::Builder::new()
            .name("leasehold-io".into())
            .spawn(work)
            .map_err(|error| Failure::Unavailable(format!("no thread: {error}")))?;
        is_ready.await.unwrap_or_else(|_| Err(Failure::Unavailable("the thread has ended".into())))?;
        Ok(Self { pipe: own, supervisor, linger })
    }

    pub(super) fn pipe(&self) -> &Pipe {
        &self.pipe
    }
}

impl Drop for Thread {
    /// Waits a moment for releases that are still on their way.
    fn drop(&mut self) {
        let (done, is_done) = oneshot::channel();
        if self.supervisor.send(Message::Close(done)).is_ok() {
            let limit = time::sleep_until_or_forever(time::after(self.linger));
            crate::block::block_on(crate::race::race(is_done, limit));
        }
    }
}
