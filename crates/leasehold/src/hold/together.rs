//! Several holds entered in one step.

use std::sync::Arc;

use super::state::Undo;
use super::{Entry, Hold, Tried};
use crate::engine::{AttemptAll, Claim, RwOptions, Ticket};
use crate::env;
use crate::error::AcquireError;
use crate::guard::Guard;
use crate::lease::Bounds;
use crate::term::Term;

impl Hold {
    /// Tries once to enter several new holds of one owner, all or none. Returns the result, and if there are no guards, because
    /// of which resource; `None` if the engine cannot acquire these in one step.
    pub(crate) async fn enter_all(
        holds: &[Arc<Self>],
        entry: &Entry,
        turn: Option<(usize, Ticket)>,
    ) -> Result<Option<(Tried<Vec<Guard>>, usize)>, AcquireError> {
        let shared = &holds[0].shared;
        let begun = env::now();
        let limit = entry.max_hold.and_then(|length| begun.checked_add(length));
        let mut states = Vec::with_capacity(holds.len());
        for hold in holds {
            states.push(hold.lock_step().await);
        }
        let terms: Vec<_> = holds.iter().map(|hold| Term::new(Arc::downgrade(hold))).collect();
        let undo = |hold, term| Undo { hold, count: 0, expiry: entry.lease.into(), begins: Some(term) };
        let undos: Vec<_> = holds.iter().zip(&terms).map(|(hold, term)| undo(hold.as_ref(), term)).collect();
        // In its own block: the claims are not stored in the future during the wait.
        let reply = {
            let claims = holds.iter().zip(&terms).map(|(hold, term)| Claim {
                key: &hold.key,
                held: 0,
                lease: entry.lease,
                limit,
                steal: false,
                fenced: entry.fenced,
                queue: None,
                rw: RwOptions::default(),
                fresh: false,
                term,
            });
            shared.engine.attempt_all(&claims.collect::<Vec<_>>(), turn)
        };
        let Some(reply) = reply else {
            undos.into_iter().for_each(Undo::disarm);
            return Ok(None);
        };
        let granted = match reply.await? {
            AttemptAll::Granted(granted) => granted,
            AttemptAll::Busy(number, busy) => {
                undos.into_iter().for_each(Undo::disarm);
                return Ok(Some((Tried::Busy(busy), number)));
            }
            AttemptAll::NotSent(failure) => {
                undos.into_iter().for_each(Undo::disarm);
                return Err(failure.into());
            }
        };
        for (number, (term, (until, _))) in terms.iter().zip(&granted).enumerate() {
            if let Some(until) = until {
                term.set_until(*until);
            }
            if let Some(loss) = term.claim(Bounds { lease: entry.lease, limit }, Some(begun)) {
                // Dropping the undos releases the others.
                return Ok(Some((Tried::unseen(loss), number)));
            }
        }
        undos.into_iter().for_each(Undo::disarm);
        let mut guards = Vec::with_capacity(holds.len());
        for (((hold, state), term), (_, token)) in holds.iter().zip(&mut states).zip(terms).zip(granted) {
            state.entered(entry, entry.lease, Some(begun), limit, &term);
            guards.push(Guard::new(Arc::clone(hold), term, token, false));
        }
        Ok(Some((Tried::Granted(guards), 0)))
    }
}
