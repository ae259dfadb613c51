//! The scenarios that are measured.

use std::time::Duration;

use super::contenders::{Contender, Family};

/// One scenario for all contenders.
#[derive(Debug, Clone)]
pub(crate) struct Scenario {
    /// Its letter and number, and its size where it has several.
    pub(crate) id: String,
    /// The letter and number alone.
    pub(crate) group: &'static str,
    pub(crate) title: String,
    pub(crate) job: Job,
    /// Only for Leasehold: smaller sizes that show how the cost grows.
    growth: bool,
}

/// The job of the drivers.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Job {
    /// Each task has a name of its own.
    Pairs { tasks: usize },
    /// All tasks contend for the same names.
    Contend(Contention),
    /// Many locks are held and renewed.
    Hold { count: usize },
    /// Many tasks wait, all locks are released at once.
    Wake { count: usize },
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Contention {
    pub(crate) processes: usize,
    pub(crate) tasks: usize,
    pub(crate) names: usize,
    pub(crate) work: Duration,
    pub(crate) pause: Duration,
    /// How many turns each task has; as many as fit into the time if there is no number.
    pub(crate) turns: usize,
}

impl Contention {
    const ONE_NAME: Self =
        Self { processes: 1, tasks: 64, names: 1, work: Duration::ZERO, pause: Duration::ZERO, turns: 0 };
}

/// The lease of W1. Others renew at a third or a half of it.
pub(crate) const LEASE: Duration = Duration::from_secs(9);

/// All scenarios, in the order in which they run.
pub(crate) fn scenarios() -> Vec<Scenario> {
    let one = |group, title: &str, job| Scenario {
        id: String::from(group),
        group,
        title: title.into(),
        job,
        growth: false,
    };
    let sized = |group, size: usize, title: String, job, growth| Scenario {
        id: format!("{group}-{size}"),
        group,
        title,
        job,
        growth,
    };
    let mut all = vec![one("U1", "uncontended, 1 task", Job::Pairs { tasks: 1 })];
    for tasks in [16, 128, 1024] {
        let title = format!("uncontended, {tasks} tasks with a name each");
        all.push(sized("U2", tasks, title, Job::Pairs { tasks }, false));
    }
    let contended = Contention::ONE_NAME;
    all.push(one("C1", "one name, 64 tasks of one process", Job::Contend(contended)));
    let several = Contention { processes: 8, tasks: 8, ..contended };
    all.push(one("C2", "one name, 8 processes × 8 tasks", Job::Contend(several)));
    let zipf =
        Contention { processes: 4, tasks: 64, names: 1000, work: Duration::from_millis(1), ..contended };
    all.push(one("C3", "1 000 names by Zipf, 4 processes × 64 tasks, 1 ms of work", Job::Contend(zipf)));
    // Each rests long enough that the other gets the lock, and holds it so long that the other sleeps by then.
    let (work, pause) = (Duration::from_millis(4), Duration::from_millis(1));
    let pair = Contention { processes: 2, tasks: 1, work, pause, ..contended };
    all.push(one("H", "release in one process to grant in another", Job::Contend(pair)));
    all.push(one("T1", "uncontended, 1 task, plain and with TLS", Job::Pairs { tasks: 1 }));
    let tasks = 128;
    let title = format!("uncontended, {tasks} tasks with a name each, plain and with TLS");
    all.push(one("T2", &title, Job::Pairs { tasks }));
    all.push(one("T3", "release in one process to grant in another, with TLS", Job::Contend(pair)));
    for (count, growth) in [(1_000, true), (10_000, true), (100_000, false)] {
        let title = format!("{count} locks held and renewed by one process");
        all.push(sized("W1", count, title, Job::Hold { count }, growth));
    }
    for (count, growth) in [(100, true), (1_000, true), (10_000, false)] {
        let title = format!("{count} waiters on as many names, all released at once");
        all.push(sized("W2", count, title, Job::Wake { count }, growth));
    }
    let gathering = Contention { tasks: 100, work: Duration::from_millis(1), turns: 1, ..contended };
    all.push(one("G", "100 users want to join a gathering", Job::Contend(gathering)));
    all.push(sized("M", 16, "in memory, 16 tasks with a name each".into(), Job::Pairs { tasks: 16 }, false));
    all.push(sized("M", 64, "in memory, one name, 64 tasks".into(), Job::Contend(contended), false));
    all.push(one("F1", "on files, uncontended, 1 task", Job::Pairs { tasks: 1 }));
    all.push(one("F2", "on files, release in one process to grant in another", Job::Contend(pair)));
    all.push(one("E1", "on etcd, uncontended, 1 task", Job::Pairs { tasks: 1 }));
    all.push(one("E2", "on etcd, uncontended, 64 tasks with a name each", Job::Pairs { tasks: 64 }));
    let pair = Contention { work: Duration::from_millis(5), ..pair };
    all.push(one("E3", "on etcd, release in one process to grant in another", Job::Contend(pair)));
    all.push(one("E4", "on etcd, one name, 64 tasks of one process", Job::Contend(contended)));
    all
}

impl Scenario {
    /// Whether `name` selects this one.
    pub(crate) fn is(&self, name: &str) -> bool {
        self.id.eq_ignore_ascii_case(name) || self.group.eq_ignore_ascii_case(name)
    }

    /// Whether an older library is compared in this one. The others are judged by their targets: they are not about speed,
    /// or take too long to be repeated nine times.
    pub(crate) fn is_for_old_and_new(&self) -> bool {
        match self.group {
            "U2" => ["U2-128", "U2-1024"].contains(&self.id.as_str()),
            group => ["U1", "C1", "C2", "H", "M"].contains(&group) || self.is_on_files(),
        }
    }

    /// Whether this one is about locks on files, which older libraries lack.
    pub(crate) fn is_on_files(&self) -> bool {
        matches!(self.group, "F1" | "F2")
    }

    /// Whether this one is about locks on etcd, which are measured apart.
    pub(crate) fn is_on_etcd(&self) -> bool {
        matches!(self.group, "E1" | "E2" | "E3" | "E4")
    }

    /// Whether a contender takes part at all. One that takes part and is not able to is shown with the reason.
    pub(crate) fn is_for(&self, contender: &Contender) -> bool {
        let ours = contender.id.starts_with("leasehold");
        match (self.group, contender.family) {
            ("T1" | "T2", _) => contender.tls || ["leasehold", "client"].contains(&contender.id),
            ("T3", _) => contender.tls,
            _ if contender.tls => false,
            ("M", family) => family == Family::Memory,
            (_, Family::Memory) => false,
            (_, family) if self.is_on_files() => family == Family::File,
            (_, Family::File) => false,
            ("E3" | "E4", Family::Etcd) => contender.cannot(self).is_none(),
            (_, family) if self.is_on_etcd() => family == Family::Etcd,
            (_, Family::Etcd) => false,
            ("G", family) => {
                family == Family::Database || ours || ["redisson", "lettuce"].contains(&contender.id)
            }
            (_, Family::Database) => false,
            ("H", Family::Baseline) => true,
            // The cost of a separate thread shows where a thread has to be woken.
            (_, Family::Baseline) => {
                matches!(self.group, "U1" | "U2") && !contender.id.starts_with("client-apart")
            }
            (_, Family::Hash | Family::SetNx) => !self.growth || ours,
        }
    }
}
