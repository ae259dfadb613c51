//! Opening a connection: the socket, authentication, and the server's reply to `HELLO`.

use std::convert::Infallible;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};
use tokio::net::{TcpStream, lookup_host};
use tokio::runtime::Handle;
use tokio::sync::{oneshot, watch};

use super::super::Options;
use super::super::address::{Address, Endpoint, Place, Sentinels};
use super::super::sentinel::Primary;
use super::pipeline::{Pipeline, PushHandler};
use super::refusal::is_known;
use super::request::{Call, Delete};
use super::resp::{CLOSED, RESET, Value};
use super::secret::Secret;
use super::stream::Stream;
use super::target::Target;
use crate::credentials::{Credentials, Login, Provider};
use crate::engine::remote::store::StoreError;
use crate::error::ServerError;
use crate::tls::{self, TlsOptions};

/// Where and how to connect.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    pub(crate) target: Target,
    login: Login,
    /// The program's own source of credentials, which replaces the login.
    provider: Option<Provider>,
    database: u32,
    tls: Option<TlsOptions>,
    pub(crate) options: Options,
    /// The runtime on which the client was made, if it was made on one.
    pub(crate) callers: Option<Handle>,
    /// Counts how often the server of a connection was found not to be the primary any more. All connections to it are replaced.
    pub(crate) moves: Arc<watch::Sender<u64>>,
    pub(super) secret: Secret,
}

impl Settings {
    /// How to connect to the server of a URL.
    pub(crate) fn new(address: Address, mut options: Options, callers: Option<Handle>) -> Self {
        let Address { place, login, database, tls, .. } = address;
        let moves = Arc::<watch::Sender<u64>>::default();
        let target = match place {
            Place::Fixed(endpoint) => Target::Server(endpoint),
            Place::Sentinels(sentinels) => {
                Target::Primary(Arc::new(Primary::new(sentinels, Arc::clone(&moves))))
            }
        };
        let provider = options.credentials.take();
        Self { target, login, provider, database, tls, options, callers, moves, secret: Secret::default() }
    }

    /// How to connect to a sentinel of that server.
    pub(crate) fn of_sentinel(&self, endpoint: Endpoint, sentinels: &Sentinels) -> Self {
        Self {
            target: Target::Sentinel(endpoint),
            login: sentinels.login.clone(),
            provider: None,
            database: 0,
            tls: sentinels.tls.clone(),
            options: self.options.clone(),
            // Few messages, which no caller waits for.
            callers: None,
            moves: Arc::default(),
            secret: Secret::default(),
        }
    }

    /// Whether the server may be replaced by another one that lacks its last writes.
    pub(crate) fn has_sentinels(&self) -> bool {
        matches!(self.target, Target::Primary(_))
    }

    /// Follows the primary, if sentinels name it, until this is dropped.
    pub(crate) async fn keep_locating(&self) {
        match &self.target {
            Target::Primary(primary) => primary.run(self).await,
            Target::Server(_) | Target::Sentinel(_) => std::future::pending().await,
        }
    }

    /// Opens a connection. Server pushes are passed to `on_push`; the returned `Ended` fails when the connection ends.
    pub(crate) async fn open(&self, on_push: PushHandler) -> Result<Opened, ServerError> {
        let limit = self.options.connect_timeout;
        // A TLS handshake has begun, and not ended.
        let handshaking = AtomicBool::new(false);
        let attempts = async {
            match self.connect(Arc::clone(&on_push), &handshaking).await {
                // The password may have been changed since the program was asked.
                Err(ServerError::Denied(text)) if self.provider.is_some() && is_about_login(&text) => {
                    self.connect(on_push, &handshaking).await
                }
                outcome => outcome,
            }
        };
        match tokio::time::timeout(limit, attempts).await {
            Ok(outcome) => outcome,
            Err(_) if handshaking.load(Ordering::Relaxed) => Err(tls::late(limit)),
            Err(_) => Err(self.target.late(limit)),
        }
    }

