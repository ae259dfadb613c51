//! `run` when the lock is lost, or a process that guards it.

use std::time::Duration;
use std::{env, io, thread};

use leasehold_testkit::proxy::{Proxy, Which};
use leasehold_testkit::resp::{Connection, Value};
use leasehold_testkit::server::{Flavour, Server};
use nix::sys::signal::{Signal, kill};

use crate::patience::{ended, eventually};
use crate::runner::{Runner, TestFile, is_locked, run};

/// Writes that it has begun, and then as often as it can that it still runs, to a file, with a process of its own for each.
/// It ignores requests to end.
const STUBBORN: &str = r#"
    trap 'echo asked >> "$1"' TERM
    echo "start $2 $(date +%s%N)" >> "$1"
    echo ready
    while :; do echo "beat $2 $(date +%s%N)" >> "$1"; sleep 0.01; done"#;

fn stubborn(url: &str, arguments: &str, file: &TestFile, number: u32) -> Runner {
    let runner = Runner::start(run(url, arguments, STUBBORN).args([file.path(), &number.to_string()]));
    runner.says("ready");
    eventually("it is at work", || file.text().matches("beat").count() >= 3);
    runner
}

/// Starts a `run` that waits for the lock, only writes that it has begun, and ends.
fn waiter(server: &Server, file: &TestFile) -> Runner {
    let script = r#"echo "start $2 $(date +%s%N)" >> "$1""#;
    let waiter = Runner::start(run(&server.url(), "x", script).args([file.path(), "2"]));
    let message = waiter.message();
    assert!(message.contains("waiting for the lock"), "{message}");
    waiter
}

/// Checks that the first command did nothing any more when the second began, and returns the nanoseconds between.
fn gap(file: &TestFile) -> u64 {
    let text = file.text();
    let lines: Vec<_> = text.lines().filter(|line| *line != "asked").collect();
    let (last, rest) = lines.split_last().expect("something happened");
    assert!(last.starts_with("start 2 "), "nothing follows the start of the second: {text}");
    assert!(rest.len() > 1 && rest.iter().all(|line| !line.starts_with("start 2")), "{text}");
    // Without a time if `date` was terminated.
    let time = |line: &str| line.rsplit(' ').next().and_then(|time| time.parse::<u64>().ok());
    let latest = rest.iter().filter_map(|line| time(line)).max().expect("the first has begun");
    let start = time(last).expect("the second has begun");
    start.checked_sub(latest).expect("no beat of the first is later than the start of the second")
}

#[test]
fn a_deleted_lock_ends_the_command() {
    let server = Server::start(Flavour::Redis);
    let file = TestFile::new();
    let runner = stubborn(&server.url(), "x --lease 2s", &file, 1);
    assert_eq!(server.cli(&["DEL", "x"]), 1);
    let run = runner.finish();
    assert_eq!(run.code, Some(76), "{run:?}");
    let lost = format!(
        "leasehold: the lock \"x\" on {} is lost: the lock is gone: the key was deleted or evicted, the server restarted \
         without its data, or the lock was released in its owner's name. ",
        server.url()
    );
    assert!(run.stderr.starts_with(&lost), "{run:?}");
    assert!(run.stderr.contains("see what it left half done"), "{run:?}");
    assert!(!file.text().contains("asked"), "there is no time for SIGTERM");
}

#[test]
fn a_lock_that_is_taken_over_ends_the_command() {
    let server = Server::start(Flavour::Redis);
    let file = TestFile::new();
    let runner = stubborn(&server.url(), "x --lease 2s", &file, 1);
    assert_eq!(
        server.cli(&["EVAL", "redis.call('del', 'x') return redis.call('hset', 'x', 'other', 1)", "0"]),
        1
    );
    let run = runner.finish();
    assert_eq!(run.code, Some(76), "{run:?}");
    assert!(run.stderr.contains("another owner took the lock over"), "{run:?}");
    assert_eq!(server.cli(&["HEXISTS", "x", "other"]), 1, "the hold of another owner is not changed");
}

