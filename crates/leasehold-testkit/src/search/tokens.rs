//! Whether tokens increase.

use std::collections::BTreeMap;

use tokio::time::Instant;

/// The tokens of each name.
#[derive(Debug, Default)]
pub(super) struct Tokens {
    /// When each token was seen that was greater than all before.
    greatest: BTreeMap<String, Vec<(Instant, u64)>>,
    /// When the server lost all of them.
    begun: Option<Instant>,
}

impl Tokens {
    /// Records a token of a request of that time. Returns a token that was seen before the request and is not smaller.
    pub(super) fn granted(&mut self, name: &str, requested: Instant, token: u64) -> Option<u64> {
        if self.begun.is_some_and(|begun| requested <= begun) {
            return None;
        }
        let seen = self.greatest.entry(name.to_owned()).or_default();
        let before = seen.iter().rev().find(|(at, _)| *at < requested).map(|(_, greatest)| *greatest);
        if seen.last().is_none_or(|(_, greatest)| *greatest < token) {
            seen.push((Instant::now(), token));
        }
        before.filter(|before| *before >= token)
    }

    /// The server restarts without its tokens.
    pub(super) fn begin_anew(&mut self, now: Instant) {
        self.greatest.clear();
        self.begun = Some(now);
    }
}
