//! What happens to the locks of a client, as a stream of events.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use crate::engine::HoldKey;
use crate::loss::Loss;
use crate::mutex::Mutex;
use crate::name::Name;
use crate::operation::Operation;
use crate::owner::Owner;

/// Something that happened to a client or to one of its locks: [`Client::events`](crate::Client::events).
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// An acquire ended with the lock. A re-entry is not reported.
    #[non_exhaustive]
    Granted {
        /// The lock.
        lock: EventLock,
        /// How long the acquire has waited; zero if the lock was granted at once.
        waited: Duration,
    },
    /// The wait of an acquire was over while the lock was still busy.
    #[non_exhaustive]
    TimedOut {
        /// The lock; its owner is that of the acquire.
        lock: EventLock,
        /// How long the acquire has waited.
        waited: Duration,
    },
    /// The last guard of a hold was released or dropped.
    #[non_exhaustive]
    Released {
        /// The lock.
        lock: EventLock,
        /// How long it was held; `None` if it was acquired before there was a receiver.
        held_for: Option<Duration>,
    },
    /// A hold is lost: reported once, when the loss is noticed. That is when it happens on a server, and in memory when its guard is
    /// next used, waited for, released or dropped.
    #[non_exhaustive]
    Lost {
        /// The lock.
        lock: EventLock,
        /// Why.
        cause: Loss,
        /// How long it was held; `None` if it was acquired before there was a receiver.
        held_for: Option<Duration>,
    },
    /// An outage has begun.
    #[non_exhaustive]
    Disconnected {
        /// The address of the server.
        server: String,
    },
    /// The server is connected.
    #[non_exhaustive]
    Connected {
        /// The address of the server.
        server: String,
        /// How long the outage was; `None` of the first connection of a client that connects in the
        /// [background](crate::ConnectOptions::lazy).
        after: Option<Duration>,
    },
    /// The client was shut down.
    #[non_exhaustive]
    ShutDown {
        /// How many locks were still held, and now expire by themselves.
        left_to_expire: usize,
    },
    /// The receiver was too slow: so many events after those before this one are missing.
    Missed(u64),
}

/// The lock of an [`Event`].
#[derive(Clone, PartialEq, Eq)]
pub struct EventLock {
    name: Name,
    kind: &'static str,
    owner: Owner,
}

impl EventLock {
    pub(crate) fn of(key: &HoldKey) -> Self {
        let HoldKey { resource, owner, .. } = key;
        Self { name: resource.name.clone(), kind: resource.kind.label(), owner: (*owner).into() }
    }

    /// Its name, namespace included.
    #[must_use]
    pub fn name(&self) -> &str {
        self.name.as_str()
    }

    /// `lock`, `spin`, `fair`, `setnx`, `read`, `write`, `group`, `semaphore` or `leased_semaphore`.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        self.kind
    }

    /// The owner of the hold or of the acquire, to tell events of one hold from those of another. It is not to be acted for: the hold may
    /// be [handed over](crate::Lock::local_handover) to another task under the same owner.
    #[must_use]
    pub fn owner(&self) -> &Owner {
        &self.owner
    }
}

impl fmt::Debug for EventLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} by {}", self.kind, self.name, self.owner)
    }
}

/// A receiver of the [`Event`]s of a client, from when it was made: [`Client::events`](crate::Client::events).
///
/// It keeps up to 1024 events that were not received yet. If more happen, the client does not wait: it leaves them out, and
/// [`Event::Missed`] is in their place.
///
/// With the feature `stream` it is a `Stream`, too.
pub struct Events {
    queue: Arc<Queue>,
    /// How many receivers the client has.
    there: Arc<AtomicUsize>,
}

/// How many events a receiver keeps.
const MOST: usize = 1024;

impl Events {
    /// The next event; `None` when all handles, guards and operations of the client are gone and its events are received, or when
    /// the receiver is dropped. Of several operations that wait together, each gets an event of its own.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses no event.
    pub fn recv(&mut self) -> Operation<Option<Event>> {
        let queue = Arc::clone(&self.queue);
        let id = queue.receives.fetch_add(1, Ordering::Relaxed) + 1;
        let receive = Receive { queue, id };
        Operation::new(poll_fn(move |context| receive.poll(context)))
    }
}

/// One operation that waits for an event.
struct Receive {
    queue: Arc<Queue>,
    id: u64,
}

impl Receive {
    fn poll(&self, context: &mut Context<'_>) -> Poll<Option<Event>> {
        self.queue.poll(self.id, context)
    }
}

impl Drop for Receive {
    fn drop(&mut self) {
        let waker = self.queue.state.lock().wakers.remove(&self.id);
        // Dropping a waker can drop a task.
        drop(waker);
    }
}

#[cfg(feature = "stream")]
#[cfg_attr(docsrs, doc(cfg(feature = "stream")))]
impl futures_core::Stream for Events {
    type Item = Event;

    fn poll_next(self: std::pin::Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Event>> {
        self.queue.poll(STREAM, context)
    }
}

impl Drop for Events {
    fn drop(&mut self) {
        self.there.fetch_sub(1, Ordering::Relaxed);
        let wakers = self.queue.close();
        let left = std::mem::take(&mut self.queue.state.lock().events);
        drop(left);
        // They would stay in a queue of the client, and dropping a waker can drop a task.
        wake(wakers);
    }
}

impl fmt::Debug for Events {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Events").finish_non_exhaustive()
    }
}

/// The events of one receiver.
#[derive(Default)]
struct Queue {
    state: Mutex<State>,
    /// How many operations there were.
    receives: AtomicU64,
}

/// In place of the id of an operation: the task that has the receiver as a stream.
#[cfg(feature = "stream")]
const STREAM: u64 = 0;

