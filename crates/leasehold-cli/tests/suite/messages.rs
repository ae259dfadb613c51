//! The messages that users see when something goes wrong, printed anew and compared with `docs/messages.md`.
//!
//! `LEASEHOLD_GOLDEN=write` writes the page. Ports, owners and measured times differ from run to run: the page has `PORT`,
//! `OWNER` and `TIME` in their place.

use std::fmt::Write as _;
use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::time::Duration;

use leasehold::{BackOff, Client, Fence, MultiLock, Owner};
use leasehold_testkit::certificates::{self, Certificates, Identity};
use leasehold_testkit::server::{Flavour, Server};
use nix::sys::signal::Signal;

use crate::command::{Finished, finish, leasehold, leasehold_at, leasehold_command, program};
use crate::patience::eventually;
use crate::runner::{Runner, TestDirectory, TestFile, is_locked, run, run_plain};

const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/messages.md");

#[test]
fn every_message_is_as_docs_messages_md_says() {
    let mut page = Page::default();
    page.section("Connecting");
    connecting(&mut page);
    page.section("Connecting with TLS");
    securing(&mut page);
    page.section("Errors that a server replies with");
    replies(&mut page);
    page.section("URLs");
    urls(&mut page);
    page.section("Locks and their guards");
    locks(&mut page);
    page.section("Semaphores, latches, tokens and several locks");
    others(&mut page);
    page.section("The command: before the program runs");
    before_the_program(&mut page);
    page.section("The command: while the program runs");
    while_the_program_runs(&mut page);

    page.section("The command: looking at locks");
    looking_at_locks(&mut page);

    let text = page.finish();
    if std::env::var("LEASEHOLD_GOLDEN").is_ok_and(|golden| golden == "write") {
        std::fs::write(PAGE, &text).expect("the page can be written");
    }
    let written = std::fs::read_to_string(PAGE).unwrap_or_default();
    let differs = text.lines().zip(written.lines()).find(|(now, before)| now != before);
    assert!(
        text == written,
        "docs/messages.md differs, first in {differs:#?}: if the new text is right, run this test with LEASEHOLD_GOLDEN=write"
    );
}

/// The page, as far as it is written.
#[derive(Default)]
struct Page(String);

impl Page {
    fn section(&mut self, title: &str) {
        writeln!(self.0, "\n## {title}\n\n| Situation | Message |\n|---|---|").expect("a string grows");
    }

    /// One row. The message is escaped for a table of Markdown.
    fn row(&mut self, situation: &str, message: &str) {
        self.raw(situation, &plain(message.trim_end()));
    }

    /// One row whose message is the same in each run.
    fn raw(&mut self, situation: &str, message: &str) {
        let message = literal(message).replace('|', "\\|").replace('\n', "<br>");
        writeln!(self.0, "| {situation} | {message} |").expect("a string grows");
    }

    /// A failed operation of the library.
    fn error<T, E: std::error::Error>(&mut self, situation: &str, failed: Result<T, E>) {
        let Err(error) = failed else { panic!("{situation}: no error") };
        assert!(error.source().is_none(), "{error}: a cause is in the text or in the source, not in both");
        self.row(situation, &error.to_string());
    }

    /// The last message of a command that did not run its program, or not to its end.
    fn failed(&mut self, situation: &str, run: &Finished) {
        assert_ne!(run.code, Some(0), "{situation}: {run:?}");
        self.row(situation, run.stderr.lines().last().unwrap_or_default());
    }

    fn finish(self) -> String {
        let head = "# Messages\n\nWhat the library and the command say when something goes wrong. A message says what \
                    happened, to which lock, on which\nserver, and what to do. No message contains a password. Match on \
                    variants, not on texts: texts may change.\n\nA test prints this page anew and compares it: \
                    `LEASEHOLD_GOLDEN=write cargo test -p leasehold-cli every_message`.\n";
        format!("{head}{}", self.0)
    }
}

/// Escapes what Markdown would take for HTML or for a link, such as `<TIME>` and `[::1]`, outside of code.
fn literal(message: &str) -> String {
    let parts = message.split('`').enumerate().map(|(n, part)| match n % 2 {
        0 => part.replace('<', "\\<").replace('[', "\\["),
        _ => part.to_owned(),
    });
    parts.collect::<Vec<_>>().join("`")
}

