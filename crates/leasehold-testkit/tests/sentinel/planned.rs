//! A failover that an operator orders, while the old primary looks well and goes on to grant locks.

use std::time::Duration;

use leasehold_testkit::healthy::Stopwatch;
use leasehold_testkit::proxy::Proxy;
use leasehold_testkit::server::Flavour;
use leasehold_testkit::watched::{NAME, Watched};

use crate::load::Load;
use crate::{LABEL, SECOND, alone, connections, soon, until};

async fn rl_10_the_old_primary_is_left_at_once_and_holds_are_kept(flavour: Flavour) {
    let _alone = alone().await;
    let watched = Watched::start(flavour);
    let old = watched.primary();
    let load = Load::begin(&watched).await;
    load.more_turns(50).await;
    assert!(connections(&watched.servers[old]) >= 2, "both clients are there");

    let new = tokio::task::block_in_place(|| watched.fail_over());
    let announced = Stopwatch::start();
    until("no connection to the old primary", || connections(&watched.servers[old]) == 0).await;
    let left = announced.elapsed();
    assert!(left < SECOND / 2, "{left:?} after the announcement");
    load.more_turns(1).await;
    let granted = announced.elapsed();
    assert!(granted < SECOND, "the first grant {granted:?} after the announcement");
    load.more_turns(100).await;
    assert_eq!(connections(&watched.servers[old]), 0, "it looks well, and is not used");

    // All of them had reached the replicas before.
    assert_eq!(load.held.iter().filter(|guard| !guard.is_held()).count(), 0, "no hold is lost");
    for guard in &load.held {
        let owner = guard.owner().to_string();
        assert_eq!(watched.servers[new].cli(&["HGET", guard.name(), &owner]), "1", "{}", guard.name());
    }
    let lost = load.end().await;
    println!(
        "{flavour:?}: left after {left:?}, granted after {granted:?}, {lost} turns lost to the replication"
    );
}

/// Proxies in front of the sentinels, which announce the addresses of these.
fn hidden(watched: &Watched) -> Vec<Proxy> {
    let proxies: Vec<_> = watched.sentinels.iter().map(|sentinel| Proxy::start(sentinel.port())).collect();
    for (sentinel, proxy) in watched.sentinels.iter().zip(&proxies) {
        let port = proxy.port().to_string();
        assert_eq!(sentinel.cli(&["SENTINEL", "CONFIG", "SET", "announce-port", &port]), "OK");
    }
    proxies
}

async fn a_failover_without_announcements_is_found_by_asking(flavour: Flavour) {
    let _alone = alone().await;
    let watched = Watched::start(flavour);
    let proxies = hidden(&watched);
    let ports: Vec<_> = proxies.iter().map(Proxy::port).collect();
    let knows_only_proxies = |sentinel: &leasehold_testkit::server::Server| {
        let others = sentinel.cli(&["SENTINEL", "SENTINELS", NAME]);
        let port = |other: &leasehold_testkit::resp::Value| {
            let parts = other.elements();
            let at = parts.iter().position(|part| part.as_str() == Some("port"))?;
            parts.get(at + 1)?.as_str()?.parse::<u16>().ok()
        };
        others.elements().len() == 2
            && others.elements().iter().all(|other| port(other).is_some_and(|port| ports.contains(&port)))
    };
    until("the sentinels announce the proxies", || watched.sentinels.iter().all(knows_only_proxies)).await;
    let client = leasehold::Client::connect(Watched::url_by(&ports)).label(LABEL).await.unwrap();
    let held = client.lock("held").acquire().await.unwrap();
    crate::in_step(&watched).await;
    proxies.iter().for_each(Proxy::drop_messages);

    let old = watched.primary();
    let new = tokio::task::block_in_place(|| watched.fail_over());
    let announced = Stopwatch::start();
    until("no connection to the old primary", || connections(&watched.servers[old]) == 0).await;
    let left = announced.elapsed();
    assert!(left < Duration::from_millis(1500), "{left:?} after the announcement that nobody heard");
    let other = soon("a lock", client.lock("other").acquire().wait(SECOND * 5).into_future()).await.unwrap();
    assert!(held.is_held() && other.is_held() && new != old);
    println!("{flavour:?}: left after {left:?}");
}

on_both! {
    rl_10_the_old_primary_is_left_at_once_and_holds_are_kept
    a_failover_without_announcements_is_found_by_asking
}
