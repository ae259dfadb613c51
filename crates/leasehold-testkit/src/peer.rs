//! A process that locks on command, line by line.

use std::{
    collections::HashMap,
    fmt,
    io::{BufRead as _, BufReader, Write as _},
    process::{Child, ChildStdin, Command, Stdio},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::Duration,
};

use tokio::{sync::oneshot, time::timeout};

/// The default time-out for a reply: longer than a busy machine needs.
const LONG: Duration = Duration::from_secs(100);

/// A separate process that locks on command. It ends when this is dropped, and when this process ends.
///
/// A command goes to one of its threads, by name; each is a separate owner, and runs its commands in order. `5000/a` is the
/// thread `a` of a client whose watchdog time is 5 s; without a number it is 30 s.
#[derive(Debug)]
pub struct Peer {
    name: String,
    process: Mutex<Child>,
    input: Mutex<ChildStdin>,
    next: AtomicU64,
    answers: Arc<Mutex<Answers>>,
    complaints: Arc<Mutex<Vec<String>>>,
}

/// The pending replies; none any more when the process has ended.
type Answers = Option<HashMap<u64, oneshot::Sender<Answer>>>;

/// The outcome of a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// It succeeded, with this result.
    Ok(String),
    /// It was refused: the thread is not the owner, or the lock is not reentrant.
    Refused(String),
    /// The other library does not support it.
    Unsupported(String),
    /// An unexpected failure.
    Error(String),
}

impl fmt::Display for Answer {
    /// As a reply has it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (kind, text) = match self {
            Self::Ok(text) => ("ok", text),
            Self::Refused(text) => ("refused", text),
            Self::Unsupported(text) => ("unsupported", text),
            Self::Error(text) => ("error", text),
        };
        write!(f, "{kind} {text}")
    }
}

impl Peer {
    /// Starts a process, and waits until it is ready.
    ///
    /// # Panics
    ///
    /// When it cannot start.
    #[must_use]
    pub fn start(name: impl Into<String>, command: &mut Command) -> Self {
        let name = name.into();
        let process = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
        let mut process = process.unwrap_or_else(|error| panic!("{name} cannot start: {error}"));
        let input = process.stdin.take().expect("it is a pipe");
        let mut output =
            BufReader::new(process.stdout.take().expect("it is a pipe")).lines().map_while(Result::ok);
        let errors = BufReader::new(process.stderr.take().expect("it is a pipe"));

        let answers: Arc<Mutex<Answers>> = Arc::new(Mutex::new(Some(HashMap::new())));
        let complaints = Arc::new(Mutex::new(Vec::new()));
        let ready = output.any(|line| parse(&line).is_some());
        thread::spawn({
            let answers = Arc::clone(&answers);
            move || {
                for line in output {
                    if let Some((number, answer)) = parse(&line) {
                        let waiting = lock(&answers).as_mut().and_then(|waiting| waiting.remove(&number));
                        // The receiver may be dropped: a test may have given up.
                        let _ = waiting.map(|waiting| waiting.send(answer));
                    }
                }
                // The drop of the channels notifies the pending calls.
                *lock(&answers) = None;
            }
        });
        thread::spawn({
            let complaints = Arc::clone(&complaints);
            move || errors.lines().map_while(Result::ok).for_each(|line| lock(&complaints).push(line))
        });
        let (process, input, next) = (Mutex::new(process), Mutex::new(input), AtomicU64::new(1));
        let peer = Self { name, process, input, next, answers, complaints };
        if !ready {
            let _ = lock(&peer.process).wait();
            panic!("{} ended instead of starting: {:?}", peer.name, peer.complaints());
        }
        peer
    }

    /// Its name in messages.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The number of its process.
    #[must_use]
    pub fn id(&self) -> u32 {
        lock(&self.process).id()
    }

    /// Sends a command to a thread, without waiting for it.
    pub fn tell(&self, thread: &str, command: &str) -> Pending {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let what = format!("{}, {thread}: {command}", self.name);
        let (sender, answer) = oneshot::channel();
        if let Some(waiting) = lock(&self.answers).as_mut() {
            waiting.insert(number, sender);
        }
        let client = if thread.contains('/') { "" } else { "30000/" };
        // If the process has ended, waiting for the reply reports that.
        let _ = writeln!(lock(&self.input), "{number} {client}{thread} {command}");
        Pending { what, answer, limit: LONG }
    }

