//! The same steps by Go alone, by this library alone and by both together leave the same keys.
//!
//! They are kept in `interop/golden`: after each step the keys, the oldest first. Numbers of leases and owners are replaced by the
//! order in which they appear. `LEASEHOLD_GOLDEN=write` writes anew what Go leaves.

use std::collections::HashMap;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::{env, fs};

use leasehold::{Client, Guard, Lock};
use leasehold_testkit::golang;
use leasehold_testkit::peer::{Peer, Pending};
use leasehold_testkit::server::Etcd;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::{PATIENCE, client, until};

/// The name in all scripts.
const NAME: &str = "same";

/// A step is `a lock plain` or `a unlock`, by the thread `a`; `b> lock plain` is begun, and `b<` waits for it.
const MUTEX: &[&str] =
    &["a lock plain", "b> lock plain", "c> lock plain", "a unlock", "b<", "b unlock", "c<", "c unlock"];

const RW_MUTEX: &[&str] = &[
    "a lock read",
    "b lock read",
    "c> lock write",
    "d> lock read",
    "b unlock",
    "a unlock",
    "c<",
    "e> lock write",
    "c unlock",
    "d<",
    "d unlock",
    "e<",
    "e unlock",
];

#[tokio::test]
async fn own_643_a_lock_leaves_the_keys_that_the_mutex_of_go_leaves() {
    compare("etcd-mutex", MUTEX).await;
}

#[tokio::test]
async fn own_644_a_read_write_lock_leaves_the_keys_that_the_read_write_mutex_of_go_leaves() {
    compare("etcd-rwmutex", RW_MUTEX).await;
}

async fn compare(primitive: &str, script: &[&str]) {
    let server = Etcd::start();
    let go = golang::start("go", &server);
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../interop/golden");
    let path = path.join(primitive).with_extension("txt");
    let theirs = run(&server, script, &go, |_| true).await;
    if env::var("LEASEHOLD_GOLDEN").as_deref() == Ok("write") {
        fs::write(&path, &theirs).unwrap();
    }
    let golden = fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(theirs, golden, "Go leaves something else than {}", path.display());
    let ours = run(&server, script, &go, |_| false).await;
    assert_eq!(ours, golden, "this library alone");
    for first in [true, false] {
        let mixed = run(&server, script, &go, |thread| (thread % 2 == 0) == first).await;
        assert_eq!(mixed, golden, "Go has the threads {}", if first { "b and d" } else { "a, c and e" });
    }
}

/// A thread of one side, which holds at most one lock.
enum Thread<'a> {
    Go { peer: &'a Peer, name: String, held: String },
    Ours { client: Client, held: Option<Guard> },
}

/// A lock that was asked for.
enum Asked {
    Go(Pending),
    Ours(JoinHandle<Guard>),
}

impl Thread<'_> {
    fn ask(&mut self, kind: &str) -> Asked {
        match self {
            Self::Go { peer, name, held } => {
                *held = format!("{kind} {NAME}");
                Asked::Go(peer.tell(name, &format!("lock {held}")))
            }
            Self::Ours { client, .. } => {
                let lock: Lock = match kind {
                    "plain" => client.lock(NAME),
                    "read" => client.rw_lock(NAME).read().into(),
                    "write" => client.rw_lock(NAME).write().into(),
                    _ => panic!("no such kind of lock: {kind}"),
                };
                Asked::Ours(tokio::spawn(async move { lock.acquire().await.unwrap() }))
            }
        }
    }

    /// Waits until it has the lock.
    async fn hold(&mut self, asked: Asked) {
        match (self, asked) {
            (Self::Go { .. }, Asked::Go(pending)) => drop(pending.within(PATIENCE).ok().await),
            (Self::Ours { held, .. }, Asked::Ours(waiter)) => {
                *held = Some(timeout(PATIENCE, waiter).await.expect("it gets the lock").unwrap());
            }
            _ => unreachable!("a thread stays on its side"),
        }
    }

    async fn unlock(&mut self) {
        match self {
            Self::Go { peer, name, held } => drop(peer.ask(name, &format!("unlock {held}")).await),
            Self::Ours { held, .. } => drop(held.take().expect("it holds").release().await.unwrap()),
        }
    }
}

