//! What passes between a client and a server, as a machine in between sees it.

use leasehold::Client;
use leasehold_testkit::certificates::Certificates;
use leasehold_testkit::proxy::{Proxy, Recording, Which};

use super::Secure;
use crate::{SECOND, granted, until};

/// The kinds of the records, and the first byte of the first one's content.
fn records(mut bytes: &[u8]) -> (Vec<u8>, Option<u8>) {
    let (mut kinds, first) = (Vec::new(), bytes.get(5).copied());
    while let [kind, 3, 1 | 3, high, low, rest @ ..] = bytes {
        kinds.push(*kind);
        let length = usize::from(u16::from_be_bytes([*high, *low]));
        bytes = rest.get(length..).unwrap_or_default();
    }
    assert_eq!(bytes, [0_u8; 0], "something that is no record, after {kinds:?}");
    (kinds, first)
}

/// The kinds of records.
const CHANGE_CIPHER: u8 = 20;
const ALERT: u8 = 21;
const HANDSHAKE: u8 = 22;
const DATA: u8 = 23;
/// The message of a handshake that begins it.
const CLIENT_HELLO: u8 = 1;

fn contains(Recording { from_client, from_server }: &Recording, text: &str) -> bool {
    [from_client, from_server]
        .iter()
        .any(|bytes| bytes.windows(text.len()).any(|window| window.eq_ignore_ascii_case(text.as_bytes())))
}

#[tokio::test]
async fn own_291_nothing_is_sent_in_clear_text() {
    let secure = Secure::start();
    assert_eq!(secure.server.cli(&["CONFIG", "SET", "requirepass", "hunter2secret"]), "OK");
    let proxy = Proxy::start_opaque(secure.server.port());
    let url = secure.url_at(proxy.port()).replace("rediss://", "rediss://:hunter2secret@");
    let client = Client::connect(url).label("somelabel").await.unwrap();
    let guard = client.lock("somelock").acquire().await.unwrap();
    let waiter = tokio::spawn(client.lock("somelock").acquire().into_future());
    until("a connection for messages", || proxy.open(Which::All) == 2).await;
    guard.release().await.unwrap();
    granted(waiter).await.release().await.unwrap();
    drop(client);
    until("both connections end", || proxy.open(Which::All) == 0).await;

    let recordings = proxy.recordings();
    assert_eq!(recordings.len(), 2);
    for recording in &recordings {
        let (kinds, first) = records(&recording.from_client);
        assert_eq!((kinds[0], first), (HANDSHAKE, Some(CLIENT_HELLO)), "{kinds:?}");
        let kinds: Vec<_> = kinds[1..].iter().filter(|kind| **kind != CHANGE_CIPHER).collect();
        assert!(kinds.len() > 3 && kinds.iter().all(|kind| **kind == DATA), "{kinds:?}");
        records(&recording.from_server);
        for text in ["HELLO", "hunter2", "EVAL", "SUBSCRIBE", "CLIENT", "leasehold", "some", "redis"] {
            assert!(!contains(recording, text), "{text}");
        }
    }
}

#[tokio::test]
async fn nothing_but_the_first_message_is_sent_before_the_server_has_replied() {
    let secure = Secure::start();
    let proxy = Proxy::start_opaque(secure.server.port());
    proxy.hold_replies(Which::All);
    let url = secure.url_at(proxy.port()).replace("rediss://", "rediss://:hunter2secret@");
    Client::connect(url).connect_timeout(SECOND / 2).await.unwrap_err();
    let [recording] = &proxy.recordings()[..] else { panic!("one connection") };
    assert_eq!(records(&recording.from_client), (vec![HANDSHAKE], Some(CLIENT_HELLO)));
    assert!(!recording.from_server.is_empty(), "it was held");
}

/// Its certificate is only seen after the first reply.
#[tokio::test]
async fn own_290_nothing_is_sent_to_a_server_that_is_not_verified() {
    let secure = Secure::with(Certificates::foreign);
    let proxy = Proxy::start_opaque(secure.server.port());
    let url = secure.url_at(proxy.port()).replace("rediss://", "rediss://:hunter2secret@");
    Client::connect(url).await.unwrap_err();
    until("the connection ends", || proxy.open(Which::All) == 0).await;
    let [recording] = &proxy.recordings()[..] else { panic!("one connection") };
    let (kinds, _) = records(&recording.from_client);
    let mut data = kinds.iter().filter(|kind| **kind == DATA);
    assert!(data.nth(1).is_none(), "an alert at the most: {kinds:?}");
    assert!(recording.from_client.len() < 1000, "{}", recording.from_client.len());
}

/// The server hears that a connection was meant to end. TLS 1.2 shows the kinds of encrypted records.
#[tokio::test]
async fn a_connection_ends_with_a_goodbye() {
    let secure = Secure::configured(Certificates::server, |builder| builder.config("tls-protocols TLSv1.2"));
    let proxy = Proxy::start_opaque(secure.server.port());
    let client = Client::connect(secure.url_at(proxy.port())).await.unwrap();
    client.lock("somelock").acquire().await.unwrap().release().await.unwrap();
    drop(client);
    until("the connection ends", || proxy.open(Which::All) == 0).await;
    let [recording] = &proxy.recordings()[..] else { panic!("one connection") };
    let (kinds, _) = records(&recording.from_client);
    assert_eq!(kinds.iter().position(|kind| *kind == ALERT), Some(kinds.len() - 1), "{kinds:?}");
}
