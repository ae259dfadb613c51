//! Connections with TLS: what works without it works with it, and what is wrong with a certificate is told.

mod errors;
mod faults;
mod files;
mod locks;
mod names;
mod recorded;
mod rotation;
mod sentinel;

use std::path::Path;

use leasehold::Client;
use leasehold_testkit::certificates::{Certificates, Identity, url};
use leasehold_testkit::server::{Builder, Flavour, Server};

use crate::connect;

/// A server with TLS, and the certificates of its CA.
struct Secure {
    server: Server,
    certificates: Certificates,
}

impl Secure {
    /// One with a certificate for this machine.
    fn start() -> Self {
        Self::configured(Certificates::server, |builder| builder)
    }

    /// One that wants certificates of its clients.
    fn mutual() -> Self {
        Self::configured(Certificates::server, |builder| builder.config("tls-auth-clients yes"))
    }

    /// One with another certificate.
    fn with(identity: impl FnOnce(&Certificates) -> Identity) -> Self {
        Self::configured(identity, |builder| builder)
    }

    /// Only Debian's Redis is built with TLS; the Valkey of the tests is not.
    fn configured(
        identity: impl FnOnce(&Certificates) -> Identity,
        configure: impl FnOnce(Builder) -> Builder,
    ) -> Self {
        let certificates = Certificates::new();
        let files = certificates.of_server(&identity(&certificates));
        let server = configure(Server::builder(Flavour::Redis)).tls(files).start();
        Self { server, certificates }
    }

    /// Its URL with its CA.
    fn url(&self) -> String {
        self.url_at(self.server.port())
    }

    /// The same by way of a proxy.
    fn url_at(&self, port: u16) -> String {
        url(port, &[("ca", self.certificates.ca())])
    }

    /// Its URL with its CA and the certificate of a client.
    fn url_as(&self, port: u16, Identity { cert, key }: &Identity) -> String {
        let options: [(&str, &Path); 3] = [("ca", self.certificates.ca()), ("cert", cert), ("key", key)];
        url(port, &options)
    }

    async fn client(&self) -> Client {
        connect(self.url()).await
    }
}
