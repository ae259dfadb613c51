//! One contender in one scenario.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bench_drivers::{Histogram, Outcome, RECORD, wire};
use leasehold_servers::certificates::Certificates;
use leasehold_servers::resp::{Connection, Value};
use leasehold_servers::server::{Etcd, Flavour, Server};

use crate::driver::{Driver, Places};
use crate::info::Info;
use crate::mariadb::MariaDb;
use crate::metrics::{Metrics, jain};
use crate::plan::{self, Contender, Contention, Family, Job, Options, Program, Scenario, Step};
use crate::{wake, zipf};

/// How long a driver may take to start, or to end after its time.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// The server and the paths. Clones share the server.
#[derive(Clone)]
pub(crate) struct Runner {
    pub(crate) places: Places,
    /// None if no contender of the plan needs one.
    server: Option<Arc<Server>>,
    /// None if no contender of the plan needs one.
    tls: Option<Arc<TlsServer>>,
    /// None if no contender of the plan needs one.
    etcd: Option<Arc<Etcd>>,
    run: Duration,
    warm_up: Duration,
    last_turns: Duration,
    /// How many renewal periods are watched; Leasehold's and Redisson's are a third of the lease.
    pub(crate) periods: u32,
    runs: Arc<AtomicUsize>,
    /// Whether the library is the one whose scripts the baselines send.
    is_of_this_checkout: bool,
}

/// A server that is reached by TLS, and the certificates that it has.
struct TlsServer {
    server: Server,
    certificates: Certificates,
}

impl TlsServer {
    fn start() -> Self {
        let certificates = Certificates::new();
        let files = certificates.of_server(&certificates.server());
        Self { server: Server::builder(Flavour::Redis).tls(files).start(), certificates }
    }
}

impl Runner {
    /// Starts the servers that the contenders of the plan need.
    pub(crate) fn new(options: &Options, plan: &[Step]) -> Result<Self, String> {
        // Some contenders open a connection for each task.
        let start = || Arc::new(Server::builder(Flavour::Redis).config("maxclients 15000").start());
        Ok(Self {
            places: Places::new(options)?,
            server: plan::needs_server(plan).then(start),
            tls: plan::needs_tls(plan).then(|| Arc::new(TlsServer::start())),
            etcd: plan::needs_etcd(plan).then(|| Arc::new(Etcd::start())),
            run: options.run(),
            warm_up: options.warm_up(),
            last_turns: options.last_turns(),
            periods: options.periods(),
            runs: Arc::default(),
            is_of_this_checkout: true,
        })
    }

    /// The same for short runs by turns.
    pub(crate) fn for_turns(&self, options: &Options) -> Self {
        Self { run: options.slice(), warm_up: options.slice_warm_up(), ..self.clone() }
    }

    /// The same with the drivers of another checkout.
    pub(crate) fn of_another_checkout(&self, drivers: &Path) -> Self {
        Self { places: self.places.with_rust(drivers), is_of_this_checkout: false, ..self.clone() }
    }

    /// The figures, or why there are none.
    pub(crate) fn run(&self, scenario: &Scenario, contender: &Contender) -> Result<Metrics, String> {
        if let Some(reason) = contender.cannot(scenario) {
            return Err(reason.into());
        }
        let number = self.runs.fetch_add(1, Ordering::Relaxed);
        let prefix = format!("bench{number}");
        let server = self.server_of(contender);
        let mut connection = server.filter(|_| contender.family.needs_server()).map(Server::connect);
        if let Some(connection) = &mut connection {
            for command in [&["FLUSHALL"][..], &["SCRIPT", "FLUSH"]] {
                connection.call(command).map_err(|error| error.to_string())?;
            }
        }
        let connection = connection.as_mut();
        let needed = "this scenario needs a server";
        match scenario.job {
            Job::Pairs { tasks } => self.pairs(contender, &prefix, tasks, connection),
            Job::Contend(contention) => self.contend(contender, &prefix, contention, connection),
            Job::Hold { count } => wake::hold(self, contender, &prefix, count, connection.ok_or(needed)?),
            Job::Wake { count } => wake::wake(self, contender, &prefix, count, connection.ok_or(needed)?),
        }
    }

