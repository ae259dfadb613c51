//! Which tests run: all of them, those that need no server, or those about one engine.
//!
//! All are selected from the same builds, so that another selection needs no new build.

use crate::{setup::Tool, tools};

/// A part of the tests, and its requirements.
#[derive(Clone)]
pub(super) struct Selection {
    pub(super) tools: &'static [Tool],
    /// Whether Redisson and node-redisson run beside the library.
    pub(super) redisson: bool,
    /// Names and command lines. They run first and separately, so that the time of a suite is the time of its tests.
    pub(super) builds: &'static [(&'static str, &'static str)],
    pub(super) suites: &'static [Suite],
    /// Whether a million steps of simulated rounds are played: about a minute, besides a build of its own.
    pub(super) searches: bool,
}

/// One run of `cargo test`.
#[derive(Clone, Copy)]
pub(super) struct Suite {
    pub(super) name: &'static str,
    /// The packages and targets.
    targets: &'static str,
    /// Only tests whose path contains this.
    only: &'static str,
    /// No tests whose path contains one of these.
    skip: &'static [&'static str],
}

/// The selection for one engine.
#[derive(Clone)]
pub(super) struct Engine {
    name: &'static str,
    pub(super) selection: Selection,
}

const fn suite(name: &'static str, targets: &'static str) -> Suite {
    Suite { name, targets, only: "", skip: &[] }
}

const UNIT: Suite = suite("unit", "--workspace --all-features --lib --bins");
/// The conformance suite has a module for each engine. The command's tests are in a target of the same name.
const CONFORMANCE: Suite =
    Suite { only: "conformance::", ..suite("conformance", "--workspace --all-features --test suite") };
const REDIS: Suite = suite("redis", "--workspace --all-features --test redis");

/// The workspace of the examples.
const EXAMPLES: Suite = suite(
    "examples",
    "--manifest-path examples/Cargo.toml --target-dir target/examples --locked --workspace",
);

/// Everything.
pub(super) const ALL: Selection = Selection {
    tools: &[
        tools::ENV,
        tools::SCRIPT,
        tools::REDIS,
        tools::ETCD,
        tools::ETCDCTL,
        tools::MARIADB,
        tools::VENV,
        tools::VALKEY,
        tools::REDIS_PY,
        tools::JAVA,
        tools::MAVEN,
        tools::NODE,
        tools::NPM,
    ],
    redisson: true,
    builds: &[
        ("build", "cargo test --workspace --all-features --no-run"),
        ("build without features", "cargo test -p leasehold --no-default-features --lib --no-run"),
        ("build cargo examples", "cargo build --workspace --all-features --examples"),
        (
            "build examples",
            "cargo test --manifest-path examples/Cargo.toml --target-dir target/examples --locked --workspace --no-run",
        ),
    ],
    suites: &[
        UNIT,
        suite("unit without features", "-p leasehold --no-default-features --lib"),
        suite("integration", "--workspace --all-features --test=*"),
        suite("documentation", "--workspace --all-features --doc"),
        EXAMPLES,
    ],
    searches: true,
};

/// The unit tests that start a server.
const UNIT_WITH_SERVER: &[&str] = &[
    "engine::model::on_redis::",
    "engine::redis::tests::an_overwritten_permit_record_does_not_affect_other_records_of_the_batch",
];

/// The tests of the whole client on the simulated server.
const SIMULATED: Suite =
    Suite { name: "simulated server", only: "sim::", skip: &["conformance::"], ..CONFORMANCE };

/// The functions under a lock in memory. Those that must not compile are left out: they build the library once more.
const MACROS: Suite = suite("macros", "--workspace --all-features --test locked");

/// The tests that need no server and no other program.
pub(super) const FAST: Selection = Selection {
    tools: &[],
    redisson: false,
    builds: &[(
        "build",
        "cargo test --workspace --all-features --lib --bins --test suite --test locked --no-run",
    )],
    suites: &[
        Suite { skip: UNIT_WITH_SERVER, ..UNIT },
        // Files take real time: a minute of it.
        Suite {
            skip: &[
                "conformance::etcd::",
                "conformance::mysql::",
                "conformance::redis::",
                "conformance::sentinel::",
                "conformance::tls::",
                "conformance::valkey::",
                "conformance::file::",
            ],
            ..CONFORMANCE
        },
        SIMULATED,
        MACROS,
    ],
    searches: false,
};

