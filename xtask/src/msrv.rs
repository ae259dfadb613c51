//! The minimum Rust version: the workspace must declare the version that its dependencies demand.

use serde::Deserialize;

use crate::metadata;

/// The first Rust with edition 2024, which the workspace itself needs.
const EDITION: &str = "1.85";

/// The part of `cargo metadata` that is used.
#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
    workspace_members: Vec<String>,
}

#[derive(Deserialize)]
struct Package {
    id: String,
    name: String,
    version: String,
    rust_version: Option<String>,
}

/// Compares the declared with the demanded Rust version.
///
/// # Errors
///
/// When they differ; the error names the package that demands the most and the version to declare.
pub(crate) fn check() -> Result<(), String> {
    let metadata = metadata::read("--all-features")?;
    println!("{}", compare(&metadata)?);
    Ok(())
}

fn compare(metadata: &Metadata) -> Result<String, String> {
    let (members, dependencies): (Vec<_>, Vec<_>) =
        metadata.packages.iter().partition(|package| metadata.workspace_members.contains(&package.id));

    let (mut demanded, mut by) = (EDITION, String::from("edition 2024"));
    for Package { name, version, rust_version, .. } in dependencies {
        if let Some(rust_version) = rust_version
            && numbers(rust_version)? > numbers(demanded)?
        {
            (demanded, by) = (rust_version, format!("{name} {version}"));
        }
    }

    for Package { name, rust_version, .. } in members {
        let declared = rust_version.as_deref().unwrap_or("nothing");
        if rust_version.is_none() || numbers(declared)? != numbers(demanded)? {
            return Err(format!(
                "{name} declares {declared}, but {by} demands {demanded} and nothing demands more: \
                 write `rust-version = \"{demanded}\"` in the workspace's Cargo.toml and inherit it",
            ));
        }
    }
    Ok(format!("{by} demands {demanded}, which is declared"))
}

/// The numbers of a version, comparable: 1.9 is before 1.10, and 1.85 is 1.85.0.
fn numbers(version: &str) -> Result<Vec<u64>, String> {
    let parts: Result<Vec<_>, _> = version.split('.').map(str::parse).collect();
    let mut numbers = parts.map_err(|_| format!("not a Rust version: {version}"))?;
    numbers.resize(3, 0);
    Ok(numbers)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A workspace of one member that declares `declared`, and dependencies that demand `demanded`.
    fn workspace(declared: Option<&str>, demanded: &[Option<&str>]) -> Metadata {
        let package = |id: String, rust_version: Option<&str>| Package {
            name: id.clone(),
            version: "0.1.0".into(),
            rust_version: rust_version.map(String::from),
            id,
        };
        let mut packages = vec![package("member".into(), declared)];
        packages.extend(
            demanded.iter().enumerate().map(|(n, demand)| package(format!("dependency-{n}"), *demand)),
        );
        Metadata { packages, workspace_members: vec!["member".into()] }
    }

    #[test]
    fn the_highest_required_rust_version_may_be_declared_in_either_spelling() {
        assert_eq!(
            compare(&workspace(Some("1.100"), &[Some("1.99.0"), Some("1.100.0"), None])),
            Ok("dependency-1 0.1.0 demands 1.100.0, which is declared".into())
        );
    }

    #[test]
    fn a_dependency_with_a_higher_rust_version_is_named_with_the_line_to_write() {
        let error = compare(&workspace(Some("1.85"), &[Some("1.90"), Some("1.88.0")])).unwrap_err();
        assert!(error.contains("dependency-0 0.1.0 demands 1.90"), "{error}");
        assert!(error.contains("`rust-version = \"1.90\"`"), "{error}");
    }

    #[test]
    fn a_rust_version_above_every_requirement_is_refused_down_to_the_edition() {
        let error = compare(&workspace(Some("1.90"), &[Some("1.56")])).unwrap_err();
        assert!(error.contains("edition 2024 demands 1.85"), "{error}");
        assert!(compare(&workspace(Some("1.85"), &[Some("1.56")])).is_ok());
    }

    #[test]
    fn a_missing_rust_version_is_refused() {
        assert!(compare(&workspace(None, &[])).is_err());
    }
}
