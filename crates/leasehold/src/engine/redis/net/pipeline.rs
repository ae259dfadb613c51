//! Commands in flight on one connection, and their replies.
//!
//! Each sender appends its command to the output buffer. A task on the I/O thread, or one on the runtime of the callers (see
//! [`CallerReader`]), dispatches the replies in the order of the commands. Waking the I/O thread for every command would cost
//! more than everything else, so callers write themselves: at once if no command is in flight, otherwise as soon as the other
//! tasks on their runtime have appended their commands, so that one system call carries many. If that runtime is busy, the next
//! reply that is read triggers the write.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use tokio::runtime::Handle;
use tokio::sync::{Notify, oneshot};

use super::super::commands;
use super::connect::Settings;
use super::refusal::{code, refusal};
use super::request::{Call, Delete, Encoding, Reply, Request};
use super::resp::{Frame, Reader, Value, failure_of};
use super::stream::Stream;
use crate::engine::remote::store::StoreError;
use crate::error::ServerError;
use crate::mutex::Mutex;

/// One connection. It is closed when this is dropped.
pub(crate) struct Pipeline(Arc<Inner>);

struct Inner {
    stream: Stream,
    settings: Settings,
    state: Mutex<State>,
    /// Notifies the task that writes.
    write_requested: Notify,
    /// Notifies the task that checks time-outs when a first request is in flight.
    begun: Notify,
    /// Notifies the same task when the connection is doubted.
    doubted: Notify,
    closed: Notify,
    inbox: Mutex<Inbox>,
    caller_reader: CallerReader,
    /// Receives the server's pushes.
    on_push: PushHandler,
    /// The process that made it. A fork has a copy of it, but must not write to it.
    process: u32,
}

/// Replies that were read, and lists that are reused.
///
/// Invariant: replies are read and dispatched under this mutex, in their order. No reply handler locks it.
#[derive(Default)]
struct Inbox {
    reader: Reader,
    replies: Vec<(Request, MaybeReply)>,
    pushes: Vec<Push>,
}

/// A reply; none if the server does not have the script.
type MaybeReply = Option<Reply>;

/// A push of the server, which is not the reply to a request.
pub(crate) type Push = Vec<Value>;

/// Invariant: `expected` has the requests of `out` at its end, `unsent` of them, in the order of their bytes. No reply is handled
/// under this mutex.
#[derive(Default)]
struct State {
    /// The bytes to write, and of how many commands they are.
    out: Vec<u8>,
    unsent: usize,
    writer: Writer,
    /// Commands without a reply, in the order in which they were sent.
    expected: VecDeque<Expected>,
    /// The command that replaces a script, if the server has one that we may use.
    delete: Option<Delete>,
    /// The first reply to the first of `expected`, if it has two.
    deleted: Option<MaybeReply>,
    /// When the server's output last made progress.
    last_received: Option<Instant>,
    /// After how long a silence a caller wants the connection to end, if before the response time-out.
    doubt: Option<Duration>,
    ended: bool,
    /// Why the connection has to end, if the task that found out cannot end it.
    failure: Option<ServerError>,
}

/// Which task writes.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Writer {
    #[default]
    Idle,
    /// A task on some runtime will write, or a caller before it.
    Deferred,
    /// The task on the I/O thread was notified, because the socket was full.
    Notified,
    /// A task is writing, and checks for more before it stops.
    Writing,
}

struct Expected {
    request: Request,
    since: Instant,
    /// How many pushes confirm it, if it is confirmed by pushes.
    confirmations: usize,
}

/// Handles a push.
pub(crate) type PushHandler = Arc<dyn Fn(&Push) + Send + Sync>;

/// The buffer capacity that is kept for reuse.
const LARGE: usize = 64 * 1024;

