//! The configuration of a server.

use std::path::PathBuf;

use super::{Flavour, Server};

/// A server that is not started yet.
#[derive(Clone, Debug)]
pub struct Builder {
    pub(super) flavour: Flavour,
    pub(super) lines: Vec<String>,
    pub(super) password: Option<String>,
    pub(super) mode: Mode,
    pub(super) tls: Option<TlsFiles>,
}

/// The files of a server with TLS, in PEM.
#[derive(Clone, Debug)]
pub struct TlsFiles {
    /// Its certificate.
    pub cert: PathBuf,
    /// The key of that.
    pub key: PathBuf,
    /// The CA of the certificates of clients.
    pub ca: PathBuf,
}

/// What a server is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    Data,
    /// It watches others, and keeps what it knows of them in its configuration.
    Sentinel,
}

impl Builder {
    pub(super) fn new(flavour: Flavour) -> Self {
        Self { flavour, lines: Vec::new(), password: None, mode: Mode::Data, tls: None }
    }

    /// Makes it a sentinel, which watches the primary that the configuration names. It remembers what it knows across a
    /// restart.
    #[must_use]
    pub fn sentinel(mut self) -> Self {
        self.mode = Mode::Sentinel;
        self
    }

    /// Adds a line to the configuration, such as `maxmemory 2mb` or `user ann on >secret ~* +@all`.
    ///
    /// Of lines with the same option, the last counts. The log must stay as verbose as it is by default.
    #[must_use]
    pub fn config(mut self, line: impl Into<String>) -> Self {
        self.lines.push(line.into());
        self
    }

    /// Writes every change to disk before its reply is sent, so that it survives a restart.
    #[must_use]
    pub fn persistent(self) -> Self {
        self.config("appendonly yes").config("appendfsync always")
    }

    /// Requires this password of all clients; the server's own methods use it.
    ///
    /// # Panics
    ///
    /// When it has other characters than letters and digits, which a URL would have to escape.
    #[must_use]
    pub fn password(mut self, password: &str) -> Self {
        assert!(password.chars().all(|c| c.is_ascii_alphanumeric()), "a URL would have to escape {password}");
        self.password = Some(password.into());
        self
    }

    /// Listens with TLS and in no other way, but for its Unix socket, which the server's own methods use. It wants no
    /// certificate of its clients, unless the configuration has `tls-auth-clients yes`.
    #[must_use]
    pub fn tls(mut self, files: TlsFiles) -> Self {
        self.tls = Some(files);
        self
    }

    /// Starts the server and waits until it replies.
    ///
    /// # Panics
    ///
    /// When the server is not installed, was built without TLS, or does not accept its configuration.
    #[must_use]
    pub fn start(self) -> Server {
        Server::configured(self)
    }
}
