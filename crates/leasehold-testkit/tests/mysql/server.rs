//! What is on the server: names, settings, tokens; and servers that do not fit.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

use leasehold::{Client, ConnectError};
use leasehold_testkit::server::Mysql;

use crate::{client, holder};

#[tokio::test]
async fn own_700_a_name_is_on_the_server_as_the_documentation_says() {
    let server = Mysql::start();
    let safe = client(&server).await;
    let exact = Client::connect(format!("{}?exact_names=true", server.url())).await.unwrap();
    let long = "x".repeat(65);
    let held = [
        safe.lock("stock:7").acquire().await.unwrap(),
        safe.lock("Größe/1").acquire().await.unwrap(),
        safe.lock(&*long).acquire().await.unwrap(),
        exact.lock("Stock:7").acquire().await.unwrap(),
    ];
    let mut names: Vec<_> = server.locks().into_iter().map(|(name, _)| name).collect();
    names.retain(|name| !name.starts_with("leasehold:client:"));
    names.sort();
    let mut expected = vec![
        "stock:7".to_owned(),
        "größe/15mqapaehnnarlpih547cwx6fv5go6xfa".to_owned(),
        format!("{}gkd2zq6c6ey6mhs45clqg7vij6ycgo43", "x".repeat(32)),
        "Stock:7".to_owned(),
    ];
    expected.sort();
    assert_eq!(names, expected);
    for guard in held {
        guard.release().await.unwrap();
    }
    // The list of the server has room for 64 characters; a name has more.
    let mut session = server.session();
    let guard = exact.lock("ü".repeat(96)).acquire().await.unwrap();
    assert_eq!(session.sql("SELECT GET_LOCK(REPEAT('ü', 96), 0)"), "0");
    assert_eq!(session.sql("SELECT GET_LOCK(CONCAT(REPEAT('ü', 95), 'x'), 0)"), "1");
    guard.release().await.unwrap();
    let error = exact.lock("ü".repeat(97)).try_acquire().await.unwrap_err().to_string();
    assert!(error.contains("192 bytes"), "{error}");
}

#[tokio::test]
async fn own_701_the_server_ends_a_silent_connection_after_the_watchdog_timeout() {
    let server = Mysql::with(&["wait-timeout=28800", "max-statement-time=1"]);
    let seconds = Duration::from_secs(2);
    let client = Client::connect(server.url()).watchdog(seconds).await.unwrap();
    let guard = client.lock("n").acquire().await.unwrap();
    assert!(guard.remaining() <= seconds);
    // Three times as long: heartbeats keep it, and a wait outlasts the limit for statements.
    let waiter = Client::connect(server.url()).watchdog(seconds).await.unwrap();
    let over = waiter.lock("n").acquire().wait(seconds * 3).await.unwrap_err();
    assert!(over.is_contended(), "{over:?}");
    assert!(guard.is_held());
    guard.release().await.unwrap();
}

#[tokio::test]
async fn own_702_tokens_rise_on_the_home_connection_and_on_lanes() {
    let server = Mysql::start();
    let (one, other) = (client(&server).await, client(&server).await);
    let mut before = 0;
    for _ in 0..3 {
        let guard = one.lock("n").acquire().fenced().await.unwrap();
        let waiter = tokio::spawn({
            let lock = other.lock("n");
            async move { lock.acquire().fenced().await }
        });
        crate::until_waiting(&server, 1).await;
        let lane = crate::waiting(&server)[0];
        let token = guard.token();
        guard.release().await.unwrap();
        let next = waiter.await.unwrap().unwrap();
        assert_eq!(holder(&server, "n"), Some(lane));
        assert!(before < token && token < next.token(), "{before} {token} {next:?}");
        before = next.token();
        next.release().await.unwrap();
    }
}

#[tokio::test]
async fn own_703_a_wrong_password_is_refused_and_not_repeated() {
    let server = Mysql::start();
    let url = |password: &str| format!("mysql://app:{password}@127.0.0.1:{}", server.port());
    for wrong in ["hunter2", ""] {
        let error = Client::connect(url(wrong)).await.unwrap_err();
        assert!(matches!(error, ConnectError::Server { .. }), "{error:?}");
        let text = format!("{error} {error:?}");
        assert!(text.contains("Access denied") && !text.contains("hunter2"), "{text}");
    }
    // A database that is there is used, and one that is not is refused.
    let connect = |database: &str| Client::connect(format!("{}/{database}", server.url()));
    server.sql("GRANT ALL ON app.* TO app@'%'");
    server.sql("CREATE DATABASE app");
    connect("app").await.unwrap().ping().await.unwrap();
    let error = connect("none").await.unwrap_err().to_string();
    assert!(error.contains("denied") || error.contains("Unknown database"), "{error}");
}

#[tokio::test]
async fn own_704_a_replica_is_named_in_the_warnings() {
    let server = Mysql::with(&["read-only=1"]);
    let warnings = client(&server).await.warnings();
    assert!(warnings.len() == 1 && warnings[0].contains("a replica"), "{warnings:?}");
    assert_eq!(client(&Mysql::start()).await.warnings(), [""; 0]);
}

/// The URL of a proxy that changes the greeting of a server.
fn greeted_otherwise(server: &Mysql, change: fn(&mut [u8])) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a connection on this machine works");
    let (port, behind) =
        (listener.local_addr().expect("a connection on this machine works").port(), server.port());
    std::thread::spawn(move || {
        for client in listener.incoming().map_while(Result::ok) {
            let mut server =
                TcpStream::connect(("127.0.0.1", behind)).expect("a connection on this machine works");
            let mut greeting = [0; 1024];
            let length = server.read(&mut greeting).expect("a connection on this machine works");
            change(&mut greeting);
            let (mut there, mut back) =
                (client.try_clone().expect("a connection on this machine works"), client);
            back.write_all(&greeting[..length]).expect("a connection on this machine works");
            let mut to_server = server.try_clone().expect("a connection on this machine works");
            std::thread::spawn(move || drop(std::io::copy(&mut there, &mut to_server)));
            std::thread::spawn(move || drop(std::io::copy(&mut server, &mut back)));
        }
    });
    server.url().replace(&format!(":{behind}"), &format!(":{port}"))
}

/// Connections have other ids for the client than for the server, as behind a proxy that shares them.
#[tokio::test]
async fn own_705_a_proxy_that_shares_connections_is_refused_with_advice() {
    let server = Mysql::start();
    let url = greeted_otherwise(&server, |greeting| {
        // Behind the header, the version of the protocol and that of the server.
        let id = 6 + greeting[5..].iter().position(|byte| *byte == 0).unwrap();
        greeting[id] ^= 0x40;
    });
    let error = Client::connect(url).await.unwrap_err().to_string();
    assert!(error.contains("a proxy shares connections"), "{error}");
    let url = greeted_otherwise(&server, |_| {});
    Client::connect(url).await.unwrap().ping().await.unwrap();
}

#[tokio::test]
async fn own_706_exact_names_are_refused_where_the_server_ignores_case() {
    let server = Mysql::start();
    let url = greeted_otherwise(&server, |greeting| {
        let name = greeting.windows(7).position(|bytes| bytes == b"MariaDB").unwrap();
        greeting[name..name + 7].copy_from_slice(b"AnySQL!");
    });
    let error = Client::connect(format!("{url}?exact_names=true")).await.unwrap_err().to_string();
    assert!(error.contains("for MariaDB alone"), "{error}");
}
