//! The socket of a connection.

use std::io;
use std::net::Shutdown;

use socket2::SockRef;
use tokio::io::Interest;
use tokio::net::TcpStream;

/// A socket that is connected.
#[derive(Debug)]
pub(crate) enum Stream {
    Tcp(TcpStream),
    #[cfg(unix)]
    Unix(tokio::net::UnixStream),
}

/// Runs the same expression on either socket.
macro_rules! either {
    ($stream:expr, $socket:ident => $what:expr) => {
        match $stream {
            Stream::Tcp($socket) => $what,
            #[cfg(unix)]
            Stream::Unix($socket) => $what,
        }
    };
}

impl Stream {
    /// A duplicate of the same socket on the current runtime, where there can be one.
    pub(crate) fn duplicate(&self) -> Option<Self> {
        let socket = either!(self, socket => SockRef::from(socket).try_clone());
        let socket = socket.ok().filter(|_| cfg!(unix))?;
        match self {
            Self::Tcp(_) => TcpStream::from_std(socket.into()).map(Self::Tcp).ok(),
            #[cfg(unix)]
            Self::Unix(_) => tokio::net::UnixStream::from_std(socket.into()).map(Self::Unix).ok(),
        }
    }

    /// Shuts the connection down, for all duplicates of the socket.
    pub(crate) fn shut(&self) {
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
        either!(self, socket => socket.try_read(into))
    }

    pub(crate) fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        either!(self, socket => socket.try_write(bytes))
    }
}
