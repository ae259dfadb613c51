//! The log messages about connections, at every level. There is one log for the whole process, hence a test program of its
//! own.

use std::fmt::{self, Write as _};
use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use leasehold::Client;
use leasehold_testkit::proxy::{Proxy, Which};
use leasehold_testkit::server::{Flavour, Server};
use tokio::time::{Instant, sleep};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

static LOG: Mutex<Vec<(Level, String)>> = Mutex::new(Vec::new());

/// Records everything.
struct Recorder;

impl Subscriber for Recorder {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("leasehold")
    }

    fn event(&self, event: &Event<'_>) {
        let mut line = Line(String::new());
        event.record(&mut line);
        let mut log = LOG.lock().unwrap_or_else(PoisonError::into_inner);
        log.push((*event.metadata().level(), line.0));
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let _ = write!(self.0, "{field}={value:?} ");
    }
}

fn record() {
    // The other test may have been the first.
    let _ = tracing::subscriber::set_global_default(Recorder);
}

fn logged() -> Vec<(Level, String)> {
    LOG.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

#[tokio::test]
async fn no_log_level_contains_the_password() {
    record();
    // A server older than Redis 6, which repeats unknown commands, once the real one is gone.
    let server = Server::builder(Flavour::Redis).password("hunter2secret").start();
    let proxy = Proxy::start(server.port());
    let url = proxy.url().replace("redis://", "redis://:hunter2secret@");
    let client = Client::connect(&url).await.unwrap();
    let old = TcpListener::bind("127.0.0.1:0").unwrap();
    proxy.lead_to(old.local_addr().unwrap().port());
    thread::spawn(move || {
        for client in old.incoming() {
            let mut client = client.unwrap();
            let _ = client.read(&mut [0; 4096]);
            let _ = client.write_all(
                b"-ERR unknown command `HELLO`, with args beginning with: `3`, `AUTH`, `default`, `hunter2secret`, \r\n",
            );
            // Until the client closes: closing a socket with unread input discards the reply.
            let _ = client.read_to_end(&mut Vec::new());
        }
    });
    proxy.cut(Which::All);
    let begun = Instant::now();
    let told = loop {
        assert!(begun.elapsed() < Duration::from_secs(10), "no reason is reported");
        let error = client.lock("n").acquire().await.unwrap_err().to_string();
        if error.contains("RESP3") {
            break error;
        }
        sleep(Duration::from_millis(10)).await;
    };
    assert!(!told.contains("hunter"), "{told}");
    drop(client);
    let log = logged();
    assert!(log.iter().any(|(level, line)| *level == Level::WARN && line.contains("RESP3")), "{log:?}");
    assert!(!log.iter().any(|(_, line)| line.contains("hunter")), "{log:?}");
}

/// Waits until so many connections were attempted: one warning has the reason.
async fn wrong_password_is_logged_once(proxy: &Proxy, connections: usize) {
    let begun = Instant::now();
    while proxy.counts().connections < connections {
        assert!(begun.elapsed() < Duration::from_secs(10), "it does not try again");
        sleep(Duration::from_millis(10)).await;
    }
    let (log, here) = (logged(), format!("127.0.0.1:{}", proxy.port()));
    let of_here = log.iter().filter(|(_, line)| line.contains(&here));
    let warnings = of_here.filter(|(level, line)| *level == Level::WARN && line.contains("WRONGPASS"));
    assert_eq!(warnings.count(), 1, "{log:?}");
}

#[tokio::test]
async fn the_reason_for_a_missing_connection_is_logged_as_a_warning_once() {
    record();
    let server = Server::builder(Flavour::Redis).password("old").start();
    let proxy = Proxy::start(server.port());
    let client = Client::connect(proxy.url().replace("redis://", "redis://:old@")).await.unwrap();
    let guard = client.lock("n").acquire().await.unwrap();
    assert_eq!(server.cli(&["CONFIG", "SET", "requirepass", "new"]), "OK");
    let before = proxy.counts().connections;
    proxy.cut(Which::All);
    wrong_password_is_logged_once(&proxy, before + 5).await;
    assert!(guard.is_held());
}

#[tokio::test]
async fn the_refusal_of_a_lazy_client_is_logged_as_a_warning_once() {
    record();
    let server = Server::builder(Flavour::Redis).password("right").start();
    let proxy = Proxy::start(server.port());
    let url = proxy.url().replace("redis://", "redis://:lazy-and-wrong@");
    // A waiter from before the refusal wants a connection for messages, too.
    let client = Client::connect(url).lazy().unwrap();
    let error = client.lock("n").acquire().await.unwrap_err();
    assert!(error.to_string().contains("WRONGPASS"), "{error}");
    wrong_password_is_logged_once(&proxy, 5).await;
}

#[tokio::test]
async fn a_failed_renewal_is_logged_with_its_locks_the_time_left_and_the_reason() {
    record();
    let server = Server::start(Flavour::Redis);
    let proxy = Proxy::start(server.port());
    let client = Client::connect(proxy.url()).watchdog(Duration::from_millis(900)).await.unwrap();
    let _guard = client.lock("log:renewal").acquire().await.unwrap();
    proxy.refuse();
    proxy.cut(Which::All);
    let begun = Instant::now();
    let line = loop {
        assert!(begun.elapsed() < Duration::from_secs(10), "no failed renewal is logged: {:?}", logged());
        let is_it =
            |line: &&(Level, String)| line.1.contains("renewal failed") && line.1.contains("log:renewal");
        if let Some((_, line)) = logged().iter().find(is_it) {
            break line.clone();
        }
        sleep(Duration::from_millis(10)).await;
    };
    assert!(line.contains("a renewal failed and is retried"), "{line}");
    for field in ["locks=", "left=", "error="] {
        assert!(line.contains(field), "{field}: {line}");
    }
    println!("{line}");
}

/// The work was done while the lock was held, so this is no failure of it.
#[tokio::test]
async fn work_that_is_done_without_a_reply_to_the_release_is_logged_as_a_warning() {
    record();
    let server = Server::start(Flavour::Redis);
    let proxy = Proxy::start(server.port());
    let client = Client::connect(proxy.url()).response_timeout(Duration::from_millis(300)).await.unwrap();
    let lock = client.lock("no-reply");
    let done = lock.acquire().run(async {
        proxy.blackhole(Which::All);
        Ok::<_, leasehold::Error>(7)
    });
    assert_eq!(done.await, Ok(7));
    let log = logged();
    let is_it = |(level, line): &(Level, String)| {
        *level == Level::WARN && line.contains("no-reply") && line.contains("its release had no usable reply")
    };
    assert_eq!(log.iter().filter(|line| is_it(line)).count(), 1, "{log:?}");
    proxy.heal();
    let begun = Instant::now();
    while server.cli(&["EXISTS", "no-reply"]) != 0 {
        assert!(begun.elapsed() < Duration::from_secs(10), "the release goes on in the background");
        sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test]
async fn a_loss_beside_the_error_of_work_is_logged_as_a_warning() {
    record();
    let client = Client::connect("memory:log").await.unwrap();
    let other = Client::connect("memory:log").await.unwrap();
    let failed = client.lock("lost-besides").acquire().run(async {
        other.lock("lost-besides").force_unlock().await.map_err(leasehold::Error::from)?;
        Err::<(), _>(leasehold::Error::from(leasehold::Loss::Shutdown))
    });
    failed.await.unwrap_err();
    let log = logged();
    let is_it = |(level, line): &(Level, String)| {
        *level == Level::WARN && line.contains("lost-besides") && line.contains("the lock was lost besides")
    };
    assert_eq!(log.iter().filter(|line| is_it(line)).count(), 1, "{log:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_that_blocks_a_thread_of_a_runtime_for_long_is_logged_once_with_its_place() {
    record();
    let client = Client::connect("memory:").await.unwrap();
    let lock = client.lock("blocks-a-runtime");
    let _held = lock.acquire().await.unwrap();
    let warnings = || {
        let is_one = |(level, line): &(Level, String)| {
            *level == Level::WARN && line.contains("kept a thread of a runtime")
        };
        logged().into_iter().filter(is_one).map(|(_, line)| line).collect::<Vec<_>>()
    };
    // Threads that may block are not meant.
    let waits = lock.clone();
    let long = Duration::from_millis(2500);
    let allowed = tokio::task::spawn_blocking(move || waits.acquire().wait(long).block().map(drop));
    allowed.await.unwrap().unwrap_err();
    assert_eq!(warnings(), Vec::<String>::new());

    let place = format!("{}:{}", file!(), line!() + 1);
    let blocks = tokio::spawn(async move { lock.acquire().wait(long * 2).block().map(drop) });
    blocks.await.unwrap().unwrap_err();
    let warnings = warnings();
    assert!(matches!(&*warnings, [one] if one.contains(&place)), "{place} is not the place of {warnings:?}");
}

/// The lines at INFO and above that contain a text, in their order, without durations and connection errors.
fn lines_about(text: &str) -> Vec<String> {
    let log = logged();
    let lines = log.iter().filter(|(level, line)| *level <= Level::INFO && line.contains(text));
    lines.map(|(level, line)| format!("{level} {}", line.split("message=").nth(1).unwrap_or(line))).collect()
}

async fn until_logged(text: &str, what: &str) {
    let begun = Instant::now();
    while !lines_about(text).iter().any(|line| line.contains(what)) {
        assert!(begun.elapsed() < Duration::from_secs(20), "{what}: {:?}", lines_about(text));
        sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn an_outage_is_logged_when_it_begins_and_when_it_ends_with_what_was_lost() {
    record();
    let server = Server::start(Flavour::Redis);
    let proxy = Proxy::start(server.port());
    let options = Client::connect(proxy.url()).watchdog(Duration::from_secs(1)).label("night-shift");
    let client = options.await.unwrap();
    let guard = client.lock("log:outage").acquire().await.unwrap();
    let here = format!("127.0.0.1:{}", proxy.port());
    proxy.refuse();
    proxy.cut(Which::All);
    guard.lost().await;
    proxy.accept();
    until_logged(&here, "connected again").await;
    let about: Vec<_> =
        lines_about(&here).into_iter().filter(|line| !line.contains("connecting for")).collect();
    assert!(
        matches!(&*about, [connected, outage, lost, again]
            if connected.starts_with("INFO connected")
            && outage.starts_with("WARN the server cannot be reached")
            && outage.contains("locks=1") && outage.contains("lasts=")
            && lost.starts_with("WARN a held lock is lost") && lost.contains("lock=log:outage")
            && lost.contains("label=\"night-shift\"") && lost.contains("held_for=")
            && lost.contains("could not be reached in time") && lost.contains(&guard.owner().to_string())
            && again.starts_with("INFO connected again") && again.contains("lost=1")),
        "{about:#?}"
    );
}

#[tokio::test]
async fn every_loss_is_logged_once_but_for_an_ordered_shutdown() {
    record();
    let server = Server::start(Flavour::Redis);
    let files = leasehold_testkit::bench::Files::new();
    let urls =
        ["memory:".to_owned(), server.url(), leasehold_testkit::bench::Backend::url(&files).to_owned()];
    for (number, url) in urls.into_iter().enumerate() {
        let client = Client::connect(url).await.unwrap();
        let name = |cause: &str| format!("log:{number}:{cause}");
        let expect = |cause: &str, text: &str| {
            let lines = lines_about(&format!("lock={} ", name(cause)));
            let [one] = &*lines else { panic!("{lines:?}") };
            assert!(one.starts_with("WARN a held lock is lost") && one.contains(text), "{one}");
        };
        let soon = Duration::from_millis(100);
        // By a check, by waiting for it, by a release and by a drop.
        let expired = client.lock(name("expired")).acquire().lease(soon).await.unwrap();
        expired.lost().await;
        assert!(!expired.is_held());
        drop(expired);
        expect("expired", "the lease ran out");
        let too_long = client.lock(name("too-long")).acquire().max_hold(soon).await.unwrap();
        while too_long.is_held() {
            sleep(Duration::from_millis(1)).await;
        }
        drop(too_long);
        expect("too-long", "max_hold");
        let dropped = client.lock(name("dropped")).acquire().lease(soon).await.unwrap();
        sleep(soon).await;
        drop(dropped);
        expect("dropped", "the lease ran out");
        let idle = client.lock(name("idle")).acquire().renew_while_progress(soon).await.unwrap();
        idle.lost().await;
        assert!(idle.release().await.is_err());
        expect("idle", "no progress");
        let lock = client.lock(name("forced"));
        let forced = lock.acquire().await.unwrap();
        if lock.force_unlock().await.is_ok() {
            forced.lost().await;
            expect("forced", "force_unlock");
        }
        drop(forced);
        let released = client.lock(name("released")).acquire().lease(soon).await.unwrap();
        released.release().await.unwrap();
        sleep(soon).await;
        let left = client.lock(name("left")).acquire().await.unwrap();
        assert_eq!(client.shutdown(Duration::ZERO).await.left_to_expire, 1);
        drop(left);
        for unlogged in ["released", "left"] {
            assert_eq!(lines_about(&name(unlogged)), <[String; 0]>::default());
        }
        let ended = lines_about(&client.id());
        assert!(
            ended.iter().any(|line| line.starts_with("WARN the client was shut down while")),
            "{ended:?}"
        );
    }
}

#[tokio::test]
async fn long_waits_and_holds_are_logged_while_they_last_and_short_ones_are_not() {
    record();
    let server = Server::start(Flavour::Redis);
    for (number, url) in ["memory:".to_owned(), server.url()].into_iter().enumerate() {
        let (long, longer) = (Duration::from_millis(60), Duration::from_secs(60));
        let client = Client::connect(&url).warn_wait(long).warn_hold(long).await.unwrap();
        let name = |what: &str| format!("log:{number}:{what}");
        let patient = Client::connect(&url).warn_wait(longer).warn_hold(longer).await.unwrap();
        let short = patient.lock(name("short")).acquire().await.unwrap();
        let waiter = tokio::spawn(patient.lock(name("short")).acquire().into_future());
        tokio::task::yield_now().await;
        short.release().await.unwrap();
        waiter.await.unwrap().unwrap().release().await.unwrap();
        assert_eq!(lines_about(&name("short")), <[String; 0]>::default());

        let guard = client.lock(name("long")).acquire().await.unwrap();
        let waiter = tokio::spawn(client.lock(name("long")).acquire().into_future());
        // The wait has no limit: it is logged while it lasts.
        until_logged(&name("long"), "a wait is long").await;
        let owner = guard.owner().to_string();
        guard.release().await.unwrap();
        waiter.await.unwrap().unwrap().release().await.unwrap();
        let (mut lines, about) = (lines_about(&name("long")), name("long"));
        lines.sort();
        let [hold, wait] = &*lines else { panic!("{about}: {lines:#?}") };
        assert!(
            hold.starts_with("WARN a lock is held for long") && hold.contains(&format!("owner={owner}")),
            "{hold}"
        );
        assert!(
            wait.starts_with("WARN a wait is long") && wait.contains(&format!("holder={owner}")),
            "{wait}"
        );
    }
}
