//! `run` on success, and when it cannot begin.

use std::io::{Read as _, Write as _};
use std::process::Stdio;

use leasehold::Owner;
use leasehold_testkit::server::{Flavour, Server};

use crate::command::{finish, leasehold, leasehold_at, program, start, without_settings};
use crate::patience::ended;
use crate::runner::{Runner, TestFile, is_locked, run, run_plain, signals};

#[test]
fn the_exit_code_is_that_of_the_command() {
    let server = Server::start(Flavour::Redis);
    for (script, code) in [
        ("exit 0", 0),
        ("exit 3", 3),
        ("exit 75", 75),
        ("exit 255", 255),
        ("kill -TERM $$", 143),
        ("kill -KILL $$", 137),
        ("kill -INT $$", 130),
    ] {
        let run = finish(&mut run(&server.url(), "x", script));
        assert_eq!((run.code, run.stderr.as_str()), (Some(code), ""), "{script}");
        assert!(!is_locked(&server, "x"), "{script}");
    }
}

#[test]
fn a_command_that_cannot_be_executed_has_the_exit_code_of_a_shell() {
    let server = Server::start(Flavour::Redis);
    for (command, code, what) in [
        ("/nowhere/at/all", 127, "was not found: check its spelling and the PATH"),
        ("no-such-command", 127, "was not found"),
        ("", 127, "was not found"),
        ("/etc/passwd", 126, "cannot be executed: Permission denied"),
        ("/", 126, "cannot be executed"),
    ] {
        let run = finish(run_plain(&server.url(), "x").args(["--", command]));
        assert_eq!((run.code, run.stdout.as_str()), (Some(code), ""), "{command}");
        assert!(run.stderr.starts_with(&format!("leasehold: the command {command:?} ")), "{run:?}");
        assert!(run.stderr.contains(what) && run.stderr.lines().count() == 1, "{run:?}");
        assert!(!is_locked(&server, "x"), "{command}");
    }
}

