//! The fencing tokens of one name.

use crate::engine::Claim;

/// The last token minted.
#[derive(Debug, Default)]
pub(super) struct Tokens(u64);

impl Tokens {
    pub(super) fn last(&self) -> u64 {
        self.0
    }

    /// The next token, if the claim requests one.
    pub(super) fn mint(&mut self, claim: &Claim) -> Option<u64> {
        claim.fenced.then(|| {
            self.0 += 1;
            self.0
        })
    }
}