#[test]
fn a_holder_without_a_connection_ends_its_command_before_the_next_command_starts() {
    let rounds: u64 = env::var("LEASEHOLD_TEST_ROUNDS").map_or(10, |rounds| rounds.parse().unwrap());
    side_by_side(rounds, |server, round| {
        let proxy = Proxy::start(server.port());
        lose(&proxy.url(), server, round, || {
            // With an error for the holder, and without.
            if round % 2 == 0 { proxy.refuse() } else { proxy.blackhole(Which::All) }
        });
    });
}

#[test]
fn a_hanging_server_ends_the_command_before_the_lock_is_granted_again() {
    side_by_side(5, |server, round| {
        lose(&server.url(), server, round, || {
            server.pause();
            // The lease ends 1.3 to 2 s after the pause begins: sometimes before the server resumes, sometimes after. The
            // command has been requested to end by then, so it ends in any case.
            thread::sleep(Duration::from_millis(1650 + 120 * round));
            server.resume();
        });
    });
}

/// Runs this many rounds, some at the same time: they are idle most of the time.
fn side_by_side(rounds: u64, round: impl Fn(&Server, u64) + Sync) {
    let lanes = 5;
    thread::scope(|scope| {
        for lane in 0..lanes {
            let (round, numbers) = (&round, (lane..rounds).step_by(5));
            scope.spawn(move || {
                let server = Server::start(Flavour::Redis);
                numbers.for_each(|number| round(&server, number));
            });
        }
    });
}

/// A `run` that holds the lock by way of `url`, one that waits for it, and a fault that makes the first lose it.
fn lose(url: &str, server: &Server, round: u64, trouble: impl FnOnce()) {
    let file = TestFile::new();
    let first = stubborn(url, "x --lease 2s", &file, 1);
    let second = waiter(server, &file);
    // At any moment between two renewals.
    thread::sleep(Duration::from_millis(round * 197 % 666));
    trouble();
    let first = first.finish();
    assert_eq!(first.code, Some(76), "{first:?}");
    assert!(first.stderr.contains("could not be reached to renew it"), "{first:?}");
    assert!(first.stderr.contains("The command was sent SIGTERM."), "{first:?}");
    let second = second.finish();
    assert_eq!(second.code, Some(0), "{second:?}");
    println!("round {round}: {:.1} ms", Duration::from_nanos(gap(&file)).as_secs_f64() * 1000.0);
}

#[test]
fn a_stopped_server_ends_the_command() {
    let server = Server::start(Flavour::Redis);
    let file = TestFile::new();
    let runner = stubborn(&server.url(), "x --lease 2s --grace 0", &file, 1);
    drop(server);
    let run = runner.finish();
    assert_eq!(run.code, Some(76), "{run:?}");
    assert!(run.stderr.contains("check the server and the network"), "{run:?}");
    assert!(!file.text().contains("asked"), "without grace SIGTERM is not sent");
}

/// A change of the password leaves open connections as they are, until they end.
#[test]
fn a_changed_password_is_reported_to_the_holder_and_to_the_waiter() {
    let server = Server::builder(Flavour::Redis).password("old").start();
    let file = TestFile::new();
    let holder = stubborn(&server.url(), "x --lease 2s", &file, 1);
    let waiter = Runner::start(&mut run(&server.url(), "x", "echo ran"));
    assert!(waiter.message().contains("waiting for the lock"));
    let mut operator = Connection::open(server.port()).unwrap();
    assert_eq!(operator.call(&["AUTH", "old"]).unwrap(), "OK");
    assert_eq!(operator.call(&["CONFIG", "SET", "requirepass", "new"]).unwrap(), "OK");
    for kind in ["normal", "pubsub"] {
        operator.call(&["CLIENT", "KILL", "TYPE", kind, "SKIPME", "yes"]).unwrap();
    }
    for (run, code, advice) in [
        (holder.finish(), 76, "check the user and the password in the URL, and what that user may do"),
        (waiter.finish(), 69, "check both in the URL (WRONGPASS)"),
    ] {
        assert_eq!(run.code, Some(code), "{run:?}");
        let last = run.stderr.lines().rfind(|line| line.starts_with("leasehold: ")).unwrap_or_default();
        assert!(last.contains(" not connected for "), "{run:?}");
        let cause = "reconnecting: the user or the password is wrong, or the user is disabled: check both in the URL \
                     (WRONGPASS)";
        assert!(last.contains(cause) && last.ends_with(advice), "{run:?}");
        assert!(!last.contains("network") && !last.contains("start the server"), "{run:?}");
    }
}

