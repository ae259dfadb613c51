//! The settings of a client from outside the program: the environment, and with the feature `serde` a file of any format.

mod time;

use std::collections::BTreeMap;
use std::env::{self, VarError};
use std::fmt::{self, Write as _};
use std::time::Duration;

use thiserror::Error;

pub use self::time::{TimeParseError, parse_time};
use crate::connect::ConnectOptions;

/// The settings of a client, as a deployment gives them: each may be missing.
///
/// [`from_env`](Config::from_env) reads the environment. With the feature `serde` it can be a part of a configuration file: its
/// names there are those of the fields, times are texts such as `"30s"`, and every other name is an option of the URL, such as
/// `ca`. [`or`](Config::or) combines several sources, the stronger one first.
///
/// ```
/// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use leasehold::Config;
///
/// let mut defaults = Config::default();
/// defaults.url = Some("memory:".into());
/// defaults.namespace = Some("billing:".into());
/// let client = Config::from_env()?.or(defaults).connect()?.await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Deserialize), serde(default))]
#[non_exhaustive]
pub struct Config {
    /// The URL of the engine. See [`Client::connect`](crate::Client::connect).
    pub url: Option<String>,
    /// See [`ConnectOptions::namespace`].
    pub namespace: Option<String>,
    /// See [`ConnectOptions::label`].
    pub label: Option<String>,
    /// See [`ConnectOptions::anonymous`].
    pub anonymous: Option<bool>,
    /// See [`ConnectOptions::watchdog`].
    #[cfg_attr(feature = "serde", serde(deserialize_with = "time::deserialize"))]
    pub watchdog: Option<Duration>,
    /// See [`ConnectOptions::outage_limit`].
    #[cfg_attr(feature = "serde", serde(deserialize_with = "time::deserialize"))]
    pub outage_limit: Option<Duration>,
    /// See [`ConnectOptions::warn_wait`].
    #[cfg_attr(feature = "serde", serde(deserialize_with = "time::deserialize"))]
    pub warn_wait: Option<Duration>,
    /// See [`ConnectOptions::warn_hold`].
    #[cfg_attr(feature = "serde", serde(deserialize_with = "time::deserialize"))]
    pub warn_hold: Option<Duration>,
    /// See [`ConnectOptions::connect_timeout`].
    #[cfg_attr(feature = "serde", serde(deserialize_with = "time::deserialize"))]
    pub connect_timeout: Option<Duration>,
    /// See [`ConnectOptions::response_timeout`].
    #[cfg_attr(feature = "serde", serde(deserialize_with = "time::deserialize"))]
    pub response_timeout: Option<Duration>,
    /// See [`ConnectOptions::linger`].
    #[cfg_attr(feature = "serde", serde(deserialize_with = "time::deserialize"))]
    pub linger: Option<Duration>,
    /// See [`ConnectOptions::token_retention`].
    #[cfg_attr(feature = "serde", serde(deserialize_with = "time::deserialize"))]
    pub token_retention: Option<Duration>,
    /// Options of the URL, by the names that they have there, such as `ca` or `password_file`. The URL itself is stronger.
    #[cfg_attr(feature = "serde", serde(flatten))]
    pub url_options: BTreeMap<String, String>,
}

/// The options of URLs that the environment can have.
const URL_OPTIONS: &[&str] = &[
    "ca",
    "cert",
    "key",
    "server_name",
    "verify",
    "password_file",
    "password_env",
    "sentinel_user",
    "sentinel_password",
    "sentinel_password_file",
    "sentinel_password_env",
    "sentinel_tls",
    "sentinel_ca",
    "sentinel_cert",
    "sentinel_key",
    "sentinel_server_name",
    "sentinel_verify",
];

/// Why settings cannot be used. No text of it contains a secret.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// There is no URL.
    #[error("no URL is given: set LEASEHOLD_URL, such as redis://host:port, or file: for this machine")]
    NoUrl,
    /// A variable is empty, as in a script with another variable that is not set.
    #[error("{variable} is empty: unset it, or give it a value")]
    Empty {
        /// Its name.
        variable: String,
    },
    /// A variable is no UTF-8 text.
    #[error("{variable} is not a UTF-8 text")]
    NotText {
        /// Its name.
        variable: String,
    },
    /// A variable is neither `true` nor `false`.
    #[error("{variable} is neither true nor false")]
    NotASwitch {
        /// Its name.
        variable: String,
    },
    /// A variable is no time.
    #[error("{variable} is no time: {cause}")]
    NotATime {
        /// Its name.
        variable: String,
        /// What is wrong.
        cause: TimeParseError,
    },
}

