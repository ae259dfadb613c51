//! Which locks are held: what is taken for a lock, and what a listing costs its server.

#![expect(clippy::unwrap_used, reason = "every case is the body of a test")]

use std::env;
use std::time::Duration;

use leasehold::{LockKind, Owner, QueryError, ServerError};
use leasehold_testkit::server::{Flavour, Server};
use tokio::time::Instant;

use crate::{REDISSON, SECOND, alone, connect, number, take_as_redisson};

on_both! {
    own_456_keys_of_other_programs_are_not_listed
    own_457_a_listing_is_done_in_time_and_does_not_block_the_server
    own_458_large_keys_are_not_read
    own_459_a_listing_that_ends_early_is_not_complete
    own_478_a_name_whose_key_is_there_is_not_found_to_be_free
    own_479_each_request_of_a_listing_is_counted
}

/// The names and kinds of the locks.
async fn listed(server: &Server, pattern: &str) -> Vec<(String, LockKind)> {
    let client = connect(server.url()).await;
    let listing = client.list(pattern).setnx().await.unwrap();
    assert!(listing.is_complete);
    listing.locks.into_iter().map(|lock| (lock.name, lock.kind)).collect()
}

async fn own_456_keys_of_other_programs_are_not_listed(flavour: Flavour) {
    let server = Server::start(flavour);
    for command in [
        "SET string value",
        "SET number 5",
        "SET almost 71b96ce8-2746-4f0e-9d1a-0f0d5a3b8c11",
        "RPUSH list a",
        "SADD set a",
        "ZADD sorted 1 a",
        "XADD stream * a b",
        "HSET user name Ann mode dark",
        "HSET one name Ann",
        "HSET counter visits 5",
        "HSET owner 71b96ce8-2746-4f0e-9d1a-0f0d5a3b8c11:42 Ann",
        "HSET leasehold_permits:{n} 71b96ce8-2746-4f0e-9d1a-0f0d5a3b8c11:42 1 71b96ce8-2746-4f0e-9d1a-0f0d5a3b8c11:43 1",
        "HSET {}braces 71b96ce8-2746-4f0e-9d1a-0f0d5a3b8c11:42 1",
    ] {
        server.cli(&command.split(' ').collect::<Vec<_>>());
    }
    server.cli(&[b"HSET".as_slice(), b"\xff\xfe", REDISSON.as_bytes(), b"1"]);
    assert_eq!(listed(&server, "*").await, []);

    take_as_redisson(&server, "theirs", SECOND * 30);
    server.cli(&["HSET", "port", &REDISSON.replace(":42", ":main"), "1"]);
    let hold = format!("{{rw}}:{REDISSON}:rwlock_timeout:1");
    server.cli(&["HSET", "rw", "mode", "read", REDISSON, "1"]);
    server.cli(&["SET", &hold, "1", "PX", "30000"]);
    server.cli(&["SET", "ours", REDISSON, "PX", "30000"]);
    let found = listed(&server, "*").await;
    let expected = [
        ("ours", LockKind::SetNx),
        ("port", LockKind::Lock),
        ("rw", LockKind::Read),
        ("theirs", LockKind::Lock),
    ];
    assert_eq!(found, expected.map(|(name, kind)| (name.to_owned(), kind)));
    let client = connect(server.url()).await;
    let theirs = client.find("theirs").await.unwrap().unwrap();
    assert_eq!(theirs.holder.owner, Some(REDISSON.parse::<Owner>().unwrap()));
    assert_eq!((theirs.holder.client, theirs.holders), (None, 1));
    assert_eq!(client.find("port").await.unwrap().unwrap().holder.owner, None);
    // A reader whose own key has expired reads no more.
    server.cli(&["DEL", &hold]);
    assert_eq!(client.find("rw").await.unwrap(), None);
    // The caller says that a string is a lock of another library; a number is a count.
    assert_eq!(client.find("string").await.unwrap().unwrap().kind, LockKind::SetNx);
    assert_eq!(client.find("nothing").await.unwrap(), None);
}