#[test]
fn a_server_that_resumes_within_the_lease_ends_no_command() {
    let server = Server::start(Flavour::Redis);
    let runner =
        Runner::start(&mut run(&server.url(), "x --lease 3s --grace 100ms", "echo ready; read end; exit 5"));
    runner.says("ready");
    server.pause();
    thread::sleep(Duration::from_millis(1200));
    server.resume();
    eventually("it is renewed", || matches!(server.cli(&["PTTL", "x"]), Value::Int(left) if left > 2000));
    let run = runner.finish();
    assert_eq!((run.code, run.stderr.as_str()), (Some(5), ""));
}

#[test]
fn max_hold_ends_a_command_that_hangs() {
    let server = Server::start(Flavour::Redis);
    let file = TestFile::new();
    let runner = stubborn(&server.url(), "x --max-hold 4s --grace 1.3s", &file, 1);
    let run = runner.finish();
    assert_eq!(run.code, Some(76), "{run:?}");
    // The shell may write messages about its steps that are killed.
    let messages: Vec<_> = run.stderr.lines().filter(|line| line.starts_with("leasehold: ")).collect();
    let [asked, lost] = messages[..] else { panic!("{run:?}") };
    let cause = "it was held for as long as --max-hold allows";
    let about = format!("leasehold: the lock \"x\" on {} is about to be lost, in ", server.url());
    assert!(asked.starts_with(&about), "{run:?}");
    assert!(asked.contains(cause), "{run:?}");
    assert!(
        lost.starts_with(&format!("leasehold: the lock \"x\" on {} is lost: {cause}", server.url())),
        "{run:?}"
    );
    assert!(lost.ends_with("give it more time with --max-hold"), "{run:?}");
    assert!(file.text().contains("asked"));
    assert!(!is_locked(&server, "x"), "it is released, not left to expire");
}

#[test]
fn a_command_that_ends_on_the_stop_request_still_exits_with_lock_lost() {
    let server = Server::start(Flavour::Redis);
    let script = "trap 'echo cleaned up; exit 0' TERM; echo ready; while :; do sleep 0.01; done";
    let runner = Runner::start(&mut run(&server.url(), "x --max-hold 3s --grace 1s", script));
    runner.says("ready");
    let run = runner.finish();
    assert_eq!((run.code, run.stdout.as_str()), (Some(76), "cleaned up\n"));
}

#[test]
fn child_processes_that_ignore_the_stop_request_are_killed() {
    let server = Server::start(Flavour::Redis);
    let script = "sh -c 'trap \"\" TERM; echo ready; while :; do sleep 0.01; done' & wait";
    let runner = Runner::start(&mut run(&server.url(), "x --max-hold 3s --grace 1s", script));
    runner.says("ready");
    // The end of the output shows that all processes have ended.
    assert_eq!(runner.finish().code, Some(76));
}

#[test]
fn child_processes_that_outlive_the_command_are_not_killed() {
    let server = Server::start(Flavour::Redis);
    let script = "(read end < \"$1\"; echo end of the rest) & echo ready; exit 0";
    let pipe = TestFile::new();
    assert!(std::process::Command::new("mkfifo").arg(pipe.path()).status().unwrap().success());
    let runner = Runner::start(run(&server.url(), "x", script).arg(pipe.path()));
    runner.says("ready");
    eventually("the lock is free", || !is_locked(&server, "x"));
    eventually("no child process is left", || runner.children().is_empty());
    std::fs::write(pipe.path(), "end\n").unwrap();
    let run = runner.finish();
    assert_eq!((run.code, run.stdout.as_str()), (Some(0), "end of the rest\n"));
}