    /// Sends a command to a thread, and waits until it has succeeded.
    ///
    /// # Panics
    ///
    /// When it does not succeed.
    pub async fn ask(&self, thread: &str, command: &str) -> String {
        self.tell(thread, command).ok().await
    }

    /// Ends the process at once, as a crash would; it has ended when this returns.
    ///
    /// # Panics
    ///
    /// When that is not possible.
    pub fn kill(&self) {
        let mut process = lock(&self.process);
        process.kill().expect("it was started here");
        process.wait().expect("it was started here");
    }

    /// Its standard error so far.
    #[must_use]
    pub fn complaints(&self) -> Vec<String> {
        lock(&self.complaints).clone()
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        let mut process = lock(&self.process);
        let _ = process.kill();
        let _ = process.wait();
    }
}

/// A command that was sent, and whose reply may be pending.
#[derive(Debug)]
#[must_use = "a reply may be a failure"]
pub struct Pending {
    what: String,
    answer: oneshot::Receiver<Answer>,
    limit: Duration,
}

impl Pending {
    /// Sets the time-out for the reply.
    pub fn within(mut self, limit: Duration) -> Self {
        self.limit = limit;
        self
    }

    /// Whether the reply has arrived.
    #[must_use]
    pub fn is_answered(&self) -> bool {
        !self.answer.is_empty()
    }

    /// Waits for the reply.
    ///
    /// # Panics
    ///
    /// When there is none in time, the process has ended, or the reply is a failure.
    pub async fn answer(self) -> Answer {
        let Self { what, answer, limit } = self;
        let Ok(answered) = timeout(limit, answer).await else { panic!("{what}: no reply within {limit:?}") };
        let Ok(answer) = answered else { panic!("{what}: the process has ended") };
        if let Answer::Error(error) = answer {
            panic!("{what}: {error}");
        }
        answer
    }

    /// Waits until the command has succeeded.
    ///
    /// # Panics
    ///
    /// When it does not succeed.
    pub async fn ok(self) -> String {
        let what = self.what.clone();
        match self.answer().await {
            Answer::Ok(result) => result,
            other => panic!("{what}: {other:?}"),
        }
    }

    /// Waits until the command is refused.
    ///
    /// # Panics
    ///
    /// When it is not.
    pub async fn refused(self) -> String {
        let what = self.what.clone();
        match self.answer().await {
            Answer::Refused(why) => why,
            other => panic!("{what} should be refused: {other:?}"),
        }
    }
}

/// Parses `= NUMBER KIND TEXT`; any other line is not a reply.
fn parse(line: &str) -> Option<(u64, Answer)> {
    let mut words = line.strip_prefix("= ")?.splitn(3, ' ');
    let number = words.next()?.parse().ok()?;
    let (kind, text) = (words.next()?, words.next().unwrap_or_default().to_owned());
    let answer = match kind {
        "ok" => Answer::Ok(text),
        "refused" => Answer::Refused(text),
        "unsupported" => Answer::Unsupported(text),
        "error" => Answer::Error(text),
        _ => return None,
    };
    Some((number, answer))
}

/// A panic of one test must not make others panic.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_reply_lines_of_a_peer_are_parsed_as_replies() {
        assert_eq!(parse("= 12 ok a b"), Some((12, Answer::Ok("a b".into()))));
        assert_eq!(parse("= 1 refused "), Some((1, Answer::Refused(String::new()))));
        for answer in [Answer::Ok, Answer::Refused, Answer::Unsupported, Answer::Error] {
            let answer = answer("a b".into());
            assert_eq!(parse(&format!("= 7 {answer}")), Some((7, answer)));
        }
        for line in ["running 1 test", "=", "= x ok", "= 1 perhaps", "test a ... ok"] {
            assert_eq!(parse(line), None, "{line}");
        }
    }
}
