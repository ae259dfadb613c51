//! What a driver has to say in the end.

use crate::histogram::Histogram;

/// One line of JSON. A driver leaves out what its job does not have.
#[derive(Debug, Clone, Default, serde::Serialize, serde::Deserialize)]
#[serde(default)]
pub struct Outcome {
    /// How long the job took, from `go` on: its seconds, or until everybody was through.
    pub elapsed_ns: u64,
    /// Pairs or grants within that time, for each task.
    pub tasks: Vec<u64>,
    /// All grants, also those after the time.
    pub grants: u64,
    /// Of a pair the time for both; of a contended grant the wait for it.
    pub latency: Histogram,
    /// From the release in another process to the grant here, of those who waited meanwhile.
    pub handover: Histogram,
    /// How often somebody was found inside who should not have been there.
    pub violations: u64,
    /// When the last was granted, in nanoseconds since 1970.
    pub last_ns: u64,
    /// How many operations failed.
    pub errors: u64,
    /// What the first of them said.
    pub error: Option<String>,
}