/// The text with `PORT`, `OWNER`, `HOST`, `PID` and `TIME` for what differs from run to run.
fn plain(text: &str) -> String {
    let (mut words, mut before) = (Vec::new(), "");
    for word in text.split(' ') {
        let core = word.trim_matches(|c: char| !c.is_alphanumeric());
        let is_owner = core.len() > 36 && core.as_bytes()[36] == b':' && core.matches('-').count() == 4;
        let number = core.trim_end_matches(|c: char| c.is_alphabetic());
        let is_time = ["ns", "µs", "ms", "s"].contains(&&core[number.len()..])
            && number.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.')
            && !number.is_empty();
        let shown = if is_owner {
            word.replace(core, "OWNER")
        } else if is_time {
            word.replace(core, "TIME")
        } else if ["(host", "pid"].contains(&before) {
            word.replace(core, if before == "pid" { "PID" } else { "HOST" })
        } else {
            word.to_owned()
        };
        words.push(without_port(&shown));
        before = word;
    }
    words.join(" ")
}

/// `127.0.0.1:PORT` for an address of a test server, whose port is drawn.
fn without_port(word: &str) -> String {
    let Some((before, after)) = word.split_once("127.0.0.1:") else { return word.to_owned() };
    let rest = after.trim_start_matches(|c: char| c.is_ascii_digit());
    if rest.len() == after.len() {
        return word.to_owned();
    }
    format!("{before}127.0.0.1:PORT{rest}")
}

fn connect(url: &str) -> Client {
    Client::connect(url).block().expect("the server is up")
}

/// The error of connecting to a server with this configuration.
fn refused(url: &str) -> Result<Client, leasehold::ConnectError> {
    Client::connect(url).connect_timeout(Duration::from_secs(5)).block()
}

fn connecting(page: &mut Page) {
    page.error("no server at that port", refused("redis://127.0.0.1:1"));
    page.error("an unknown host", refused("redis://no-such-host..invalid"));
    page.error("no socket at that path", refused("redis+unix:///no/such/socket"));
    let server = Server::builder(Flavour::Redis).password("right").start();
    page.error("a server that wants a password", refused(&server.url().replace(":right@", "")));
    page.error("a wrong password", refused(&server.url().replace("right", "wrong")));
    page.error("a database that the server does not have", refused(&format!("{}/99", server.url())));
    page.error(
        "another kind of server on that port",
        refused(&answering(b"HTTP/1.1 400 Bad Request\r\n\r\n")),
    );
    page.error("a server that wants TLS", refused(&answering([0x15, 3, 3, 0, 2, 2, 70])));
    page.error("a server that closes the connection", refused(&answering(b"")));
    page.error("a server before RESP3", refused(&answering(b"-ERR unknown command `HELLO`\r\n")));
    let replica = Server::builder(Flavour::Redis).config("replicaof 127.0.0.1 1").start();
    page.error("a replica", refused(&replica.url()));
    let cluster = Server::builder(Flavour::Redis).config("cluster-enabled yes").start();
    page.error("a node of a cluster", refused(&cluster.url()));
    let full = Server::start(Flavour::Redis);
    // Kept open: the server has no connection left for another client.
    let mut operator = full.connect();
    operator.call(&["CONFIG", "SET", "maxclients", "1"]).expect("the server accepts it");
    page.error("no connection left (`maxclients`)", refused(&full.url()));
    let short = Client::connect("memory:").watchdog(Duration::from_millis(5)).block();
    page.error("an option out of its range", short);
}