impl Pipeline {
    /// A connection on a stream. Server pushes are passed to `on_push`, on the thread that reads them; `alive` is dropped with
    /// the connection. If there is a runtime of callers, it reads, too.
    pub(crate) fn start(
        stream: Stream,
        settings: Settings,
        on_push: PushHandler,
        alive: oneshot::Sender<Infallible>,
    ) -> Self {
        let inner = Arc::new(Inner {
            stream,
            settings,
            state: Mutex::default(),
            write_requested: Notify::new(),
            begun: Notify::new(),
            doubted: Notify::new(),
            closed: Notify::new(),
            inbox: Mutex::default(),
            caller_reader: CallerReader::default(),
            on_push,
            process: std::process::id(),
        });
        if let Some(callers) = &inner.settings.callers {
            callers.spawn(read_on_callers_runtime(Arc::downgrade(&inner)));
        }
        let driven = Driven(Arc::clone(&inner));
        tokio::spawn(async move {
            let _alive = alive;
            let inner = &driven.0;
            let failure = tokio::select! {
                biased;
                failure = inner.read() => failure,
                failure = inner.write() => failure,
                failure = inner.watch() => failure,
                () = inner.closed.notified() => inner.state.lock().failure.take().unwrap_or_else(closed),
            };
            inner.end(&failure);
        });
        Self(inner)
    }

    /// Appends a request. Returns whether it has to be [flushed](Self::flush), because no other caller is about to flush. After
    /// the end of the connection the request is returned.
    pub(crate) fn put(&self, request: Request) -> Result<bool, Request> {
        self.0.put(request, 0)
    }

    /// Ensures that all requests that were put are sent.
    pub(crate) fn flush(&self) {
        let mut state = self.0.state.lock();
        if state.out.is_empty() || state.writer != Writer::Idle {
            return;
        }
        let is_idle = state.expected.len() == state.unsent;
        match Handle::try_current() {
            Ok(runtime) if !is_idle => {
                state.writer = Writer::Deferred;
                drop(state);
                let inner = Arc::clone(&self.0);
                runtime.spawn(async move {
                    tokio::task::yield_now().await;
                    inner.write_now();
                });
            }
            _ => {
                drop(state);
                self.0.write_now();
            }
        }
    }

    /// Sends a command at once; the reply can be awaited or dropped.
    pub(crate) fn send(&self, call: Call) -> impl Future<Output = Reply> + Send + use<> {
        self.send_confirmed(call, 0)
    }

    /// Subscribes to channels, or unsubscribes, and waits for the confirmation.
    pub(crate) async fn subscribe(&self, on: bool, channels: &[Arc<str>]) -> Result<(), StoreError> {
        let call = Call::command(if on { "SUBSCRIBE" } else { "UNSUBSCRIBE" });
        self.send_confirmed(channels.iter().fold(call, Call::arg), channels.len()).await.map(drop)
    }

    /// Sends a command that so many pushes confirm, if it is confirmed by pushes.
    fn send_confirmed(&self, call: Call, confirmations: usize) -> impl Future<Output = Reply> + Send + use<> {
        let (task, reply) = oneshot::channel();
        let request = Request { call, encoding: Encoding::Sha, on_reply: Box::new(Some(task)) };
        // If the connection has ended, the sender is dropped, and the task sees that there is no connection.
        let _ = self.0.put(request, confirmations);
        self.flush();
        async { reply.await.unwrap_or_else(|_| Err(StoreError::Unknown(closed()))) }
    }

    /// From now on this command replaces a script.
    pub(super) fn use_native(&self, delete: Option<Delete>) {
        self.0.state.lock().delete = delete;
    }

    /// Ends the connection. Replies that were read have had their effect then, and all others are known to be lost.
    pub(crate) fn end(&self) {
        self.0.end(&closed());
        // The runtime of the callers may be dispatching the last replies: they must not follow those of the next connection.
        drop(self.0.inbox.lock());
    }

    /// Ends the connection if nothing was received on it for `silence` although a reply is due.
    pub(crate) fn doubt(&self, silence: Duration) {
        self.0.state.lock().doubt = Some(silence);
        self.0.doubted.notify_one();
    }
}

