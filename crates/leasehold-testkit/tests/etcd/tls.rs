//! Clients with TLS.

use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use leasehold::{AcquireError, Client, ConnectError, Lock, ServerError, UrlError};
use leasehold_testkit::certificates::{Certificates, Identity};
use leasehold_testkit::proxy::{Proxy, Recording, Toward, Which};
use leasehold_testkit::server::Etcd;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use crate::{PATIENCE, client, until};

/// A server that only TLS reaches, and the certificates of its CA.
struct Secure {
    // Dropped before the files that it reads.
    server: Etcd,
    certificates: Certificates,
}

impl Secure {
    /// One with this certificate, which wants none of its clients.
    fn with(identity: impl FnOnce(&Certificates) -> Identity) -> Self {
        let certificates = Certificates::new();
        let files = certificates.of_server(&identity(&certificates));
        Self { server: Etcd::secured(&files, None), certificates }
    }

    /// One that wants certificates of its clients.
    fn mutual() -> Self {
        let certificates = Certificates::new();
        let files = certificates.of_server(&certificates.server());
        Self { server: Etcd::secured(&files, Some(&certificates.client_named("root"))), certificates }
    }
}

/// The URL with the certificate of a client.
fn identified(url: &str, Identity { cert, key }: &Identity) -> String {
    format!("{url}&cert={}&key={}", cert.display(), key.display())
}

/// The failure of a connection, which came within its time-out of two seconds.
async fn failure(url: impl Into<String>) -> ServerError {
    let begun = Instant::now();
    let error = Client::connect(url.into()).await.expect_err("it cannot be connected");
    assert!(begun.elapsed() < Duration::from_secs(4), "{:?}", begun.elapsed());
    let ConnectError::Server { cause, .. } = error else { panic!("{error:?}") };
    cause
}

/// The text of an outage.
async fn unavailable(url: impl Into<String>) -> String {
    match failure(url).await {
        ServerError::Unavailable(text) => text,
        other => panic!("{other:?}"),
    }
}

/// The text of a refusal.
async fn denied(url: impl Into<String>) -> String {
    match failure(url).await {
        ServerError::Denied(text) => text,
        other => panic!("{other:?}"),
    }
}

