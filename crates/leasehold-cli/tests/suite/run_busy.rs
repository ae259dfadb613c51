//! `run` when another owner holds the lock.

use std::process::Stdio;
use std::time::Duration;

use leasehold_testkit::server::{Flavour, Server};
use nix::sys::signal::Signal;

use tokio::time::Instant;

use crate::command::{finish, program, start};
use crate::patience::{ended, eventually};
use crate::runner::{Runner, TestFile, holder_text, is_locked, run};

/// A `run` that holds the lock until it is ended, and how messages name it.
fn holder(server: &Server) -> (Runner, String) {
    let holder = Runner::start(&mut run(&server.url(), "x", "echo $PPID; read end; exit 5"));
    let name = holder_text(&holder.line());
    (holder, name)
}

/// How messages name the lock "x".
fn lock(server: &Server) -> String {
    format!("the lock \"x\" on {}", server.url())
}

#[test]
fn if_busy_fail_tries_once_and_exits_with_busy() {
    let server = Server::start(Flavour::Redis);
    let (holder, name) = holder(&server);
    let busy = finish(&mut run(&server.url(), "x --if-busy fail", "echo ran"));
    assert_eq!((busy.code, busy.stdout.as_str()), (Some(75), ""));
    let busy_lock = format!("leasehold: {} is busy, held (its lease ends in 2", lock(&server));
    assert!(busy.stderr.starts_with(&busy_lock), "{busy:?}");
    let advice = format!(" unless renewed) by {name}: try again later, or wait with --if-busy wait\n");
    assert!(busy.stderr.ends_with(&advice), "{busy:?}");
    assert_eq!(holder.finish().code, Some(5));
    assert_eq!(finish(&mut run(&server.url(), "x --if-busy fail", "echo ran")).stdout, "ran\n");
}

#[test]
fn if_busy_skip_skips_the_command_and_exits_with_success() {
    let server = Server::start(Flavour::Redis);
    let (_holder, name) = holder(&server);
    let busy = finish(&mut run(&server.url(), "x --if-busy skip", "echo ran"));
    assert_eq!((busy.code, busy.stdout.as_str()), (Some(0), ""));
    assert!(busy.stderr.contains(&name) && busy.stderr.ends_with(": the command is skipped\n"), "{busy:?}");
    assert_eq!(finish(&mut run(&server.url(), "y --if-busy skip", "echo ran; exit 4")).code, Some(4));
}

#[test]
fn a_run_that_waits_ends_at_its_wait_limit() {
    let server = Server::start(Flavour::Redis);
    let (_holder, name) = holder(&server);
    for wait in ["300ms", "0"] {
        let busy = finish(&mut run(&server.url(), &format!("x --wait {wait}"), "echo ran"));
        assert_eq!((busy.code, busy.stdout.as_str()), (Some(75), ""), "{busy:?}");
        let last = busy.stderr.lines().last().unwrap();
        assert!(last.starts_with(&format!("leasehold: {} stayed busy for ", lock(&server))), "{busy:?}");
        assert!(last.contains(&name) && last.ends_with("or wait longer with --wait"), "{busy:?}");
    }
}

#[test]
fn a_waiting_run_reports_the_holder_once_and_acquires_the_lock_after_the_release() {
    let server = Server::start(Flavour::Redis);
    let (holder, name) = holder(&server);
    let waiter = Runner::start(&mut run(&server.url(), "x", "echo ran; exit 6"));
    let message = waiter.message();
    let waits = format!("leasehold: waiting for {}, held (its lease ends in 2", lock(&server));
    assert!(message.starts_with(&waits), "{message}");
    assert!(message.ends_with(&format!(" unless renewed) by {name}")), "{message}");
    assert_eq!(holder.finish().code, Some(5));
    let waiter = waiter.finish();
    assert_eq!((waiter.code, waiter.stdout.as_str(), waiter.stderr.as_str()), (Some(6), "ran\n", ""));
}

#[test]
fn a_waiting_run_ended_by_a_signal_leaves_nothing_behind() {
    let server = Server::start(Flavour::Redis);
    let (holder, _) = holder(&server);
    for signal in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP, Signal::SIGQUIT] {
        let waiter = Runner::start(&mut run(&server.url(), "x", "echo ran"));
        waiter.message();
        // Not a request to end: it is meant for the command, which has not started.
        waiter.signal(Signal::SIGUSR1);
        waiter.signal(signal);
        let waiter = waiter.finish();
        assert_eq!((waiter.code, waiter.stdout.as_str()), (Some(128 + signal as i32), ""), "{waiter:?}");
        let said =
            format!("leasehold: ended by {signal} while waiting for {}: the command was not", lock(&server));
        assert!(waiter.stderr.starts_with(&said), "{waiter:?}");
    }
    holder.finish();
    assert!(!is_locked(&server, "x"));
}

#[test]
fn on_a_terminal_the_waiting_message_is_updated_and_cleared() {
    let server = Server::start(Flavour::Redis);
    let (mut holder, name) = holder(&server);
    let shown = TestFile::new();
    let line = format!("'{}' run x -- echo ran", program().display());
    let mut waiter = start("script")
        .args(["--quiet", "--return", "--flush", "--command", &line, shown.path()])
        // No line is refreshed on a terminal without the required features.
        .env("TERM", "xterm")
        .env("SHELL", "/bin/sh")
        .env("LEASEHOLD_URL", server.url())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let shows = |seconds: u32| {
        shown.text().contains(&format!("leasehold: waiting for the lock \"x\" for {seconds}s, held (2"))
    };
    eventually("it shows 1 s", || shows(1));
    eventually("it shows 2 s", || shows(2));
    // The line is as wide as the terminal, and cut there.
    assert!(shown.text().contains(&format!("s left) by {}", name.split_at(8).0)));
    holder.tell("end\n");
    assert!(ended("the waiter", &mut waiter).success());
    let text = shown.text();
    // The first line is the one by which `script` begins.
    let (before, after) = text.rsplit_once("waiting for the lock").unwrap();
    assert_eq!(before.lines().count(), 2, "on one line only: {text:?}");
    assert!(
        after.split_once("\x1b[2K").is_some_and(|(_, after)| after.starts_with("ran")),
        "cleared: {text:?}"
    );
    assert_eq!(holder.finish().code, Some(5));
}

#[test]
fn a_short_command_runs_once_within_its_least_time() {
    let server = Server::start(Flavour::Redis);
    let tick = || finish(&mut run(&server.url(), "x --if-busy skip --min-hold 1h", "echo ran; exit 4"));
    let first = tick();
    assert_eq!((first.code, first.stdout.as_str()), (Some(4), "ran\n"), "{first:?}");
    for _ in 0..2 {
        let late = tick();
        assert_eq!((late.code, late.stdout.as_str()), (Some(0), ""), "{late:?}");
        assert!(late.stderr.ends_with(": the command is skipped\n"), "{late:?}");
    }

    let begun = Instant::now();
    let short = finish(&mut run(&server.url(), "y --min-hold 500ms", "echo ran"));
    let next = finish(&mut run(&server.url(), "y", "echo ran"));
    assert!(begun.elapsed() >= Duration::from_millis(500), "{:?}", begun.elapsed());
    assert_eq!((short.stdout.as_str(), next.stdout.as_str()), ("ran\n", "ran\n"));

    let wrong = finish(&mut run(&server.url(), "y --min-hold 2m --max-hold 1m", "echo ran"));
    let said = "leasehold: --min-hold 2m is longer than --max-hold 1m, which ends the hold before: make one of them fit\n";
    assert_eq!((wrong.code, wrong.stderr.as_str()), (Some(2), said));
}
