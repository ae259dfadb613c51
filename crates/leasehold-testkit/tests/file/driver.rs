//! A process of ours that locks on command, by lines of input.

use std::any::Any;
use std::env;
use std::path::PathBuf;

use leasehold::{Client, Guard};
use leasehold_testkit::bench::Files;
use leasehold_testkit::driver;
use leasehold_testkit::peer::{Answer, Peer};

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
    let connect = |watchdog| Client::connect(&url).watchdog(watchdog).label("driver").block().unwrap();
    driver::serve(connect, |client, _| Thread { client, held: Held::Nothing });
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

impl driver::Thread for Thread {
    async fn run(&mut self, command: &str) -> Answer {
        match self.done(command).await {
            Ok(result) => Answer::Ok(result),
            Err(error) => Answer::Refused(error.to_string()),
        }
    }
}

impl Thread {
    async fn done(&mut self, command: &str) -> Result<String, Error> {
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
