//! `leasehold ls`, `inspect`, `watch`, `wait` and `unlock`.

use leasehold_testkit::server::{Flavour, Server};
use nix::sys::signal::Signal;
use serde_json::Value;

use crate::command::{Finished, finish, leasehold_at, leasehold_command};
use crate::patience::eventually;
use crate::run_terminal::Terminal;
use crate::runner::{Runner, TestDirectory, is_locked, run};

/// A thread of some Java client.
const REDISSON: &str = "71b96ce8-2746-4f0e-9d1a-0f0d5a3b8c11:42";

/// A run that holds a lock until it is told to end.
pub(crate) fn holding(url: &str, arguments: &str) -> Runner {
    let runner = Runner::start(&mut run(url, arguments, "echo held; read line"));
    runner.says("held");
    runner
}

fn take_as_redisson(server: &Server, name: &str) {
    server.cli(&["HSET", name, REDISSON, "1"]);
    server.cli(&["PEXPIRE", name, "30000"]);
}

pub(crate) fn json(run: &Finished) -> Value {
    serde_json::from_str(&run.stdout).unwrap_or_else(|error| panic!("{error}: {run:?}"))
}

pub(crate) fn text<'a>(object: &'a Value, path: &str) -> &'a str {
    object.pointer(path).and_then(Value::as_str).unwrap_or_else(|| panic!("no {path}: {object}"))
}

/// A text with `TIME` in place of each time.
pub(crate) fn timeless(text: &str) -> String {
    let is_time = |word: &str| {
        let digits = word.trim_end_matches(|char: char| char.is_ascii_lowercase());
        digits.len() < word.len()
            && !digits.is_empty()
            && digits.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.')
    };
    let word = |word: &str| if is_time(word) { "TIME".to_owned() } else { word.to_owned() };
    let line = |line: &str| line.split(' ').map(word).collect::<Vec<_>>().join(" ");
    text.lines().map(line).collect::<Vec<_>>().join("\n")
}

#[test]
fn own_462_ls_prints_the_locks_that_are_held() {
    let server = Server::start(Flavour::Redis);
    assert_eq!(leasehold_at(&server.url(), "ls").stdout, "no lock is held\n");
    let runner = holding(&server.url(), "stock:7");
    let reader = holding(&server.url(), "prices --shared");
    take_as_redisson(&server, "theirs");
    server.cli(&["SET", "other", "value"]);

    let list = leasehold_at(&server.url(), "ls --json");
    assert_eq!((list.code, list.stderr.as_str()), (Some(0), ""), "{list:?}");
    let list = json(&list);
    assert_eq!((text(&list, "/server"), &list["complete"]), (&*server.url(), &true.into()));
    let host = text(&list, "/locks/1/holder/client/host").to_owned();
    let pid = |number: usize| list["locks"][number]["holder"]["client"]["pid"].to_string();
    let left = list["locks"][1]["lease_left_ms"].as_u64().expect("a lease");
    assert!((1..=30_000).contains(&left), "{left}");
    assert_eq!(
        (text(&list, "/locks/2/holder/owner"), &list["locks"][2]["holder"]["client"]),
        (REDISSON, &Value::Null)
    );

    let table = leasehold_at(&server.url(), "ls");
    assert_eq!((table.code, table.stderr.as_str()), (Some(0), ""), "{table:?}");
    let holders = [
        format!("leasehold-run (host {host}, pid {})", pid(0)),
        format!("leasehold-run (host {host}, pid {})", pid(1)),
        REDISSON.to_owned(),
    ];
    let width = holders.iter().map(|holder| holder.chars().count()).max().expect("three");
    let expected = [
        format!("NAME     KIND  {:width$}  LEASE LEFT", "HOLDER"),
        format!("prices   read  {:width$}  TIME", holders[0]),
        format!("stock:7  lock  {:width$}  TIME", holders[1]),
        format!("theirs   lock  {:width$}  TIME", holders[2]),
    ];
    assert_eq!(timeless(&table.stdout), expected.join("\n"));
    assert!(table.stdout.lines().all(|line| line.chars().count() <= 80), "{table:?}");

    let some = leasehold_at(&server.url(), "ls s* --json");
    assert_eq!(
        (json(&some)["locks"].as_array().map(Vec::len), text(&json(&some), "/locks/0/name")),
        (Some(1), "stock:7")
    );
    let within = leasehold_at(&server.url(), "ls --json --namespace stock:");
    assert_eq!(
        (json(&within)["locks"].as_array().map(Vec::len), text(&json(&within), "/locks/0/name")),
        (Some(1), "7")
    );
    drop((runner, reader));
}

