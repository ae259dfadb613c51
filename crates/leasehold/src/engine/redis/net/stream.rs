//! The socket of a connection.

use std::io;
use std::net::Shutdown;
use std::sync::atomic::AtomicBool;
#[cfg(feature = "tls")]
use std::sync::atomic::Ordering;

use socket2::SockRef;
use tokio::io::Interest;
use tokio::net::TcpStream;

use super::super::address::Endpoint;
use crate::error::ServerError;
use crate::tls::TlsOptions;
#[cfg(feature = "tls")]
use crate::tls::TlsStream;

/// A socket that is connected.
#[derive(Debug)]
pub(crate) enum Stream {
    Tcp(TcpStream),
    #[cfg(unix)]
    Unix(tokio::net::UnixStream),
    #[cfg(feature = "tls")]
    Tls(TlsStream),
}

/// Runs the same expression on each kind of socket.
macro_rules! either {
    ($stream:expr, $socket:ident => $what:expr) => {
        match $stream {
            Stream::Tcp($socket) => $what,
            #[cfg(unix)]
            Stream::Unix($socket) => $what,
            #[cfg(feature = "tls")]
            Stream::Tls(stream) => {
                let $socket = stream.socket();
                $what
            }
        }
    };
}

impl Stream {
    /// The same connection with TLS. The server is verified for the host of its endpoint before anything else is sent;
    /// `handshaking` is set meanwhile.
    #[cfg(feature = "tls")]
    pub(super) async fn secured(
        self,
        options: &TlsOptions,
        endpoint: &Endpoint,
        handshaking: &AtomicBool,
    ) -> Result<Self, ServerError> {
        let (Self::Tcp(socket), Endpoint::Tcp(host, _)) = (self, endpoint) else {
            return Err(ServerError::Denied("a socket of this machine has no TLS".into()));
        };
        handshaking.store(true, Ordering::Relaxed);
        let stream = TlsStream::connect(socket, options, host, None).await;
        handshaking.store(false, Ordering::Relaxed);
        stream.map(Self::Tls)
    }

    /// The URL was refused before.
    #[cfg(not(feature = "tls"))]
    #[expect(clippy::unused_async, reason = "as with TLS")]
    pub(super) async fn secured(
        self,
        _options: &TlsOptions,
        _endpoint: &Endpoint,
        _handshaking: &AtomicBool,
    ) -> Result<Self, ServerError> {
        Err(ServerError::Denied("this build has no TLS".into()))
    }

    /// A duplicate of the same socket on the current runtime, where there can be one.
    pub(crate) fn duplicate(&self) -> Option<Self> {
        let socket = either!(self, socket => SockRef::from(socket).try_clone());
        let socket = socket.ok().filter(|_| cfg!(unix))?;
        match self {
            Self::Tcp(_) => TcpStream::from_std(socket.into()).map(Self::Tcp).ok(),
            #[cfg(unix)]
            Self::Unix(_) => tokio::net::UnixStream::from_std(socket.into()).map(Self::Unix).ok(),
            #[cfg(feature = "tls")]
            Self::Tls(stream) => {
                TcpStream::from_std(socket.into()).map(|socket| Self::Tls(stream.on(socket))).ok()
            }
        }
    }

    /// Shuts the connection down, for all duplicates of the socket.
    pub(crate) fn shut(&self) {
        #[cfg(feature = "tls")]
        if let Self::Tls(stream) = self {
            stream.say_goodbye();
        }
        // An error means that it is closed already.
        let _ = either!(self, socket => SockRef::from(socket).shutdown(Shutdown::Both));
    }

    pub(crate) async fn readable(&self) -> io::Result<()> {
        either!(self, socket => socket.readable().await)
    }

    pub(crate) async fn writable(&self) -> io::Result<()> {
        either!(self, socket => socket.writable().await)
    }

    /// Leaves the pending bytes to other readers: readable again when more has arrived.
    pub(crate) fn wait_for_more(&self) {
        let leave = || Err::<(), _>(io::ErrorKind::WouldBlock.into());
        let _ = either!(self, socket => socket.try_io(Interest::READABLE, leave));
    }

    pub(super) fn try_read(&self, into: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(socket) => socket.try_read(into),
            #[cfg(unix)]
            Self::Unix(socket) => socket.try_read(into),
            #[cfg(feature = "tls")]
            Self::Tls(stream) => stream.try_read(into),
        }
    }

    /// Whether there is something to read that makes the socket not readable: it has been decrypted with what was read before.
    pub(crate) fn has_more(&self) -> bool {
        match self {
            Self::Tcp(_) => false,
            #[cfg(unix)]
            Self::Unix(_) => false,
            #[cfg(feature = "tls")]
            Self::Tls(stream) => stream.has_plain_text(),
        }
    }

    /// Takes some of the bytes.
    pub(crate) fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(socket) => socket.try_write(bytes),
            #[cfg(unix)]
            Self::Unix(socket) => socket.try_write(bytes),
            #[cfg(feature = "tls")]
            Self::Tls(stream) => stream.try_write(bytes),
        }
    }

    /// Whether bytes were taken and not sent: encrypted, and not yet in the socket. Another write, be it of nothing, sends them.
    pub(crate) fn is_unsent(&self) -> bool {
        match self {
            Self::Tcp(_) => false,
            #[cfg(unix)]
            Self::Unix(_) => false,
            #[cfg(feature = "tls")]
            Self::Tls(stream) => stream.is_unsent(),
        }
    }
}
