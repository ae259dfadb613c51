//! User and password: from a source of the program, a file or the environment, and changed while clients live.

#![expect(clippy::unwrap_used, reason = "a failing test names its line")]

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use leasehold::{Client, Credentials};
use leasehold_testkit::proxy::{Proxy, Which};
use leasehold_testkit::server::{Flavour, Server};

use crate::{LONG, SECOND, acquired, soon, until, waiting};

const CHANNEL: &str = "redisson_lock__channel:{n}";

/// Gives the user `app` this password alone.
fn set_password(server: &Server, password: &str) {
    let password = format!(">{password}");
    let words = ["ACL", "SETUSER", "app", "reset", "on", &password, "~*", "&*", "+@all"];
    assert_eq!(server.cli(&words), "OK");
}

/// A client whose program returns one of these passwords after the other, and then the last one again and again. The counter has
/// how often it was asked.
async fn client(url: String, passwords: &'static [&'static str]) -> (Client, Arc<AtomicUsize>) {
    let asked = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&asked);
    let connect = Client::connect(url).watchdog(SECOND * 20).credentials(move || {
        let number = count.fetch_add(1, Ordering::SeqCst).min(passwords.len() - 1);
        async move { Ok::<_, Infallible>(Credentials::new("app", passwords[number])) }
    });
    (connect.await.expect("the server is there"), asked)
}

async fn the_program_is_asked_again_when_its_password_is_refused(flavour: Flavour) {
    let server = Server::start(flavour);
    set_password(&server, "second");
    let (client, asked) = client(server.url(), &["first", "second"]).await;
    assert_eq!(asked.load(Ordering::SeqCst), 2);
    acquired(&client.lock("n")).await.release().await.unwrap();

    let refused = Client::connect(server.url())
        .credentials(|| async { Ok::<_, Infallible>(Credentials::new("app", "thirdsecret")) });
    let error = refused.await.unwrap_err().to_string();
    assert!(error.contains("the user or the password is wrong") && !error.contains("thirdsecret"), "{error}");
    let failed =
        Client::connect(server.url()).credentials(|| async { Err::<Credentials, _>("no token today") });
    let error = failed.await.unwrap_err().to_string();
    assert!(error.contains("the program's own source of credentials failed: no token today"), "{error}");
}

/// Removed rights leave live connections as they are; a deleted user ends them.
async fn a_changed_password_and_a_deleted_user_are_survived(flavour: Flavour) {
    let server = Server::start(flavour);
    set_password(&server, "first");
    let (client, _) = client(server.url(), &["first", "second"]).await;
    let held = client.lock("held").acquire().await.unwrap();

    set_password(&server, "second");
    acquired(&client.lock("n")).await.release().await.unwrap();
    server.cli(&["CLIENT", "KILL", "USER", "app"]);
    acquired(&client.lock("n")).await.release().await.unwrap();
    assert!(held.is_held(), "after the password was changed");

    assert_eq!(server.cli(&["ACL", "DELUSER", "app"]), 1);
    let mut error = String::new();
    until("the reason is known", || {
        let attempt = client.lock("n").try_acquire().block();
        error = attempt.map_or_else(|error| error.to_string(), |_| String::new());
        error.contains("the user or the password is wrong")
    })
    .await;
    assert!(!error.contains("second"), "{error}");
    assert!(held.is_held(), "its lease is not over");
    set_password(&server, "second");
    until("the user is back", || client.lock("n").try_acquire().block().is_ok()).await;
    assert!(held.is_held(), "after the user was deleted");
    held.release().await.unwrap();
}

async fn live_connections_are_authenticated_anew(flavour: Flavour) {
    let server = Server::start(flavour);
    set_password(&server, "token");
    let proxy = Proxy::start(server.port());
    let connect = Client::connect(proxy.url()).credentials(|| async {
        Ok::<_, Infallible>(Credentials::new("app", "token").renew_after(SECOND / 10))
    });
    let client = connect.await.unwrap();
    let held = client.lock("n").acquire().await.unwrap();
    let waiter = waiting(&server, &client.lock("n"), CHANNEL).await;
    until("both connections are open", || proxy.open(Which::All) == 2).await;
    let before = proxy.counts().connections;
    drop(proxy.take_sent());
    let mut by_connection = [0; 2];
    until("both are authenticated several times", || {
        for sent in proxy.take_sent().iter().filter(|sent| sent.name == "AUTH") {
            by_connection[sent.connection] += 1;
        }
        by_connection.iter().all(|count| *count >= 3)
    })
    .await;
    assert_eq!(proxy.counts().connections, before, "on the same connections");
    held.release().await.unwrap();
    soon("the waiter", waiter).await.unwrap().unwrap().release().await.unwrap();
}

async fn a_password_in_a_file_is_read_for_each_connection(flavour: Flavour) {
    let server = Server::start(flavour);
    set_password(&server, "first");
    let file = server.directory().join("password");
    std::fs::write(&file, "first\n").unwrap();
    let url = server.url().replace("redis://", "redis://app@");
    let client = Client::connect(format!("{url}?password_file={}", file.display())).await.unwrap();
    set_password(&server, "second");
    std::fs::write(&file, "second\n").unwrap();
    server.cli(&["CLIENT", "KILL", "USER", "app"]);
    let guard = soon("a lock", acquired(&client.lock("n"))).await;
    assert!(guard.is_held());
    let unset = Client::connect(format!("{url}?password_env=LEASEHOLD_NOT_SET")).connect_timeout(LONG).await;
    let error = unset.unwrap_err().to_string();
    assert!(
        error.contains("the environment variable LEASEHOLD_NOT_SET, for the password, is not set"),
        "{error}"
    );
}

on_both! {
    the_program_is_asked_again_when_its_password_is_refused
    a_changed_password_and_a_deleted_user_are_survived
    live_connections_are_authenticated_anew
    a_password_in_a_file_is_read_for_each_connection
}
