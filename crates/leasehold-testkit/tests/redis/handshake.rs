//! The server's properties, as reported when a connection is opened.

use leasehold::{AcquireError, ChangeError, Client, ConnectError, QueryError, ServerError};
use leasehold_testkit::proxy::{Proxy, Which};
use leasehold_testkit::resp::Value;
use leasehold_testkit::server::{Flavour, Server};
use tokio::time::{Instant, sleep};

use crate::fake::{Fake, set_up};
use crate::{SECOND, acquired, connect, soon, take_as_redisson, until, waiting};

const CHANNEL: &str = "redisson_lock__channel:{n}";

/// The reply of a server older than Redis 6 to an unknown command: it repeats the words of the command, up to a length.
fn unknown(command: &[Value], longest: usize) -> Vec<u8> {
    let words = command.iter().map(|word| word.as_str().unwrap_or_default()).collect::<Vec<_>>();
    let mut text = String::new();
    for word in &words[1..] {
        let left = longest.saturating_sub(text.len());
        text.extend(["`", &word[..left.min(word.len())], "`, "]);
    }
    format!("-ERR unknown command `{}`, with args beginning with: {text}\r\n", words[0]).into_bytes()
}

async fn refused(url: String) -> String {
    let error = Client::connect(url).await.expect_err("it is refused");
    format!("{error} {error:?} {error:#?}")
}

#[tokio::test]
async fn a_password_in_the_reply_of_the_server_is_not_in_the_error() {
    for longest in [128, 40] {
        let fake = Fake::start(move |command, _| unknown(command, longest));
        let address = format!("127.0.0.1:{}", fake.port());
        for login in ["me:hunter2secret", ":hunter2secret", "me:hunter2%73ecret"] {
            let text = refused(format!("redis://{login}@{address}")).await;
            for part in ["hunter", "`me`", "args beginning"] {
                assert!(!text.contains(part), "{text}");
            }
            assert!(text.contains("RESP3") && text.contains("Redis from 6.0.6 on, or Valkey"), "{text}");
        }
    }
}

#[tokio::test]
async fn the_error_for_a_refused_password_does_not_contain_the_password() {
    for said in ["WRONGPASS no user has hunter2secret", "ERR what is hunter2se", "ERR hunter2secret?"] {
        let fake = Fake::start(move |_, _| format!("-{said}\r\n").into_bytes());
        let text = refused(format!("redis://:hunter2secret@127.0.0.1:{}", fake.port())).await;
        assert!(!text.contains("hunter"), "{text}");
    }
}

#[tokio::test]
async fn errors_of_commands_do_not_contain_the_password() {
    let fake = Fake::start(|command, _| {
        set_up(command, "standalone", "master").unwrap_or_else(|| b"-ERR it is hunter2secret\r\n".to_vec())
    });
    let client = connect(format!("redis://:hunter2secret@127.0.0.1:{}", fake.port())).await;
    let error = client.lock("n").acquire().await.unwrap_err();
    assert!(!format!("{error} {error:?}").contains("hunter"), "{error:?}");
    assert!(error.to_string().contains("it is ***"), "{error}");
}

#[tokio::test]
async fn a_node_of_a_cluster_is_refused() {
    for flavour in Flavour::ALL {
        let server = Server::builder(flavour).config("cluster-enabled yes").start();
        let error = Client::connect(server.url()).await.unwrap_err();
        let ConnectError::Server { cause: ServerError::Denied(text), .. } = &error else {
            panic!("{error:?}")
        };
        assert!(text.contains("node of a cluster") && text.contains("connect to"), "{error}");
    }
}

#[tokio::test]
async fn a_replica_is_refused() {
    for flavour in Flavour::ALL {
        let primary = Server::start(flavour);
        let replica =
            Server::builder(flavour).config(format!("replicaof 127.0.0.1 {}", primary.port())).start();
        let error = Client::connect(replica.url()).await.unwrap_err();
        let ConnectError::Server { cause: ServerError::Unavailable(text), .. } = &error else {
            panic!("{error:?}")
        };
        assert!(text.contains("replica") && text.contains("connect to its primary"), "{error}");
        // The same address can be used as soon as the server is a primary.
        assert_eq!(replica.cli(&["REPLICAOF", "NO", "ONE"]), "OK");
        connect(replica.url()).await.lock("n").acquire().await.unwrap().release().await.unwrap();
    }
}

#[tokio::test]
async fn a_sentinel_is_refused() {
    let fake = Fake::start(|command, _| set_up(command, "sentinel", "sentinel").unwrap_or_default());
    let text = refused(format!("redis://127.0.0.1:{}", fake.port())).await;
    assert!(text.contains("Denied") && text.contains("a Sentinel"), "{text}");
}

