//! The machine and the versions of a run.

use std::fs;
use std::process::Command;

use crate::info;
use crate::plan::Options;
use crate::runner::Runner;

/// The context without which a figure means little.
#[derive(Debug, serde::Serialize)]
pub(crate) struct Facts {
    pub(crate) cores: usize,
    pub(crate) processor: String,
    pub(crate) memory: String,
    pub(crate) kernel: String,
    pub(crate) server: String,
    pub(crate) rounds: usize,
    pub(crate) seconds: f64,
    /// How many turns contender and baseline have in a round.
    pub(crate) turns: usize,
    /// The duration of a run by turns, in seconds.
    pub(crate) slice: f64,
    /// The load of the machine before anything ran: more than nearly nothing spoils the figures.
    pub(crate) load: String,
}

pub(crate) fn gather(runner: &Runner, options: &Options) -> Facts {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let line = |text: &str, key: &str| {
        let value = text.lines().find(|line| line.starts_with(key)).and_then(|line| line.split_once(':'));
        value.map_or_else(|| String::from("unknown"), |(_, value)| value.trim().to_owned())
    };
    let kernel = Command::new("uname").arg("-sr").output();
    let kernel = kernel.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned());
    Facts {
        cores: std::thread::available_parallelism().map_or(0, usize::from),
        processor: line(&read("/proc/cpuinfo"), "model name"),
        memory: line(&read("/proc/meminfo"), "MemTotal"),
        kernel: kernel.unwrap_or_else(|_| "unknown".into()),
        server: match runner.connect() {
            Some(mut connection) => info::version(&mut connection),
            None if runner.has_etcd() => etcd_version(),
            None => "no server".into(),
        },
        rounds: options.rounds(),
        seconds: options.run().as_secs_f64(),
        turns: options.turns(),
        slice: options.slice().as_secs_f64(),
        load: read("/proc/loadavg").split(' ').next().unwrap_or_default().to_owned(),
    }
}

fn etcd_version() -> String {
    let output = Command::new("etcd").arg("--version").output();
    let text = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
    let version = text.lines().next().and_then(|line| line.strip_prefix("etcd Version: "));
    format!("etcd {}, one member, its data in memory", version.unwrap_or("of an unknown version"))
}
