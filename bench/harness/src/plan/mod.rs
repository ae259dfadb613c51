//! The plan of a run: which contenders do what, how long and how often.
//!
//! `cargo xtask bench` compiles this module, too, to refuse unknown names before anything is built.

mod contenders;
mod options;
mod scenarios;

pub(crate) use self::contenders::{CONTENDERS, Contender, Family, Program};
pub(crate) use self::options::Options;
pub(crate) use self::scenarios::{Contention, Job, LEASE, Scenario};

use self::scenarios::scenarios;

/// How the ids of the library's own contenders begin.
const OURS: &str = "leasehold";

/// One unit of work: a contender alone, or one and its baselines by turns.
#[derive(Debug, Clone)]
pub(crate) struct Step {
    pub(crate) scenario: Scenario,
    /// The contender first.
    pub(crate) contenders: Vec<&'static Contender>,
}

impl Step {
    /// Whether there are baselines to take turns with.
    pub(crate) fn is_by_turns(&self) -> bool {
        self.contenders.len() > 1
    }

    /// The contenders of a turn, in order: reversed every other time, so that no contender is always first.
    pub(crate) fn turn(&self, turn: usize) -> Vec<&'static Contender> {
        let mut contenders = self.contenders.clone();
        if turn % 2 == 1 {
            contenders.reverse();
        }
        contenders
    }
}

/// Whether any contender of a plan is measured on a server.
pub(crate) fn needs_server(plan: &[Step]) -> bool {
    plan.iter().flat_map(|step| &step.contenders).any(|contender| contender.family.needs_server())
}

/// Whether any contender of a plan is measured with TLS.
pub(crate) fn needs_tls(plan: &[Step]) -> bool {
    plan.iter().flat_map(|step| &step.contenders).any(|contender| contender.tls)
}

/// Whether the contenders of a plan are measured on etcd.
pub(crate) fn needs_etcd(plan: &[Step]) -> bool {
    plan.iter().any(|step| step.scenario.is_on_etcd())
}

/// The steps of each round, in order.
///
/// # Errors
///
/// When a requested scenario or contender does not exist.
pub(crate) fn plan(options: &Options) -> Result<Vec<Step>, String> {
    let Options { only, contenders, engines, .. } = options;
    let mut scenarios = scenarios();
    let on_etcd = !engines.is_empty();
    if let Some(other) =
        only.iter().find(|only| scenarios.iter().any(|known| known.is(only) && known.is_on_etcd() != on_etcd))
    {
        let with = if on_etcd { "without" } else { "with" };
        return Err(format!("the scenario {other} is measured {with} --engines etcd"));
    }
    scenarios.retain(|scenario| scenario.is_on_etcd() == on_etcd);
    if let Some(unknown) = only.iter().find(|only| !scenarios.iter().any(|known| known.is(only))) {
        return Err(format!("there is no scenario {unknown}; --list shows them"));
    }
    if let Some(unknown) = contenders.iter().find(|only| !CONTENDERS.iter().any(|known| known.id == **only)) {
        return Err(format!("there is no contender {unknown}; --list shows them"));
    }
    let asked = |scenario: &Scenario| only.is_empty() || only.iter().any(|only| scenario.is(only));
    let mut plan = Vec::new();
    for scenario in scenarios.into_iter().filter(asked) {
        let runs: Vec<_> = CONTENDERS
            .iter()
            .filter(|contender| contenders.is_empty() || contenders.iter().any(|id| id == contender.id))
            .filter(|contender| scenario.is_for(contender))
            .collect();
        let is_baseline = |of: &Contender, contender: &Contender| of.baselines.contains(&contender.id);
        for contender in &runs {
            if runs.iter().any(|other| is_baseline(other, contender)) {
                continue;
            }
            let baselines = runs.iter().filter(|other| is_baseline(contender, other));
            let contenders = std::iter::once(contender).chain(baselines).copied().collect();
            plan.push(Step { scenario: scenario.clone(), contenders });
        }
    }
    Ok(plan)
}

/// The steps in which an older library is compared: one contender a step.
///
/// # Errors
///
/// When a requested scenario or contender does not exist, or is not for this comparison.
pub(crate) fn against(options: &Options) -> Result<Vec<Step>, String> {
    let Options { only, contenders, .. } = options;
    let plan = plan(options)?;
    let compared =
        |name: &&String| scenarios().iter().any(|known| known.is(name) && known.is_for_old_and_new());
    if let Some(other) = only.iter().find(|name| !compared(name)) {
        return Err(format!(
            "{other} is judged by its targets, not against an older checkout; --list shows what is"
        ));
    }
    if let Some(other) = contenders.iter().find(|id| !id.starts_with(OURS)) {
        return Err(format!("{other} does not change with the checkout; --list shows which contenders do"));
    }
    let mut steps = Vec::new();
    // Locks on files only if named: an older library may not have them.
    let is_compared =
        |scenario: &Scenario| scenario.is_for_old_and_new() && !(only.is_empty() && scenario.is_on_files());
    for Step { scenario, contenders } in plan.into_iter().filter(|step| is_compared(&step.scenario)) {
        for contender in contenders.into_iter().filter(|contender| contender.id.starts_with(OURS)) {
            steps.push(Step { scenario: scenario.clone(), contenders: vec![contender] });
        }
    }
    if steps.is_empty() { Err("none of these contenders is in these scenarios".into()) } else { Ok(steps) }
}