    /// A connection to the server, if there is one.
    pub(crate) fn connect(&self) -> Option<Connection> {
        self.server.as_ref().map(|server| server.connect())
    }

    /// Whether there is a server of etcd.
    pub(crate) fn has_etcd(&self) -> bool {
        self.etcd.is_some()
    }

    /// The server of a contender, if there is one.
    fn server_of(&self, contender: &Contender) -> Option<&Server> {
        match &self.tls {
            Some(tls) if contender.tls => Some(&tls.server),
            _ => self.server.as_deref(),
        }
    }

    /// How long a driver warms up.
    fn warm_up(&self, contender: &Contender) -> Duration {
        match contender.program {
            // A just-in-time compiler needs some time until the code is fast.
            Program::Java => self.warm_up * 4,
            _ => self.warm_up,
        }
    }

    /// The arguments of every driver.
    pub(crate) fn words(&self, contender: &Contender, job: &str, prefix: &str, tasks: usize) -> Vec<String> {
        let url = match &self.etcd {
            Some(etcd) if contender.family == Family::Etcd => etcd.url(),
            _ => self.server_of(contender).map_or_else(String::new, Server::url),
        };
        let ca = self.tls.as_ref().filter(|_| contender.tls);
        let ca = ca.map(|tls| format!("ca={}", tls.certificates.ca().display()));
        let words = [
            format!("url={url}"),
            format!("job={job}"),
            format!("prefix={prefix}"),
            format!("tasks={tasks}"),
            format!("run_ms={}", self.run.as_millis()),
            format!("warm_ms={}", self.warm_up(contender).as_millis()),
        ];
        words.into_iter().chain(ca).collect()
    }

    fn pairs(
        &self,
        contender: &Contender,
        prefix: &str,
        tasks: usize,
        mut connection: Option<&mut Connection>,
    ) -> Result<Metrics, String> {
        let mut words = self.words(contender, "pairs", prefix, tasks);
        let locks = LockDirectory::of(contender, prefix)?;
        words.extend(locks.as_ref().map(LockDirectory::word));
        let mut driver = Driver::start(&self.places, contender, &words)?;
        driver.expect("ready", PATIENCE + self.warm_up(contender))?;
        let costs = Costs::begin(&[&driver], connection.as_deref_mut())?;
        driver.say("go")?;
        let outcome = driver.outcome(PATIENCE + self.run)?;
        let mut metrics = costs.end(&[&driver], connection.as_deref_mut(), contender, outcome.grants)?;
        failures(&outcome)?;
        if let Some(connection) = connection.filter(|_| self.is_of_this_checkout) {
            same_scripts(contender, connection)?;
        }
        metrics.insert("rate", outcome.grants as f64 / seconds(outcome.elapsed_ns));
        quantiles(&mut metrics, &outcome.latency, ["p50", "p99"]);
        Ok(metrics)
    }

