//! The features of the library: each compiles alone, and has a row in the README.

use std::{collections::BTreeMap, fs};

use serde::Deserialize;

use crate::{command, metadata};

#[derive(Deserialize)]
struct Package {
    name: String,
    features: BTreeMap<String, Vec<String>>,
}

/// Lints the library with each feature alone, so that a feature only adds.
///
/// # Errors
///
/// When one does not compile by itself, or is not documented.
pub(crate) fn check() -> Result<(), String> {
    let readme = fs::read_to_string("README.md").map_err(|error| format!("README.md: {error}"))?;
    for feature in features()?.iter().filter(|feature| *feature != "default") {
        if !readme.contains(&format!("\n| `{feature}` |")) {
            return Err(format!("README.md has no row about the feature `{feature}`"));
        }
        command::run(&format!(
            "cargo clippy -p leasehold --no-default-features --features {feature} -- -D warnings"
        ))?;
    }
    Ok(())
}

fn features() -> Result<Vec<String>, String> {
    let package = metadata::members::<Package>()?.into_iter().find(|package| package.name == "leasehold");
    Ok(package.ok_or("cargo metadata names no `leasehold`")?.features.into_keys().collect())
}
