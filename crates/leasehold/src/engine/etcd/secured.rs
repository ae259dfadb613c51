//! Sockets with TLS. Each is secured before anything of etcd is sent, the first one of a connection and those that replace it.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tonic::transport::{Channel, Endpoint, Error, Uri};
use tower::service_fn;

use super::address::Member;
use super::transport::Refusal;
use crate::env;
use crate::error::ServerError;
use crate::tls::{self, TlsOptions, TlsStream};

/// What is spoken inside of TLS: gRPC is HTTP/2.
const PROTOCOL: &[u8] = b"h2";

/// How long the first message of the server is awaited before anything is sent. With TLS 1.3 it looks at the certificate of a client
/// when the client has finished the handshake, and what it says about it is lost if something was sent to it meanwhile. A server
/// of HTTP/2 speaks first; one that does not is slower by this.
const JUDGED: Duration = Duration::from_millis(200);

/// Connects to a member within this time. Each failure of TLS is a `refusal`, now and later.
pub(super) async fn connect(
    endpoint: Endpoint,
    member: &Member,
    tls: &TlsOptions,
    limit: Duration,
    refusal: &Refusal,
) -> Result<Channel, Error> {
    let origin = format!("https://{member}").parse::<Uri>();
    // The server takes the user from the certificate of a client only if a request says that it came by TLS.
    let endpoint = origin.map_or(endpoint.clone(), |origin| endpoint.origin(origin));
    let way = Arc::new((member.clone(), tls.clone(), refusal.clone()));
    let connector = service_fn(move |_: Uri| {
        let way = Arc::clone(&way);
        async move {
            let (member, tls, refusal) = &*way;
            let opened = open(member, tls, limit).await;
            refusal.set(opened.as_ref().err().cloned());
            let stream = opened.map_err(io::Error::other)?;
            Ok::<_, io::Error>(TokioIo::new(Secured { stream, refusal: refusal.clone() }))
        }
    });
    endpoint.connect_with_connector(connector).await
}

async fn open(member: &Member, tls: &TlsOptions, limit: Duration) -> Result<TlsStream, ServerError> {
    let Member { host, port } = member;
    let is_handshaking = AtomicBool::new(false);
    let opened = async {
        let socket = TcpStream::connect((host.as_str(), *port)).await;
        let socket = socket.and_then(|socket| socket.set_nodelay(true).map(|()| socket));
        let socket = socket.map_err(|error| ServerError::Unavailable(error.to_string()))?;
        is_handshaking.store(true, Ordering::Relaxed);
        let stream = TlsStream::connect(socket, tls, host, Some(PROTOCOL)).await?;
        // An error means that it is closed: the first read says why.
        let _ = env::within(limit.min(JUDGED), stream.socket().peek(&mut [0])).await;
        Ok(stream)
    };
    match env::within(limit, opened).await {
        Some(opened) => opened,
        None if is_handshaking.load(Ordering::Relaxed) => Err(tls::late(limit)),
        None => Err(ServerError::Unavailable(format!("no connection within {limit:?}"))),
    }
}

/// A socket with TLS for a task that polls it.
struct Secured {
    stream: TlsStream,
    refusal: Refusal,
}

impl Secured {
    /// Keeps the reason if the session has failed. A server that closes the connection says why before: that is read, also if a
    /// write was the first to fail.
    fn broken(&self, mut error: io::Error) -> io::Error {
        let mut last = [0; 1024];
        while error.get_ref().is_none() {
            match self.stream.try_read(&mut last) {
                Ok(0) => break,
                Ok(_) => {}
                Err(failure) if failure.get_ref().is_some() => error = failure,
                Err(_) => break,
            }
        }
        let cause = error.get_ref().and_then(|cause| cause.downcast_ref::<ServerError>());
        if let Some(cause) = cause {
            self.refusal.set(Some(cause.clone()));
        }
        error
    }
}

impl AsyncRead for Secured {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        loop {
            match self.stream.try_read(into.initialize_unfilled()) {
                Ok(read) => {
                    into.advance(read);
                    return Poll::Ready(Ok(()));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    ready!(self.stream.socket().poll_read_ready(context))?;
                }
                Err(error) => return Poll::Ready(Err(self.broken(error))),
            }
        }
    }
}

impl AsyncWrite for Secured {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        loop {
            match self.stream.try_write(bytes) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    ready!(self.stream.socket().poll_write_ready(context))?;
                }
                written => return Poll::Ready(written.map_err(|error| self.broken(error))),
            }
        }
    }

    /// Bytes that were taken may be encrypted and not sent yet.
    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.stream.is_unsent() {
            match self.stream.try_write(&[]) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    ready!(self.stream.socket().poll_write_ready(context))?;
                }
                Err(error) => return Poll::Ready(Err(self.broken(error))),
                Ok(_) => {}
            }
        }
        Poll::Ready(Ok(()))
    }

    /// The socket itself is closed when this is dropped.
    fn poll_shutdown(self: Pin<&mut Self>, _context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stream.say_goodbye();
        Poll::Ready(Ok(()))
    }
}
