//! The files of a URL with TLS, and client certificates.

use std::fs;

use leasehold::{Client, ConnectError, ServerError};
use leasehold_testkit::certificates::Identity;

use super::Secure;
use crate::connect;

#[tokio::test]
async fn a_client_certificate_is_presented() {
    let secure = Secure::mutual();
    let client = connect(secure.url_as(secure.server.port(), &secure.certificates.client())).await;
    client.lock("n").acquire().await.unwrap().release().await.unwrap();
}

/// All of them may be mended while a client runs.
#[tokio::test]
async fn a_file_that_cannot_be_used_is_named() {
    let secure = Secure::mutual();
    let certificates = &secure.certificates;
    let (client, other) = (certificates.client(), certificates.client());
    let (missing, empty, damaged) =
        (certificates.path("missing"), certificates.path("empty"), certificates.path("damaged"));
    fs::write(&empty, "no PEM at all").unwrap();
    let text = fs::read_to_string(&client.cert).unwrap();
    fs::write(&damaged, &text[..text.len() / 2]).unwrap();
    let ca = |path| format!("ca={}", fs::canonicalize(path).unwrap().display());
    let ours = ca(certificates.ca());
    let own = |cert: &std::path::Path, key: &std::path::Path| {
        format!("{ours}&cert={}&key={}", cert.display(), key.display())
    };
    let Identity { cert, key } = &client;
    for (options, file, what) in [
        (format!("ca={}", missing.display()), &missing, "(`ca` in the URL) cannot be read: "),
        (format!("ca={}", empty.display()), &empty, "(`ca` in the URL) has no certificate in PEM"),
        (format!("ca={}", key.display()), key, "(`ca` in the URL) has no certificate in PEM"),
        (format!("ca={}", damaged.display()), &damaged, "(`ca` in the URL) "),
        (own(&missing, key), &missing, "(`cert` in the URL) cannot be read: "),
        (own(&empty, key), &empty, "(`cert` in the URL) has no certificate in PEM"),
        (own(cert, &missing), &missing, "(`key` in the URL) cannot be read: "),
        (
            own(cert, &empty),
            &empty,
            "(`key` in the URL) has no private key in PEM in it, or an encrypted one",
        ),
        (own(cert, &other.key), &other.key, "(`key` in the URL) is not of the certificate in "),
    ] {
        let url = format!("rediss://127.0.0.1:{}?{options}", secure.server.port());
        let error = Client::connect(url).await.expect_err(what);
        let ConnectError::Server { cause: ServerError::Unavailable(text), .. } = &error else {
            panic!("{error:?}")
        };
        assert!(text.contains(&format!("the file {} {what}", file.display())), "{text}");
    }
}