/// Waits until a request fails with this in the text of an outage.
async fn outage(client: &Client, part: &str) {
    let mut text = String::new();
    let has_failed = async {
        while !text.contains(part) {
            if let Err(error) = client.lock("m").is_locked().await {
                assert!(error.is_unavailable(), "{error:?}");
                text = error.to_string();
            }
            sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(PATIENCE, has_failed).await.expect(part);
}

#[tokio::test]
async fn own_570_with_tls_etcdctl_and_this_library_exclude_each_other() {
    let secure = Secure::with(Certificates::server);
    let server = &secure.server;
    let client = client(server).await;
    let lock = client.lock("n");
    let theirs = server.lock("n");
    assert!(lock.try_acquire().await.unwrap().is_none());
    let waiter = tokio::spawn(lock.acquire().into_future());
    until("the waiter is in the queue", || server.keys("n/").len() == 2).await;
    tokio::task::spawn_blocking(|| theirs.release()).await.unwrap();
    let guard = timeout(PATIENCE, waiter).await.unwrap().unwrap().unwrap();

    let mut next = server.etcdctl(&["lock", "n", "true"]).spawn().unwrap();
    until("etcdctl is in the queue", || server.keys("n/").len() == 2).await;
    assert!(next.try_wait().unwrap().is_none(), "it runs nothing while the lock is held");
    guard.release().await.unwrap();
    let ended = tokio::task::spawn_blocking(move || next.wait());
    assert!(timeout(PATIENCE, ended).await.unwrap().unwrap().unwrap().success());
    assert_eq!(server.keys("n/"), [""; 0]);
}

fn contains(Recording { from_client, from_server }: &Recording, text: &str) -> bool {
    [from_client, from_server]
        .iter()
        .any(|bytes| bytes.windows(text.len()).any(|window| window.eq_ignore_ascii_case(text.as_bytes())))
}

#[tokio::test]
async fn own_571_with_tls_neither_passwords_nor_names_pass_in_clear_text() {
    let secure = Secure::with(Certificates::server);
    for line in ["user add root:hunter2secret", "user grant-role root root", "auth enable"] {
        let _ = secure.server.ctl(&line.split(' ').collect::<Vec<_>>());
    }
    let proxy = Proxy::start_opaque(secure.server.port());
    let url = secure.server.url_at(proxy.port()).replace("etcds://", "etcds://root:hunter2secret@");
    let client = Client::connect(url).label("somelabel").await.unwrap();
    client.lock("somelock").acquire().await.unwrap().release().await.unwrap();
    drop(client);
    until("the connection ends", || proxy.open(Which::All) == 0).await;
    let [recording] = &proxy.recordings()[..] else { panic!("one connection") };
    assert!(recording.from_client.len() > 1000 && recording.from_server.len() > 1000);
    for text in ["hunter2", "root", "some", "leasehold", "etcdserverpb", "PRI * HTTP", "grpc"] {
        assert!(!contains(recording, text), "{text}");
    }
}

#[tokio::test]
async fn own_572_nothing_is_sent_to_a_member_whose_certificate_is_not_accepted() {
    let secure = Secure::with(Certificates::foreign);
    let proxy = Proxy::start_opaque(secure.server.port());
    let url = secure.server.url_at(proxy.port());
    let text = unavailable(url.replace("etcds://", "etcds://root:hunter2secret@")).await;
    assert!(text.contains("signed by no CA that is trusted here") && text.contains("ca=PATH"), "{text}");
    until("the connection ends", || proxy.open(Which::All) == 0).await;
    let [recording] = &proxy.recordings()[..] else { panic!("one connection") };
    assert!(recording.from_client.len() < 1000, "{}", recording.from_client.len());

    let unverified = format!("{url}&verify=none");
    let error = Client::connect(&unverified).await.unwrap_err();
    assert!(matches!(&error, ConnectError::Url(UrlError::Unverified)), "{error:?}");
    let client = Client::connect(&unverified).allow_unverified_tls().await.unwrap();
    client.lock("n").acquire().await.unwrap().release().await.unwrap();

    let expired = Secure::with(Certificates::expired);
    let text = unavailable(expired.server.url()).await;
    assert!(text.contains("its certificate has expired"), "{text}");
}

#[tokio::test]
async fn own_573_each_member_is_verified_for_its_own_host_unless_a_name_is_given() {
    let secure = Secure::with(|certificates| certificates.only_for("localhost"));
    let port = secure.server.port();
    let url = secure.server.url();
    let text = unavailable(url.clone()).await;
    assert!(text.contains("is for localhost, not for 127.0.0.1: "), "{text}");
    // The same server by both names: only one of them is in its certificate.
    let both = url.replace("etcds://", &format!("etcds://localhost:{port},"));
    let swapped = url.replace('?', &format!(",localhost:{port}?"));
    for url in [both, swapped, format!("{url}&server_name=localhost"), format!("{url}&verify=ca")] {
        let client = Client::connect(url).await.unwrap();
        client.lock("n").acquire().await.unwrap().release().await.unwrap();
    }
    let text = unavailable(url.replace('?', ",127.0.0.1:1?")).await;
    assert!(text.contains("127.0.0.1:1: "), "the member is named: {text}");
}

#[tokio::test]
async fn own_574_a_server_that_wants_a_client_certificate_gets_one_or_the_error_says_so() {
    let secure = Secure::mutual();
    let url = secure.server.url();
    let text = denied(url.clone()).await;
    assert!(text.contains("it wants a client certificate: write cert=PATH&key=PATH"), "{text}");
    let text = unavailable(identified(&url, &secure.certificates.foreign())).await;
    assert!(text.contains("does not accept the client certificate"), "{text}");
    let client = Client::connect(identified(&url, &secure.certificates.client())).await.unwrap();
    client.lock("n").acquire().await.unwrap().release().await.unwrap();
}

#[tokio::test]
async fn own_575_the_name_in_a_client_certificate_is_the_user() {
    let secure = Secure::mutual();
    let server = &secure.server;
    for line in [
        "user add --no-password root",
        "user grant-role root root",
        "user add --no-password client",
        "role add app",
        "role grant-permission app --prefix=true readwrite app/",
        "role grant-permission app --prefix=true readwrite _leasehold/",
        "user grant-role client app",
        "auth enable",
    ] {
        let _ = server.ctl(&line.split(' ').collect::<Vec<_>>());
    }
    let client = Client::connect(identified(&server.url(), &secure.certificates.client())).await.unwrap();
    let guard = client.lock("app/n").acquire().fenced().await.unwrap();
    assert_eq!(server.keys("app/n/").len(), 1);
    guard.release().await.unwrap();
    let refused = client.lock("other").acquire().await.unwrap_err();
    assert!(matches!(&refused, AcquireError::Server { cause: ServerError::Denied(_), .. }), "{refused}");
}

/// The server is ahead of its clients: holds and waiters outlast that.
#[tokio::test]
async fn own_576_a_new_ca_of_the_server_is_an_outage_until_the_file_of_the_client_has_it() {
    let certificates = Certificates::new();
    let identity = certificates.server();
    let secure = Secure { server: Etcd::secured(&certificates.of_server(&identity), None), certificates };
    let proxy = Proxy::start_opaque(secure.server.port());
    let client = Client::connect(secure.server.url_at(proxy.port())).await.unwrap();
    let other = crate::client(&secure.server).await;
    let (held, kept) = (other.lock("n").acquire().await.unwrap(), client.lock("k").acquire().await.unwrap());
    let waiter = tokio::spawn(client.lock("n").acquire().into_future());
    until("the waiter is in the queue", || secure.server.keys("n/").len() == 2).await;
    identity.replace_by(&secure.certificates.foreign());
    assert!(client.lock("n").is_locked().await.unwrap(), "connections that live go on");
    proxy.cut(Which::All);
    outage(&client, "signed by no CA that is trusted here").await;
    assert!(kept.is_held() && !waiter.is_finished());
    fs::copy(secure.certificates.other_ca(), secure.certificates.ca()).unwrap();
    until("it is connected again", || client.status().connected).await;
    held.release().await.unwrap();
    timeout(PATIENCE, waiter).await.unwrap().unwrap().unwrap().release().await.unwrap();
    assert!(kept.is_held());
    kept.release().await.unwrap();
}

#[tokio::test]
async fn own_577_a_new_client_certificate_is_taken_at_the_next_connect() {
    let secure = Secure::mutual();
    let proxy = Proxy::start_opaque(secure.server.port());
    let identity = secure.certificates.client();
    let url = identified(&secure.server.url_at(proxy.port()), &identity);
    let client = Client::connect(url).await.unwrap();
    let guard = client.lock("n").acquire().await.unwrap();
    identity.replace_by(&secure.certificates.foreign());
    assert!(client.lock("n").is_locked().await.unwrap(), "connections that live go on");
    proxy.cut(Which::All);
    outage(&client, "does not accept the client certificate").await;
    identity.replace_by(&secure.certificates.client());
    until("it is connected again", || client.status().connected).await;
    assert!(guard.is_held());
    guard.release().await.unwrap();
    assert_eq!(secure.server.keys("n/"), [""; 0]);
}

#[tokio::test]
async fn own_578_a_url_without_tls_for_a_server_with_it_and_the_other_way_round_is_told() {
    let secure = Secure::with(Certificates::server);
    for login in ["", "me:hunter2secret@"] {
        let text = unavailable(format!("etcd://{login}127.0.0.1:{}", secure.server.port())).await;
        assert!(text.contains("if that port wants TLS, write etcds:// in place of etcd://"), "{text}");
        assert!(!text.contains("hunter2"), "{text}");
    }
    let plain = Etcd::start();
    let text = unavailable(secure.server.url_at(plain.port())).await;
    assert!(text.contains("is this a port without TLS?"), "{text}");
}

/// A number without any other protection, raised until this ends, through connections that end inside of records.
async fn raise(lock: Lock, value: Arc<Mutex<u64>>, is_over: Arc<AtomicBool>) -> u64 {
    let mut turns = 0;
    while !is_over.load(Ordering::Relaxed) {
        match lock.acquire().await {
            Ok(guard) => {
                let seen = *value.lock().expect("no holder panics");
                sleep(Duration::from_millis(1)).await;
                *value.lock().expect("no holder panics") = seen + 1;
                assert!(guard.is_held());
                turns += 1;
            }
            Err(error) => assert!(error.is_unavailable(), "{error:?}"),
        }
    }
    turns
}

#[tokio::test]
async fn own_579_connections_cut_inside_a_record_lose_nothing() {
    let secure = Secure::with(Certificates::server);
    let proxy = Proxy::start_opaque(secure.server.port());
    let (value, is_over) = (Arc::<Mutex<u64>>::default(), Arc::<AtomicBool>::default());
    let mut tasks = JoinSet::new();
    for _ in 0..2 {
        let client = Client::connect(secure.server.url_at(proxy.port())).await.unwrap();
        for _ in 0..4 {
            tasks.spawn(raise(client.lock("n"), Arc::clone(&value), Arc::clone(&is_over)));
        }
    }
    for toward in [Toward::Client, Toward::Server].into_iter().cycle().take(10) {
        let (connections, turns) = (proxy.counts().connections, *value.lock().unwrap());
        let is_replaced = || {
            // The one before may have hit a connection that was not used any more.
            proxy.cut_inside(toward);
            proxy.counts().connections > connections
        };
        until("a connection is replaced", is_replaced).await;
        proxy.heal();
        until("it is used", || *value.lock().unwrap() > turns).await;
    }
    is_over.store(true, Ordering::Relaxed);
    let turns: u64 = timeout(PATIENCE, tasks.join_all()).await.expect("all turns").into_iter().sum();
    assert_eq!(*value.lock().unwrap(), turns);
    until("nothing is left", || secure.server.keys("n/").is_empty()).await;
}