async fn own_478_a_name_whose_key_is_there_is_not_found_to_be_free(flavour: Flavour) {
    let server = Server::start(flavour);
    let client = connect(server.url()).await;
    let long = "x".repeat(100);
    for token in ["", "some token", &long, &"x".repeat(100_000)] {
        server.cli(&["SET", "theirs", token, "PX", "30000"]);
        let theirs = client.find("theirs").await.unwrap().unwrap();
        assert_eq!((theirs.kind, theirs.holder.owner), (LockKind::SetNx, None), "{}", token.len());
        assert!(theirs.holder.remaining <= SECOND * 30);
    }
    let transaction = format!("HSET transaction {REDISSON}:5b2c 1");
    let no_count = format!("HSET owner {REDISSON} Ann");
    for command in [
        &*transaction,
        &no_count,
        "SET number 5",
        "RPUSH list a",
        "ZADD sorted 1 a",
        "HSET user name Ann mode dark",
        "HSET one name Ann",
    ] {
        let words: Vec<_> = command.split(' ').collect();
        server.cli(&words);
        let found = client.find(words[1]).await;
        assert!(matches!(found, Err(QueryError::Server { cause: ServerError::NotALock, .. })), "{found:?}");
    }
    assert!(listed(&server, "*").await.is_empty());
}

async fn own_479_each_request_of_a_listing_is_counted(flavour: Flavour) {
    let server = Server::start(flavour);
    let client = connect(server.url()).await;
    take_as_redisson(&server, "theirs", SECOND * 60);
    server.cli(&["SET", "string", "value"]);
    let look = async || {
        assert_eq!(client.list("*").setnx().await.unwrap().locks.len(), 1);
        for (name, is_held) in [("theirs", true), ("string", true), ("nothing", false)] {
            assert_eq!(client.find(name).await.unwrap().is_some(), is_held, "{name}");
        }
    };
    // The server learns the scripts.
    look().await;
    let mut monitor = server.monitor();
    let before = client.stats().requests;
    look().await;
    let counted = client.stats().requests - before;
    let mut sent = monitor.take_sent();
    let commands = ["SCAN", "HLEN", "HKEYS", "GETRANGE", "EVALSHA", "GET"];
    sent.retain(|line| commands.iter().any(|command| line.starts_with(&format!("\"{command}\""))));
    assert_eq!(counted, sent.len() as u64, "{sent:?}");
}

/// Keys of other programs, with values.
fn fill(server: &Server, keys: usize) {
    let script = "for n = ARGV[1], ARGV[1] + 9999 do \
                  if n % 10 == 0 then redis.call('hset', KEYS[1] .. n, 'name', 'Ann') \
                  else redis.call('set', KEYS[1] .. n, 'some value') end end return 1";
    for from in (0..keys).step_by(10_000) {
        assert_eq!(server.cli(&["EVAL", script, "1", "foreign:", &from.to_string()]), 1);
    }
}

/// The calls of a command since its statistics were reset, and the microseconds that they took.
fn statistics(server: &Server, command: &str) -> (u64, u64) {
    let info = server.cli(&["INFO", "commandstats"]);
    let line = info
        .as_str()
        .unwrap()
        .lines()
        .find_map(|line| line.strip_prefix(&format!("cmdstat_{command}:")).map(str::to_owned));
    let Some(line) = line else { return (0, 0) };
    let field = |name: &str| {
        let value = line.split(',').find_map(|field| field.strip_prefix(name)?.strip_prefix('=')).unwrap();
        value.parse().unwrap()
    };
    (field("calls"), field("usec"))
}