    async fn connect(&self, on_push: PushHandler, handshaking: &AtomicBool) -> Result<Opened, ServerError> {
        let endpoint = self.target.endpoint().await?;
        let credentials = self.login.credentials(self.provider.as_ref()).await?;
        self.secret.set(&credentials);
        let stream = match &endpoint {
            Endpoint::Tcp(host, port) => {
                connect_tcp(host, *port, self.options.connect_timeout).await.map(Stream::Tcp)
            }
            #[cfg(unix)]
            Endpoint::Unix(path) => tokio::net::UnixStream::connect(path).await.map(Stream::Unix),
            #[cfg(not(unix))]
            Endpoint::Unix(_) => Err(io::Error::other("this system has no such sockets")),
        };
        let (alive, ended) = oneshot::channel();
        let stream = stream.map_err(|error| no_connection(&error, &endpoint))?;
        let stream = match &self.tls {
            Some(tls) => stream.secured(tls, &endpoint, handshaking).await?,
            None => stream,
        };
        let pipeline = Pipeline::start(stream, self.clone(), on_push, alive);
        // All in one round trip.
        let send = |call| pipeline.send(call);
        let hello = send(hello(&credentials));
        let database = (self.database > 0).then(|| send(Call::command("SELECT").arg(self.database)));
        // A server that refuses or does not support this information can still keep locks.
        let setinfo = || Call::command("CLIENT").arg("SETINFO");
        drop(send(setinfo().arg("LIB-NAME").arg("leasehold")));
        drop(send(setinfo().arg("LIB-VER").arg(env!("CARGO_PKG_VERSION"))));
        if let Some(identity) = &self.options.identity {
            drop(send(Call::command("CLIENT").arg("SETNAME").arg(identity.connection_name())));
        }
        let hello = hello.await.map_err(|error| self.refused(error))?;
        self.target.check(&hello)?;
        pipeline.use_native(native_delete(&hello));
        if let Some(database) = database {
            database.await.map_err(|error| self.no_database(error.into()))?;
        }
        Ok(Opened { pipeline, ended, renew_after: credentials.renew_after })
    }

    /// Authenticates a connection anew whenever its credentials are to be renewed, until this is dropped. If that fails, the
    /// connection lasts until the server ends it.
    pub(crate) async fn keep_authenticated(&self, pipeline: &Pipeline, mut after: Option<Duration>) {
        loop {
            let Some(time) = after else { return std::future::pending().await };
            tokio::time::sleep(time).await;
            let renewed = match self.login.credentials(self.provider.as_ref()).await {
                Ok(credentials) => {
                    self.secret.set(&credentials);
                    let (user, password) = user_and_password(&credentials);
                    let auth = Call::command("AUTH").arg(user).arg(password);
                    pipeline.send(auth).await.map(|_| credentials.renew_after).map_err(ServerError::from)
                }
                Err(failure) => Err(failure),
            };
            match renewed {
                Ok(next) => after = next,
                Err(error) => {
                    let server = &self.target;
                    tracing::warn!(%server, %error, "a connection could not be authenticated anew, and lasts as it is");
                    after = Some(time.max(AUTHENTICATION_PAUSE));
                }
            }
        }
    }

    /// What a refused `SELECT` means.
    fn no_database(&self, error: ServerError) -> ServerError {
        match error {
            ServerError::Denied(text) if text.contains("out of range") => ServerError::Denied(format!(
                "it has no database {}: see its `databases` setting, and the number at the end of the URL",
                self.database
            )),
            other => other,
        }
    }

