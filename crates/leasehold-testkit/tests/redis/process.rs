//! Runtimes that are blocked, processes that end, and processes that are suspended.
//!
//! A test that needs a process of its own starts this binary again, with its own name and the server's address.

use std::env;
use std::future::{Future, IntoFuture};
use std::io::{BufRead as _, BufReader, Write as _};
use std::pin::pin;
use std::process::{Child, Command, Stdio, exit};
use std::task::{Context, Waker};
use std::thread;
use std::time::Duration;

use leasehold::Client;
use leasehold_testkit::resp::Connection;
use leasehold_testkit::server::{Flavour, Server};
use tokio::runtime;
use tokio::time::Instant;

use crate::{SECOND, alone, keys, pttl, subscribers};

/// Where the child finds the server.
pub(crate) const URL: &str = "LEASEHOLD_TEST_URL";

/// Starts this binary again to run nothing but `test`.
pub(crate) fn child(test: &str, server: &Server) -> Child {
    Command::new(env::current_exe().expect("a test has a program"))
        .args(["--exact", test, "--nocapture"])
        .env(URL, server.url())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the program can be started again")
}

pub(crate) fn signal(name: &str, child: &Child) {
    let sent = Command::new("sh").args(["-c", &format!("kill -{name} {}", child.id())]).status();
    assert!(sent.is_ok_and(|status| status.success()), "no {name}");
}

#[test]
fn a_lock_stays_held_while_the_runtime_of_the_caller_is_blocked() {
    let server = Server::start(Flavour::Redis);
    let runtime = runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let _alone = alone().await;
        let watchdog = SECOND;
        let client = Client::connect(server.url()).watchdog(watchdog).await.unwrap();
        let guard = client.lock("n").acquire().await.unwrap();
        let field = guard.owner().to_string();
        let begun = Instant::now();
        // Nothing in here awaits.
        while begun.elapsed() < watchdog * 3 {
            thread::sleep(Duration::from_millis(20));
            assert_eq!(server.cli(&["HGET", "n", &field]), "1", "after {:?}", begun.elapsed());
            assert!(pttl(&server, "n") > 0);
            assert!(guard.is_held());
        }
        guard.release().await.unwrap();
    });
    assert_eq!(keys(&server), [""; 0]);
}

/// The reply is read on the client's own thread, and so are the replies to later renewals.
#[test]
fn an_extension_polled_late_does_not_revert_later_renewals() {
    let server = Server::start(Flavour::Redis);
    let runtime = runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let _alone = alone().await;
        let watchdog = SECOND * 3 / 2;
        let client = Client::connect(server.url()).watchdog(watchdog).await.unwrap();
        let guard = client.lock("n").acquire().await.unwrap();
        let begin = || Box::pin(guard.extend(SECOND * 3 / 10));
        let mut extending = begin();
        // Rarely the reply arrives at once.
        while extending.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready() {
            extending = begin();
        }
        // Nothing in here awaits.
        thread::sleep(watchdog + SECOND);
        assert!(guard.is_held(), "it is not renewed");
        extending.await.unwrap();
        assert!(guard.is_held());
        guard.release().await.unwrap();
    });
}

#[test]
fn other_threads_are_served_while_the_runtime_of_a_client_is_blocked_or_gone() {
    let server = Server::start(Flavour::Redis);
    let other = Client::connect(server.url()).block().unwrap();
    for is_gone in [false, true] {
        let runtime = runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let client = runtime.block_on(async {
            let client = Client::connect(server.url()).label("maker").await.unwrap();
            client.lock("n").acquire().await.unwrap().release().await.unwrap();
            client
        });
        // From here on the runtime is not driven.
        let runtime = Some(runtime).filter(|_| !is_gone);
        take_turns(&server, &client, &other);
        drop(client);
        let begun = Instant::now();
        while server.cli(&["CLIENT", "LIST"]).as_str().is_some_and(|list| list.contains("maker")) {
            assert!(begun.elapsed() < SECOND * 10, "a connection stays open");
            thread::sleep(Duration::from_millis(5));
        }
        drop(runtime);
    }
    assert_eq!(keys(&server), [""; 0]);
}

/// Acquires the lock repeatedly, and waits for another client's release of it, on threads.
fn take_turns(server: &Server, client: &Client, other: &Client) {
    let take = |client: &Client| client.lock("n").acquire().wait(SECOND * 10).block().expect("the lock");
    for _ in 0..50 {
        take(client).release().block().expect("it is held");
    }
    let guard = take(other);
    thread::scope(|scope| {
        // Long before its lease expires.
        let waiter = scope.spawn(|| take(client).release().block());
        let begun = Instant::now();
        while subscribers(server, "redisson_lock__channel:{n}") == 0 {
            assert!(begun.elapsed() < SECOND * 10, "there is no waiter");
            thread::sleep(Duration::from_millis(2));
        }
        guard.release().block().expect("it is held");
        waiter.join().expect("it gets the lock").expect("it is held");
    });
}

