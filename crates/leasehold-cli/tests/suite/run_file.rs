//! `run` on files of this machine.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use leasehold::Owner;
use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, getpgid};

use tokio::time::Instant;

use crate::command::{finish, leasehold_command, start};
use crate::patience::{at_once, eventually};
use crate::runner::{Runner, TestDirectory, TestFile, holder_text, is_free, lives, living, run};

/// Two shells that ignore requests to end: the command, and a process that it has started. They write their numbers.
const STUBBORN: &str = r#"
    trap '' TERM HUP
    sh -c 'trap "" TERM HUP; echo $$; while :; do sleep 0.01; done' &
    echo $$
    while :; do sleep 0.01; done"#;

fn process(line: &str) -> Pid {
    Pid::from_raw(line.parse().unwrap_or_else(|_| panic!("{line:?} is no process number")))
}

#[test]
fn without_a_url_the_lock_is_on_this_machine_and_one_line_says_so() {
    let home = TestDirectory::new();
    let locks = home.path().join(".local/state/leasehold/locks");
    let line = format!(
        "leasehold: locking on this machine only (file://{}); for several machines give --url\n",
        locks.display()
    );
    for (url, said) in [(None, line.as_str()), (Some("file:"), "")] {
        let mut command = leasehold_command();
        command.env("HOME", home.path()).arg("run").args(url.map(|url| format!("--url={url}")));
        let script = r#"flock -n "$1" true; echo $?"#;
        let lock = locks.join("x.lock");
        let run = finish(command.args(["x", "--", "sh", "-c", script, "sh"]).arg(&lock));
        assert_eq!((run.code, run.stdout.as_str(), run.stderr.as_str()), (Some(0), "1\n", said), "{url:?}");
        assert!(is_free(&lock));
    }
    let mode = fs::metadata(locks).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o700, "no other user can hold these locks");
}

#[test]
fn a_held_file_is_busy_for_other_runs_and_for_flock() {
    let directory = TestDirectory::new();
    let script = r#"echo "$LEASEHOLD_OWNER"; echo $PPID; read end; exit 5"#;
    let holder = Runner::start(&mut run(&directory.url(), "x", script));
    holder.line().parse::<Owner>().unwrap();
    let name = holder_text(&holder.line());
    let held = format!("the lock \"x\" on {} is busy, held by {name}: ", directory.url());

    let busy = finish(&mut run(&directory.url(), "x --if-busy fail", "echo ran"));
    assert_eq!((busy.code, busy.stdout.as_str()), (Some(75), ""));
    assert_eq!(busy.stderr, format!("leasehold: {held}try again later, or wait with --if-busy wait\n"));
    let skipped = finish(&mut run(&directory.url(), "x --if-busy skip", "echo ran"));
    assert_eq!((skipped.code, skipped.stdout.as_str()), (Some(0), ""));
    assert_eq!(skipped.stderr, format!("leasehold: {held}the command is skipped\n"));
    let flock = finish(start("flock").args(["-n", "-E", "9"]).arg(directory.lock("x")).arg("true"));
    assert_eq!(flock.code, Some(9), "{flock:?}");

    let waiter = Runner::start(&mut run(&directory.url(), "x", "echo ran; exit 6"));
    let waits = format!("leasehold: waiting for the lock \"x\" on {}, held by {name}", directory.url());
    assert_eq!(waiter.message(), waits);
    assert_eq!(holder.finish().code, Some(5));
    let waiter = waiter.finish();
    assert_eq!((waiter.code, waiter.stdout.as_str(), waiter.stderr.as_str()), (Some(6), "ran\n", ""));
}

#[test]
fn a_file_that_flock_holds_is_busy_for_run() {
    let directory = TestDirectory::new();
    let mut flock = start("flock");
    flock.arg(directory.lock("x")).args(["sh", "-c", "echo ready; read end; exit 5"]);
    let flock = Runner::start(&mut flock);
    flock.says("ready");
    let busy = finish(&mut run(&directory.url(), "x --if-busy fail", "echo ran"));
    assert_eq!((busy.code, busy.stdout.as_str()), (Some(75), ""));
    assert!(busy.stderr.contains(" is busy, held by another program: try again later"), "{busy:?}");
    let waiter = Runner::start(&mut run(&directory.url(), "x", "echo ran; exit 6"));
    assert!(waiter.message().ends_with(", held by another program"));
    assert_eq!(flock.finish().code, Some(5));
    assert_eq!(waiter.finish().code, Some(6));
}