impl Config {
    /// Reads the environment: `LEASEHOLD_URL`, `LEASEHOLD_NAMESPACE` and so on for every field, and for the options of URLs
    /// `LEASEHOLD_CA`, `LEASEHOLD_PASSWORD_FILE` and so on. What is not set is missing.
    ///
    /// # Errors
    ///
    /// A variable that is empty, or no time where a time is expected, or neither `true` nor `false` where one is.
    pub fn from_env() -> Result<Self, ConfigError> {
        let mut url_options = BTreeMap::new();
        for name in URL_OPTIONS {
            url_options.extend(variable(name)?.map(|value| ((*name).to_owned(), value)));
        }
        Ok(Self {
            url: variable("url")?,
            namespace: variable("namespace")?,
            label: variable("label")?,
            anonymous: switch_variable("anonymous")?,
            watchdog: time_variable("watchdog")?,
            outage_limit: time_variable("outage_limit")?,
            warn_wait: time_variable("warn_wait")?,
            warn_hold: time_variable("warn_hold")?,
            connect_timeout: time_variable("connect_timeout")?,
            response_timeout: time_variable("response_timeout")?,
            linger: time_variable("linger")?,
            token_retention: time_variable("token_retention")?,
            url_options,
        })
    }

    /// These settings, and what is missing here from `weaker`. A URL brings the URL options of its own source: those of a weaker
    /// source are about another URL.
    #[must_use]
    pub fn or(self, weaker: Self) -> Self {
        let url_options = if self.url.is_some() {
            self.url_options
        } else {
            weaker.url_options.into_iter().chain(self.url_options).collect()
        };
        Self {
            url: self.url.or(weaker.url),
            namespace: self.namespace.or(weaker.namespace),
            label: self.label.or(weaker.label),
            anonymous: self.anonymous.or(weaker.anonymous),
            watchdog: self.watchdog.or(weaker.watchdog),
            outage_limit: self.outage_limit.or(weaker.outage_limit),
            warn_wait: self.warn_wait.or(weaker.warn_wait),
            warn_hold: self.warn_hold.or(weaker.warn_hold),
            connect_timeout: self.connect_timeout.or(weaker.connect_timeout),
            response_timeout: self.response_timeout.or(weaker.response_timeout),
            linger: self.linger.or(weaker.linger),
            token_retention: self.token_retention.or(weaker.token_retention),
            url_options,
        }
    }

    /// The URL with its options.
    #[must_use]
    pub fn full_url(&self) -> Option<String> {
        let mut url = self.url.as_deref()?.trim().to_owned();
        let fragment = url.find('#').map(|at| url.split_off(at)).unwrap_or_default();
        let query = url.split_once('?').map_or("", |(_, query)| query).to_owned();
        let is_given = |name: &str| query.split('&').any(|part| part.split('=').next() == Some(name));
        for (name, value) in self.url_options.iter().filter(|(name, _)| !is_given(name)) {
            url.push(if url.contains('?') { '&' } else { '?' });
            url.push_str(name);
            url.push('=');
            for byte in value.bytes() {
                if byte.is_ascii_alphanumeric() || b"-._~/:".contains(&byte) {
                    url.push(byte.into());
                } else {
                    let _ = write!(url, "%{byte:02X}");
                }
            }
        }
        Some(url + &fragment)
    }

