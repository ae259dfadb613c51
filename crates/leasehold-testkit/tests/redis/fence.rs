//! The guarded write: a value on Redis that no late holder overwrites.

use std::env;
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::exit;
use std::thread;
use std::time::Duration;

use leasehold::{Client, InvalidRequestError, ServerError, WriteError};
use leasehold_testkit::proxy::{Proxy, Which};
use leasehold_testkit::server::{Flavour, Server};
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::process::{URL, child, signal};
use crate::{SECOND, connect, keys, pttl};

const FENCE: &str = "leasehold_fence:{balance}";

#[tokio::test]
async fn own_68_a_value_is_written_unless_a_greater_token_has_written() {
    for flavour in Flavour::ALL {
        let server = Server::start(flavour);
        let client = Client::connect(server.url()).namespace("app:").await.unwrap();
        let write = |token: u64, value: &'static str| client.fenced_write("balance", token, value);
        write(9, "a").await.unwrap();
        write(9, "b").await.unwrap();
        let late = write(8, "late").await.unwrap_err();
        assert!(
            matches!(&late, WriteError::Stale { cause: stale, .. } if (stale.token, stale.highest) == (8, 9)),
            "{late:?}"
        );
        assert_eq!((server.cli(&["GET", "balance"]), server.cli(&["GET", FENCE])), ("b".into(), "9".into()));
        // By the number, not by the text of it.
        write(10, "c").await.unwrap();
        assert!(matches!(write(9, "late").await, Err(WriteError::Stale { .. })));
        // Numbers that a script would round.
        write(u64::MAX - 1, "d").await.unwrap();
        assert!(matches!(write(u64::MAX - 2, "late").await, Err(WriteError::Stale { .. })));
        write(u64::MAX, "e").await.unwrap();
        assert_eq!(server.cli(&["GET", "balance"]), "e");
        assert_eq!(keys(&server), ["balance", FENCE], "the namespace is for locks");

        // The fence outlives the value, and a write removes any time to live from it.
        server.cli(&["DEL", "balance"]);
        assert!(matches!(write(1, "late").await, Err(WriteError::Stale { .. })));
        assert_eq!(keys(&server), [FENCE]);
        server.cli(&["PEXPIRE", FENCE, "60000"]);
        write(u64::MAX, "f").await.unwrap();
        assert_eq!(pttl(&server, FENCE), -1);

        // Any bytes, and a tag of its own.
        client.fenced_write("a{b}c", 1, vec![0, 255, 10, 13]).await.unwrap();
        assert_eq!(server.cli(&["GET", "leasehold_fence:a{b}c"]), "1");
        assert_eq!(server.cli(&["STRLEN", "a{b}c"]), 4);

        server.cli(&["SET", FENCE, "many"]);
        let broken = write(5, "late").await.unwrap_err();
        assert!(matches!(broken, WriteError::Server { cause: ServerError::Denied(_), .. }), "{broken:?}");
        assert_eq!(server.cli(&["GET", "balance"]), "f");
        let nameless = client.fenced_write("", 1, "").await;
        assert!(
            matches!(nameless, Err(WriteError::Invalid { cause: InvalidRequestError::EmptyName, .. })),
            "{nameless:?}"
        );
    }
}

#[tokio::test]
async fn own_70_an_engine_without_values_refuses_a_fenced_write() {
    let client = Client::connect("memory:").await.unwrap();
    let error = client.fenced_write("balance", 1, "a").await.unwrap_err();
    assert!(
        matches!(error, WriteError::Invalid { cause: InvalidRequestError::Unsupported { .. }, .. }),
        "{error:?}"
    );
    assert!(error.to_string().contains("use redis"), "{error}");
}

#[tokio::test]
async fn a_fenced_write_without_a_reply_can_be_repeated() {
    let server = Server::start(Flavour::Redis);
    let proxy = Proxy::start(server.port());
    let (client, other) = (connect(proxy.url()).await, connect(server.url()).await);
    other.fenced_write("balance", 1, "a").await.unwrap();
    proxy.lose_reply_once(Which::Command);
    let error = client.fenced_write("balance", 2, "b").await.unwrap_err();
    assert!(matches!(error, WriteError::Server { cause: ServerError::Unavailable(_), .. }), "{error:?}");
    assert_eq!(server.cli(&["GET", "balance"]), "b", "it was made");
    while let Err(error) = client.fenced_write("balance", 2, "b").await {
        assert!(matches!(error, WriteError::Server { cause: ServerError::Unavailable(_), .. }), "{error:?}");
        sleep(Duration::from_millis(5)).await;
    }
    other.fenced_write("balance", 3, "c").await.unwrap();
    assert!(matches!(client.fenced_write("balance", 2, "b").await, Err(WriteError::Stale { .. })));
}

/// In any order of arrival, the greatest token stays.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_greatest_token_of_many_concurrent_writes_stays() {
    let server = Server::start(Flavour::Redis);
    let clients = [connect(server.url()).await, connect(server.url()).await];
    let mut writes = JoinSet::new();
    for n in 0..200_u64 {
        let token = 1 + n * 77 % 200;
        let client = &clients[usize::from(n % 2 == 0)];
        writes.spawn(client.fenced_write("balance", token, token.to_string()));
    }
    for done in writes.join_all().await {
        assert!(matches!(done, Ok(()) | Err(WriteError::Stale { .. })), "{done:?}");
    }
    assert_eq!((server.cli(&["GET", "balance"]), server.cli(&["GET", FENCE])), ("200".into(), "200".into()));
}

/// The child reads, is stopped past its lease, and then writes as if nothing had happened.
#[test]
fn own_69_a_process_stopped_past_its_lease_does_not_overwrite_a_later_write() {
    if let Ok(url) = env::var(URL) {
        let client = Client::connect(url).block().unwrap();
        let guard = client.fenced_lock("account").acquire().lease(SECOND).block().unwrap();
        assert!(guard.is_held());
        println!("\ntoken {}", guard.token());
        std::io::stdout().flush().unwrap();
        // The process is stopped here; when it continues, this lock is held.
        while !client.lock("resumed").is_locked().block().unwrap_or(false) {
            thread::sleep(Duration::from_millis(1));
        }
        let outcome = match client.fenced_write("balance", guard.token(), "90").block() {
            Err(WriteError::Stale { cause: stale, .. }) => format!("refused: {stale}"),
            other => format!("{other:?}"),
        };
        println!("\n{outcome}");
        exit(0);
    }
    let server = Server::start(Flavour::Redis);
    let name = "fence::own_69_a_process_stopped_past_its_lease_does_not_overwrite_a_later_write";
    let mut child = child(name, &server);
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
    let mut next = |word: &str| lines.find(|line| line.starts_with(word)).expect("the child continues");
    assert_eq!(next("token"), "token 1");
    signal("STOP", &child);
    let client = Client::connect(server.url()).block().unwrap();
    let guard = client.fenced_lock("account").acquire().block().unwrap();
    client.fenced_write("balance", guard.token(), "150").block().unwrap();
    guard.release().block().unwrap();
    let _resumed = client.lock("resumed").acquire().block().unwrap();
    signal("CONT", &child);
    assert_eq!(next("refused"), "refused: the fencing token 1 is stale: a holder with 2 has written since");
    assert!(child.wait().unwrap().success());
    assert_eq!(server.cli(&["GET", "balance"]), "150");
}
