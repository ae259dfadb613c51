//! Patterns of names.

use crate::name::Name;

/// A pattern of names within a namespace: `*` stands for any text, `?` for one character, and a backslash takes its meaning from
/// the character behind it. Every other character stands for itself.
#[derive(Debug, Clone)]
pub(crate) struct Pattern {
    namespace: String,
    parts: Vec<Part>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    AnyText,
    AnyChar,
    Char(char),
}

impl Pattern {
    pub(crate) fn new(namespace: &str, text: &str) -> Self {
        let mut parts = Vec::new();
        let mut chars = text.chars();
        while let Some(char) = chars.next() {
            parts.push(match char {
                '*' => Part::AnyText,
                '?' => Part::AnyChar,
                '\\' => Part::Char(chars.next().unwrap_or('\\')),
                other => Part::Char(other),
            });
        }
        Self { namespace: namespace.to_owned(), parts }
    }

    /// The name without the namespace, if it matches.
    pub(crate) fn matched<'a>(&self, name: &'a Name) -> Option<&'a str> {
        name.as_str().strip_prefix(&self.namespace).filter(|rest| self.matches(rest))
    }

    /// What all names that match begin with, and whether that is the only one.
    #[cfg(feature = "etcd")]
    pub(crate) fn prefix(&self) -> (String, bool) {
        let text = self.parts.iter().map_while(|part| match part {
            Part::Char(char) => Some(*char),
            Part::AnyText | Part::AnyChar => None,
        });
        let text: String = self.namespace.chars().chain(text).collect();
        let is_whole = self.parts.iter().all(|part| matches!(part, Part::Char(_)));
        (text, is_whole)
    }

    fn matches(&self, text: &str) -> bool {
        let text: Vec<char> = text.chars().collect();
        let (mut at, mut part) = (0, 0);
        // Where the last `*` is, and from where on it may stand for one character more.
        let mut retry: Option<(usize, usize)> = None;
        loop {
            match self.parts.get(part) {
                Some(Part::AnyText) => {
                    retry = Some((part, at));
                    part += 1;
                    continue;
                }
                Some(Part::AnyChar) if at < text.len() => {
                    (at, part) = (at + 1, part + 1);
                    continue;
                }
                Some(Part::Char(char)) if text.get(at) == Some(char) => {
                    (at, part) = (at + 1, part + 1);
                    continue;
                }
                None if at == text.len() => return true,
                _ => {}
            }
            match &mut retry {
                Some((star, from)) if *from < text.len() => {
                    *from += 1;
                    (at, part) = (*from, *star + 1);
                }
                _ => return false,
            }
        }
    }

    /// A pattern for `SCAN … MATCH` that all of these names match, and perhaps others: there a `?` is one byte.
    #[cfg(feature = "redis")]
    pub(crate) fn for_scan(&self) -> String {
        let parts = self.namespace.chars().map(Part::Char).chain(self.parts.iter().copied());
        let mut text = String::new();
        for part in parts {
            match part {
                Part::AnyText | Part::AnyChar => text.push('*'),
                Part::Char(char) => {
                    if matches!(char, '*' | '?' | '[' | ']' | '\\' | '^') {
                        text.push('\\');
                    }
                    text.push(char);
                }
            }
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matched(pattern: &str, name: &str) -> bool {
        Pattern::new("app:", pattern).matched(&Name::new("app:", name).unwrap()) == Some(name)
    }

    #[test]
    fn a_pattern_matches_whole_names_of_its_namespace() {
        for (pattern, name) in [
            ("*", "a"),
            ("stock:*", "stock:7"),
            ("stock:?", "stock:좌"),
            ("*:7", "stock:7"),
            ("a*b*c", "a-b-bb-c"),
            (r"a\*b", "a*b"),
            ("a[b]", "a[b]"),
            ("a", "a"),
        ] {
            assert!(matched(pattern, name), "{pattern} {name}");
        }
        for (pattern, name) in [
            ("", "a"),
            ("stock", "stock:7"),
            ("stock:?", "stock:77"),
            (r"a\*b", "axb"),
            ("a[b]", "ab"),
            ("a*b*c", "a-c"),
        ] {
            assert!(!matched(pattern, name), "{pattern} {name}");
        }
        let other = Name::new("", "other:a").unwrap();
        assert_eq!(Pattern::new("app:", "*").matched(&other), None);
    }

    #[cfg(feature = "etcd")]
    #[test]
    fn a_pattern_has_the_text_before_its_first_sign_as_prefix() {
        for (pattern, prefix, is_whole) in [
            ("*", "app:", false),
            ("stock:?x", "app:stock:", false),
            (r"a\*b", "app:a*b", true),
            ("", "app:", true),
        ] {
            assert_eq!(Pattern::new("app:", pattern).prefix(), (prefix.to_owned(), is_whole), "{pattern}");
        }
    }

    #[cfg(feature = "redis")]
    #[test]
    fn a_server_gets_a_pattern_with_its_own_signs_escaped() {
        assert_eq!(Pattern::new("a*:", r"b?[c]\*").for_scan(), r"a\*:b*\[c\]\*");
    }
}