/// A server with one certificate after the other, and clients with one mistake after the other.
fn securing(page: &mut Page) {
    let certificates = Certificates::new();
    let start = |identity, line: &str| {
        Server::builder(Flavour::Redis).tls(certificates.of_server(&identity)).config(line).start()
    };
    let url = |server: &Server| certificates::url(server.port(), &[("ca", certificates.ca())]);
    let foreign = start(certificates.foreign(), "");
    page.error("a certificate of an unknown CA", refused(&url(&foreign)));
    let elsewhere = start(certificates.elsewhere(), "");
    page.error("a certificate for another name", refused(&url(&elsewhere)));
    let nameless = start(certificates.nameless(), "");
    page.error("a certificate for no name", refused(&url(&nameless)));
    let expired = start(certificates.expired(), "");
    page.error("a certificate that has expired", refused(&url(&expired)));
    let mutual = start(certificates.server(), "tls-auth-clients yes");
    page.error("no client certificate", refused(&url(&mutual)));
    let older = "tls-auth-clients yes\ntls-protocols TLSv1.2";
    page.error("no client certificate, TLS 1.2", refused(&url(&start(certificates.server(), older))));
    let Identity { cert, key } = certificates.foreign();
    let options = [("ca", certificates.ca()), ("cert", &cert), ("key", &key)];
    page.error("a client certificate of another CA", refused(&certificates::url(mutual.port(), &options)));
    let plain = Server::start(Flavour::Redis);
    let limit = Duration::from_millis(500);
    page.error("a server without TLS", Client::connect(url(&plain)).connect_timeout(limit).block());
    page.error(
        "another kind of server",
        refused(&answering(b"HTTP/1.1 400\r\n\r\n").replace("redis:", "rediss:")),
    );
    page.error("`redis://` for a server with TLS", refused(&format!("redis://127.0.0.1:{}", mutual.port())));
    for (what, path) in
        [("a file that is not there", "/no/such/ca.pem"), ("a file without a certificate", "/dev/null")]
    {
        page.error(what, refused(&format!("rediss://127.0.0.1:{}?ca={path}", mutual.port())));
    }
    page.error("a server that is not to be verified", refused("rediss://127.0.0.1:1?verify=none"));
}

/// The codes of a server, as they are reported of its reply to the first request.
fn replies(page: &mut Page) {
    for reply in [
        "LOADING Redis is loading the dataset in memory",
        "BUSY Redis is busy running a script.",
        "READONLY You can't write against a read only replica.",
        "MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.",
        "MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist to disk.",
        "OOM command not allowed when used memory > 'maxmemory'.",
        "NOREPLICAS Not enough good replicas to write.",
        "CLUSTERDOWN Hash slot not served",
        "TRYAGAIN Multiple keys request during rehashing of slot",
        "NOAUTH Authentication required.",
        "WRONGPASS invalid username-password pair or user is disabled.",
        "MOVED 3999 127.0.0.1:6381",
        "NOPERM this user has no permissions to run the 'hello' command",
    ] {
        let code = reply.split(' ').next().unwrap_or_default();
        page.error(&format!("`{code}`"), refused(&answering(format!("-{reply}\r\n"))));
    }
}

/// The URL of a server that replies with these bytes to everything.
fn answering(reply: impl Into<Vec<u8>>) -> String {
    let reply = reply.into();
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let port = listener.local_addr().expect("an address").port();
    std::thread::spawn(move || {
        for client in listener.incoming() {
            let mut client = client.expect("a connection");
            let _ = client.read(&mut [0; 4096]);
            let _ = client.write_all(&reply);
            let _ = client.shutdown(std::net::Shutdown::Write);
            // Closing a socket with unread input would discard the reply.
            let _ = client.read_to_end(&mut Vec::new());
        }
    });
    format!("redis://me:secret@127.0.0.1:{port}")
}

fn urls(page: &mut Page) {
    for url in [
        "redis://host:notaport",
        "redis://me@host:notaport",
        "redis://::1",
        "redis:host",
        "redis://",
        "redis://host/first",
        "redis://host?db=2",
        "redis://host?timeout=3s",
        "redis://u:p@ss:w/d@host",
        "redis+unix://relative.sock",
        "redis://ho st",
        "redis://a,b",
        "redis://host#insecure",
        "redis://me:secret@host?password_file=/run/secret",
        "redis://host?ca=/etc/ca.pem",
        "rediss://host?cert=/etc/client.pem",
        "rediss://host?verify=no",
        "redis-sentinel://host",
        "redis+sentinel://host/main/x",
        "redis+sentinel://host/main?sentinel_tls=yes",
        "redis+cluster://host",
        "etcd://host?ca=/etc/ca.pem",
        "localhost:7481",
        "localhost",
        "http://host",
        "memory://host",
    ] {
        page.error(&format!("`{url}`"), refused(url));
    }
}

