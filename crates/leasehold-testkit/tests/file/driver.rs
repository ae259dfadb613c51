//! A process of ours that locks on command, by lines of input.

use std::any::Any;
use std::collections::HashMap;
use std::env;
use std::io::{self, BufRead as _, Write as _};
use std::path::PathBuf;
use std::process;
use std::time::Duration;

use leasehold::{Client, Guard};
use leasehold_testkit::bench::Files;
use leasehold_testkit::peer::Peer;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

use crate::support::{add, part, url_of_part};

/// Tells such a process from other parts.
const DRIVER: &str = "LEASEHOLD_PART_DRIVER";

/// Starts a process that locks on command in this directory.
pub(crate) fn start(name: &str, files: &Files) -> Peer {
    Peer::start(name, part("driver::child_process_that_locks_on_command", files).env(DRIVER, "1"))
}

#[test]
fn child_process_that_locks_on_command() {
    let (Ok(_), Some(url)) = (env::var(DRIVER), url_of_part()) else { return };
    let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let mut driver = Driver { url, runtime, clients: HashMap::new(), threads: HashMap::new() };
    // The test harness has begun a line of its own.
    println!();
    say(0, "ok ready");
    for line in io::stdin().lock().lines() {
        driver.read(&line.unwrap());
    }
    // The input has ended, and so has the parent process.
    process::exit(0);
}

struct Driver {
    url: String,
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
        if !self.threads.contains_key(&thread) {
            let sender = self.thread(thread.split('/').next().expect("a client"));
            self.threads.insert(thread.clone(), sender);
        }
        self.threads[&thread].send((number, command)).expect("threads do not end");
    }

    fn thread(&mut self, watchdog: &str) -> UnboundedSender<(u64, String)> {
        let client = self.clients.entry(watchdog.to_owned()).or_insert_with(|| {
            let watchdog = Duration::from_millis(watchdog.parse().expect("a number"));
            Client::connect(&self.url).watchdog(watchdog).label("driver").block().unwrap()
        });
        let mut thread = Thread { client: client.clone(), held: Held::Nothing };
        let (sender, mut commands) = unbounded_channel::<(u64, String)>();
        self.runtime.spawn(async move {
            while let Some((number, command)) = commands.recv().await {
                match thread.run(&command).await {
                    Ok(result) => say(number, &format!("ok {result}")),
                    Err(error) => say(number, &format!("refused {error}")),
                }
            }
        });
        sender
    }
}

fn say(number: u64, answer: &str) {
    // A write fails only if the parent process has ended.
    let _ = writeln!(io::stdout().lock(), "= {number} {answer}");
}

struct Thread {
    client: Client,
    held: Held,
}

enum Held {
    Nothing,
    Lock(Guard),
    Other { _held: Box<dyn Any + Send> },
}

impl Held {
    fn guard(&self) -> &Guard {
        let Self::Lock(guard) = self else { panic!("no lock is held") };
        guard
    }
}

type Error = Box<dyn std::error::Error + Send + Sync>;

impl Thread {
    async fn run(&mut self, command: &str) -> Result<String, Error> {
        let words: Vec<_> = command.split(' ').collect();
        let number = |at: usize| words[at].parse::<u32>().expect("a number");
        Ok(match words[..] {
            ["lock", name] => self.keep(self.client.lock(name).acquire().await?),
            ["group", name, value] => self.keep(self.client.group_lock(name, [value]).acquire().await?),
            ["try", name] => self.client.lock(name).try_acquire().await?.is_some().to_string(),
            ["write", name] => self.keep_other(self.client.rw_lock(name).write().acquire().await?),
            ["permits", name, _] => self.keep_other(self.client.semaphore(name).acquire(number(2)).await?),
            ["leased", name, _] => {
                self.keep_other(self.client.leased_semaphore(name).acquire(number(2)).await?)
            }
            ["held"] => self.held.guard().is_held().to_string(),
            ["lost"] => format!("{:?}", self.held.guard().lost().await),
            ["release"] => {
                if let Held::Lock(guard) = std::mem::replace(&mut self.held, Held::Nothing) {
                    guard.release().await?;
                }
                String::new()
            }
            // So many tasks wait at once, and each adds to the count in a file.
            ["turns", name, _, path] => {
                let tasks: Vec<_> = (0..number(2))
                    .map(|_| {
                        let (lock, path) = (self.client.lock(name), PathBuf::from(path));
                        tokio::spawn(async move {
                            let guard = lock.acquire().await.unwrap();
                            add(&path).await;
                            drop(guard);
                        })
                    })
                    .collect();
                for task in tasks {
                    task.await?;
                }
                String::new()
            }
            _ => panic!("unknown: {command}"),
        })
    }

    fn keep(&mut self, guard: Guard) -> String {
        let owner = guard.owner().to_string();
        self.held = Held::Lock(guard);
        owner
    }

    fn keep_other(&mut self, held: impl Any + Send) -> String {
        self.held = Held::Other { _held: Box::new(held) };
        String::new()
    }
}
