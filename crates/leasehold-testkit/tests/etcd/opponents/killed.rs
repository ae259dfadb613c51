//! Holders and waiters of both sides that are gone without a release.

use leasehold::Loss;
use leasehold_testkit::golang;
use leasehold_testkit::server::Etcd;
use tokio::time::timeout;

use crate::{PATIENCE, client, until};

#[tokio::test]
async fn own_645_a_waiter_runs_when_the_leases_of_a_killed_go_holder_and_of_a_killed_go_waiter_are_over() {
    let server = Etcd::start();
    let [holder, waiter] = ["holder", "waiter"].map(|name| golang::start(name, &server));
    // Their leases last 2 s.
    holder.ask("2000/a", "lock plain n").await;
    let asked = waiter.tell("2000/b", "lock plain n");
    until("Go waits", || server.keys("n/").len() == 2).await;
    let lock = client(&server).await.lock("n");
    let ours = tokio::spawn(async move { lock.acquire().await.unwrap() });
    until("the waiter is in the queue", || server.keys("n/").len() == 3).await;
    waiter.kill();
    holder.kill();
    assert!(!asked.is_answered() && !ours.is_finished());
    let guard = timeout(PATIENCE, ours).await.expect("the leases end").unwrap();
    assert_eq!(server.keys("n/").len(), 1);
    guard.release().await.unwrap();
}

#[tokio::test]
async fn own_646_a_go_waiter_runs_when_the_lease_of_the_holder_was_revoked_and_the_holder_is_told() {
    let server = Etcd::start();
    let go = golang::start("go", &server);
    let guard = client(&server).await.lock("n").acquire().await.unwrap();
    let [key] = server.keys("n/").try_into().unwrap();
    let theirs = go.tell("a", "lock plain n");
    until("Go waits", || server.keys("n/").len() == 2).await;
    assert!(!theirs.is_answered());
    let _ = server.ctl(&["lease", "revoke", key.strip_prefix("n/").unwrap()]);
    theirs.within(PATIENCE).ok().await;
    assert_eq!(timeout(PATIENCE, guard.lost()).await.expect("it is told"), Loss::Gone);
    assert_eq!(go.ask("a", "unlock plain n").await, "released");
    assert_eq!(server.keys("n/"), [""; 0]);
}