impl Drop for Pipeline {
    fn drop(&mut self) {
        self.0.closed.notify_one();
    }
}

/// Ends the connection when its task ends, for whatever reason.
struct Driven(Arc<Inner>);

impl Drop for Driven {
    fn drop(&mut self) {
        self.0.end(&closed());
    }
}

fn closed() -> ServerError {
    ServerError::Unavailable("the connection is closed".into())
}

impl Inner {
    fn put(&self, mut request: Request, confirmations: usize) -> Result<bool, Request> {
        let mut state = self.state.lock();
        // Invariant: a caller that gives up puts its undo here, too. So a request that is sent again does not follow its undo.
        if !request.on_reply.is_wanted() {
            return Ok(false);
        }
        if state.ended {
            return Err(request);
        }
        if let Some(delete) = state.delete {
            request.use_native(delete);
        }
        request.write(&mut state.out);
        let is_first = state.expected.is_empty();
        let is_unwritten = state.writer == Writer::Idle;
        state.expected.push_back(Expected { request, since: now(), confirmations });
        state.unsent += 1;
        drop(state);
        if is_first {
            self.begun.notify_one();
        }
        Ok(is_unwritten)
    }

    /// Writes the pending bytes, unless another task does. The task writes the rest if the socket is full.
    fn write_now(&self) {
        let mut state = self.state.lock();
        if state.out.is_empty() || !matches!(state.writer, Writer::Idle | Writer::Deferred) {
            return;
        }
        if self.process != std::process::id() {
            return;
        }
        let mut batch = Vec::new();
        while state.take(&mut batch) {
            drop(state);
            // If it cannot be written now, the task will get the error.
            let written = self.stream.try_write(&batch).unwrap_or(0);
            batch.drain(..written);
            let is_unsent = !batch.is_empty() || self.stream.is_unsent();
            state = self.state.lock();
            if is_unsent {
                batch.append(&mut state.out);
                state.out = batch;
                state.writer = Writer::Notified;
                drop(state);
                self.write_requested.notify_one();
                return;
            }
        }
    }

