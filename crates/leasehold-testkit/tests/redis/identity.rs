//! The key that tells who a client is.

#![expect(clippy::unwrap_used, reason = "every case is the body of a test")]

use std::env;
use std::io::{BufRead as _, BufReader};
use std::thread;
use std::time::Duration;

use leasehold::{AcquireError, Client, ClientInfo};
use leasehold_testkit::proxy::{Proxy, Which};
use leasehold_testkit::server::{Flavour, Server};

use crate::process::{URL, child, signal};
use crate::{REDISSON, SECOND, acquired, connect, keys, pttl, soon, strings, take_as_redisson, until};

on_both! {
    own_407_the_identity_of_a_client_survives_a_reconnect
    own_408_a_client_without_the_right_to_register_works
    own_409_the_key_of_a_client_is_deleted_at_its_end_unless_a_lock_stays_taken
}

fn key(client: &Client) -> String {
    format!("leasehold:client:{}", client.id())
}

/// The keys of all clients.
fn registered(server: &Server) -> Vec<String> {
    strings(&server.cli(&["KEYS", "leasehold:client:*"]))
}

async fn holder_of(client: &Client, name: &str) -> Option<ClientInfo> {
    client.lock(name).holder().await.expect("a reply").expect("it is held").client
}

#[tokio::test]
async fn a_client_writes_one_expiring_key_and_names_its_connections() {
    let server = Server::start(Flavour::Redis);
    let client = Client::connect(server.url()).label("web 3").await.unwrap();
    until("it is registered", || registered(&server) == [key(&client)]).await;
    let guards = [client.lock("a").acquire().await.unwrap(), client.lock("b").acquire().await.unwrap()];
    assert_eq!((registered(&server), keys(&server).len()), (vec![key(&client)], 2), "nothing for each lock");
    let left = pttl(&server, &key(&client));
    assert!((200_000..=300_000).contains(&left), "{left}");
    let other = connect(server.url()).await;
    let info = holder_of(&other, "a").await.expect("it is known");
    assert_eq!((info.label.as_deref(), info.pid), (Some("web 3"), Some(std::process::id())));
    assert_eq!(info.version.as_deref(), Some(env!("CARGO_PKG_VERSION")));
    assert!(info.program.is_some() && info.host.is_some() && info.started.is_some());
    let list = server.cli(&["CLIENT", "LIST"]);
    let address = format!(" addr={} ", info.address.expect("the server tells it"));
    let name = format!(" name=web-3@{} ", client.id());
    let line = list.as_str().unwrap().lines().find(|line| line.contains(&address)).expect("the connection");
    assert!(line.contains(&name), "{line}");
    drop(guards);
}

#[tokio::test]
async fn a_holder_of_redisson_and_a_key_that_is_not_ours_are_no_client() {
    let server = Server::start(Flavour::Redis);
    let client = connect(server.url()).await;
    take_as_redisson(&server, "n", SECOND * 30);
    assert_eq!(holder_of(&client, "n").await, None);
    let over = client.lock("n").acquire().wait(Duration::from_millis(50)).await.unwrap_err();
    assert!(
        over.to_string().contains(REDISSON) && over.to_string().contains("; its lease ends in "),
        "{over}"
    );
    let key = format!("leasehold:client:{}", REDISSON.split(':').next().unwrap());
    server.cli(&["SET", &key, "not what a client writes"]);
    assert_eq!(holder_of(&client, "n").await, None);
    server.cli(&["DEL", &key]);
    // A key of another type is refused, and that is not told to the caller.
    server.cli(&["RPUSH", &key, "x"]);
    assert_eq!(holder_of(&client, "n").await, None);
}

#[tokio::test]
async fn an_anonymous_client_writes_no_key_and_no_name() {
    let server = Server::start(Flavour::Redis);
    let client = Client::connect(server.url()).label("hidden").anonymous().await.unwrap();
    let guard = client.lock("n").acquire().await.unwrap();
    client.ping().await.unwrap();
    assert_eq!(registered(&server), [""; 0]);
    assert!(!server.cli(&["CLIENT", "LIST"]).as_str().unwrap().contains("hidden"));
    assert_eq!(holder_of(&connect(server.url()).await, "n").await, None);
    drop(guard);
}

