//! The executor of a simulation: one thread, and a seed that determines the next task.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use tokio::runtime::Builder;

use super::Entered;
use super::clock::Clock;
use super::dice::{Dice, mixed};
use super::host::Host;
use super::task::{Task, Wakes};
use crate::env::Instant;

/// A simulation of several machines in one thread. A seed determines which of the ready tasks is next, the random numbers and
/// the ids: the same seed gives the same run, in every process.
///
/// Time is tokio's paused clock, which jumps to the next timer when no task is ready. So an hour takes no time.
///
/// ```
/// use std::time::Duration;
/// use leasehold::test::{Schedule, Simulation};
/// use leasehold::{Client, Loss};
///
/// let trace = |seed| Schedule::run(seed, async |schedule| {
///     let simulation = Simulation::new();
///     let url = simulation.url().to_owned();
///     let host = schedule.host();
///     let holder = host.spawn(async move {
///         let client = Client::connect(&url).await.unwrap();
///         let guard = client.lock("nightly-report").acquire().await.unwrap();
///         guard.lost().await
///     });
///     tokio::time::sleep(Duration::from_secs(1)).await;
///
///     // The machine hangs for a minute. Its lease is over, and another takes the lock.
///     host.stop();
///     let url = simulation.url().to_owned();
///     let other = schedule.host().spawn(async move {
///         let client = Client::connect(&url).await.unwrap();
///         client.lock("nightly-report").acquire().wait(Duration::from_secs(60)).await.is_ok()
///     });
///     assert!(other.await);
///     host.resume();
///     assert_eq!(holder.await, Loss::Unreachable);
///     schedule.trace()
/// });
/// assert_eq!(trace(7), trace(7));
/// ```
///
/// For a reproducible run, start tasks by [`Host::spawn`] or [`Schedule::spawn`], not by tokio, wait by `.await` and not by
/// `.block()`, and make no random choices, as `tokio::select!` does without `biased`.
#[derive(Clone)]
pub struct Schedule {
    state: Arc<Mutex<State>>,
}

/// The trace of a [`Schedule`]: equal for two runs in which the same tasks ran at the same times, simulated servers received
/// the same requests in the same order, and the same values were [noted](Schedule::note).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Trace {
    steps: u64,
    digest: u64,
}

impl Trace {
    /// How often a task was polled.
    #[must_use]
    pub fn steps(&self) -> u64 {
        self.steps
    }

    fn add(&mut self, number: u64) {
        self.digest = mixed(self.digest ^ number).wrapping_add(0x9E37_79B9_7F4A_7C15);
    }
}

impl fmt::Display for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} steps, {:016x}", self.steps, self.digest)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct HostId(usize);

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct TaskId(u64);

/// The host of tasks that belong to no host.
const NO_HOST: HostId = HostId(0);
/// The main future of the run.
const MAIN: TaskId = TaskId(0);
/// The first unique number of a simulation: none of its numbers is ever generated outside.
const FIRST_NUMBER: u64 = 1 << 48;

/// Invariant: wakers are called and futures polled and dropped when the mutex is free, because they wake and start tasks.
struct State {
    begun: Instant,
    dice: Dice,
    machines: Vec<Machine>,
    tasks: BTreeMap<TaskId, Slot>,
    /// Tasks that were woken, including those of stopped hosts. In the order of their numbers, so that the order of the
    /// wake-ups does not matter.
    ready: BTreeSet<TaskId>,
    /// How many tasks were started.
    started: u64,
    /// The next unique number.
    number: u64,
    trace: Trace,
    /// Set while no task is ready.
    idle: Option<Waker>,
    is_over: bool,
}

/// The state that the tasks of one host share.
#[derive(Debug)]
pub(super) struct Machine {
    pub(super) clock: Clock,
    pub(super) dice: Dice,
    is_stopped: bool,
}

struct Slot {
    host: HostId,
    waker: Waker,
    /// Taken out while it is polled.
    future: Option<Work>,
}

type Work = Pin<Box<dyn Future<Output = ()> + Send>>;

impl Schedule {
    /// Runs `work` and all tasks that are started meanwhile, until `work` is done. Tasks that are not done then are dropped.
    ///
    /// # Panics
    ///
    /// If `work` or a task panics, and on a thread that is inside a runtime.
    pub fn run<T>(seed: u64, work: impl AsyncFnOnce(Self) -> T) -> T {
        let runtime = Builder::new_current_thread().enable_time().start_paused(true).build();
        runtime.expect("a timer takes no system resource").block_on(async {
            let schedule = Self::new(seed);
            let _end = End(schedule.clone());
            let mut main = pin!(work(schedule.clone()));
            // Tokio treats all tasks as one, whose budget would run out.
            tokio::task::unconstrained(poll_fn(|context| schedule.poll(main.as_mut(), context))).await
        })
    }

    fn new(seed: u64) -> Self {
        let state = State {
            begun: Instant::now(),
            dice: Dice::new(mixed(seed)),
            machines: Vec::new(),
            tasks: BTreeMap::new(),
            ready: BTreeSet::from([MAIN]),
            started: MAIN.0 + 1,
            number: FIRST_NUMBER,
            trace: Trace { steps: 0, digest: 0 },
            idle: None,
            is_over: false,
        };
        let schedule = Self { state: Arc::new(Mutex::new(state)) };
        // Tasks without a host have random numbers and a clock, too.
        let outside = schedule.host();
        debug_assert_eq!(outside.id, NO_HOST);
        schedule
    }

    /// One more machine.
    #[must_use]
    pub fn host(&self) -> Host {
        let mut state = self.state();
        let dice = Dice::new(state.dice.next());
        state.machines.push(Machine { clock: Clock::new(), dice, is_stopped: false });
        Host { schedule: self.clone(), id: HostId(state.machines.len() - 1) }
    }

