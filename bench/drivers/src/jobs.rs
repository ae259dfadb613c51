//! The jobs: pairs, contention, many held locks, many waiters.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use futures_util::future::join_all;

use crate::args::{Args, Error};
use crate::contender::Contender;
use crate::driver::Conversation;
use crate::histogram::Recorder;
use crate::outcome::Outcome;
use crate::witness::{Witness, unix_nanos};

/// How many locks are requested at once when many are to be held.
const AT_ONCE: usize = 256;

/// Warms up, reports that, and does the job.
pub(crate) async fn run<C: Contender>(contender: &Arc<C>, args: &Args) -> Result<(), Error> {
    let job = args.need("job")?;
    let (tasks, warm) = (args.number("tasks")?, args.millis("warm_ms")?);
    let prefix = args.need("prefix")?;
    let process: u64 = args.number("process")?;
    match job {
        "pairs" => {
            pairs(contender, &format!("{prefix}:warm"), tasks, warm).await?;
            Conversation::say("ready")?;
            Conversation::end(&pairs(contender, prefix, tasks, args.millis("run_ms")?).await?)
        }
        "contend" => {
            let plan = Arc::new(Plan::new(args, process)?);
            pairs(contender, &format!("{prefix}:warm{process}"), tasks.min(8), warm).await?;
            Conversation::say("ready")?;
            Conversation::end(&contend(contender, &plan, tasks).await?)
        }
        "hold" => {
            pairs(contender, &format!("{prefix}:warm"), 1, Duration::ZERO).await?;
            Conversation::say("ready")?;
            let began = Instant::now();
            let held = hold(contender, prefix, tasks).await?;
            let outcome =
                Outcome { elapsed_ns: nanos(began), grants: held.len() as u64, ..Outcome::default() };
            Conversation::say("held")?;
            Conversation::end(&outcome)
        }
        "wake" => {
            pairs(contender, &format!("{prefix}:warm"), 1, Duration::ZERO).await?;
            Conversation::say("ready")?;
            Conversation::end(&wake(contender, prefix, tasks).await?)
        }
        other => Err(format!("there is no job {other}").into()),
    }
}

pub(crate) fn nanos(since: Instant) -> u64 {
    since.elapsed().as_nanos() as u64
}

/// The failures of many tasks.
#[derive(Default)]
struct Troubles {
    count: AtomicU64,
    first: Mutex<Option<String>>,
}

impl Troubles {
    fn note(&self, error: &Error) {
        self.count.fetch_add(1, Ordering::Relaxed);
        self.first.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert_with(|| error.to_string());
    }

