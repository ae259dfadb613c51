//! Commands on their way on one connection, and their answers on the way back.
//!
//! Whoever sends puts its command behind those of the others, and a task on the thread of the sockets hands out the
//! answers in the order of the commands, or one on the runtime of the callers, see [`CallerReader`]. Waking that thread for every
//! command would cost more than everything else, so callers write themselves: at once if nothing is under way, else as soon
//! as the tasks beside them on their own runtime have put theirs, so that one system call carries many. If that runtime is
//! kept busy, the next answer that comes sees to it.

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
use super::request::{Call, Delete, Encoding, Reply, Request, code, refusal};
use super::resp::{Frame, Reader, Stream, Value, unavailable};
use crate::engine::remote::store::StoreError;
use crate::error::Failure;
use crate::mutex::Mutex;

/// One connection. It is closed when this is dropped.
pub(crate) struct Pipeline(Arc<Inner>);

struct Inner {
    stream: Stream,
    settings: Settings,
    state: Mutex<State>,
    /// Rings for whoever writes.
    bell: Notify,
    /// Rings for whoever looks at the clock, when there is something to look at.
    begun: Notify,
    /// Rings for the same when the connection is doubted.
    doubted: Notify,
    closed: Notify,
    inbox: Mutex<Inbox>,
    home: CallerReader,
    /// Who is told what the server pushes.
    on_push: PushHandler,
    /// Where it was made. A fork has a copy of it, but nothing to say on it.
    process: u32,
}

/// What has come, and lists that are filled and emptied again and again.
///
/// Invariant: replies are read and handed out under this mutex, in their order. Nothing that a reply does takes it.
#[derive(Default)]
struct Inbox {
    reader: Reader,
    answers: Vec<(Request, Answer)>,
    pushes: Vec<Push>,
}

/// A reply; none if the server does not know the script.
type Answer = Option<Reply>;

/// Something that was not asked for.
pub(crate) type Push = Vec<Value>;

/// Invariant: `expected` has the requests of `out` at its end, `unsent` of them, in the order of their bytes. No reply is handled
/// under this mutex.
#[derive(Default)]
struct State {
    /// What is to be written, and of how many commands.
    out: Vec<u8>,
    unsent: usize,
    writer: Writer,
    /// Commands without an answer, in the order in which they were sent.
    expected: VecDeque<Expected>,
    /// What takes the place of a script, if there is something that we may use.
    delete: Option<Delete>,
    /// The first reply to the first of them, if it has two.
    deleted: Option<Answer>,
    /// When there was last progress in what the server says.
    heard: Option<Instant>,
    /// After how long a silence a caller wants the connection to end, if before the response time-out.
    doubt: Option<Duration>,
    ended: bool,
    /// Why it has to end, if whoever found out cannot end it.
    failure: Option<Failure>,
}

/// Who writes.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Writer {
    #[default]
    Nobody,
    /// A task on some runtime will, or whoever comes before it.
    Deferred,
    /// The task on the thread of the sockets was told to come, because a socket was full.
    Called,
    /// Somebody does, and looks again before it goes.
    Writing,
}

struct Expected {
    request: Request,
    since: Instant,
    /// How many pushes confirm it, if that is how it is answered.
    confirmations: usize,
}

/// Who is told what nobody asked for.
pub(crate) type PushHandler = Box<dyn Fn(&Push) + Send + Sync>;

/// How much memory is kept for the next time.
const LARGE: usize = 64 * 1024;

impl Pipeline {
    /// A connection on a stream. What the server pushes is told to `on_push`, on whichever thread it is read; `alive` is dropped
    /// with the connection. If there is a runtime of callers, it reads, too.
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
            bell: Notify::new(),
            begun: Notify::new(),
            doubted: Notify::new(),
            closed: Notify::new(),
            inbox: Mutex::default(),
            home: CallerReader::default(),
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

    /// Puts a request behind those that are there. Tells whether it has to be [flushed](Self::flush), because no other caller
    /// is about to. After the end of the connection the request comes back.
    pub(crate) fn put(&self, request: Request) -> Result<bool, Request> {
        self.0.put(request, 0)
    }