#[test]
fn the_command_gets_its_arguments_unchanged() {
    let server = Server::start(Flavour::Redis);
    let arguments = ["a b", "", "--wait", "*", "--", "-h", "ä"];
    let run = finish(run(&server.url(), "x", r#"printf '<%s>' "$@""#).args(arguments));
    assert_eq!(run.stdout, "<a b><><--wait><*><--><-h><ä>");
}

#[test]
fn the_environment_of_the_command_names_the_lock_the_owner_and_the_url() {
    let server = Server::start(Flavour::Redis);
    let script = r#"echo "$LEASEHOLD_NAME"; echo "$LEASEHOLD_OWNER"; echo "${LEASEHOLD_URL-none}"; read end"#;
    for (given, url) in [(false, server.url()), (true, "none".to_owned())] {
        let mut command = run(&server.url(), "job", script);
        if given {
            command = start(program());
            command.args(["run", "--url", &server.url(), "job", "--", "sh", "-c", script]);
            without_settings(&mut command);
        }
        let runner = Runner::start(&mut command);
        runner.says("job");
        let owner = runner.line();
        owner.parse::<Owner>().unwrap();
        assert_eq!(runner.line(), url, "as it was");
        assert_eq!(server.cli(&["HEXISTS", "job", &owner]), 1);
        assert_eq!(runner.finish().code, Some(1), "the input has ended");
    }
}

#[test]
fn the_command_inherits_standard_input_output_and_error() {
    let server = Server::start(Flavour::Redis);
    let mut runner = Runner::start(&mut run(&server.url(), "x", "cat; echo oops >&2"));
    runner.tell("one\ntwo\n");
    let run = runner.finish();
    assert_eq!((run.stdout.as_str(), run.stderr.as_str()), ("one\ntwo\n", "oops\n"));
}

#[test]
fn the_command_starts_with_default_signal_handling() {
    let server = Server::start(Flavour::Redis);
    let script = "grep -E 'Sig(Blk|Ign):' /proc/self/status; yes | head -1";
    let runner = Runner::start(&mut run(&server.url(), "x", script));
    assert_eq!(signals(&runner.line()), 0, "blocked");
    assert_eq!(signals(&runner.line()), 0, "ignored");
    let run = runner.finish();
    assert_eq!((run.code, run.stdout.as_str(), run.stderr.as_str()), (Some(0), "y\n", ""));
}

#[test]
fn forty_concurrent_runs_lose_no_update() {
    let server = Server::start(Flavour::Redis);
    let count = TestFile::new();
    std::fs::write(count.path(), "0").unwrap();
    let script = r#"n=$(cat "$1"); sleep 0.01; echo $((n + 1)) > "$1""#;
    let runners: Vec<_> =
        (0..40).map(|_| Runner::start(run(&server.url(), "count", script).arg(count.path()))).collect();
    for runner in runners {
        let run = runner.finish();
        assert_eq!(run.code, Some(0), "{run:?}");
    }
    assert_eq!(count.text(), "40\n");
}

#[test]
fn a_run_without_a_server_is_unavailable() {
    let run = leasehold("run x --url redis://me:secret@127.0.0.1:1 -- true");
    assert_eq!((run.code, run.stdout.as_str()), (Some(69), ""), "{run:?}");
    assert!(run.stderr.starts_with("leasehold: cannot connect to redis://127.0.0.1:1: "), "{run:?}");
    assert!(run.stderr.contains("start the server, or check the host and the port"), "{run:?}");
    assert!(run.stderr.ends_with(" (the URL is that of --url or LEASEHOLD_URL)\n"), "{run:?}");
    assert!(!run.stderr.contains("secret") && run.stderr.lines().count() == 1, "{run:?}");
}

#[test]
fn a_run_with_a_wrong_password_is_unavailable() {
    let server = Server::builder(Flavour::Redis).password("right").start();
    let without = server.url().replace(":right@", "");
    let wrong = server.url().replace("right", "secret");
    for (url, advice) in [
        (
            without,
            "it wants a password: write redis://:PASSWORD@HOST:PORT or redis://USER:PASSWORD@HOST:PORT",
        ),
        (wrong, "the user or the password is wrong, or the user is disabled: check both in the URL"),
    ] {
        let run = leasehold_at(&url, "run x -- true");
        assert_eq!((run.code, run.stdout.as_str()), (Some(69), ""), "{run:?}");
        assert!(run.stderr.contains(advice), "{run:?}");
        assert!(!run.stderr.contains("secret") && run.stderr.lines().count() == 1, "{run:?}");
    }
    assert_eq!(leasehold_at(&server.url(), "run x -- true").code, Some(0));
}

/// As Redis did before it had `HELLO`.
#[test]
fn a_password_in_the_reply_of_the_server_is_not_in_the_error() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for client in listener.incoming() {
            let mut client = client.unwrap();
            let _ = client.read(&mut [0; 4096]);
            let _ = client.write_all(
                b"-ERR unknown command `HELLO`, with args beginning with: `3`, `AUTH`, `me`, `secret`, \r\n",
            );
            // Until the client closes: closing a socket with unread input discards the reply.
            let _ = client.read_to_end(&mut Vec::new());
        }
    });
    let run = leasehold_at(&format!("redis://me:secret@127.0.0.1:{port}"), "run x -- true");
    assert_eq!((run.code, run.stdout.as_str()), (Some(69), ""), "{run:?}");
    assert!(!run.stderr.contains("secret") && run.stderr.lines().count() == 1, "{run:?}");
    assert!(run.stderr.contains("RESP3") && run.stderr.contains("Redis from 6.0.6 on"), "{run:?}");
}

#[test]
fn a_key_that_is_not_a_lock_is_left_unchanged() {
    let server = Server::start(Flavour::Redis);
    assert_eq!(server.cli(&["SET", "x", "text"]), "OK");
    let run = leasehold_at(&server.url(), "run x -- true");
    assert_eq!(run.code, Some(69), "{run:?}");
    assert!(run.stderr.contains("choose another name"), "{run:?}");
    assert_eq!(server.cli(&["STRLEN", "x"]), 4);
}

