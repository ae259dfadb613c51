//! A socket, whatever kind it is of.

use std::io;
use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};
use tokio::net::{TcpStream, lookup_host};

use super::address::Place;

/// A socket that is connected.
#[derive(Debug)]
pub(super) enum Stream {
    Tcp(TcpStream),
    #[cfg(unix)]
    Unix(tokio::net::UnixStream),
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
    pub(super) async fn connect(place: &Place, timeout: Duration) -> io::Result<Self> {
        match place {
            Place::Tcp(host, port) => connect_tcp(host, *port, timeout).await.map(Self::Tcp),
            #[cfg(unix)]
            Place::Unix(path) => tokio::net::UnixStream::connect(path).await.map(Self::Unix),
            #[cfg(not(unix))]
            Place::Unix(_) => Err(io::Error::other("this system has no such sockets")),
        }
    }

    pub(super) async fn readable(&self) -> io::Result<()> {
        either!(self, socket => socket.readable().await)
    }

    pub(super) async fn writable(&self) -> io::Result<()> {
        either!(self, socket => socket.writable().await)
    }

    pub(super) fn try_read(&self, into: &mut [u8]) -> io::Result<usize> {
        either!(self, socket => socket.try_read(into))
    }

    pub(super) fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
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
