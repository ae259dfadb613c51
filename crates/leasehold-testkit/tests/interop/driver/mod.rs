//! The Rust side, controlled by lines of input: the same verbs as in `interop/java`.

mod across;
mod primitive;
mod turns;
mod verbs;

use std::collections::HashMap;
use std::env;
use std::io::{self, BufRead as _, Write as _};
use std::process::{self, Command};
use std::time::Duration;

use leasehold::{Client, Owner};
use leasehold_testkit::peer::{Answer, Peer};
use leasehold_testkit::server::Server;
use leasehold_testkit::watched::Watched;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

use verbs::Thread;

/// Marks a process as such a driver, and names the port of its server.
const PORT: &str = "LEASEHOLD_INTEROP_PORT";
/// The URL of the locks, if they are on another server than the data.
const URL: &str = "LEASEHOLD_INTEROP_URL";

/// Starts this binary once more, as a process that executes lock commands on this server.
pub(crate) fn start(name: &str, server: &Server) -> Peer {
    Peer::start(name, &mut command(server))
}

/// The same, but the locks are on the primary that these sentinels know, and the server has only data.
pub(crate) fn start_behind(name: &str, data: &Server, watched: &Watched) -> Peer {
    Peer::start(name, command(data).env(URL, watched.url()))
}

fn command(server: &Server) -> Command {
    let mut command = Command::new(env::current_exe().expect("this process knows its program"));
    command
        .args(["driver::child_process_that_runs_the_driver", "--exact", "--nocapture", "--test-threads=1"])
        .env(PORT, server.port().to_string());
    command
}

/// The process that [`start`] runs; without it, nothing.
#[test]
fn child_process_that_runs_the_driver() {
    let Ok(port) = env::var(PORT) else { return };
    let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let mut driver =
        Driver { port: port.parse().unwrap(), runtime, clients: HashMap::new(), threads: HashMap::new() };
    // The test harness has begun a line of its own.
    println!();
    say(0, &Answer::Ok("ready".into()));
    for line in io::stdin().lock().lines() {
        driver.read(&line.unwrap());
    }
    // The input has ended, and so has the parent process.
    process::exit(0);
}

struct Driver {
    port: u16,
    runtime: Runtime,
    /// By their watchdog time.
    clients: HashMap<String, Client>,
    /// The queue of commands of each thread.
    threads: HashMap<String, UnboundedSender<(u64, String)>>,
}

impl Driver {
    fn read(&mut self, line: &str) {
        let mut words = line.splitn(3, ' ');
        let mut word = || words.next().expect("a number, a thread and a command").to_owned();
        let (number, thread, command) = (word().parse().unwrap(), word(), word());
        if command == "die" {
            process::abort();
        }
        if !self.threads.contains_key(&thread) {
            let sender = self.thread(thread.split('/').next().expect("a client"));
            self.threads.insert(thread.clone(), sender);
        }
        self.threads[&thread].send((number, command)).expect("threads do not end");
    }

    /// An owner of its own, and its task.
    fn thread(&mut self, watchdog: &str) -> UnboundedSender<(u64, String)> {
        let url = env::var(URL).unwrap_or_else(|_| format!("redis://127.0.0.1:{}", self.port));
        let client = self.clients.entry(watchdog.to_owned()).or_insert_with(|| {
            let watchdog = Duration::from_millis(watchdog.parse().expect("a number"));
            // A machine that is busy with other tests is slow, not broken.
            let connect = Client::connect(url).watchdog(watchdog).response_timeout(Duration::from_secs(30));
            connect.block().expect("the server listens")
        });
        let number = u32::try_from(self.threads.len() + 1).unwrap();
        let mut thread = Thread::new(client.clone(), Owner::number(number), self.port);
        let (sender, mut commands) = unbounded_channel::<(u64, String)>();
        self.runtime.spawn(async move {
            while let Some((number, command)) = commands.recv().await {
                say(number, &thread.run(&command).await);
            }
        });
        sender
    }
}

fn say(number: u64, answer: &Answer) {
    let (kind, text) = match answer {
        Answer::Ok(text) => ("ok", text),
        Answer::Refused(text) => ("refused", text),
        Answer::Unsupported(text) => ("unsupported", text),
        Answer::Error(text) => ("error", text),
    };
    // A write fails only if the parent process has ended.
    let _ = writeln!(io::stdout().lock(), "= {number} {kind} {text}");
}
