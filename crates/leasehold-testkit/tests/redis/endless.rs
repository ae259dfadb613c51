//! Replies that never end.

#![expect(clippy::unwrap_used, reason = "a failing test names its line")]

use std::io::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use leasehold::Client;

use crate::fake::{Fake, set_up};
use crate::{SECOND, soon, until};

/// More than any reply has, including socket buffers.
const MUCH: usize = 64 * 1024 * 1024;

/// A reply that begins with `begins` and continues with `goes_on`: the client reads some of it and closes the connection.
async fn is_cut(begins: &'static str, goes_on: &'static str) {
    let sent = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&sent);
    let fake = Fake::start(move |command, client| {
        if let Some(reply) = set_up(command, "standalone", "master") {
            return reply;
        }
        let piece = goes_on.repeat(64 * 1024 / goes_on.len());
        let _ = client.write_all(begins.as_bytes());
        while count.load(Ordering::SeqCst) < MUCH && client.write_all(piece.as_bytes()).is_ok() {
            count.fetch_add(piece.len(), Ordering::SeqCst);
        }
        Vec::new()
    });
    let url = format!("redis://127.0.0.1:{}", fake.port());
    let client = Client::connect(url).response_timeout(SECOND * 10).await.unwrap();
    let before = fake.connections();
    let asked = tokio::spawn(client.lock("n").is_locked().into_future());
    until("another connection", || fake.connections() > before || sent.load(Ordering::SeqCst) >= MUCH).await;
    let sent = sent.load(Ordering::SeqCst);
    assert!(sent < MUCH, "it takes everything: {sent} bytes of {begins:?}");
    assert!(soon("the question fails", asked).await.unwrap().is_err());
}

#[tokio::test]
async fn a_string_reply_that_is_too_long_is_rejected() {
    is_cut("$4000000000\r\n", "text").await;
}

#[tokio::test]
async fn an_array_reply_with_too_many_elements_is_rejected() {
    is_cut("*4000000000\r\n", "$10\r\n1234567890\r\n").await;
}

#[tokio::test]
async fn an_array_reply_with_too_many_bytes_is_rejected() {
    is_cut("*4000000\r\n", "$10\r\n1234567890\r\n").await;
}

#[tokio::test]
async fn a_line_reply_that_is_too_long_is_rejected() {
    is_cut("+", "line").await;
}

/// Single bytes do not count as a sign of life.
#[tokio::test]
async fn a_reply_that_arrives_byte_by_byte_ends_the_connection() {
    let fake = Fake::start(|command, client| {
        if let Some(reply) = set_up(command, "standalone", "master") {
            return reply;
        }
        while client.write_all(b"1").is_ok() {
            thread::sleep(Duration::from_millis(10));
        }
        Vec::new()
    });
    let url = format!("redis://127.0.0.1:{}", fake.port());
    let client = Client::connect(url).response_timeout(SECOND / 5).await.unwrap();
    let before = fake.connections();
    assert!(soon("the question fails", client.lock("n").is_locked().into_future()).await.is_err());
    until("another connection", || fake.connections() > before).await;
}

/// A long reply may take longer, as long as it keeps arriving.
#[tokio::test]
async fn a_long_reply_that_keeps_arriving_does_not_end_the_connection() {
    const WAITERS: usize = 20_000;
    let fake = Fake::start(|command, client| {
        if let Some(reply) = set_up(command, "standalone", "master") {
            return reply;
        }
        let owner = "$38\r\n71b96ce8-2746-4f0e-9d1a-0f0d5a3b8c11:7\r\n";
        let reply = format!("*{WAITERS}\r\n{}", owner.repeat(WAITERS));
        for part in reply.as_bytes().chunks(100_000) {
            let _ = client.write_all(part);
            thread::sleep(Duration::from_millis(50));
        }
        Vec::new()
    });
    let url = format!("redis://127.0.0.1:{}", fake.port());
    let client = Client::connect(&url).response_timeout(SECOND * 3 / 10).await.unwrap();
    let before = fake.connections();
    // The reply is incomplete at the time-out, and the caller gets an error.
    let late = soon("the question", client.fair_lock("n").queue().into_future()).await.unwrap_err();
    assert!(late.to_string().contains("no reply within 300ms"), "{late}");
    tokio::time::sleep(SECOND * 3 / 5).await;
    assert_eq!(fake.connections(), before, "the connection is still the same");
    let patient = Client::connect(&url).response_timeout(SECOND * 5).await.unwrap();
    assert_eq!(patient.fair_lock("n").queue().await.unwrap().len(), WAITERS);
}
