//! The memory engine with faults on demand.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use super::memory::Memory;
use super::{
    Adjusted, Attempt, AttemptAll, Change, Claim, Engine, Facts, Profile, Question, Released, Renewed, Reply,
    Spot, Target, Ticket,
};
use crate::client_id::ClientId;
use crate::env;
use crate::error::Failure;
use crate::lease::{Lapse, Lease};
use crate::term::Term;

/// A memory engine whose answers go wrong as told.
#[derive(Debug)]
pub(crate) struct Faulty {
    pub(crate) memory: Arc<Memory>,
    script: Mutex<Script>,
}

/// What goes wrong from now on.
#[derive(Debug, Default)]
pub(crate) struct Script {
    /// Requests are not carried out.
    pub(crate) refusal: Option<Failure>,
    /// Answers come later.
    pub(crate) delay: Duration,
    /// So many requests are carried out without an answer.
    pub(crate) lost_replies: usize,
}

impl Faulty {
    pub(crate) fn new() -> Self {
        Self { memory: Memory::new(), script: Mutex::default() }
    }

    pub(crate) fn script(&self) -> MutexGuard<'_, Script> {
        self.script.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn answer<T: Unpin + Send + 'static>(&self, request: impl FnOnce(&Memory) -> Reply<T>) -> Reply<T> {
        let (refusal, delay, lost) = {
            let mut script = self.script();
            let lost = script.refusal.is_none() && script.lost_replies > 0;
            script.lost_replies -= usize::from(lost);
            (script.refusal.clone(), script.delay, lost)
        };
        let reply = match refusal {
            Some(failure) => Reply::Now(Some(Err(failure))),
            None => request(&self.memory),
        };
        let arrives = env::after(delay);
        Reply::later(async move {
            let answer = reply.await;
            if !delay.is_zero() {
                env::sleep_until_or_forever(arrives).await;
            }
            if lost { Err(Failure::Unavailable("the reply was lost".into())) } else { answer }
        })
    }
}

impl Engine for Faulty {
    fn profile(&self) -> &'static Profile {
        self.memory.profile()
    }

    fn attempt(&self, claim: &Claim, turn: Option<Ticket>) -> Reply<Attempt> {
        self.answer(|memory| memory.attempt(claim, turn))
    }

    fn attempt_all(&self, claims: &[Claim], turn: Option<(usize, Ticket)>) -> Option<Reply<AttemptAll>> {
        Some(self.answer(|memory| memory.attempt_all(claims, turn).expect("memory does")))
    }

    fn release(&self, spot: &Spot, from: u32, lease: Lease) -> Reply<Released> {
        self.answer(|memory| memory.release(spot, from, lease))
    }

    fn force(&self, target: &Target) -> Reply<bool> {
        self.answer(|memory| memory.force(target))
    }

    fn renew(&self, spot: &Spot, length: Duration) -> Reply<Renewed> {
        self.answer(|memory| memory.renew(spot, length))
    }

    fn abandon(&self, spot: &Spot, count: u32, lapse: Lapse) {
        // The engine's own affair: a real one repeats it until it is done.
        self.memory.abandon(spot, count, lapse);
    }

    fn term(&self, spot: &Spot) -> Option<Arc<Term>> {
        self.memory.term(spot)
    }

    fn inspect(&self, question: &Question<'_>) -> Reply<Facts> {
        self.answer(|memory| memory.inspect(question))
    }

    fn adjust(&self, target: &Target, change: &Change) -> Reply<Adjusted> {
        self.answer(|memory| memory.adjust(target, change))
    }

    fn let_go(&self, spot: &Spot) {
        self.memory.let_go(spot);
    }

    fn join(&self, spot: &Spot, heir: bool, context: &mut Context<'_>) -> (Ticket, bool) {
        // Always looks once more: what a try was told may be old when its answer comes.
        (self.memory.join(spot, heir, context).0, true)
    }

    fn listening(&self, spot: &Spot) -> Reply<()> {
        self.memory.listening(spot)
    }

    fn poll_hint(&self, spot: &Spot, ticket: Ticket, context: &mut Context<'_>) -> Poll<()> {
        self.memory.poll_hint(spot, ticket, context)
    }

    fn hint_all(&self) {
        self.memory.hint_all();
    }

    fn leave(&self, spot: &Spot, ticket: Ticket) {
        self.memory.leave(spot, ticket);
    }

    fn retire(&self, client: ClientId) -> usize {
        self.memory.retire(client)
    }
}
