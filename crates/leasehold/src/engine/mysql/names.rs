//! The name of a lock on the server.
//!
//! One rule serves both servers: MySQL takes 64 characters and ignores case, MariaDB takes 192 bytes and does not. A name is used
//! as it is if both servers can tell it from every other name. A longer name, or one with upper case, is cut, and the hash of the
//! whole is put behind it: the same as .NET's `DistributedLock` does, so that its users contend with this library; only names with letters
//! outside of the Basic Multilingual Plane, such as emoji, are hashed here and not there.

use sha2::{Digest, Sha512};

use crate::error::ServerError;

/// The longest name that MySQL takes, in characters.
const LONGEST: usize = 64;
/// The longest exact name, in bytes: the most that MariaDB takes.
const LONGEST_EXACT: usize = 192;
/// How many characters of five bits the hash has.
const HASH: usize = 32;
const ALPHABET: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";

/// How names of locks become names on the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Rule {
    /// In a form that both servers can tell from every other.
    Safe,
    /// As they are, which only MariaDB can do.
    Exact,
}

impl Rule {
    /// The name on the server. An error for one that cannot be there.
    pub(super) fn on_server(self, name: &str) -> Result<String, ServerError> {
        match self {
            Self::Safe => Ok(safe(name)),
            // The server ends a name at a NUL: two names would be one lock.
            Self::Exact if name.len() > LONGEST_EXACT || name.contains('\0') => Err(ServerError::Denied(
                "with exact_names=true a name has at most 192 bytes and no NUL: shorten it, or leave the option out".into(),
            )),
            Self::Exact => Ok(name.to_owned()),
        }
    }
}

/// The name itself, or as much of it in lower case as fits before its hash.
fn safe(name: &str) -> String {
    let mut is_safe = true;
    let mut letters = name.chars().map(|letter| {
        let safe = if is_kept(letter) { lower(letter) } else { '_' };
        is_safe &= safe == letter;
        safe
    });
    let mut cut: String = letters.by_ref().take(LONGEST - HASH).collect();
    let rest: String = letters.collect();
    if is_safe && rest.chars().count() <= HASH {
        return cut + &rest;
    }
    cut.push_str(&hash(name));
    cut
}

/// Whether a letter stays as it is on both servers. One of them ends a name at a NUL, the other one has room for letters of two
/// bytes in UTF-16 only.
fn is_kept(letter: char) -> bool {
    letter != '\0' && letter.len_utf16() == 1
}

/// The lower case of a letter that has one of a single letter.
fn lower(letter: char) -> char {
    letter.to_lowercase().next().unwrap_or(letter)
}

/// The first 160 bits of the hash, five at a time, the lowest bits first.
fn hash(name: &str) -> String {
    let digest = Sha512::digest(name.as_bytes());
    let bit = |at: usize| usize::from(digest[at / 8] >> (at % 8)) & 1;
    let letter = |number: usize| {
        let value: usize = (0..5).map(|place| bit(number * 5 + place) << place).sum();
        char::from(ALPHABET[value])
    };
    (0..HASH).map(letter).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The hashes were computed by another program, from the description of the rule.
    #[test]
    fn a_name_is_used_as_it_is_or_cut_and_hashed_as_by_dotnet() {
        let long = "x".repeat(65);
        let wide = "ü".repeat(64);
        for (name, expected) in [
            ("stock:7", "stock:7"),
            ("größe/ß é", "größe/ß é"),
            (&"x".repeat(64), &"x".repeat(64)),
            (&wide, &wide),
            ("Stock:7", "stock:77rkxw2xdokdfhou263b7smkdg3fsj2gr"),
            (&long, "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxgkd2zq6c6ey6mhs45clqg7vij6ycgo43"),
            ("n😀", "n_tgf7qwzizq4ao62eorcw6l4djrkih6ac"),
            ("a\0b", "a_bikxngypljcw4wdqf7enkyqgbc4i4bsmn"),
        ] {
            assert_eq!(Rule::Safe.on_server(name).unwrap(), expected, "{name:?}");
        }
    }

    #[test]
    fn names_that_differ_differ_on_the_server_in_lower_case_too() {
        let names =
            ["A", "a", "Aa", "aA", "É", "é", "e", "a\0b", "a\0c", "a", "\u{130}", "i", "😀", "😁", "_"];
        let mut seen: Vec<_> = names.iter().map(|name| safe(name).to_lowercase()).collect();
        let distinct = names.iter().collect::<std::collections::BTreeSet<_>>().len();
        seen.sort();
        seen.dedup();
        assert_eq!(seen.len(), distinct);
    }

    #[test]
    fn exact_names_have_the_limits_of_the_server() {
        assert_eq!(Rule::Exact.on_server("Stock:7").unwrap(), "Stock:7");
        assert!(Rule::Exact.on_server(&"ü".repeat(96)).is_ok());
        for name in ["ü".repeat(97), "a\0b".into()] {
            let error = Rule::Exact.on_server(&name).unwrap_err().to_string();
            assert!(error.contains("192 bytes"), "{error}");
        }
    }
}
