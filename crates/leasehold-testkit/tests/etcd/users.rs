//! A cluster that knows its users.

use std::time::Duration;

use leasehold::{AcquireError, Client, Credentials, ServerError};
use leasehold_testkit::server::Etcd;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::{PATIENCE, until};

/// What `etcdctl` does in the name of the administrator.
fn as_root(server: &Etcd, arguments: &[&str]) {
    let _ = server.ctl(&[&["--user=root:secret"], arguments].concat());
}

/// A server with a user `app`, who may use names that begin with `app/`.
pub(crate) fn with_users() -> Etcd {
    let server = Etcd::start();
    for line in [
        "user add root:secret",
        "user grant-role root root",
        "user add app:s3cret",
        "role add app",
        "role grant-permission app --prefix=true readwrite app/",
        "role grant-permission app --prefix=true readwrite _leasehold/",
        "user grant-role app app",
        "auth enable",
    ] {
        let _ = server.ctl(&line.split(' ').collect::<Vec<_>>());
    }
    server
}

pub(crate) fn url(server: &Etcd, login: &str) -> String {
    server.url().replace("etcd://", &format!("etcd://{login}"))
}

#[tokio::test]
async fn own_515_a_user_logs_in_and_has_no_other_rights_than_its_own() {
    let server = with_users();
    let client = Client::connect(url(&server, "app:s3cret@")).await.unwrap();
    client.lock("app/n").acquire().fenced().await.unwrap().release().await.unwrap();
    let refused = client.lock("other").acquire().await.unwrap_err();
    assert!(matches!(&refused, AcquireError::Server { cause: ServerError::Denied(_), .. }), "{refused}");

    let wrong = Client::connect(url(&server, "app:wr0ng@")).await.unwrap_err().to_string();
    assert!(wrong.contains("authentication failed") && !wrong.contains("wr0ng"), "{wrong}");
    // Newer servers refuse to grant a lease, too.
    let without_login = match Client::connect(server.url()).await {
        Ok(client) => client.lock("app/n").acquire().await.unwrap_err().to_string(),
        Err(error) => error.to_string(),
    };
    assert!(without_login.contains("user name is empty"), "{without_login}");

    let own = || async { Ok::<_, std::io::Error>(Credentials::new("app", "s3cret")) };
    let client = Client::connect(server.url()).credentials(own).await.unwrap();
    client.lock("app/n").acquire().await.unwrap().release().await.unwrap();
}

/// The server forgets the tokens of its users, as it does by itself after some minutes.
#[tokio::test]
async fn own_516_a_user_that_the_server_has_forgotten_logs_in_again_and_keeps_its_locks() {
    let server = with_users();
    let client = Client::connect(url(&server, "app:s3cret@")).await.unwrap();
    let guard = client.lock("app/kept").acquire().await.unwrap();
    as_root(&server, &["auth", "disable"]);
    let _ = server.ctl(&["auth", "enable"]);
    assert!(client.lock("app/n").try_acquire().await.unwrap().is_some(), "the first request succeeds");
    assert!(client.status().connected && guard.is_held());
    guard.release().await.unwrap();
}

/// The server forgets the tokens of its users.
fn forget(server: &Etcd) {
    as_root(server, &["auth", "disable"]);
    let _ = server.ctl(&["auth", "enable"]);
}

/// The stream of watches has the old token.
#[tokio::test]
async fn own_594_waiters_of_a_user_that_logs_in_again_are_woken() {
    let server = with_users();
    let [client, other] = [(); 2].map(|()| Client::connect(url(&server, "app:s3cret@")));
    let (client, other) = (client.await.unwrap(), other.await.unwrap());
    let permits = client.semaphore("app/s");
    assert!(permits.try_set_permits(1).await.unwrap());
    let held = permits.acquire(1).await.unwrap();
    // The first watch opens the stream.
    let waiter = client.semaphore("app/s").acquire(1).wait(Duration::from_millis(200)).await;
    assert!(waiter.unwrap_err().is_contended());
    forget(&server);
    let waiter = tokio::spawn({
        let permits = client.semaphore("app/s");
        async move { permits.acquire(1).await.map(drop) }
    });
    until("the waiter waits", || client.stats().waiters == 1).await;
    other.semaphore("app/s").release(1).await.unwrap();
    timeout(PATIENCE, waiter).await.expect("the waiter is woken").unwrap().unwrap();
    drop(held);
}

/// None of them is sent without a token while another one logs in.
#[tokio::test]
async fn own_595_no_request_of_a_user_is_refused_while_another_one_logs_in_again() {
    let server = with_users();
    let client = Client::connect(url(&server, "app:s3cret@")).await.unwrap();
    for _ in 0..3 {
        forget(&server);
        let mut all = JoinSet::new();
        for number in 0..50 {
            let lock = client.lock(format!("app/{number}"));
            all.spawn(async move {
                // Some begin while others log in.
                sleep(Duration::from_millis(number * 3)).await;
                lock.acquire().await.map(drop)
            });
        }
        while let Some(acquired) = all.join_next().await {
            acquired.unwrap().unwrap();
        }
    }
}
