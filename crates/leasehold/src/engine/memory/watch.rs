//! Who looks after those who wait.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use super::Memory;
use crate::engine::aftermath::Aftermath;
use crate::engine::{Target, Ticket};
use crate::time;

/// How often it looks.
const EVERY: Duration = Duration::from_millis(500);

/// After so many looks everybody is called, whatever may be the reason that nobody was. That is every 30 s, which is how
/// long somebody waits on a server who is not told anything.
const ALL: u32 = 60;

/// The watch over all lines.
///
/// The head of a line is somebody's future, and futures can be left lying about unpolled. Those behind it need no timer
/// of their own: if the head was called and does not come, the watch calls everybody.
#[derive(Debug)]
pub(super) struct Watch {
    engine: Weak<Memory>,
    watched: Mutex<Watched>,
}

#[derive(Debug, Default)]
struct Watched {
    /// And who had been called and had not come when each was last looked at.
    lines: HashMap<Target, Option<Ticket>>,
    /// There is a task that looks at them.
    is_manned: bool,
}

impl Watch {
    pub(super) fn new(engine: &Weak<Memory>) -> Self {
        Self { engine: Weak::clone(engine), watched: Mutex::default() }
    }

    /// Begins to watch the line of a target, if that is not watched from before.
    pub(super) fn begin(&self, target: &Target) {
        let mut watched = self.watched();
        watched.lines.entry(target.clone()).or_default();
        if !std::mem::replace(&mut watched.is_manned, true) {
            drop(watched);
            Duty::begin(&self.engine);
        }
    }

    /// Looks at every line. False if none is left.
    fn look(&self, engine: &Memory, calls_all: bool) -> bool {
        let lines: Vec<_> = self.watched().lines.keys().cloned().collect();
        for target in lines {
            engine.with(&target, |machine, _| {
                let line = machine.line_if_any(&target);
                let line = line.and_then(|line| (!line.ends_watch()).then_some(line));
                let mut watched = self.watched();
                let Some(line) = line else {
                    // While nobody can join it: whoever comes next begins anew.
                    watched.lines.remove(&target);
                    return ((), Aftermath::default());
                };
                let called = line.called();
                let before = watched.lines.insert(target.clone(), called).flatten();
                let wakers = match called {
                    Some(_) if called == before => line.pass(),
                    _ if calls_all => line.hint_all(),
                    _ => Vec::new(),
                };
                ((), Aftermath::waking(wakers))
            });
        }
        let mut watched = self.watched();
        watched.is_manned = !watched.lines.is_empty();
        watched.is_manned
    }

    fn watched(&self) -> MutexGuard<'_, Watched> {
        self.watched.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The task that looks from time to time, until there is nothing to look at.
struct Duty {
    engine: Weak<Memory>,
    over: bool,
}

impl Duty {
    fn begin(engine: &Weak<Memory>) {
        let duty = Self { engine: Weak::clone(engine), over: false };
        // Not on the runtime of whoever waits: if that is not driven any more, nor would the watch be.
        time::spawn_apart(duty.look_after());
    }

    async fn look_after(mut self) {
        for looks in 1_u32.. {
            time::sleep_for(EVERY).await;
            let engine = self.engine.upgrade();
            self.over = !engine.is_some_and(|engine| engine.watch.look(&engine, looks.is_multiple_of(ALL)));
            if self.over {
                return;
            }
        }
    }
}

impl Drop for Duty {
    /// Wakers are not ours, and one that panics ends nobody's watch.
    fn drop(&mut self) {
        if !self.over {
            Self::begin(&self.engine);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::task::{Context, Waker};

    use super::*;
    use crate::client_id::ClientId;
    use crate::engine::{Busy, Engine, Kind, Spot};
    use crate::name::Name;
    use crate::owner::OwnerId;

    /// An engine, and somewhere to wait.
    fn engine(kind: Kind) -> (std::sync::Arc<Memory>, Spot) {
        let target = Target::new(kind, Name::new("", "a").unwrap());
        (Memory::new(), Spot { target, owner: OwnerId::fresh(ClientId::random(), 1), amount: 1 })
    }

    fn join(engine: &Memory, spot: &Spot) -> Ticket {
        engine.join(spot, false, Busy::default(), &mut Context::from_waker(Waker::noop())).0
    }

    fn is_called(engine: &Memory, spot: &Spot, ticket: Ticket) -> bool {
        engine.poll_hint(spot, ticket, &mut Context::from_waker(Waker::noop())).is_ready()
    }

    #[test]
    fn a_line_is_watched_as_long_as_anybody_waits_in_it() {
        for kind in [Kind::Lock, Kind::Fair, Kind::Read, Kind::Group, Kind::Permits, Kind::Latch] {
            let (engine, spot) = engine(kind);
            assert!(!engine.watch.look(&engine, false), "{kind:?}: nobody waits");
            let first = join(&engine, &spot);
            assert!(engine.watch.look(&engine, false));
            let second = join(&engine, &spot);
            engine.leave(&spot, first);
            assert!(engine.watch.look(&engine, false));
            engine.leave(&spot, second);
            let third = join(&engine, &spot);
            assert!(engine.watch.look(&engine, false), "{kind:?}: its line was left and is a new one");
            engine.leave(&spot, third);
            assert!(!engine.watch.look(&engine, false));
            let fourth = join(&engine, &spot);
            assert!(engine.watch.look(&engine, false), "{kind:?}: it begins anew");
            engine.leave(&spot, fourth);
            assert!(!engine.watch.look(&engine, false));
            assert!(engine.shards.iter().all(|shard| shard.lock().unwrap().is_empty()), "{kind:?}");
        }
    }

    #[test]
    fn everybody_is_called_when_a_head_that_was_called_does_not_come() {
        let (engine, spot) = engine(Kind::Latch);
        let [head, behind] = [0, 1].map(|_| join(&engine, &spot));
        let call = || {
            engine.with(&spot.target, |machine, _| {
                ((), Aftermath::waking(machine.line(&spot.target).hint_head()))
            });
        };
        call();
        assert!(engine.watch.look(&engine, false));
        assert!(is_called(&engine, &spot, head), "it came in time");
        assert!(engine.watch.look(&engine, false));
        call();
        assert!(engine.watch.look(&engine, false));
        assert!(!is_called(&engine, &spot, behind));
        assert!(engine.watch.look(&engine, false));
        assert!(is_called(&engine, &spot, behind));
        for _ in 0..3 {
            assert!(engine.watch.look(&engine, false));
        }
        assert!(
            !is_called(&engine, &spot, behind),
            "it is the head now, and the other one is known not to come"
        );
        assert!(engine.watch.look(&engine, true));
        assert!(is_called(&engine, &spot, behind), "from time to time everybody is");
    }
}
