//! Certificates for servers with TLS and their clients, made for one test.

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::{fs, process};

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    date_time_ymd,
};

use crate::server::TlsFiles;

/// Two CAs, and a directory of files that is removed with this. Each method that makes a certificate makes another one.
#[derive(Debug)]
pub struct Certificates {
    directory: PathBuf,
    ca: Authority,
    other: Authority,
}

#[derive(Debug)]
struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
    path: PathBuf,
}

/// A certificate and its key, in two files.
#[derive(Clone, Debug)]
pub struct Identity {
    /// The file of the certificate.
    pub cert: PathBuf,
    /// The file of the key.
    pub key: PathBuf,
}

impl Certificates {
    /// Makes both CAs.
    ///
    /// # Panics
    ///
    /// When there is no directory for them.
    #[must_use]
    #[expect(clippy::new_without_default, reason = "every one is another directory")]
    pub fn new() -> Self {
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let directory = std::env::temp_dir().join(format!("leasehold-tls-{}-{number}", process::id()));
        fs::create_dir_all(&directory).expect("a directory can be made");
        let [ca, other] = ["ca", "other-ca"].map(|name| Authority::new(name, &directory));
        Self { directory, ca, other }
    }

    /// The file of the CA of all certificates but one.
    #[must_use]
    pub fn ca(&self) -> &Path {
        &self.ca.path
    }

    /// The file of the CA of [`foreign`](Self::foreign).
    #[must_use]
    pub fn other_ca(&self) -> &Path {
        &self.other.path
    }

    /// A file of this name in the directory, which need not exist.
    #[must_use]
    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    /// For servers: `localhost` and `127.0.0.1`.
    #[must_use]
    pub fn server(&self) -> Identity {
        self.ca.issue("server", &HERE, |_| {})
    }

    /// For a server of this name alone.
    #[must_use]
    pub fn only_for(&self, host: &str) -> Identity {
        self.ca.issue("only", &[host], |_| {})
    }

    /// For clients; the name in it is `client`.
    #[must_use]
    pub fn client(&self) -> Identity {
        self.client_named("client")
    }

    /// The same with this name, for a server that takes the name for a user.
    #[must_use]
    pub fn client_named(&self, name: &str) -> Identity {
        self.ca.issue(name, &[], |params| {
            params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        })
    }

    /// For a server of another name, `redis.example`.
    #[must_use]
    pub fn elsewhere(&self) -> Identity {
        self.only_for("redis.example")
    }

    /// For servers and without any name.
    #[must_use]
    pub fn nameless(&self) -> Identity {
        self.ca.issue("nameless", &[], |_| {})
    }

    /// For servers, and over.
    #[must_use]
    pub fn expired(&self) -> Identity {
        self.ca.issue("expired", &HERE, |params| {
            params.not_before = date_time_ymd(2020, 1, 1);
            params.not_after = date_time_ymd(2021, 1, 1);
        })
    }

    /// For servers and clients, of the other CA.
    #[must_use]
    pub fn foreign(&self) -> Identity {
        self.other.issue("foreign", &HERE, |_| {})
    }

    /// The files of a server with this identity, which accepts clients of the first CA.
    #[must_use]
    pub fn of_server(&self, identity: &Identity) -> TlsFiles {
        let Identity { cert, key } = identity.clone();
        TlsFiles { cert, key, ca: self.ca.path.clone() }
    }
}

/// Numbers directories and files.
static NUMBER: AtomicU64 = AtomicU64::new(0);

const HERE: [&str; 2] = ["localhost", "127.0.0.1"];

impl Authority {
    fn new(name: &str, directory: &Path) -> Self {
        let mut params = params(name, &[]);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().expect("a key can be made");
        let issuer = CertifiedIssuer::self_signed(params, key).expect("it can be signed");
        let path = directory.join(format!("{name}.pem"));
        fs::write(&path, issuer.pem()).expect("the directory can be written to");
        Self { issuer, path }
    }

    fn issue(&self, name: &str, hosts: &[&str], change: impl FnOnce(&mut CertificateParams)) -> Identity {
        let mut params = params(name, hosts);
        change(&mut params);
        let key = KeyPair::generate().expect("a key can be made");
        let certificate = params.signed_by(&key, &self.issuer).expect("it can be signed");
        let directory = self.path.parent().expect("the directory");
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let [cert, key_file] =
            ["cert", "key"].map(|kind| directory.join(format!("{name}-{number}-{kind}.pem")));
        fs::write(&cert, certificate.pem()).expect("the directory can be written to");
        fs::write(&key_file, key.serialize_pem()).expect("the directory can be written to");
        Identity { cert, key: key_file }
    }
}

fn params(name: &str, hosts: &[&str]) -> CertificateParams {
    let hosts: Vec<_> = hosts.iter().map(|host| (*host).to_owned()).collect();
    let mut params = CertificateParams::new(hosts).expect("the names are valid");
    params.distinguished_name.push(DnType::CommonName, name);
    params
}

impl Identity {
    /// Replaces the files of this one by those of another, one after the other.
    ///
    /// # Panics
    ///
    /// When the files cannot be written.
    pub fn replace_by(&self, other: &Self) {
        for (from, to) in [(&other.cert, &self.cert), (&other.key, &self.key)] {
            fs::copy(from, to).expect("the file can be written");
        }
    }
}

impl Drop for Certificates {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.directory);
    }
}

/// `rediss://127.0.0.1:PORT` with these options.
#[must_use]
pub fn url(port: u16, options: &[(&str, &Path)]) -> String {
    let options: Vec<_> = options.iter().map(|(key, path)| format!("{key}={}", path.display())).collect();
    format!("rediss://{}:{port}?{}", Ipv4Addr::LOCALHOST, options.join("&"))
}
