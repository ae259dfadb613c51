//! Mutations of texts: the keys on a server, and the scripts that change them.
//!
//! Every mutation of `xtask/mutants.txt` is made alone in a copy of the tree, and the tests that should detect it run there.
//! The tree itself is never changed.

use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use super::{Ended, LIMIT, ended, start};
use crate::{command, step::Steps};

const LIST: &str = "xtask/mutants.txt";
/// The copy, with a target directory of its own.
const COPY: &str = "target/mutants";
/// One way to break the library, and the tests that should detect it.
#[derive(Debug, Default, PartialEq, Eq)]
struct Mutation {
    name: String,
    file: String,
    from: String,
    to: String,
    /// The arguments after `cargo test --all-features`.
    test: String,
}

/// Makes each mutation in turn.
///
/// # Errors
///
/// When a mutant survives its tests, does not build, or cannot be made because its text no longer exists.
pub(super) fn run(filters: &[String]) -> Result<(), String> {
    let list = fs::read_to_string(LIST).map_err(|error| format!("{LIST}: {error}"))?;
    let mut mutations = parse(&list)?;
    if !filters.is_empty() {
        let is_in = |text: &str| filters.iter().any(|filter| text.contains(filter.as_str()));
        mutations.retain(|mutation| is_in(&mutation.name) || is_in(&mutation.file));
    }
    // Before anything is built: an outdated list is fixed first.
    let stale: Vec<_> = mutations.iter().filter_map(|mutation| mutation.apply().err()).collect();
    if !stale.is_empty() {
        return Err(stale.join("\n"));
    }
    copy_tree()?;
    let mut steps = Steps::default();
    for mutation in &mutations {
        steps.run(&mutation.name, || mutation.is_noticed());
    }
    steps.finish()
}

impl Mutation {
    /// The text of the file with the mutation.
    fn apply(&self) -> Result<String, String> {
        let Self { name, file, from, to, .. } = self;
        let text = fs::read_to_string(file).map_err(|error| format!("{name}: {file}: {error}"))?;
        match text.matches(from.as_str()).count() {
            1 => Ok(text.replace(from.as_str(), to)),
            count => Err(format!("{name}: {file} has {count} times: {from}")),
        }
    }

    fn is_noticed(&self) -> Result<(), String> {
        let mutated = self.apply()?;
        let file = Path::new(COPY).join(&self.file);
        let write =
            |text: &str| fs::write(&file, text).map_err(|error| format!("{}: {error}", file.display()));
        let original = fs::read_to_string(&file).map_err(|error| format!("{}: {error}", file.display()))?;
        write(&mutated)?;
        let passed = passes(&self.test);
        write(&original)?;
        if passed? { Err(format!("survives `{}`", self.test)) } else { Ok(()) }
    }
}

/// Whether these tests pass in the copy within the time limit.
fn passes(test: &str) -> Result<bool, String> {
    let (build, filter) = test.split_once(" -- ").unwrap_or((test, ""));
    let cargo = |words: &str, limit| {
        let mut cargo = command::parse(&format!("cargo test --all-features {words}"));
        cargo.current_dir(COPY).env_remove("CARGO_TARGET_DIR");
        ended(start(cargo, &format!("{COPY}/output.txt"))?, limit)
    };
    if cargo(&format!("{build} --no-run"), Duration::MAX)? != Ended::Well {
        return Err(format!("does not build, see {COPY}/output.txt"));
    }
    Ok(cargo(&format!("{build} -- {filter}"), LIMIT)? == Ended::Well)
}

/// Synchronises the copy with the tree. Unchanged files are not touched, so that they are not rebuilt.
fn copy_tree() -> Result<(), String> {
    let copy = |file: &str| -> std::io::Result<()> {
        let to = Path::new(COPY).join(file);
        let bytes = fs::read(file)?;
        if fs::read(&to).is_ok_and(|before| before == bytes) {
            return Ok(());
        }
        fs::create_dir_all(to.parent().unwrap_or(&to))?;
        // With its permissions: some are programs.
        fs::copy(file, &to).map(drop)
    };
    let list = |line: &str| -> Result<Vec<String>, String> {
        let listed = String::from_utf8_lossy(&command::output(line)?).into_owned();
        Ok(listed.lines().map(Into::into).collect())
    };
    let files = list("git ls-files --cached --others --exclude-standard")?;
    for file in files.iter().filter(|file| Path::new(file).is_file()) {
        copy(file).map_err(|error| format!("{file} cannot be copied: {error}"))?;
    }
    // The tests expect the servers and the Java side there.
    let root = std::env::current_dir().map_err(|error| format!("no current directory: {error}"))?;
    for name in ["tools", "interop"] {
        let link = PathBuf::from(COPY).join("target").join(name);
        if fs::symlink_metadata(&link).is_err() {
            let made = fs::create_dir_all(Path::new(COPY).join("target"))
                .and_then(|()| link_to(&root.join("target").join(name), &link));
            made.map_err(|error| format!("{}: {error}", link.display()))?;
        }
    }
    Ok(())
}

#[cfg(unix)]
fn link_to(what: &Path, link: &Path) -> std::io::Result<()> {
    std::os::unix::fs::symlink(what, link)
}

#[cfg(not(unix))]
fn link_to(_: &Path, _: &Path) -> std::io::Result<()> {
    Err(std::io::Error::other("this needs symbolic links"))
}

/// Reads the list: a name after `==`, and then a line each of `file`, `from`, `to` and `test`. `#` begins a remark.
fn parse(list: &str) -> Result<Vec<Mutation>, String> {
    let mut mutations: Vec<Mutation> = Vec::new();
    for (number, line) in list.lines().enumerate() {
        let wrong = || format!("{LIST}:{}: {line}", number + 1);
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        if word.is_empty() || word == "#" {
            continue;
        }
        if word == "==" {
            mutations.push(Mutation { name: rest.into(), ..Mutation::default() });
            continue;
        }
        let Mutation { file, from, to, test, .. } = mutations.last_mut().ok_or_else(wrong)?;
        let field = match word {
            "file" => file,
            "from" => from,
            "to" => to,
            "test" => test,
            _ => return Err(wrong()),
        };
        *field = rest.trim_start().into();
    }
    let unfinished = mutations.iter().find(|mutation| {
        [&mutation.name, &mutation.file, &mutation.from, &mutation.test].iter().any(|field| field.is_empty())
    });
    unfinished.map_or(Ok(()), |mutation| Err(format!("{LIST}: {} is not complete", mutation.name)))?;
    Ok(mutations)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_of_mutations_is_parsed() {
        let list = "# A remark.\n\n== a name\nfile a.rs\nfrom  1 + 1\nto    1 - 1\ntest -p a --lib -- b\n";
        let [name, file, from, to, test] =
            ["a name", "a.rs", "1 + 1", "1 - 1", "-p a --lib -- b"].map(String::from);
        assert_eq!(parse(list), Ok(vec![Mutation { name, file, from, to, test }]));
        assert!(parse("file a.rs\n").is_err());
        assert!(parse("== a name\nfile a.rs\n").is_err());
        assert!(parse("== a name\nfoo bar\n").is_err());
    }
}
