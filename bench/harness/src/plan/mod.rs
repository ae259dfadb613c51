//! What the command line asks for: which contenders do what, how long and how often.
//!
//! `cargo xtask bench` compiles this module, too, to refuse what it does not know before anything is built.

mod contenders;
mod options;
mod scenarios;

pub(crate) use self::contenders::{CONTENDERS, Contender, Family, Program};
pub(crate) use self::options::Options;
pub(crate) use self::scenarios::{Contention, Job, LEASE, Scenario};

use self::scenarios::scenarios;

/// What runs in each round, in this order.
///
/// # Errors
///
/// When there is no scenario or no contender of a name that is asked for.
pub(crate) fn plan(options: &Options) -> Result<Vec<(Scenario, &'static Contender)>, String> {
    let Options { only, contenders, .. } = options;
    let scenarios = scenarios();
    if let Some(unknown) = only.iter().find(|only| !scenarios.iter().any(|known| known.is(only))) {
        return Err(format!("there is no scenario {unknown}; --list shows them"));
    }
    if let Some(unknown) = contenders.iter().find(|only| !CONTENDERS.iter().any(|known| known.id == **only)) {
        return Err(format!("there is no contender {unknown}; --list shows them"));
    }
    let mut plan = Vec::new();
    for scenario in scenarios {
        if !only.is_empty() && !only.iter().any(|only| scenario.is(only)) {
            continue;
        }
        for contender in CONTENDERS {
            let wanted = contenders.is_empty() || contenders.iter().any(|id| id == contender.id);
            if wanted && scenario.is_for(contender) {
                plan.push((scenario.clone(), contender));
            }
        }
    }
    Ok(plan)
}
