//! `cargo xtask bench`: builds all drivers of the comparison, and runs it.

mod checkout;
mod forward;
// The harness' own module, so that there is one list of options, scenarios and contenders.
#[expect(dead_code, unused_imports, reason = "most of it is for the harness alone")]
#[path = "../../bench/harness/src/plan/mod.rs"]
mod plan;

use self::{
    checkout::Checkout,
    plan::{Options, Step},
};
use crate::{
    command,
    setup::{self, Source, Tool},
    step::Steps,
    tools,
};

/// What `cargo xtask bench` takes.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Install missing programs without asking.
    #[arg(long)]
    yes: bool,
    /// List what would run, and end.
    #[arg(long)]
    list: bool,
    /// Compare with the library of another checkout of this repository, by turns, and fail if this one is slower.
    #[arg(
        long,
        value_name = "FOLDER|REVISION",
        value_parser = Checkout::parse,
        conflicts_with_all = ["old", "rounds", "out", "drivers"]
    )]
    against: Option<Checkout>,
    /// Compare the library without metrics, as old, with itself where metrics are on, as new.
    #[arg(long, conflicts_with_all = ["against", "old", "rounds", "out", "drivers"])]
    metrics: bool,
    #[command(flatten)]
    options: Options,
}

const GO: Tool = Tool {
    reason: "rueidislock, redsync and the locks of etcd's own client are written in it; from 1.21 on it fetches the version they need",
    ..tools::GO
};

const TOOLS: &[Tool] = &[
    // The first is needed for every measurement on a server.
    Tool { reason: "all contenders are measured on one server", ..tools::REDIS },
    Tool {
        name: "mariadbd",
        probe: "mariadbd --version",
        reason: "the gathering is also held with GET_LOCK",
        source: Source::Debian("mariadb-server"),
    },
    GO,
    Tool { reason: "Redisson and Lettuce run on it", ..tools::JAVA },
    Tool { reason: "it fetches Redisson and Lettuce", ..tools::MAVEN },
    Tool { reason: "redlock runs on it", ..tools::NODE },
    Tool { reason: "it fetches redlock", ..tools::NPM },
    Tool { reason: "redis-py gets a virtual environment of its own", ..tools::VENV },
];

/// For the locks on etcd.
const ETCD_TOOLS: &[Tool] = &[Tool { reason: "locks on etcd are measured on it", ..tools::ETCD }, GO];

const GO_BUILD: (&str, &str) = ("Go", "go build -C bench/go -o ../target/drivers/go/bench .");

/// Each fetches the versions of its lock file, so only the first run takes long.
const BUILDS: &[(&str, &str)] = &[
    ("Rust", "cargo build --release --locked --manifest-path bench/Cargo.toml"),
    GO_BUILD,
    ("Java", "mvn --quiet --batch-mode --file bench/java/pom.xml process-classes"),
    ("Node", "npm ci --prefix bench/node --no-audit --no-fund --silent"),
    ("Python", "python3 -m venv bench/target/drivers/python"),
    (
        "redis-py",
        "bench/target/drivers/python/bin/pip install --quiet --requirement bench/python/requirements.txt",
    ),
];

/// The drivers that measure the library itself, and the baselines without a server.
const OWN_BUILDS: &[(&str, &str)] = &[(
    "new",
    "cargo build --release --locked --manifest-path bench/Cargo.toml --bin bench-harness --bin leasehold --bin memory --bin flock",
)];

/// The drivers of locks on etcd.
const ETCD_BUILDS: &[(&str, &str)] = &[
    (
        "Rust",
        "cargo build --release --locked --manifest-path bench/Cargo.toml --bin bench-harness --bin leasehold --bin raw_etcd",
    ),
    GO_BUILD,
];

/// The same with metrics on and a recorder for Prometheus.
const WITH_METRICS: &[(&str, &str)] = &[(
    "new",
    "cargo build --release --locked --manifest-path bench/Cargo.toml --features bench-drivers/metrics --bin bench-harness --bin leasehold --bin memory",
)];

/// The harness finds the drivers in Rust beside itself.
const HARNESS: &str =
    "cargo run --quiet --release --locked --manifest-path bench/Cargo.toml --package bench-harness --";

/// Builds what is needed, then measures.
///
/// # Errors
///
/// When a scenario or a contender is unknown, a tool is missing, a build fails, a target is missed, or the library is slower
/// than that of another checkout.
pub(crate) fn run(Args { yes, list, against, metrics, options }: &Args) -> Result<(), String> {
    let is_against = *metrics || against.is_some() || options.old.is_some();
    let plan = if is_against { plan::against(options)? } else { plan::plan(options)? };
    let against = if *metrics {
        Some(Checkout::Folder(".".into()))
    } else {
        against.clone().map(Checkout::found).transpose()?
    };
    if *list {
        for step in &plan {
            let contenders: Vec<_> = step.contenders.iter().map(|contender| contender.id).collect();
            println!("{:<10} {}", step.scenario.id, contenders.join(", "));
        }
        return Ok(());
    }
    let (tools, builds) = needed(&plan, is_against);
    let builds = if *metrics { WITH_METRICS } else { builds };
    setup::ensure(tools, *yes)?;
    let (mut steps, mut options) = (Steps::default(), options.clone());
    let old = against.is_none_or(|checkout| {
        steps.run("old", || checkout.build().map(|drivers| options.old = Some(drivers)))
    });
    if !old || !builds.iter().all(|(name, line)| steps.run(name, || command::run(line))) {
        return steps.finish();
    }
    command::run_with(HARNESS, &forward::words(&options))
}