type Wakers = BTreeMap<u64, Waker>;

/// To be called where no mutex is held.
fn wake(wakers: impl IntoIterator<Item = (u64, Waker)>) {
    wakers.into_iter().for_each(|(_, waker)| waker.wake());
}

#[derive(Default)]
struct State {
    events: VecDeque<Event>,
    /// How many events after those are missing.
    missed: u64,
    /// The client is gone, or the receiver.
    is_closed: bool,
    /// The tasks that wait for the next event, by the id of their operation.
    wakers: Wakers,
}

impl Queue {
    fn poll(&self, id: u64, context: &mut Context<'_>) -> Poll<Option<Event>> {
        let mut state = self.state.lock();
        if let Some(event) = state.events.pop_front() {
            return Poll::Ready(Some(event));
        }
        match std::mem::take(&mut state.missed) {
            0 if state.is_closed => Poll::Ready(None),
            0 => {
                let before = state.wakers.insert(id, context.waker().clone());
                drop(state);
                // Dropping a waker can drop a task.
                drop(before);
                Poll::Pending
            }
            missed => Poll::Ready(Some(Event::Missed(missed))),
        }
    }

    /// Adds an event, and returns the tasks to wake.
    fn add(&self, event: &Event) -> Wakers {
        let mut state = self.state.lock();
        if state.is_closed {
            return Wakers::new();
        }
        if state.events.len() >= MOST {
            state.missed += 1;
            return Wakers::new();
        }
        match std::mem::take(&mut state.missed) {
            0 => {}
            missed => state.events.push_back(Event::Missed(missed)),
        }
        state.events.push_back(event.clone());
        std::mem::take(&mut state.wakers)
    }

    /// No event follows. Returns the tasks to wake.
    fn close(&self) -> Wakers {
        let mut state = self.state.lock();
        state.is_closed = true;
        std::mem::take(&mut state.wakers)
    }

    fn is_closed(&self) -> bool {
        self.state.lock().is_closed
    }
}

/// The receivers of a client.
#[derive(Default)]
pub(crate) struct Listeners {
    /// How many there are: read by every acquire without the mutex. Mostly none.
    there: Arc<AtomicUsize>,
    queues: Mutex<Vec<Arc<Queue>>>,
}

impl Listeners {
    #[inline]
    pub(crate) fn are_there(&self) -> bool {
        self.there.load(Ordering::Relaxed) > 0
    }

    pub(crate) fn listen(&self) -> Events {
        let queue = Arc::<Queue>::default();
        let mut queues = self.queues.lock();
        let (closed, open): (Vec<_>, _) = queues.drain(..).partition(|queue| queue.is_closed());
        *queues = open;
        queues.push(Arc::clone(&queue));
        self.there.fetch_add(1, Ordering::Relaxed);
        drop(queues);
        drop(closed);
        Events { queue, there: Arc::clone(&self.there) }
    }

    /// Tells all receivers. Their tasks are woken when no mutex is held.
    #[cold]
    pub(crate) fn tell(&self, event: &Event) {
        let wakers: Vec<_> = self.queues.lock().iter().flat_map(|queue| queue.add(event)).collect();
        wake(wakers);
    }

    /// No event follows.
    pub(crate) fn close(&self) {
        let wakers: Vec<_> = self.queues.lock().iter().flat_map(|queue| queue.close()).collect();
        wake(wakers);
    }
}

impl fmt::Debug for Listeners {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Listeners").field(&self.there).finish()
    }
}

#[cfg(all(test, feature = "stream"))]
mod tests {
    use std::pin::Pin;
    use std::sync::mpsc;
    use std::task::Wake;

    use futures_core::Stream as _;

    use super::*;
    use crate::{Client, Guard};

    #[tokio::test]
    async fn own_446_events_are_a_stream() {
        let client = Client::connect("memory:").await.unwrap();
        let mut events = client.events();
        let reader = tokio::spawn(async move {
            let mut names = Vec::new();
            while let Some(event) = poll_fn(|context| Pin::new(&mut events).poll_next(context)).await {
                if let Event::Granted { lock, .. } = event {
                    names.push(lock.name().to_owned());
                }
            }
            names
        });
        // The reader waits before the first event and between the two.
        tokio::task::yield_now().await;
        for name in ["one", "two"] {
            client.lock(name).acquire().await.unwrap().release().await.unwrap();
            tokio::task::yield_now().await;
        }
        drop(client);
        assert_eq!(reader.await.unwrap(), ["one", "two"]);
    }

    /// A task that waits for an event, and owns a guard.
    struct Owning(#[expect(dead_code, reason = "it is dropped")] Guard);

    impl Wake for Owning {
        fn wake(self: Arc<Self>) {}
    }

    #[tokio::test]
    async fn a_receiver_is_dropped_while_a_task_that_owns_a_guard_waits_for_it() {
        let client = Client::connect("memory:").await.unwrap();
        let (mut others, mut events) = (client.events(), client.events());
        let guard = client.lock("owned by a task").acquire().await.unwrap();
        let waker = Waker::from(Arc::new(Owning(guard)));
        while Pin::new(&mut events).poll_next(&mut Context::from_waker(&waker)).is_ready() {}
        drop(waker);
        let (done, is_done) = mpsc::channel();
        // On a thread of its own: it would block for ever.
        std::thread::spawn(move || {
            drop(events);
            drop(client.events());
            done.send(())
        });
        is_done.recv_timeout(Duration::from_secs(10)).expect("no mutex is locked twice");
        assert!(matches!(others.recv().await, Some(Event::Granted { .. })));
        assert!(matches!(others.recv().await, Some(Event::Released { .. })));
    }
}