    /// Writes the pending bytes whenever it is notified, until an error.
    async fn write(&self) -> ServerError {
        let mut batch = Vec::new();
        loop {
            self.write_requested.notified().await;
            loop {
                let mut rest = batch.as_slice();
                // Bytes that the stream has taken and not sent are in no buffer of ours.
                while !rest.is_empty() || self.stream.is_unsent() {
                    match self.stream.try_write(rest) {
                        Ok(written) => rest = &rest[written..],
                        Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                            if let Err(error) = self.stream.writable().await {
                                return self.write_failed(&error);
                            }
                        }
                        Err(error) => return self.write_failed(&error),
                    }
                }
                if !self.state.lock().take(&mut batch) {
                    break;
                }
            }
        }
    }

    /// The failure of a write. The server may have sent the reason before it closed the connection, so the replies that have
    /// arrived are dispatched first.
    fn write_failed(&self, error: &io::Error) -> ServerError {
        for _ in 0..LAST_READS {
            match self.take_in(&self.stream) {
                Ok(true) => {}
                Ok(false) => break,
                Err(failure) => return failure,
            }
        }
        failure_of(error)
    }

    /// Reads and dispatches replies, until an error or the end of the stream.
    async fn read(&self) -> ServerError {
        loop {
            if let Err(error) = self.stream.readable().await {
                return failure_of(&error);
            }
            self.caller_reader.grace_period(|| self.state.lock().expected.len()).await;
            loop {
                match self.take_in(&self.stream) {
                    Ok(true) => {}
                    Ok(false) => break,
                    Err(failure) => return failure,
                }
            }
        }
    }

    /// Reads once and dispatches; false if there was nothing to read.
    fn take_in(&self, stream: &Stream) -> Result<bool, ServerError> {
        // Held until everything is dispatched: no other task may dispatch later replies before that.
        let mut inbox = self.inbox.lock();
        if !inbox.reader.read(stream)? {
            return Ok(false);
        }
        let failure = self.assign(&mut inbox);
        for (request, reply) in inbox.replies.drain(..) {
            if let Some(again) = request.replied(reply)
                && let Err(request) = self.put(again, 0)
            {
                request.replied(Some(Err(StoreError::NotSent(closed()))));
            }
        }
        // One read may contain many replies; the capacity for so many is not kept for ever.
        inbox.replies.shrink_to(LARGE / size_of::<(Request, MaybeReply)>());
        for push in inbox.pushes.drain(..) {
            (self.on_push)(&push);
        }
        drop(inbox);
        self.write_now();
        failure.map_or(Ok(true), Err)
    }

    /// Finds the request of each frame, and whether the connection has to end after that.
    fn assign(&self, inbox: &mut Inbox) -> Option<ServerError> {
        let Inbox { reader, replies, pushes } = inbox;
        let mut failure = None;
        let mut state = self.state.lock();
        if reader.progress {
            state.last_received = Some(now());
        }
        for frame in reader.frames.drain(..) {
            let mut reply = match frame {
                Frame::Reply(Value::Error(text)) => {
                    let is_from_replica = matches!(code(&text), "READONLY" | "MASTERDOWN");
                    // The code is read from the full text: without the password the error means the same.
                    let refusal = refusal(&text, self.settings.secret.hidden_in(&text));
                    if is_from_replica && failure.is_none() {
                        failure.clone_from(&refusal);
                    }
                    refusal.map(|refusal| Err(StoreError::Refused(refusal)))
                }
                Frame::Reply(value) => Some(Ok(value)),
                Frame::Push(parts) => {
                    if !confirms(&parts) {
                        pushes.push(parts);
                        continue;
                    }
                    match state.expected.front_mut() {
                        Some(Expected { confirmations: 1, .. }) => Some(Ok(Value::Okay)),
                        Some(Expected { confirmations: more @ 2.., .. }) => {
                            *more -= 1;
                            continue;
                        }
                        // A confirmation that no request waits for.
                        _ => continue,
                    }
                }
            };
            if state.expected.front().is_some_and(|first| first.request.has_two_replies()) {
                let Some(deleted) = state.deleted.take() else {
                    if let Some(Err(StoreError::Refused(ServerError::Denied(_)))) = reply {
                        state.delete = None;
                    }
                    state.deleted = Some(reply);
                    continue;
                };
                reply = match (deleted, reply) {
                    (Some(Ok(Value::Int(1))), Some(Ok(Value::Int(subscribers)))) => {
                        Some(Ok(commands::freed(subscribers)))
                    }
                    (deleted, _) => deleted,
                };
            }
            let Some(expected) = state.expected.pop_front() else {
                return Some(ServerError::Denied(
                    "the server sent a reply to no request: check which server this is".into(),
                ));
            };
            replies.push((expected.request, reply));
        }
        if state.expected.is_empty() {
            state.expected.shrink_to(LARGE / size_of::<Expected>());
        }
        drop(state);
        if failure.is_some() {
            self.settings.moves.send_modify(|moves| *moves += 1);
        }
        failure
    }

    /// Notifies callers whose replies are late, until the silence has lasted for the response time-out.
    ///
    /// A request counts for that whether or not its caller still waits.
    async fn watch(&self) -> ServerError {
        loop {
            let Some(due) = self.next_due() else {
                self.begun.notified().await;
                continue;
            };
            let left = due.saturating_duration_since(now());
            if !left.is_zero() {
                tokio::select! {
                    () = tokio::time::sleep(left) => continue,
                    () = self.doubted.notified() => {}
                }
            }
            // Data that arrived while this thread was too busy to read it counts as a sign of life, too.
            if let Err(failure) = self.take_in(&self.stream) {
                return failure;
            }
            let mut state = self.state.lock();
            let timeout = self.settings.options.response_timeout;
            let limit = state.doubt.take().map_or(timeout, |doubt| doubt.min(timeout));
            let late = |limit| ServerError::Unavailable(format!("no reply within {limit:?}"));
            if state.silent_since().is_some_and(|since| since.elapsed() >= limit) {
                return late(limit);
            }
            if !left.is_zero() {
                continue;
            }
            // If other requests got replies meanwhile, the server is only overloaded.
            let is_late = |expected: &Expected| {
                expected.request.on_reply.is_awaited() && expected.since.elapsed() >= timeout
            };
            let first = state.expected.iter_mut().find(|expected| is_late(expected));
            let notify = first.and_then(|expected| expected.request.on_reply.late());
            drop(state);
            if let Some(notify) = notify {
                notify(late(timeout));
            }
        }
    }

    /// When the silence reaches the time-out, or the wait of the oldest waiting caller does.
    fn next_due(&self) -> Option<Instant> {
        let state = self.state.lock();
        let awaited = state.expected.iter().find(|expected| expected.request.on_reply.is_awaited());
        let since = [state.silent_since(), awaited.map(|expected| expected.since)];
        since.into_iter().flatten().min()?.checked_add(self.settings.options.response_timeout)
    }

    fn end(&self, failure: &ServerError) {
        let mut state = self.state.lock();
        state.ended = true;
        let expected = std::mem::take(&mut state.expected);
        // The outcome of the first command of two is known.
        let mut deleted = state.deleted.take().filter(|deleted| matches!(deleted, Some(Ok(_))));
        drop(state);
        // The duplicate of the socket would keep it open.
        self.stream.shut();
        for Expected { request, .. } in expected {
            let lost = || Some(Err(StoreError::Unknown(failure.clone())));
            request.replied(deleted.take().unwrap_or_else(lost));
        }
    }
}

