//! Who keeps one connection for commands alive, and what is owed on it in mind.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc::UnboundedReceiver;
use tokio::sync::oneshot;

use super::calls;
use super::connection::{Settings, Trouble};
use super::hints::Hints;
use super::io::{Abandon, Message, Pipe, Request};
use super::keeper::Keeper;
use super::lasting::Lasting;
use super::link::Link;
use super::scripts::Wording;
use crate::engine::{Kind, Spot};
use crate::error::Failure;
use crate::time::{self, jittered};

/// An abandon that is on its way or waits for its next try.
#[derive(Debug, Clone)]
pub(super) struct Unsettled {
    number: u64,
    abandon: Abandon,
    /// A dead connection may still act: done once is not done for good.
    repeat: bool,
    /// The server has to be told the script.
    by_text: bool,
}

/// What has become of one try of an abandon.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Outcome {
    Done,
    /// The server did nothing: it does not know the script.
    Unknown,
    /// There was no answer, or none that helps.
    Missing,
}

/// Keeps one connection for commands alive, and what is owed on it in mind.
pub(super) struct Supervisor {
    settings: Settings,
    pipe: Pipe,
    keeper: Arc<Keeper>,
    hints: Arc<Hints>,
    link: Option<Link>,
    /// How many links there were.
    links: u64,
    /// What is to be undone and not known to be, at most one for each count.
    unsettled: HashMap<Spot, Unsettled>,
    /// Those of them that wait for a connection.
    owed: Vec<Unsettled>,
    /// How many abandons there were.
    abandons: u64,
    /// Calls that last and wait for a connection.
    waiting: Vec<Lasting>,
    /// How many calls that last and notes there are.
    open: usize,
    closing: Option<oneshot::Sender<()>>,
    /// Whether every connection that broke was ended on the server, too.
    no_ghosts: bool,
    /// The server's numbers of dead connections that may still have something of ours to do.
    dead: Vec<i64>,
}

const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
/// A server that is there and cannot, because it is loading or full, is not asked again without a pause.
const BETWEEN_TRIES: Duration = Duration::from_millis(100);
/// Where a dead connection cannot be ended, what it may still do is undone this often.
const AGAIN: Duration = Duration::from_millis(500);
/// Nothing is under way for longer than this on a connection that broke.
const LONGEST_GHOST: Duration = Duration::from_secs(60);

impl Supervisor {
    pub(super) fn new(
        settings: Settings,
        pipe: Pipe,
        keeper: Arc<Keeper>,
        hints: Arc<Hints>,
        link: Link,
    ) -> Self {
        Self {
            settings,
            pipe,
            keeper,
            hints,
            link: Some(link),
            links: 1,
            unsettled: HashMap::new(),
            owed: Vec::new(),
            abandons: 0,
            waiting: Vec::new(),
            open: 0,
            closing: None,
            no_ghosts: true,
            dead: Vec::new(),
        }
    }

    pub(super) async fn run(mut self, mut messages: UnboundedReceiver<Message>) {
        let mut pause = FIRST_PAUSE;
        let mut opening = Box::pin(open_after(Duration::ZERO, self.settings.clone(), 0, self.pipe.clone()));
        let mut is_opening = false;
        loop {
            if self.link.is_none() && !is_opening {
                let next = open_after(jittered(pause), self.settings.clone(), self.links, self.pipe.clone());
                opening.set(next);
                is_opening = true;
                pause = (pause * 2).min(LONGEST_PAUSE);
            }
            tokio::select! {
                message = messages.recv() => match message {
                    Some(message) => self.handle(message),
                    None => return,
                },
                opened = &mut opening, if is_opening => {
                    is_opening = false;
                    match opened {
                        Ok(link) => {
                            pause = FIRST_PAUSE;
                            self.connected(link).await;
                        }
                        Err(failure) => tracing::debug!(%failure, "no connection"),
                    }
                }
            }
            self.end_if_settled();
        }
    }

