//! `cargo xtask package`: the packages as they would be published, and a new project that uses them.

mod project;

use std::path::Path;

use serde::Deserialize;

use crate::{command, metadata};

/// What every package has, besides its code.
const FILES: &[&str] = &["README.md", "LICENSE-APACHE", "LICENSE-MIT"];

/// The profile of the workspace, whose builds of dependencies are used again.
const PROFILE: &str = "CARGO_PROFILE_DEV_DEBUG=line-tables-only";

/// The part of its metadata that is used.
#[derive(Deserialize)]
struct Package {
    name: String,
    version: String,
    /// The registries to which it may be published; without a list, all.
    publish: Option<Vec<String>>,
    description: Option<String>,
    license: Option<String>,
    readme: Option<String>,
    rust_version: Option<String>,
    keywords: Vec<String>,
    categories: Vec<String>,
}

/// Packages every crate that may be published, builds each package by itself, and runs the README's first program with
/// them in a project outside of the workspace.
///
/// # Errors
///
/// When a package lacks something, or does not work.
pub(crate) fn run() -> Result<(), String> {
    let packages = publishable()?;
    packages.iter().try_for_each(Package::check_manifest)?;
    // Packages of changes that are not committed are wanted, too. Cargo builds each from its archive.
    let mut line = format!("{PROFILE} cargo package --locked --allow-dirty");
    for package in &packages {
        line.push_str(" -p ");
        line.push_str(&package.name);
    }
    command::run(&line)?;
    packages.iter().try_for_each(Package::check_files)?;
    project::run(&packages)
}

fn publishable() -> Result<Vec<Package>, String> {
    let may_be = |package: &Package| package.publish.as_ref().is_none_or(|registries| !registries.is_empty());
    Ok(metadata::members()?.into_iter().filter(may_be).collect())
}

impl Package {
    /// The name of its folder, and of its archive without `.crate`.
    fn folder(&self) -> String {
        format!("{}-{}", self.name, self.version)
    }

    fn check_manifest(&self) -> Result<(), String> {
        let missing = [
            ("description", self.description.is_none()),
            ("license", self.license.is_none()),
            ("readme", self.readme.is_none()),
            ("rust-version", self.rust_version.is_none()),
            ("keywords", self.keywords.is_empty()),
            ("categories", self.categories.is_empty()),
        ];
        match missing.iter().find(|(_, is_missing)| *is_missing) {
            Some((key, _)) => Err(format!("the Cargo.toml of {} has no `{key}`", self.name)),
            None => Ok(()),
        }
    }

    /// Checks the files that cargo has unpacked from the archive.
    fn check_files(&self) -> Result<(), String> {
        let folder = Path::new("target/package").join(self.folder());
        // A link would lead out of the package.
        let is_there = |file: &&&str| folder.join(file).is_file() && !folder.join(file).is_symlink();
        match FILES.iter().find(|file| !is_there(file)) {
            Some(file) => {
                Err(format!("the package of {} has no {file}: link to it in its folder", self.name))
            }
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_package_without_a_key_is_refused() {
        let complete = r#"{"name": "a", "version": "1.0.0", "publish": null, "description": "d", "license": "MIT",
            "readme": "README.md", "rust_version": "1.88", "keywords": ["k"], "categories": ["c"]}"#;
        let package: Package = serde_json::from_str(complete).unwrap();
        assert_eq!(package.check_manifest(), Ok(()));
        let without = Package { keywords: vec![], ..package };
        assert_eq!(without.check_manifest(), Err("the Cargo.toml of a has no `keywords`".into()));
    }
}