/// Reads on the runtime of the callers where that is useful, as long as the connection lasts.
async fn read_on_callers_runtime(inner: Weak<Inner>) {
    let Some(stream) = inner.upgrade().and_then(|inner| inner.stream.duplicate()) else { return };
    while stream.readable().await.is_ok() {
        let Some(inner) = inner.upgrade() else { return };
        if !inner.caller_reader.poll(|| inner.state.lock().expected.len()) {
            stream.wait_for_more();
            continue;
        }
        loop {
            if let Err(failure) = inner.take_in(&stream) {
                inner.state.lock().failure.get_or_insert(failure);
                inner.closed.notify_one();
                return;
            }
            if !stream.has_more() {
                break;
            }
        }
    }
}

impl State {
    /// Since when a reply is due and nothing was received.
    fn silent_since(&self) -> Option<Instant> {
        self.expected.front().and_then(|first| self.last_received.max(Some(first.since)))
    }

    /// Takes the bytes to write; false if there are none, and then no task is the writer any more.
    fn take(&mut self, batch: &mut Vec<u8>) -> bool {
        batch.clear();
        // The capacity that one burst needed is not kept for ever.
        batch.shrink_to(LARGE);
        std::mem::swap(&mut self.out, batch);
        self.unsent = 0;
        self.writer = if batch.is_empty() { Writer::Idle } else { Writer::Writing };
        !batch.is_empty()
    }
}

/// Whether a push confirms that a channel is subscribed or unsubscribed.
fn confirms(push: &[Value]) -> bool {
    matches!(push.first(), Some(Value::Text(kind)) if [&b"subscribe"[..], b"unsubscribe"].contains(&&kind[..]))
}

/// The I/O thread uses the real clock, whatever clock the runtime of a caller uses.
#[expect(clippy::disallowed_methods, reason = "a clock that a test has paused is no measure for a server")]
fn now() -> Instant {
    Instant::now()
}