/// The programs and builds that a plan needs. Only drivers in Rust compare the library with itself.
fn needed(plan: &[Step], is_against: bool) -> (&'static [Tool], &'static [(&'static str, &'static str)]) {
    if plan::needs_etcd(plan) {
        return (ETCD_TOOLS, ETCD_BUILDS);
    }
    let needs_server = plan::needs_server(plan);
    if is_against || !needs_server {
        (&TOOLS[..usize::from(needs_server)], OWN_BUILDS)
    } else {
        (TOOLS, BUILDS)
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    #[derive(clap::Parser)]
    struct Line {
        #[command(flatten)]
        args: Args,
    }

    fn parse(line: &str) -> Result<Args, String> {
        let line = Line::try_parse_from(line.split(' ')).map_err(|error| error.to_string())?;
        Ok(line.args)
    }

    #[test]
    fn unknown_bench_arguments_are_refused_by_name() {
        for line in [
            "bench --nonsense",
            "bench U1",
            "bench --seconds -1",
            "bench --engines redis",
            "bench --seconds many",
            "bench --turns 0",
            "bench --against HEAD --rounds 3",
            "bench --against HEAD --metrics",
        ] {
            assert!(parse(line).is_err(), "{line}");
        }
        for (line, named) in [
            ("bench --only U1,X9", "X9"),
            ("bench --contenders unknown", "unknown"),
            ("bench --only E1", "measured with --engines etcd"),
            ("bench --engines etcd --only U1", "measured without --engines etcd"),
            ("bench --against HEAD --only C3", "C3"),
            ("bench --against HEAD --contenders redisson", "redisson"),
            ("bench --against no-such-revision", "no-such-revision"),
        ] {
            let error = run(&parse(line).unwrap()).unwrap_err();
            assert!(error.contains(named), "{error}");
        }
    }

    #[test]
    fn a_contender_and_its_baselines_take_turns() {
        let steps = |line: &str| -> Vec<Vec<&str>> {
            let plan = plan::plan(&parse(line).unwrap().options).unwrap();
            plan.iter().map(|step| step.contenders.iter().map(|contender| contender.id).collect()).collect()
        };
        assert_eq!(steps("bench --only M-16"), [["leasehold-memory", "tokio-mutex"]]);
        let u1 = steps("bench --only U1 --contenders raw,redisson,leasehold,client-setnx");
        assert_eq!(u1, [vec!["leasehold", "raw"], vec!["client-setnx"], vec!["redisson"]]);
        let files = steps("bench --only F1");
        assert_eq!(files, [["leasehold-file", "leasehold-file-block", "flock"]]);
        let etcd = steps("bench --engines etcd");
        let (all, two) = (vec!["leasehold-etcd", "raw-etcd", "go-etcd"], vec!["leasehold-etcd", "go-etcd"]);
        assert_eq!(etcd, [all.clone(), all, two.clone(), two]);
        let c1 = steps("bench --only C1 --contenders leasehold,client");
        assert_eq!(c1, [["leasehold"]]);
    }

    #[test]
    fn locks_on_files_and_in_memory_need_no_server() {
        let needed = |line: &str| {
            let options = parse(line).unwrap().options;
            let (tools, builds) = needed(&plan::plan(&options).unwrap(), false);
            (tools.len(), builds.len())
        };
        for line in ["bench --only F1,F2", "bench --only M", "bench --only F2,M-16"] {
            assert_eq!(needed(line), (0, 1), "{line}");
        }
        assert_eq!(needed("bench --engines etcd"), (ETCD_TOOLS.len(), ETCD_BUILDS.len()));
        for line in ["bench", "bench --only F1,U1"] {
            assert_eq!(needed(line), (TOOLS.len(), BUILDS.len()), "{line}");
        }
    }

    #[test]
    fn every_other_turn_runs_in_reverse_order() {
        let plan = plan::plan(&parse("bench --only M-64").unwrap().options).unwrap();
        let turn = |turn| plan[0].turn(turn).iter().map(|contender| contender.id).collect::<Vec<_>>();
        assert_eq!(turn(0), ["leasehold-memory", "tokio-mutex"]);
        assert_eq!(turn(1), ["tokio-mutex", "leasehold-memory"]);
    }

    #[test]
    fn old_and_new_versions_are_compared_in_the_speed_scenarios() {
        let plan = plan::against(&parse("bench").unwrap().options).unwrap();
        let steps: Vec<_> =
            plan.iter().map(|step| (step.scenario.id.as_str(), step.contenders[0].id)).collect();
        assert_eq!(steps.len(), 14, "{steps:?}");
        for step in [("U1", "leasehold-setnx"), ("U2-1024", "leasehold"), ("M-64", "leasehold-memory")] {
            assert!(steps.contains(&step), "{step:?}");
        }
        let plan = plan::against(&parse("bench --only F1").unwrap().options).unwrap();
        assert_eq!(plan.len(), 2, "an older library may have no locks on files, so they have to be named");
    }

    #[test]
    fn the_bench_arguments_are_forwarded_to_the_harness() {
        for line in [
            "bench",
            "bench --quick --only U1,M-16 --contenders leasehold,redisson --out a/report",
            "bench --rounds 2 --turns 7 --seconds 0.5 --warm-up 0.1 --rust a --drivers b",
            "bench --old a --turns 3",
            "bench --engines etcd --only E1",
        ] {
            let options = parse(line).unwrap().options;
            let words = [vec!["bench".into()], forward::words(&options)].concat();
            assert_eq!(Line::try_parse_from(words).unwrap().args.options, options, "{line}");
        }
    }
}
