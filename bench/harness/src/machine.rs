//! The cost of a process, as Linux reports it.

use std::fs;

/// Clock ticks a second in `/proc/PID/stat`: 100 on every Linux.
const TICKS: f64 = 100.0;

/// The processor time of a process, in seconds, to the hundredth.
pub(crate) fn cpu(pid: u32) -> Option<f64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let fields: Vec<_> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let ticks = fields.get(11)?.parse::<f64>().ok()? + fields.get(12)?.parse::<f64>().ok()?;
    Some(ticks / TICKS)
}

/// The memory of a process that is in use, in bytes.
pub(crate) fn memory(pid: u32) -> Option<f64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    Some(line.trim().trim_end_matches(" kB").parse::<f64>().ok()? * 1024.0)
}

/// The processor time of the living threads of a process, in seconds, to the nanosecond.
pub(crate) fn cpu_of_threads(pid: u32) -> Option<f64> {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).ok()?.flatten();
    let nanos = threads.filter_map(|thread| {
        let text = fs::read_to_string(thread.path().join("schedstat")).ok()?;
        text.split_whitespace().next()?.parse::<f64>().ok()
    });
    Some(nanos.sum::<f64>() / 1e9)
}
