//! How a server is reached, and how it lists a client.

use leasehold::Client;
use leasehold_testkit::server::{Flavour, Server};

use crate::{connect, granted, keys, waiting, without_clients};

const CHANNEL: &str = "redisson_lock__channel:{n}";

#[tokio::test]
async fn a_client_connects_over_a_unix_socket() {
    let server = Server::start(Flavour::Redis);
    for scheme in ["redis+unix", "valkey+unix"] {
        let client = connect(format!("{scheme}://{}", server.unix_socket().display())).await;
        let guard = client.lock("n").acquire().await.unwrap();
        assert_eq!(keys(&server), ["n"]);
        let waiter = waiting(&server, &client.lock("n"), CHANNEL).await;
        guard.release().await.unwrap();
        granted(waiter).await.release().await.unwrap();
    }
}

#[tokio::test]
async fn a_database_number_in_the_url_selects_that_database() {
    let server = Server::start(Flavour::Redis);
    let (first, third) = (connect(server.url()).await, connect(format!("{}/3", server.url())).await);
    let guard = third.lock("n").acquire().await.unwrap();
    assert_eq!(keys(&server), [""; 0]);
    let mut connection = server.connect();
    connection.call(&["SELECT", "3"]).unwrap();
    assert_eq!(without_clients(&connection.call(&["KEYS", "*"]).unwrap()), ["n"]);
    assert!(first.lock("n").try_acquire().await.unwrap().is_some(), "another database, another lock");
    let waiter = waiting(&server, &third.lock("n"), CHANNEL).await;
    guard.release().await.unwrap();
    granted(waiter).await.release().await.unwrap();
}

#[tokio::test]
async fn valkey_is_accepted_as_the_scheme_of_a_url() {
    let server = Server::start(Flavour::Valkey);
    let client = connect(server.url().replace("redis://", "valkey://")).await;
    client.lock("n").acquire().await.unwrap().release().await.unwrap();
}

#[tokio::test]
async fn the_label_of_a_client_shows_in_the_client_list_of_the_server() {
    let server = Server::start(Flavour::Redis);
    let client = Client::connect(server.url()).label("billing worker 3").await.unwrap();
    let guard = client.lock("n").acquire().await.unwrap();
    let waiter = waiting(&server, &client.lock("n"), CHANNEL).await;
    let name = format!(" name=billing-worker-3@{} ", client.id());
    let list = server.cli(&["CLIENT", "LIST"]);
    let list = list.as_str().unwrap();
    let ours: Vec<_> = list.lines().filter(|line| line.contains(&name)).collect();
    assert_eq!(ours.len(), 2, "one for commands and one for messages: {list}");
    drop(guard);
    drop(granted(waiter).await);
}

#[tokio::test]
async fn a_password_authenticates_the_client_and_is_never_shown() {
    let server = Server::builder(Flavour::Redis).password("sesame7").start();
    let connect = Client::connect(server.url());
    assert!(!format!("{connect:?}").contains("sesame7"), "{connect:?}");
    let client = connect.await.unwrap();
    let lock = client.lock("n");
    let guard = lock.acquire().await.unwrap();
    let waiter = waiting(&server, &lock, CHANNEL).await;
    let texts = [
        format!("{client:?}"),
        format!("{lock:?}"),
        format!("{guard:?}"),
        format!("{:?}", lock.acquire()),
        format!("{:?}", lock.try_acquire()),
    ];
    for text in texts {
        assert!(!text.contains("sesame7"), "{text}");
    }
    guard.release().await.unwrap();
    granted(waiter).await.release().await.unwrap();
    // A user with a password, and characters that a URL escapes.
    let user = ["ACL", "SETUSER", "ann", "on", ">p/w d", "~*", "&*", "+@all"];
    assert_eq!(server.cli(&user), "OK");
    let url = server.url().replace(":sesame7@", "ann:p%2Fw%20d@");
    let client = Client::connect(url).await.unwrap();
    client.lock("n").acquire().await.unwrap().release().await.unwrap();
}