#[test]
fn own_463_inspect_prints_what_is_known_and_tells_by_its_exit_code_whether_it_is_held() {
    let server = Server::start(Flavour::Redis);
    let inspect = |arguments: &str| leasehold_at(&server.url(), &format!("inspect {arguments}"));
    let free = inspect("stock:7");
    assert_eq!(
        (free.code, free.stdout.as_str(), free.stderr.as_str()),
        (Some(1), "\"stock:7\" is free\n", "")
    );
    assert_eq!(json(&inspect("stock:7 --json"))["held"], false);

    let runner = holding(&server.url(), "stock:7 --fenced");
    let object = json(&inspect("stock:7 --json"));
    let client = |field: &str| text(&object, &format!("/holder/client/{field}")).to_owned();
    let expected = format!(
        "\"stock:7\" is held\n  \
         kind: lock\n  \
         holder: leasehold-run (host {}, pid {})\n  \
         owner: {}\n  \
         program: leasehold, leasehold {}\n  \
         client: made TIME ago, by the clocks of both machines\n  \
         address: {}\n  \
         entered: once\n  \
         lease: ends in TIME unless renewed\n  \
         waiters: none known\n  \
         last token: 1",
        client("host"),
        object["holder"]["client"]["pid"],
        text(&object, "/holder/owner"),
        env!("CARGO_PKG_VERSION"),
        client("address"),
    );
    let held = inspect("stock:7");
    assert_eq!((held.code, timeless(&held.stdout)), (Some(0), expected), "{held:?}");
    assert_eq!((&object["waiters"], &object["last_token"]), (&0.into(), &1.into()));
    drop(runner);

    // The queue of a fair lock.
    let first = holding(&server.url(), "fair --fair");
    let second = Runner::start(&mut run(&server.url(), "fair --fair", "true"));
    eventually("it waits", || {
        json(&inspect("fair --json"))["queue"].as_array().is_some_and(|queue| queue.len() == 1)
    });
    let text = inspect("fair").stdout;
    assert!(text.contains("  waiters: 1 or more\n  waiter 1: leasehold-run (host "), "{text}");
    drop((first, second));

    // Of a client of Redisson its id is known.
    take_as_redisson(&server, "theirs");
    let theirs = inspect("theirs").stdout;
    assert!(theirs.contains(&format!("  holder: {REDISSON}\n")) && !theirs.contains("program"), "{theirs}");
}

#[test]
fn own_464_unlock_frees_a_lock_and_says_whether_it_was_held() {
    let server = Server::start(Flavour::Redis);
    let unlock = |arguments: &str| leasehold_at(&server.url(), &format!("unlock {arguments}"));
    let free = unlock("stock:7 --yes");
    assert_eq!((free.code, free.stdout.as_str()), (Some(1), "\"stock:7\" is free\n"));

    let runner = Runner::start(&mut run(&server.url(), "stock:7 --lease 2s", "echo held; exec sleep 60"));
    runner.says("held");
    let unasked = unlock("stock:7");
    assert_eq!((unasked.code, unasked.stdout.as_str()), (Some(2), ""), "{unasked:?}");
    let refused = "leasehold: the lock \"stock:7\" is held by leasehold-run (host ";
    assert!(unasked.stderr.starts_with(refused) && unasked.stderr.contains("say --yes"), "{unasked:?}");
    assert!(is_locked(&server, "stock:7"));
    let freed = unlock("stock:7 --yes");
    assert_eq!(
        (freed.code, freed.stdout.as_str(), freed.stderr.as_str()),
        (Some(0), "\"stock:7\" was freed\n", "")
    );
    // Its holder notices.
    assert_eq!(runner.finish().code, Some(76));

    // A waiter of the plain lock gets it at once, not when the lease is over.
    server.cli(&["HSET", "long", REDISSON, "1"]);
    server.cli(&["PEXPIRE", "long", "3600000"]);
    let waiter = Runner::start(&mut run(&server.url(), "long", "true"));
    eventually("it waits", || {
        server.cli(&["PUBSUB", "NUMSUB", "redisson_lock__channel:{long}"]).elements()[1] == 1
    });
    assert_eq!(unlock("long --yes").code, Some(0));
    assert_eq!(waiter.finish().code, Some(0));

    let fair = holding(&server.url(), "fair --fair");
    let reader = holding(&server.url(), "rw --shared");
    let writer = holding(&server.url(), "rw2 --exclusive");
    server.cli(&["SET", "theirs", "some token", "PX", "30000"]);
    for name in ["fair", "rw", "rw2", "theirs"] {
        let freed = unlock(&format!("{name} --yes --json"));
        assert_eq!(
            (freed.code, freed.stdout.as_str()),
            (Some(0), &*format!("{{\"freed\":true,\"name\":\"{name}\"}}\n"))
        );
        assert!(!is_locked(&server, name), "{name}");
    }
    drop((fair, reader, writer));
}

