//! Certificates that are replaced while servers and clients run.

use std::fs;

use leasehold::Client;
use leasehold_testkit::certificates::Identity;
use leasehold_testkit::proxy::{Proxy, Which};

use super::Secure;
use crate::{SECOND, acquired, granted, keys, soon, until, waiting};

const CHANNEL: &str = "redisson_lock__channel:{n}";

fn set_certificate(secure: &Secure, Identity { cert, key }: &Identity) {
    let [cert, key] = [cert, key].map(|path| path.display().to_string());
    let words = ["CONFIG", "SET", "tls-cert-file", &cert, "tls-key-file", &key];
    assert_eq!(secure.server.cli(&words), "OK");
}

/// The text of the outage, once there is one with this in it.
async fn outage(client: &Client, part: &str) {
    let mut text = String::new();
    let has_failed = async {
        while !text.contains(part) {
            if let Err(error) = client.lock("m").is_locked().await {
                assert!(error.is_unavailable(), "{error:?}");
                text = error.to_string();
            }
            tokio::time::sleep(SECOND / 100).await;
        }
    };
    soon(part, has_failed).await;
}

#[tokio::test]
async fn own_294_a_new_certificate_of_the_server_is_accepted_at_the_next_connect() {
    let secure = Secure::start();
    let proxy = Proxy::start_opaque(secure.server.port());
    let client = Client::connect(secure.url_at(proxy.port())).await.unwrap();
    let guard = client.lock("n").acquire().await.unwrap();
    set_certificate(&secure, &secure.certificates.server());
    assert!(client.lock("n").is_locked().await.unwrap(), "connections that live go on");
    proxy.cut(Which::All);
    acquired(&client.lock("m")).await.release().await.unwrap();
    assert!(guard.is_held());
    guard.release().await.unwrap();
    assert_eq!(keys(&secure.server), [""; 0]);
}

/// The server is ahead of its clients: holds and waiters ride through that.
#[tokio::test]
async fn own_296_a_new_ca_of_the_server_is_an_outage_until_the_file_of_the_client_has_it() {
    let secure = Secure::start();
    let proxy = Proxy::start_opaque(secure.server.port());
    let client = Client::connect(secure.url_at(proxy.port())).await.unwrap();
    let (lock, other) = (client.lock("n"), secure.client().await);
    let (held, kept) = (other.lock("n").acquire().await.unwrap(), client.lock("k").acquire().await.unwrap());
    let waiter = waiting(&secure.server, &lock, CHANNEL).await;
    set_certificate(&secure, &secure.certificates.foreign());
    proxy.cut(Which::All);
    outage(&client, "signed by no CA that is trusted here").await;
    assert!(kept.is_held() && !waiter.is_finished());
    fs::copy(secure.certificates.other_ca(), secure.certificates.ca()).unwrap();
    acquired(&client.lock("m")).await.release().await.unwrap();
    held.release().await.unwrap();
    granted(waiter).await.release().await.unwrap();
    kept.release().await.unwrap();
    until("nothing is left", || keys(&secure.server).is_empty()).await;
}

#[tokio::test]
async fn own_295_a_new_client_certificate_is_taken_at_the_next_connect() {
    let secure = Secure::mutual();
    let proxy = Proxy::start_opaque(secure.server.port());
    let identity = secure.certificates.client();
    let client = Client::connect(secure.url_as(proxy.port(), &identity)).await.unwrap();
    let guard = client.lock("n").acquire().await.unwrap();
    identity.replace_by(&secure.certificates.foreign());
    assert!(client.lock("n").is_locked().await.unwrap(), "connections that live go on");
    proxy.cut(Which::All);
    outage(&client, "does not accept the client certificate").await;
    identity.replace_by(&secure.certificates.client());
    acquired(&client.lock("m")).await.release().await.unwrap();
    assert!(guard.is_held());
    guard.release().await.unwrap();
    assert_eq!(keys(&secure.server), [""; 0]);
}
