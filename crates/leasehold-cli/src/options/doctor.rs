//! The options of `doctor`.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use super::run::lease;
use crate::url::Url;

// With line breaks of its own, because the help is not wrapped.
pub(super) const DOCTOR: &str = "\
Say what is at a URL, and what there endangers locks.

Asks the server about itself: version, topology, TLS, eviction, persistence,
replicas and clock; on etcd the members, alarms, the size of the database and
the election time-out; measures 100 round trips; counts counters of fencing
tokens, for two seconds at most; and acquires and releases a lock of each kind.
It changes nothing but keys of its own, which begin with leasehold-doctor:
behind the namespace, and are gone afterwards. What the user may not ask is not
known, which is no error.

Each finding has a severity, a code that does not change, its meaning, and the
line to change.";

pub(super) const DOCTOR_EXAMPLES: &str = "\
Exit codes:
  0    nothing endangers locks by itself
  1    locks are in danger
  2    usage error
  69   the server is not reachable, or refuses the connection

Examples:
  leasehold doctor redis://localhost
  leasehold doctor redis://localhost --lease 2s --namespace billing:
  leasehold doctor file:///var/lock/app --json";

/// The options of `doctor`.
#[derive(Debug, Args)]
pub struct DoctorOptions {
    /// The server or directory
    #[arg(value_name = "URL")]
    pub url: Option<Url>,
    /// The same, as run takes it
    // Its value may contain a password, so the help must not show the value of the environment variable.
    #[arg(long = "url", value_name = "URL", env = Url::VARIABLE, hide_env_values = true)]
    pub url_option: Option<Url>,
    /// The file of the settings
    #[arg(long, env = "LEASEHOLD_CONFIG", value_name = "FILE", hide_env_values = true)]
    pub config: Option<PathBuf>,
    /// Allow verify=none in the URL
    #[arg(long)]
    pub allow_unverified_tls: bool,
    /// What names of locks begin with
    ///
    /// For a user that may use some names only.
    #[arg(long, value_name = "PREFIX")]
    pub namespace: Option<String>,
    /// The lease to judge by, 30s unless given
    #[arg(long, value_name = "TIME", value_parser = lease)]
    pub lease: Option<Duration>,
    /// Print one JSON object instead of text.
    #[arg(long)]
    pub json: bool,
}
