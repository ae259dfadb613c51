//! User and password of a client, and where they come from.

#[cfg(any(feature = "etcd", feature = "mysql", feature = "redis"))]
mod login;

use std::error::Error;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

#[cfg(any(feature = "etcd", feature = "mysql", feature = "redis"))]
pub(crate) use self::login::Login;

/// A user and its password, as [`ConnectOptions::credentials`](crate::ConnectOptions::credentials) wants them.
///
/// The password appears in no log, no error and no debug output.
///
/// ```
/// use std::time::Duration;
/// use leasehold::Credentials;
///
/// // A token that is good for 15 minutes.
/// let credentials = Credentials::new("app", "token").renew_after(Duration::from_secs(10 * 60));
/// assert!(!format!("{credentials:?}").contains("token"));
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Credentials {
    pub(crate) user: Option<String>,
    pub(crate) password: Option<String>,
    pub(crate) renew_after: Option<Duration>,
}

impl Credentials {
    /// A user with a password.
    #[must_use]
    pub fn new(user: impl Into<String>, password: impl Into<String>) -> Self {
        Self { user: Some(user.into()), password: Some(password.into()), renew_after: None }
    }

    /// A password without a user: the server's default user has it.
    #[must_use]
    pub fn password(password: impl Into<String>) -> Self {
        Self { user: None, password: Some(password.into()), renew_after: None }
    }

    /// After how long a connection that lives is to be authenticated anew, with credentials that are asked for then. Never by
    /// default.
    #[must_use]
    pub fn renew_after(mut self, time: Duration) -> Self {
        self.renew_after = Some(time);
        self
    }
}

impl fmt::Debug for Credentials {
    /// Without the password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials")
            .field("user", &self.user)
            .field("renew_after", &self.renew_after)
            .finish_non_exhaustive()
    }
}

/// What a program returns when it is asked for credentials.
pub(crate) type Asked =
    Pin<Box<dyn Future<Output = Result<Credentials, Box<dyn Error + Send + Sync>>> + Send>>;

/// A program's own source of credentials.
#[derive(Clone)]
#[cfg_attr(
    not(any(feature = "etcd", feature = "mysql", feature = "redis")),
    expect(dead_code, reason = "only a server asks for credentials")
)]
pub(crate) struct Provider(Arc<dyn Fn() -> Asked + Send + Sync>);

impl Provider {
    pub(crate) fn new<F, E>(provider: impl Fn() -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Result<Credentials, E>> + Send + 'static,
        E: Into<Box<dyn Error + Send + Sync>>,
    {
        Self(Arc::new(move || {
            let asked = provider();
            Box::pin(async { asked.await.map_err(Into::into) })
        }))
    }
}

#[cfg(any(feature = "etcd", feature = "mysql", feature = "redis"))]
impl Provider {
    /// Asks the program.
    async fn credentials(&self) -> Result<Credentials, Box<dyn Error + Send + Sync>> {
        (self.0)().await
    }
}

impl fmt::Debug for Provider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Provider")
    }
}
