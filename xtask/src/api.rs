//! `cargo xtask api`: the public items of the library, one on each line, against the committed list.
//!
//! They are read from the pages of rustdoc, which have what macros and derives make. Left out are blanket
//! implementations and auto traits except `Send` and `Sync`.

mod foreign;
mod item;

use std::{collections::BTreeSet, fs, path::Path};

use crate::{command, html};

/// The list, which is committed.
const LIST: &str = "crates/leasehold/api.txt";
/// The pages of the library with all features.
const PAGES: &str = "target/doc/leasehold";
const BUILD: &str = "cargo doc -p leasehold --all-features --no-deps";
/// A module that exists in the documentation only.
const GUIDE: &str = "guide/";

/// What `cargo xtask api` takes.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Write the list anew.
    #[arg(long)]
    bless: bool,
}

/// Builds the documentation, then writes or compares the list.
///
/// # Errors
///
/// When the interface differs from the list, or has a type of a dependency.
pub(crate) fn run(args: &Args) -> Result<(), String> {
    command::run(BUILD)?;
    if args.bless {
        let mut text = public_items()?.into_iter().collect::<Vec<_>>().join("\n");
        text.push('\n');
        return fs::write(LIST, text).map_err(|error| format!("{LIST}: {error}"));
    }
    check()
}

/// Compares the list with the documentation that was built last.
///
/// # Errors
///
/// When the interface differs from the list, or has a type of a dependency.
pub(crate) fn check() -> Result<(), String> {
    let committed = read(Path::new(LIST))?;
    let (list, found) = (committed.lines().map(String::from).collect(), public_items()?);
    println!("{} public items, fields, methods and implementations", found.len());
    compare(&list, &found)
}

fn compare(list: &BTreeSet<String>, found: &BTreeSet<String>) -> Result<(), String> {
    let gone = list.difference(found).map(|line| format!("- {line}"));
    let new = found.difference(list).map(|line| format!("+ {line}"));
    let changes: Vec<_> = gone.chain(new).collect();
    if changes.is_empty() {
        return Ok(());
    }
    Err(format!(
        "the public interface is not that of {LIST}:\n{}\n\
         A line with - breaks users: docs/stability.md says when that may be. If the change is meant, or comes from \
         another version of rustdoc:\n    cargo xtask api --bless",
        changes.join("\n")
    ))
}

/// The lines about every public item.
fn public_items() -> Result<BTreeSet<String>, String> {
    let index = read(&Path::new(PAGES).join("all.html"))?;
    let (_, index) = index.split_once("id=\"main-content\"").ok_or("all.html has no content")?;
    let (mut lines, mut foreign) = (BTreeSet::new(), BTreeSet::new());
    for page in html::attributes(index, "href").into_iter().filter(|page| is_item(page)) {
        let item = item::read(page, &read(&Path::new(PAGES).join(page))?)?;
        lines.extend(item.lines);
        foreign.extend(item.foreign.into_iter().map(|(name, line)| format!("{name} in {line}")));
    }
    for (module, text) in re_exports(Path::new(PAGES), "leasehold")? {
        lines.insert(format!("{module}: {text}"));
        if !text.starts_with("pub use leasehold") && !text.starts_with("pub use std::") {
            foreign.insert(format!("{text} in {module}"));
        }
    }
    if foreign.is_empty() {
        return Ok(lines);
    }
    let found: Vec<_> = foreign.into_iter().collect();
    Err(format!(
        "types in the public interface that are neither ours nor of the standard library:\n{}\n\
         A new version of a dependency would be a breaking change. If it is a sealed trait of ours, name it in \
         xtask/src/api/foreign.rs.",
        found.join("\n")
    ))
}

/// Whether an address is the page of an item, such as `limits/constant.LONGEST_NAME.html`.
fn is_item(page: &str) -> bool {
    let name = page.rsplit('/').next().unwrap_or(page);
    !page.starts_with("../") && matches!(name.split('.').collect::<Vec<_>>()[..], [_, _, "html"])
}

/// What the module of this folder and those below re-export without a page of their own.
fn re_exports(folder: &Path, module: &str) -> Result<Vec<(String, String)>, String> {
    let index = read(&folder.join("index.html"))?;
    let uses = index.split("id=\"reexport.").skip(1);
    let uses = uses.filter_map(|use_| html::between(use_, "<code>", "</code>"));
    let mut found: Vec<_> = uses.map(|(text, _)| (module.to_owned(), html::text(text))).collect();
    for link in
        index.split("<a class=\"mod\" href=\"").skip(1).filter_map(|link| link.split_once("index.html"))
    {
        if link.0 != GUIDE {
            let name = link.0.trim_end_matches('/');
            found.extend(re_exports(&folder.join(name), &format!("{module}::{name}"))?);
        }
    }
    Ok(found)
}

fn read(path: &Path) -> Result<String, String> {
    fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_difference_names_each_line_and_the_command_that_accepts_it() {
        let list = |lines: &[&str]| lines.iter().map(|line| (*line).to_owned()).collect();
        assert_eq!(compare(&list(&["a", "b"]), &list(&["a", "b"])), Ok(()));
        let error = compare(&list(&["a", "b"]), &list(&["a", "c"])).unwrap_err();
        assert!(error.contains("\n- b\n+ c\n"), "{error}");
        assert!(error.contains("cargo xtask api --bless"), "{error}");
    }

    #[test]
    fn pages_of_items_are_told_from_others() {
        assert!(is_item("struct.Guard.html") && is_item("limits/constant.LONGEST_NAME.html"));
        assert!(!is_item("index.html") && !is_item("../help.html") && !is_item("#structs"));
    }
}
