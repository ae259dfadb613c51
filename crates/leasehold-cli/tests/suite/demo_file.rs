//! The demo on files of this machine, and the kinds of locks.

use leasehold_testkit::server::{Flavour, Server};
use nix::sys::signal::Signal;
use serde_json::Value;

use crate::command::{Finished, finish, leasehold, leasehold_at, leasehold_command};
use crate::patience::eventually;
use crate::runner::{Runner, TestDirectory, locks_left, run};

/// A demo whose temporary files are in `temporary`.
fn demo(temporary: &TestDirectory, arguments: &str) -> Finished {
    let arguments = format!("demo {arguments}");
    finish(leasehold_command().env("TMPDIR", temporary.path()).args(arguments.split_whitespace()))
}

/// Checks that the lock admitted 5 of 40 users, and returns the report.
fn exact(run: &Finished) -> Value {
    assert_eq!((run.code, run.stderr.as_str()), (Some(0), ""), "{run:?}");
    let report: Value = serde_json::from_str(&run.stdout).expect("one JSON object");
    assert_eq!(
        (&report["locked"]["joined"], &report["locked"]["refused"]),
        (&5.into(), &35.into()),
        "{report}"
    );
    assert!(report["unlocked"]["joined"].as_u64() > Some(5), "{report}");
    report
}

#[test]
fn several_processes_need_no_server_and_leave_no_files() {
    let temporary = TestDirectory::new();
    for kind in ["plain", "spin"] {
        let run = demo(&temporary, &format!("--users 40 --processes 3 --kind {kind} --json"));
        let report = exact(&run);
        assert_eq!((&report["kind"], &report["processes"]), (&kind.into(), &3.into()));
        assert!(report["url"].as_str().unwrap().starts_with(&format!("{}/leasehold-demo-", temporary.url())));
        assert!(temporary.is_empty());
    }
    let text = demo(&temporary, "--processes 2").stdout;
    assert!(text.contains("in 2 processes.\nThe plain lock is kept by file:///"), "{text}");
    assert!(text.contains("exactly full"), "{text}");
}

#[test]
fn a_demo_in_a_given_directory_leaves_it_empty() {
    let directory = TestDirectory::new();
    for processes in [1, 3] {
        let run = leasehold_at(&directory.url(), &format!("demo --users 40 --processes {processes} --json"));
        assert_eq!(exact(&run)["url"], directory.url());
        assert!(directory.is_empty());
    }
}

/// The command reads and writes such URLs besides the library: before there is a client, and for its own files.
#[test]
fn the_command_and_the_library_mean_the_same_directory_by_an_encoded_url() {
    let parent = TestDirectory::new();
    let directory = parent.path().join("a b%?\u{c88c}");
    std::fs::create_dir(&directory).unwrap();
    let url = format!("{}/a%20b%25%3F%EC%A2%8C", parent.url());
    // Equivalent, and not what messages have.
    let given = url.replace("file://", "FILE://localhost").replace("%20b", "%20%62");

    let demo = leasehold_at(&given, "demo --users 40 --processes 2 --json");
    assert_eq!(exact(&demo)["url"], given);
    assert_eq!(std::fs::read_dir(&directory).unwrap().count(), 0);
    let script = r#"flock -n "$1" true || echo busy"#;
    let ran = finish(run(&given, "x", script).arg(directory.join("x.lock")));
    assert_eq!((ran.code, ran.stdout.as_str(), ran.stderr.as_str()), (Some(0), "busy\n", ""));

    let holder = Runner::start(&mut run(&given, "x", "echo ready; read end"));
    holder.says("ready");
    let by_the_command = finish(&mut run(&given, "x --if-busy fail", "echo ran"));
    assert!(by_the_command.stderr.contains(&format!("\"x\" on {url} is busy")), "{by_the_command:?}");
    holder.finish();
    std::fs::create_dir(directory.join("y.lock")).unwrap();
    let by_the_library = finish(&mut run(&given, "y --if-busy fail", "echo ran"));
    assert!(
        by_the_library.stderr.contains(&format!("\"y\" on {url} was not acquired")),
        "{by_the_library:?}"
    );
}

#[test]
fn a_demo_that_a_signal_ends_leaves_no_files() {
    for signal in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP] {
        let temporary = TestDirectory::new();
        let mut command = leasehold_command();
        command.args(["demo", "--users", "100000", "--seats", "100000", "--processes", "2"]);
        let runner = Runner::start(command.env("TMPDIR", temporary.path()));
        // Both workers are at work, so the signals have been listened for.
        eventually("the demo counts seats", || {
            let demo = std::fs::read_dir(temporary.path()).unwrap().find_map(Result::ok);
            let files = demo.and_then(|demo| std::fs::read_dir(demo.path()).ok()).into_iter().flatten();
            files.filter_map(Result::ok).any(|file| file.path().extension().is_some_and(|end| end == "seats"))
        });
        runner.signal(signal);
        let run = runner.finish();
        assert_eq!(run.code, Some(128 + signal as i32), "{run:?}");
        assert!(run.stderr.contains(&format!("leasehold: ended by {signal}\n")), "{run:?}");
        assert!(temporary.is_empty());
    }
}

#[test]
fn every_kind_of_lock_is_exact_in_memory_and_on_a_server() {
    let server = Server::start(Flavour::Redis);
    for kind in ["plain", "setnx", "fair", "spin"] {
        let arguments = format!("demo --users 40 --json --kind {kind}");
        assert_eq!(exact(&leasehold(&arguments))["kind"], kind);
        assert_eq!(exact(&leasehold_at(&server.url(), &format!("{arguments} --processes 2")))["kind"], kind);
        assert_eq!(locks_left(&server), [""; 0], "{kind}");
    }
}

#[test]
fn a_kind_that_the_engine_lacks_is_refused_with_the_engines_that_have_it() {
    let temporary = TestDirectory::new();
    for (kind, lock) in [("fair", "fair lock"), ("setnx", "SET NX lock")] {
        let run = demo(&temporary, &format!("--processes 2 --kind {kind}"));
        assert_eq!((run.code, run.stdout.as_str()), (Some(2), ""), "{run:?}");
        assert!(run.stderr.contains(&format!("the file engine has no {lock}: ")), "{run:?}");
        assert!(run.stderr.contains("redis") && run.stderr.lines().count() == 1, "{run:?}");
        assert!(temporary.is_empty());
    }
    let run = leasehold("demo --kind best");
    assert_eq!(run.code, Some(2), "{run:?}");
    assert!(run.stderr.contains("possible values: plain, setnx, fair, spin"), "{run:?}");
}
