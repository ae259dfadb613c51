//! The primary that sentinels name, both by TLS.

use leasehold::Client;
use leasehold_testkit::certificates::Certificates;
use leasehold_testkit::server::{Flavour, Server};
use leasehold_testkit::watched::NAME;

use super::Secure;
use crate::{connect, keys};

fn sentinel(secure: &Secure) -> Server {
    let files = secure.certificates.of_server(&secure.certificates.server());
    let monitor = format!("sentinel monitor {NAME} 127.0.0.1 {} 1", secure.server.port());
    // By TLS, as replicas do.
    Server::builder(Flavour::Redis)
        .sentinel()
        .tls(files)
        .config("tls-replication yes")
        .config(monitor)
        .start()
}

fn url(secure: &Secure, sentinel: &Server) -> String {
    let ca = secure.certificates.ca().display();
    format!("rediss+sentinel://127.0.0.1:{}/{NAME}?ca={ca}", sentinel.port())
}

#[tokio::test]
async fn sentinels_and_their_primary_are_connected_to_by_tls() {
    let secure = Secure::start();
    let sentinel = sentinel(&secure);
    let client = connect(url(&secure, &sentinel)).await;
    client.lock("n").acquire().await.unwrap().release().await.unwrap();
    assert_eq!(keys(&secure.server), [""; 0]);
}

#[tokio::test]
async fn the_certificate_of_the_primary_is_checked_for_its_announced_address() {
    let secure = Secure::with(Certificates::elsewhere);
    let sentinel = sentinel(&secure);
    let url = url(&secure, &sentinel);
    let error = Client::connect(&url).await.unwrap_err();
    assert!(error.to_string().contains("not for 127.0.0.1: "), "{error}");
    let url = format!("{url}&server_name=redis.example&sentinel_server_name=localhost");
    connect(url).await.lock("n").acquire().await.unwrap().release().await.unwrap();
}

#[tokio::test]
async fn sentinels_may_have_other_certificates_than_the_primary() {
    let secure = Secure::with(Certificates::foreign);
    let sentinel = sentinel(&secure);
    let (ca, other) = (secure.certificates.ca().display(), secure.certificates.other_ca().display());
    let url = |options: String| format!("rediss+sentinel://127.0.0.1:{}/{NAME}?{options}", sentinel.port());
    connect(url(format!("ca={other}&sentinel_ca={ca}"))).await;
    let error = Client::connect(url(format!("ca={other}"))).await.unwrap_err();
    assert!(error.to_string().contains("write ca=PATH"), "{error}");
}
