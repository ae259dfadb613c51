//! A program that has chosen the cryptography of its process. Alone in its file, because that is one choice for the process.

use leasehold::Client;
use leasehold_testkit::certificates::{Certificates, url};
use leasehold_testkit::proxy::Proxy;
use leasehold_testkit::server::{Flavour, Server};
use rustls::CipherSuite;
use rustls::crypto::{CryptoProvider, ring};

/// The ciphers that a client offers in the first message of a handshake.
fn offered(hello: &[u8]) -> Vec<u16> {
    // The headers of the record and of the message, the version, and a random number; then an id with its length.
    let rest = &hello[5 + 4 + 2 + 32..];
    let rest = &rest[1 + usize::from(rest[0])..];
    let length = usize::from(u16::from_be_bytes([rest[0], rest[1]]));
    rest[2..2 + length].as_chunks().0.iter().map(|pair| u16::from_be_bytes(*pair)).collect()
}

#[tokio::test]
async fn the_cryptography_of_the_process_is_used() {
    let one = ring::cipher_suite::TLS13_CHACHA20_POLY1305_SHA256;
    let provider = CryptoProvider { cipher_suites: vec![one], ..ring::default_provider() };
    provider.install_default().unwrap();

    let certificates = Certificates::new();
    let files = certificates.of_server(&certificates.server());
    let server = Server::builder(Flavour::Redis).tls(files).start();
    let proxy = Proxy::start_opaque(server.port());
    let client = Client::connect(url(proxy.port(), &[("ca", certificates.ca())])).await.unwrap();
    client.lock("n").acquire().await.unwrap().release().await.unwrap();

    let mut ciphers = offered(&proxy.recordings()[0].from_client);
    // It is no cipher, but says that the client knows of an old attack.
    ciphers.retain(|cipher| *cipher != u16::from(CipherSuite::TLS_EMPTY_RENEGOTIATION_INFO_SCSV));
    assert_eq!(ciphers, [u16::from(CipherSuite::TLS13_CHACHA20_POLY1305_SHA256)]);
}
