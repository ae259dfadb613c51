//! Faults of the network, the members and the clients, judged by the deadlines of all guards: the lock is granted to another owner
//! only after each of them, or after a release.
//!
//! Besides, each owner raises a number under the lock, by a read and a write with time between them, and nothing protects the number
//! but the lock.

mod cluster;
mod contender;
mod fault;
mod paused;

use std::env;
use std::sync::Arc;
use std::time::SystemTime;

use leasehold_testkit::dice::Dice;
use leasehold_testkit::healthy::Stopwatch;
use tokio::task::JoinSet;
use tokio::time::timeout;

use self::cluster::Cluster;
use self::contender::{Shared, contend};
use self::fault::Fault;
use crate::PATIENCE;
use crate::faults::{BACK, connect};

/// How many clients contend.
const CLIENTS: usize = 3;
/// How often each fault is played, instead of once; then the seed is a fresh one.
const ROUNDS: &str = "LEASEHOLD_ETCD_ROUNDS";
/// The seed, instead of a fixed or a fresh one.
const SEED: &str = "LEASEHOLD_ETCD_SEED";

fn setting(variable: &str) -> Option<u64> {
    let text = env::var(variable).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{variable} is not a number: {text}")))
}

/// Plays these faults in a random order while clients contend for a lock.
async fn play<const MEMBERS: usize>(faults: &[Fault]) {
    let rounds = setting(ROUNDS);
    let fresh = || SystemTime::UNIX_EPOCH.elapsed().map_or(0, |time| u64::from(time.subsec_nanos()));
    let seed = setting(SEED).unwrap_or_else(|| if rounds.is_some() { fresh() } else { 1 });
    println!("{MEMBERS} members, {SEED}={seed}");
    let mut dice = Dice::new(seed);
    let mut cluster = Cluster::start::<MEMBERS>(CLIENTS);
    let shared = Arc::new(Shared::default());
    let mut contenders = JoinSet::new();
    for number in 0..CLIENTS {
        let client = connect(cluster.url(number), 1).await;
        contenders.spawn(contend(Arc::clone(&shared), client, number, dice.fork()));
    }
    for round in 0..rounds.unwrap_or(1) {
        let mut left = faults.to_vec();
        while !left.is_empty() {
            shared.grant_after(shared.grants(None), None, || cluster.state()).await;
            let fault = left.swap_remove(dice.index(left.len()));
            shared.set_fault(true);
            let client = if dice.one_in(3) { dice.index(CLIENTS) } else { shared.holder() };
            fault.play(&mut cluster, client, &mut dice).await;
            shared.set_fault(false);
            let before = shared.grants(None);
            cluster.serves().await;
            let back = Stopwatch::start();
            shared.grant_after(before, None, || cluster.state()).await;
            let took = back.elapsed();
            println!("round {round}: {fault:?} of client {client}, then a grant after {took:?}");
            assert!(took < BACK, "{SEED}={seed}, {fault:?}: {took:?}");
            shared.check(seed);
        }
    }
    for number in 0..CLIENTS {
        shared.grant_after(shared.grants(Some(number)), Some(number), || cluster.state()).await;
    }
    shared.stop();
    while let Some(ended) = timeout(PATIENCE, contenders.join_next()).await.expect("they end") {
        ended.expect("no contender panics");
    }
    shared.check(seed);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn own_655_no_fault_of_one_member_or_its_network_grants_a_lock_before_a_deadline() {
    play::<1>(&Fault::OF_ONE).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn own_656_no_fault_of_a_cluster_grants_a_lock_before_a_deadline() {
    play::<3>(&Fault::OF_SEVERAL).await;
}