    fn handle(&mut self, message: Message) {
        match message {
            Message::Call(request) => self.call(request),
            Message::Last(lasting) => {
                self.open += 1;
                self.last(lasting);
            }
            Message::Again(lasting) => self.last(lasting),
            Message::Forget(note) => {
                // Without a connection it goes when the record does.
                let Some(link) = &self.link else { return };
                let (connection, pipe) = (link.connection.clone(), self.pipe.clone());
                self.open += 1;
                tokio::spawn(async move {
                    drop(connection.send(note.removal()).await);
                    pipe.tell(Message::Ended);
                });
            }
            Message::Ended => self.open -= 1,
            Message::Abandon(mut abandon) => {
                self.abandons += 1;
                // What was to be undone before still is.
                if let Some(before) = self.unsettled.get(&abandon.spot) {
                    abandon.count = abandon.count.min(before.abandon.count);
                }
                let unsettled = Unsettled { number: self.abandons, abandon, repeat: false, by_text: false };
                self.unsettled.insert(unsettled.abandon.spot.clone(), unsettled.clone());
                self.try_abandon(unsettled);
            }
            Message::Tried(unsettled, outcome) => self.tried(unsettled, outcome),
            Message::Broken(number) => {
                if self.link.as_ref().is_some_and(|link| link.number == number) {
                    tracing::debug!("the connection is replaced");
                    let id = self.link.take().and_then(|link| link.id);
                    self.no_ghosts &= id.is_some();
                    self.dead.extend(id);
                    self.hints.outage(true);
                }
            }
            Message::Close(done) => self.closing = Some(done),
        }
    }

    async fn connected(&mut self, link: Link) {
        self.links += 1;
        // What a dead connection still has to do must not happen after it was undone.
        let mut ended = true;
        while let Some(id) = self.dead.last() {
            let kill = redis::cmd("CLIENT").arg("KILL").arg("ID").arg(id).clone();
            match link.connection.send(kill).await {
                Ok(_) => {}
                Err(Trouble::Refused(_)) => ended = false,
                Err(_) => {
                    // Broken again: another link will have to do it.
                    self.dead.extend(link.id);
                    return;
                }
            }
            self.dead.pop();
        }
        self.no_ghosts &= ended;
        self.link = Some(link);
        for mut unsettled in std::mem::take(&mut self.owed) {
            unsettled.repeat |= !ended;
            if !ended && matches!(unsettled.abandon.spot.target.kind, Kind::Semaphore | Kind::Permits) {
                // What is only counted, or taken for good, has no lease to wait for.
                let at_last = time::now() + LONGEST_GHOST;
                unsettled.abandon.until = unsettled.abandon.until.min(at_last);
            }
            self.tried(unsettled, Outcome::Missing);
        }
        for lasting in std::mem::take(&mut self.waiting) {
            self.last(lasting);
        }
        self.keeper.check_all();
        self.hints.outage(false);
    }

    fn call(&mut self, request: Request) {
        let Some(link) = &self.link else {
            drop(request.answer.send(Err(Failure::Unavailable("not connected".into()))));
            return;
        };
        // Whatever was to be undone has to be before the next step, and never again after it: so by its text, which
        // the server understands at once.
        for before in request.about.iter().flat_map(|spot| take_undone(&mut self.unsettled, spot)) {
            let (connection, undo) = (link.connection.clone(), before.abandon.call());
            tokio::spawn(async move { connection.run(&undo, Wording::Text, Duration::MAX).await });
        }
        link.run(request, &self.pipe);
    }