/// How often a connection that cannot be written any more is read, so that its end is reached.
const LAST_READS: usize = 64;

/// How long the I/O thread leaves readable data to the runtime of the callers. If that runtime is blocked for longer, the I/O
/// thread reads.
const GRACE: Duration = Duration::from_millis(5);

/// With more replies due than this, waking the I/O thread is worth its cost.
const FEW: usize = 4;

/// The state of the runtime of the callers, which reads, too.
///
/// The I/O thread can do everything alone, and does so under load. But a caller that it notifies sleeps on another thread, and
/// waking that thread takes longer than everything else about a hand-over. So with few replies due the runtime on which a client
/// was made reads, and its tasks get their replies without a wake-up of another thread. The I/O thread gives that runtime a grace
/// period, and none if the runtime was late the last time.
#[derive(Debug, Default)]
struct CallerReader {
    /// It was in time when there was last something to read.
    responsive: AtomicBool,
    /// The I/O thread waits for it.
    awaited: AtomicBool,
    polls: AtomicU64,
}

impl CallerReader {
    /// It is about to read; returns whether it should, with so many replies due.
    fn poll(&self, expected: impl FnOnce() -> usize) -> bool {
        self.polls.fetch_add(1, Ordering::SeqCst);
        self.responsive.store(true, Ordering::SeqCst);
        expected() <= FEW || self.awaited.load(Ordering::SeqCst)
    }

    /// Waits for it, if it was in time before. To be called on the I/O thread when the socket is readable.
    async fn grace_period(&self, expected: impl FnOnce() -> usize) {
        if !self.responsive.load(Ordering::SeqCst) {
            return;
        }
        // Set before the wait begins: at least one of both reads, however many requests are sent meanwhile.
        self.awaited.store(true, Ordering::SeqCst);
        if expected() <= FEW {
            let before = self.polls.load(Ordering::SeqCst);
            tokio::time::sleep(GRACE).await;
            if self.polls.load(Ordering::SeqCst) == before {
                self.responsive.store(false, Ordering::SeqCst);
            }
        }
        self.awaited.store(false, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::env;

    /// How long the I/O thread waits.
    async fn waits(caller_reader: &CallerReader, expected: usize) -> Duration {
        let begun = env::now();
        caller_reader.grace_period(|| expected).await;
        env::now() - begun
    }

    #[tokio::test(start_paused = true)]
    async fn the_io_thread_does_not_wait_for_a_runtime_that_was_late() {
        let caller_reader = CallerReader::default();
        assert_eq!(waits(&caller_reader, 0).await, Duration::ZERO);
        assert!(caller_reader.poll(|| FEW));
        assert_eq!(waits(&caller_reader, FEW).await, GRACE);
        assert_eq!(waits(&caller_reader, FEW).await, Duration::ZERO, "it was not there in time");
        caller_reader.poll(|| 0);
        assert_eq!(waits(&caller_reader, 0).await, GRACE, "it has polled in time again");
    }

    #[tokio::test(start_paused = true)]
    async fn the_io_thread_waits_again_for_a_runtime_that_was_in_time() {
        let caller_reader = CallerReader::default();
        caller_reader.poll(|| 0);
        for _ in 0..3 {
            let (waited, wanted) = tokio::join!(waits(&caller_reader, 1), async { caller_reader.poll(|| 1) });
            assert_eq!((waited, wanted), (GRACE, true));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn many_replies_are_read_by_the_io_thread_or_by_the_runtime() {
        let caller_reader = CallerReader::default();
        assert!(!caller_reader.poll(|| FEW + 1), "the thread of the sockets does");
        assert_eq!(waits(&caller_reader, FEW + 1).await, Duration::ZERO);
        let (waited, wanted) =
            tokio::join!(waits(&caller_reader, FEW), async { caller_reader.poll(|| FEW + 1) });
        assert_eq!((waited, wanted), (GRACE, true), "the other has been left to wait for it");
    }
}
