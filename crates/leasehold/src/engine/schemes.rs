//! The table of schemes: which engine a URL means. A new engine is one folder and one line here.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use super::profile::Profile;
use super::{Engine, memory};
use crate::credentials::Provider;
use crate::error::ConnectError;
use crate::identity::Identity;
use crate::url::UrlError;

/// One kind of engine, as the scheme of a URL names it.
pub(crate) struct Scheme {
    /// The part before the colon.
    pub(crate) names: &'static [&'static str],
    /// The part after it, for the error that lists the known schemes.
    pub(crate) usage: &'static str,
    pub(crate) profile: &'static Profile,
    /// The URL of the server without credentials, for errors; `None` for an engine inside the process.
    pub(crate) server: fn(&str) -> Option<String>,
    /// Parses the whole URL, and makes the engine of a client.
    pub(crate) open: fn(&str, Options) -> Result<Opening, UrlError>,
}

/// The engine, once it is connected.
pub(crate) type Opening = Pin<Box<dyn Future<Output = Result<Arc<dyn Engine>, ConnectError>> + Send>>;

/// How to reach a server, beside the URL.
#[derive(Debug, Clone, Default)]
#[cfg_attr(not(feature = "remote"), expect(dead_code, reason = "an engine inside the process is there"))]
pub(crate) struct Options {
    /// Who the client is, unless it is anonymous.
    pub(crate) identity: Option<Arc<Identity>>,
    /// How long a hold without a lease of its own outlasts a client that is gone.
    #[cfg(any(feature = "etcd", feature = "mysql"))]
    pub(crate) watchdog: Duration,
    pub(crate) connect_timeout: Duration,
    pub(crate) response_timeout: Duration,
    pub(crate) linger: Duration,
    /// The program's own source of credentials, which replaces those of the URL.
    pub(crate) credentials: Option<Provider>,
    /// The program agrees to connect to servers that are not verified, if the URL says so.
    pub(crate) allow_unverified: bool,
    /// After which time without a token its counter may expire.
    pub(crate) token_retention: Option<Duration>,
    /// Opening the engine does not wait for its server: it connects in the background.
    pub(crate) lazy: bool,
}

const SCHEMES: &[&Scheme] = &[
    #[cfg(feature = "redis")]
    &super::redis::SCHEME,
    #[cfg(feature = "etcd")]
    &super::etcd::SCHEME,
    #[cfg(feature = "file")]
    &super::file::SCHEME,
    #[cfg(feature = "mysql")]
    &super::mysql::SCHEME,
    &memory::SCHEME,
    #[cfg(feature = "test-util")]
    &super::remote::sim::SCHEME,
    #[cfg(feature = "test-util")]
    &super::remote::sim::example::SCHEME,
];

/// The engine of a URL, and its server.
pub(crate) fn open(url: &str, options: Options) -> Result<(Opening, Option<Arc<str>>), UrlError> {
    // Space around it is a remnant of copying.
    let url = url.trim();
    UrlError::check_spaces(url)?;
    let (name, rest) = url.split_once(':').ok_or(UrlError::NoScheme)?;
    // The scheme of a URL ignores case.
    let lower = name.to_ascii_lowercase();
    if let Some(scheme) = SCHEMES.iter().find(|scheme| scheme.names.contains(&lower.as_str())) {
        return Ok(((scheme.open)(url, options)?, (scheme.server)(url).map(Into::into)));
    }
    let may_be_in_scheme = |byte: u8| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte);
    // Text that only resembles a scheme may be half of a password: it is not repeated.
    if name.is_empty() || !name.bytes().all(may_be_in_scheme) {
        return Err(UrlError::NoScheme);
    }
    Err(UrlError::unknown_scheme(name, rest))
}

/// The known schemes, for an error.
pub(crate) fn usage() -> String {
    let usages: Vec<_> =
        SCHEMES.iter().map(|scheme| scheme.usage).filter(|usage| !usage.is_empty()).collect();
    usages.join(", ")
}

/// The engines that users can choose.
pub(super) fn profiles() -> impl Iterator<Item = &'static Profile> {
    SCHEMES.iter().filter(|scheme| !scheme.usage.is_empty()).map(|scheme| scheme.profile)
}
