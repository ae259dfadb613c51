//! A socket, whatever kind it is of.

use std::io;
use std::net::Shutdown;
use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};
use tokio::io::Interest;
use tokio::net::{TcpStream, lookup_host};

use super::super::address::Place;

/// A socket that is connected.
#[derive(Debug)]
pub(crate) enum Stream {
    Tcp(TcpStream),
    #[cfg(unix)]
    Unix(tokio::net::UnixStream),
}

/// Another way to the same socket, for another runtime.
pub(crate) enum Twin {
    Tcp(std::net::TcpStream),
    #[cfg(unix)]
    Unix(std::os::unix::net::UnixStream),
}

impl TryFrom<Twin> for Stream {
    type Error = io::Error;

    /// Belongs to the runtime that we are in from then on.
    fn try_from(twin: Twin) -> io::Result<Self> {
        match twin {
            Twin::Tcp(socket) => TcpStream::from_std(socket).map(Self::Tcp),
            #[cfg(unix)]
            Twin::Unix(socket) => tokio::net::UnixStream::from_std(socket).map(Self::Unix),
        }
    }
}

/// Does the same with either.
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
    pub(crate) async fn connect(place: &Place, timeout: Duration) -> io::Result<Self> {
        match place {
            Place::Tcp(host, port) => connect_tcp(host, *port, timeout).await.map(Self::Tcp),
            #[cfg(unix)]
            Place::Unix(path) => tokio::net::UnixStream::connect(path).await.map(Self::Unix),
            #[cfg(not(unix))]
            Place::Unix(_) => Err(io::Error::other("this system has no such sockets")),
        }
    }

    /// Another way to the same socket, where there can be one.
    pub(crate) fn twin(&self) -> Option<Twin> {
        let socket = either!(self, socket => SockRef::from(socket).try_clone());
        socket.ok().filter(|_| cfg!(unix)).map(|socket| match self {
            Self::Tcp(_) => Twin::Tcp(socket.into()),
            #[cfg(unix)]
            Self::Unix(_) => Twin::Unix(socket.into()),
        })
    }

    /// Ends the connection, for all who have a way to it.
    pub(crate) fn shut(&self) {
        // If it is not there any more, that is what was wanted.
        let _ = either!(self, socket => SockRef::from(socket).shutdown(Shutdown::Both));
    }

    pub(crate) async fn readable(&self) -> io::Result<()> {
        either!(self, socket => socket.readable().await)
    }

    pub(crate) async fn writable(&self) -> io::Result<()> {
        either!(self, socket => socket.writable().await)
    }

    /// Leaves what there is to read to others: readable again when more has come.
    pub(crate) fn wait_for_more(&self) {
        let leave = || Err::<(), _>(io::ErrorKind::WouldBlock.into());
        let _ = either!(self, socket => socket.try_io(Interest::READABLE, leave));
    }

    pub(crate) fn try_read(&self, into: &mut [u8]) -> io::Result<usize> {
        either!(self, socket => socket.try_read(into))
    }

    pub(crate) fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        either!(self, socket => socket.try_write(bytes))
    }
}

/// Tries one address after the other, and gives each its part of the time.
async fn connect_tcp(host: &str, port: u16, timeout: Duration) -> io::Result<TcpStream> {
    let addresses: Vec<_> = lookup_host((host, port)).await?.collect();
    let each = timeout / u32::try_from(addresses.len().max(1)).unwrap_or(u32::MAX);
    let mut failure = io::Error::other(format!("the name {host} has no address"));
    for address in addresses {
        match tokio::time::timeout(each, TcpStream::connect(address)).await {
            Ok(Ok(socket)) => return configured(socket),
            Ok(Err(error)) => failure = error,
            Err(_) => failure = io::ErrorKind::TimedOut.into(),
        }
    }
    Err(failure)
}

/// A peer that is gone without a word is noticed by the kernel too, not only by our own time-outs.
fn configured(socket: TcpStream) -> io::Result<TcpStream> {
    socket.set_nodelay(true)?;
    let options = SockRef::from(&socket);
    let often = TcpKeepalive::new().with_time(Duration::from_secs(10)).with_interval(Duration::from_secs(5));
    options.set_tcp_keepalive(&often)?;
    #[cfg(target_os = "linux")]
    options.set_tcp_user_timeout(Some(Duration::from_secs(20)))?;
    Ok(socket)
}
