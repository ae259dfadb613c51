//! The fenced blocks of the documents. The second word of a block says what is done with it:
//!
//! - `run`: a Rust program or lines of a shell, which `cargo xtask package` runs with the packages.
//! - `compile`: the same without running it; or the lines of `Cargo.toml` that those programs are built with.
//! - `output`: what the block above it prints. `…` stands for anything.
//! - `elsewhere`: a picture, or what cannot run here; a comment inside says why.

use std::{fs, path::Path};

use crate::command;

/// What `elsewhere` has to say.
const REASON: &str = "not run by the tests: ";

/// What is done with a block.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Use {
    Run,
    Compile,
    Output,
    Elsewhere,
}

/// One block.
#[derive(Debug)]
pub(crate) struct Block {
    /// Where it is: the file, and the line of its first mark.
    pub(crate) place: String,
    pub(crate) language: String,
    pub(crate) use_: Use,
    pub(crate) text: String,
}

/// Checks that every block says what is done with it.
///
/// # Errors
///
/// With each block that does not.
pub(crate) fn check() -> Result<(), String> {
    println!("{} blocks", all()?.len());
    Ok(())
}

/// The blocks of all documents.
///
/// # Errors
///
/// With each block that does not say what is done with it.
pub(crate) fn all() -> Result<Vec<Block>, String> {
    let files = command::output(
        "git ls-files README.md docs/*.md docs/**/*.md crates/*/README.md examples/README.md examples/*/README.md",
    )?;
    let (mut blocks, mut errors) = (Vec::new(), Vec::new());
    // The packages have links to documents of the repository.
    for file in String::from_utf8_lossy(&files).lines().filter(|file| !Path::new(file).is_symlink()) {
        let text = fs::read_to_string(file).map_err(|error| format!("{file}: {error}"))?;
        for block in read(file, &text) {
            match block {
                Ok(block) => blocks.push(block),
                Err(error) => errors.push(error),
            }
        }
    }
    for pair in blocks.windows(2) {
        let file = |block: &Block| block.place.split_once(':').map(|(file, _)| file.to_owned());
        if pair[1].use_ == Use::Output && (pair[0].use_ != Use::Run || file(&pair[0]) != file(&pair[1])) {
            errors.push(format!("{}: no `run` above this `output`", pair[1].place));
        }
    }
    if errors.is_empty() { Ok(blocks) } else { Err(errors.join("\n")) }
}

fn read(file: &str, text: &str) -> Vec<Result<Block, String>> {
    let mut blocks = Vec::new();
    let mut lines = text.lines().enumerate();
    while let Some((number, line)) = lines.next() {
        if let Some(info) = line.trim_start().strip_prefix("```") {
            let inside =
                lines.by_ref().map(|(_, line)| line).take_while(|line| !line.trim_start().starts_with("```"));
            let text = inside.collect::<Vec<_>>().join("\n");
            blocks.push(block(format!("{file}:{}", number + 1), info, text));
        }
    }
    blocks
}

fn block(place: String, info: &str, text: String) -> Result<Block, String> {
    let (language, word) = info.split_once(' ').unwrap_or((info, ""));
    let use_ = match word {
        "run" => Use::Run,
        "compile" => Use::Compile,
        "output" => Use::Output,
        "elsewhere" => Use::Elsewhere,
        _ => {
            return Err(format!(
                "{place}: write `run`, `compile`, `output` or `elsewhere` behind the language"
            ));
        }
    };
    let error = match (use_, language) {
        (Use::Run, "rust" | "sh")
        | (Use::Compile, "rust" | "toml")
        | (Use::Output | Use::Elsewhere, "text") => None,
        (Use::Elsewhere, "rust") => Some("a Rust program can be run or compiled".into()),
        (Use::Elsewhere, _) if text.contains(REASON) => None,
        (Use::Elsewhere, _) => Some(format!("say why in a comment: \"{REASON}…\"")),
        _ => Some(format!("{language} cannot be `{word}`")),
    };
    if let Some(error) = error {
        return Err(format!("{place}: {error}"));
    }
    Ok(Block { place, language: language.to_owned(), use_, text })
}

impl Block {
    /// A name for a program: `docs_redisson_50`.
    pub(crate) fn name(&self) -> String {
        self.place.replace(".md", "").replace(|c: char| !c.is_ascii_alphanumeric(), "_").to_lowercase()
    }

    /// A program as rustdoc compiles it: lines that begin with `# ` are hidden in the documentation only.
    pub(crate) fn program(&self) -> String {
        let lines = self.text.lines().map(|line| line.strip_prefix("# ").unwrap_or(line));
        lines.filter(|line| *line != "#").collect::<Vec<_>>().join("\n")
    }

    /// Whether this is what was printed.
    pub(crate) fn matches(&self, printed: &str) -> bool {
        let mut parts = self.text.trim().split('…');
        let printed = printed.trim();
        let Some(mut rest) = parts.next().and_then(|first| printed.strip_prefix(first)) else { return false };
        let parts: Vec<_> = parts.collect();
        for part in &parts {
            match rest.find(part) {
                Some(at) => rest = &rest[at + part.len()..],
                None => return false,
            }
        }
        // What ends with `…` may end with anything.
        rest.is_empty() || parts.last().is_some_and(|last| last.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn errors(text: &str) -> Vec<String> {
        read("a.md", text).into_iter().filter_map(Result::err).collect()
    }

    #[test]
    fn a_block_without_its_use_or_its_reason_is_named() {
        assert!(errors("```rust run\nfn main() {}\n```\n```text elsewhere\n```").is_empty());
        assert_eq!(errors("x\n```rust\n```\n```\n```").len(), 2);
        assert!(errors("x\n```rust\n```")[0].starts_with("a.md:2: "));
        assert_eq!(errors("```java run\n```"), ["a.md:1: java cannot be `run`"]);
        assert_eq!(errors("```sh elsewhere\nx\n```").len(), 1);
        assert!(errors("```sh elsewhere\n# not run by the tests: y\nx\n```").is_empty());
        assert_eq!(errors("```rust elsewhere\n```").len(), 1);
    }

    #[test]
    fn output_is_compared_with_gaps() {
        let output = |text: &str| block("a.md:1".into(), "text output", text.into()).unwrap();
        assert!(output("a\nb").matches("a\nb\n"));
        assert!(!output("a\nb").matches("a\nb\nc"));
        assert!(output("after …").matches("after 3ms"));
        assert!(output("a … c").matches("a b c"));
        assert!(!output("a … c").matches("a b d"));
    }

    #[test]
    fn hidden_lines_are_part_of_a_program() {
        let hidden = block("docs/a.md:7".into(), "rust run", "# fn main() {\nlet x;\n#\n# }".into()).unwrap();
        assert_eq!(hidden.program(), "fn main() {\nlet x;\n}");
        assert_eq!(hidden.name(), "docs_a_7");
    }
}
