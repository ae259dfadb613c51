//! `cargo xtask soak`: the tests for rare events, with the numbers that find them.

use std::time::Duration;

use crate::{step::Steps, watch};

/// They take some minutes.
const LIMIT: Duration = Duration::from_secs(30 * 60);

/// A test with a greater number than in the gate.
struct Soak {
    name: &'static str,
    /// The environment setting with the number.
    setting: &'static str,
    /// The package and the target that has it.
    of: &'static str,
    test: &'static str,
}

const SOAKS: &[Soak] = &[
    Soak {
        name: "exclusion",
        setting: "LEASEHOLD_TURNS=20000",
        of: "leasehold-testkit --test processes",
        test: "exclusion::hd_17_processes_exclude_each_other_while_some_are_killed",
    },
    Soak {
        name: "turns on a file",
        setting: "LEASEHOLD_TURNS=50000",
        of: "leasehold-testkit --test file",
        test: "turns::processes_and_flock_take_turns_while_some_are_killed",
    },
    Soak {
        name: "lost answers",
        setting: "LEASEHOLD_SEQUENCES=5000",
        of: "leasehold-testkit --test processes",
        test: "outcomes::every_count_is_right_in_the_end_when_every_reply_is_lost_once",
    },
    Soak {
        name: "some of the same locks",
        setting: "LEASEHOLD_SECONDS=30",
        of: "leasehold-testkit --test processes",
        test: "several::processes_that_want_some_of_the_same_locks_do_not_deadlock",
    },
    Soak {
        name: "some values of a group",
        setting: "LEASEHOLD_SECONDS=30",
        of: "leasehold-testkit --test processes",
        test: "several::processes_that_want_some_values_of_one_group_do_not_deadlock",
    },
    Soak {
        name: "model",
        setting: "LEASEHOLD_MODEL_SEED=random LEASEHOLD_MODEL_OPERATIONS=1000000",
        of: "leasehold --lib",
        test: "engine::model::on_redis::both_engines_give_the_same_results",
    },
    Soak {
        name: "model, simulated",
        setting: "LEASEHOLD_MODEL_SEED=random LEASEHOLD_MODEL_OPERATIONS=2000000",
        of: "leasehold --lib",
        test: "engine::model::on_sim::both_engines_give_the_same_results",
    },
    Soak {
        name: "run, holder cut off",
        setting: "LEASEHOLD_TEST_ROUNDS=50",
        of: "leasehold-cli --test suite",
        test: "run_loss::a_holder_without_a_connection_ends_its_command_before_the_next_command_starts",
    },
];

/// Runs all of them, even after one failed.
///
/// # Errors
///
/// When one of them fails.
pub(crate) fn run() -> Result<(), String> {
    let mut steps = Steps::default();
    for Soak { name, setting, of, test } in SOAKS {
        // Optimised, because the number of repetitions matters, not the line of a failure.
        let line =
            format!("{setting} cargo test --release --all-features -p {of} {test} -- --exact --nocapture");
        steps.run(name, || watch::run(&line, LIMIT));
    }
    steps.finish()
}
