//! A call that changes a counter: sent as often as it takes, carried out once.
//!
//! It has a number of its own, under which the script notes the result. A repetition finds the note and is answered by
//! it. When the answer has come, the note goes; the record has a time to live for those that nobody removes.

use std::fmt;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use tokio::sync::oneshot;

use super::connection::{Connection, Trouble};
use super::io::Answer;
use super::request::InOrder;
use super::resp::Value;
use super::scripts::Call;
use crate::error::Failure;
use crate::owner::OwnerId;
use crate::race::{First, race};
use crate::time::{self, Instant};

/// Never sent: nothing has changed.
pub(super) type NotAsked = Failure;

/// A line of the record.
#[derive(Debug)]
pub(super) struct Note {
    pub(super) record: String,
    pub(super) field: OwnerId,
}

impl Note {
    pub(super) fn removal(&self) -> Call {
        Call::command("HDEL").arg(&self.record).arg(self.field)
    }
}

/// What a change does to what this client knows, at its place among the replies.
pub(super) type Effect = Arc<dyn Fn(&Value) + Send + Sync>;

/// A call, where its result is noted, and until when it is worth another try.
pub(super) struct Lasting {
    call: Call,
    /// What a reply does, however often it takes to get one.
    effect: Effect,
    note: Note,
    until: Option<Instant>,
    tries: u32,
    /// Whether it was sent, or given up before it could be: the first to say so decides.
    sent: Arc<OnceLock<bool>>,
    /// Why the server could not, when it was last asked.
    refusal: Arc<Mutex<Option<Failure>>>,
    answer: Option<oneshot::Sender<Answer>>,
}

impl fmt::Debug for Lasting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lasting")
            .field("call", &self.call)
            .field("tries", &self.tries)
            .finish_non_exhaustive()
    }
}

impl Lasting {
    pub(super) fn new(call: Call, effect: Effect, note: Note, until: Option<Instant>) -> Self {
        let (sent, refusal) = (Arc::default(), Arc::default());
        Self { call, effect, note, until, tries: 0, sent, refusal, answer: None }
    }

    /// What becomes of it, within its time.
    pub(super) fn outcome(mut self) -> (Self, impl Future<Output = Result<Answer, NotAsked>> + Send + use<>) {
        let (answer, answered) = oneshot::channel();
        self.answer = Some(answer);
        let (until, sent, refusal) = (self.until, Arc::clone(&self.sent), Arc::clone(&self.refusal));
        let outcome = async move {
            if let First::Left(Ok(answer)) = race(answered, time::sleep_until_or_forever(until)).await {
                return Ok(answer);
            }
            let failure = |text: &str| Failure::Unavailable(text.into());
            if *sent.get_or_init(|| false) {
                let refusal = refusal.lock().unwrap_or_else(PoisonError::into_inner).take();
                let unanswered = || failure("no answer for as long as an outage may last");
                Ok(Err(refusal.unwrap_or_else(unanswered)))
            } else {
                Err(failure("not connected for as long as an outage may last"))
            }
        };
        (self, outcome)
    }

    /// Begins another try, unless it is too late for one.
    pub(super) fn begin(&mut self) -> bool {
        self.tries += 1;
        self.until.is_none_or(|until| time::now() < until) && *self.sent.get_or_init(|| true)
    }

    pub(super) fn is_first(&self) -> bool {
        self.tries == 1
    }

    /// Sends it and waits for an answer that is one. A server that cannot for the moment gives none.
    pub(super) async fn send(&self, connection: &Connection) -> Result<Answer, Trouble> {
        let effect = Arc::clone(&self.effect);
        let in_order: InOrder = Box::new(move |answer| effect(answer));
        match connection.run(self.call.clone(), Some(in_order)).await {
            Ok(value) => Ok(Ok(value)),
            Err(Trouble::Refused(refusal @ (Failure::Denied(_) | Failure::NotALock))) => Ok(Err(refusal)),
            Err(trouble) => {
                if let Trouble::Refused(refusal) = &trouble {
                    *self.refusal.lock().unwrap_or_else(PoisonError::into_inner) = Some(refusal.clone());
                }
                Err(trouble)
            }
        }
    }

    /// Tells the answer, and what is noted of it.
    pub(super) fn answer(self, answer: Answer) -> Note {
        // Whoever wanted it may be gone. It is done all the same.
        self.answer.map(|wanted| wanted.send(answer));
        self.note
    }
}
