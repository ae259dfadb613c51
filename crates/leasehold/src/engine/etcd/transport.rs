//! The way to one member: its socket, with TLS or without, and what it means if that is of no use.

use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tonic::transport::{Channel, Endpoint};

use super::address::Member;
use super::calls::causes;
use crate::env;
use crate::error::ServerError;
use crate::mutex::Mutex;
use crate::tls::TlsOptions;

/// A connection that sends requests. The library below replaces its socket if that was closed.
#[derive(Debug)]
pub(super) struct Transport {
    channel: Channel,
    kind: Kind,
    refusal: Refusal,
    /// Whether there was a reply to any request.
    has_replied: AtomicBool,
}

/// What is known about a server that does not reply.
#[derive(Debug, Clone, Copy)]
enum Kind {
    Plain,
    Secured,
    /// With a client certificate.
    Identified,
}

/// Why TLS has failed since the last handshake that succeeded. The library below passes only a text on.
#[derive(Debug, Clone, Default)]
pub(super) struct Refusal(Arc<Mutex<Option<ServerError>>>);

impl Refusal {
    #[cfg(feature = "tls")]
    pub(super) fn set(&self, error: Option<ServerError>) {
        *self.0.lock() = error;
    }
}

impl Transport {
    /// Connects to a member within this time.
    pub(super) async fn open(
        member: &Member,
        tls: Option<&TlsOptions>,
        limit: Duration,
    ) -> Result<Self, ServerError> {
        let refusal = Refusal::default();
        let (kind, channel) = match tls {
            None => (Kind::Plain, plain(member, limit).await?),
            Some(tls) => {
                let kind = if tls.cert.is_some() { Kind::Identified } else { Kind::Secured };
                (kind, secured(member, tls, limit, &refusal).await?)
            }
        };
        Ok(Self { channel, kind, refusal, has_replied: AtomicBool::new(false) })
    }

    pub(super) fn channel(&self) -> Channel {
        self.channel.clone()
    }

    /// The server has replied to something.
    pub(super) fn replied(&self) {
        self.has_replied.store(true, Ordering::Relaxed);
    }

    /// Why a request could not be sent, or was not replied to.
    pub(super) fn broken(&self, error: &dyn Error) -> ServerError {
        if let Some(refusal) = self.refusal.0.lock().clone() {
            return refusal;
        }
        let causes = causes(error);
        if self.has_replied.load(Ordering::Relaxed) {
            return ServerError::Unavailable(causes);
        }
        let advice = match self.kind {
            Kind::Plain => {
                "if that port wants TLS, write etcds:// in place of etcd://; otherwise check that etcd listens on it"
            }
            // With TLS 1.3 a client has finished the handshake when the server looks at its certificate.
            Kind::Secured => {
                "if it wants a client certificate, write cert=PATH&key=PATH in the URL; otherwise check that etcd \
                 listens on that port"
            }
            Kind::Identified => {
                "check that it accepts the client certificate, and that etcd listens on that port"
            }
        };
        ServerError::Unavailable(format!("it closed the connection without a reply ({causes}): {advice}"))
    }
}

async fn plain(member: &Member, limit: Duration) -> Result<Channel, ServerError> {
    let endpoint = endpoint(member)?.connect_timeout(limit).tcp_nodelay(true);
    match env::within(limit, endpoint.connect()).await {
        Some(connected) => connected.map_err(|error| ServerError::Unavailable(causes(&error))),
        None => Err(ServerError::Unavailable(format!("no connection within {limit:?}"))),
    }
}

#[cfg(feature = "tls")]
async fn secured(
    member: &Member,
    tls: &TlsOptions,
    limit: Duration,
    refusal: &Refusal,
) -> Result<Channel, ServerError> {
    let connected = super::secured::connect(endpoint(member)?, member, tls, limit, refusal).await;
    let because = || refusal.0.lock().clone();
    connected.map_err(|error| because().unwrap_or_else(|| ServerError::Unavailable(causes(&error))))
}

/// The URL was refused before.
#[cfg(not(feature = "tls"))]
#[expect(clippy::unused_async, reason = "as with TLS")]
async fn secured(
    _member: &Member,
    _tls: &TlsOptions,
    _limit: Duration,
    _refusal: &Refusal,
) -> Result<Channel, ServerError> {
    Err(ServerError::Denied("this build has no TLS".into()))
}

/// With or without TLS, which the library below knows nothing of.
fn endpoint(member: &Member) -> Result<Endpoint, ServerError> {
    let endpoint = Endpoint::from_shared(format!("http://{member}"));
    endpoint.map_err(|error| ServerError::Unavailable(causes(&error)))
}
