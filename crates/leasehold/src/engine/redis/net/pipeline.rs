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
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use tokio::runtime::Handle;
use tokio::sync::{Notify, oneshot};

use super::super::commands;
use super::caller_reader::CallerReader;
use super::connection::{CommandError, Settings, code};
use super::reader::{Push, Reader};
use super::request::{RawReply, Request};
use super::resp::{Frame, Value};
use super::stream::{Stream, Twin};
use crate::engine::remote::store::Tell;
use crate::error::Failure;

/// What a reply is for.
pub(crate) enum Sink {
    Request(Request),
    /// A task of this connection that waits.
    Once(oneshot::Sender<RawReply>),
    /// What wants to know what became of the command before this one, which tells how many clients listened.
    Pair(oneshot::Receiver<RawReply>, Box<Sink>),
    Ignored,
}

impl Sink {
    /// Whether a caller waits for the reply, and has to be told if it is late.
    fn is_awaited(&self) -> bool {
        match self {
            Self::Request(request) => request.on_reply.is_awaited(),
            Self::Once(caller) => !caller.is_closed(),
            Self::Pair(_, sink) => sink.is_awaited(),
            Self::Ignored => false,
        }
    }

    /// What tells the caller that the reply is late. What the reply does is done all the same when it comes.
    fn late(&mut self) -> Option<Tell> {
        match self {
            Self::Request(request) => request.on_reply.late(),
            Self::Pair(_, sink) => sink.late(),
            Self::Once(_) => {
                let sink = std::mem::replace(self, Self::Ignored);
                Some(Box::new(|failure| drop(sink.reply(Err(CommandError::Server(failure))))))
            }
            Self::Ignored => None,
        }
    }

    /// The reply has come. What has to be sent again comes back.
    pub(crate) fn reply(self, reply: RawReply) -> Option<Request> {
        match self {
            Self::Request(request) => return request.replied(reply),
            // The task may be gone.
            Self::Once(caller) => drop(caller.send(reply)),
            Self::Pair(mut before, sink) => {
                let before = before.try_recv().unwrap_or_else(|_| Err(CommandError::Lost(closed())));
                return sink.reply(match (before, reply) {
                    (Ok(Value::Int(1)), Ok(Value::Int(listeners))) => Ok(commands::freed(listeners)),
                    (before, _) => before,
                });
            }
            Self::Ignored => {}
        }
        None
    }
}

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
    reader: Mutex<Reader>,
    home: CallerReader,
    /// Who is told what the server pushes.
    on_push: PushHandler,
    /// Where it was made. A fork has a copy of it, but nothing to say on it.
    process: u32,
}

struct State {
    /// What is to be written, and of how many commands.
    out: Vec<u8>,
    unsent: usize,
    writer: Writer,
    /// Commands without an answer, in the order in which they were sent.
    expected: VecDeque<Expected>,
    /// When there was last progress in what the server says.
    heard: Instant,
    /// After how long a silence a caller wants the connection to end, if before the response time-out.
    doubt: Option<Duration>,
    ended: bool,
    /// Why it has to end, if whoever found out cannot end it.
    failure: Option<Failure>,
}

/// Who writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Writer {
    Nobody,
    /// A task on some runtime will, or whoever comes before it.
    Deferred,
    /// The task on the thread of the sockets was told to come, because a socket was full.
    Called,
    /// Somebody does, and looks again before it goes.
    Writing,
}

