//! The simulated server, the machines of the clients, and the record of their faults.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use leasehold::test::{Host, Schedule, Simulation};
use tokio::time::Instant;

use super::super::round::CLIENTS;

/// What the clients of a round run on.
#[derive(Debug)]
pub(in super::super) struct SimulatedNetwork {
    simulation: Simulation,
    /// One for each client.
    hosts: Vec<Host>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    conditions: Conditions,
    disruptions: Vec<Disruption>,
    /// Clients that were shut down.
    shut_down: Vec<usize>,
}

/// The conditions of a whole episode.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Conditions {
    /// How long a request, a reply and a message take.
    pub(super) latency: Duration,
    /// Whether messages arrive twice.
    pub(super) is_doubled: bool,
    /// How much later requests of a broken connection are carried out, if they are.
    pub(super) acts_late: Option<Duration>,
}

/// A time in which a client could not reach the server, or did not run.
#[derive(Debug)]
struct Disruption {
    /// None means all clients.
    client: Option<usize>,
    /// Whether its machine was stopped.
    is_stop: bool,
    from: Instant,
    /// None means not yet.
    to: Option<Instant>,
}

impl Disruption {
    /// How much of the time since then it took.
    fn since(&self, since: Instant, now: Instant) -> Duration {
        self.to.unwrap_or(now).min(now).saturating_duration_since(self.from.max(since))
    }
}

/// How long after a fault its effects last: a missing reply is noticed after two seconds.
const AFTER_FAULT: Duration = Duration::from_millis(2500);

impl SimulatedNetwork {
    pub(in super::super) fn new(schedule: &Schedule) -> Self {
        let hosts = (0..CLIENTS).map(|_| schedule.host()).collect();
        Self { simulation: Simulation::new(), hosts, state: Mutex::default() }
    }

    pub(super) fn url(&self) -> &str {
        self.simulation.url()
    }

    /// Runs a future on the machine of a client.
    pub(super) async fn run<T: Send + 'static>(
        &self,
        client: usize,
        work: impl Future<Output = T> + Send + 'static,
    ) -> T {
        self.hosts[client].spawn(work).await
    }

    /// The server.
    pub(super) fn server(&self) -> &Simulation {
        &self.simulation
    }

    pub(super) fn names(&self) -> usize {
        self.simulation.names()
    }

    /// Starts a task of a client.
    pub(in super::super) fn spawn(&self, client: usize, work: impl Future<Output = ()> + Send + 'static) {
        drop(self.hosts[client].spawn(work));
    }

    /// Runs a query by the clock of a client.
    pub(in super::super) fn by_clock_of<T>(&self, client: usize, query: impl FnOnce() -> T) -> T {
        self.hosts[client].enter(query)
    }

    /// Stops the machine of a client.
    pub(super) fn stop(&self, client: usize) {
        self.hosts[client].stop();
        let (client, from) = (Some(client), Instant::now());
        self.state().disruptions.push(Disruption { client, is_stop: true, from, to: None });
    }

    /// Resumes the machine of a client.
    pub(super) fn resume(&self, client: usize) {
        let now = Instant::now();
        let mut state = self.state();
        let stops = state.disruptions.iter_mut().filter(|disruption| disruption.is_stop);
        for stop in stops.filter(|stop| stop.client == Some(client)) {
            stop.to.get_or_insert(now);
        }
        drop(state);
        self.hosts[client].resume();
    }

    /// Makes the clock of a client run faster than that of the server, or slower, in thousandths.
    pub(super) fn clock_runs(&self, client: usize, fast: i32) {
        self.hosts[client].clock_rate(1.0 + f64::from(fast) / 1000.0);
    }

    /// Begins an episode.
    pub(super) fn begin(&self, conditions: Conditions) {
        self.state().conditions = conditions;
        self.clear();
    }

    /// Ends the faults of the server, except for the conditions of the episode.
    pub(super) fn clear(&self) {
        let Conditions { latency, is_doubled, acts_late } = self.state().conditions;
        self.simulation.clear();
        self.simulation.latency(latency);
        if is_doubled {
            self.simulation.double_messages();
        }
        if let Some(delay) = acts_late {
            self.simulation.act_late(delay);
        }
        let now = Instant::now();
        for disruption in self.state().disruptions.iter_mut().filter(|disruption| !disruption.is_stop) {
            disruption.to.get_or_insert(now + AFTER_FAULT);
        }
    }

    /// Ends all faults.
    pub(in super::super) fn heal(&self) {
        self.clear();
        (0..CLIENTS).for_each(|client| self.resume(client));
    }

    /// The server cannot be reached from now on, or only at times.
    pub(super) fn begin_disruption(&self) {
        let disruption = Disruption { client: None, is_stop: false, from: Instant::now(), to: None };
        self.state().disruptions.push(disruption);
    }

    /// For how long the machine of a client was stopped since then.
    pub(in super::super) fn stopped(&self, client: usize, since: Instant) -> Duration {
        let now = Instant::now();
        let state = self.state();
        let stops = state
            .disruptions
            .iter()
            .filter(|disruption| disruption.is_stop && disruption.client == Some(client));
        stops.map(|stop| stop.since(since, now)).sum()
    }

    /// Whether a client was disrupted for a good part of a lease that has ended now.
    pub(in super::super) fn was_disrupted(&self, client: usize, lease: Duration, now: Instant) -> bool {
        let Some(since) = now.checked_sub(lease + lease / 50) else { return true };
        let state = self.state();
        let disruptions =
            state.disruptions.iter().filter(|disruption| disruption.client.is_none_or(|of| of == client));
        let all: Duration = disruptions.map(|disruption| disruption.since(since, now)).sum();
        all >= lease / 4
    }

    /// A client is shut down.
    pub(super) fn shut_down(&self, client: usize) {
        self.state().shut_down.push(client);
    }

    pub(in super::super) fn is_shut_down(&self, client: usize) -> bool {
        self.state().shut_down.contains(&client)
    }

    /// Earlier faults explain nothing from now on.
    pub(super) fn forget(&self) {
        self.state().disruptions.clear();
    }

    /// The state of the server: semaphores without acquired permits do not count.
    pub(in super::super) fn left(&self) -> Vec<String> {
        let names = self.names();
        if names == 0 { Vec::new() } else { vec![format!("the server knows {names} names")] }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