#[test]
fn own_406_the_holder_is_resolved_after_its_process_was_killed_until_its_key_expires() {
    if let Ok(url) = env::var(URL) {
        let client = Client::connect(url).label("killed").block().unwrap();
        let _guard = client.lock("n").acquire().block().unwrap();
        println!("\nheld");
        loop {
            thread::park();
        }
    }
    let server = Server::start(Flavour::Redis);
    let name = "identity::own_406_the_holder_is_resolved_after_its_process_was_killed_until_its_key_expires";
    let mut child = child(name, &server);
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
    assert!(lines.any(|line| line == "held"));
    signal("KILL", &child);
    child.wait().unwrap();
    let client = Client::connect(server.url()).block().unwrap();
    let holder = client.lock("n").holder().block().unwrap().expect("its lease lasts");
    let info = holder.client.expect("its key lasts longer");
    assert_eq!((info.label.as_deref(), info.pid), (Some("killed"), Some(child.id())));
    let over = client.lock("n").acquire().wait(Duration::from_millis(50)).block().unwrap_err();
    assert!(over.to_string().contains(&format!(" by killed (host {}, pid ", info.host.unwrap())), "{over}");
    let owner = holder.owner.unwrap().to_string();
    let key = format!("leasehold:client:{}", owner.split(':').next().unwrap());
    assert!(pttl(&server, &key) > pttl(&server, "n"), "a holder is known for as long as its lease");
    server.cli(&["PEXPIRE", &key, "1"]);
    while server.cli(&["EXISTS", &key]) == 1 {}
    assert_eq!(client.lock("n").holder().block().unwrap().expect("its lease lasts").client, None);
}

async fn own_407_the_identity_of_a_client_survives_a_reconnect(flavour: Flavour) {
    let server = Server::start(flavour);
    let proxy = Proxy::start(server.port());
    let client = Client::connect(proxy.url()).label("web-3").await.unwrap();
    let guard = client.lock("n").acquire().await.unwrap();
    let other = connect(server.url()).await;
    let mut before = holder_of(&other, "n").await.expect("it is known");
    // As if it had expired in a long outage.
    server.cli(&["DEL", &key(&client)]);
    assert_eq!(holder_of(&other, "n").await, None);
    proxy.cut(Which::All);
    drop(acquired(&client.lock("m")).await);
    until("it is registered again", || server.cli(&["EXISTS", &key(&client)]) == 1).await;
    let after = holder_of(&other, "n").await.expect("it is known");
    assert_ne!(before.address, after.address, "the connection is another one");
    before.address.clone_from(&after.address);
    assert_eq!(before, after);
    assert!(guard.is_held());
}

/// Neither may the key be written nor read, nor may the subscribers be counted: nothing fails.
async fn own_408_a_client_without_the_right_to_register_works(flavour: Flavour) {
    let server = Server::start(flavour);
    let rule =
        ["ACL", "SETUSER", "worker", "on", ">secret", "~lock:*", "&*", "+@all", "-pubsub", "-client|setname"];
    assert_eq!(server.cli(&rule), "OK");
    let url = server.url().replace("redis://", "redis://worker:secret@");
    let (client, other) = (connect(&url).await, connect(&url).await);
    let lock = client.lock("lock:n");
    let guard = lock.acquire().await.unwrap();
    let waiter = tokio::spawn(other.lock("lock:n").acquire().into_future());
    let over = soon("the time-out", lock.acquire().wait(SECOND / 10).into_future()).await.unwrap_err();
    assert!(matches!(over, AcquireError::Timeout { .. }), "{over:?}");
    assert_eq!(holder_of(&other, "lock:n").await, None);
    assert_eq!(lock.waiters().await.unwrap().at_least, 0, "those of other clients are not known");
    guard.release().await.unwrap();
    soon("the waiter", waiter).await.unwrap().unwrap().release().await.unwrap();
    assert_eq!(registered(&server), [""; 0]);
}

async fn own_409_the_key_of_a_client_is_deleted_at_its_end_unless_a_lock_stays_taken(flavour: Flavour) {
    let server = Server::start(flavour);
    for _ in 0..10 {
        let client = connect(server.url()).await;
        client.lock("n").acquire().await.unwrap().release().await.unwrap();
        assert_eq!(registered(&server), [key(&client)]);
        drop(client);
        until("it is deleted", || registered(&server).is_empty()).await;
    }
    let client = connect(server.url()).await;
    let key = key(&client);
    client.lock("n").acquire().min_hold(SECOND * 30).await.unwrap().release().await.unwrap();
    drop(client);
    let other = connect(server.url()).await;
    other.ping().await.unwrap();
    assert!(registered(&server).contains(&key));
    assert!(holder_of(&other, "n").await.is_some());
}

#[tokio::test]
async fn the_waiters_of_other_clients_are_counted_by_their_subscriptions() {
    let server = Server::start(Flavour::Redis);
    let (holder, clients) =
        (connect(server.url()).await, [connect(server.url()).await, connect(server.url()).await]);
    let guard = holder.lock("n").acquire().await.unwrap();
    // Each releases the lock itself: they are served in any order.
    let waiters = clients.each_ref().map(|client| {
        let acquire = client.lock("n").acquire();
        tokio::spawn(async move { acquire.await.unwrap().release().await })
    });
    let lock = holder.lock("n");
    let both = async { while lock.waiters().await.unwrap().at_least != 2 {} };
    soon("both are counted", both).await;
    guard.release().await.unwrap();
    for waiter in waiters {
        soon("its turn", waiter).await.unwrap().unwrap();
    }
}
