//! The password of a client, which no text may repeat.

use std::fmt;
use std::sync::Arc;

use crate::credentials::Credentials;
use crate::mutex::Mutex;

/// The password that was sent last.
#[derive(Clone, Default)]
pub(super) struct Secret(Arc<Mutex<Option<String>>>);

impl Secret {
    pub(super) fn set(&self, credentials: &Credentials) {
        *self.0.lock() = credentials.password.clone().filter(|password| !password.is_empty());
    }

    /// A text of the server, without the password.
    pub(super) fn hidden_in(&self, text: &str) -> String {
        self.0.lock().as_ref().map_or_else(|| text.to_owned(), |password| text.replace(password, "***"))
    }

    /// Whether a text of the server contains the beginning of the password, as a truncated text may.
    pub(super) fn is_repeated_in(&self, text: &str) -> bool {
        let beginning = self.0.lock().as_deref().map(|password| password.chars().take(4).collect::<String>());
        beginning.is_some_and(|beginning| text.contains(&beginning))
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}
