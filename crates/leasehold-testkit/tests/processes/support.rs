//! Parts in processes of their own, reproducible random numbers, and waits with a limit.

use std::env;
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::time::Duration;

use leasehold::{Client, Guard};
pub(crate) use leasehold_testkit::dice::Dice;
use leasehold_testkit::server::Server;
use tokio::time::Instant;

/// The port of the server, for a part.
const SERVER: &str = "LEASEHOLD_PART_SERVER";

/// This binary, running one test and nothing else.
pub(crate) fn part(test: &str, server: &Server) -> Command {
    let binary = env::current_exe().expect("this process knows its program");
    let mut command = Command::new(binary);
    command
        .args([test, "--exact", "--nocapture", "--test-threads=1"])
        .env(SERVER, server.port().to_string())
        .stdin(Stdio::null());
    command
}

/// The port of the server, in a process that was started as a part.
pub(crate) fn server_of_part() -> Option<u16> {
    env::var(SERVER).ok().map(|port| port.parse().expect("a port is a number"))
}

/// Runs a part to its end, shows its output, and fails as it does.
pub(crate) fn run_part(command: &mut Command) {
    let Output { status, stdout, stderr } = command.output().expect("a part can be started");
    let said = String::from_utf8_lossy(&stdout);
    said.lines().filter(|line| line.contains(": ")).for_each(|line| println!("{line}"));
    assert!(status.success(), "the part ended with {status}\n{said}\n{}", String::from_utf8_lossy(&stderr));
}

/// A part that runs on its own, and is ended with this at the latest.
pub(crate) struct Running(Child);

impl Running {
    pub(crate) fn start(command: &mut Command) -> Self {
        Self(command.stdout(Stdio::null()).spawn().expect("a part can be started"))
    }

    /// Ends it by SIGKILL.
    pub(crate) fn kill(&mut self) {
        self.0.kill().expect("it was started here");
        self.0.wait().expect("it was started here");
    }

    /// How it ended, if it did.
    pub(crate) fn ended(&mut self) -> Option<ExitStatus> {
        self.0.try_wait().expect("it was started here")
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A number from the environment, for runs that are longer or shorter than usual.
pub(crate) fn number(variable: &str, usual: u64) -> u64 {
    match env::var(variable) {
        Ok(text) => text.parse().unwrap_or_else(|_| panic!("{variable} is not a number: {text}")),
        Err(_) => usual,
    }
}

/// Polls until a condition holds, and panics with the last state when it does not in time.
pub(crate) fn wait_until<T: std::fmt::Debug>(limit: Duration, mut look: impl FnMut() -> Result<(), T>) {
    let start = Instant::now();
    while let Err(instead) = look() {
        assert!(start.elapsed() < limit, "not within {limit:?}: {instead:?}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Acquires `number` locks, a hundred at a time.
pub(crate) async fn take(client: &Client, name: &str, number: usize) -> Vec<Guard> {
    let tasks: Vec<_> = (0..100)
        .map(|task| {
            let locks: Vec<_> =
                (task..number).step_by(100).map(|number| client.lock(format!("{name}:{number}"))).collect();
            tokio::spawn(async move {
                let mut guards = Vec::new();
                for lock in locks {
                    guards.push(lock.acquire().await.expect("no other waiter"));
                }
                guards
            })
        })
        .collect();
    let mut guards = Vec::new();
    for task in tasks {
        guards.extend(task.await.expect("no task panics"));
    }
    guards
}
