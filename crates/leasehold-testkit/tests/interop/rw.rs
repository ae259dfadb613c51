//! Readers of both languages together, writers alone.

use std::time::Duration;

use leasehold::Client;
use leasehold_testkit::jvm;
use tokio::time::{Instant, sleep, timeout};

use crate::driver;
use crate::setup::{LONG, setup};

#[tokio::test]
async fn readers_of_both_languages_hold_the_lock_together_and_writers_alone() {
    let setup = setup().await;
    let name = "rw-together";
    let peers = setup.peers();
    for peer in peers {
        assert_eq!(peer.ask(name, &format!("wait read {name} 60000 -1")).await, "true");
    }
    for peer in peers {
        assert_eq!(peer.ask("rw-writer", &format!("try write {name}")).await, "false");
        assert_eq!(peer.ask(name, &format!("count read {name}")).await, "1");
    }
    let [first, others @ ..] = peers;
    for peer in others {
        assert_eq!(peer.ask(name, &format!("unlock read {name}")).await, "released");
    }
    assert_eq!(setup.rust[0].ask("rw-writer", &format!("try write {name}")).await, "false");
    assert_eq!(first.ask(name, &format!("unlock read {name}")).await, "released");
    for (writer, other) in setup.pairs() {
        assert_eq!(writer.ask("rw-writer", &format!("try write {name}")).await, "true");
        for half in ["read", "write"] {
            assert_eq!(other.ask("rw-other", &format!("try {half} {name}")).await, "false");
            assert_eq!(other.ask("rw-other", &format!("wait {half} {name} 100 -1")).await, "false");
        }
        assert_eq!(writer.ask("rw-writer", &format!("unlock write {name}")).await, "released");
    }
    setup.no_complaints();
}

#[tokio::test]
async fn own_229_a_dead_reader_keeps_the_other_language_out_for_its_lease_and_no_longer() {
    let setup = setup().await;
    let java = jvm::start("java, mortal", &setup.version, &setup.server);
    let rust = driver::start("rust, mortal", &setup.server);
    for (mortal, survivor) in [(java, &setup.rust[0]), (rust, &setup.java[0])] {
        let name = format!("rw-dead-{}", survivor.name()).replace(' ', "-");
        // Both read; one dies, and the other holds for longer than the dead one's lease.
        assert_eq!(mortal.ask("8000/a", &format!("lock read {name}")).await, "held");
        assert_eq!(survivor.ask("8000/rw-dead", &format!("lock read {name}")).await, "held");
        mortal.kill();
        let begun = Instant::now();
        sleep(Duration::from_secs(9)).await;
        let writer = survivor.tell("rw-dead-writer", &format!("wait write {name} 60000 -1"));
        assert_eq!(survivor.ask("rw-dead-third", &format!("try write {name}")).await, "false");
        assert_eq!(survivor.ask("8000/rw-dead", &format!("unlock read {name}")).await, "released");
        assert_eq!(writer.within(LONG).ok().await, "true");
        println!("rw: {} writes {:.1?} after {} died", survivor.name(), begun.elapsed(), mortal.name());
        assert_eq!(survivor.ask("rw-dead-writer", &format!("unlock write {name}")).await, "released");
    }
    setup.no_complaints();
}

#[tokio::test]
async fn a_downgrade_admits_readers_of_the_other_language_and_no_writer() {
    let setup = setup().await;
    for (writer, other) in setup.pairs() {
        let name = format!("rw-downgrade-{}", writer.name()).replace(' ', "-");
        assert_eq!(writer.ask(&name, &format!("lock write {name}")).await, "held");
        assert_eq!(writer.ask(&name, &format!("lock read {name}")).await, "held");
        assert_eq!(other.ask(&name, &format!("try read {name}")).await, "false");
        assert_eq!(writer.ask(&name, &format!("unlock write {name}")).await, "released");
        assert_eq!(other.ask(&name, &format!("wait read {name} 60000 -1")).await, "true");
        assert_eq!(other.ask("rw-downgrade-writer", &format!("try write {name}")).await, "false");
        for peer in [writer, other] {
            assert_eq!(peer.ask(&name, &format!("unlock read {name}")).await, "released");
        }
        assert_eq!(other.ask(&name, &format!("try write {name}")).await, "true");
        assert_eq!(other.ask(&name, &format!("unlock write {name}")).await, "released");
    }
    setup.no_complaints();
}

#[tokio::test]
async fn a_rust_downgrade_wakes_waiting_java_readers() {
    let setup = setup().await;
    let name = "rw-downgrade-wakes";
    let (java, client) = (&setup.java[0], Client::connect(setup.server.url()).await.unwrap());
    let guard = client.rw_lock(name).write().acquire().await.unwrap();
    let reader = java.tell(name, &format!("lock read {name}"));
    setup.subscribed(&format!("redisson_rwlock:{{{name}}}")).await;
    // Until Java's reader sleeps; see `wake.rs`.
    sleep(Duration::from_millis(200)).await;
    let guard = guard.downgrade().await.unwrap();
    assert_eq!(reader.within(Duration::from_secs(20)).ok().await, "held");
    assert!(guard.try_upgrade().await.is_err(), "Java reads, too");
    assert_eq!(java.ask(name, &format!("unlock read {name}")).await, "released");
    // And it becomes a writer again, which excludes Java.
    let writer = timeout(LONG, guard.try_upgrade()).await.unwrap().unwrap();
    assert_eq!(java.ask(name, &format!("try read {name}")).await, "false");
    writer.release().await.unwrap();
    guard.release().await.unwrap();
    assert_eq!(java.ask(name, &format!("try write {name}")).await, "true");
    assert_eq!(java.ask(name, &format!("unlock write {name}")).await, "released");
}
