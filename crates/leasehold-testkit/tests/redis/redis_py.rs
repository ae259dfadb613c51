//! Our lock by `SET … NX` and redis-py's `Lock`, on one server.

use std::io::{BufRead as _, BufReader, Lines, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use leasehold::{Loss, ReleaseError};
use leasehold_testkit::resp::Connection;
use leasehold_testkit::server::{Flavour, Server};
use tokio::task::{JoinSet, spawn_blocking};
use tokio::time::{Instant, sleep};

use crate::{SECOND, alone, connect, keys, number, soon};

/// Where `cargo xtask test` installs redis-py.
const PYTHON: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/tools/redis-py/bin/python");
const PROGRAM: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../interop/python/redis_py_lock.py");

/// A Python process that executes lock commands from its input.
struct Python {
    process: Child,
    input: ChildStdin,
    output: Lines<BufReader<ChildStdout>>,
}

impl Python {
    fn start(server: &Server) -> Self {
        assert!(Path::new(PYTHON).exists(), "{}", missing());
        let mut process = Command::new(PYTHON)
            .args([PROGRAM, &server.port().to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("Python starts");
        let input = process.stdin.take().expect("a pipe");
        let output = BufReader::new(process.stdout.take().expect("a pipe")).lines();
        let mut python = Self { process, input, output };
        assert_eq!(python.output.next().and_then(Result::ok).as_deref(), Some("ready"), "{}", missing());
        python
    }

    fn tell(&mut self, command: &str) {
        writeln!(self.input, "{command}").expect("Python listens");
    }

    fn answer(&mut self) -> String {
        self.output.next().expect("Python replies").expect("a line")
    }

    fn ask(&mut self, command: &str) -> String {
        self.tell(command);
        self.answer()
    }
}

impl Drop for Python {
    fn drop(&mut self) {
        // It ends with its input; this is for a process that hangs.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn missing() -> String {
    "redis-py is not installed, or does not start: run `cargo xtask test`, which installs it".into()
}

#[tokio::test]
async fn own_64_leasehold_and_redis_py_wait_for_each_other() {
    let _alone = alone().await;
    for flavour in Flavour::ALL {
        let server = Server::start(flavour);
        let lock = connect(server.url()).await.setnx_lock("n");
        let mut python = Python::start(&server);

        // Python releases without a message, and we poll.
        assert_eq!(python.ask("acquire n 60 0"), "held");
        assert!(lock.is_locked().await.unwrap() && lock.try_acquire().await.unwrap().is_none());
        let waiter = tokio::spawn(lock.acquire().into_future());
        sleep(SECOND / 5).await;
        assert!(!waiter.is_finished());
        assert_eq!(python.ask("release n"), "released");
        let begun = Instant::now();
        let guard = crate::granted(waiter).await;
        assert!(begun.elapsed() < SECOND, "{:?}", begun.elapsed());

        // We release.
        assert_eq!((python.ask("locked n"), python.ask("acquire n 60 0.1")), ("true".into(), "busy".into()));
        python.tell("acquire n 60 10");
        sleep(SECOND / 5).await;
        guard.release().await.unwrap();
        assert_eq!(python.answer(), "held");
        assert_eq!(python.ask("release n"), "released");

        // Its lease expires.
        assert_eq!(python.ask("acquire n 0.5 0"), "held");
        let guard = soon("the lock", lock.acquire().into_future()).await.unwrap();
        assert_eq!((python.ask("owned n"), python.ask("release n")), ("false".into(), "not owned".into()));
        assert!(guard.is_held() && lock.is_held_by(guard.owner()).await.unwrap());
        guard.release().await.unwrap();

        // Our lease expires.
        let guard = lock.acquire().lease(SECOND / 2).await.unwrap();
        assert_eq!(python.ask("acquire n 60 10"), "held");
        assert!(!guard.is_held());
        let late = guard.release().await.unwrap_err();
        assert!(matches!(late, ReleaseError::NotHeld { loss: Loss::Expired, .. }), "{late:?}");
        assert_eq!((python.ask("owned n"), python.ask("release n")), ("true".into(), "released".into()));
        assert_eq!(keys(&server), [""; 0]);
    }
}

/// One turn in the same way as the Python program: reads, waits, and writes one more.
async fn take_turn(connection: &mut Connection) {
    let value = connection.call(&["GET", "n:value"]).expect("a reply");
    let seen: u64 = value.as_str().map_or(0, |value| value.parse().expect("a number"));
    sleep(Duration::from_millis(1)).await;
    connection.call(&["SET", "n:value", &(seen + 1).to_string()]).expect("a reply");
    connection.call(&["RPUSH", "n:log", &format!("rust {seen}")]).expect("a reply");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn own_65_no_update_is_lost_between_tasks_and_redis_py() {
    const PYTHONS: usize = 2;
    const TASKS: usize = 4;
    const TURNS: usize = 60;
    let _alone = alone().await;
    for flavour in Flavour::ALL {
        let server = Server::start(flavour);
        let mut pythons: Vec<_> = (0..PYTHONS).map(|_| Python::start(&server)).collect();
        for python in &mut pythons {
            python.tell(&format!("contend n {TURNS}"));
        }
        let client = connect(server.url()).await;
        let mut tasks = JoinSet::new();
        for _ in 0..TASKS {
            let (lock, mut connection) = (client.setnx_lock("n"), server.connect());
            tasks.spawn(async move {
                for turn in 0..TURNS {
                    let guard = lock.acquire().await.expect("the lock");
                    take_turn(&mut connection).await;
                    if turn % 2 == 0 {
                        guard.release().await.expect("it is held");
                    } else {
                        drop(guard);
                    }
                    sleep(Duration::from_millis(20)).await;
                }
            });
        }
        tasks.join_all().await;
        let done =
            spawn_blocking(|| pythons.into_iter().map(|mut python| python.answer()).collect::<Vec<_>>());
        assert_eq!(soon("the others are done", done).await.unwrap(), ["done"; PYTHONS]);

        let log = server.cli(&["LRANGE", "n:log", "0", "-1"]);
        let log: Vec<_> = log.elements().iter().map(|line| line.as_str().unwrap().to_owned()).collect();
        for (n, line) in log.iter().enumerate() {
            let seen = line.split_once(' ').unwrap().1;
            assert_eq!(seen, n.to_string(), "turn {n} of {flavour:?}: {:?}", &log[n.saturating_sub(3)..=n]);
        }
        assert_eq!(log.len(), (PYTHONS + TASKS) * TURNS);
        assert_eq!(server.cli(&["GET", "n:value"]), log.len().to_string().as_str());
        let passed = log.windows(2).filter(|pair| pair[0].starts_with("rust") != pair[1].starts_with("rust"));
        let passed = passed.count();
        println!("{flavour:?}: {} turns, passed between Rust and Python {passed} times", log.len());
        assert!(passed >= 10, "they were there together: {passed}");
        assert_eq!(number(&server.cli(&["EXISTS", "n"])), 0);
    }
}