#[test]
fn forty_runs_and_twenty_flocks_lose_no_update() {
    let directory = TestDirectory::new();
    let count = TestFile::new();
    fs::write(count.path(), "0").unwrap();
    let script = r#"n=$(cat "$1"); sleep 0.01; echo $((n + 1)) > "$1""#;
    let runners: Vec<_> = (0..60)
        .map(|number| {
            let mut command = run(&directory.url(), "count", script);
            if number % 3 == 0 {
                command = start("flock");
                command.arg(directory.lock("count")).args(["sh", "-c", script, "sh"]);
            }
            Runner::start(command.arg(count.path()))
        })
        .collect();
    for runner in runners {
        let run = runner.finish();
        assert_eq!(run.code, Some(0), "{run:?}");
    }
    assert_eq!(count.text(), "60\n");
}

#[test]
fn a_killed_run_frees_the_lock_only_after_every_process_of_its_command_has_ended() {
    let directory = TestDirectory::new();
    let lock = directory.lock("x");
    for round in 0..50 {
        let runner = Runner::start(&mut run(&directory.url(), "x", STUBBORN));
        let two = [runner.line(), runner.line()].map(|line| process(&line));
        assert!(!is_free(&lock));
        let group = getpgid(Some(two[0])).unwrap();
        runner.signal(Signal::SIGKILL);
        at_once("the lock is free", || is_free(&lock));
        assert_eq!(two.map(lives), [false; 2], "round {round}");
        // The warden leads the group, and does not have the lock.
        let rest: Vec<_> = living(group).into_iter().filter(|process| *process != group).collect();
        assert!(rest.is_empty(), "round {round}: {rest:?}");
    }
}

#[test]
fn a_process_of_the_command_that_outlives_a_killed_run_keeps_the_lock() {
    let directory = TestDirectory::new();
    let lock = directory.lock("x");
    let runner = Runner::start(&mut run(&directory.url(), "x", STUBBORN));
    let two = [runner.line(), runner.line()].map(|line| process(&line));
    let [warden, command] = runner.children()[..] else { panic!("{:?}", runner.children()) };
    let other = two.into_iter().find(|process| *process != command).unwrap();
    // Without a warden, the kernel kills the command alone.
    kill(warden, Signal::SIGKILL).unwrap();
    runner.signal(Signal::SIGKILL);
    eventually("the kernel has killed the command", || !lives(command));
    let is_free_beside = is_free(&lock);
    let busy = finish(&mut run(&directory.url(), "x --if-busy fail", "echo ran"));
    kill(other, Signal::SIGKILL).expect("it outlives the run");
    assert!(!is_free_beside);
    assert_eq!((busy.code, busy.stdout.as_str()), (Some(75), ""), "{busy:?}");
    eventually("the lock is free", || is_free(&lock));
}

/// Starts a process that outlives it, and ends.
const DAEMON: &str = r#"(read end < "$1") > /dev/null 2>&1 & echo $!"#;

#[test]
fn a_daemon_keeps_the_lock_unless_the_file_is_closed() {
    let directory = TestDirectory::new();
    for (arguments, free) in [("x", false), ("x --close", true)] {
        let pipe = TestFile::new();
        assert!(Command::new("mkfifo").arg(pipe.path()).status().unwrap().success());
        let ran = finish(run(&directory.url(), arguments, DAEMON).arg(pipe.path()));
        let daemon = process(ran.stdout.trim_end());
        let is_free_beside = is_free(&directory.lock("x"));
        let next = finish(&mut run(&directory.url(), "x --if-busy fail", "exit 6"));
        let lives_on = lives(daemon);
        // Before any assertion, so that it does not outlive a test that fails.
        let _ = kill(daemon, Signal::SIGKILL);
        assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""), "{arguments}");
        assert!(lives_on, "{arguments}");
        assert_eq!(is_free_beside, free, "{arguments}");
        assert_eq!(next.code, Some(if free { 6 } else { 75 }), "{arguments}: {next:?}");
        eventually("the daemon has ended", || !lives(daemon));
        eventually("the lock is free", || is_free(&directory.lock("x")));
    }
}

#[test]
fn only_the_command_inherits_the_file_of_the_lock() {
    let directory = TestDirectory::new();
    let files = |process: Pid| {
        let files = fs::read_dir(format!("/proc/{process}/fd")).expect("it lives");
        let files = files.filter_map(|file| fs::read_link(file.ok()?.path()).ok());
        files.filter(|file| *file == directory.lock("x")).count()
    };
    for (arguments, inherited) in [("x", 1), ("x --close", 0)] {
        let runner = Runner::start(&mut run(&directory.url(), arguments, "echo ready; read end; exit 5"));
        runner.says("ready");
        let [warden, command] = runner.children()[..] else { panic!("{:?}", runner.children()) };
        assert_eq!((files(warden), files(command)), (0, inherited), "{arguments}");
        assert_eq!(runner.finish().code, Some(5));
    }
}