fn locks(page: &mut Page) {
    let mut server = Server::start(Flavour::Redis);
    let client = Client::connect(server.url()).anonymous().block().expect("the server is up");
    let wait = Duration::from_millis(30);

    let held = client.lock("job").acquire().block().expect("it is free");
    let labelled = Client::connect(server.url()).label("web-3").block().expect("the server is up");
    let of_another = labelled.lock("other job").acquire().block().expect("it is free");
    // Long enough for the holder to be looked up, which takes a tenth of the wait at most.
    let long = Duration::from_secs(1);
    page.error("held by another client", client.lock("other job").acquire().wait(long).block());
    drop(of_another);
    page.error(
        "held by an anonymous client",
        connect(&server.url()).lock("job").acquire().wait(wait).block(),
    );
    page.error("held by an owner of the same client", client.lock("job").acquire().wait(wait).block());
    let twice = client.lock("job").non_reentrant();
    page.error("entered twice, not re-entrant", twice.acquire().as_owner(held.owner()).block());
    let foreign = connect(&server.url()).lock("job").acquire().as_owner(held.owner()).block();
    page.error("in the name of an owner of another client", foreign);
    page.error(
        "released by an owner that does not hold it",
        client.lock("job").as_owner(Owner::number(7)).release().block(),
    );
    held.release().block().expect("it is held");

    let rw = client.rw_lock("prices");
    let one = rw.read().acquire().block().expect("it is free");
    page.error("a reader that wants to write", rw.write().acquire().as_owner(one.owner()).block());
    let _two = rw.read().acquire().block().expect("it is only read");
    page.error("an upgrade beside other readers", one.try_upgrade().block());

    let expired = client.lock("job").acquire().lease(Duration::from_millis(50)).block().expect("it is free");
    expired.lost().block();
    page.error("work under a lost lock", blocked(expired.run(async {})));
    page.error("an extension of a lost lock", expired.extend(Duration::from_secs(1)).block());
    page.error("a re-entry of a lost lock", expired.reenter().block());
    page.error("a release after the lease", expired.release().block());
    let gone = client.lock("job").acquire().lease(Duration::from_secs(60)).block().expect("it is free");
    assert_eq!(server.cli(&["DEL", "job"]), 1);
    page.error("a release after the key was deleted", gone.release().block());
    let forced = client.lock("job").acquire().block().expect("it is free");
    client.lock("job").force_unlock().block().expect("it is held");
    page.error("a release after `force_unlock`", forced.release().block());

    let short = client.lock("job").acquire().lease(Duration::from_millis(5)).block();
    page.error("a lease that is too short", short);
    let long = client.lock("job").acquire().lease(Duration::from_secs(u64::MAX / 4)).block();
    page.error("a lease that is too long", long);
    let forgetful = Client::connect("memory:").token_retention(Duration::from_secs(60)).block();
    let kept = forgetful.expect("it is longer than 30 s").fenced_lock("job").acquire();
    page.error("a token whose counter would expire before", kept.lease(Duration::from_secs(90)).block());
    page.error("no name", client.lock("").is_locked().block());
    page.error("a name with a brace", client.lock("a{b").is_locked().block());
    page.error("a name that is only a tag", client.lock("{b}").is_locked().block());
    page.error("a name that is too long", client.lock("x".repeat(70_000)).is_locked().block());

    assert_eq!(server.cli(&["SET", "text", "value"]), "OK");
    page.error("a key that is not a lock", client.lock("text").acquire().wait(wait).block());
    page.error("a query about such a key", client.lock("text").holder().block());
    assert_eq!(server.cli(&["CONFIG", "SET", "maxmemory", "1"]), "OK");
    page.error("a server without memory", client.lock("job").try_acquire().block());
    assert_eq!(server.cli(&["CONFIG", "SET", "maxmemory", "0"]), "OK");
    assert_eq!(server.cli(&["REPLICAOF", "127.0.0.1", "1"]), "OK");
    let replica = eventual(|| client.lock("job").try_acquire().block().map(drop), "replica");
    page.error("a server that became a replica", replica);
    assert_eq!(server.cli(&["REPLICAOF", "NO", "ONE"]), "OK");
    eventually("it accepts locks again", || client.lock("free").try_acquire().block().is_ok());

    let unreleased = client.lock("last").acquire().block().expect("it is free");
    let impatient = Client::connect(server.url()).outage_limit(wait).block().expect("it is up");
    let slow =
        Client::connect(server.url()).response_timeout(Duration::from_millis(50)).block().expect("it is up");
    let unknown = slow.lock("unknown").acquire().block().expect("it is free");
    server.pause();
    page.error("a release without a reply", unknown.release().block());
    // The I/O thread reports the end of the connection a moment after the caller has its error.
    let ended = eventual(|| slow.lock("job").try_acquire().block().map(drop), "reconnecting");
    page.error("after a connection without replies was ended", ended);
    page.error("under tokio's paused clock", under_a_paused_clock(&server));
    server.kill();
    let down = eventual(|| client.lock("job").try_acquire().block().map(drop), "refused");
    page.error("no connection", down);
    page.error("a wait that ends in an outage", client.lock("job").acquire().wait(wait).block());
    page.error("a wait without a limit in a long outage", impatient.lock("job").acquire().block());
    page.error("a ping without a connection", client.ping().block());
    let lazy = Client::connect(server.url()).lazy().expect("it waits for no server");
    let early = eventual(|| lazy.lock("job").try_acquire().block().map(drop), "refused");
    page.error("before the first connection of a lazy client", early);
    page.error("a query without a connection", client.lock("job").is_locked().block());
    page.error("an extension without a connection", unreleased.extend(Duration::from_secs(1)).block());
    client.shutdown(Duration::ZERO).block();
    page.error("a client that is shut down", client.lock("job").acquire().block());
    page.error("a release after the shutdown", unreleased.release().block());
}