/// `LEASEHOLD_LISTED_KEYS=1000000` is the whole measure: ten thousand locks beside a million other keys.
async fn own_457_a_listing_is_done_in_time_and_does_not_block_the_server(flavour: Flavour) {
    let _alone = alone().await;
    let keys = env::var("LEASEHOLD_LISTED_KEYS").map_or(200_000, |keys| keys.parse().unwrap());
    let server = Server::start(flavour);
    fill(&server, keys);
    let locks = keys / 100;
    for n in 0..locks {
        // One client has them all, each under an owner of its own.
        let owner = REDISSON.replace(":42", &format!(":{n}"));
        server.cli(&["HSET", &format!("stock:{n}"), &owner, "1"]);
    }
    let client = connect(server.url()).await;
    server.cli(&["CONFIG", "SET", "slowlog-log-slower-than", "1000", "slowlog-max-len", "100000"]);
    let mut least = Duration::MAX;
    // Of ten thousand requests.
    let mut slow = u64::MAX;
    // On a machine that takes processors away, one of several runs is measured.
    for _ in 0..5 {
        server.cli(&["SLOWLOG", "RESET"]);
        server.cli(&["CONFIG", "RESETSTAT"]);
        let begun = Instant::now();
        let listing = client.list("*").within(SECOND * 60).await.unwrap();
        least = least.min(begun.elapsed());
        assert_eq!((listing.locks.len(), listing.is_complete), (locks, true));
        let (scans, taken) = statistics(&server, "scan");
        // Of each request the number of keys is bounded, and no request is for all of them.
        assert!(scans >= (keys / 400) as u64, "{scans}");
        assert_eq!(statistics(&server, "keys"), (0, 0));
        assert!(taken / scans < 1000, "{scans} requests took {taken} microseconds");
        let requests =
            scans + ["hlen", "hkeys", "evalsha"].map(|name| statistics(&server, name).0).iter().sum::<u64>();
        let late = u64::try_from(number(&server.cli(&["SLOWLOG", "LEN"]))).unwrap();
        slow = slow.min(late * 10_000 / requests);
        if least < SECOND * 5 && slow < 100 {
            break;
        }
    }
    println!("{flavour:?}: {locks} locks beside {keys} keys within {least:?}, slow are {slow} of 10 000");
    assert!(least < SECOND * 5, "{least:?}");
    // The others were interrupted: no request is slow by itself.
    assert!(slow < 100, "{slow} of ten thousand requests took longer than a millisecond");
}

async fn own_458_large_keys_are_not_read(flavour: Flavour) {
    let server = Server::start(flavour);
    // One after the other: together they would take a server on a busy machine long.
    for script in [
        "for n = 1, 20 do redis.call('hset', 'values', n, string.rep('x', 200000)) end return 1",
        "for n = 1, 20000 do redis.call('hset', 'fields', n, n) end return 1",
        "redis.call('set', 'string', string.rep('x', 2000000)) return 1",
        "redis.call('set', 'like a lock', ARGV[1] .. string.rep(' ', 2000000)) return 1",
        "for n = 1, 5000 do redis.call('hset', 'readers', (string.gsub(ARGV[1], ':42', ':' .. n)), 1) end return 1",
        "return redis.call('hset', 'readers', 'mode', 'read')",
    ] {
        assert_eq!(server.cli(&["EVAL", script, "0", REDISSON]), 1);
    }
    let hold = format!("{{readers}}:{}:rwlock_timeout:1", REDISSON.replace(":42", ":7"));
    server.cli(&["SET", &hold, "1", "PX", "60000"]);
    let client = connect(server.url()).await;
    let sent = || {
        let info = server.cli(&["INFO", "stats"]);
        let line =
            info.as_str().unwrap().lines().find_map(|line| line.strip_prefix("total_net_output_bytes:"));
        line.unwrap().trim().parse::<u64>().unwrap()
    };
    let before = sent();
    let listing = client.list("*").setnx().await.unwrap();
    let names: Vec<_> =
        listing.locks.iter().map(|lock| (lock.name.as_str(), lock.kind, lock.holders)).collect();
    assert_eq!(names, [("readers", LockKind::Read, 5000)]);
    for name in ["values", "fields"] {
        client.find(name).await.expect_err(name);
    }
    for name in ["string", "like a lock"] {
        assert_eq!(client.find(name).await.unwrap().unwrap().holder.owner, None, "{name}");
    }
    let sent = sent() - before;
    assert!(sent < 100_000, "{sent} bytes");
}

async fn own_459_a_listing_that_ends_early_is_not_complete(flavour: Flavour) {
    let server = Server::start(flavour);
    let client = connect(server.url()).await;
    for n in 0..2000 {
        take_as_redisson(&server, &format!("stock:{n}"), SECOND * 60);
    }
    let some = client.list("*").limit(10).await.unwrap();
    assert_eq!((some.locks.len(), some.is_complete), (10, false));
    let none = client.list("*").within(Duration::ZERO).await.unwrap();
    assert!(!none.is_complete && none.locks.len() < 2000, "{}", none.locks.len());
    let all = client.list("*").limit(2000).await.unwrap();
    assert_eq!((all.locks.len(), all.is_complete), (2000, true));
}