    /// What the failure of `HELLO` means. A server that does not support it may repeat its arguments, password included.
    fn refused(&self, error: StoreError) -> ServerError {
        if let StoreError::Unknown(ServerError::Unavailable(text))
        | StoreError::NotSent(ServerError::Unavailable(text)) = &error
            && [CLOSED, RESET].contains(&text.as_str())
        {
            let advice = match &self.tls {
                None => {
                    "if that port wants TLS, write rediss:// in place of redis://; otherwise check that a Redis server \
                     listens on it"
                }
                // With TLS 1.3 a client has finished the handshake when the server looks at its certificate.
                Some(tls) if tls.cert.is_none() => {
                    "if it wants a client certificate, write cert=PATH&key=PATH in the URL; otherwise check that a \
                     Redis server listens on that port"
                }
                Some(_) => {
                    "check that it accepts the client certificate, and that a Redis server listens on that port"
                }
            };
            return ServerError::Unavailable(format!("it closed the connection without a reply: {advice}"));
        }
        let failure = error.into();
        let ServerError::Denied(text) = failure else { return failure };
        let lower = text.to_ascii_lowercase();
        if lower.contains("unknown command") || lower.starts_with("noproto") {
            return ServerError::Denied(NO_RESP3.into());
        }
        if lower.contains("max number of clients") {
            let text = "it has reached its limit of connections: raise its `maxclients`, or close some (max number of \
                        clients reached)";
            return ServerError::Unavailable(text.into());
        }
        if !is_known(&text) && self.secret.is_repeated_in(&text) {
            return ServerError::Denied(
                "its reply is withheld, because it repeats the password: check which server this is".into(),
            );
        }
        ServerError::Denied(text)
    }
}

fn hello(credentials: &Credentials) -> Call {
    let hello = Call::command("HELLO").arg(3);
    if credentials.user.is_none() && credentials.password.is_none() {
        return hello;
    }
    let (user, password) = user_and_password(credentials);
    hello.arg("AUTH").arg(user).arg(password)
}

fn user_and_password(credentials: &Credentials) -> (&str, &str) {
    let Credentials { user, password, .. } = credentials;
    (user.as_deref().unwrap_or("default"), password.as_deref().unwrap_or_default())
}

/// Whether other credentials may help.
fn is_about_login(text: &str) -> bool {
    ["(WRONGPASS)", "(NOAUTH)"].iter().any(|code| text.ends_with(code))
}

/// Why a socket could not be opened, and what to do about it.
fn no_connection(error: &io::Error, endpoint: &Endpoint) -> ServerError {
    let text = match (error.kind(), endpoint) {
        (io::ErrorKind::ConnectionRefused, _) => {
            "connection refused: start the server, or check the host and the port".to_owned()
        }
        (io::ErrorKind::TimedOut, _) => {
            "no reply to the connection: check the host, the port, and the firewalls in between".to_owned()
        }
        (io::ErrorKind::NotFound, Endpoint::Unix(_)) => {
            "there is no socket at that path: start the server, or check the path".to_owned()
        }
        (io::ErrorKind::PermissionDenied, Endpoint::Unix(_)) => {
            "this user may not use that socket: check its permissions (`unixsocketperm`)".to_owned()
        }
        _ => error.to_string(),
    };
    ServerError::Unavailable(text)
}

const NO_RESP3: &str =
    "it does not support RESP3, the protocol that is needed: use Redis from 6.0.6 on, or Valkey";

/// The least time between two attempts to authenticate a connection anew.
const AUTHENTICATION_PAUSE: Duration = Duration::from_secs(1);

/// A connection that was opened.
pub(crate) struct Opened {
    pub(crate) pipeline: Pipeline,
    pub(crate) ended: Ended,
    /// After how long it is to be [authenticated anew](Settings::keep_authenticated).
    pub(crate) renew_after: Option<Duration>,
}

/// Fails when the connection has ended.
pub(crate) type Ended = oneshot::Receiver<Infallible>;

/// Tries one address after the other, each with its share of the time.
async fn connect_tcp(host: &str, port: u16, timeout: Duration) -> io::Result<TcpStream> {
    let unknown = |error| {
        io::Error::other(format!("the host {host} is not known: check its spelling and DNS ({error})"))
    };
    let addresses: Vec<_> = lookup_host((host, port)).await.map_err(unknown)?.collect();
    let each = timeout / u32::try_from(addresses.len().max(1)).unwrap_or(u32::MAX);
    let mut failure = io::Error::other(format!("the host {host} has no address: check its spelling and DNS"));
    for address in addresses {
        match tokio::time::timeout(each, TcpStream::connect(address)).await {
            Ok(Ok(socket)) => return configured(socket),
            Ok(Err(error)) => failure = error,
            Err(_) => failure = io::ErrorKind::TimedOut.into(),
        }
    }
    Err(failure)
}

