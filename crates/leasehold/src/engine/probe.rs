//! Questions to a server that are not about a lock, for a diagnosis.

/// A request that changes nothing but, for a moment, a key of its own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Probe {
    /// The reply to `HELLO`, as fields.
    Hello,
    /// What the server says about itself, as fields.
    Info,
    /// A setting, as a field.
    Setting(&'static str),
    /// The number that the server has given to this connection.
    ConnectionId,
    /// By how many milliseconds the clock of the server is ahead of ours.
    ClockOffset,
    /// A part of the keys from this cursor on: how many of them are counters of tokens.
    TokenKeys(u64),
    /// Issues a fencing token of this name and deletes its counter, in one step.
    Mint(String),
}

/// The reply to a [`Probe`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Probed {
    Fields(Vec<(String, String)>),
    Number(i64),
    /// The next cursor, zero at the end, and the number of keys that were found.
    Found(u64, usize),
}

impl Probed {
    /// The value of a field.
    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        let Self::Fields(fields) = self else { return None };
        fields.iter().find(|(field, _)| field == name).map(|(_, value)| value.as_str())
    }

    pub(crate) fn number(&self) -> Option<i64> {
        match self {
            Self::Number(number) => Some(*number),
            _ => None,
        }
    }
}
