//! `run` with the locks that its options choose.

use std::process::Command;

use leasehold_testkit::server::{Flavour, Server};

use crate::command::{Finished, finish, leasehold_at, program};
use crate::runner::{Runner, TestDirectory, is_locked, run, run_plain};

/// A `run` that holds its lock until it is told to end.
fn holder(url: &str, arguments: &str) -> Runner {
    let holder = Runner::start(&mut run(url, arguments, "echo ready; read end; exit 0"));
    holder.says("ready");
    holder
}

/// Whether a `run` beside others gets its lock.
fn gets(url: &str, arguments: &str) -> bool {
    let one = finish(&mut run(url, &format!("{arguments} --if-busy fail"), "echo ran"));
    match (one.code, one.stdout.as_str()) {
        (Some(0), "ran\n") => true,
        (Some(75), "") => false,
        _ => panic!("{one:?}"),
    }
}

fn shares(url: &str) {
    let readers = [holder(url, "x --shared"), holder(url, "x --shared")];
    assert!(gets(url, "x --shared"));
    assert!(!gets(url, "x --exclusive"));
    let waiter = Runner::start(&mut run(url, "x --exclusive", "echo ran"));
    assert!(waiter.message().starts_with("leasehold: waiting for the write lock \"x\" on "));
    for reader in readers {
        assert_eq!(reader.finish().code, Some(0));
    }
    assert_eq!(waiter.finish().stdout, "ran\n");
    let writer = holder(url, "x --exclusive");
    assert!(!gets(url, "x --shared") && !gets(url, "x --exclusive"));
    assert_eq!(writer.finish().code, Some(0));
    assert!(gets(url, "x --shared"));
}

#[test]
fn shared_runs_are_together_and_exclude_an_exclusive_one() {
    let server = Server::start(Flavour::Redis);
    shares(&server.url());
    let directory = TestDirectory::new();
    shares(&directory.url());
}

#[test]
fn a_shared_run_is_never_beside_a_plain_one() {
    let server = Server::start(Flavour::Redis);
    let _plain = holder(&server.url(), "x");
    let shared = finish(&mut run(&server.url(), "x --shared --wait 1s", "echo ran"));
    assert_eq!((shared.code, shared.stdout.as_str()), (Some(69), ""), "{shared:?}");
    let _shared = holder(&server.url(), "y --shared");
    assert!(!gets(&server.url(), "y"));
}

fn limits(url: &str) {
    let [first, second] = [holder(url, "x --permits 2"), holder(url, "x --permits 2")];
    let busy = finish(&mut run(url, "x --permits 2 --if-busy fail", "echo ran"));
    assert_eq!((busy.code, busy.stdout.as_str()), (Some(75), ""), "{busy:?}");
    assert!(busy.stderr.starts_with("leasehold: the semaphore \"x\" on "), "{busy:?}");
    assert!(busy.stderr.contains(" is busy, all its permits are taken (2): try again later"), "{busy:?}");
    // The number that was set first counts.
    assert!(!gets(url, "x --permits 3"));
    assert_eq!(first.finish().code, Some(0));
    assert!(gets(url, "x --permits 2"));
    assert_eq!(second.finish().code, Some(0));
}

#[test]
fn as_many_commands_run_at_a_time_as_there_are_permits() {
    let server = Server::start(Flavour::Redis);
    limits(&server.url());
    let directory = TestDirectory::new();
    limits(&directory.url());
}

#[test]
fn a_command_under_a_permit_is_ended_at_its_max_hold() {
    let server = Server::start(Flavour::Redis);
    let long = Runner::start(&mut run(
        &server.url(),
        "x --permits 1 --max-hold 1s --grace 300ms",
        "echo ready; exec sleep 60",
    ));
    long.says("ready");
    assert!(
        long.message()
            .contains("it was held for as long as --max-hold allows. The command was sent SIGTERM.")
    );
    let long = long.finish();
    assert_eq!(long.code, Some(76), "{long:?}");
    assert!(gets(&server.url(), "x --permits 1"), "the permit was given back");
}

