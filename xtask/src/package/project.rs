//! A new project outside of the workspace, whose dependencies are the archives.

use std::{
    env, fs,
    hash::{DefaultHasher, Hash, Hasher},
    path::{Path, PathBuf},
};

use super::{PROFILE, Package};
use crate::command;

/// Where the documentation is built: not where that of the workspace is.
const DOCUMENTATION: &str = "target/package/documentation";

/// Unpacks the archives, runs the first program of the README, and builds the documentation of the library.
///
/// # Errors
///
/// When a package does not work by itself.
pub(super) fn run(packages: &[Package]) -> Result<(), String> {
    let folder = folder()?;
    let done = in_folder(&folder, packages);
    let removed = fs::remove_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()));
    done.and(removed)
}

fn in_folder(folder: &Path, packages: &[Package]) -> Result<(), String> {
    let shown = folder.display();
    for package in packages {
        command::run(&format!("tar -xzf target/package/{}.crate -C {shown}", package.folder()))?;
    }
    let readme = read("README.md")?;
    let program = block(&readme, "rust").ok_or("README.md has no Rust program")?;
    write(folder, "project/src/main.rs", program)?;
    write(folder, "project/Cargo.toml", &manifest(&readme, packages)?)?;
    // The versions that the tests use: no release of a dependency breaks a run.
    write(folder, "project/Cargo.lock", &read("Cargo.lock")?)?;
    command::run(&format!(
        "{PROFILE} cargo run --quiet --manifest-path {shown}/project/Cargo.toml --target-dir target"
    ))?;

    let library = packages.iter().find(|package| package.name == "leasehold").ok_or("no `leasehold`")?;
    command::run(&format!(
        "RUSTDOCFLAGS=-Dwarnings cargo doc --quiet --manifest-path {shown}/{}/Cargo.toml --all-features --no-deps \
         --target-dir {DOCUMENTATION}",
        library.folder()
    ))
}

/// The manifest of a user: the lines of the README, and the archives in place of a registry.
fn manifest(readme: &str, packages: &[Package]) -> Result<String, String> {
    let dependencies = block(readme, "toml").ok_or("README.md has no dependencies")?;
    let lines = dependencies.lines().map(|line| {
        let package = packages.iter().find(|package| line.starts_with(&format!("{} = ", package.name)));
        package.map_or(line.to_owned(), |package| format!("{} = \"{}\"", package.name, package.version))
    });
    let patch = |package: &Package| format!("{} = {{ path = \"../{}\" }}", package.name, package.folder());
    let mut text: Vec<_> =
        ["[package]", "name = \"new-project\"", "version = \"0.0.0\"", "edition = \"2024\""]
            .map(String::from)
            .into();
    text.extend(lines);
    text.push("[patch.crates-io]".into());
    text.extend(packages.iter().map(patch));
    Ok(text.join("\n"))
}

/// The first fenced block of a language.
fn block<'a>(text: &'a str, language: &str) -> Option<&'a str> {
    let start = format!("\n```{language}");
    let (_, rest) = text.split_once(&*start)?;
    let (_, rest) = rest.split_once('\n')?;
    Some(rest.split_once("\n```")?.0)
}

/// A new folder outside of the workspace. Its name is the same in each run, so that cargo builds the project once.
fn folder() -> Result<PathBuf, String> {
    let here = env::current_dir().map_err(|error| format!("no current folder: {error}"))?;
    let mut hasher = DefaultHasher::new();
    here.hash(&mut hasher);
    let folder = env::temp_dir().join(format!("leasehold-package-{:016x}", hasher.finish()));
    // A run that was ended has left it.
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(folder.join("project/src"))
        .map_err(|error| format!("{}: {error}", folder.display()))?;
    Ok(folder)
}

fn read(file: &str) -> Result<String, String> {
    fs::read_to_string(file).map_err(|error| format!("{file}: {error}"))
}

fn write(folder: &Path, file: &str, text: &str) -> Result<(), String> {
    fs::write(folder.join(file), text).map_err(|error| format!("{file}: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_is_found_whatever_else_its_first_line_says() {
        let text = "a\n```sh\nb\n```\n```rust run\nc\nd\n```\n";
        assert_eq!(block(text, "rust"), Some("c\nd"));
        assert_eq!(block(text, "toml"), None);
    }
}
