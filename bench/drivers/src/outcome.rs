//! The result of a driver.

use crate::histogram::Histogram;

/// One line of JSON. A driver leaves out the fields that its job does not have.
#[derive(Debug, Clone, Default, serde::Serialize, serde::Deserialize)]
#[serde(default)]
pub struct Outcome {
    /// How long the job took, from `go` on: its seconds, or until all tasks were done.
    pub elapsed_ns: u64,
    /// Pairs or grants within that time, for each task.
    pub tasks: Vec<u64>,
    /// All grants, including those after the time.
    pub grants: u64,
    /// Of a pair the time for both; of a contended grant the wait for it.
    pub latency: Histogram,
    /// From the release in another process to the grant here, for tasks that waited meanwhile.
    pub handover: Histogram,
    /// How many violations of mutual exclusion were found.
    pub violations: u64,
    /// When the last was granted, in nanoseconds since 1970.
    pub last_ns: u64,
    /// How many operations failed.
    pub errors: u64,
    /// The text of the first of them.
    pub error: Option<String>,
}
