//! The keys of a fenced lock: Redisson's tokens, each handed out once.

use leasehold::{AcquireError, ServerError};
use leasehold_testkit::proxy::{Proxy, Which};
use leasehold_testkit::server::{Flavour, Server};
use tokio::time::sleep;

use crate::{SECOND, connect, keys, pttl, soon, until};

const TOKENS: &str = "redisson_lock_token:{n}";
const CHANNEL: &str = "redisson_lock__channel:{n}";

#[tokio::test]
async fn fe_06_the_steps_of_a_fenced_lock_leave_the_same_state_as_redisson() {
    for flavour in Flavour::ALL {
        let server = Server::start(flavour);
        let mut messages = server.subscribe(&[CHANNEL]);
        let client = connect(server.url()).await;
        let lock = client.fenced_lock("n");
        assert_eq!((lock.last_token().await.unwrap(), keys(&server)), (0, vec![]));

        let outer = lock.acquire().await.unwrap();
        let inner = outer.reenter().await.unwrap();
        assert_eq!((outer.token(), inner.token()), (1, 2));
        assert_eq!(server.cli(&["HGETALL", "n"]).elements(), [outer.owner().to_string().as_str(), "2"]);
        assert_eq!(server.cli(&["GET", TOKENS]), "2");
        assert_eq!(pttl(&server, TOKENS), -1, "tokens are there for good");
        assert_eq!(keys(&server), ["n", TOKENS]);

        // The release and the other operations are those of the plain lock, and touch no token.
        inner.release().await.unwrap();
        outer.release().await.unwrap();
        assert_eq!((keys(&server), messages.take().len()), (vec![TOKENS.to_owned()], 1));
        drop(lock.acquire().await.unwrap());
        until("it is given back", || keys(&server) == [TOKENS]).await;
        assert_eq!(server.cli(&["GET", TOKENS]), "3");

        // Other programs take tokens from the same counter.
        server.cli(&["INCR", TOKENS]);
        assert_eq!(lock.last_token().await.unwrap(), 4);
        assert_eq!(lock.acquire().await.unwrap().token(), 5);

        // Names that have a tag of their own.
        drop(client.fenced_lock("a{b}c").acquire().await.unwrap());
        assert_eq!(server.cli(&["GET", "redisson_lock_token:a{b}c"]), "1");
    }
}

#[tokio::test]
async fn a_time_to_live_of_the_token_counter_is_removed() {
    let server = Server::start(Flavour::Redis);
    let lock = connect(server.url()).await.fenced_lock("n");
    lock.acquire().await.unwrap().release().await.unwrap();
    server.cli(&["PEXPIRE", TOKENS, "60000"]);
    assert_eq!(lock.acquire().await.unwrap().token(), 2);
    assert_eq!(pttl(&server, TOKENS), -1);
}

#[tokio::test]
async fn tokens_rise_after_an_expiry_a_force_unlock_and_a_restart() {
    for flavour in Flavour::ALL {
        let mut server = Server::builder(flavour).persistent().start();
        let lock = connect(server.url()).await.fenced_lock("n");
        let lease = SECOND / 5;
        let stale = lock.acquire().lease(lease).await.unwrap();
        let guard = soon("the lease ends", lock.acquire().into_future()).await.unwrap();
        assert_eq!((stale.token(), guard.token()), (1, 2));
        assert!(lock.force_unlock().await.unwrap());
        let held = lock.acquire().await.unwrap();
        assert_eq!(held.token(), 3);
        held.release().await.unwrap();
        server.restart();
        let token = loop {
            match soon("an acquire", lock.acquire().into_future()).await {
                Ok(guard) => break guard.token(),
                Err(error) => assert!(error.is_unavailable(), "{error:?}"),
            }
            sleep(SECOND / 100).await;
        };
        assert!(token > 3, "{token} after a restart");
    }
}

