//! The keys, as other programs write and read them.

use std::io::{BufRead as _, BufReader};
use std::process::Stdio;

use leasehold_testkit::server::Etcd;

use crate::client;

/// What `etcdctl get -w fields` says of a key, but for revisions and ids.
fn fields(server: &Etcd, key: &str) -> Vec<String> {
    let fields = server.ctl(&["get", key, "-w", "fields"]);
    let is_wanted =
        |line: &&str| ["\"Value\"", "\"Version\"", "\"Count\""].iter().any(|name| line.starts_with(name));
    fields.lines().filter(is_wanted).map(str::to_owned).collect()
}

#[tokio::test]
async fn own_500_a_lock_is_the_key_that_etcdctl_lock_writes() {
    let server = Etcd::start();
    let mut theirs = server.etcdctl(&["lock", "theirs"]).stdout(Stdio::piped()).spawn().unwrap();
    let mut printed = String::new();
    BufReader::new(theirs.stdout.take().unwrap()).read_line(&mut printed).unwrap();
    let [theirs_key] = server.keys("theirs/").try_into().unwrap();
    assert_eq!(theirs_key, printed.trim());

    let client = client(&server).await;
    let guard = client.lock("ours").acquire().await.unwrap();
    let [ours_key] = server.keys("ours/").try_into().unwrap();
    let lease = ours_key.strip_prefix("ours/").unwrap();
    assert!(server.ctl(&["lease", "list"]).lines().any(|line| line == format!("{lease:0>16}")), "{ours_key}");
    assert!(server.ctl(&["lease", "timetolive", "--keys", lease]).contains(&ours_key));
    assert_eq!(fields(&server, &ours_key), fields(&server, &theirs_key));
    guard.release().await.unwrap();
    assert_eq!(server.keys("ours/"), [""; 0]);
    theirs.kill().unwrap();
    theirs.wait().unwrap();
}

#[tokio::test]
async fn own_501_the_keys_of_other_owners_and_kinds_are_below_the_same_name() {
    let server = Etcd::start();
    let client = client(&server).await;
    let fair = client.fair_lock("fair").acquire().await.unwrap();
    let [fair_key] = server.keys("fair/").try_into().unwrap();
    assert!(fair_key.ends_with(&format!("/{}", fair.owner())), "{fair_key}");
    let rw = client.rw_lock("rw");
    let read = rw.read().acquire().await.unwrap();
    assert_eq!(server.keys("rw/"), [format!("rw/read/{}", read.owner())]);
    read.release().await.unwrap();
    let write = rw.write().acquire().await.unwrap();
    assert_eq!(server.keys("rw/"), [format!("rw/write/{}", write.owner())]);
}

#[tokio::test]
async fn own_502_tokens_rise_together_with_those_of_etcdctl() {
    let server = Etcd::start();
    let client = client(&server).await;
    let lock = client.lock("n");
    let theirs =
        || server.ctl(&["lock", "n", "--", "sh", "-c", "echo $ETCD_LOCK_REV"]).trim().parse::<u64>().unwrap();
    let mut last = 0;
    for _ in 0..5 {
        let guard = lock.acquire().fenced().await.unwrap();
        let token = guard.token();
        guard.release().await.unwrap();
        assert!(token > last, "{token} after {last}");
        last = theirs();
        assert!(last > token, "{last} after {token}");
    }
}

#[tokio::test]
async fn own_503_the_next_member_is_tried_if_one_cannot_be_reached() {
    let server = Etcd::start();
    let unused_port = leasehold_testkit::port::free();
    let url = format!("etcd://127.0.0.1:{unused_port},127.0.0.1:{}", server.port());
    let client = leasehold::Client::connect(url).await.unwrap();
    client.lock("n").acquire().await.unwrap().release().await.unwrap();
    let error = leasehold::Client::connect(format!("etcd://127.0.0.1:{unused_port}")).await.unwrap_err();
    assert!(error.to_string().contains("refused"), "{error}");
}