#[tokio::test]
async fn an_unknown_query_parameter_of_a_url_is_refused_before_connecting() {
    let server = Server::start(Flavour::Redis);
    let socket = server.unix_socket();
    for (url, key) in [
        (format!("{}?db=2", server.url()), "`db`"),
        (format!("{}/?password=hunter2", server.url()), "`password`"),
        (format!("redis+unix://{}?database=2&pass=hunter2", socket.display()), "`database`"),
    ] {
        let error = Client::connect(&url).await.expect_err(&url);
        assert!(matches!(error, ConnectError::Url(_)), "{error:?}");
        assert!(error.to_string().contains(key), "{error}");
        assert!(!format!("{error} {error:?}").contains("hunter2"), "{error:?}");
    }
}

#[tokio::test]
async fn a_changed_password_is_reported_to_waiters_and_callers() {
    let server = Server::builder(Flavour::Redis).password("old").start();
    let proxy = Proxy::start(server.port());
    let url = proxy.url().replace("redis://", "redis://:old@");
    let client = Client::connect(url).outage_limit(SECOND).await.unwrap();
    take_as_redisson(&server, "n", SECOND * 60);
    let waiter = waiting(&server, &client.lock("n"), CHANNEL).await;
    assert_eq!(server.cli(&["CONFIG", "SET", "requirepass", "new"]), "OK");
    proxy.cut(Which::All);

    let is_told = |failure: &ServerError| {
        let text = failure.to_string();
        let cause = ", reconnecting: the user or the password is wrong, or the user is disabled: check both in the URL \
                     (WRONGPASS)";
        matches!(failure, ServerError::Denied(_))
            && text.contains(": not connected for ")
            && text.ends_with(cause)
    };
    let begun = Instant::now();
    let waited = soon("the waiter is notified", waiter).await.unwrap().unwrap_err();
    assert!(matches!(&waited, AcquireError::Server { cause: failure, .. } if is_told(failure)), "{waited:?}");
    assert!(begun.elapsed() < SECOND * 3, "{:?}", begun.elapsed());
    let acquired_not = client.lock("m").acquire().await.unwrap_err();
    assert!(
        matches!(&acquired_not, AcquireError::Server { cause: failure, .. } if is_told(failure)),
        "{acquired_not:?}"
    );
    let asked = client.lock("m").is_locked().await.unwrap_err();
    assert!(matches!(&asked, QueryError::Server { cause: failure, .. } if is_told(failure)), "{asked:?}");
    let changed = client.semaphore("s").try_set_permits(1).await.unwrap_err();
    assert!(
        matches!(&changed, ChangeError::Server { cause: failure, .. } if is_told(failure)),
        "{changed:?}"
    );

    // It continues by itself when the password is right again.
    let mut operator = leasehold_testkit::resp::Connection::open(server.port()).unwrap();
    assert_eq!(operator.call(&["AUTH", "new"]).unwrap(), "OK");
    assert_eq!(operator.call(&["CONFIG", "SET", "requirepass", "old"]).unwrap(), "OK");
    let lock = client.lock("m");
    let begun = Instant::now();
    while lock.acquire().await.is_err() {
        assert!(begun.elapsed() < SECOND * 10, "it does not continue");
        sleep(SECOND / 50).await;
    }
}

#[tokio::test]
async fn a_server_at_its_client_limit_is_an_outage() {
    let server = Server::start(Flavour::Redis);
    let proxy = Proxy::start(server.port());
    let client = connect(proxy.url()).await;
    let _operator = leasehold_testkit::resp::Connection::open(server.port()).unwrap();
    let mut operator = leasehold_testkit::resp::Connection::open(server.port()).unwrap();
    assert_eq!(operator.call(&["CONFIG", "SET", "maxclients", "2"]).unwrap(), "OK");
    proxy.cut(Which::All);
    let lock = client.lock("n");
    let mut error = String::new();
    let begun = Instant::now();
    while !error.contains("max number of clients") {
        assert!(begun.elapsed() < SECOND * 10, "{error}");
        let failed = lock.try_acquire().await.unwrap_err();
        assert!(failed.is_unavailable(), "{failed:?}");
        error = failed.to_string();
        sleep(SECOND / 50).await;
    }
    assert_eq!(operator.call(&["CONFIG", "SET", "maxclients", "100"]).unwrap(), "OK");
    acquired(&lock).await.release().await.unwrap();
    until("nothing is left", || crate::keys(&server).is_empty()).await;
}

#[tokio::test]
async fn a_password_that_is_a_word_of_the_protocol_works() {
    for password in ["SCRIPT", "NO", "READONLY"] {
        let server = Server::builder(Flavour::Redis).password(password).start();
        let client = connect(server.url()).await;
        client.lock("n").acquire().await.expect("the lock").release().await.expect("a release");
    }
}
