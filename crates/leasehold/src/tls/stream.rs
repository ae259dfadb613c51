//! A socket with TLS.
//!
//! A TLS session is one object for both directions, and is shared by all duplicates of a socket: whichever thread reads the
//! socket, the session gets the bytes in their order. So it is under a mutex, which is held while bytes are encrypted or
//! decrypted and given to the socket or taken from it, and never while a thread waits.

use std::fmt;
use std::io::{self, Read as _, Write as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rustls::ClientConnection;
use tokio::net::TcpStream;

use super::config;
use super::failure;
use super::options::TlsOptions;
use crate::error::ServerError;
use crate::mutex::Mutex;

/// A socket whose handshake is finished, and its session.
pub(crate) struct TlsStream {
    socket: TcpStream,
    session: Arc<Session>,
}

/// Invariant: no other mutex is locked under this one.
struct Session {
    state: Mutex<State>,
    /// There are encrypted bytes that the socket had no room for.
    unsent: AtomicBool,
}

struct State {
    connection: ClientConnection,
    /// Why the session has ended. What was received before is read first.
    failure: Option<ServerError>,
    /// This client has a certificate.
    has_certificate: bool,
}

impl TlsStream {
    /// Secures a connected socket: the server is verified for this host before anything of an engine is sent. `protocol`: the name
    /// (ALPN) of what is spoken then, if a server of the engine expects one.
    ///
    /// # Errors
    ///
    /// Why the server is not trusted, does not trust this client, or speaks no TLS; and what is wrong with the files of the
    /// options. It waits for as long as the server is silent.
    pub(crate) async fn connect(
        socket: TcpStream,
        options: &TlsOptions,
        host: &str,
        protocol: Option<&[u8]>,
    ) -> Result<Self, ServerError> {
        let mut connection = config::begin(options, host, protocol).await?;
        // Otherwise a large write is cut into parts that wait for the thread that owns the socket.
        connection.set_buffer_limit(None);
        let has_certificate = options.cert.is_some();
        while connection.is_handshaking() {
            send(&mut connection, &socket).await?;
            socket.readable().await.map_err(|error| failure::cut(Some(&error)))?;
            match connection.read_tls(&mut NonBlocking(&socket)) {
                Ok(0) => return Err(failure::cut(None)),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => continue,
                Err(error) => return Err(failure::cut(Some(&error))),
            }
            if let Err(error) = connection.process_new_packets() {
                // The alert tells the server why.
                let _ = flush(&mut connection, &socket);
                return Err(failure::of_handshake(&error, has_certificate));
            }
        }
        // The end of the handshake, which the server waits for.
        send(&mut connection, &socket).await?;
        let state = Mutex::new(State { connection, failure: None, has_certificate });
        Ok(Self { socket, session: Arc::new(Session { state, unsent: AtomicBool::new(false) }) })
    }

    /// The same session on a duplicate of the socket.
    #[cfg(feature = "redis")]
    pub(crate) fn on(&self, socket: TcpStream) -> Self {
        Self { socket, session: Arc::clone(&self.session) }
    }

    /// The socket, for waits.
    pub(crate) fn socket(&self) -> &TcpStream {
        &self.socket
    }

    /// Reads what the session has in plain text, and what the socket has if that is nothing.
    ///
    /// # Errors
    ///
    /// [`WouldBlock`](io::ErrorKind::WouldBlock) if neither has anything. The failure of the session is a [`ServerError`] inside
    /// the error.
    pub(crate) fn try_read(&self, into: &mut [u8]) -> io::Result<usize> {
        let mut state = self.session.state.lock();
        let State { connection, failure, has_certificate } = &mut *state;
        loop {
            match connection.reader().read(into) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                // A server that crashes does not say goodbye. Replies have lengths, so none is taken for complete.
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(0),
                read => return read,
            }
            if let Some(failure) = failure {
                return Err(io::Error::other(failure.clone()));
            }
            connection.read_tls(&mut NonBlocking(&self.socket))?;
            if let Err(error) = connection.process_new_packets() {
                *failure = Some(failure::of_connection(&error, *has_certificate));
            }
            // An alert, or the reply to a change of keys. What the socket has no room for precedes the next write.
            let _ = flush(connection, &self.socket);
        }
    }

    /// Whether the session has plain text, which the socket does not announce.
    #[cfg(feature = "redis")]
    pub(crate) fn has_plain_text(&self) -> bool {
        let mut state = self.session.state.lock();
        io::BufRead::fill_buf(&mut state.connection.reader()).is_ok_and(|bytes| !bytes.is_empty())
    }

    /// Writes all bytes or none: those that the session takes and the socket does not are [unsent](Self::is_unsent).
    ///
    /// # Errors
    ///
    /// [`WouldBlock`](io::ErrorKind::WouldBlock) if the socket has no room for earlier bytes.
    pub(crate) fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        let mut state = self.session.state.lock();
        let State { connection, .. } = &mut *state;
        let mut written = flush(connection, &self.socket);
        if written.is_ok() && !bytes.is_empty() {
            connection.writer().write_all(bytes)?;
            written = match flush(connection, &self.socket) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(()),
                flushed => flushed,
            };
        }
        self.session.unsent.store(connection.wants_write(), Ordering::SeqCst);
        written.map(|()| bytes.len())
    }

    /// Whether bytes were taken and not sent. Another write, be it of nothing, sends them.
    pub(crate) fn is_unsent(&self) -> bool {
        self.session.unsent.load(Ordering::SeqCst)
    }

    /// Tells the server that this is the end, if the socket has room for that.
    pub(crate) fn say_goodbye(&self) {
        let mut state = self.session.state.lock();
        state.connection.send_close_notify();
        // An error means that it is closed already.
        let _ = flush(&mut state.connection, &self.socket);
    }
}

impl fmt::Debug for TlsStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TlsStream").field("socket", &self.socket).finish_non_exhaustive()
    }
}

/// Gives the encrypted bytes to the socket, and waits until it has room for all.
async fn send(connection: &mut ClientConnection, socket: &TcpStream) -> Result<(), ServerError> {
    loop {
        match flush(connection, socket) {
            Ok(()) => return Ok(()),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(failure::cut(Some(&error))),
        }
        socket.writable().await.map_err(|error| failure::cut(Some(&error)))?;
    }
}

/// Gives the encrypted bytes to the socket, as far as it has room.
fn flush(connection: &mut ClientConnection, socket: &TcpStream) -> io::Result<()> {
    while connection.wants_write() {
        if connection.write_tls(&mut NonBlocking(socket))? == 0 {
            return Err(io::ErrorKind::WriteZero.into());
        }
    }
    Ok(())
}

/// A socket for a session.
struct NonBlocking<'a>(&'a TcpStream);

impl io::Read for NonBlocking<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.0.try_read(into)
    }
}

impl io::Write for NonBlocking<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.try_write(bytes)
    }

    fn write_vectored(&mut self, parts: &[io::IoSlice<'_>]) -> io::Result<usize> {
        self.0.try_write_vectored(parts)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
