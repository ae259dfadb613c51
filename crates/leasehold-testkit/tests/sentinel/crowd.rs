//! Many clients that all move at once.

use std::time::Duration;

use leasehold::{Client, Guard};
use leasehold_testkit::resp::Value;
use leasehold_testkit::server::{Flavour, Server};
use leasehold_testkit::watched::Watched;
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::{SECOND, alone, in_step, soon};

const CLIENTS: usize = 500;
const HOLDS: usize = 20;

async fn one(url: String, number: usize) -> (Client, Vec<Guard>) {
    let connect = Client::connect(url).connect_timeout(SECOND * 20).watchdog(SECOND * 20);
    // Without a linger, which each would use up, one after the other, if the test fails in the outage.
    let client = connect.linger(Duration::ZERO).await.unwrap();
    let mut held = Vec::new();
    for hold in 0..HOLDS {
        held.push(client.lock(format!("{number}:{hold}")).acquire().await.unwrap());
    }
    (client, held)
}

/// How many milliseconds each hold has left on a server; nothing while sentinels make that the primary, which cuts its connections.
fn left(server: &Server) -> Vec<i64> {
    let script = "local left = {} for client = 0, ARGV[1] - 1 do for hold = 0, ARGV[2] - 1 do \
                  left[#left + 1] = redis.call('pttl', client .. ':' .. hold) end end return left";
    let asked = server.try_cli(&["EVAL", script, "0", &CLIENTS.to_string(), &HOLDS.to_string()]);
    let Ok(left) = asked else { return Vec::new() };
    let number = |left: &Value| if let Value::Int(left) = left { *left } else { panic!("{left:?}") };
    left.elements().iter().map(number).collect()
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
    let lost = || all.iter().flat_map(|(_, held)| held).filter(|guard| !guard.is_held()).count();
    // A lease that is longer than at the look before has been renewed there.
    let mut holds = vec![(i64::MAX, false); CLIENTS * HOLDS];
    soon("all holds are renewed at the new primary", async {
        while !holds.iter().all(|(_, is_renewed)| *is_renewed) {
            for ((seen, is_renewed), left) in holds.iter_mut().zip(left(&watched.servers[new])) {
                *is_renewed |= left > *seen;
                *seen = left;
            }
            assert_eq!(lost(), 0, "of {}", CLIENTS * HOLDS);
            // Each look takes the server some time that its clients need.
            sleep(SECOND / 10).await;
        }
    })
    .await;
    assert_eq!(lost(), 0, "of {}", CLIENTS * HOLDS);
}