/// With keep-alive the kernel, too, detects a dead peer, not only our own time-outs.
fn configured(socket: TcpStream) -> io::Result<TcpStream> {
    socket.set_nodelay(true)?;
    let options = SockRef::from(&socket);
    let often = TcpKeepalive::new().with_time(Duration::from_secs(10)).with_interval(Duration::from_secs(5));
    options.set_tcp_keepalive(&often)?;
    #[cfg(target_os = "linux")]
    options.set_tcp_user_timeout(Some(Duration::from_secs(20)))?;
    Ok(socket)
}

/// The value of a name in the reply to `HELLO`: names and values alternate.
pub(super) fn said<'a>(hello: &'a Value, name: &str) -> Option<&'a str> {
    let Value::Array(parts) = hello else { return None };
    parts.as_chunks().0.iter().find_map(|[key, value]| match (key, value) {
        (Value::Text(key), Value::Text(value)) if key == name.as_bytes() => std::str::from_utf8(value).ok(),
        _ => None,
    })
}

/// The server's own command that replaces the script that deletes a key with a given value, by the server's name and version.
fn native_delete(hello: &Value) -> Option<Delete> {
    let mut version = said(hello, "version")?.split('.').map_while(|part| part.parse::<u32>().ok());
    let version = (version.next()?, version.next().unwrap_or(0));
    match said(hello, "server")? {
        "redis" if version >= (8, 4) => Some(Delete::Delex),
        "valkey" if version >= (9, 0) => Some(Delete::DelIfEq),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::redis::net::resp::{Frame, take};

    fn read(sent: &str) -> Value {
        let Ok(Frame::Reply(reply)) = take(&mut sent.as_bytes()) else { panic!("{sent:?}") };
        reply
    }

    #[test]
    fn the_hello_reply_of_a_server_is_parsed() {
        let hello = read(
            "%7\r\n$6\r\nserver\r\n$5\r\nredis\r\n$7\r\nversion\r\n$6\r\n7.0.15\r\n$5\r\nproto\r\n:3\r\n$2\r\nid\r\n:12\r\n\
             $4\r\nmode\r\n$10\r\nstandalone\r\n$4\r\nrole\r\n$6\r\nmaster\r\n$7\r\nmodules\r\n*0\r\n",
        );
        assert_eq!((said(&hello, "role"), said(&hello, "mode")), (Some("master"), Some("standalone")));
        let server = Target::Server(Endpoint::Unix("/".into()));
        assert_eq!((server.check(&hello), native_delete(&hello)), (Ok(()), None));
    }

    #[test]
    fn fields_missing_in_the_hello_reply_are_unknown() {
        for reply in ["+OK\r\n", "%1\r\n$4\r\nrole\r\n:7\r\n"].map(read) {
            let server = Target::Server(Endpoint::Unix("/".into()));
            assert_eq!(
                (said(&reply, "role"), server.check(&reply), native_delete(&reply)),
                (None, Ok(()), None)
            );
        }
    }

    #[test]
    fn the_native_delete_command_is_used_from_the_first_supporting_server_version() {
        for (server, version, expected) in [
            ("redis", "8.4.0", Some(Delete::Delex)),
            ("redis", "10.0.1", Some(Delete::Delex)),
            ("redis", "8.2.9", None),
            ("valkey", "9.0.0", Some(Delete::DelIfEq)),
            ("valkey", "9", Some(Delete::DelIfEq)),
            ("valkey", "8.1.4", None),
            ("valkey", "unstable", None),
            ("other", "9.0.0", None),
        ] {
            let words = ["server", server, "version", version].map(|word| Value::Text(word.into()));
            assert_eq!(native_delete(&Value::Array(words.into())), expected, "{server} {version}");
        }
    }
}
