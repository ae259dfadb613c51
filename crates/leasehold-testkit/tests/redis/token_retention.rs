//! Counters of tokens that expire, and tokens that rise all the same.

#![expect(clippy::unwrap_used, reason = "every case is the body of a test")]

use leasehold::{Client, Fence};
use leasehold_testkit::server::{Flavour, Server};

use crate::{SECOND, connect, keys, pttl, soon, until};

on_both! {
    own_470_the_counter_of_every_kind_of_token_expires
    own_471_tokens_rise_over_the_expiry_of_their_counter
    own_472_a_hold_that_outlives_its_counter_is_followed_by_a_greater_token
    own_473_a_client_without_the_option_keeps_the_counter_for_good
    own_474_a_client_without_the_option_begins_at_one_after_the_expiry
}

const TOKENS: &str = "redisson_lock_token:{n}";

/// A client whose counters expire, long after the end of a test.
async fn forgetful(server: &Server) -> Client {
    Client::connect(server.url()).token_retention(100 * SECOND).await.unwrap()
}

/// Waits until the counter has expired, which it does at once.
async fn expired(server: &Server) {
    assert!(pttl(server, TOKENS) > 0, "it expires");
    assert_eq!(server.cli(&["PEXPIRE", TOKENS, "1"]), 1);
    until("the counter expires", || server.cli(&["EXISTS", TOKENS]) == 0).await;
}

fn counters(server: &Server) -> Vec<String> {
    keys(server).into_iter().filter(|key| key.starts_with("redisson_lock_token:")).collect()
}

async fn own_470_the_counter_of_every_kind_of_token_expires(flavour: Flavour) {
    let server = Server::start(flavour);
    let client = forgetful(&server).await;
    let (short, most) = (50_000, 100_000);
    let plain = client.fenced_lock("lock").acquire().await.unwrap();
    let guards = [
        client.fair_lock("fair").acquire().fenced().await.unwrap(),
        client.setnx_lock("setnx").acquire().fenced().await.unwrap(),
        client.group_lock("group", ["a", "b"]).acquire().fenced().await.unwrap(),
    ];
    let write = client.rw_lock("rw").write().acquire().fenced().await.unwrap();
    let several = client.multi_lock(["one", "other"]).acquire().fenced().await.unwrap();
    let counters = counters(&server);
    assert_eq!(counters.len(), 7, "{counters:?}");
    for counter in &counters {
        let left = pttl(&server, counter);
        assert!(left > short && left <= most, "{counter}: {left}");
        assert_eq!(server.cli(&["PEXPIRE", counter, &short.to_string()]), 1);
    }
    // Every token begins its time anew, also that of a re-entry. Nothing else does.
    let inner = plain.reenter().await.unwrap();
    drop((inner, plain, guards, write, several));
    until("all is released", || keys(&server).len() == counters.len()).await;
    client.lock("fair").acquire().await.unwrap().release().await.unwrap();
    for counter in &counters {
        let left = pttl(&server, counter);
        assert!(left > 1 && (left > short) == (counter == "redisson_lock_token:{lock}"), "{counter}: {left}");
    }
    let brief =
        Client::connect(server.url()).watchdog(SECOND / 10).token_retention(SECOND / 5).await.unwrap();
    brief.fenced_lock("n").acquire().await.unwrap().release().await.unwrap();
    until("it expires by itself", || server.cli(&["EXISTS", TOKENS]) == 0).await;
}

async fn own_471_tokens_rise_over_the_expiry_of_their_counter(flavour: Flavour) {
    let server = Server::start(flavour);
    // By a program that had no retention yet.
    assert_eq!(server.cli(&["SET", TOKENS, "900"]), "OK");
    let client = forgetful(&server).await;
    let (lock, fence) = (client.fenced_lock("n"), Fence::new());
    let mut begins = Vec::new();
    for _ in 0..3 {
        let first = lock.acquire().await.unwrap();
        let second = first.reenter().await.unwrap();
        assert_eq!(
            (second.token(), lock.last_token().await.unwrap()),
            (first.token() + 1, first.token() + 1)
        );
        fence.check(second.token()).unwrap();
        client.fenced_write("value", second.token(), b"written").await.unwrap();
        begins.push(first.token());
        drop((first, second));
        expired(&server).await;
        assert_eq!(lock.last_token().await.unwrap(), 0);
    }
    let [of_before, old, new] = begins[..] else { panic!("{begins:?}") };
    assert_eq!(of_before, 901);
    assert!(old > 1 << 50 && new > old + 1, "by the clock of the server: {begins:?}");
    for late in [of_before, old + 1] {
        assert!(fence.check(late).is_err(), "a holder from before the expiry is refused");
        assert!(client.fenced_write("value", late, b"late").await.is_err());
    }
}

async fn own_472_a_hold_that_outlives_its_counter_is_followed_by_a_greater_token(flavour: Flavour) {
    let server = Server::start(flavour);
    let (client, thief) = (forgetful(&server).await, forgetful(&server).await);
    let lock = client.fenced_lock("n");
    let held = lock.acquire().await.unwrap();
    expired(&server).await;
    assert!(held.is_held() && lock.is_held_by(held.owner()).await.unwrap(), "it is renewed");
    let inner = held.reenter().await.unwrap();
    assert!(inner.token() > held.token(), "{} after {}", inner.token(), held.token());
    expired(&server).await;
    let stolen = thief.fenced_lock("n").acquire().steal().await.unwrap();
    assert!(stolen.token() > inner.token(), "{} after {}", stolen.token(), inner.token());
}

async fn own_473_a_client_without_the_option_keeps_the_counter_for_good(flavour: Flavour) {
    let server = Server::start(flavour);
    let (client, keeper) = (forgetful(&server).await, connect(server.url()).await);
    let begun = client.fenced_lock("n").acquire().await.unwrap();
    let token = begun.token();
    begun.release().await.unwrap();
    let kept = keeper.fenced_lock("n").acquire().await.unwrap();
    assert_eq!((kept.token(), pttl(&server, TOKENS)), (token + 1, -1));
    kept.release().await.unwrap();
    // And the other way round.
    let next = client.fenced_lock("n").acquire().await.unwrap();
    assert_eq!(next.token(), token + 2);
    assert!(pttl(&server, TOKENS) > 0);
}

/// What remains: the schedule in `docs/guarantees.md`.
async fn own_474_a_client_without_the_option_begins_at_one_after_the_expiry(flavour: Flavour) {
    let server = Server::start(flavour);
    let (client, other) = (forgetful(&server).await, connect(server.url()).await);
    let paused = client.fenced_lock("n").acquire().await.unwrap().token();
    expired(&server).await;
    let holder = soon("it is free", other.fenced_lock("n").acquire().into_future()).await.unwrap();
    assert_eq!(holder.token(), 1);
    // A store that has seen no token yet accepts both, the late one last.
    other.fenced_write("fresh", holder.token(), b"of the holder").await.unwrap();
    client.fenced_write("fresh", paused, b"late").await.unwrap();
    // One that has seen the greater one refuses the holder.
    assert!(other.fenced_write("fresh", holder.token(), b"of the holder").await.is_err());
}
