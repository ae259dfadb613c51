//! Many clients that all move at once.

use leasehold::{Client, Guard};
use leasehold_testkit::server::Flavour;
use leasehold_testkit::watched::Watched;
use tokio::task::JoinSet;

use crate::{SECOND, alone, in_step, until};

const CLIENTS: usize = 500;
const HOLDS: usize = 20;

async fn one(url: String, number: usize) -> (Client, Vec<Guard>) {
    let client = Client::connect(url).connect_timeout(SECOND * 20).watchdog(SECOND * 20).await.unwrap();
    let mut held = Vec::new();
    for hold in 0..HOLDS {
        held.push(client.lock(format!("{number}:{hold}")).acquire().await.unwrap());
    }
    (client, held)
}

/// Five hundred clients with twenty holds each, whose primary crashes: all of them reconnect, and each hold is renewed before it
/// ends.
#[tokio::test(flavor = "multi_thread")]
async fn no_hold_of_many_clients_is_lost_by_a_failover() {
    let _alone = alone().await;
    let mut watched = Watched::start_with(Flavour::Redis, |server| server.config("maxclients 4000"));
    let mut all = Vec::new();
    // Not all at once: each connects to three sentinels besides.
    for first in (0..CLIENTS).step_by(50) {
        let mut some = JoinSet::new();
        (first..first + 50).for_each(|number| drop(some.spawn(one(watched.url(), number))));
        all.extend(some.join_all().await);
    }
    in_step(&watched).await;
    let old = watched.primary();
    watched.servers[old].kill();
    let new = watched.failed_over_from(old);
    let left = |key: &str| match watched.servers[new].try_cli(&["PTTL", key]) {
        Ok(leasehold_testkit::resp::Value::Int(left)) => left,
        // The sentinels cut the connections of a server that they make the primary.
        Err(_) => 0,
        other => panic!("{other:?}"),
    };
    // A lease of 20 s is renewed after 7 s: every hold has been renewed at the new primary, when it has more than was left then.
    until("all holds are renewed at the new primary", || {
        (0..CLIENTS).all(|number| left(&format!("{number}:0")) > 14_000)
    })
    .await;
    let lost = all.iter().flat_map(|(_, held)| held).filter(|guard| !guard.is_held()).count();
    assert_eq!(lost, 0, "of {}", CLIENTS * HOLDS);
}