/// An acquire whose wait a paused clock jumps over, because the server does not reply at once.
fn under_a_paused_clock(server: &Server) -> Result<leasehold::Guard, leasehold::AcquireError> {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_all().start_paused(true).build().expect("a runtime");
    server.resume();
    runtime.block_on(async {
        let client = Client::connect(server.url()).await.expect("the server is up");
        server.pause();
        let acquired = client.lock("job").acquire().wait(Duration::from_secs(60)).await;
        server.resume();
        acquired
    })
}

/// Repeats a failing call until its text contains `word`.
fn eventual<E: std::fmt::Display>(call: impl Fn() -> Result<(), E>, word: &str) -> Result<(), E> {
    let mut last = call();
    eventually(word, || {
        let is_there = last.as_ref().is_err_and(|error| error.to_string().contains(word));
        if !is_there {
            last = call();
        }
        is_there
    });
    last
}

fn blocked<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime").block_on(work)
}

fn others(page: &mut Page) {
    let server = Server::start(Flavour::Redis);
    let client = connect(&server.url());
    let wait = Duration::from_millis(30);
    let downloads = client.semaphore("downloads");
    page.error("a semaphore whose permits were never set", downloads.acquire(1).wait(wait).block());
    downloads.try_set_permits(1).block().expect("the server is up");
    page.error("too few free permits", downloads.acquire(2).wait(wait).block());
    page.error("too many permits", downloads.try_set_permits(u32::MAX).block());
    let leased = client.leased_semaphore("licences");
    page.error("a leased semaphore whose permits were never set", leased.acquire(1).wait(wait).block());
    leased.try_set_permits(1).block().expect("the server is up");
    page.error("zero leased permits", leased.acquire(0).block());
    let permit = leased.acquire(1).block().expect("one is free").forget();
    leased.release(permit.clone()).block().expect("it is acquired");
    page.error("a permit that is not acquired", leased.release(permit).block());
    let latch = client.latch("parts");
    latch.try_set_count(1).block().expect("the server is up");
    page.error("a latch that stays closed", latch.opened().wait(wait).block());
    let fence = Fence::starting_at(10);
    page.error("a stale token", fence.check(3));
    client.fenced_write("balance", 10, "1").block().expect("the server is up");
    page.error("a write with a stale token", client.fenced_write("balance", 3, "2").block());
    page.error("a lock twice in a multi lock", client.multi_lock(["a", "a"]).acquire().block());
    page.error("a multi lock without locks", MultiLock::new([]).acquire().block());
    let _held = client.lock("b").acquire().block().expect("it is free");
    page.error("a busy member of a multi lock", client.multi_lock(["a", "b"]).acquire().wait(wait).block());
    let spin = client.spin_lock("b").back_off(BackOff::constant(Duration::from_millis(5)));
    page.error("a busy spin lock", spin.acquire().wait(wait).block());
    let memory = connect("memory:");
    page.error("an operation that the engine does not have", memory.fenced_write("key", 1, "v").block());
}