#[test]
fn a_program_that_drops_its_guard_and_ends_leaves_no_key() {
    if let Ok(url) = env::var(URL) {
        let runtime = runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let client = Client::connect(url).await.unwrap();
            let guard = client.lock("n").acquire().await.unwrap();
            println!("\nheld");
            drop(guard);
        });
        exit(0);
    }
    let server = Server::start(Flavour::Redis);
    for _ in 0..10 {
        let child = child("process::a_program_that_drops_its_guard_and_ends_leaves_no_key", &server);
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success());
        assert!(String::from_utf8_lossy(&output.stdout).contains("held"));
        assert_eq!(keys(&server), [""; 0]);
    }
}

#[test]
fn a_program_without_a_runtime_leaves_no_key() {
    if let Ok(url) = env::var(URL) {
        let client = Client::connect(url).block().unwrap();
        let guard = client.lock("n").acquire().block().unwrap();
        println!("\nheld");
        // A lock and a guard keep the client alive, in any order of dropping.
        let lock = client.lock("n");
        drop(client);
        drop(lock);
        drop(guard);
        exit(0);
    }
    let server = Server::start(Flavour::Redis);
    for _ in 0..10 {
        let child = child("process::a_program_without_a_runtime_leaves_no_key", &server);
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success());
        assert!(String::from_utf8_lossy(&output.stdout).contains("held"));
        assert_eq!(keys(&server), [""; 0]);
    }
}

/// How many threads of this process belong to clients.
fn client_threads() -> usize {
    let tasks = std::fs::read_dir("/proc/self/task").expect("a process has threads");
    // A thread that ends meanwhile has no name any more.
    let names = tasks.filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("comm")).ok());
    names.filter(|name| name.trim() == "leasehold-io").count()
}

#[test]
fn a_dropped_connect_leaves_no_thread_and_no_connection() {
    const LABEL: &str = "given-up";
    if let Ok(url) = env::var(URL) {
        let port = url.rsplit(':').next().unwrap().parse().unwrap();
        let mut server = Connection::open(port).unwrap();
        let runtime = runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let _entered = runtime.enter();
        // Dropped at once, while it connects, and when it is connected.
        for pause in [0, 0, 0, 1, 2, 5, 50, 200].map(Duration::from_millis) {
            let mut connecting = pin!(Client::connect(&url).label(LABEL).into_future());
            // Rarely it is connected at once, which does not matter.
            let _ = connecting.as_mut().poll(&mut Context::from_waker(Waker::noop()));
            thread::sleep(pause);
        }
        let begun = Instant::now();
        loop {
            let clients = server.call(&["CLIENT", "LIST"]).unwrap();
            let connections = clients.as_str().unwrap().matches(LABEL).count();
            let threads = client_threads();
            if (threads, connections) == (0, 0) {
                exit(0);
            }
            assert!(
                begun.elapsed() < SECOND * 10,
                "{threads} threads and {connections} connections are left"
            );
            thread::sleep(Duration::from_millis(10));
        }
    }
    let server = Server::start(Flavour::Redis);
    let mut child = child("process::a_dropped_connect_leaves_no_thread_and_no_connection", &server);
    assert!(child.wait().unwrap().success());
}

/// Longer than anything but a suspension lasts.
const GAP: Duration = Duration::from_millis(900);

#[test]
fn a_process_suspended_past_its_lease_detects_the_loss_at_once() {
    if let Ok(url) = env::var(URL) {
        let client = Client::connect(url).watchdog(SECOND).block().unwrap();
        let kept = client.lock("kept").acquire().block().unwrap();
        let given = client.lock("given").acquire().lease(SECOND).block().unwrap();
        println!("\nheld {} {}", kept.is_held(), given.is_held());
        std::io::stdout().flush().unwrap();
        let mut last = Instant::now();
        loop {
            let now = Instant::now();
            if now - last > GAP {
                println!("\nheld {} {}", kept.is_held(), given.is_held());
                exit(0);
            }
            last = now;
            thread::sleep(Duration::from_millis(1));
        }
    }
    let server = Server::start(Flavour::Redis);
    let mut child = child("process::a_process_suspended_past_its_lease_detects_the_loss_at_once", &server);
    let lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
    let mut lines = lines.filter(|line| line.starts_with("held "));
    assert_eq!(lines.next().as_deref(), Some("held true true"));
    signal("STOP", &child);
    thread::sleep(SECOND * 3 / 2);
    assert_eq!(keys(&server), [""; 0], "it is not renewed");
    signal("CONT", &child);
    assert_eq!(lines.next().as_deref(), Some("held false false"));
    assert!(child.wait().unwrap().success());
}
