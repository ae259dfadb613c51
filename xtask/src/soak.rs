//! `cargo xtask soak`: the tests that look for rare events, with the numbers that find them.

use crate::{command, step::Steps};

/// Optimised, because they are about how often, not about which line.
const SOAKS: &[(&str, &str)] = &[
    (
        "exclusion",
        "LEASEHOLD_TURNS=20000 cargo test --release -p leasehold-testkit --all-features --test processes \
         exclusion::processes_exclude_each_other_while_some_are_killed -- --exact --nocapture",
    ),
    (
        "lost answers",
        "LEASEHOLD_SEQUENCES=5000 cargo test --release -p leasehold-testkit --all-features --test processes \
         outcomes::every_count_is_right_in_the_end_when_every_answer_is_lost_once -- --exact --nocapture",
    ),
    (
        "some of the same locks",
        "LEASEHOLD_SECONDS=30 cargo test --release -p leasehold-testkit --all-features --test processes \
         several::processes_that_want_some_of_the_same_locks_all_go_on -- --exact --nocapture",
    ),
    (
        "some values of a group",
        "LEASEHOLD_SECONDS=30 cargo test --release -p leasehold-testkit --all-features --test processes \
         several::processes_that_want_some_values_of_one_group_all_go_on -- --exact --nocapture",
    ),
    (
        "model",
        "LEASEHOLD_MODEL_SEED=random LEASEHOLD_MODEL_OPERATIONS=1000000 cargo test --release -p leasehold --all-features --lib \
         engine::model::both_engines_do_the_same -- --exact --nocapture",
    ),
    (
        "run, holder cut off",
        "LEASEHOLD_TEST_ROUNDS=50 cargo test --release -p leasehold-cli --all-features --test suite \
         run_loss::a_holder_that_is_cut_off_ends_its_command_before_the_next_begins -- --exact --nocapture",
    ),
];

/// Runs all of them, even after one failed.
///
/// # Errors
///
/// When one of them fails.
pub(crate) fn run() -> Result<(), String> {
    let mut steps = Steps::default();
    for (name, line) in SOAKS {
        steps.run(name, || command::run(line));
    }
    steps.finish()
}
