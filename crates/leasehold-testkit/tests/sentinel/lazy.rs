//! A client that is made before any sentinel can be reached.

use std::future::IntoFuture;

use leasehold::Client;
use leasehold_testkit::proxy::Proxy;
use leasehold_testkit::server::{Flavour, Server};
use leasehold_testkit::watched::Watched;

use crate::{LONG, alone, soon, until};

#[tokio::test(flavor = "multi_thread")]
async fn a_lazy_client_waits_for_its_sentinels() {
    let _alone = alone().await;
    let watched = Watched::start(Flavour::Redis);
    let proxies: Vec<_> = watched.sentinels.iter().map(Server::port).map(Proxy::start).collect();
    proxies.iter().for_each(Proxy::refuse);
    let ports: Vec<_> = proxies.iter().map(Proxy::port).collect();
    let client = Client::connect(Watched::url_by(&ports)).lazy().unwrap();
    until("it has tried", || client.status().last_error.is_some()).await;
    let error = client.lock("n").try_acquire().await.unwrap_err();
    assert!(error.is_unavailable(), "{error:?}");
    let text = error.to_string();
    assert!(text.contains("not connected yet: no sentinel confirms where the primary is"), "{text}");
    let waiter = tokio::spawn(client.lock("n").acquire().wait(LONG).into_future());
    proxies.iter().for_each(Proxy::heal);
    let guard = soon("the wait", waiter).await.unwrap().unwrap();
    assert!(client.status().connected && guard.is_held());
    assert_eq!(watched.servers[watched.primary()].cli(&["EXISTS", "n"]), 1);
    guard.release().await.unwrap();
}