    fn tell(&self, outcome: &mut Outcome) {
        outcome.errors = self.count.load(Ordering::Relaxed);
        outcome.error.clone_from(&self.first.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

/// Each task acquires a lock of its own and releases it, repeatedly; at least once.
async fn pairs<C: Contender>(
    contender: &Arc<C>,
    prefix: &str,
    tasks: usize,
    time: Duration,
) -> Result<Outcome, Error> {
    let (latency, troubles) = (Arc::new(Recorder::new()), Arc::new(Troubles::default()));
    let began = Instant::now();
    let task = |task: usize| {
        let (contender, latency, troubles) =
            (Arc::clone(contender), Arc::clone(&latency), Arc::clone(&troubles));
        let name = format!("{prefix}:{task}");
        tokio::spawn(async move {
            let mut count = 0;
            loop {
                let start = Instant::now();
                match contender.acquire(&name).await {
                    Ok(held) => match contender.release(held).await {
                        Ok(()) => {
                            latency.record(task, nanos(start));
                            count += 1;
                        }
                        Err(error) => troubles.note(&error),
                    },
                    Err(error) => troubles.note(&error),
                }
                if began.elapsed() >= time {
                    return count;
                }
            }
        })
    };
    let tasks = join_all((0..tasks).map(task)).await.into_iter().collect::<Result<Vec<u64>, _>>()?;
    let mut outcome = Outcome {
        elapsed_ns: nanos(began),
        grants: tasks.iter().sum(),
        tasks,
        latency: latency.finish(),
        ..Outcome::default()
    };
    troubles.tell(&mut outcome);
    Ok(outcome)
}

/// The parameters of a contended run.
pub(crate) struct Plan {
    pub(crate) names: Vec<String>,
    /// The name of each turn; empty if there is only one.
    draws: Vec<u8>,
    pub(crate) process: u64,
    pub(crate) run: Duration,
    /// How many turns each task has; as many as fit into the time if there is no number.
    turns: u64,
    /// How long the lock is held.
    pub(crate) work: Duration,
    /// How long each task rests after a turn.
    pub(crate) pause: Duration,
    pub(crate) witness: Witness,
}

impl Plan {
    pub(crate) fn new(args: &Args, process: u64) -> Result<Self, Error> {
        let (prefix, count) = (args.need("prefix")?, args.number("names")?);
        let witness = match args.text("witness") {
            Some(path) => Witness::open(Path::new(path), process + 1)?,
            None => Witness::memory(count),
        };
        Ok(Self {
            names: (0..count).map(|name| format!("{prefix}:{name}")).collect(),
            draws: args.text("draws").map_or(Ok(Vec::new()), std::fs::read)?,
            process,
            run: args.millis("run_ms")?,
            turns: args.number("turns")?,
            work: args.micros("work_us")?,
            pause: args.micros("pause_us")?,
            witness,
        })
    }

    /// The name that a task acquires in its n-th turn: two bytes of the file of draws, which all contenders share.
    fn draw(&self, task: usize, turn: u64) -> usize {
        let draws = self.draws.len() / 2;
        if draws == 0 {
            return 0;
        }
        let seat = self.process as usize * 1024 + task;
        let at = 2 * ((seat * 257 + turn as usize) % draws);
        usize::from(u16::from_le_bytes([self.draws[at], self.draws[at + 1]])) % self.names.len()
    }
}

/// All tasks contend for the same names. Tasks that still wait when the time is over are served: their waits are recorded,
/// their grants do not count for the rate.
async fn contend<C: Contender>(contender: &Arc<C>, plan: &Arc<Plan>, tasks: usize) -> Result<Outcome, Error> {
    let (waits, handovers) = (Arc::new(Recorder::new()), Arc::new(Recorder::new()));
    let troubles = Arc::new(Troubles::default());
    let began = Instant::now();
    let task = |task: usize| {
        let (contender, plan) = (Arc::clone(contender), Arc::clone(plan));
        let (waits, handovers, troubles) =
            (Arc::clone(&waits), Arc::clone(&handovers), Arc::clone(&troubles));
        tokio::spawn(async move {
            let who = (plan.process << 32) + task as u64 + 1;
            let (mut counted, mut all) = (0, 0);
            while if plan.turns > 0 { all < plan.turns } else { began.elapsed() < plan.run } {
                let name = plan.draw(task, all);
                let (start, since) = (Instant::now(), unix_nanos());
                let held = match contender.acquire(&plan.names[name]).await {
                    Ok(held) => held,
                    Err(error) => {
                        troubles.note(&error);
                        continue;
                    }
                };
                let wait = nanos(start);
                if let Some(handover) = plan.witness.enter(name, who, since) {
                    handovers.record(task, handover);
                }
                waits.record(task, wait);
                all += 1;
                counted += u64::from(plan.turns > 0 || began.elapsed() < plan.run);
                if !plan.work.is_zero() {
                    tokio::time::sleep(plan.work).await;
                }
                plan.witness.leave(name, who);
                if let Err(error) = contender.release(held).await {
                    troubles.note(&error);
                }
                if !plan.pause.is_zero() {
                    tokio::time::sleep(plan.pause).await;
                }
            }
            (counted, all)
        })
    };
    let tasks = join_all((0..tasks).map(task)).await.into_iter().collect::<Result<Vec<(u64, u64)>, _>>()?;
    let elapsed = if plan.turns > 0 { began.elapsed() } else { plan.run };
    let mut outcome = Outcome {
        elapsed_ns: elapsed.as_nanos() as u64,
        grants: tasks.iter().map(|(_, all)| all).sum(),
        tasks: tasks.into_iter().map(|(counted, _)| counted).collect(),
        latency: waits.finish(),
        handover: handovers.finish(),
        violations: plan.witness.violations(),
        ..Outcome::default()
    };
    troubles.tell(&mut outcome);
    Ok(outcome)
}

/// Acquires many locks and keeps them.
async fn hold<C: Contender>(contender: &Arc<C>, prefix: &str, count: usize) -> Result<Vec<C::Held>, Error> {
    let mut held = Vec::with_capacity(count);
    for first in (0..count).step_by(AT_ONCE) {
        let names = first..(first + AT_ONCE).min(count);
        let acquires = names.map(|name| {
            let (contender, name) = (Arc::clone(contender), format!("{prefix}:{name}"));
            tokio::spawn(async move { contender.acquire(&name).await })
        });
        for acquired in join_all(acquires).await {
            held.push(acquired??);
        }
    }
    Ok(held)
}

/// Waits for many locks that the harness holds, each by a task of its own, until all were granted.
async fn wake<C: Contender>(contender: &Arc<C>, prefix: &str, count: usize) -> Result<Outcome, Error> {
    let waiters: Vec<_> = (0..count)
        .map(|name| {
            let (contender, name) = (Arc::clone(contender), format!("{prefix}:{name}"));
            tokio::spawn(async move {
                let held = contender.acquire(&name).await?;
                let granted = unix_nanos();
                contender.release(held).await?;
                Ok::<_, Error>(granted)
            })
        })
        .collect();
    tokio::task::yield_now().await;
    tokio::task::block_in_place(|| Conversation::say("held"))?;
    let mut outcome = Outcome::default();
    for granted in join_all(waiters).await {
        outcome.last_ns = outcome.last_ns.max(granted??);
        outcome.grants += 1;
    }
    Ok(outcome)
}