    /// Sees to it that everything is sent that was put.
    pub(crate) fn flush(&self) {
        let mut state = self.0.state.lock();
        if state.out.is_empty() || state.writer != Writer::Nobody {
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

    /// Sends a command, now; the reply can be awaited or dropped.
    pub(crate) fn send(&self, call: Call) -> impl Future<Output = Reply> + Send + use<> {
        self.ask(call, 0)
    }

    /// Subscribes to channels, or ends the subscriptions, and waits until that is so.
    pub(crate) async fn listen(&self, on: bool, channels: &[Arc<str>]) -> Result<(), StoreError> {
        let call = Call::command(if on { "SUBSCRIBE" } else { "UNSUBSCRIBE" });
        self.ask(channels.iter().fold(call, Call::arg), channels.len()).await.map(drop)
    }

    /// Sends a command that so many pushes confirm, if that is how it is answered.
    fn ask(&self, call: Call, confirmations: usize) -> impl Future<Output = Reply> + Send + use<> {
        let (task, reply) = oneshot::channel();
        let request = Request { call, encoding: Encoding::Sha, on_reply: Box::new(Some(task)) };
        // Where it cannot be put, the sender is dropped, and the task sees that there is no connection.
        let _ = self.0.put(request, confirmations);
        self.flush();
        async { reply.await.unwrap_or_else(|_| Err(StoreError::Unknown(closed()))) }
    }

    /// From now on this command takes the place of a script.
    pub(super) fn use_native(&self, delete: Option<Delete>) {
        self.0.state.lock().delete = delete;
    }

    /// Ends the connection. What was read on it has had its effect then, and what was not is known to be lost.
    pub(crate) fn end(&self) {
        self.0.end(&closed());
        // The runtime of the callers may be about to hand out the last replies: not behind those of the next connection.
        drop(self.0.inbox.lock());
    }

    /// Ends the connection if nothing was heard on it for `silence` although a reply is due.
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

/// Ends the connection when its task ends, however that comes.
struct Driven(Arc<Inner>);

impl Drop for Driven {
    fn drop(&mut self) {
        self.0.end(&closed());
    }
}

fn closed() -> Failure {
    Failure::Unavailable("the connection is closed".into())
}

impl Inner {
    fn put(&self, mut request: Request, confirmations: usize) -> Result<bool, Request> {
        let mut state = self.state.lock();
        // Invariant: a caller that gives up puts its undo here, too. So one that is sent again is not sent behind its undo.
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
        let is_unwritten = state.writer == Writer::Nobody;
        state.expected.push_back(Expected { request, since: now(), confirmations });
        state.unsent += 1;
        drop(state);
        if is_first {
            self.begun.notify_one();
        }
        Ok(is_unwritten)
    }

    /// Writes what there is, unless somebody else does. What the socket does not take is left to the task.
    fn write_now(&self) {
        let mut state = self.state.lock();
        if state.out.is_empty() || !matches!(state.writer, Writer::Nobody | Writer::Deferred) {
            return;
        }
        if self.process != std::process::id() {
            return;
        }
        let mut batch = Vec::new();
        while state.take(&mut batch) {
            drop(state);
            // If it cannot be written now, the task will see why.
            let written = self.stream.try_write(&batch).unwrap_or(0);
            batch.drain(..written);
            state = self.state.lock();
            if !batch.is_empty() {
                batch.append(&mut state.out);
                state.out = batch;
                state.writer = Writer::Called;
                drop(state);
                self.bell.notify_one();
                return;
            }
        }
    }

    /// Writes what there is whenever it is called, until it cannot.
    async fn write(&self) -> Failure {
        let mut batch = Vec::new();
        loop {
            self.bell.notified().await;
            while self.state.lock().take(&mut batch) {
                let mut rest = batch.as_slice();
                while !rest.is_empty() {
                    match self.stream.try_write(rest) {
                        Ok(written) => rest = &rest[written..],
                        Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                            if let Err(error) = self.stream.writable().await {
                                return unavailable(&error);
                            }
                        }
                        Err(error) => return unavailable(&error),
                    }
                }
            }
        }
    }

    /// Reads and hands out, until there is nothing more to come.
    async fn read(&self) -> Failure {
        loop {
            if let Err(error) = self.stream.readable().await {
                return unavailable(&error);
            }
            self.home.head_start(|| self.state.lock().expected.len()).await;
            loop {
                match self.take_in(&self.stream) {
                    Ok(true) => {}
                    Ok(false) => break,
                    Err(failure) => return failure,
                }
            }
        }
    }

    /// Reads once and hands out; false if there was nothing.
    fn take_in(&self, stream: &Stream) -> Result<bool, Failure> {
        // Until everything is handed out: nobody else may hand out what comes after it.
        let mut inbox = self.inbox.lock();
        if !inbox.reader.read(stream)? {
            return Ok(false);
        }
        let failure = self.assign(&mut inbox);
        for (request, answer) in inbox.answers.drain(..) {
            if let Some(again) = request.replied(answer)
                && let Err(request) = self.put(again, 0)
            {
                request.replied(Some(Err(StoreError::NotSent(closed()))));
            }
        }
        // As many replies as fit into one read may come at once; the room for so many is not kept for ever.
        inbox.answers.shrink_to(LARGE / size_of::<(Request, Answer)>());
        for push in inbox.pushes.drain(..) {
            (self.on_push)(&push);
        }
        drop(inbox);
        self.write_now();
        failure.map_or(Ok(true), Err)
    }

    /// Finds out whom each frame is for, and whether the connection has to end after that.
    fn assign(&self, inbox: &mut Inbox) -> Option<Failure> {
        let Inbox { reader, answers, pushes } = inbox;
        let mut failure = None;
        let mut state = self.state.lock();
        if reader.progress {
            state.heard = Some(now());
        }
        for frame in reader.frames.drain(..) {
            let mut answer = match frame {
                Frame::Answer(Value::Error(text)) => {
                    let is_from_replica = matches!(code(&text), "READONLY" | "MASTERDOWN");
                    // Whatever the password is, it does not change what the error means.
                    let refusal = refusal(&text, self.settings.address.without_password(&text));
                    if is_from_replica && failure.is_none() {
                        failure.clone_from(&refusal);
                    }
                    refusal.map(|refusal| Err(StoreError::Refused(refusal)))
                }
                Frame::Answer(value) => Some(Ok(value)),
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
                        // Of what nobody waits for any more.
                        _ => continue,
                    }
                }
            };
            if state.expected.front().is_some_and(|first| first.request.has_two_replies()) {
                let Some(deleted) = state.deleted.take() else {
                    if let Some(Err(StoreError::Refused(Failure::Denied(_)))) = answer {
                        state.delete = None;
                    }
                    state.deleted = Some(answer);
                    continue;
                };
                answer = match (deleted, answer) {
                    (Some(Ok(Value::Int(1))), Some(Ok(Value::Int(listeners)))) => {
                        Some(Ok(commands::freed(listeners)))
                    }
                    (deleted, _) => deleted,
                };
            }
            let Some(expected) = state.expected.pop_front() else {
                return Some(Failure::Denied("the server gave an answer that nobody had asked for".into()));
            };
            answers.push((expected.request, answer));
        }
        if state.expected.is_empty() {
            state.expected.shrink_to(LARGE / size_of::<Expected>());
        }
        drop(state);
        if failure.is_some() {
            self.settings.demotions.send_modify(|demotions| *demotions += 1);
        }
        failure
    }