#[test]
fn own_465_unlock_asks_at_a_terminal_and_does_nothing_without_a_yes() {
    let server = Server::start(Flavour::Redis);
    for (answer, said, code) in [("n", "stays held", 1), ("", "stays held", 1), ("y", "was freed", 0)] {
        take_as_redisson(&server, "stock:7");
        let mut terminal = Terminal::run(&server, "$leasehold unlock stock:7");
        terminal.shows("Free it? [y/N]");
        terminal.types(&format!("{answer}\n"));
        let (shown, ended) = terminal.finish();
        assert_eq!(ended, Some(code), "{shown}");
        assert!(shown.contains(&format!("is held by {REDISSON}, and its lease ends in ")), "{shown}");
        assert!(shown.contains("cuts that holder off. Work under it may still be running"), "{shown}");
        assert!(shown.contains(said), "{shown}");
        assert_eq!(is_locked(&server, "stock:7"), code == 1);
    }

    // Others read, too.
    let readers = [holding(&server.url(), "rw --shared"), holding(&server.url(), "rw --shared")];
    let mut terminal = Terminal::run(&server, "$leasehold unlock rw");
    terminal.shows("cuts all 2 holders off");
    terminal.types("n\n");
    assert_eq!(terminal.finish().1, Some(1));
    drop(readers);
}

#[test]
fn own_482_unlock_frees_no_other_holder_than_the_one_that_it_has_shown() {
    let server = Server::start(Flavour::Redis);
    let other = REDISSON.replace(":42", ":43");
    let answered = |change: &[&str]| {
        take_as_redisson(&server, "stock:7");
        let mut terminal = Terminal::run(&server, "$leasehold unlock stock:7");
        terminal.shows("Free it? [y/N]");
        server.cli(&["DEL", "stock:7"]);
        server.cli(change);
        terminal.types("y\n");
        let (shown, code) = terminal.finish();
        assert_eq!(code, Some(1), "{shown}");
        shown
    };
    for (change, now) in [
        (&["HSET", "stock:7", &*other, "1"][..], format!("is held by {other}, and never expires")),
        (&["SET", "stock:7", REDISSON], format!("is held by {REDISSON}, and never expires")),
    ] {
        let shown = answered(change);
        assert!(shown.contains("nothing was freed, because the holder has changed: now the lock"), "{shown}");
        assert!(shown.contains(&now), "{shown}");
        assert!(is_locked(&server, "stock:7"));
        server.cli(&["DEL", "stock:7"]);
    }
    assert!(answered(&["DEL", "stock:7"]).contains("\"stock:7\" is free"));
}

#[test]
fn own_466_wait_ends_when_the_lock_is_free_and_does_not_acquire_it() {
    let server = Server::start(Flavour::Redis);
    assert_eq!(leasehold_at(&server.url(), "wait stock:7").code, Some(0));
    server.cli(&["RPUSH", "list", "a"]);
    let other = leasehold_at(&server.url(), "wait list");
    assert_eq!((other.code, other.stdout.as_str()), (Some(69), ""), "{other:?}");
    assert!(other.stderr.contains("the key of that name holds something else"), "{other:?}");
    let mut holder = holding(&server.url(), "stock:7");
    let over = leasehold_at(&server.url(), "wait stock:7 --wait 300ms");
    assert_eq!((over.code, over.stdout.as_str()), (Some(75), ""), "{over:?}");
    let said = "leasehold: the lock \"stock:7\" is held by leasehold-run (host ";
    assert!(over.stderr.starts_with(said) && over.stderr.contains("and was not free for 300ms"), "{over:?}");
    let mut monitor = server.monitor();
    let waiting =
        Runner::start(leasehold_command().env("LEASEHOLD_URL", server.url()).args(["wait", "stock:7"]));
    let mut sent = Vec::new();
    eventually("it looks three times", || {
        sent.extend(monitor.take_sent());
        sent.iter().filter(|line| line.starts_with("\"HLEN\"")).count() >= 3
    });
    holder.tell("end\n");
    assert_eq!(holder.finish().code, Some(0));
    let waited = waiting.finish();
    assert_eq!((waited.code, waited.stdout.as_str(), waited.stderr.as_str()), (Some(0), "", ""));
    sent.extend(monitor.take_sent());
    assert!(!sent.iter().any(|line| line.contains("SUBSCRIBE") || line.starts_with("\"SET\"")), "{sent:?}");
}