fn looking_at_locks(page: &mut Page) {
    page.failed("an engine inside another process", &leasehold("ls --url memory:"));
    page.failed("no server at that port", &leasehold("inspect job --url redis://me:secret@127.0.0.1:1"));
    let usage = leasehold("watch --interval 1ms").stderr;
    page.raw("an interval that is too short", usage.lines().next().unwrap_or_default());
    let server = Server::start(Flavour::Redis);
    let at = |arguments: &str| leasehold_at(&server.url(), arguments);
    let holder = Runner::start(&mut run(&server.url(), "job", "echo ready; read end"));
    holder.says("ready");
    page.failed("`unlock` without a terminal and without `--yes`", &at("unlock job"));
    page.failed("`wait job --wait 300ms`", &at("wait job --wait 300ms"));
    drop(holder);
    let client = Client::connect(server.url()).label("web-3").block().expect("the server is up");
    let group = client.group_lock("group", ["1"]).acquire().block().expect("it is free");
    page.failed("`unlock` of a group", &at("unlock group --yes"));
    drop(group);
    let words = "ACL SETUSER worker on >secret ~* &* +@all -scan";
    assert_eq!(server.cli(&words.split(' ').collect::<Vec<_>>()), "OK");
    let worker = server.url().replace("redis://", "redis://worker:secret@");
    page.failed("a user that may not list keys", &leasehold_at(&worker, "ls"));
    let directory = TestDirectory::new();
    let holder = Runner::start(&mut run(&directory.url(), "job", "echo ready; read end"));
    holder.says("ready");
    let held = leasehold_at(&directory.url(), "unlock job --yes");
    // In the advice, the number of the process ends a quotation.
    let advice = held.stderr.find("`kill ").map_or(held.stderr.len(), |at| at + "`kill ".len());
    let (before, after) = held.stderr.split_at(advice);
    let after = after.trim_start_matches(|char: char| char.is_ascii_digit());
    page.row("`unlock` on files", &format!("{before}PID{after}"));
    drop(holder);
}

fn before_the_program(page: &mut Page) {
    let home = TestDirectory::new();
    let default = finish(leasehold_command().env("HOME", home.path()).args(["run", "job", "--", "true"]));
    assert_eq!(default.code, Some(0), "{default:?}");
    page.row("no URL is given", &default.stderr.replace(home.path().to_str().expect("UTF-8"), "/home/me"));
    page.failed("an empty variable", &leasehold_at("", "run job -- true"));
    page.failed("an empty URL", &finish(leasehold_command().args(["run", "--url", "", "job", "--", "true"])));
    page.failed("no file to close", &leasehold("run job --close --url redis://localhost -- true"));
    page.failed("an engine inside the process", &leasehold("run job --url memory: -- true"));
    page.failed("no server at that port", &leasehold("run job --url redis://me:secret@127.0.0.1:1 -- true"));
    let server = Server::builder(Flavour::Redis).password("right").start();
    page.failed(
        "a wrong password",
        &leasehold_at(&server.url().replace("right", "wrong"), "run job -- true"),
    );
    let server = Server::start(Flavour::Redis);
    let url = server.url();
    let usage = leasehold_at(&url, "run job --wait abc -- true").stderr;
    page.raw("a time that cannot be read", usage.lines().next().unwrap_or_default());
    page.failed(
        "options that exclude each other",
        &leasehold_at(&url, "run job --if-busy skip --wait 3s -- true"),
    );
    assert_eq!(server.cli(&["SET", "text", "value"]), "OK");
    page.failed("a key that is not a lock", &leasehold_at(&url, "run text -- true"));
    page.failed("a run inside of a run with the same lock", &nested(&url));
    page.failed("a fair lock on files", &leasehold("run job --fair --url file: -- true"));
    page.failed("no such program", &leasehold_at(&url, "run job -- no-such-program"));
    page.failed("a program that cannot be executed", &leasehold_at(&url, "run job -- /etc/passwd"));

    let holder = Runner::start(&mut run(&url, "job", "echo ready; read end"));
    holder.says("ready");
    page.failed("a busy lock, `--if-busy fail`", &leasehold_at(&url, "run job --if-busy fail -- true"));
    let skipped = leasehold_at(&url, "run job --if-busy skip -- true");
    page.row("a busy lock, `--if-busy skip`", &skipped.stderr);
    let permit = Runner::start(&mut run(&url, "slots --permits 1", "echo ready; read end"));
    permit.says("ready");
    page.failed(
        "no free permit, `--if-busy fail`",
        &leasehold_at(&url, "run slots --permits 1 --if-busy fail -- true"),
    );
    page.failed("a busy lock, `--wait 300ms`", &leasehold_at(&url, "run job --wait 300ms -- true"));
    let waiter = Runner::start(&mut run(&url, "job", "true"));
    page.row("waiting", &waiter.message());
    waiter.signal(Signal::SIGTERM);
    page.failed("SIGTERM while waiting", &waiter.finish());
}

