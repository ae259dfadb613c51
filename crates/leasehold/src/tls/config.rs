//! How a connection is secured: the certificates that are trusted, and those of this client.

use std::path::Path;
use std::sync::Arc;

use rustls::client::Resumption;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, InconsistentKeys};

use super::options::{TlsOptions, Verify};
use super::roots;
use super::verifier::Lenient;
use crate::error::ServerError;

/// A connection to a host that has not sent anything yet. `protocol`: what it is for, if the server may listen for several.
pub(super) async fn begin(
    options: &TlsOptions,
    host: &str,
    protocol: Option<&[u8]>,
) -> Result<ClientConnection, ServerError> {
    let host = options.server_name.as_deref().unwrap_or(host);
    let name = ServerName::try_from(host.to_owned()).map_err(|_| {
        ServerError::Denied(format!(
            "`{host}` is neither a host name nor an IP address, so no certificate is for it: write server_name=NAME"
        ))
    })?;
    let mut config = config(options).await?;
    config.alpn_protocols = protocol.into_iter().map(Into::into).collect();
    ClientConnection::new(Arc::new(config), name).map_err(|error| unusable(&error))
}

async fn config(options: &TlsOptions) -> Result<ClientConfig, ServerError> {
    let provider = provider();
    let algorithms = provider.signature_verification_algorithms;
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| unusable(&error))?;
    let builder = match options.verify {
        Verify::Full => builder.with_root_certificates(roots::of(options).await?),
        Verify::Ca => {
            let verifier = Lenient::any_name(roots::of(options).await?, algorithms);
            builder.dangerous().with_custom_certificate_verifier(Arc::new(verifier))
        }
        Verify::None => {
            let verifier = Lenient::any_certificate(algorithms);
            builder.dangerous().with_custom_certificate_verifier(Arc::new(verifier))
        }
    };
    let mut config = match (&options.cert, &options.key) {
        (Some(cert), Some(key)) => builder
            .with_client_auth_cert(certificates("cert", cert)?, private_key(key)?)
            .map_err(|error| unfit(&error, cert, key))?,
        _ => builder.with_no_client_auth(),
    };
    // A resumed session would have the certificates of an earlier one.
    config.resumption = Resumption::disabled();
    Ok(config)
}

/// The cryptography of the process, if the program has chosen it, otherwise our own.
fn provider() -> Arc<CryptoProvider> {
    CryptoProvider::get_default()
        .cloned()
        .unwrap_or_else(|| Arc::new(rustls::crypto::ring::default_provider()))
}

/// The certificates in the file of an option.
pub(super) fn certificates(option: &str, path: &Path) -> Result<Vec<CertificateDer<'static>>, ServerError> {
    let bytes = read(option, path)?;
    let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&bytes).collect();
    match certificates {
        Ok(certificates) if !certificates.is_empty() => Ok(certificates),
        Ok(_) => Err(of_file(option, path, "has no certificate in PEM in it")),
        Err(error) => Err(of_file(option, path, format_args!("is damaged: {error}"))),
    }
}

fn private_key(path: &Path) -> Result<PrivateKeyDer<'static>, ServerError> {
    let bytes = read("key", path)?;
    PrivateKeyDer::from_pem_slice(&bytes).map_err(|error| match error {
        rustls::pki_types::pem::Error::NoItemsFound => {
            of_file("key", path, "has no private key in PEM in it, or an encrypted one")
        }
        error => of_file("key", path, format_args!("is damaged: {error}")),
    })
}

fn read(option: &str, path: &Path) -> Result<Vec<u8>, ServerError> {
    std::fs::read(path).map_err(|error| of_file(option, path, format_args!("cannot be read: {error}")))
}

/// The files may be in the middle of being replaced, and the next connection reads them again: an outage.
pub(super) fn of_file(option: &str, path: &Path, what: impl std::fmt::Display) -> ServerError {
    ServerError::Unavailable(format!("the file {} (`{option}` in the URL) {what}", path.display()))
}

/// Why a certificate and a key cannot be used. They are two files, so for a moment one of them may be older than the other.
fn unfit(error: &rustls::Error, cert: &Path, key: &Path) -> ServerError {
    if let rustls::Error::InconsistentKeys(InconsistentKeys::KeyMismatch) = error {
        let text = format_args!("is not of the certificate in {}", cert.display());
        return of_file("key", key, text);
    }
    of_file("key", key, format_args!("cannot be used with the certificate in {}: {error}", cert.display()))
}

/// What another program alone can mend.
fn unusable(error: &rustls::Error) -> ServerError {
    ServerError::Denied(format!("this program cannot use TLS: {error}"))
}