    /// Tells those whose answers are late, until nothing has been heard for so long that nothing will be.
    ///
    /// A request counts for that whether or not its caller still waits.
    async fn watch(&self) -> Failure {
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
            // What has come while this thread had no time to read it is a sign of life, too.
            if let Err(failure) = self.take_in(&self.stream) {
                return failure;
            }
            let mut state = self.state.lock();
            let timeout = self.settings.options.response_timeout;
            let limit = state.doubt.take().map_or(timeout, |doubt| doubt.min(timeout));
            let late = |limit| Failure::Unavailable(format!("no answer within {limit:?}"));
            if state.silent_since().is_some_and(|since| since.elapsed() >= limit) {
                return late(limit);
            }
            if !left.is_zero() {
                continue;
            }
            // If others were answered meanwhile, there was just too much to do.
            let is_late = |expected: &Expected| {
                expected.request.on_reply.is_awaited() && expected.since.elapsed() >= timeout
            };
            let first = state.expected.iter_mut().find(|expected| is_late(expected));
            let tell = first.and_then(|expected| expected.request.on_reply.late());
            drop(state);
            if let Some(tell) = tell {
                tell(late(timeout));
            }
        }
    }

    /// When the silence has lasted too long, or the caller that has waited longest has.
    fn next_due(&self) -> Option<Instant> {
        let state = self.state.lock();
        let awaited = state.expected.iter().find(|expected| expected.request.on_reply.is_awaited());
        let since = [state.silent_since(), awaited.map(|expected| expected.since)];
        since.into_iter().flatten().min()?.checked_add(self.settings.options.response_timeout)
    }

    fn end(&self, failure: &Failure) {
        let mut state = self.state.lock();
        state.ended = true;
        let expected = std::mem::take(&mut state.expected);
        // What became of the first command of two is known.
        let mut deleted = state.deleted.take().filter(|deleted| matches!(deleted, Some(Ok(_))));
        drop(state);
        // Its twin would keep it open.
        self.stream.shut();
        for Expected { request, .. } in expected {
            let lost = || Some(Err(StoreError::Unknown(failure.clone())));
            request.replied(deleted.take().unwrap_or_else(lost));
        }
    }
}

/// Reads on the runtime of the callers where that is wanted, as long as the connection is there.
async fn read_on_callers_runtime(inner: Weak<Inner>) {
    let Some(stream) = inner.upgrade().and_then(|inner| inner.stream.twin()) else { return };
    while stream.readable().await.is_ok() {
        let Some(inner) = inner.upgrade() else { return };
        if !inner.home.visit(|| inner.state.lock().expected.len()) {
            stream.wait_for_more();
        } else if let Err(failure) = inner.take_in(&stream) {
            inner.state.lock().failure.get_or_insert(failure);
            inner.closed.notify_one();
            return;
        }
    }
}

