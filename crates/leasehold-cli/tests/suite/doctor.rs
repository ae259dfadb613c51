//! `leasehold doctor`.

use leasehold_testkit::server::{Flavour, Server};
use serde_json::Value;

use crate::command::{Finished, finish, leasehold, leasehold_at, leasehold_command};
use crate::runner::TestDirectory;

fn doctor(arguments: &[&str]) -> Finished {
    finish(leasehold_command().arg("doctor").args(arguments))
}

#[test]
fn a_healthy_server_is_reported_as_such() {
    let server = Server::builder(Flavour::Redis).config("appendonly yes").start();
    let run = doctor(&[&server.url()]);
    assert_eq!((run.code, run.stderr.as_str()), (Some(0), ""), "{run:?}");
    assert!(run.stdout.starts_with(&format!("{} (redis)\n", server.url())), "{run:?}");
    assert!(run.stdout.ends_with("\n\nNothing was found that endangers locks.\n"), "{run:?}");
    for fact in ["  persistence: append-only file\n", "  eviction: noeviction\n", "  round trips: 100: p50 "]
    {
        assert!(run.stdout.contains(fact), "{run:?}");
    }
    assert_eq!(leasehold_at(&server.url(), "doctor").code, Some(0), "by the environment");
}

#[test]
fn a_danger_is_told_with_the_line_to_change_and_exit_code_1() {
    let server = Server::start(Flavour::Redis);
    let run = doctor(&[&server.url()]);
    assert_eq!(run.code, Some(1), "{run:?}");
    assert!(run.stdout.contains("\nDANGER [no-persistence]\n"), "{run:?}");
    assert!(run.stdout.contains("\n  Change: appendonly yes\n\nLocks are in danger.\n"), "{run:?}");
    assert!(run.stdout.lines().all(|line| line.chars().count() <= 80), "{run:?}");

    let run = doctor(&[&server.url(), "--json"]);
    assert_eq!(run.code, Some(1), "{run:?}");
    let report: Value = serde_json::from_str(&run.stdout).unwrap();
    assert_eq!((&report["engine"], &report["server"]), (&"redis".into(), &server.url().into()));
    let [finding] = report["findings"].as_array().unwrap().as_slice() else { panic!("{report}") };
    assert_eq!((&finding["severity"], &finding["code"]), (&"danger".into(), &"no-persistence".into()));
    assert_eq!(finding["advice"], "appendonly yes");
    let known = |fact: &Value| fact["name"] == "persistence" && fact["value"] == "none";
    assert!(report["facts"].as_array().unwrap().iter().any(known), "{report}");
}

#[test]
fn what_the_user_may_not_ask_is_not_known_and_no_secret_is_shown() {
    let server = Server::start(Flavour::Redis);
    let words = "ACL SETUSER worker on >secret ~* &* +@all -info -config";
    assert_eq!(server.cli(&words.split(' ').collect::<Vec<_>>()), "OK");
    let run = doctor(&[&server.url().replace("redis://", "redis://worker:secret@")]);
    assert_eq!(run.code, Some(0), "{run:?}");
    assert!(run.stdout.contains("  persistence: not known: the user has no right +info\n"), "{run:?}");
    assert!(!run.stdout.contains("secret"), "{run:?}");
}

#[test]
fn engines_without_a_server_are_examined_too() {
    let directory = TestDirectory::new();
    let files = doctor(&[&directory.url()]);
    assert_eq!(files.code, Some(0), "{files:?}");
    assert!(files.stdout.ends_with("Nothing was found that endangers locks.\n"), "{files:?}");
    let memory = doctor(&["memory:"]);
    assert_eq!(memory.code, Some(0), "{memory:?}");
    assert!(memory.stdout.contains("\nNOTE [memory-only]\n"), "{memory:?}");
}

#[test]
fn a_doctor_without_a_server_says_so() {
    let away = doctor(&["redis://me:secret@127.0.0.1:1"]);
    assert_eq!((away.code, away.stdout.as_str()), (Some(69), ""), "{away:?}");
    assert!(
        away.stderr.starts_with("leasehold: cannot connect to redis://127.0.0.1:1: connection refused"),
        "{away:?}"
    );
    let none = leasehold("doctor");
    assert_eq!(none.code, Some(2), "{none:?}");
    assert!(none.stderr.starts_with("leasehold: there is nothing to examine: give a URL"), "{none:?}");
    assert_eq!(doctor(&["nonsense://host"]).code, Some(2));
    assert_eq!(doctor(&[""]).code, Some(2));
}
