//! A connection to one member, in the name of a user if there is one.
//!
//! A user logs in by a request of its own, and sends the token of the reply with every other request. The server forgets the token
//! after some minutes without a request: then the client logs in again.

use std::error::Error as _;
use std::time::Duration;

use prost::Message;
use tonic::Request;
use tonic::client::Grpc;
use tonic::metadata::{Ascii, MetadataValue};
use tonic_prost::ProstCodec;

use super::address::Member;
use super::calls::{self, Failure, causes, late};
use super::messages::{LoggedIn, Login as LogIn};
use super::transport::Transport;
use crate::credentials::{Credentials, Login, Provider};
use crate::engine::remote::store::StoreError;
use crate::env;
use crate::error::ServerError;
use crate::mutex::Mutex;
use crate::tls::TlsOptions;

/// The source of the user and its password.
#[derive(Debug, Clone)]
pub(super) struct Account {
    pub(super) login: Login,
    /// The program's own source, which replaces the login.
    pub(super) provider: Option<Provider>,
}

type Token = MetadataValue<Ascii>;

/// A connection to one member.
#[derive(Debug)]
pub(super) struct Connection {
    transport: Transport,
    account: Account,
    /// None without a user.
    token: Mutex<Option<Token>>,
    /// Locked while the client logs in: of many requests that are refused together, one does.
    logging_in: tokio::sync::Mutex<()>,
    limit: Duration,
}

impl Connection {
    /// Connects, and logs in.
    pub(super) async fn open(
        member: &Member,
        tls: Option<&TlsOptions>,
        account: Account,
        connect: Duration,
        limit: Duration,
    ) -> Result<Self, ServerError> {
        let transport = Transport::open(member, tls, connect).await?;
        let connection = Self {
            transport,
            account,
            token: Mutex::default(),
            logging_in: tokio::sync::Mutex::default(),
            limit,
        };
        connection.log_in().await?;
        Ok(connection)
    }

    /// Logs in, if there is a user.
    async fn log_in(&self) -> Result<(), ServerError> {
        let Account { login, provider } = &self.account;
        let credentials = env::within(self.limit, login.credentials(provider.as_ref())).await;
        let late = || ServerError::Unavailable(format!("no credentials within {:?}", self.limit));
        let Credentials { user, password, .. } = credentials.unwrap_or_else(|| Err(late()))?;
        let (name, password) = match (user, password) {
            (None, None) => return Ok(()),
            (Some(name), password) => (name, password.unwrap_or_default()),
            (None, Some(_)) => {
                return Err(ServerError::Denied(
                    "a password of etcd needs a user: write USER:PASSWORD@".into(),
                ));
            }
        };
        let login = LogIn { name, password };
        let reply: LoggedIn = self.once(calls::LOG_IN, login, None).await.map_err(Failure::into_error)?;
        let token = reply.token.parse::<MetadataValue<Ascii>>();
        let mut token = token.map_err(|_| ServerError::Denied("the token of etcd cannot be sent".into()))?;
        token.set_sensitive(true);
        *self.token.lock() = Some(token);
        Ok(())
    }

    /// One request and its reply. Logs in anew if the server has forgotten the user.
    pub(super) async fn call<Q, A>(&self, path: &'static str, request: Q) -> Result<A, Failure>
    where
        Q: Message + Clone + 'static,
        A: Message + Default + 'static,
    {
        let token = self.token();
        match self.once(path, request.clone(), token.clone()).await {
            Err(Failure::NoToken(_)) => {
                let one = self.logging_in.lock().await;
                if self.token() == token {
                    self.log_in().await.map_err(|error| Failure::Other(StoreError::Refused(error)))?;
                }
                drop(one);
                self.once(path, request, self.token()).await
            }
            done => done,
        }
    }

    fn token(&self) -> Option<Token> {
        self.token.lock().clone()
    }

    async fn once<Q, A>(&self, path: &'static str, request: Q, token: Option<Token>) -> Result<A, Failure>
    where
        Q: Message + 'static,
        A: Message + Default + 'static,
    {
        let mut client = Grpc::new(self.transport.channel());
        let reply = async {
            if let Err(error) = client.ready().await {
                return Err(Failure::Other(StoreError::NotSent(self.transport.broken(&error))));
            }
            let codec = ProstCodec::<Q, A>::default();
            let status = match client.unary(signed(request, token), calls::at(path), codec).await {
                Ok(reply) => {
                    self.transport.replied();
                    return Ok(reply.into_inner());
                }
                Err(status) => status,
            };
            if let Some(cause) = status.source() {
                return Err(Failure::Other(StoreError::Unknown(self.transport.broken(cause))));
            }
            // The server has sent it.
            self.transport.replied();
            Err(Failure::of(&status))
        };
        let reply = env::within(self.limit, reply).await;
        reply.unwrap_or_else(|| Err(Failure::Other(StoreError::Unknown(late(self.limit)))))
    }

    /// Opens a stream. It resolves with the first reply.
    pub(super) async fn stream<S, Q, A>(
        &self,
        path: &'static str,
        requests: S,
    ) -> Result<tonic::Streaming<A>, ServerError>
    where
        S: tokio_stream::Stream<Item = Q> + Send + 'static,
        Q: Message + 'static,
        A: Message + Default + 'static,
    {
        let mut client = Grpc::new(self.transport.channel());
        client.ready().await.map_err(|error| self.transport.broken(&error))?;
        let codec = ProstCodec::<Q, A>::default();
        let opened = client.streaming(signed(requests, self.token()), calls::at(path), codec).await;
        opened.map(tonic::Response::into_inner).map_err(|status| match status.source() {
            Some(cause) => self.transport.broken(cause),
            None => ServerError::Unavailable(causes(&status)),
        })
    }
}

/// A request in the name of the user.
fn signed<T>(message: T, token: Option<Token>) -> Request<T> {
    let mut request = Request::new(message);
    if let Some(token) = token {
        request.metadata_mut().insert("token", token);
    }
    request
}
