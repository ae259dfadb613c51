//! The names for which a certificate is checked.

use leasehold::{Client, ConnectError, UrlError};
use leasehold_testkit::certificates::{Certificates, url};

use super::Secure;
use crate::connect;

#[tokio::test]
async fn own_292_a_certificate_is_checked_for_the_host_of_the_url() {
    let secure = Secure::start();
    for host in ["127.0.0.1", "localhost"] {
        connect(secure.url().replace("127.0.0.1", host)).await;
    }
}

#[tokio::test]
async fn the_name_to_check_can_be_another_one() {
    let secure = Secure::with(Certificates::elsewhere);
    for scheme in ["rediss", "valkeys", "redis+tls"] {
        let url = format!("{}&server_name=redis.example", secure.url());
        connect(url.replace("rediss", scheme)).await;
    }
    let error = Client::connect(format!("{}&server_name=other.example", secure.url())).await.unwrap_err();
    assert!(error.to_string().contains("not for other.example"), "{error}");
    let error = Client::connect(format!("{}&server_name=a%20b", secure.url())).await.unwrap_err();
    assert!(error.to_string().contains("`a b` is neither a host name nor an IP address"), "{error}");
}

#[tokio::test]
async fn any_name_will_do_with_verify_ca() {
    for identity in [Certificates::elsewhere, Certificates::nameless] {
        let secure = Secure::with(identity);
        connect(format!("{}&verify=ca", secure.url())).await;
        let port = secure.server.port();
        let other = url(port, &[("ca", secure.certificates.other_ca())]);
        let error = Client::connect(format!("{other}&verify=ca")).await.unwrap_err();
        assert!(error.to_string().contains("write ca=PATH"), "{error}");
    }
    let secure = Secure::with(Certificates::expired);
    let error = Client::connect(format!("{}&verify=ca", secure.url())).await.unwrap_err();
    assert!(error.to_string().contains("has expired"), "{error}");
}

#[tokio::test]
async fn own_293_a_server_is_not_verified_only_if_url_and_program_say_so() {
    for identity in [Certificates::expired, Certificates::foreign, Certificates::nameless] {
        let secure = Secure::with(identity);
        let unverified = format!("{}&verify=none", secure.url());
        let error = Client::connect(&unverified).await.unwrap_err();
        assert!(matches!(&error, ConnectError::Url(UrlError::Unverified)), "{error:?}");
        assert!(error.to_string().contains("allow_unverified_tls"), "{error}");
        let client = Client::connect(&unverified).allow_unverified_tls().await.unwrap();
        client.lock("n").acquire().await.unwrap().release().await.unwrap();
        // The call alone changes nothing.
        Client::connect(secure.url()).allow_unverified_tls().await.unwrap_err();
    }
}
