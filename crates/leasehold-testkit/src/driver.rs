//! The process behind a [`Peer`](crate::peer::Peer), which carries out the commands of its input.

use std::collections::HashMap;
use std::future::Future;
use std::io::{self, BufRead as _, Write as _};
use std::process;
use std::time::Duration;

use leasehold::Client;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

use crate::peer::Answer;

/// A thread in the sense of a peer: an owner that carries out its commands in order.
pub trait Thread: Send + 'static {
    /// Carries out a command.
    fn run(&mut self, command: &str) -> impl Future<Output = Answer> + Send;
}

/// Carries out the commands of the parent process, and ends this process with it; `die` aborts this process at once.
///
/// `connect` makes the client for a watchdog time. `thread` makes a thread of a client; the threads are numbered from one on.
///
/// # Panics
///
/// When a line of the input is not a command.
pub fn serve<T: Thread>(connect: impl Fn(Duration) -> Client, thread: impl Fn(Client, u32) -> T) -> ! {
    let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let runtime = runtime.expect("a runtime needs few resources");
    let mut driver = Driver { connect, thread, runtime, clients: HashMap::new(), threads: HashMap::new() };
    // The test harness has begun a line of its own.
    println!();
    say(0, &Answer::Ok("ready".into()));
    for line in io::stdin().lock().lines() {
        driver.read(&line.expect("the input is text"));
    }
    // The input has ended, and so has the parent process.
    process::exit(0);
}

struct Driver<C, F> {
    connect: C,
    thread: F,
    runtime: Runtime,
    /// By their watchdog time.
    clients: HashMap<String, Client>,
    /// The queue of commands of each thread.
    threads: HashMap<String, UnboundedSender<(u64, String)>>,
}

impl<C: Fn(Duration) -> Client, T: Thread, F: Fn(Client, u32) -> T> Driver<C, F> {
    fn read(&mut self, line: &str) {
        let mut words = line.splitn(3, ' ');
        let mut word = || words.next().expect("a number, a thread and a command").to_owned();
        let (number, thread, command) = (word().parse().expect("a number"), word(), word());
        if command == "die" {
            process::abort();
        }
        if !self.threads.contains_key(&thread) {
            let sender = self.begin(thread.split('/').next().expect("a client"));
            self.threads.insert(thread.clone(), sender);
        }
        self.threads[&thread].send((number, command)).expect("threads do not end");
    }

    /// Begins the task of a new thread.
    fn begin(&mut self, watchdog: &str) -> UnboundedSender<(u64, String)> {
        let client = self.clients.entry(watchdog.to_owned()).or_insert_with(|| {
            (self.connect)(Duration::from_millis(watchdog.parse().expect("a number of milliseconds")))
        });
        let number = u32::try_from(self.threads.len() + 1).expect("threads are few");
        let mut thread = (self.thread)(client.clone(), number);
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
    // A write fails only if the parent process has ended.
    let _ = writeln!(io::stdout().lock(), "= {number} {answer}");
}
