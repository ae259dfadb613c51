//! The features of an engine, and which other engines have those that it lacks.

use std::fmt;

use super::{Kind, schemes};
use crate::error::InvalidRequestError;

/// A feature that not every engine has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Feature {
    /// The primitive of this kind.
    Kind(Kind),
    /// A fencing token with a lock.
    Fenced,
    /// A least time for which a lock stays taken, after its release, too.
    MinHold,
    /// Taking a lock over from its holder.
    Steal,
    /// Freeing a lock in place of its holder.
    ForceUnlock,
    /// From a read lock to a write lock and back, without a gap.
    Upgrade,
    /// The last fencing token of a lock that may be free.
    LastToken,
    /// Writing a value beside its greatest token.
    FencedWrite,
    /// Listing which locks are held.
    List,
}

impl fmt::Display for Feature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Kind(Kind::Lock) => "lock",
            Self::Kind(Kind::Spin) => "spin lock",
            Self::Kind(Kind::Fair) => "fair lock",
            Self::Kind(Kind::SetNx) => "SET NX lock",
            Self::Kind(Kind::Read | Kind::Write) => "read-write lock",
            Self::Kind(Kind::Group) => "group lock",
            Self::Kind(Kind::Semaphore) => "semaphore",
            Self::Kind(Kind::LeasedSemaphore) => "leased semaphore",
            Self::Kind(Kind::Latch) => "latch",
            Self::Fenced => "fencing token",
            Self::MinHold => "hold that outlasts its guard (`min_hold`)",
            Self::Steal => "takeover (`steal`)",
            Self::ForceUnlock => "`force_unlock`",
            Self::Upgrade => "upgrade or downgrade of a read-write lock",
            Self::LastToken => "last fencing token (`last_token`)",
            Self::FencedWrite => "fenced write (`fenced_write`)",
            Self::List => "listing of locks (`list`, `find`)",
        })
    }
}

/// The name of an engine, its clock, and the features that it lacks.
#[derive(Debug)]
pub(crate) struct Profile {
    pub(crate) engine: &'static str,
    /// Replies take real time, so a paused clock jumps over them.
    pub(crate) real_time: bool,
    pub(crate) lacks: &'static [Feature],
}

impl Profile {
    /// Checks that the engine has this feature, before anything is sent.
    pub(crate) fn check(&self, feature: Feature) -> Result<(), InvalidRequestError> {
        if self.lacks.contains(&feature) { Err(self.unsupported(feature)) } else { Ok(()) }
    }

    fn unsupported(&self, feature: Feature) -> InvalidRequestError {
        let has = |other: &&Self| !other.lacks.contains(&feature);
        let can = schemes::profiles().filter(has).map(|other| other.engine).collect();
        InvalidRequestError::Unsupported { what: feature.to_string(), engine: self.engine, can }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each feature, and its word in the table.
    const WORDS: [(Feature, &str); 18] = [
        (Feature::Kind(Kind::Lock), "lock"),
        (Feature::Kind(Kind::Spin), "spin_lock"),
        (Feature::Kind(Kind::Group), "group_lock"),
        (Feature::Kind(Kind::Read), "rw_lock"),
        (Feature::Kind(Kind::Write), "rw_lock"),
        (Feature::Kind(Kind::Fair), "fair_lock"),
        (Feature::Kind(Kind::SetNx), "setnx_lock"),
        (Feature::Kind(Kind::Semaphore), "semaphore"),
        (Feature::Kind(Kind::LeasedSemaphore), "leased_semaphore"),
        (Feature::Kind(Kind::Latch), "latch"),
        (Feature::Fenced, "fenced_lock"),
        (Feature::MinHold, "min_hold"),
        (Feature::Steal, "steal"),
        (Feature::ForceUnlock, "force_unlock"),
        (Feature::Upgrade, "try_upgrade"),
        (Feature::LastToken, "last_token"),
        (Feature::FencedWrite, "fenced_write"),
        (Feature::List, "list"),
    ];

    /// The table of what each engine has: its header and its rows, in cells.
    fn table() -> Vec<Vec<&'static str>> {
        let page = include_str!("../../docs/engines.md");
        let lines: Vec<_> = page.lines().collect();
        let rule = lines.iter().position(|line| line.starts_with("|---|:-:|")).expect("the table is there");
        let rows = lines[rule + 1..].iter().take_while(|line| line.starts_with('|'));
        let cells = |line: &&'static str| line.trim_matches('|').split('|').map(str::trim).collect();
        [lines[rule - 1]].iter().chain(rows).map(cells).collect()
    }

    /// A cell names what it has, or begins with a tick and names what it has not.
    fn has(cell: &str, word: &str) -> bool {
        match cell.strip_prefix('✓') {
            Some(rest) => !rest.contains(word),
            None => cell.contains(word) && !cell.starts_with('–'),
        }
    }

    #[test]
    fn each_engine_lacks_exactly_what_its_column_of_the_table_says() {
        let table = table();
        for profile in schemes::profiles() {
            let is_its = |name: &&str| name.to_lowercase().starts_with(profile.engine);
            let column = table[0].iter().position(is_its).expect("each engine has a column");
            for (feature, word) in WORDS {
                let word = format!("`{word}`");
                let row = table.iter().find(|row| row.iter().any(|cell| cell.contains(&word)));
                let cell = row.unwrap_or_else(|| panic!("{word} is in no row"))[column];
                let claims = !profile.lacks.contains(&feature);
                assert_eq!(claims, has(cell, &word), "{}: {word} is {cell:?} in the table", profile.engine);
            }
            let is_known = |feature: &&Feature| WORDS.iter().any(|(known, _)| known == *feature);
            assert!(profile.lacks.iter().all(|feature| is_known(&feature)), "{:?}", profile.lacks);
        }
    }
}
