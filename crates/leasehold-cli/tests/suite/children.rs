//! The child processes of the demo.

use std::path::Path;
use std::process::Command;
use std::sync::mpsc;
use std::time::Duration;
use std::{fs, process, thread};

use leasehold_cli::demo::children::Children;
use leasehold_cli::demo::{Gathering, Kind, Outcome, Phase, Progress, Tally};
use leasehold_cli::{Error, Url};

use leasehold_testkit::server::{Flavour, Server};

use crate::command::{leasehold, leasehold_at, program};
use crate::runner::locks_left;

/// Runs a phase for 20 users and 3 seats in children of `program`.
async fn run(program: &Path, processes: u32, url: &str, phase: Phase) -> Result<Outcome, Error> {
    let url = &Url::from(url.to_owned());
    let gathering = &Gathering::new("test", phase);
    let children =
        Children { program, processes, users: 20, seats: 3, url, gathering, phase, kind: Kind::Plain };
    children.run(&Progress::hidden()).await
}

#[tokio::test]
async fn with_the_memory_engine_every_child_fills_separate_seats() {
    let locked = run(program(), 2, "memory:", Phase::Locked).await.unwrap();
    assert_eq!(locked.tally, Tally { joined: 6, refused: 14 });
}

#[tokio::test]
async fn without_the_lock_the_replies_of_all_children_add_up_to_all_users() {
    let Tally { joined, refused } = run(program(), 2, "memory:", Phase::Unlocked).await.unwrap().tally;
    assert_eq!(joined + refused, 20);
    assert!(joined >= 6, "{joined}");
}

#[tokio::test]
async fn more_children_than_users_still_serve_every_user() {
    let locked = run(program(), 25, "memory:", Phase::Locked).await.unwrap();
    assert_eq!(locked.tally, Tally { joined: 20, refused: 0 });
}

#[tokio::test]
async fn a_child_that_fails_is_named_with_its_exit_code() {
    let error = run(Path::new("false"), 2, "memory:", Phase::Locked).await.unwrap_err();
    assert!(matches!(error, Error::ChildFailed { number: 1, .. }), "{error:?}");
    assert_eq!(error.with_sources(), "child process 1 failed: exit status: 1");
}

#[tokio::test]
async fn an_unexpected_reply_of_a_child_process_is_an_error() {
    let error = run(Path::new("echo"), 1, "memory:", Phase::Locked).await.unwrap_err();
    assert!(
        matches!(&error, Error::ChildAnswer { answer, .. } if answer.contains("demo-worker")),
        "{error:?}"
    );
    let error = run(Path::new("true"), 1, "memory:", Phase::Locked).await.unwrap_err();
    assert!(matches!(&error, Error::ChildAnswer { answer, .. } if answer.is_empty()), "{error:?}");
}

#[tokio::test]
async fn a_missing_child_program_is_an_error() {
    let error = run(Path::new("/nowhere/leasehold"), 1, "memory:", Phase::Locked).await.unwrap_err();
    let text = error.with_sources();
    assert!(text.starts_with("cannot start child process 1 or communicate with it: "), "{text}");
}

#[tokio::test]
async fn when_one_child_fails_the_other_children_are_killed() {
    let pipe = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("alive-{}", process::id()));
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let (end, ended) = mpsc::channel();
    let reader = pipe.clone();
    // The reader of the pipe gets its end when no child has it open any more.
    thread::spawn(move || end.send(fs::read(reader)));

    let stubborn = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/suite/stubborn_child.sh"));
    let error = run(stubborn, 3, pipe.to_str().unwrap(), Phase::Locked).await.unwrap_err();
    assert!(matches!(error, Error::ChildFailed { number: 3, .. }), "{error:?}");
    ended.recv_timeout(Duration::from_secs(60)).expect("the children still live").unwrap();
    fs::remove_file(pipe).unwrap();
}

#[test]
fn a_child_without_a_start_signal_does_nothing() {
    let run = leasehold("demo-worker --users 1 --seats 1 --phase locked --gathering g");
    assert_eq!((run.code, run.stdout.as_str()), (Some(1), "ready\n"), "{run:?}");
    assert!(run.stderr.starts_with("leasehold: no start signal was received"), "{run:?}");
}

#[test]
fn on_a_server_all_children_contend_for_the_same_seats_and_leave_no_keys() {
    let server = Server::start(Flavour::Redis);
    for processes in [1, 4] {
        let run = leasehold_at(&server.url(), &format!("demo --users 40 --processes {processes} --json"));
        assert_eq!(run.code, Some(0), "{run:?}");
        let report: serde_json::Value = serde_json::from_str(&run.stdout).unwrap();
        assert_eq!((&report["locked"]["joined"], &report["locked"]["refused"]), (&5.into(), &35.into()));
        assert!(report["unlocked"]["joined"].as_u64() > Some(5), "{report}");
        assert_eq!(locks_left(&server), [""; 0]);
    }
}