struct Expected {
    sink: Sink,
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
        let state = State {
            out: Vec::new(),
            unsent: 0,
            writer: Writer::Nobody,
            expected: VecDeque::new(),
            heard: now(),
            doubt: None,
            ended: false,
            failure: None,
        };
        let twin = settings.callers.clone().and_then(|callers| Some((callers, stream.twin()?)));
        let inner = Arc::new(Inner {
            stream,
            settings,
            state: Mutex::new(state),
            bell: Notify::new(),
            begun: Notify::new(),
            doubted: Notify::new(),
            closed: Notify::new(),
            reader: Mutex::new(Reader::new()),
            home: CallerReader::default(),
            on_push,
            process: std::process::id(),
        });
        if let Some((callers, twin)) = twin {
            callers.spawn(read_on_callers_runtime(twin, Arc::downgrade(&inner)));
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
                () = inner.closed.notified() => inner.state().failure.take().unwrap_or_else(closed),
            };
            inner.end(&failure);
        });
        Self(inner)
    }

    /// Writes a command behind those that are there, and says what the reply is for; if pushes confirm it, so many. Tells
    /// whether it has to be [flushed](Self::flush), because no other caller is about to. After the end of the connection the
    /// sink comes back.
    pub(crate) fn put(
        &self,
        confirmations: usize,
        write: impl FnOnce(&mut Vec<u8>) -> Sink,
    ) -> Result<bool, Sink> {
        self.0.put(confirmations, |out| Some(write(out)))
    }

    /// Sees to it that everything is sent that was put.
    pub(crate) fn flush(&self) {
        Inner::flush(&self.0);
    }

    /// Ends the connection. What was read on it has had its effect then, and what was not is known to be lost.
    pub(crate) fn end(&self) {
        self.0.end(&closed());
        // The runtime of the callers may be about to hand out the last replies: not behind those of the next connection.
        drop(self.0.reader.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// Ends the connection if nothing was heard on it for `silence` although a reply is due.
    pub(crate) fn doubt(&self, silence: Duration) {
        self.0.state().doubt = Some(silence);
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
    fn put(
        &self,
        confirmations: usize,
        write: impl FnOnce(&mut Vec<u8>) -> Option<Sink>,
    ) -> Result<bool, Sink> {
        let mut state = self.state();
        if state.ended {
            drop(state);
            return write(&mut Vec::new()).map_or(Ok(false), Err);
        }
        let Some(sink) = write(&mut state.out) else { return Ok(false) };
        let is_first = state.expected.is_empty();
        let is_unwritten = state.writer == Writer::Nobody;
        state.expected.push_back(Expected { sink, since: now(), confirmations });
        state.unsent += 1;
        drop(state);
        if is_first {
            self.begun.notify_one();
        }
        Ok(is_unwritten)
    }

    fn flush(self: &Arc<Self>) {
        let mut state = self.state();
        if state.out.is_empty() || state.writer != Writer::Nobody {
            return;
        }
        let is_idle = state.expected.len() == state.unsent;
        match Handle::try_current() {
            Ok(runtime) if !is_idle => {
                state.writer = Writer::Deferred;
                drop(state);
                let inner = Arc::clone(self);
                runtime.spawn(async move {
                    tokio::task::yield_now().await;
                    inner.write_now();
                });
            }
            _ => {
                drop(state);
                self.write_now();
            }
        }
    }

    /// Writes what there is, unless somebody else does. What the socket does not take is left to the task.
    fn write_now(&self) {
        let mut state = self.state();
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
            state = self.state();
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
            while self.state().take(&mut batch) {
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
            self.home.head_start(|| self.state().expected.len()).await;
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
        let mut reader = self.reader.lock().unwrap_or_else(PoisonError::into_inner);
        if !reader.read(stream)? {
            return Ok(false);
        }
        let failure = self.assign(&mut reader);
        for (sink, answer) in reader.answers.drain(..) {
            if let Some(request) = sink.reply(answer) {
                // A caller that gives up puts its undo here, too, so it cannot between the look at it and the new request.
                if let Err(sink) = self.put(0, |out| request.again(out).map(Sink::Request)) {
                    sink.reply(Err(CommandError::NotSent(closed())));
                }
            }
        }
        // As many replies as fit into one read may come at once; the room for so many is not kept for ever.
        reader.answers.shrink_to(LARGE / size_of::<(Sink, RawReply)>());
        for push in reader.pushes.drain(..) {
            (self.on_push)(&push);
        }
        drop(reader);
        self.write_now();
        failure.map_or(Ok(true), Err)
    }

    /// Finds out whom each frame is for, and whether the connection has to end after that.
    fn assign(&self, reader: &mut Reader) -> Option<Failure> {
        let Reader { progress, frames, answers, pushes, .. } = reader;
        let mut failure = None;
        let mut state = self.state();
        if *progress {
            state.heard = now();
        }
        for frame in frames.drain(..) {
            let answer = match frame {
                Frame::Answer(Value::Error(text)) => {
                    let is_from_replica = matches!(code(&text), "READONLY" | "MASTERDOWN");
                    // Whatever the password is, it does not change what the error means.
                    let trouble = CommandError::from_server(text)
                        .map_text(|text| self.settings.address.without_password(text));
                    if let (true, CommandError::Server(refusal)) = (is_from_replica, &trouble) {
                        failure.get_or_insert(refusal.clone());
                    }
                    Err(trouble)
                }
                Frame::Answer(value) => Ok(value),
                Frame::Push(parts) => {
                    if !confirms(&parts) {
                        pushes.push(parts);
                        continue;
                    }
                    match state.expected.front_mut() {
                        Some(Expected { confirmations: 1, .. }) => Ok(Value::Okay),
                        Some(Expected { confirmations: more @ 2.., .. }) => {
                            *more -= 1;
                            continue;
                        }
                        // Of what nobody waits for any more.
                        _ => continue,
                    }
                }
            };
            let Some(expected) = state.expected.pop_front() else {
                return Some(Failure::Denied("the server gave an answer that nobody had asked for".into()));
            };
            answers.push((expected.sink, answer));
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
            let mut state = self.state();
            let timeout = self.settings.response_timeout;
            let limit = state.doubt.take().map_or(timeout, |doubt| doubt.min(timeout));
            let late = |limit| Failure::Unavailable(format!("no answer within {limit:?}"));
            if state.silent_since().is_some_and(|since| since.elapsed() >= limit) {
                return late(limit);
            }
            if !left.is_zero() {
                continue;
            }
            // If others were answered meanwhile, there was just too much to do.
            let is_late =
                |expected: &Expected| expected.sink.is_awaited() && expected.since.elapsed() >= timeout;
            let first = state.expected.iter_mut().find(|expected| is_late(expected));
            let tell = first.and_then(|expected| expected.sink.late());
            drop(state);
            if let Some(tell) = tell {
                tell(late(timeout));
            }
        }
    }

    /// When the silence has lasted too long, or the caller that has waited longest has.
    fn next_due(&self) -> Option<Instant> {
        let state = self.state();
        let awaited = state.expected.iter().find(|expected| expected.sink.is_awaited());
        let since = [state.silent_since(), awaited.map(|expected| expected.since)];
        since.into_iter().flatten().min()?.checked_add(self.settings.response_timeout)
    }

    fn end(&self, failure: &Failure) {
        let mut state = self.state();
        state.ended = true;
        let expected = std::mem::take(&mut state.expected);
        drop(state);
        // Its twin would keep it open.
        self.stream.shut();
        for Expected { sink, .. } in expected {
            sink.reply(Err(CommandError::Lost(failure.clone())));
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Reads on the runtime of the callers where that is wanted, as long as the connection is there.
async fn read_on_callers_runtime(twin: Twin, inner: Weak<Inner>) {
    let Ok(stream) = Stream::try_from(twin) else { return };
    while stream.readable().await.is_ok() {
        let Some(inner) = inner.upgrade() else { return };
        if !inner.home.visit(|| inner.state().expected.len()) {
            stream.wait_for_more();
        } else if let Err(failure) = inner.take_in(&stream) {
            inner.state().failure.get_or_insert(failure);
            inner.closed.notify_one();
            return;
        }
    }
}

impl State {
    /// Since when a reply is due and nothing was heard.
    fn silent_since(&self) -> Option<Instant> {
        self.expected.front().map(|first| first.since.max(self.heard))
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

pub(crate) fn unavailable(error: &io::Error) -> Failure {
    Failure::Unavailable(error.to_string())
}
