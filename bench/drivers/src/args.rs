//! The arguments of a driver.

use std::collections::HashMap;
use std::str::FromStr;
use std::time::Duration;

/// Any failure, as text.
pub type Error = Box<dyn std::error::Error + Send + Sync>;

/// The words `key=value` on the command line.
#[derive(Debug, Clone)]
pub struct Args(HashMap<String, String>);

impl Args {
    /// The arguments of this process.
    ///
    /// # Errors
    ///
    /// When a word has no `=`.
    pub fn of_process() -> Result<Self, Error> {
        let pair = |word: String| {
            let (key, value) = word.split_once('=').ok_or_else(|| format!("{word} is not key=value"))?;
            Ok((key.to_owned(), value.to_owned()))
        };
        std::env::args().skip(1).map(pair).collect::<Result<_, Error>>().map(Self)
    }

    /// The value of a key, if it was given.
    #[must_use]
    pub fn text(&self, key: &str) -> Option<&str> {
        self.0.get(key).map(String::as_str)
    }

    /// The value of a key that has to be there.
    ///
    /// # Errors
    ///
    /// When it is not.
    pub fn need(&self, key: &str) -> Result<&str, Error> {
        self.text(key).ok_or_else(|| format!("{key}= is missing").into())
    }

    /// The value of a key as a number, zero unless given.
    ///
    /// # Errors
    ///
    /// When it is none.
    pub fn number<T: FromStr + Default>(&self, key: &str) -> Result<T, Error> {
        self.text(key)
            .map_or(Ok(T::default()), |value| value.parse().map_err(|_| format!("{key}={value}").into()))
    }

    /// The value of a key in milliseconds.
    ///
    /// # Errors
    ///
    /// When it is no number.
    pub fn millis(&self, key: &str) -> Result<Duration, Error> {
        self.number(key).map(Duration::from_millis)
    }

    /// The value of a key in microseconds.
    ///
    /// # Errors
    ///
    /// When it is no number.
    pub fn micros(&self, key: &str) -> Result<Duration, Error> {
        self.number(key).map(Duration::from_micros)
    }

    /// The lease of every lock: much longer than any run, unless the run is about renewals.
    ///
    /// # Errors
    ///
    /// When it is no number.
    pub fn lease(&self) -> Result<Duration, Error> {
        let lease = self.millis("lease_ms")?;
        Ok(if lease.is_zero() { Duration::from_secs(30) } else { lease })
    }
}
