//! How much `run` writes, and in which form.

use leasehold_testkit::server::{Flavour, Server};
use serde_json::Value;

use crate::command::{Finished, finish, leasehold_command};
use crate::runner::{Runner, TestDirectory, run};

fn holder(server: &Server) -> Runner {
    let holder = Runner::start(&mut run(&server.url(), "x", "echo ready; read end; exit 0"));
    holder.says("ready");
    holder
}

/// The objects on the standard error.
fn objects(run: &Finished) -> Vec<Value> {
    let object = |line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
    run.stderr.lines().map(object).collect()
}

fn events(run: &Finished) -> Vec<String> {
    let name = |object: Value| object["event"].as_str().expect("each object has it").to_owned();
    objects(run).into_iter().map(name).collect()
}

#[test]
fn quiet_leaves_errors_and_warnings() {
    let server = Server::start(Flavour::Redis);
    let holder = holder(&server);
    let skipped = finish(&mut run(&server.url(), "x -q --if-busy skip", "echo ran"));
    assert_eq!((skipped.code, skipped.stdout.as_str(), skipped.stderr.as_str()), (Some(0), "", ""));
    let failed = finish(&mut run(&server.url(), "x --quiet --wait 400ms", "echo ran"));
    assert_eq!(failed.code, Some(75), "{failed:?}");
    assert_eq!(failed.stderr.lines().count(), 1, "not that it waits: {failed:?}");
    assert!(failed.stderr.contains("stayed busy"), "{failed:?}");
    holder.finish();
    let warned = finish(&mut run(&server.url(), "x -q --lease 3s --grace 2s", "exit 0"));
    assert!(warned.stderr.contains("a grace of 2s is too long"), "{warned:?}");
    let home = TestDirectory::new();
    let own = finish(leasehold_command().env("HOME", home.path()).args(["run", "-q", "x", "true"]));
    assert!(own.stderr.starts_with("leasehold: locking on this machine only"), "{own:?}");
    let both = finish(&mut run(&server.url(), "x -q -v", "exit 0"));
    assert_eq!(both.code, Some(2), "{both:?}");
}

#[test]
fn verbose_says_when_the_lock_is_acquired_and_released() {
    let server = Server::start(Flavour::Redis);
    let run = finish(&mut run(&server.url(), "x -v", "echo inside >&2; exit 3"));
    assert_eq!(run.code, Some(3), "{run:?}");
    let lock = format!("the lock \"x\" on {}", server.url());
    let lines: Vec<_> = run.stderr.lines().collect();
    assert_eq!(lines.len(), 3, "{run:?}");
    assert!(lines[0].starts_with(&format!("leasehold: got {lock} after ")), "{run:?}");
    assert_eq!(lines[1], "inside");
    assert!(lines[2].starts_with(&format!("leasehold: released {lock} after ")), "{run:?}");
}

#[test]
fn json_has_one_object_for_each_event_and_the_last_one_has_the_exit_code() {
    let server = Server::start(Flavour::Redis);
    let ran = finish(&mut run(&server.url(), "x --json --fenced", "exit 3"));
    assert_eq!((ran.code, events(&ran)), (Some(3), vec!["acquired".to_owned(), "released".into()]));
    let [acquired, released] = <[Value; 2]>::try_from(objects(&ran)).unwrap();
    for object in [&acquired, &released] {
        assert_eq!((&object["lock"], &object["server"]), (&"x".into(), &server.url().into()), "{object}");
        assert!(object["text"].is_string(), "{object}");
    }
    assert_eq!(acquired["token"], 1, "{acquired}");
    assert!(acquired["waited_ms"].is_u64() && acquired["owner"].is_string(), "{acquired}");
    assert_eq!(released["exit_code"], 3, "{released}");
    assert!(released["held_ms"].is_u64(), "{released}");

    let holder = holder(&server);
    for (arguments, code, names) in [
        ("x --json --if-busy skip", 0, vec!["skipped"]),
        ("x --json --if-busy fail", 75, vec!["error"]),
        ("x --json --wait 400ms", 75, vec!["waiting", "error"]),
        ("x --json -q --wait 400ms", 75, vec!["error"]),
        ("y --json -q", 4, vec![]),
        ("y --json --url redis://me:secret@127.0.0.1:1", 69, vec!["error"]),
        ("y --json --max-hold 1s", 76, vec!["acquired", "ending", "error"]),
    ] {
        let script = if arguments.contains("max-hold") { "exec sleep 60" } else { "exit 4" };
        let run = finish(&mut run(&server.url(), arguments, script));
        assert_eq!(
            (run.code, events(&run)),
            (Some(code), names.iter().map(|&name| name.into()).collect()),
            "{arguments}"
        );
        assert!(!run.stderr.contains("secret"), "{run:?}");
        if let Some(last) = objects(&run).last() {
            assert_eq!(last["exit_code"], code, "{last}");
        }
    }
    drop(holder);
    let mut missing = crate::runner::run_plain(&server.url(), "y --json no-such-program");
    let missing = finish(&mut missing);
    assert_eq!(events(&missing), ["acquired", "error", "released"]);
    assert_eq!(missing.code, Some(127), "{missing:?}");
}

#[test]
fn an_outage_during_the_wait_is_reported_with_the_time_that_is_left() {
    let mut server = Server::start(Flavour::Redis);
    let holder = holder(&server);
    let limited = Runner::start(&mut run(&server.url(), "x --wait 60s", "echo ran"));
    let waiter = Runner::start(&mut run(&server.url(), "x --outage-limit 20s", "echo ran"));
    for run in [&limited, &waiter] {
        assert!(run.message().contains("waiting for the lock"));
    }
    server.kill();
    let message = waiter.message();
    assert!(message.starts_with("leasehold: the server is away ("), "{message}");
    assert!(message.ends_with(" Still waiting: it has 20s to come back (--outage-limit)"), "{message}");
    let message = limited.message();
    assert!(message.contains(" Still waiting, for 5") && message.ends_with(" more"), "{message}");
    server.restart();
    let waiter = waiter.finish();
    assert_eq!((waiter.code, waiter.stdout.as_str()), (Some(0), "ran\n"), "{waiter:?}");
    assert_eq!(limited.finish().code, Some(0));
    drop(holder);
}
