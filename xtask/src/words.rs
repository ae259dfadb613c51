//! The words that the sources and documents no longer use, and what to write instead.

use std::process::Command;

/// One pattern and its replacement on each line. The changelog may name what was renamed.
const WORDS: &str = include_str!("../words.txt");
const EXEMPT: &[&str] = &[":!xtask/words.txt", ":!CHANGELOG.md", ":!LICENSE-*"];

/// Finds retired words in the files that git tracks.
///
/// # Errors
///
/// With each place, and what to write there.
pub(crate) fn check() -> Result<(), String> {
    let mut found = Vec::new();
    for (pattern, instead) in entries(WORDS) {
        let grep = Command::new("git")
            .args(["grep", "-nwIE", pattern, "--", "."])
            .args(EXEMPT)
            .output()
            .map_err(|error| format!("cannot run git: {error}"))?;
        match grep.status.code() {
            Some(0) => {
                let places = String::from_utf8_lossy(&grep.stdout);
                found.extend(places.lines().map(|place| format!("{place}\n    write: {instead}")));
            }
            // Nothing was found.
            Some(1) => {}
            _ => return Err(format!("git grep {pattern:?}: {}", String::from_utf8_lossy(&grep.stderr))),
        }
    }
    if found.is_empty() {
        Ok(())
    } else {
        Err(format!("retired words of xtask/words.txt:\n{}", found.join("\n")))
    }
}

fn entries(words: &str) -> impl Iterator<Item = (&str, &str)> {
    let lines = words.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines.map(|line| line.split_once('\t').unwrap_or((line, "another word")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_retired_word_has_a_replacement_and_is_listed_once() {
        let mut patterns: Vec<_> = entries(WORDS).map(|(pattern, _)| pattern).collect();
        assert!(patterns.len() > 50, "{patterns:?}");
        assert!(entries(WORDS).all(|(pattern, instead)| !pattern.is_empty() && instead != "another word"));
        patterns.sort_unstable();
        assert!(patterns.windows(2).all(|pair| pair[0] != pair[1]), "{patterns:?}");
    }
}
