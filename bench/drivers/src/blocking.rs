//! The jobs on a plain thread, for locks whose calls block: no runtime, one task.

use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};

use crate::args::{Args, Error};
use crate::driver::{Conversation, ended};
use crate::histogram::Recorder;
use crate::jobs::{Plan, nanos};
use crate::outcome::Outcome;
use crate::witness::unix_nanos;

/// A lock whose calls block the thread.
pub trait BlockingContender {
    /// The lock of one name, made once.
    type Lock;
    /// A held lock.
    type Held;

    /// The lock of a name. The time for it is not measured.
    fn lock(&self, name: &str) -> Self::Lock;

    /// Waits for a lock, without a limit.
    ///
    /// # Errors
    ///
    /// When it cannot be acquired.
    fn acquire(&self, lock: &Self::Lock) -> Result<Self::Held, Error>;

    /// Releases it.
    ///
    /// # Errors
    ///
    /// When the release is not confirmed.
    fn release(&self, held: Self::Held) -> Result<(), Error>;
}

/// Connects a contender, and runs the job of the command line with it on this thread.
pub fn drive_blocking<C: BlockingContender>(connect: impl FnOnce(&Args) -> Result<C, Error>) -> ExitCode {
    ended(Args::of_process().and_then(|args| run(&connect(&args)?, &args)))
}

fn run<C: BlockingContender>(contender: &C, args: &Args) -> Result<(), Error> {
    let (job, prefix) = (args.need("job")?, args.need("prefix")?);
    let process: u64 = args.number("process")?;
    let tasks: u32 = args.number("tasks")?;
    if tasks != 1 {
        return Err(format!("one thread cannot do the work of {tasks} tasks").into());
    }
    let warm = contender.lock(&format!("{prefix}:warm{process}"));
    let warm_up = || pairs(contender, &warm, args.millis("warm_ms")?);
    match job {
        "pairs" => {
            warm_up()?;
            Conversation::say("ready")?;
            let lock = contender.lock(&format!("{prefix}:0"));
            Conversation::end(&pairs(contender, &lock, args.millis("run_ms")?)?)
        }
        "contend" => {
            let plan = Plan::new(args, process)?;
            warm_up()?;
            Conversation::say("ready")?;
            Conversation::end(&contend(contender, &plan)?)
        }
        other => Err(format!("there is no job {other} on a plain thread").into()),
    }
}

/// Acquires a lock and releases it, repeatedly; at least once.
fn pairs<C: BlockingContender>(contender: &C, lock: &C::Lock, time: Duration) -> Result<Outcome, Error> {
    let latency = Recorder::new();
    let (began, mut grants) = (Instant::now(), 0);
    loop {
        let start = Instant::now();
        contender.release(contender.acquire(lock)?)?;
        latency.record(0, nanos(start));
        grants += 1;
        if began.elapsed() >= time {
            break;
        }
    }
    let elapsed_ns = nanos(began);
    Ok(Outcome { elapsed_ns, grants, tasks: vec![grants], latency: latency.finish(), ..Outcome::default() })
}

/// Contends with another process for one name.
fn contend<C: BlockingContender>(contender: &C, plan: &Plan) -> Result<Outcome, Error> {
    let (waits, handovers) = (Recorder::new(), Recorder::new());
    let lock = contender.lock(&plan.names[0]);
    let who = (plan.process << 32) + 1;
    let (began, mut counted, mut grants) = (Instant::now(), 0, 0);
    while began.elapsed() < plan.run {
        let (start, since) = (Instant::now(), unix_nanos());
        let held = contender.acquire(&lock)?;
        let wait = nanos(start);
        if let Some(handover) = plan.witness.enter(0, who, since) {
            handovers.record(0, handover);
        }
        waits.record(0, wait);
        grants += 1;
        counted += u64::from(began.elapsed() < plan.run);
        thread::sleep(plan.work);
        plan.witness.leave(0, who);
        contender.release(held)?;
        thread::sleep(plan.pause);
    }
    Ok(Outcome {
        elapsed_ns: plan.run.as_nanos() as u64,
        grants,
        tasks: vec![counted],
        latency: waits.finish(),
        handover: handovers.finish(),
        violations: plan.witness.violations(),
        ..Outcome::default()
    })
}
