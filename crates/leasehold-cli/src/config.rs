//! The settings of the client that the command makes: options over the environment over a file.

use std::path::{Path, PathBuf};
use std::{env, fs, io};

use leasehold::{Config, ConfigError};
use thiserror::Error;

use crate::url::Url;

/// Where the file is in the user's configuration directory. Never in the working directory: a checkout from elsewhere must not
/// decide where locks are.
const OWN_FILE: &str = "leasehold/config.toml";

/// Why there are no settings.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum SettingsError {
    /// The file that was named cannot be read.
    #[error("cannot read the configuration {}: {cause}: check --config or LEASEHOLD_CONFIG", .path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The error of the operating system.
        cause: io::Error,
    },
    /// The file is not TOML, or has values of other types.
    #[error("the configuration {} is malformed: {cause}", .path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// What is wrong, and in which line.
        cause: String,
    },
    /// The environment is malformed.
    #[error(transparent)]
    Environment(#[from] ConfigError),
}

/// The settings from the environment, and what is missing there from the file.
///
/// # Errors
///
/// A file that was named and is not there, or one that is malformed.
pub(crate) fn settings(file: Option<&Path>) -> Result<Config, SettingsError> {
    let environment = Config::from_env()?;
    Ok(match (file, own_file()) {
        (Some(path), _) => environment.or(read(path)?),
        (None, Some(own)) if own.exists() => environment.or(read(&own)?),
        (None, _) => environment,
    })
}

/// The settings with this URL. That of the environment is there already, with its options beside it.
pub(crate) fn with_url(config: Config, given: Option<&Url>) -> Config {
    match given.filter(|url| config.url.as_deref() != Some(url.secret())) {
        Some(url) => {
            let mut by_option = Config::default();
            by_option.url = Some(url.secret().to_owned());
            by_option.or(config)
        }
        None => config,
    }
}

fn own_file() -> Option<PathBuf> {
    let given = env::var_os("XDG_CONFIG_HOME").map(PathBuf::from).filter(|path| path.is_absolute());
    let directory = given.or_else(|| Some(env::home_dir()?.join(".config")))?;
    Some(directory.join(OWN_FILE))
}

fn read(path: &Path) -> Result<Config, SettingsError> {
    let text = fs::read_to_string(path)
        .map_err(|cause| SettingsError::Unreadable { path: path.to_owned(), cause })?;
    toml::from_str(&text).map_err(|error| {
        // Not the line itself, which may have a password in it.
        let line = error.span().map(|span| text[..span.start].matches('\n').count() + 1);
        let line = line.map_or_else(String::new, |line| format!("line {line}: "));
        let message = match error.message().split_once(", expected ") {
            // What it begins with is the value.
            Some((value, expected)) if value.starts_with("invalid") => format!("expected {expected}"),
            _ => error.message().to_owned(),
        };
        SettingsError::Malformed { path: path.to_owned(), cause: format!("{line}{message}") }
    })
}