    fn contend(
        &self,
        contender: &Contender,
        prefix: &str,
        contention: Contention,
        mut connection: Option<&mut Connection>,
    ) -> Result<Metrics, String> {
        let mut words = self.words(contender, "contend", prefix, contention.tasks);
        let Contention { processes, names, work, pause, turns, .. } = contention;
        words.push(format!("names={names}"));
        words.push(format!("work_us={}", work.as_micros()));
        words.push(format!("pause_us={}", pause.as_micros()));
        words.push(format!("turns={turns}"));
        let files = Files::new(prefix, names)?;
        // In memory a grant takes less time than a read of a file.
        let watched = contender.family != Family::Memory;
        if watched {
            words.push(format!("witness={}", files.witness.display()));
        }
        if names > 1 {
            words.push(format!("draws={}", files.draws.display()));
        }
        let database = if contender.family == Family::Database { Some(MariaDb::start()?) } else { None };
        if let Some(database) = &database {
            words[0] = format!("url={}", database.url());
        }
        let locks = LockDirectory::of(contender, prefix)?;
        words.extend(locks.as_ref().map(LockDirectory::word));
        let mut drivers = Vec::new();
        for process in 0..processes {
            let mut words = words.clone();
            words.push(format!("process={process}"));
            drivers.push(Driver::start(&self.places, contender, &words)?);
        }
        for driver in &mut drivers {
            driver.expect("ready", PATIENCE + self.warm_up(contender))?;
        }
        let asked = database.as_ref().map_or(Ok(0.0), MariaDb::questions)?;
        let costs = Costs::begin(&drivers.iter().collect::<Vec<_>>(), connection.as_deref_mut())?;
        for driver in &mut drivers {
            driver.say("go")?;
        }
        let mut outcomes = Vec::new();
        for driver in &mut drivers {
            let outcome = driver.outcome(self.last_turns + self.run);
            outcomes.push(outcome.map_err(|error| explained(error, connection.as_deref_mut()))?);
        }
        let grants: u64 = outcomes.iter().map(|outcome| outcome.grants).sum();
        let mut metrics = costs.end(&drivers.iter().collect::<Vec<_>>(), connection, contender, grants)?;
        if let Some(database) = &database {
            // Minus the query itself.
            let asked = database.questions()? - asked - 1.0;
            metrics.insert("commands", asked / grants as f64);
            metrics.remove("connections");
            metrics.remove("server_cpu");
        }
        outcomes.iter().try_for_each(failures)?;
        contended(&mut metrics, &outcomes);
        if watched {
            let counted = files.counted()?;
            metrics.insert("lost", grants as f64 - counted as f64);
        }
        Ok(metrics)
    }
}

/// Adds to the error of a silent driver whether there was a lock to wait for.
fn explained(error: String, connection: Option<&mut Connection>) -> String {
    match connection.map(|connection| connection.call(&["DBSIZE"])) {
        Some(Ok(Value::Int(0))) => format!("{error}, although the lock was free: waiters were stranded"),
        _ => error,
    }
}

/// The figures of a contended run.
fn contended(metrics: &mut Metrics, outcomes: &[Outcome]) {
    let (mut waits, mut handovers) = (Histogram::default(), Histogram::default());
    let (mut tasks, mut processes) = (Vec::new(), Vec::new());
    for outcome in outcomes {
        waits.merge(&outcome.latency);
        handovers.merge(&outcome.handover);
        tasks.extend(&outcome.tasks);
        processes.push(outcome.tasks.iter().sum());
    }
    let counted: u64 = processes.iter().sum();
    let elapsed = outcomes.iter().map(|outcome| outcome.elapsed_ns).max().unwrap_or(1);
    metrics.insert("rate", counted as f64 / seconds(elapsed));
    metrics.insert("elapsed", elapsed as f64 / 1e3);
    metrics.insert("requests", metrics.get("commands").unwrap_or(&0.0) * counted as f64);
    metrics.insert("jain_tasks", jain(&tasks));
    metrics.insert("jain_processes", jain(&processes));
    metrics.insert("violations", outcomes.iter().map(|outcome| outcome.violations as f64).sum());
    quantiles(metrics, &waits, ["p50", "p99"]);
    quantiles(metrics, &handovers, ["handover_p50", "handover_p99"]);
    if let Some(mean) = waits.mean() {
        metrics.insert("worst", waits.max as f64 / mean);
    }
}

fn seconds(nanos: u64) -> f64 {
    nanos.max(1) as f64 / 1e9
}