/// A token whose reply was lost is never used.
#[tokio::test]
async fn own_51_a_token_whose_reply_is_lost_is_not_issued_again() {
    for flavour in Flavour::ALL {
        let server = Server::start(flavour);
        let proxy = Proxy::start(server.port());
        let (lock, other) = (connect(proxy.url()).await, connect(server.url()).await);
        let (lock, other) = (lock.fenced_lock("n"), other.fenced_lock("n"));
        // The server has the scripts from here on, so that the first reply is that of an acquire.
        let first = other.acquire().await.unwrap();
        let mut last = first.token();
        first.release().await.unwrap();
        for round in 1..=5 {
            proxy.lose_reply_once(Which::Command);
            let error = lock.try_acquire().await.unwrap_err();
            assert!(error.is_unavailable(), "{error:?}");
            let minted = other.last_token().await.unwrap();
            let next = soon("it is undone", other.acquire().into_future()).await.unwrap();
            assert!(minted > last && next.token() > minted, "{last}, {minted}, {}", next.token());
            next.release().await.unwrap();
            until("there is a connection again", || keys(&server) == [TOKENS]).await;
            let guard = loop {
                match lock.acquire().await {
                    Ok(guard) => break guard,
                    Err(error) => assert!(error.is_unavailable(), "{error:?}"),
                }
                sleep(SECOND / 100).await;
            };
            last = guard.token();
            // Not by dropping it, lest the next reply to be lost be that of the drop.
            guard.release().await.unwrap();
            assert!(last > minted + 1, "round {round}: {last} after {}", minted + 1);
        }
    }
}

#[tokio::test]
async fn a_take_over_is_refused_when_the_key_of_the_tokens_holds_no_counter() {
    let server = Server::start(Flavour::Redis);
    let (client, thief) = (connect(server.url()).await, connect(server.url()).await);
    let held = client.lock("n").acquire().await.unwrap();
    server.cli(&["SET", TOKENS, "many"]);
    let stolen = thief.fair_lock("n").acquire().fenced().steal().await;
    assert!(matches!(stolen, Err(AcquireError::Server { cause: ServerError::Denied(_), .. })), "{stolen:?}");
    assert_eq!(server.cli(&["HEXISTS", "n", &held.owner().to_string()]), 1, "as before");
    let reads = client.rw_lock("rw").read().acquire().await.unwrap();
    server.cli(&["SET", "redisson_lock_token:{rw}", "many"]);
    let stolen = thief.rw_lock("rw").write().acquire().fenced().steal().await;
    assert!(matches!(stolen, Err(AcquireError::Server { cause: ServerError::Denied(_), .. })), "{stolen:?}");
    assert!(client.rw_lock("rw").read().is_held_by(reads.owner()).await.unwrap(), "as before");
    for (value, refused) in [("many", true), ("-1", true), ("-7", true), ("7", false)] {
        server.cli(&["SET", TOKENS, value]);
        let stolen = thief.fenced_lock("n").acquire().steal().await;
        assert_eq!(stolen.is_err(), refused, "{value}: {stolen:?}");
        if value == "many" {
            assert!(
                matches!(stolen, Err(AcquireError::Server { cause: ServerError::Denied(_), .. })),
                "{stolen:?}"
            );
            assert_eq!(server.cli(&["HEXISTS", "n", &held.owner().to_string()]), 1, "as before");
        }
    }
}

/// Every number below one has another meaning in the reply to an acquire.
#[tokio::test]
async fn a_negative_token_counter_fails_an_acquire_and_leaves_the_lock_free() {
    for flavour in Flavour::ALL {
        let server = Server::start(flavour);
        let client = connect(server.url()).await;
        for last in ["-1", "-2", "-3", "-9000000000000000000"] {
            server.cli(&["SET", TOKENS, last]);
            let rw = client.rw_lock("n");
            let denied = [
                client.lock("n").acquire().fenced().await.map(drop),
                client.lock("n").acquire().fenced().steal().await.map(drop),
                client.fair_lock("n").acquire().fenced().await.map(drop),
                client.setnx_lock("n").acquire().fenced().await.map(drop),
                client.group_lock("n", ["a"]).acquire().fenced().await.map(drop),
                rw.write().acquire().fenced().await.map(drop),
            ];
            for outcome in denied {
                let Err(AcquireError::Server { cause: ServerError::Denied(text), .. }) = &outcome else {
                    panic!("{flavour:?}, {last}: {outcome:?}");
                };
                assert!(text.contains("tokens"), "{text}");
                assert_eq!(keys(&server), [TOKENS], "{flavour:?}, {last}: nothing is held");
                assert_eq!(server.cli(&["GET", TOKENS]), last, "{flavour:?}: nothing is minted");
            }
            let several = client.multi_lock(["n", "m"]).acquire().fenced().await.map(drop);
            assert!(
                matches!(several, Err(AcquireError::Server { cause: ServerError::Denied(_), .. })),
                "{several:?}"
            );
            assert_eq!(server.cli(&["EXISTS", "n", "m"]), 0, "{flavour:?}, {last}: nothing is held");
            server.cli(&["DEL", "redisson_lock_token:{m}"]);
            assert!(client.fenced_lock("n").last_token().await.is_err(), "it is no token");
        }
        server.cli(&["SET", TOKENS, "0"]);
        assert_eq!(client.fenced_lock("n").acquire().await.unwrap().token(), 1);
    }
}