/// Everything about the file engine. It needs nothing that a Debian system has not; some tests mount a small disk, as root.
const FILE: Selection = Selection {
    builds: &[(
        "build",
        "cargo test --workspace --all-features --lib --bins --test suite --test file --test search --no-run",
    )],
    suites: &[
        Suite { only: "engine::file::", ..UNIT },
        Suite { only: "conformance::file::", ..CONFORMANCE },
        Suite { name: "one process", only: "file::", skip: &["conformance::"], ..CONFORMANCE },
        suite("several processes", "-p leasehold-testkit --all-features --test file"),
        Suite {
            only: "no_seed_on_files_finds_a_violation",
            ..suite("search", "-p leasehold-testkit --all-features --test search")
        },
    ],
    ..FAST
};

const ENGINES: &[Engine] = &[
    Engine {
        name: "memory",
        selection: Selection {
            suites: &[
                Suite { only: "engine::memory::", ..UNIT },
                Suite { only: "conformance::memory::", ..CONFORMANCE },
            ],
            ..FAST
        },
    },
    Engine {
        name: "sim",
        selection: Selection {
            suites: &[
                Suite { only: "engine::remote::", ..UNIT },
                Suite { only: "engine::model::on_sim::", name: "model", ..UNIT },
                Suite { only: "conformance::sim", ..CONFORMANCE },
                Suite { only: "conformance::example", name: "example", ..CONFORMANCE },
                SIMULATED,
            ],
            ..FAST
        },
    },
    Engine {
        name: "etcd",
        selection: Selection {
            tools: &[tools::ETCD, tools::ETCDCTL],
            builds: &[(
                "build",
                "cargo test --workspace --all-features --lib --bins --test suite --test etcd --no-run",
            )],
            suites: &[
                Suite { only: "engine::etcd::", ..UNIT },
                Suite { only: "conformance::etcd::", ..CONFORMANCE },
                suite("faults and other programs", "-p leasehold-testkit --all-features --test etcd"),
            ],
            ..FAST
        },
    },
    Engine { name: "file", selection: FILE },
    Engine {
        name: "mysql",
        selection: Selection {
            tools: &[tools::MARIADB],
            builds: &[(
                "build",
                "cargo test --workspace --all-features --lib --bins --test suite --test mysql --no-run",
            )],
            suites: &[
                Suite { only: "engine::mysql::", ..UNIT },
                Suite { only: "conformance::mysql::", ..CONFORMANCE },
                suite("faults and plain sessions", "-p leasehold-testkit --all-features --test mysql"),
            ],
            ..FAST
        },
    },
    Engine {
        name: "redis",
        selection: Selection {
            // Some of its own tests compare it with Valkey or run beside redis-py.
            tools: &[tools::REDIS, tools::VENV, tools::VALKEY, tools::REDIS_PY],
            suites: &[
                Suite { only: "engine::redis::", ..UNIT },
                Suite { only: "conformance::redis::", ..CONFORMANCE },
                Suite { name: "conformance with TLS", only: "conformance::tls::", ..CONFORMANCE },
                Suite { skip: &["::valkey::"], ..REDIS },
            ],
            ..ON_SERVERS
        },
    },
    Engine {
        name: "valkey",
        selection: Selection {
            tools: &[tools::VENV, tools::VALKEY],
            suites: &[
                Suite { only: "conformance::valkey::", ..CONFORMANCE },
                Suite { only: "::valkey", ..REDIS },
            ],
            ..ON_SERVERS
        },
    },
];

/// The common part of the engines on servers.
const ON_SERVERS: Selection = Selection {
    tools: &[],
    redisson: false,
    builds: &[(
        "build",
        "cargo test --workspace --all-features --lib --bins --test suite --test redis --no-run",
    )],
    suites: &[],
    searches: false,
};

