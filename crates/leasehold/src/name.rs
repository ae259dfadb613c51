//! Lock names: which names are valid, and why some are refused.

use std::cmp::Ordering;
use std::fmt;
use std::hash::{BuildHasher, BuildHasherDefault, Hash, Hasher, RandomState};
use std::sync::{Arc, LazyLock};

use crate::error::InvalidRequestError;
use crate::limits;

/// The full name of a lock, namespace included. Cheap to clone, to compare and to look up: its hash is computed once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Name {
    // The first to be compared.
    hash: u64,
    text: Arc<str>,
}

/// The same for all names of a process, and different in each process: no caller can choose names that collide. So the
/// order of a table differs, too: no visible behaviour depends on it.
#[expect(clippy::disallowed_methods, reason = "see above")]
static HASHER: LazyLock<RandomState> = LazyLock::new(RandomState::new);

impl Name {
    /// A name and its namespace, as one bytewise key on every engine.
    pub(crate) fn new(namespace: &str, name: &str) -> Result<Self, InvalidRequestError> {
        if name.is_empty() {
            return Err(InvalidRequestError::EmptyName);
        }
        let bytes = namespace.len() + name.len();
        if bytes > limits::LONGEST_NAME {
            return Err(InvalidRequestError::NameTooLong { bytes });
        }
        let full: Arc<str> =
            if namespace.is_empty() { Arc::from(name) } else { Arc::from(format!("{namespace}{name}")) };
        if full.bytes().any(|byte| matches!(byte, b'{' | b'}')) {
            check_braces(&full)?;
        }
        Ok(Self { hash: HASHER.hash_one(&full), text: full })
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.text
    }

    pub(crate) fn hash(&self) -> u64 {
        self.hash
    }
}

impl Hash for Name {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.hash);
    }
}

impl PartialOrd for Name {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Name {
    /// Bytewise, so that all processes agree.
    fn cmp(&self, other: &Self) -> Ordering {
        self.text.cmp(&other.text)
    }
}

/// For tables whose keys are names: uses their stored hash.
pub(crate) type ByName = BuildHasherDefault<AsItIs>;

/// The hasher of [`ByName`].
#[derive(Default)]
pub(crate) struct AsItIs(u64);

impl Hasher for AsItIs {
    /// A name writes its hash as a number. Other bytes are mixed in.
    fn write(&mut self, bytes: &[u8]) {
        self.0 = bytes.iter().fold(self.0, |hash, byte| hash.rotate_left(8) ^ u64::from(*byte));
    }

    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// Refuses a name whose braces would put derived keys into different slots, or make them those of another name.
fn check_braces(name: &str) -> Result<(), InvalidRequestError> {
    if splits_slots(name) {
        return Err(InvalidRequestError::NameSplitsSlots { name: name.chars().take(80).collect() });
    }
    match only_tag(name) {
        Some(tag) => Err(InvalidRequestError::NameIsOnlyATag { tag: tag.chars().take(80).collect() }),
        None => Ok(()),
    }
}

/// Whether the key of this name and the channel derived from it would hash to different cluster slots.
///
/// Redisson wraps a name in braces to derive other names from it, unless the name contains an opening brace
/// already. The slot is computed from the text between the first `{` and the next `}`, if that is not empty.
fn splits_slots(name: &str) -> bool {
    if name.contains('{') { hash_tag(name).is_none() } else { name.contains('}') }
}

/// The tag of a name that is only a tag. The names derived from `{x}` are those derived from `x`, and from no other
/// name: a name with a brace is its own tag.
fn only_tag(name: &str) -> Option<&str> {
    let tag = name.strip_prefix('{')?.strip_suffix('}')?;
    (!tag.contains(['{', '}'])).then_some(tag)
}

fn hash_tag(name: &str) -> Option<&str> {
    let (_, after) = name.split_once('{')?;
    let (tag, _) = after.split_once('}')?;
    (!tag.is_empty()).then_some(tag)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn braces_are_accepted_only_where_all_derived_names_share_a_slot() {
        for fine in ["plain", "a{b}c", "{x}:y", "a{b}{", "{a}}", "{{a}"] {
            assert!(!splits_slots(fine), "{fine}");
        }
        for split in ["a{b", "{}", "x{}y", "x{}{y}", "a}b", "}", "}{"] {
            assert!(splits_slots(split), "{split}");
        }
    }

    #[test]
    fn a_name_is_only_a_hash_tag_if_one_pair_of_braces_encloses_the_whole_name() {
        assert_eq!(only_tag("{x}"), Some("x"));
        for other in ["x", "{x}:y", "a{x}", "{a}{b}", "{{a}", "{a}}", "{{a}}", "{", "}", "{a"] {
            assert_eq!(only_tag(other), None, "{other}");
        }
    }

    #[test]
    fn the_namespace_is_part_of_the_name() {
        assert_eq!(Name::new("app:", "a").unwrap().as_str(), "app:a");
        assert!(matches!(Name::new("app:", ""), Err(InvalidRequestError::EmptyName)));
        assert!(matches!(Name::new("app{", "a"), Err(InvalidRequestError::NameSplitsSlots { .. })));
        let longest = limits::LONGEST_NAME - "app:".len();
        assert!(Name::new("app:", &"x".repeat(longest)).is_ok());
        assert!(matches!(
            Name::new("app:", &"x".repeat(longest + 1)),
            Err(InvalidRequestError::NameTooLong { .. })
        ));
    }
}