    /// Starts a task on no host. It continues if its handle is dropped.
    pub fn spawn<T: Send + 'static>(&self, work: impl Future<Output = T> + Send + 'static) -> Task<T> {
        self.outside().spawn(work)
    }

    /// A number below `sides`, determined by the seed.
    ///
    /// # Panics
    ///
    /// If `sides` is zero.
    #[must_use]
    pub fn random_below(&self, sides: u64) -> u64 {
        self.outside().random() % sides
    }

    /// Adds an observation of the test to the trace.
    pub fn note(&self, what: impl fmt::Display) {
        let what = what.to_string();
        let mut state = self.state();
        what.bytes().for_each(|byte| state.trace.add(byte.into()));
    }

    /// The trace so far.
    #[must_use]
    pub fn trace(&self) -> Trace {
        self.state().trace
    }

    /// The host of tasks that belong to no host.
    pub(in crate::env) fn outside(&self) -> Host {
        Host { schedule: self.clone(), id: NO_HOST }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn on<T>(&self, host: HostId, change: impl FnOnce(&mut Machine) -> T) -> T {
        change(&mut self.state().machines[host.0])
    }

    pub(super) fn unique_numbers(&self, numbers: u32) -> u64 {
        let mut state = self.state();
        let first = state.number;
        state.number += u64::from(numbers);
        first
    }

    pub(super) fn set_stopped(&self, host: HostId, is_stopped: bool) {
        self.on(host, |machine| machine.is_stopped = is_stopped);
        self.wake_executor();
    }

    pub(super) fn set_clock_rate(&self, host: HostId, rate: f64) {
        let mut state = self.state();
        let State { machines, tasks, ready, .. } = &mut *state;
        machines[host.0].clock.run_at(rate);
        // Sleeps must set their timers again.
        ready.extend(tasks.iter().filter(|(_, slot)| slot.host == host).map(|(task, _)| *task));
        drop(state);
        self.wake_executor();
    }

    pub(super) fn add(&self, host: HostId, work: impl Future<Output = ()> + Send + 'static) -> TaskId {
        let mut state = self.state();
        let task = TaskId(state.started);
        if !state.is_over {
            state.started += 1;
            let waker = Arc::new(Wakes { schedule: self.clone(), task }).into();
            state.tasks.insert(task, Slot { host, waker, future: Some(Box::pin(work)) });
            drop(state);
            self.wake(task);
        }
        task
    }

    pub(super) fn has(&self, task: TaskId) -> bool {
        self.state().tasks.contains_key(&task)
    }

    pub(super) fn cancel(&self, task: TaskId) {
        let slot = self.state().tasks.remove(&task);
        if let Some(Slot { host, future, .. }) = slot {
            let _entered = Entered::new(Host { schedule: self.clone(), id: host });
            drop(future);
        }
    }

    pub(super) fn wake(&self, task: TaskId) {
        let mut state = self.state();
        if task == MAIN || state.tasks.contains_key(&task) {
            state.ready.insert(task);
            drop(state);
            self.wake_executor();
        }
    }

    /// Wakes the executor if it is idle: a task may be ready.
    fn wake_executor(&self) {
        let idle = self.state().idle.take();
        if let Some(waker) = idle {
            waker.wake();
        }
    }

    /// Polls one task after the other, until none is ready.
    fn poll<T>(&self, mut main: Pin<&mut impl Future<Output = T>>, context: &Context<'_>) -> Poll<T> {
        let waker = Waker::from(Arc::new(Wakes { schedule: self.clone(), task: MAIN }));
        while let Some((task, host)) = self.choose(context) {
            let _entered = Entered::new(Host { schedule: self.clone(), id: host });
            if task != MAIN {
                self.step(task);
            } else if let Poll::Ready(output) = main.as_mut().poll(&mut Context::from_waker(&waker)) {
                return Poll::Ready(output);
            }
        }
        Poll::Pending
    }

    /// The task to be polled next, and its host.
    fn choose(&self, context: &Context<'_>) -> Option<(TaskId, HostId)> {
        let mut state = self.state();
        let State { begun, dice, machines, tasks, ready, trace, idle, .. } = &mut *state;
        let host = |task: &TaskId| tasks.get(task).map_or(NO_HOST, |slot| slot.host);
        let candidates: Vec<_> = ready
            .iter()
            .map(|task| (*task, host(task)))
            .filter(|(_, host)| !machines[host.0].is_stopped)
            .collect();
        if candidates.is_empty() {
            *idle = Some(context.waker().clone());
            return None;
        }
        let (task, host) = candidates[dice.index(candidates.len())];
        ready.remove(&task);
        trace.steps += 1;
        trace.add(task.0);
        trace.add(u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX));
        Some((task, host))
    }

    fn step(&self, task: TaskId) {
        let taken = self.state().tasks.get_mut(&task).map(|slot| (slot.future.take(), slot.waker.clone()));
        let Some((Some(mut future), waker)) = taken else { return };
        let is_done = future.as_mut().poll(&mut Context::from_waker(&waker)).is_ready();
        let mut state = self.state();
        if is_done {
            state.tasks.remove(&task);
        } else if let Some(slot) = state.tasks.get_mut(&task) {
            slot.future = Some(future);
            return;
        }
        drop(state);
        drop(future);
    }
}

impl fmt::Debug for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Schedule").field("trace", &self.trace()).finish_non_exhaustive()
    }
}

/// Drops unfinished tasks when the run is over. No task is started any more.
struct End(Schedule);

impl Drop for End {
    fn drop(&mut self) {
        self.0.state().is_over = true;
        let tasks: Vec<_> = self.0.state().tasks.keys().copied().collect();
        for task in tasks {
            self.0.cancel(task);
        }
    }
}