    /// The options of a client with these settings: `.await` it, or add what only the program knows.
    ///
    /// # Errors
    ///
    /// [`ConfigError::NoUrl`] if there is no URL.
    pub fn connect(&self) -> Result<ConnectOptions, ConfigError> {
        let mut options = ConnectOptions::new(self.full_url().ok_or(ConfigError::NoUrl)?);
        if let Some(namespace) = &self.namespace {
            options = options.namespace(namespace);
        }
        if let Some(label) = &self.label {
            options = options.label(label);
        }
        if self.anonymous == Some(true) {
            options = options.anonymous();
        }
        if let Some(watchdog) = self.watchdog {
            options = options.watchdog(watchdog);
        }
        if let Some(outage_limit) = self.outage_limit {
            options = options.outage_limit(outage_limit);
        }
        if let Some(warn_wait) = self.warn_wait {
            options = options.warn_wait(warn_wait);
        }
        if let Some(warn_hold) = self.warn_hold {
            options = options.warn_hold(warn_hold);
        }
        if let Some(connect_timeout) = self.connect_timeout {
            options = options.connect_timeout(connect_timeout);
        }
        if let Some(response_timeout) = self.response_timeout {
            options = options.response_timeout(response_timeout);
        }
        if let Some(linger) = self.linger {
            options = options.linger(linger);
        }
        if let Some(token_retention) = self.token_retention {
            options = options.token_retention(token_retention);
        }
        Ok(options)
    }
}

impl fmt::Debug for Config {
    /// Without the URL and its options, which may have passwords in them.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Config")
            .field("namespace", &self.namespace)
            .field("label", &self.label)
            .field("watchdog", &self.watchdog)
            .field("outage_limit", &self.outage_limit)
            .finish_non_exhaustive()
    }
}

/// The variable of a setting.
fn variable(name: &str) -> Result<Option<String>, ConfigError> {
    let variable = format!("LEASEHOLD_{}", name.to_ascii_uppercase());
    match env::var(&variable) {
        Ok(value) if value.is_empty() => Err(ConfigError::Empty { variable }),
        Ok(value) => Ok(Some(value)),
        Err(VarError::NotPresent) => Ok(None),
        Err(VarError::NotUnicode(_)) => Err(ConfigError::NotText { variable }),
    }
}

fn switch_variable(name: &str) -> Result<Option<bool>, ConfigError> {
    let not_a_switch =
        || ConfigError::NotASwitch { variable: format!("LEASEHOLD_{}", name.to_ascii_uppercase()) };
    variable(name)?.map(|text| text.parse().map_err(|_| not_a_switch())).transpose()
}

fn time_variable(name: &str) -> Result<Option<Duration>, ConfigError> {
    let parse = |text: String| {
        let not_a_time = |cause| ConfigError::NotATime {
            variable: format!("LEASEHOLD_{}", name.to_ascii_uppercase()),
            cause,
        };
        parse_time(&text).map_err(not_a_time)
    };
    variable(name)?.map(parse).transpose()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(url: Option<&str>, options: &[(&str, &str)]) -> Config {
        let url_options = options.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect();
        Config { url: url.map(Into::into), url_options, ..Config::default() }
    }

    #[test]
    fn a_stronger_source_wins_and_brings_the_options_of_its_url() {
        let second = Duration::from_secs(1);
        let mut strong = config(Some("redis://strong"), &[]);
        strong.watchdog = Some(second);
        let mut weak = config(Some("rediss://weak"), &[("ca", "/ca.pem"), ("verify", "ca")]);
        (weak.watchdog, weak.label) = (Some(second * 9), Some("weak".into()));
        let both = strong.or(weak.clone());
        assert_eq!((both.watchdog, both.label.as_deref()), (Some(second), Some("weak")));
        assert_eq!(both.full_url().unwrap(), "redis://strong");

        let both = config(None, &[("ca", "/other.pem")]).or(weak);
        assert_eq!(both.full_url().unwrap(), "rediss://weak?ca=/other.pem&verify=ca");
    }

    #[test]
    fn options_are_added_to_the_url_unless_it_has_them() {
        for (url, full) in [
            ("rediss://h", "rediss://h?ca=/a%20b%26.pem"),
            ("rediss://h?verify=ca", "rediss://h?verify=ca&ca=/a%20b%26.pem"),
            ("rediss://h?ca=/own", "rediss://h?ca=/own"),
            (" rediss://h\n", "rediss://h?ca=/a%20b%26.pem"),
            ("rediss+sentinel://h#main", "rediss+sentinel://h?ca=/a%20b%26.pem#main"),
        ] {
            assert_eq!(config(Some(url), &[("ca", "/a b&.pem")]).full_url().unwrap(), full);
        }
        assert_eq!(config(None, &[]).connect().unwrap_err(), ConfigError::NoUrl);
    }

    #[test]
    fn no_secret_is_printed() {
        let config = config(Some("redis://:secret@h"), &[("sentinel_password", "secret")]);
        assert!(!format!("{config:?}").contains("secret"));
    }
}