#[test]
fn invalid_arguments_of_run_are_refused_with_the_reason() {
    let server = Server::start(Flavour::Redis);
    for (arguments, what) in [
        ("run x --url memory: -- true", "leasehold: `memory:` lives and dies with this one process"),
        (
            "run x --url memory:shared -- true",
            "write --url file: to lock on this machine, or give the --url of a server",
        ),
        (
            "run x --close -- true",
            "leasehold: --close is about the file of the lock, and a lock on redis://127.0.0.1:",
        ),
        (
            "run x --url nonsense://me:secret@host -- true",
            "leasehold: the URL scheme `nonsense:` is not known",
        ),
        (
            "run x --if-busy fail --wait 3s -- true",
            "leasehold: --wait limits the waiting, and --if-busy fail",
        ),
        (
            "run x --if-busy skip --wait 3s -- true",
            "leasehold: --wait limits the waiting, and --if-busy skip",
        ),
        ("run x --if-busy nothing -- true", "possible values: wait, fail, skip"),
        ("run a{}b -- true", "leasehold: the braces in the lock name"),
        ("run x", "required arguments were not provided:\n  <COMMAND>..."),
        ("run x --", "required arguments were not provided:\n  <COMMAND>..."),
        ("run -- true", "required arguments were not provided:\n  <COMMAND>..."),
        ("run", "required arguments were not provided:\n  <NAME>\n  <COMMAND>..."),
        ("run x --wait soon -- true", "write a time like 30s, 500ms, 1m30s or 2h"),
        ("run x --lease 199ms -- true", "the least is 200ms"),
        ("run x --lease 36501d -- true", "longer than a hundred years"),
        ("run x --max-hold 0 -- true", "the least is 200ms"),
    ] {
        let run = leasehold_at(&server.url(), arguments);
        assert_eq!((run.code, run.stdout.as_str()), (Some(2), ""), "{run:?}");
        assert!(run.stderr.contains(what) && !run.stderr.contains("secret"), "{arguments}: {run:?}");
    }
}

#[test]
fn a_grace_that_is_too_long_is_cut_with_a_warning() {
    let server = Server::start(Flavour::Redis);
    for (arguments, said) in [
        ("x --grace 10s", ""),
        ("x --lease 1s", ""),
        ("x --grace 11s", "leasehold: a grace of 11s is too long: 10s is used"),
        ("x --lease 3s --grace 2s", "leasehold: a grace of 2s is too long: 1s is used"),
        ("x --max-hold 1.5s --grace 2s", "leasehold: a grace of 2s is too long: 500ms is used"),
    ] {
        let run = finish(&mut run(&server.url(), arguments, "exit 0"));
        assert_eq!(run.code, Some(0), "{run:?}");
        assert!(run.stderr.starts_with(said) && run.stderr.is_empty() == said.is_empty(), "{run:?}");
    }
}

#[test]
fn a_closed_standard_error_does_not_hide_the_exit_code() {
    let mut broken = run("redis://127.0.0.1:1", "x", "true").stderr(Stdio::piped()).spawn().unwrap();
    drop(broken.stderr.take());
    assert_eq!(ended("the run", &mut broken).code(), Some(69));
}

#[test]
fn the_hidden_commands_do_nothing_when_called_directly() {
    for arguments in ["__warden", "__exec 1 99999999999999999999999 -- true", "__exec 1 1 -- echo no"] {
        let run = leasehold(arguments);
        assert_eq!((run.code, run.stdout.as_str()), (Some(2), ""), "{arguments}: {run:?}");
    }
    let late = format!("__exec {} 1 -- echo no", std::process::id());
    let run = leasehold(&late);
    assert_eq!((run.code, run.stdout.as_str()), (Some(76), ""), "{run:?}");
}