#[test]
fn a_stopped_run_keeps_the_lock_and_its_command() {
    let directory = TestDirectory::new();
    let beats = TestFile::new();
    let script =
        r#"echo ready; (while :; do echo beat >> "$1"; sleep 0.01; done) & read end; kill $!; exit 5"#;
    for arguments in ["x --lease 1s", "x --lease 1s --close"] {
        let mut runner = Runner::start(run(&directory.url(), arguments, script).arg(beats.path()));
        runner.says("ready");
        runner.signal(Signal::SIGSTOP);
        thread::sleep(Duration::from_millis(2500));
        let before = beats.text().len();
        eventually("the command goes on", || beats.text().len() > before);
        assert!(!is_free(&directory.lock("x")), "{arguments}");
        runner.signal(Signal::SIGCONT);
        // Long enough for every check that was due.
        thread::sleep(Duration::from_millis(500));
        runner.tell("end\n");
        let run = runner.finish();
        assert_eq!((run.code, run.stderr.as_str()), (Some(5), ""), "{arguments}");
    }
}

#[test]
fn max_hold_ends_the_command_even_of_a_stopped_run() {
    let directory = TestDirectory::new();
    for stopped in [false, true] {
        let runner = Runner::start(&mut run(&directory.url(), "x --max-hold 2s --grace 500ms", STUBBORN));
        let two = [runner.line(), runner.line()].map(|line| process(&line));
        if stopped {
            runner.signal(Signal::SIGSTOP);
            eventually("both processes have ended", || !two.into_iter().any(lives));
            runner.signal(Signal::SIGCONT);
        }
        let run = runner.finish();
        assert_eq!(run.code, Some(76), "{run:?}");
        let lost = format!("leasehold: the lock \"x\" on {} is lost: ", directory.url());
        assert!(run.stderr.lines().any(|line| line.starts_with(&lost)), "{run:?}");
        assert!(!two.into_iter().any(lives) && is_free(&directory.lock("x")));
    }
}

/// As a program does that cleans up temporary files: the next holder would lock a new file.
#[test]
fn a_removed_lock_file_ends_the_command() {
    let directory = TestDirectory::new();
    let runner = Runner::start(&mut run(&directory.url(), "x", STUBBORN));
    let two = [runner.line(), runner.line()].map(|line| process(&line));
    fs::remove_file(directory.lock("x")).unwrap();
    let run = runner.finish();
    assert_eq!(run.code, Some(76), "{run:?}");
    assert!(!two.into_iter().any(lives));
    let lost = format!("leasehold: the lock \"x\" on {} is lost: the lock is gone", directory.url());
    assert!(run.stderr.starts_with(&lost), "{run:?}");
    let advice = "and find out which program removed or replaced the file of the lock\n";
    assert!(run.stderr.ends_with(advice), "{run:?}");
}

#[test]
fn a_directory_that_cannot_be_used_is_named_by_the_error() {
    let file = TestFile::new();
    fs::write(file.path(), "").unwrap();
    let url = format!("file://{}", file.path());
    let mut command = run(&url, "x", "echo ran");
    let run = finish(command.stdin(Stdio::null()));
    assert_eq!((run.code, run.stdout.as_str()), (Some(69), ""), "{run:?}");
    assert!(run.stderr.contains(file.path()) && !run.stderr.contains("--url"), "{run:?}");
}

#[test]
fn a_run_stays_until_its_least_time_is_over_or_a_signal_ends_it() {
    let directory = TestDirectory::new();
    let begun = Instant::now();
    let stayed = finish(&mut run(&directory.url(), "x --min-hold 500ms", "exit 4"));
    assert_eq!(stayed.code, Some(4), "{stayed:?}");
    assert!(begun.elapsed() >= Duration::from_millis(500), "{:?}", begun.elapsed());

    let long = Runner::start(&mut run(&directory.url(), "x --min-hold 1h", "echo $$; exit 4"));
    let child = process(&long.line());
    eventually("the command has ended", || !lives(child));
    let busy = finish(&mut run(&directory.url(), "x --if-busy fail", "echo ran"));
    assert_eq!(busy.code, Some(75), "{busy:?}");
    long.signal(Signal::SIGTERM);
    assert_eq!(long.finish().code, Some(4));
    assert_eq!(finish(&mut run(&directory.url(), "x --if-busy fail", "echo ran")).stdout, "ran\n");
}