impl State {
    /// Since when a reply is due and nothing was heard.
    fn silent_since(&self) -> Option<Instant> {
        self.expected.front().and_then(|first| self.heard.max(Some(first.since)))
    }

    /// Takes what is to be written; false if there is nothing, and then nobody writes any more.
    fn take(&mut self, batch: &mut Vec<u8>) -> bool {
        batch.clear();
        // What one burst needed is not kept for ever.
        batch.shrink_to(LARGE);
        std::mem::swap(&mut self.out, batch);
        self.unsent = 0;
        self.writer = if batch.is_empty() { Writer::Nobody } else { Writer::Writing };
        !batch.is_empty()
    }
}

/// Whether a push says that a channel is subscribed, or is not any more.
fn confirms(push: &[Value]) -> bool {
    matches!(push.first(), Some(Value::Text(kind)) if [&b"subscribe"[..], b"unsubscribe"].contains(&&kind[..]))
}

/// The thread of the sockets lives by the real clock, whatever the runtime of a caller does.
#[expect(clippy::disallowed_methods, reason = "a clock that a test has paused is no measure for a server")]
fn now() -> Instant {
    Instant::now()
}

/// How long what has come is left to the runtime of the callers. Whoever blocks it for longer is not waited for.
const HEAD_START: Duration = Duration::from_millis(5);

/// With more answers to come than this, a thread of its own is worth being woken.
const FEW: usize = 4;

/// What is known of the runtime of the callers, which reads, too.
///
/// The thread of the sockets can do everything alone, and does where there is much to do. But a caller that it tells something
/// sleeps on another thread, and waking that takes longer than everything else about a hand-over. So where there is little
/// to do, the runtime on which a client was made reads, and its tasks have what has come without another thread's being
/// woken. The thread of the sockets gives it a head start, and none if it was not there in time.
#[derive(Debug, Default)]
struct CallerReader {
    /// It came when there was last something to read.
    punctual: AtomicBool,
    /// The thread of the sockets waits for it.
    awaited: AtomicBool,
    visits: AtomicU64,
}

impl CallerReader {
    /// It comes to read; whether that is wanted when so many answers are to come.
    fn visit(&self, expected: impl FnOnce() -> usize) -> bool {
        self.visits.fetch_add(1, Ordering::SeqCst);
        self.punctual.store(true, Ordering::SeqCst);
        expected() <= FEW || self.awaited.load(Ordering::SeqCst)
    }

    /// Waits for it, if it is to be expected. To be called on the thread of the sockets when there is something to read.
    async fn head_start(&self, expected: impl FnOnce() -> usize) {
        if !self.punctual.load(Ordering::SeqCst) {
            return;
        }
        // Said before it is so: of both, at least one reads, however many are sent meanwhile.
        self.awaited.store(true, Ordering::SeqCst);
        if expected() <= FEW {
            let before = self.visits.load(Ordering::SeqCst);
            tokio::time::sleep(HEAD_START).await;
            if self.visits.load(Ordering::SeqCst) == before {
                self.punctual.store(false, Ordering::SeqCst);
            }
        }
        self.awaited.store(false, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::env;

    /// How long the thread of the sockets waits.
    async fn waits(home: &CallerReader, expected: usize) -> Duration {
        let begun = env::now();
        home.head_start(|| expected).await;
        env::now() - begun
    }

    #[tokio::test(start_paused = true)]
    async fn nobody_waits_for_a_runtime_that_is_not_there() {
        let home = CallerReader::default();
        assert_eq!(waits(&home, 0).await, Duration::ZERO);
        assert!(home.visit(|| FEW));
        assert_eq!(waits(&home, FEW).await, HEAD_START);
        assert_eq!(waits(&home, FEW).await, Duration::ZERO, "it was not there in time");
        home.visit(|| 0);
        assert_eq!(waits(&home, 0).await, HEAD_START, "it has been heard of again");
    }

    #[tokio::test(start_paused = true)]
    async fn whoever_comes_in_time_is_waited_for_again() {
        let home = CallerReader::default();
        home.visit(|| 0);
        for _ in 0..3 {
            let (waited, wanted) = tokio::join!(waits(&home, 1), async { home.visit(|| 1) });
            assert_eq!((waited, wanted), (HEAD_START, true));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn where_there_is_much_to_do_one_of_both_does_it() {
        let home = CallerReader::default();
        assert!(!home.visit(|| FEW + 1), "the thread of the sockets does");
        assert_eq!(waits(&home, FEW + 1).await, Duration::ZERO);
        let (waited, wanted) = tokio::join!(waits(&home, FEW), async { home.visit(|| FEW + 1) });
        assert_eq!((waited, wanted), (HEAD_START, true), "the other has been left to wait for it");
    }
}