/// The tests that run on a server of another version, which takes the place of Redis.
pub(super) const ON_A_SERVER: &[Suite] = &[
    Suite { name: "model", only: "engine::model::on_redis::", ..UNIT },
    Suite {
        only: "conformance::redis::",
        skip: &[
            "conformance::memory::",
            "conformance::sim",
            "conformance::etcd::",
            "conformance::example::",
            "conformance::file::",
            "conformance::mysql::",
            "conformance::valkey::",
        ],
        ..CONFORMANCE
    },
    Suite { name: "engine", skip: &["::valkey::"], ..REDIS },
];

impl Suite {
    /// Its command line; `filter` replaces the suite's own choice.
    pub(super) fn line(&self, filter: Option<&str>) -> String {
        let mut words = vec![filter.unwrap_or(self.only)];
        words.extend(self.skip.iter().flat_map(|skip| ["--skip", skip]));
        words.retain(|word| !word.is_empty());
        let chosen = if words.is_empty() { String::new() } else { format!(" -- {}", words.join(" ")) };
        format!("cargo test {} --no-fail-fast{chosen}", self.targets)
    }
}

impl Engine {
    /// The engine of this name.
    ///
    /// # Errors
    ///
    /// When there is none.
    pub(super) fn named(name: &str) -> Result<Self, String> {
        ENGINES.iter().find(|engine| engine.name == name).cloned().ok_or_else(|| {
            let known: Vec<_> = ENGINES.iter().map(|engine| engine.name).collect();
            format!("known are {}", known.join(", "))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(selection: &Selection, filter: Option<&str>) -> Vec<String> {
        selection.suites.iter().map(|suite| suite.line(filter)).collect()
    }

    #[test]
    fn the_full_selection_runs_every_test_unless_filtered() {
        let all = lines(&ALL, None);
        assert_eq!(all[0], "cargo test --workspace --all-features --lib --bins --no-fail-fast");
        assert!(all.iter().all(|line| !line.contains(" -- ")), "{all:?}");
        let some = lines(&ALL, Some("lease"));
        assert!(some.iter().all(|line| line.ends_with(" --no-fail-fast -- lease")), "{some:?}");
    }

    #[test]
    fn engines_are_selected_by_name() {
        let error = Engine::named("oracle").err().unwrap();
        assert_eq!(error, "known are memory, sim, etcd, file, mysql, redis, valkey");
        let memory = lines(&Engine::named("memory").unwrap().selection, None);
        assert!(memory[1].ends_with(" --test suite --no-fail-fast -- conformance::memory::"), "{memory:?}");
        let file = lines(&Engine::named("file").unwrap().selection, None);
        assert!(file.iter().any(|line| line.contains(" --test file --no-fail-fast")), "{file:?}");
        let search = include_str!("../../../crates/leasehold-testkit/tests/search/main.rs");
        assert!(search.contains("fn no_seed_on_files_finds_a_violation("));
    }

    /// A skipped test that was renamed would run, and fail without a server.
    #[test]
    fn every_skipped_test_and_every_engine_exists() {
        let calls = include_str!("../../../crates/leasehold/src/engine/redis/mod.rs");
        let engines = include_str!("../../../crates/leasehold/src/engine/model/mod.rs");
        let [model, record] = UNIT_WITH_SERVER else { panic!("{UNIT_WITH_SERVER:?}") };
        assert!(model.ends_with("::on_redis::") && engines.contains("mod on_redis;"));
        assert!(calls.contains(&format!("fn {}(", record.rsplit("::").next().unwrap())));
        let conformance = include_str!("../../../crates/leasehold-testkit/tests/suite/conformance.rs");
        for Engine { name, .. } in ENGINES {
            assert!(conformance.contains(&format!("conformance! {{ {name},")), "{name}");
        }
        // What runs by real time needs a server, or a minute.
        let fast = FAST.suites[1].skip;
        for engine in conformance.lines().filter(|line| line.contains(", real_time,")) {
            let name = engine.split_once("{ ").and_then(|(_, rest)| rest.split_once(',')).unwrap().0;
            assert!(fast.contains(&&*format!("conformance::{name}::")), "{name}");
        }
    }
}