fn quantiles(metrics: &mut Metrics, histogram: &Histogram, names: [&'static str; 2]) {
    for (name, share) in names.into_iter().zip([0.5, 0.99]) {
        if let Some(value) = histogram.quantile(share) {
            metrics.insert(name, value / 1e3);
        }
    }
}

/// A contender that failed has no figures: a failed operation takes no time.
fn failures(outcome: &Outcome) -> Result<(), String> {
    match &outcome.error {
        Some(error) if outcome.errors > 0 => Err(format!("failed {} times: {error}", outcome.errors)),
        _ => Ok(()),
    }
}

/// Checks that the library has sent the scripts that the baselines send: else they would be no baselines.
fn same_scripts(contender: &Contender, connection: &mut Connection) -> Result<(), String> {
    let setnx = match contender.id {
        "leasehold" | "leasehold-tls" => false,
        "leasehold-setnx" => true,
        _ => return Ok(()),
    };
    let hashes = wire::hashes(setnx);
    let mut command = vec!["SCRIPT", "EXISTS"];
    command.extend(hashes.iter().map(String::as_str));
    let known = connection.call(&command).map_err(|error| error.to_string())?;
    if known.elements().iter().all(|known| *known == 1) {
        Ok(())
    } else {
        Err("the library sends other scripts than the baselines: drivers/src/wire.rs is out of date".into())
    }
}

/// The cost of a run for the client and the server.
struct Costs {
    client: f64,
    /// None without a server.
    server: Option<Info>,
}

impl Costs {
    fn begin(drivers: &[&Driver], connection: Option<&mut Connection>) -> Result<Self, String> {
        let server = connection.map(Info::ask).transpose()?;
        Ok(Self { client: drivers.iter().map(|driver| driver.cpu()).sum(), server })
    }

    fn end(
        self,
        drivers: &[&Driver],
        connection: Option<&mut Connection>,
        contender: &Contender,
        done: u64,
    ) -> Result<Metrics, String> {
        let client: f64 = drivers.iter().map(|driver| driver.cpu()).sum();
        let each = 1e6 / done.max(1) as f64;
        let mut metrics = Metrics::from([("client_cpu", (client - self.client) * each)]);
        if let Some((connection, before)) = connection.zip(self.server) {
            let server = Info::ask(connection)?;
            metrics.extend([
                ("server_cpu", (server.cpu - before.cpu) * each),
                ("commands", server.sent_since(&before, contender.plain) / done.max(1) as f64),
                // The harness' own does not count.
                ("connections", server.connections - 1.0),
            ]);
        }
        Ok(metrics)
    }
}

/// The directory of the lock files of a run. It is removed when this is dropped.
struct LockDirectory(PathBuf);

impl LockDirectory {
    /// A new one, if a contender locks files.
    fn of(contender: &Contender, prefix: &str) -> Result<Option<Self>, String> {
        if contender.family != Family::File {
            return Ok(None);
        }
        let path = std::env::temp_dir().join(format!("leasehold-{}-{prefix}-locks", std::process::id()));
        fs::create_dir(&path).map_err(|error| format!("cannot make {}: {error}", path.display()))?;
        Ok(Some(Self(path)))
    }

    /// The argument of a driver. The last one of a key counts.
    fn word(&self) -> String {
        format!("url=file://{}", self.0.display())
    }
}

impl Drop for LockDirectory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// The files that the processes of a run share.
struct Files {
    witness: PathBuf,
    draws: PathBuf,
}

impl Files {
    fn new(prefix: &str, names: usize) -> Result<Self, String> {
        let memory = PathBuf::from("/dev/shm");
        let directory = if memory.is_dir() { memory } else { std::env::temp_dir() };
        let at = |what: &str| directory.join(format!("leasehold-{}-{prefix}-{what}", std::process::id()));
        let files = Self { witness: at("witness"), draws: at("draws") };
        let wrote = fs::write(&files.witness, vec![0; names * RECORD])
            .and_then(|()| fs::write(&files.draws, zipf::draws(names)));
        wrote.map(|()| files).map_err(|error| format!("cannot write a file: {error}"))
    }

    /// How many grants were recorded, over all names.
    fn counted(&self) -> Result<u64, String> {
        let bytes = fs::read(&self.witness).map_err(|error| error.to_string())?;
        let count = |record: &[u8]| u64::from_le_bytes(std::array::from_fn(|byte| record[8 + byte]));
        Ok(bytes.chunks_exact(RECORD).map(count).sum())
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.witness);
        let _ = fs::remove_file(&self.draws);
    }
}
