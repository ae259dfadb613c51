//! A blocking connection.

use std::{
    io::{self, Read as _, Write as _},
    net::{Ipv4Addr, TcpStream},
    os::unix::net::UnixStream,
    path::Path,
    time::Duration,
};

use super::{Value, encode, parse};

/// A blocking connection to a server on this machine, or to a proxy in front of one.
///
/// An operation that takes longer than [`TIMEOUT`](Self::TIMEOUT) is an error, so that a test fails rather than hangs.
#[derive(Debug)]
pub struct Connection {
    stream: Stream,
    received: Vec<u8>,
}

#[derive(Debug)]
enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Connection {
    /// The default time-out of a connection.
    pub const TIMEOUT: Duration = Duration::from_secs(10);

    /// Connects to a port of the loopback interface.
    ///
    /// # Errors
    ///
    /// When nothing listens there.
    pub fn open(port: u16) -> io::Result<Self> {
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
        stream.set_nodelay(true)?;
        stream.set_write_timeout(Some(Self::TIMEOUT))?;
        stream.set_read_timeout(Some(Self::TIMEOUT))?;
        Ok(Self { stream: Stream::Tcp(stream), received: Vec::new() })
    }

    /// Connects to a Unix socket.
    ///
    /// # Errors
    ///
    /// When nothing listens there.
    pub fn open_unix(path: &Path) -> io::Result<Self> {
        let stream = UnixStream::connect(path)?;
        stream.set_write_timeout(Some(Self::TIMEOUT))?;
        stream.set_read_timeout(Some(Self::TIMEOUT))?;
        Ok(Self { stream: Stream::Unix(stream), received: Vec::new() })
    }

    /// Sets how long [`receive`](Self::receive) waits.
    ///
    /// # Errors
    ///
    /// When `limit` is zero.
    pub fn timeout(&self, limit: Duration) -> io::Result<()> {
        match &self.stream {
            Stream::Tcp(stream) => stream.set_read_timeout(Some(limit)),
            Stream::Unix(stream) => stream.set_read_timeout(Some(limit)),
        }
    }

    /// Sends a command and receives a value.
    ///
    /// # Errors
    ///
    /// As for [`send`](Self::send) and [`receive`](Self::receive). An error that the server replies with is a
    /// value.
    pub fn call(&mut self, command: &[impl AsRef<[u8]>]) -> io::Result<Value> {
        self.send(command)?;
        self.receive()
    }

    /// Sends a command.
    ///
    /// # Errors
    ///
    /// When the connection is known to be closed.
    pub fn send(&mut self, command: &[impl AsRef<[u8]>]) -> io::Result<()> {
        let bytes = encode(command);
        match &mut self.stream {
            Stream::Tcp(stream) => stream.write_all(&bytes),
            Stream::Unix(stream) => stream.write_all(&bytes),
        }
    }

    /// Receives the next value.
    ///
    /// # Errors
    ///
    /// [`WouldBlock`](io::ErrorKind::WouldBlock) after the time-out, after which waiting may continue, and
    /// [`UnexpectedEof`](io::ErrorKind::UnexpectedEof) or [`ConnectionReset`](io::ErrorKind::ConnectionReset) when the connection
    /// is closed.
    pub fn receive(&mut self) -> io::Result<Value> {
        loop {
            if let Some((value, length)) = parse(&self.received)? {
                self.received.drain(..length);
                return Ok(value);
            }
            let mut chunk = [0; 4096];
            let read = match &mut self.stream {
                Stream::Tcp(stream) => stream.read(&mut chunk),
                Stream::Unix(stream) => stream.read(&mut chunk),
            };
            match read {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(length) => self.received.extend(&chunk[..length]),
                // A signal, such as that of a child that has ended.
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }
}
