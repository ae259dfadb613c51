//! What a diagnosis finds through a slow network, a proxy and a wrong clock, and of a replica that has stopped.

#![expect(clippy::unwrap_used, reason = "every case is the body of a test")]

use std::time::Duration;

use leasehold::{Client, Diagnosis, Severity};
use leasehold_testkit::proxy::{Proxy, Which};
use leasehold_testkit::resp::{self, Value};
use leasehold_testkit::server::{Flavour, Server};

use crate::SECOND;
use crate::diagnosis::{diagnosed, fact, found, healthy};
use crate::forwarder::Forwarder;
use crate::until;

on_both! {
    own_560_round_trips_are_judged_by_the_lease
    own_561_a_replica_that_has_stopped_is_found
    own_562_a_proxy_with_several_connections_is_found
    own_563_a_clock_that_differs_is_found
}

async fn diagnosed_with(url: &str, watchdog: Duration) -> Diagnosis {
    Client::connect(url).watchdog(watchdog).await.unwrap().diagnose().await.unwrap()
}

/// The keys that tell who a client is are deleted after its last handle is gone.
async fn has_no_keys(server: &Server) {
    until("a diagnosis leaves no keys", || server.cli(&["DBSIZE"]) == 0).await;
}

/// With the same delay a long lease is not in danger, a shorter one may be, and the shortest is.
async fn own_560_round_trips_are_judged_by_the_lease(flavour: Flavour) {
    let server = healthy(flavour);
    let proxy = Proxy::start(server.port());
    proxy.delay(Which::All, Duration::from_millis(200));
    let (url, ms) = (proxy.url(), Duration::from_millis);
    let (long, short, shortest) = tokio::join!(
        diagnosed_with(&url, SECOND * 120),
        diagnosed_with(&url, SECOND * 5),
        diagnosed_with(&url, ms(500)),
    );
    assert_eq!(found(&long), [], "{long:?}");
    assert_eq!(found(&short), [("latency", Severity::Warning)], "{short:?}");
    assert_eq!(found(&shortest), [("latency", Severity::Danger)], "{shortest:?}");
    assert!(shortest.findings[0].meaning.contains("a third of the lease of 500ms"), "{shortest:?}");
    let (times, _) = fact(&short, "round trips");
    let half = times.unwrap().split("p50 ").nth(1).unwrap();
    assert!(half.starts_with('2') && half.contains("ms, p99"), "{times:?}");
    has_no_keys(&server).await;
}

/// It is written to meanwhile, and the replica does not get that.
async fn own_561_a_replica_that_has_stopped_is_found(flavour: Flavour) {
    let server = healthy(flavour);
    let port = server.port().to_string();
    let replica = Server::builder(flavour).config(format!("replicaof 127.0.0.1 {port}")).start();
    assert_eq!(server.cli(&["WAIT", "1", "20000"]), 1);
    // Otherwise the primary soon accepts nothing.
    assert_eq!(
        server.cli(&["CONFIG", "SET", "min-replicas-to-write", "1", "min-replicas-max-lag", "60"]),
        "OK"
    );
    let lag = || {
        let info = server.cli(&["INFO", "replication"]);
        let (_, lag) = info.as_str().unwrap().split_once("lag=").unwrap();
        // Valkey has more fields behind it.
        lag.split([',', '\r']).next().unwrap().parse::<u32>().unwrap()
    };
    assert_eq!(found(&diagnosed(&server.url()).await), []);
    replica.pause();
    until("the replica is late", || {
        assert_eq!(server.cli(&["SET", "theirs", "1"]), "OK");
        lag() > 2
    })
    .await;
    let late = diagnosed(&server.url()).await;
    assert_eq!(found(&late), [("replication-lag", Severity::Warning)], "{late:?}");
    let meaning = &late.findings[0].meaning;
    assert!(meaning.starts_with(&format!("the replica 127.0.0.1:{} is ", replica.port())), "{meaning}");
    replica.resume();
    until("the replica is there again", || lag() <= 1).await;
    assert_eq!(found(&diagnosed(&server.url()).await), []);
    assert_eq!(server.cli(&["DEL", "theirs"]), 1);
    has_no_keys(&server).await;
}

async fn own_562_a_proxy_with_several_connections_is_found(flavour: Flavour) {
    let server = healthy(flavour);
    for (connections, expected) in [(1, &[][..]), (3, &[("proxy", Severity::Danger)])] {
        let proxy = Forwarder::start(server.port(), connections, |_, reply| reply);
        let diagnosis = diagnosed(&proxy.url()).await;
        assert_eq!(found(&diagnosis), expected, "{connections}: {diagnosis:?}");
    }
    has_no_keys(&server).await;
}

async fn own_563_a_clock_that_differs_is_found(flavour: Flavour) {
    let server = healthy(flavour);
    for (ahead, expected) in [
        (0, &[][..]),
        (60, &[("clock-offset", Severity::Warning)]),
        (-60, &[("clock-offset", Severity::Warning)]),
    ] {
        let proxy = Forwarder::start(server.port(), 1, move |command, reply| {
            if command[0] == "TIME" { shifted(&reply, ahead) } else { reply }
        });
        let diagnosis = diagnosed(&proxy.url()).await;
        assert_eq!(found(&diagnosis), expected, "{ahead}: {diagnosis:?}");
        let (offset, _) = fact(&diagnosis, "clock");
        let offset = offset.unwrap().split_once(" ms").unwrap().0.parse::<i64>().unwrap();
        assert!((offset - ahead * 1000).abs() < 2000, "{offset} ms instead of {ahead} s");
    }
    has_no_keys(&server).await;
}

/// The reply to `TIME` of a clock that is so many seconds ahead.
fn shifted(reply: &[u8], ahead: i64) -> Vec<u8> {
    let (time, _) = resp::parse(reply).unwrap().unwrap();
    let [seconds, micros] = time.elements() else { panic!("not a time: {time:?}") };
    let seconds = seconds.as_str().and_then(|seconds| seconds.parse::<i64>().ok()).unwrap() + ahead;
    resp::encode(&[seconds.to_string().as_str(), Value::as_str(micros).unwrap()])
}