#[test]
fn fair_runs_are_served_in_the_order_of_their_arrival() {
    let server = Server::start(Flavour::Redis);
    let first = holder(&server.url(), "x --fair");
    let order = TestDirectory::new();
    let script = r#"echo "$2" >> "$1/order""#;
    let waiters: Vec<_> = (1..=4)
        .map(|number| {
            let mut waiter = run(&server.url(), "x --fair", script);
            let waiter = Runner::start(waiter.arg(order.path()).arg(number.to_string()));
            assert!(waiter.message().contains("waiting for the lock"));
            waiter
        })
        .collect();
    assert_eq!(first.finish().code, Some(0));
    for waiter in waiters {
        assert_eq!(waiter.finish().code, Some(0));
    }
    assert_eq!(std::fs::read_to_string(order.path().join("order")).unwrap(), "1\n2\n3\n4\n");
}

#[test]
fn a_fenced_run_passes_a_token_that_rises_and_another_one_passes_none() {
    let server = Server::start(Flavour::Redis);
    let directory = TestDirectory::new();
    for url in [server.url(), directory.url()] {
        let token = |arguments: &str| {
            let script = r#"echo "${LEASEHOLD_TOKEN-none}""#;
            let run = finish(run(&url, arguments, script).env("LEASEHOLD_TOKEN", "of-a-run-around-it"));
            assert_eq!(run.code, Some(0), "{run:?}");
            run.stdout.trim_end().to_owned()
        };
        assert_eq!(token("x"), "none");
        assert_eq!(["x --fenced", "x --fenced"].map(token), ["1", "2"]);
        assert_eq!(token("x --fenced --if-busy fail"), "3");
        assert_eq!(token("x"), "none");
    }
    let fair = finish(&mut run(&server.url(), "x --fair --fenced", r#"echo "$LEASEHOLD_TOKEN""#));
    assert_eq!(fair.stdout, "4\n");
}

#[test]
fn the_namespace_is_a_part_of_the_name() {
    let server = Server::start(Flavour::Redis);
    let _holder = holder(&server.url(), "x --namespace app:");
    assert!(is_locked(&server, "app:x"));
    assert!(gets(&server.url(), "x") && gets(&server.url(), "x --namespace other:"));
    assert!(!gets(&server.url(), "x --namespace app:") && !gets(&server.url(), "app:x"));
    let by_variable =
        finish(run(&server.url(), "x --if-busy fail", "echo ran").env("LEASEHOLD_NAMESPACE", "app:"));
    assert_eq!(by_variable.code, Some(75), "{by_variable:?}");
    let stronger = finish(
        run(&server.url(), "x --namespace other: --if-busy fail", "echo ran")
            .env("LEASEHOLD_NAMESPACE", "app:"),
    );
    assert_eq!(stronger.code, Some(0), "{stronger:?}");
}

#[test]
fn a_run_gives_up_when_the_server_is_away_for_its_limit() {
    let mut server = Server::start(Flavour::Redis);
    let holder = holder(&server.url(), "x");
    let waiter = Runner::start(&mut run(&server.url(), "x --outage-limit 500ms", "echo ran"));
    assert!(waiter.message().contains("waiting for the lock"));
    server.kill();
    let waiter = waiter.finish();
    assert_eq!((waiter.code, waiter.stdout.as_str()), (Some(69), ""), "{waiter:?}");
    drop(holder);
}

#[test]
fn a_command_needs_no_dashes_before_it() {
    let server = Server::start(Flavour::Redis);
    let runs = |arguments: &[&str]| {
        let run = finish(run_plain(&server.url(), "").args(arguments));
        assert_eq!(run.code, Some(3), "{run:?}");
        run.stdout
    };
    let script = r#"echo "$@"; exit 3"#;
    assert_eq!(runs(&["x", "sh", "-c", script, "sh", "--wait", "-q", "--", "end"]), "--wait -q -- end\n");
    assert_eq!(runs(&["x", "--wait", "9s", "sh", "-c", script, "sh", "a"]), "a\n");
    assert_eq!(runs(&["--wait", "9s", "x", "sh", "-c", script, "sh", "a"]), "a\n");
    assert_eq!(runs(&["x", "--wait", "9s", "--", "sh", "-c", script, "sh", "--", "a"]), "-- a\n");
    let unknown = leasehold_at(&server.url(), "run x --wiat 9s true");
    assert_eq!(unknown.code, Some(2), "{unknown:?}");
    assert!(unknown.stderr.contains("unexpected argument '--wiat'"), "{unknown:?}");
}

/// `leasehold run` inside the command of another one.
fn nested(url: &str, outer: &str, inner: &str) -> Finished {
    let mut command: Command = run_plain(url, outer);
    command.arg(program()).arg("run").args(inner.split_whitespace()).args(["echo", "ran"]);
    finish(&mut command)
}

#[test]
fn a_run_inside_a_run_of_the_same_lock_is_refused_and_does_not_wait_for_itself() {
    let server = Server::start(Flavour::Redis);
    let directory = TestDirectory::new();
    for url in [server.url(), directory.url()] {
        for (outer, inner) in [
            ("x", "x"),
            ("x", "x --if-busy skip"),
            ("app:x", "x --namespace app:"),
            ("z --exclusive", "z --exclusive"),
            ("z --exclusive", "z --shared"),
            ("p --permits 3", "p --permits 3"),
        ] {
            let run = nested(&url, outer, inner);
            assert_eq!((run.code, run.stdout.as_str()), (Some(2), ""), "{outer}, {inner}: {run:?}");
            let why = "is held by the `leasehold run` that this one is inside of, and would wait for itself: leave the \
                       inner one out, because its command runs under that lock already, or give it another name\n";
            assert!(run.stderr.ends_with(why), "{run:?}");
        }
        for (outer, inner) in [("x", "y"), ("x --namespace app:", "x"), ("z --shared", "z --shared")] {
            let run = nested(&url, outer, inner);
            assert_eq!((run.code, run.stdout.as_str(), run.stderr.as_str()), (Some(0), "ran\n", ""));
        }
    }
    let readers = nested(&server.url(), "z --shared", "z --exclusive");
    assert_eq!(readers.code, Some(2), "{readers:?}");
    let fair = nested(&server.url(), "x --fair", "x");
    assert_eq!(fair.code, Some(2), "{fair:?}");
    // With a run of another lock between them.
    let between = format!("y {} run x", program().display());
    let run = nested(&server.url(), "x", &between);
    assert_eq!(run.code, Some(2), "{run:?}");
}

#[test]
fn a_process_that_outlives_its_run_may_take_the_lock_again() {
    let server = Server::start(Flavour::Redis);
    let ended = finish(&mut run(&server.url(), "x", r#"echo "$LEASEHOLD_HOLDS""#));
    let holds = ended.stdout.trim_end().to_owned();
    assert!(!holds.is_empty());
    let later = finish(run(&server.url(), "x", "echo ran").env("LEASEHOLD_HOLDS", holds));
    assert_eq!((later.code, later.stdout.as_str()), (Some(0), "ran\n"), "{later:?}");
}

#[test]
fn kinds_that_exclude_each_other_are_refused() {
    let server = Server::start(Flavour::Redis);
    for (arguments, what) in [
        ("--shared --exclusive", "cannot be used with"),
        ("--shared --permits 2", "cannot be used with"),
        ("--fair --shared", "cannot be used with"),
        ("--fenced --shared", "cannot be used with"),
        ("--fenced --permits 2", "cannot be used with"),
        ("--permits 0", "0 is not in 1..=1000000"),
        ("--permits many", "invalid value 'many'"),
        ("--namespace {", "the braces in the lock name"),
    ] {
        let run = leasehold_at(&server.url(), &format!("run x {arguments} -- true"));
        assert_eq!(run.code, Some(2), "{run:?}");
        assert!(run.stderr.contains(what), "{arguments}: {run:?}");
    }
    let directory = TestDirectory::new();
    let fair = leasehold_at(&directory.url(), "run x --fair -- true");
    assert_eq!(fair.code, Some(2), "{fair:?}");
    assert!(fair.stderr.contains("the file engine has no fair lock"), "{fair:?}");
}
