//! `cargo xtask lines`: how many lines of code the library has.

mod blank;
mod tests_only;

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

use self::{blank::blank_comments, tests_only::blank_tests};

/// The library's sources, in its repository.
const SOURCES: &str = "crates/leasehold/src";
/// A file or a folder of this name simulates a store, and is not counted.
const SIMULATION: &str = "sim";

/// What `cargo xtask lines` takes.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Another checkout of this repository, instead of this one.
    #[arg(value_parser = checkout)]
    checkout: Option<PathBuf>,
}

/// The sources of a checkout, relative to the directory where the command was called.
fn checkout(text: &str) -> Result<PathBuf, String> {
    let sources = Path::new(text).join(SOURCES);
    sources.canonicalize().map_err(|error| format!("{}: {error}", sources.display()))
}

/// Counts the lines that have code on them, by top-level module.
///
/// Comments, blank lines, items that are only compiled for tests, files that are not Rust and simulations do not count.
///
/// # Errors
///
/// When a file cannot be read.
pub(crate) fn run(args: &Args) -> Result<(), String> {
    let sources = args.checkout.clone().unwrap_or_else(|| SOURCES.into());
    let modules = count(&files(&sources)?);
    for (module, lines) in &modules {
        println!("{module:<20} {lines:>6}");
    }
    println!("{:<20} {:>6}", "total", modules.values().sum::<usize>());
    Ok(())
}

/// The Rust files of a folder by their path in it, with their text.
fn files(folder: &Path) -> Result<BTreeMap<PathBuf, String>, String> {
    let mut files = BTreeMap::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(next) = folders.pop() {
        let entries = fs::read_dir(&next).map_err(|error| format!("{}: {error}", next.display()))?;
        for path in entries.filter_map(|entry| entry.ok().map(|entry| entry.path())) {
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let text =
                    fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
                files.insert(path.strip_prefix(folder).unwrap_or(&path).to_owned(), text);
            }
        }
    }
    Ok(files)
}

/// The lines of each top-level module.
fn count(files: &BTreeMap<PathBuf, String>) -> BTreeMap<String, usize> {
    let (mut code, mut only_for_tests) = (Vec::new(), BTreeSet::new());
    for (path, text) in files {
        let (text, modules) = blank_tests(&blank_comments(text));
        only_for_tests.extend(modules.iter().map(|module| folder_of_children(path).join(module)));
        code.push((path, text));
    }
    let mut lines = BTreeMap::new();
    for (path, text) in code {
        let module = path.with_extension("");
        let is_simulation = module.iter().any(|part| part == SIMULATION);
        let is_test = only_for_tests.iter().any(|test| module.starts_with(test));
        if is_simulation || is_test {
            continue;
        }
        let top = module.iter().next().unwrap_or_default().to_string_lossy().into_owned();
        *lines.entry(top).or_default() += text.lines().filter(|line| !line.trim().is_empty()).count();
    }
    lines
}

/// The folder of the modules that a file declares.
fn folder_of_children(file: &Path) -> PathBuf {
    let folder = file.parent().unwrap_or(Path::new(""));
    match file.file_stem().and_then(|stem| stem.to_str()) {
        Some("lib" | "mod") => folder.to_owned(),
        _ => file.with_extension(""),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_compiled_for_users_are_counted_by_module() {
        let files = [
            ("lib.rs", "//! Docs.\n\nmod a;\n#[cfg(test)]\nmod checks;\n"),
            ("a.rs", "mod b;\n#[cfg(all(test, feature = \"redis\"))]\nmod model;\nfn f() {}\n"),
            ("a/b.rs", "/// Docs.\nfn g() {\n    // Why.\n    1;\n}\n"),
            ("a/model.rs", "fn h() {}\n"),
            ("a/model/world.rs", "fn i() {}\n"),
            ("a/sim/mod.rs", "fn j() {}\n"),
            ("checks.rs", "fn k() {}\n"),
            ("sim.rs", "fn l() {}\n"),
        ];
        let files = files.map(|(path, text)| (PathBuf::from(path), text.to_owned()));
        let lines = count(&BTreeMap::from(files));
        assert_eq!(lines, BTreeMap::from([("a".into(), 2 + 3), ("lib".into(), 1)]));
    }
}
