//! Another checkout of this repository, whose library this one is compared with.

use std::path::{Path, PathBuf};

use crate::command;

/// Where its drivers are built. Other crates are built once for all checkouts that have the same versions.
const TARGET: &str = "bench/target/old";
/// Where a revision is checked out while it is built.
const TREE: &str = "bench/target/old-tree";

/// A folder, or a revision of this repository.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Checkout {
    Folder(PathBuf),
    Revision(String),
}

impl Checkout {
    /// A folder if there is one of this name, relative to the directory where the command was called.
    ///
    /// # Errors
    ///
    /// When the folder is not a checkout of this repository.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let path = Path::new(text);
        if !path.is_dir() {
            return Ok(Self::Revision(text.into()));
        }
        let folder = path.canonicalize().map_err(|error| error.to_string())?;
        if folder.join("bench/Cargo.toml").is_file() {
            Ok(Self::Folder(folder))
        } else {
            Err("this folder has no bench/Cargo.toml: name the root of another checkout of this repository"
                .into())
        }
    }

    /// Resolves a revision, so that an unknown one is refused before anything is built.
    ///
    /// # Errors
    ///
    /// When there is no such revision.
    pub(crate) fn found(self) -> Result<Self, String> {
        let Self::Revision(name) = &self else { return Ok(self) };
        let commit =
            command::output(&format!("git rev-parse --verify --quiet --end-of-options {name}^{{commit}}"))
                .map_err(|_| format!("{name} is neither a folder nor a revision of this repository"))?;
        Ok(Self::Revision(String::from_utf8_lossy(&commit).trim().into()))
    }

    /// Builds the drivers of its library from its own sources, and returns their folder.
    ///
    /// # Errors
    ///
    /// When they do not build.
    pub(crate) fn build(&self) -> Result<PathBuf, String> {
        match self {
            Self::Folder(folder) => build(folder)?,
            Self::Revision(commit) => {
                let remove = format!("git worktree remove --force {TREE}");
                // One may be left over from an interrupted run.
                command::works(&remove);
                command::run(&format!("git worktree add --quiet --detach {TREE} {commit}"))?;
                let built = build(Path::new(TREE));
                command::run(&remove)?;
                built?;
            }
        }
        Ok(Path::new(TARGET).join("release"))
    }
}

fn build(root: &Path) -> Result<(), String> {
    let line = format!("cargo build --release --locked --target-dir {TARGET} --bin leasehold --bin memory");
    let manifest = root.join("bench/Cargo.toml").display().to_string();
    command::run_with(&line, &["--manifest-path".into(), manifest])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_takes_precedence_over_a_revision_and_has_to_be_a_checkout() {
        let root = concat!(env!("CARGO_MANIFEST_DIR"), "/..");
        assert!(matches!(Checkout::parse(root), Ok(Checkout::Folder(_))));
        assert!(Checkout::parse(env!("CARGO_MANIFEST_DIR")).is_err());
        assert_eq!(Checkout::parse("main~1"), Ok(Checkout::Revision("main~1".into())));
    }

    #[test]
    fn a_missing_revision_is_an_error() {
        let error = Checkout::Revision("no-such-revision".into()).found().unwrap_err();
        assert!(error.contains("no-such-revision"), "{error}");
    }
}
