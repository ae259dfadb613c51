//! Why TLS failed, and what to do about it.
//!
//! Certificates are replaced while servers and clients run, and not on both sides in the same moment: a server may have a new
//! certificate before this client has the new CA, one that has expired is replaced a minute later, and a name is moved to the
//! server that has a certificate for it. Each connection verifies anew, so what is mended that way is an outage
//! ([`ServerError::Unavailable`]): holds live until their deadline, queued waiters ride through it, and every other caller gets
//! the error at once. A refusal ([`ServerError::Denied`]), which ends all waits, is what only another URL or another program can
//! mend.

use std::io;

use rustls::AlertDescription as Alert;
use rustls::{CertificateError, Error};

use crate::error::ServerError;

/// Why a handshake failed. `has_certificate`: this client has one.
pub(super) fn of_handshake(error: &Error, has_certificate: bool) -> ServerError {
    match error {
        Error::InvalidCertificate(error) => ServerError::Unavailable(of_certificate(error)),
        Error::InvalidMessage(_) => ServerError::Denied(
            "what listens on that port speaks no TLS: check the port, or use the URL scheme without TLS"
                .into(),
        ),
        Error::PeerIncompatible(_) | Error::AlertReceived(Alert::ProtocolVersion) => {
            ServerError::Denied(format!("its TLS does not fit: TLS 1.2 or 1.3 is needed ({error})"))
        }
        Error::AlertReceived(alert) => of_alert(*alert, has_certificate),
        error => ServerError::Unavailable(format!("the TLS handshake failed: {error}")),
    }
}

/// Why a connection failed later. With TLS 1.3 the server checks the certificate of a client when the client has finished the
/// handshake already.
pub(super) fn of_connection(error: &Error, has_certificate: bool) -> ServerError {
    match error {
        Error::AlertReceived(alert) => of_alert(*alert, has_certificate),
        error => ServerError::Unavailable(format!("its TLS is broken: {error}")),
    }
}

/// What an alert of the server means. Most are about the certificate of this client.
fn of_alert(alert: Alert, has_certificate: bool) -> ServerError {
    match alert {
        Alert::CertificateRequired => missing_certificate(alert),
        // Servers in Go, in some versions.
        Alert::BadCertificate if !has_certificate => missing_certificate(alert),
        Alert::NoApplicationProtocol => ServerError::Denied(format!(
            "what listens on that port is another kind of server: check the port ({alert:?})"
        )),
        // TLS 1.2 has no alert of its own for a missing certificate.
        Alert::HandshakeFailure if !has_certificate => ServerError::Denied(format!(
            "it ended the TLS handshake: if it wants a client certificate, write cert=PATH&key=PATH in the URL; otherwise \
             there is no cipher that both have ({alert:?})"
        )),
        Alert::BadCertificate
        | Alert::UnsupportedCertificate
        | Alert::CertificateRevoked
        | Alert::CertificateExpired
        | Alert::CertificateUnknown
        | Alert::UnknownCA
        | Alert::AccessDenied
        | Alert::DecryptError
            if has_certificate =>
        {
            ServerError::Unavailable(format!(
                "it does not accept the client certificate (`cert` in the URL): check its dates, and its CA on the server \
                 ({alert:?})"
            ))
        }
        _ => ServerError::Unavailable(format!("it ended the TLS connection ({alert:?})")),
    }
}

fn missing_certificate(alert: Alert) -> ServerError {
    ServerError::Denied(format!(
        "it wants a client certificate: write cert=PATH&key=PATH in the URL ({alert:?})"
    ))
}