impl Asked {
    fn is_answered(&self) -> bool {
        match self {
            Self::Go(pending) => pending.is_answered(),
            Self::Ours(waiter) => waiter.is_finished(),
        }
    }
}

/// The steps and what they leave. The threads that `is_go` chooses, by their letter, are Go's.
async fn run(server: &Etcd, script: &[&str], go: &Peer, is_go: impl Fn(u8) -> bool) -> String {
    static RUNS: AtomicU32 = AtomicU32::new(0);
    let of_this_run = RUNS.fetch_add(1, Ordering::Relaxed);
    let (mut threads, mut asked) = (HashMap::new(), HashMap::new());
    let (mut text, mut names) = (String::new(), Names::default());
    for step in script {
        let (thread, words) = step.split_once(' ').unwrap_or((step, ""));
        let (name, how) = thread.split_at(1);
        if !threads.contains_key(name) {
            let made = if is_go(name.as_bytes()[0]) {
                Thread::Go { peer: go, name: format!("{of_this_run}-{name}"), held: String::new() }
            } else {
                Thread::Ours { client: client(server).await, held: None }
            };
            threads.insert(name, made);
        }
        let made = threads.get_mut(name).unwrap();
        match (how, words.strip_prefix("lock ")) {
            ("", Some(kind)) => {
                let asked = made.ask(kind);
                made.hold(asked).await;
            }
            (">", Some(kind)) => {
                let before = server.keys(NAME).len();
                asked.insert(name, made.ask(kind));
                until("the waiter is in the queue", || server.keys(NAME).len() > before).await;
            }
            ("<", None) => made.hold(asked.remove(name).expect("it was begun")).await,
            ("", None) => made.unlock().await,
            _ => panic!("no such step: {step}"),
        }
        text += &[step, "\n", &names.dump(server)].concat();
        if how == ">" {
            assert!(!asked[name].is_answered(), "{step}: it does not wait\n{text}");
        }
    }
    text
}

/// The numbers that differ each time, named by the order in which they appear.
#[derive(Default)]
struct Names {
    leases: Vec<String>,
    owners: Vec<String>,
}

impl Names {
    /// One line for each key, the oldest first.
    fn dump(&mut self, server: &Etcd) -> String {
        let get = ["get", NAME, "--prefix", "--sort-by=CREATE", "--order=ASCEND", "-w", "fields"];
        let (mut text, mut key) = (String::new(), HashMap::new());
        for (field, value) in server.ctl(&get).lines().filter_map(|line| line.split_once(" : ")) {
            key.insert(field.trim_matches('"').to_owned(), value.trim_matches('"').to_owned());
            // The last one of each key.
            if field == "\"Lease\"" {
                text += &self.line(&key);
            }
        }
        text
    }

    fn line(&mut self, key: &HashMap<String, String>) -> String {
        let lease = format!("{:x}", key["Lease"].parse::<i64>().unwrap());
        let name = format!("LEASE{}", position(&mut self.leases, &lease));
        let (before, last) = key["Key"].rsplit_once('/').expect("the name and more");
        let last =
            if last == lease { name.clone() } else { format!("OWNER{}", position(&mut self.owners, last)) };
        let written = if key["CreateRevision"] == key["ModRevision"] { "once" } else { "again" };
        format!("    {before}/{last} = {:?} bound to {name}, written {written}\n", key["Value"])
    }
}

/// The number of a text in a list, to which it is added if it is new.
fn position(known: &mut Vec<String>, text: &str) -> usize {
    let found = known.iter().position(|one| one == text);
    found.unwrap_or_else(|| {
        known.push(text.to_owned());
        known.len() - 1
    }) + 1
}