    /// Sends a call that lasts, or keeps it until there is a connection.
    fn last(&mut self, mut lasting: Lasting) {
        let Some(link) = &self.link else {
            self.waiting.push(lasting);
            return;
        };
        if !lasting.begin() {
            self.open -= 1;
            return;
        }
        // A dead connection that still acts would not recognise what is taken off the record.
        let forget = self.no_ghosts || lasting.is_first();
        let (connection, number, pipe) = (link.connection.clone(), link.number, self.pipe.clone());
        tokio::spawn(async move {
            match lasting.send(&connection).await {
                Ok(answer) => {
                    let forget = forget && answer.is_ok();
                    let note = lasting.answer(answer);
                    if forget {
                        drop(connection.send(note.removal()).await);
                    }
                    pipe.tell(Message::Ended);
                }
                Err(Trouble::Broken(_)) => {
                    pipe.tell(Message::Broken(number));
                    pipe.tell(Message::Again(lasting));
                }
                Err(_) => {
                    tokio::time::sleep(jittered(BETWEEN_TRIES)).await;
                    pipe.tell(Message::Again(lasting));
                }
            }
        });
    }

    /// Goes on with an abandon, unless it is done, its lease is over, or a later step has taken care of it.
    fn tried(&mut self, mut unsettled: Unsettled, outcome: Outcome) {
        let spot = &unsettled.abandon.spot;
        if self.unsettled.get(spot).is_none_or(|newest| newest.number != unsettled.number) {
            return;
        }
        let done = outcome == Outcome::Done && !unsettled.repeat;
        if done || unsettled.abandon.until <= time::now() {
            self.unsettled.remove(spot);
        } else {
            unsettled.by_text = outcome == Outcome::Unknown;
            self.try_abandon(unsettled);
        }
    }

    fn try_abandon(&mut self, unsettled: Unsettled) {
        let Some(link) = &self.link else {
            self.owed.push(unsettled);
            return;
        };
        let (connection, number, pipe) = (link.connection.clone(), link.number, self.pipe.clone());
        let call = unsettled.abandon.call();
        let wording = if unsettled.by_text { Wording::Text } else { Wording::Hash };
        let (hints, begun) = (Arc::clone(&self.hints), time::now());
        tokio::spawn(async move {
            let outcome = match connection.run(&call, wording, Duration::MAX).await {
                Ok(answer) => {
                    hints.released(&unsettled.abandon.spot, calls::listeners(&Ok(answer)), begun);
                    Outcome::Done
                }
                // What may not be undone is not asked again.
                Err(Trouble::Refused(Failure::Denied(_) | Failure::NotALock)) => Outcome::Done,
                Err(Trouble::NoScript) => Outcome::Unknown,
                Err(Trouble::Refused(_)) => {
                    tokio::time::sleep(jittered(BETWEEN_TRIES)).await;
                    Outcome::Missing
                }
                Err(Trouble::Broken(_)) => {
                    // Without a pause, to be the first on the next connection.
                    pipe.tell(Message::Broken(number));
                    Outcome::Missing
                }
            };
            if outcome == Outcome::Done && unsettled.repeat {
                tokio::time::sleep(AGAIN).await;
            }
            pipe.tell(Message::Tried(unsettled, outcome));
        });
    }

    fn end_if_settled(&mut self) {
        if self.closing.is_some() && self.unsettled.is_empty() && self.open == 0 {
            self.closing.take().map(|done| done.send(()));
        }
    }
}

async fn open_after(pause: Duration, settings: Settings, number: u64, pipe: Pipe) -> Result<Link, Failure> {
    tokio::time::sleep(pause).await;
    Link::open(&settings, number, &pipe).await
}

/// What is still to be undone of the steps before one at this spot: of the same hold, or of one of the same owner that had
/// some of the same values.
fn take_undone(unsettled: &mut HashMap<Spot, Unsettled>, spot: &Spot) -> Vec<Unsettled> {
    if spot.target.kind != Kind::Group {
        return unsettled.remove(spot).into_iter().collect();
    }
    let is_before = |other: &Spot| other.owner == spot.owner && other.target.overlaps(&spot.target);
    unsettled.extract_if(|other, _| is_before(other)).map(|(_, undone)| undone).collect()
}
