//! Connections with TLS that break.

#![expect(clippy::unwrap_used, reason = "every function is a part of a test")]

use std::sync::{Arc, Mutex};

use leasehold::{Client, Lock};
use leasehold_testkit::proxy::{Proxy, Toward, Which};
use tokio::task::JoinSet;

use super::Secure;
use crate::{SECOND, acquired, channels, keys, soon, until};

/// Adds one to a number that nothing but the lock protects, this often, through all outages.
async fn add(lock: Lock, value: Arc<Mutex<u64>>, times: u64) {
    for _ in 0..times {
        let guard = loop {
            match lock.acquire().await {
                Ok(guard) => break guard,
                Err(error) => assert!(error.is_unavailable(), "{error:?}"),
            }
            tokio::time::sleep(SECOND / 200).await;
        };
        let seen = *value.lock().unwrap();
        tokio::task::yield_now().await;
        *value.lock().unwrap() = seen + 1;
        assert!(guard.is_held());
    }
}

#[tokio::test]
async fn own_297_connections_cut_inside_a_record_lose_nothing() {
    let secure = Secure::start();
    let proxy = Proxy::start_opaque(secure.server.port());
    let value = Arc::new(Mutex::new(0));
    let mut tasks = JoinSet::new();
    let mut clients = Vec::new();
    for _ in 0..2 {
        let client = Client::connect(secure.url_at(proxy.port())).await.unwrap();
        for _ in 0..8 {
            tasks.spawn(add(client.lock("n"), Arc::clone(&value), 100));
        }
        clients.push(client);
    }
    let mut cuts = 0;
    for toward in [Toward::Client, Toward::Server].into_iter().cycle().take(20) {
        let before = proxy.counts().connections;
        proxy.cut_inside(toward);
        until("a connection is replaced", || proxy.counts().connections > before || tasks.is_empty()).await;
        while let Some(ended) = tasks.try_join_next() {
            ended.unwrap();
        }
        cuts += usize::from(!tasks.is_empty());
    }
    proxy.heal();
    soon("all turns", tasks.join_all()).await;
    assert_eq!(*value.lock().unwrap(), 2 * 8 * 100);
    assert!(cuts > 5, "{cuts} connections were cut");
    for client in &clients {
        acquired(&client.lock("n")).await.release().await.unwrap();
    }
    drop(clients);
    until("nothing is left", || keys(&secure.server).is_empty() && channels(&secure.server).is_empty()).await;
}

#[tokio::test]
async fn a_silent_connection_is_replaced() {
    let secure = Secure::start();
    let proxy = Proxy::start_opaque(secure.server.port());
    let connect = Client::connect(secure.url_at(proxy.port())).response_timeout(SECOND / 2);
    let client = connect.await.unwrap();
    let guard = client.lock("n").acquire().await.unwrap();
    proxy.half_open(Which::All);
    acquired(&client.lock("m")).await.release().await.unwrap();
    assert!(guard.is_held());
    guard.release().await.unwrap();
    until("nothing is left", || keys(&secure.server).is_empty()).await;
}

#[tokio::test]
async fn a_restarted_server_is_used_again() {
    let mut secure = Secure::start();
    let client = secure.client().await;
    drop(client.lock("n").acquire().await.unwrap());
    secure.server.restart();
    acquired(&client.lock("n")).await.release().await.unwrap();
}
