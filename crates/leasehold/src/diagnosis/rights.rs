//! Whether the user of a client may do what locks need, found by doing it on a name of our own.

use std::time::Duration;

use super::{Diagnosis, Severity};
use crate::client::Client;
use crate::error::AcquireError;

/// What is tried ends by itself after this time, if the diagnosis is dropped.
const LEASE: Duration = Duration::from_secs(5);

/// Acquires and releases one lock of each kind that leaves nothing behind.
pub(super) async fn check(client: &Client, report: &mut Diagnosis) {
    let name = |kind| format!("leasehold-doctor:{kind}:{}", client.id());
    let rw = client.rw_lock(name("rw"));
    let mut allowed = Vec::new();
    macro_rules! tried {
        ($what:literal, $lock:expr) => {
            match $lock.try_acquire().lease(LEASE).await {
                // A release that fails ends with the lease.
                Ok(guard) => {
                    if let Some(guard) = guard {
                        let _ = guard.release().await;
                    }
                    allowed.push($what);
                }
                Err(error) => denied($what, &error, report),
            }
        };
    }
    tried!("locks", client.lock(name("lock")));
    tried!("fair locks", client.fair_lock(name("fair")));
    tried!("read locks", rw.read());
    tried!("write locks", rw.write());
    if report.engine == "redis" {
        tried!("SET NX locks", client.setnx_lock(name("setnx")));
    }
    #[cfg(feature = "redis")]
    if report.engine == "redis" {
        let key = format!("{}leasehold-doctor:{}", client.namespace(), client.id());
        match client.probe(crate::engine::Probe::Mint(key)).await {
            Ok(_) => allowed.push("fencing tokens"),
            Err(error) => refused("fencing tokens", &error.to_string(), Severity::Warning, report),
        }
    }
    let allowed = if allowed.is_empty() { "none".into() } else { allowed.join(", ") };
    report.fact("tried with success", allowed);
}

fn denied(what: &str, error: &AcquireError, report: &mut Diagnosis) {
    // Every program needs locks; the others only if it uses them.
    let severity = if what == "locks" { Severity::Danger } else { Severity::Warning };
    refused(what, &error.to_string(), severity, report);
}

fn refused(what: &str, error: &str, severity: Severity, report: &mut Diagnosis) {
    let rights = match report.engine {
        "etcd" => {
            "to read and write below its names and below _leasehold/ (etcdctl role grant-permission ROLE --prefix=true readwrite PREFIX)"
        }
        _ => "of docs/wire.md (ACL SETUSER)",
    };
    report.find(
        severity,
        "denied",
        format!("{what} do not work for this user: {error}"),
        format!("give the user the rights {rights}; if it may use some names only, set the namespace that they begin with"),
    );
}
