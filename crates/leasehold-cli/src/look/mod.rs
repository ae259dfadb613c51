//! The subcommands that look at locks, or free one, without holding any.

pub mod inspect;
pub mod ls;
pub mod unlock;
pub mod wait;
pub mod watch;

mod failure;
mod text;

use leasehold::{Client, ConnectError};

pub use self::failure::LookError;
use crate::config;
use crate::error::Error;
use crate::options::TargetOptions;
use crate::run::RunError;
use crate::url::Url;

/// Where the locks are.
#[derive(Debug)]
struct Target {
    client: Client,
    /// With the directory that `file:` alone means.
    url: Url,
}

impl Target {
    /// Connects, with the settings of `run`.
    async fn connect(options: &TargetOptions) -> Result<Self, Error> {
        let given = Url::given(options.url.as_ref())?;
        let settings = config::settings(options.config.as_deref()).map_err(RunError::from)?;
        let mut settings = config::with_url(settings, given);
        settings.namespace = options.namespace.clone().or(settings.namespace);
        if settings.url.is_none() {
            settings.url = Some(Url::own_files().secret().to_owned());
            settings.url_options.clear();
        }
        let url = settings.full_url().map_or_else(Url::own_files, Url::from);
        if url.is_memory() {
            return Err(LookError::Memory.into());
        }
        let connect = settings.connect().unwrap_or_else(|_| Client::connect(url.secret()));
        let connect = if options.allow_unverified_tls { connect.allow_unverified_tls() } else { connect };
        let client = connect.label("leasehold-look").anonymous().await.map_err(|error| match error {
            ConnectError::Url(_) | ConnectError::Invalid(_) => Error::Connect(error),
            other => Error::Unreachable(other.into()),
        })?;
        Ok(Self { client, url: url.resolved() })
    }
}