#[test]
fn own_467_watch_prints_each_change_as_a_line_until_a_signal() {
    let server = Server::start(Flavour::Redis);
    let mut command = leasehold_command();
    command.env("LEASEHOLD_URL", server.url()).args(["watch", "--interval", "100ms"]);
    let watch = Runner::start(&mut command);
    take_as_redisson(&server, "a");
    watch.says(&format!("acquired lock \"a\" {REDISSON}"));
    let other = REDISSON.replace(":42", ":43");
    server.cli(&["EVAL", "redis.call('del', 'a') redis.call('hset', 'a', ARGV[1], 1)", "0", &other]);
    watch.says(&format!("changed lock \"a\" {other}"));
    server.cli(&["DEL", "a"]);
    watch.says(&format!("released lock \"a\" {other}"));
    watch.signal(Signal::SIGINT);
    let ended = watch.finish();
    assert_eq!((ended.code, ended.stdout.as_str(), ended.stderr.as_str()), (Some(130), "", ""));
}

#[test]
fn own_468_watch_draws_on_a_terminal_and_restores_it() {
    let server = Server::start(Flavour::Redis);
    for (name, shown) in [("", "NAME"), ("stock:7", "kind: lock")] {
        take_as_redisson(&server, "stock:7");
        let line = format!("stty rows 24 cols 80; $leasehold watch {name} --interval 100ms; echo code $?");
        let mut terminal = Terminal::run(&server, &line);
        terminal.shows(shown);
        server.cli(&["DEL", "stock:7"]);
        terminal.shows(if name.is_empty() { "no lock is held" } else { "\"stock:7\" is free" });
        terminal.types("\x03");
        let (text, _) = terminal.finish();
        assert!(text.contains("code 130"), "{text:?}");
        let restored = text.find("\x1b[?25h\x1b[?1049l").expect("the first screen is back");
        assert!(text.find("\x1b[?1049h\x1b[?25l").is_some_and(|begun| begun < restored), "{text:?}");
        assert!(text[restored..].contains("code 130"), "{text:?}");
    }
}

#[test]
fn own_469_where_a_lock_cannot_be_looked_at_or_freed_the_reason_is_told() {
    let memory =
        "leasehold: `memory:` lives inside one process, so there is nothing of it to be seen from here";
    for arguments in ["ls", "inspect x", "watch", "wait x", "unlock x --yes"] {
        let run = leasehold_at("memory:", arguments);
        assert_eq!((run.code, run.stdout.as_str()), (Some(2), ""), "{run:?}");
        assert!(run.stderr.starts_with(memory), "{run:?}");
        let away = leasehold_at("redis://me:secret@127.0.0.1:1", arguments);
        assert_eq!((away.code, away.stdout.as_str()), (Some(69), ""), "{away:?}");
        assert!(away.stderr.starts_with("leasehold: cannot connect to redis://127.0.0.1:1"), "{away:?}");
        assert_eq!(leasehold_at("nonsense://host", arguments).code, Some(2));
        let empty = finish(leasehold_command().env("LEASEHOLD_URL", "").args(arguments.split(' ')));
        assert_eq!(empty.code, Some(2), "{empty:?}");
    }
    let error = leasehold_at("memory:", "ls --json").stderr;
    let error: Value = serde_json::from_str(&error).expect("one object");
    assert_eq!((&error["event"], &error["exit_code"]), (&"error".into(), &2.into()));

    // A lock on files lasts as long as its process.
    let directory = TestDirectory::new();
    let runner = holding(&directory.url(), "stock:7");
    let table = leasehold_at(&directory.url(), "ls").stdout;
    assert!(table.contains("\nstock:7  lock  ") && table.trim_end().ends_with("  none"), "{table}");
    let run = leasehold_at(&directory.url(), "unlock stock:7 --yes");
    assert_eq!((run.code, run.stdout.as_str()), (Some(2), ""), "{run:?}");
    let object = json(&leasehold_at(&directory.url(), "inspect stock:7 --json"));
    assert_eq!(object["lease_left_ms"], Value::Null);
    let pid = &object["holder"]["client"]["pid"];
    assert!(pid.is_u64() && run.stderr.contains(&format!("end that, `kill {pid}`")), "{run:?}");
    drop(runner);
}