#[test]
fn hd_19_killing_a_run_kills_its_command_and_a_waiter_acquires_the_lock_after_the_lease() {
    let server = Server::start(Flavour::Redis);
    let file = TestFile::new();
    let first = stubborn(&server.url(), "x --lease 2s", &file, 1);
    let second = waiter(&server, &file);
    first.signal(Signal::SIGKILL);
    first.all_gone();
    assert!(is_locked(&server, "x"), "the command is gone before the lock is");
    assert!(!file.text().contains("start 2"));
    let second = second.finish();
    assert_eq!(second.code, Some(0), "{second:?}");
    gap(&file);
}

#[test]
fn killing_a_run_together_with_its_warden_kills_the_command() {
    let server = Server::start(Flavour::Redis);
    // Only the command: the processes that it starts are killed by the warden.
    let runner = Runner::start(&mut run(&server.url(), "x --lease 10s", "echo ready; exec sleep 1000"));
    runner.says("ready");
    let [warden, command] = runner.children()[..] else { panic!("{:?}", runner.children()) };
    assert_ne!(warden, command);
    // Stopped first, so that it cannot notice our end before its own.
    kill(warden, Signal::SIGSTOP).unwrap();
    kill(warden, Signal::SIGKILL).unwrap();
    runner.signal(Signal::SIGKILL);
    runner.all_gone();
    assert!(is_locked(&server, "x"), "the command is gone before the lock is");
}

#[test]
fn the_command_of_a_stopped_run_ends_before_the_lock_is_granted_again() {
    let server = Server::start(Flavour::Redis);
    let file = TestFile::new();
    let first = stubborn(&server.url(), "x --lease 2s", &file, 1);
    let second = waiter(&server, &file);
    first.signal(Signal::SIGSTOP);
    let second = second.finish();
    assert_eq!(second.code, Some(0), "{second:?}");
    gap(&file);
    first.signal(Signal::SIGCONT);
    let first = first.finish();
    assert_eq!(first.code, Some(76), "{first:?}");
    let why = "is lost: leasehold was stopped, or got no CPU time on this machine to renew it. The command was ended: see what \
               it left half done, and check the load of this machine\n";
    assert!(first.stderr.ends_with(why), "the server was fine: {first:?}");
}

#[test]
fn a_restart_of_the_server_without_its_data_is_named_as_the_cause() {
    let mut server = Server::start(Flavour::Redis);
    let file = TestFile::new();
    let runner = stubborn(&server.url(), "x --lease 60s", &file, 1);
    server.kill();
    server.restart();
    let run = runner.finish();
    assert_eq!(run.code, Some(76), "{run:?}");
    let why = "is lost: the server does not have the lock any more since it was away: it has restarted without its data, or \
               the lock was deleted in the meantime. ";
    assert!(run.stderr.contains(why), "{run:?}");
    assert!(
        run.stderr.ends_with("check the log and the persistence of the server (`appendonly`)\n"),
        "{run:?}"
    );
}

#[test]
fn a_full_standard_error_pipe_cannot_keep_the_command_alive() {
    let server = Server::start(Flavour::Redis);
    // Fills the pipe of the standard error, so that every writer to it blocks.
    let script = "trap '' TERM; while :; do echo words words words words >&2; done";
    let (reader, writer) = io::pipe().unwrap();
    let mut command = run(&server.url(), "x --max-hold 3s", script);
    let mut process = command.stderr(writer).spawn().unwrap();
    drop(command);
    eventually("it has the lock", || is_locked(&server, "x"));
    // Three seconds later if it expires, and earlier if it is released, because the command is dead.
    eventually("the lock is free", || !is_locked(&server, "x"));
    assert_eq!(process.try_wait().unwrap(), None, "it has not yet written the reason");
    drop(reader);
    assert_eq!(ended("the run", &mut process).code(), Some(76));
}

#[test]
fn a_lock_is_renewed_while_the_command_runs() {
    let server = Server::start(Flavour::Redis);
    // Every lock has one contender here: any command that ends is ended wrongly.
    let holders: Vec<_> = (0..5)
        .map(|number| {
            Runner::start(&mut run(&server.url(), &format!("own-{number} --lease 4s"), "sleep 9; exit 4"))
        })
        .collect();
    for holder in holders {
        let run = holder.finish();
        assert_eq!((run.code, run.stderr.as_str()), (Some(4), ""));
    }
}