fn of_certificate(error: &CertificateError) -> String {
    match error {
        CertificateError::UnknownIssuer => {
            "its certificate is signed by no CA that is trusted here: write ca=PATH in the URL, with the file of its CA".into()
        }
        CertificateError::NotValidForNameContext { expected, presented } if presented.is_empty() => format!(
            "its certificate is for no name at all, so not for {}: give it a subjectAltName, or write verify=ca",
            expected.to_str()
        ),
        CertificateError::NotValidForNameContext { expected, presented } => {
            let presented: Vec<_> = presented.iter().map(|name| bare(name)).collect();
            let presented = presented.join(", ");
            format!(
                "its certificate is for {presented}, not for {}: connect by that name, or write server_name=NAME",
                expected.to_str()
            )
        }
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
            "its certificate has expired: replace it on the server, or check the clock of this machine".into()
        }
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            "its certificate is not valid yet: check the clock of this machine".into()
        }
        error => format!("its certificate is not accepted: {error}"),
    }
}

/// `name` of `DnsName("name")`, as the library below describes it.
fn bare(described: &str) -> &str {
    let inner = described.split_once('(').and_then(|(_, rest)| rest.strip_suffix(')'));
    inner.unwrap_or(described).trim_matches('"')
}

/// A handshake that the server has cut short.
pub(super) fn cut(error: Option<&io::Error>) -> ServerError {
    let text = "it closed the connection in the middle of the TLS handshake: is this a port without TLS?";
    ServerError::Unavailable(error.map_or_else(|| text.to_owned(), |error| format!("{text} ({error})")))
}

#[cfg(test)]
mod tests {
    use rustls::pki_types::ServerName;
    use rustls::{InvalidMessage, PeerIncompatible};

    use super::*;

    #[test]
    fn a_certificate_that_may_be_replaced_is_an_outage() {
        let name = |presented: &[&str]| CertificateError::NotValidForNameContext {
            expected: ServerName::try_from("redis.example").unwrap(),
            presented: presented.iter().map(ToString::to_string).collect(),
        };
        for (error, text) in [
            (CertificateError::UnknownIssuer, "write ca=PATH"),
            (name(&["DnsName(\"a\")", "b"]), "is for a, b, not for redis.example: connect by that name"),
            (name(&[]), "for no name at all, so not for redis.example"),
            (CertificateError::Expired, "has expired"),
            (CertificateError::NotValidYet, "not valid yet"),
            (CertificateError::BadSignature, "not accepted: "),
        ] {
            let failure = of_handshake(&Error::InvalidCertificate(error), false);
            let ServerError::Unavailable(shown) = &failure else { panic!("{failure:?}") };
            assert!(shown.contains(text), "{shown}");
        }
    }

    #[test]
    fn what_only_another_url_mends_is_a_refusal() {
        for (error, text) in [
            (Error::InvalidMessage(InvalidMessage::InvalidContentType), "speaks no TLS"),
            (Error::PeerIncompatible(PeerIncompatible::NoCipherSuitesInCommon), "does not fit"),
            (Error::AlertReceived(Alert::ProtocolVersion), "TLS 1.2 or 1.3"),
            (Error::AlertReceived(Alert::CertificateRequired), "wants a client certificate"),
            (Error::AlertReceived(Alert::BadCertificate), "wants a client certificate"),
            (Error::AlertReceived(Alert::NoApplicationProtocol), "another kind of server"),
            (Error::AlertReceived(Alert::HandshakeFailure), "if it wants a client certificate"),
        ] {
            let failure = of_handshake(&error, false);
            let ServerError::Denied(shown) = &failure else { panic!("{failure:?}") };
            assert!(shown.contains(text), "{shown}");
        }
    }

    #[test]
    fn an_alert_about_the_client_certificate_names_it() {
        for alert in [Alert::UnknownCA, Alert::CertificateExpired, Alert::CertificateRevoked] {
            let text = format!("check its dates, and its CA on the server ({alert:?})");
            let failure = of_connection(&Error::AlertReceived(alert), true);
            assert!(
                matches!(&failure, ServerError::Unavailable(shown) if shown.ends_with(&text)),
                "{failure:?}"
            );
        }
        let failure = of_connection(&Error::AlertReceived(Alert::InternalError), true);
        assert!(failure.to_string().ends_with("it ended the TLS connection (InternalError)"), "{failure}");
        assert!(of_connection(&Error::DecryptError, true).to_string().contains("its TLS is broken"));
    }
}
