//! The output of `demo --json`.

use serde_json::{Value, json};

use crate::command::{leasehold, leasehold_at};

/// The object that a demo printed, which must be all it printed.
fn demo(arguments: &str) -> Value {
    let run = leasehold(&format!("demo --json {arguments}"));
    assert_eq!((run.code, run.stderr.as_str()), (Some(0), ""), "{run:?}");
    assert_eq!(run.stdout.lines().count(), 1, "{run:?}");
    serde_json::from_str(&run.stdout).expect("one JSON object")
}

fn count(report: &Value, phase: &str, what: &str) -> u64 {
    report[phase][what].as_u64().expect("a number")
}

#[test]
fn five_of_a_hundred_users_get_a_seat_with_the_lock_and_too_many_without() {
    let report = demo("");
    assert_eq!(count(&report, "locked", "joined"), 5);
    assert_eq!(count(&report, "locked", "refused"), 95);
    assert!(count(&report, "unlocked", "joined") > 5, "{report}");
}

#[test]
fn the_json_object_names_the_arguments_and_the_results_and_nothing_else() {
    let mut report = demo("--users 12 --seats 3 --url memory:party");
    for phase in ["unlocked", "locked"] {
        assert_eq!(count(&report, phase, "joined") + count(&report, phase, "refused"), 12);
        let phase = report[phase].as_object_mut().expect("an object");
        for key in ["joined", "refused", "ms"] {
            assert!(phase.remove(key).is_some_and(|value| value.is_u64()), "{key}");
        }
    }
    let rest = json!({"users": 12, "seats": 3, "processes": 1, "kind": "plain", "url": "memory:party", "unlocked": {}, "locked": {}});
    assert_eq!(report, rest);
}

#[test]
fn with_the_lock_exactly_as_many_users_join_as_there_are_seats() {
    for (users, seats) in
        [(1, 0), (1, 1), (1, 100_000), (2, 1), (20, 0), (20, 19), (20, 20), (20, 21), (999, 1)]
    {
        let report = demo(&format!("--users {users} --seats {seats}"));
        let fit = users.min(seats);
        assert_eq!(count(&report, "locked", "joined"), fit, "{report}");
        assert_eq!(count(&report, "locked", "refused"), users - fit, "{report}");
        // Without the lock updates get lost, so it can be more, but never fewer.
        assert!(count(&report, "unlocked", "joined") >= fit, "{report}");
    }
}

#[test]
fn the_url_comes_from_the_environment_unless_given_as_an_argument() {
    for (arguments, url) in [("", "memory:from-environment"), (" --url memory:given", "memory:given")] {
        let arguments = format!("demo --json --users 1{arguments}");
        let run = leasehold_at("memory:from-environment", &arguments);
        let report: Value = serde_json::from_str(&run.stdout).expect("one JSON object");
        assert_eq!(report["url"], url);
    }
}
