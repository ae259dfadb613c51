//! How long a round trip takes, against the lease that it has to renew in time.

use std::time::Duration;

use super::{Diagnosis, Severity};
use crate::client::Client;
use crate::error::PingError;

/// How many round trips are measured.
const PINGS: usize = 100;
/// After so long no more are measured.
const LONGEST: Duration = Duration::from_secs(5);

/// Measures some round trips. The first one tells whether there is a server.
pub(super) async fn measure(
    client: &Client,
    watchdog: Duration,
    report: &mut Diagnosis,
) -> Result<(), PingError> {
    let mut times = vec![client.ping().await?];
    while times.len() < PINGS && times.iter().sum::<Duration>() < LONGEST {
        times.push(client.ping().await?);
    }
    judge(times, watchdog, report);
    Ok(())
}

fn judge(mut times: Vec<Duration>, watchdog: Duration, report: &mut Diagnosis) {
    times.sort_unstable();
    let percentile = |percent: usize| times[(times.len() * percent).div_ceil(100).max(1) - 1];
    let (half, most, longest) = (percentile(50), percentile(99), percentile(100));
    report.fact(
        "round trips",
        format!("{}: p50 {half:.1?}, p99 {most:.1?}, longest {longest:.1?}", times.len()),
    );
    // A renewal begins when a third of the lease is over, and a second attempt follows.
    let (severity, what) = if longest > watchdog / 3 {
        (
            Severity::Danger,
            format!("a round trip took {longest:.1?}, longer than a third of the lease of {watchdog:?}"),
        )
    } else if most > watchdog / 30 {
        (
            Severity::Warning,
            format!("1 % of the round trips took {most:.1?} or more, with a lease of {watchdog:?}"),
        )
    } else {
        return;
    };
    let meaning = format!("{what}: renewals may come too late, and locks are lost without an outage");
    let delays = match report.engine {
        "etcd" => "the disks of the members, and the network between them",
        _ => "SLOWLOG GET, LATENCY DOCTOR",
    };
    let advice = format!(
        "give a longer watchdog (`ConnectOptions::watchdog`, --lease), or find what delays the server: {delays}"
    );
    report.find(severity, "latency", meaning, advice);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(longest: u64, watchdog: u64) -> Option<Severity> {
        judged_of(2, longest, watchdog)
    }

    /// Of a hundred round trips, so many take the longest time.
    fn judged_of(slow: usize, longest: u64, watchdog: u64) -> Option<Severity> {
        let mut report = Diagnosis { engine: "redis", server: None, facts: Vec::new(), findings: Vec::new() };
        let mut times = vec![Duration::from_millis(1); 100 - slow];
        times.extend(vec![Duration::from_millis(longest); slow]);
        judge(times, Duration::from_millis(watchdog), &mut report);
        assert_eq!(report.facts.len(), 1);
        report.worst()
    }

    #[test]
    fn a_round_trip_is_judged_by_the_lease() {
        assert_eq!(judged(900, 30_000), None);
        assert_eq!(judged(1001, 30_000), Some(Severity::Warning));
        assert_eq!(judged(10_001, 30_000), Some(Severity::Danger));
        assert_eq!(judged(40, 900), Some(Severity::Warning));
        assert_eq!(judged_of(1, 1001, 30_000), None, "a single slow one");
    }
}
