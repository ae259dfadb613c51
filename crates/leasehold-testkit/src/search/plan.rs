//! What a seed means: which round, on which server, with which random choices.

use std::time::Duration;

use super::round::Setting;
use crate::dice::Dice;
use crate::server::Flavour;

/// The kind of a round. Most find one kind of error quickly; the last one does everything at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scenario {
    /// Many tasks acquire one lock, which is forced again and again.
    ForceStorm,
    /// Grants whose futures are polled late, beside a steal or a `force_unlock` of the same client.
    LatePolls,
    /// Owners of guards that were released, beside the hand-over from task to task.
    FormerOwners,
    /// Fair waiters that give up in an outage.
    FairOutage,
    /// Guards with an extended lease that are dropped in an outage.
    ExtendedOutage,
    /// Requests that a dead connection delivers later, to a server that does not report which connection that is.
    StaleConnections,
    /// A lock on three servers.
    Quorum,
    /// Every primitive, operation and fault.
    Mixed,
}

const SCENARIOS: [Scenario; 10] = [
    Scenario::ForceStorm,
    Scenario::LatePolls,
    Scenario::FormerOwners,
    Scenario::FairOutage,
    Scenario::ExtendedOutage,
    Scenario::StaleConnections,
    Scenario::Mixed,
    Scenario::Mixed,
    Scenario::Quorum,
    Scenario::Mixed,
];

/// A seed and its meaning. It determines the operations, not the order in which tasks run and replies arrive.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The seed.
    pub seed: u64,
    /// What the round is about.
    pub scenario: Scenario,
    /// How it is set up.
    pub(super) setting: Setting,
    /// For all other random choices.
    pub(super) dice: Dice,
}

impl Plan {
    /// What this seed means.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        let mut dice = Dice::new(seed);
        let scenario = SCENARIOS[(seed % 10) as usize];
        let watchdog = match scenario {
            // Here a renewal must not happen between a wrong report and its check.
            Scenario::LatePolls | Scenario::FormerOwners => Duration::from_secs(5),
            _ => dice.between(Duration::from_millis(300), Duration::from_secs(1)),
        };
        let denied: &[_] = match (scenario, dice.roll(3)) {
            (Scenario::StaleConnections, 0) => &["-client|id", "-client|info", "-client|kill"],
            (Scenario::StaleConnections, _) | (Scenario::Mixed, 0) => &["-client|id", "-client|info"],
            _ => &[],
        };
        let setting = Setting {
            flavour: dice.one_of(&[Flavour::Redis, Flavour::Valkey]),
            watchdog,
            response: dice.between(Duration::from_millis(200), Duration::from_millis(400)),
            denied,
        };
        Self { seed, scenario, setting, dice }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_gives_the_same_plan_each_time_and_another_seed_another_plan() {
        let text = |seed| format!("{:?}", Plan::new(seed));
        assert_eq!(text(17), text(17));
        assert_ne!(text(17), text(27));
    }
}
