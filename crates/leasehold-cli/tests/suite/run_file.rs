//! `run` on files of this machine.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::process::Stdio;

use leasehold::Owner;

use crate::command::{finish, leasehold_command, start};
use crate::runner::{Runner, TestDirectory, TestFile, is_free, run};

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
    let holder =
        Runner::start(&mut run(&directory.url(), "x", r#"echo "$LEASEHOLD_OWNER"; read end; exit 5"#));
    let owner = holder.line();
    owner.parse::<Owner>().unwrap();
    let held = format!("the lock \"x\" on {} is busy, held by {owner}: ", directory.url());

    let busy = finish(&mut run(&directory.url(), "x --if-busy fail", "echo ran"));
    assert_eq!((busy.code, busy.stdout.as_str()), (Some(75), ""));
    assert_eq!(busy.stderr, format!("leasehold: {held}try again later, or wait with --if-busy wait\n"));
    let skipped = finish(&mut run(&directory.url(), "x --if-busy skip", "echo ran"));
    assert_eq!((skipped.code, skipped.stdout.as_str()), (Some(0), ""));
    assert_eq!(skipped.stderr, format!("leasehold: {held}the command is skipped\n"));
    let flock = finish(start("flock").args(["-n", "-E", "9"]).arg(directory.lock("x")).arg("true"));
    assert_eq!(flock.code, Some(9), "{flock:?}");

    let waiter = Runner::start(&mut run(&directory.url(), "x", "echo ran; exit 6"));
    let waits = format!("leasehold: waiting for the lock \"x\" on {}, held by {owner}", directory.url());
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
fn a_directory_that_cannot_be_used_is_named_by_the_error() {
    let file = TestFile::new();
    fs::write(file.path(), "").unwrap();
    let url = format!("file://{}", file.path());
    let mut command = run(&url, "x", "echo ran");
    let run = finish(command.stdin(Stdio::null()));
    assert_eq!((run.code, run.stdout.as_str()), (Some(69), ""), "{run:?}");
    assert!(run.stderr.contains(file.path()) && !run.stderr.contains("--url"), "{run:?}");
}
