//! What `cargo metadata` says, as far as its reader wants to know.

use serde::{Deserialize, de::DeserializeOwned};

use crate::command;

/// Reads the output of `cargo metadata` with these options.
///
/// # Errors
///
/// When cargo fails, or something that is wanted is not there.
pub(crate) fn read<T: DeserializeOwned>(options: &str) -> Result<T, String> {
    let json = command::output(&format!("cargo metadata --format-version 1 {options}"))?;
    serde_json::from_slice(&json).map_err(|error| format!("cargo metadata: {error}"))
}

/// The packages of the workspace.
///
/// # Errors
///
/// As for [`read`].
pub(crate) fn members<P: DeserializeOwned>() -> Result<Vec<P>, String> {
    #[derive(Deserialize)]
    struct Metadata<P> {
        packages: Vec<P>,
    }
    read("--no-deps").map(|Metadata { packages }| packages)
}
