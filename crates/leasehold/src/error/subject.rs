//! What an error is about.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::name::Name;

/// What an error is about: the lock, semaphore, latch or key, and the server that keeps it.
///
/// An error is made where its cause is found, and gets its subject where the operation returns it. `Default` is a
/// subject without a name and a server.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Subject(Option<Arc<Parts>>);

#[derive(PartialEq, Eq)]
struct Parts {
    noun: &'static str,
    name: Option<Name>,
    server: Option<Arc<str>>,
}

impl Subject {
    pub(crate) fn new(noun: &'static str, name: Name, server: Option<Arc<str>>) -> Self {
        Self(Some(Arc::new(Parts { noun, name: Some(name), server })))
    }

    /// All locks of a server.
    pub(crate) fn locks_of(server: Option<Arc<str>>) -> Self {
        Self(Some(Arc::new(Parts { noun: "locks", name: None, server })))
    }

    /// A server alone, for the errors of connecting.
    pub(crate) fn server_alone(server: Option<Arc<str>>) -> Self {
        Self(server.map(|server| Arc::new(Parts { noun: "lock", name: None, server: Some(server) })))
    }

    /// The name of the lock, semaphore, latch or key, namespace included; `None` if the error is about no single one, or
    /// the name or the kind was refused.
    #[must_use]
    pub fn name(&self) -> Option<&str> {
        self.0.as_ref()?.name.as_ref().map(Name::as_str)
    }

    /// The URL of the server without credentials; `None` for an engine inside the process.
    #[must_use]
    pub fn server(&self) -> Option<&str> {
        self.0.as_ref()?.server.as_deref()
    }

    /// Sets the subject, unless a more exact one is there.
    pub(crate) fn fill(&mut self, subject: &Self) {
        if self.0.is_none() {
            self.clone_from(subject);
        }
    }

    pub(super) fn noun(&self) -> &'static str {
        self.0.as_ref().map_or("lock", |parts| parts.noun)
    }

    /// What precedes the text of an invalid request: the noun and the name, if there is a name.
    pub(super) fn prefix(&self) -> String {
        self.name().map_or_else(String::new, |name| format!("{} {}: ", self.noun(), Quoted(name)))
    }
}

impl fmt::Display for Subject {
    /// `the lock "job" on redis://127.0.0.1:6379`, as far as it is known.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the {}", self.noun())?;
        if let Some(name) = self.name() {
            write!(f, " {}", Quoted(name))?;
        }
        self.server().map_or(Ok(()), |server| write!(f, " on {server}"))
    }
}

impl fmt::Debug for Subject {
    /// Its text.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Subject({self})")
    }
}

/// A name in quotes: control characters are escaped, and the end of a long name is left out.
pub(crate) struct Quoted<'a>(pub(crate) &'a str);

impl fmt::Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.char_indices().nth(80) {
            Some((end, _)) => write!(f, "\"{}…\"", self.0[..end].escape_debug()),
            None => write!(f, "\"{}\"", self.0.escape_debug()),
        }
    }
}

/// A duration as a text needs it: to a hundredth of a second, below a second to a millisecond.
pub(crate) struct Rounded(pub(crate) Duration);

impl fmt::Display for Rounded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let unit = match self.0 {
            length if length >= Duration::from_secs(1) => 10_000_000,
            length if length >= Duration::from_millis(1) => 1_000_000,
            _ => 1_000,
        };
        let units = (self.0.as_nanos() + unit / 2) / unit;
        let nanos = u64::try_from(units * unit).unwrap_or(u64::MAX);
        write!(f, "{:?}", Duration::from_nanos(nanos))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_subject_shows_what_is_known_of_it() {
        let name = || Name::new("app:", "job").unwrap();
        let server = || Some(Arc::from("redis://host:6379"));
        for (subject, text) in [
            (Subject::default(), "the lock"),
            (Subject::new("latch", name(), None), "the latch \"app:job\""),
            (Subject::new("lock", name(), server()), "the lock \"app:job\" on redis://host:6379"),
            (Subject::server_alone(server()), "the lock on redis://host:6379"),
        ] {
            assert_eq!(subject.to_string(), text);
            assert_eq!(format!("{subject:?}"), format!("Subject({text})"));
        }
    }

    #[test]
    fn a_long_name_is_cut_and_control_characters_are_escaped() {
        assert_eq!(Quoted("a\nb").to_string(), r#""a\nb""#);
        assert_eq!(Quoted(&"ä".repeat(81)).to_string(), format!("\"{}…\"", "ä".repeat(80)));
    }

    #[test]
    fn a_duration_is_rounded_to_what_a_reader_needs() {
        for (nanos, text) in [
            (301_609_185, "302ms"),
            (3_204_900_000, "3.2s"),
            (61_400_000, "61ms"),
            (1_999_999, "2ms"),
            (401_500, "402µs"),
            (0, "0ns"),
            (60_000_000_000, "60s"),
        ] {
            assert_eq!(Rounded(Duration::from_nanos(nanos)).to_string(), text);
        }
    }
}
