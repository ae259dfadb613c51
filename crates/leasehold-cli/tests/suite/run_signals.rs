//! Signals that reach `run` while the command runs.

use leasehold_testkit::server::{Flavour, Server};
use nix::sys::signal::Signal;

use crate::command::{finish, program, start};
use crate::runner::{Runner, TestFile, is_locked, run, signals};

#[test]
fn signals_are_forwarded_and_the_lock_is_held_until_the_command_has_ended() {
    let server = Server::start(Flavour::Redis);
    let script = r#"
        for s in HUP INT QUIT TERM USR1 USR2; do trap "echo SIG$s" $s; done
        echo ready
        until [ -e "$1" ]; do sleep 0.01; done
        exit 9"#;
    let end = TestFile::new();
    let runner = Runner::start(run(&server.url(), "x", script).arg(end.path()));
    runner.says("ready");
    for signal in [
        Signal::SIGHUP,
        Signal::SIGINT,
        Signal::SIGQUIT,
        Signal::SIGTERM,
        Signal::SIGUSR1,
        Signal::SIGUSR2,
        Signal::SIGTERM,
    ] {
        runner.signal(signal);
        runner.says(signal.as_str());
        assert!(is_locked(&server, "x"));
        let busy = finish(&mut run(&server.url(), "x --if-busy fail", "echo ran"));
        assert_eq!(busy.code, Some(75), "{busy:?}");
    }
    std::fs::write(end.path(), "").unwrap();
    assert_eq!(runner.finish().code, Some(9));
    assert!(!is_locked(&server, "x"));
}

#[test]
fn signals_are_forwarded_to_child_processes_of_the_command() {
    let server = Server::start(Flavour::Redis);
    let script = "trap 'wait; echo command; exit 0' TERM
        sh -c 'trap \"echo step; exit 0\" TERM; echo ready; while :; do sleep 0.01; done' & wait";
    let runner = Runner::start(&mut run(&server.url(), "x", script));
    runner.says("ready");
    runner.signal(Signal::SIGTERM);
    let run = runner.finish();
    assert_eq!((run.code, run.stdout.as_str()), (Some(0), "step\ncommand\n"));
}

#[test]
fn a_command_killed_by_a_signal_has_the_exit_code_of_a_shell() {
    let server = Server::start(Flavour::Redis);
    for signal in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGUSR2] {
        let runner = Runner::start(&mut run(&server.url(), "x", "echo ready; exec sleep 1000"));
        runner.says("ready");
        runner.signal(signal);
        let run = runner.finish();
        assert_eq!((run.code, run.stderr.as_str()), (Some(128 + signal as i32), ""), "{signal}");
        assert!(!is_locked(&server, "x"));
    }
}

#[test]
fn a_stopped_command_ends_on_a_forwarded_sigterm() {
    let server = Server::start(Flavour::Redis);
    let runner = Runner::start(&mut run(&server.url(), "x", "echo ready; kill -STOP $$; exit 3"));
    runner.says("ready");
    runner.signal(Signal::SIGTERM);
    assert_eq!(runner.finish().code, Some(143));
}

#[test]
fn signals_ignored_by_the_parent_process_stay_ignored() {
    let server = Server::start(Flavour::Redis);
    let script = "grep SigIgn: /proc/self/status; read end; exit 3";
    let line = format!("trap '' HUP INT; exec '{}' run x -- sh -c '{script}'", program().display());
    let mut runner = Runner::start(start("sh").args(["-c", &line]).env("LEASEHOLD_URL", server.url()));
    assert_eq!(signals(&runner.line()), 0b11);
    runner.signal(Signal::SIGHUP);
    runner.signal(Signal::SIGINT);
    runner.tell("end\n");
    assert_eq!(runner.finish().code, Some(3));
}
