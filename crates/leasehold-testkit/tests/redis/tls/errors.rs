//! Each mistake has an error of its own, within the connect time-out.

use leasehold::{Client, ConnectError, ServerError};
use leasehold_testkit::certificates::{Certificates, url};
use leasehold_testkit::server::{Flavour, Server};
use tokio::time::Instant;

use super::Secure;
use crate::SECOND;

/// The failure of a connection, which came within its time-out of two seconds.
async fn failure(url: String) -> ServerError {
    let begun = Instant::now();
    let error = Client::connect(url).await.expect_err("it cannot be connected");
    assert!(begun.elapsed() < SECOND * 4, "{:?}", begun.elapsed());
    let ConnectError::Server { cause, .. } = error else { panic!("{error:?}") };
    cause
}

/// The text of an outage.
async fn unavailable(url: String) -> String {
    match failure(url).await {
        ServerError::Unavailable(text) => text,
        other => panic!("{other:?}"),
    }
}

/// The text of a refusal.
async fn denied(url: String) -> String {
    match failure(url).await {
        ServerError::Denied(text) => text,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_certificate_of_an_unknown_ca() {
    let secure = Secure::with(Certificates::foreign);
    let text = unavailable(secure.url()).await;
    assert!(text.contains("signed by no CA that is trusted here") && text.contains("ca=PATH"), "{text}");
}

#[tokio::test]
async fn a_certificate_for_another_name() {
    let secure = Secure::with(Certificates::elsewhere);
    for host in ["127.0.0.1", "localhost"] {
        let text = unavailable(secure.url().replace("127.0.0.1", host)).await;
        assert!(text.contains("redis.example"), "{text}");
        assert!(text.contains(&format!("not for {host}: ")) && text.contains("server_name="), "{text}");
    }
    let nameless = Secure::with(Certificates::nameless);
    let text = unavailable(nameless.url()).await;
    assert!(text.contains("for no name at all") && text.contains("verify=ca"), "{text}");
}

#[tokio::test]
async fn an_expired_certificate() {
    let secure = Secure::with(Certificates::expired);
    let text = unavailable(secure.url()).await;
    assert!(text.contains("its certificate has expired"), "{text}");
}

#[tokio::test]
async fn a_missing_client_certificate() {
    for (version, expected) in [
        ("TLSv1.3", "it wants a client certificate: write cert=PATH&key=PATH"),
        ("TLSv1.2", "if it wants a client certificate, write cert=PATH&key=PATH"),
    ] {
        let secure = Secure::configured(Certificates::server, |builder| {
            builder.config("tls-auth-clients yes").config(format!("tls-protocols \"{version}\""))
        });
        let text = denied(secure.url()).await;
        assert!(text.contains(expected), "{version}: {text}");
    }
}

#[tokio::test]
async fn a_client_certificate_that_the_server_does_not_accept() {
    for version in ["TLSv1.3", "TLSv1.2"] {
        let secure = Secure::configured(Certificates::server, |builder| {
            builder.config("tls-auth-clients yes").config(format!("tls-protocols \"{version}\""))
        });
        let foreign = secure.certificates.foreign();
        let text = unavailable(secure.url_as(secure.server.port(), &foreign)).await;
        assert!(text.contains("does not accept the client certificate"), "{version}: {text}");
    }
}

#[tokio::test]
async fn a_server_without_tls() {
    let certificates = Certificates::new();
    for flavour in Flavour::ALL {
        let server = Server::start(flavour);
        let text = unavailable(url(server.port(), &[("ca", certificates.ca())])).await;
        assert!(
            text.contains("no TLS handshake within 2s: is this a port without TLS?"),
            "{flavour:?}: {text}"
        );
    }
}

#[tokio::test]
async fn a_url_without_tls_for_a_server_with_it() {
    let secure = Secure::start();
    let text = unavailable(format!("redis://127.0.0.1:{}", secure.server.port())).await;
    assert!(text.contains("if that port wants TLS, write rediss://"), "{text}");
}

#[tokio::test]
async fn another_kind_of_server() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let server = tokio::spawn(async move {
        let (client, _) = listener.accept().await.unwrap();
        client.readable().await.unwrap();
        assert!(client.try_write(b"HTTP/1.1 400 Bad Request\r\n\r\n").is_ok());
        client
    });
    let certificates = Certificates::new();
    let text = denied(url(port, &[("ca", certificates.ca())])).await;
    assert!(text.contains("speaks no TLS"), "{text}");
    drop(server.await);
}

#[tokio::test]
async fn a_server_that_closes_the_connection() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let server = tokio::spawn(async move { drop(listener.accept().await.unwrap()) });
    let certificates = Certificates::new();
    let text = unavailable(url(port, &[("ca", certificates.ca())])).await;
    assert!(text.contains("in the middle of the TLS handshake"), "{text}");
    server.await.unwrap();
}