/// A run of `job` by the command of another one.
fn nested(url: &str) -> Finished {
    let mut command = run_plain(url, "job");
    finish(command.arg(program()).args(["run", "job", "true"]))
}

fn while_the_program_runs(page: &mut Page) {
    let mut server = Server::start(Flavour::Redis);
    let url = server.url();
    let long = "echo ready; exec sleep 60";

    let deleted = Runner::start(&mut run(&url, "job --lease 1s", long));
    deleted.says("ready");
    assert_eq!(server.cli(&["DEL", "job"]), 1);
    page.failed("the key was deleted", &deleted.finish());

    let quick = finish(&mut run(&url, "job --verbose", "exit 0"));
    for (what, line) in
        ["`--verbose`, at the beginning", "`--verbose`, at the end"].iter().zip(quick.stderr.lines())
    {
        page.row(what, line);
    }

    let over = Runner::start(&mut run(&url, "job --max-hold 2s --grace 500ms", long));
    over.says("ready");
    page.row("`--max-hold` is nearly over", &over.message());
    page.failed("`--max-hold` is over", &over.finish());

    let end = TestFile::new();
    let script = r#"echo ready; until [ -e "$1" ]; do sleep 0.01; done"#;
    let stopped = Runner::start(run(&url, "job", script).arg(end.path()));
    stopped.says("ready");
    stopped.signal(Signal::SIGTSTP);
    page.row("Ctrl-Z", &stopped.message());
    std::fs::write(end.path(), "").expect("a file in the target directory");
    assert_eq!(stopped.finish().code, Some(0));
    assert!(!is_locked(&server, "job"));

    let (end, lost) = (TestFile::new(), TestFile::new());
    let ends = Runner::start(run(&url, "job --lease 60s", script).arg(end.path()));
    ends.says("ready");
    let loses = Runner::start(run(&url, "other --lease 2s", script).arg(lost.path()));
    loses.says("ready");
    server.kill();
    // By then the other client, too, has tried to connect again.
    page.row("the server is gone, and the lease is nearly over", &loses.message());
    std::fs::write(end.path(), "").expect("a file in the target directory");
    let unreleased = ends.finish();
    assert_eq!(unreleased.code, Some(0), "{unreleased:?}");
    page.row("the server is gone when the program ends", &unreleased.stderr);
    page.failed("the lease is over", &loses.finish());
    let _ = finish(&mut run(&url, "job", "true"));

    server.restart();
    let restarted = Runner::start(&mut run(&url, "job --lease 60s", long));
    restarted.says("ready");
    let holder = Runner::start(&mut run(&url, "awaited", long));
    holder.says("ready");
    let waiter = Runner::start(&mut run(&url, "awaited", "true"));
    assert!(waiter.message().contains("waiting for"));
    server.kill();
    page.row("the server is gone during a wait", &waiter.message());
    server.restart();
    page.failed("the server has restarted without its data", &restarted.finish());
    drop((waiter, holder));

    let stalled = Runner::start(&mut run(&url, "job --lease 1s", long));
    stalled.says("ready");
    stalled.signal(Signal::SIGSTOP);
    eventually("the lease is over", || !is_locked(&server, "job"));
    stalled.signal(Signal::SIGCONT);
    page.failed("`leasehold` was stopped for longer than the lease", &stalled.finish());
}
