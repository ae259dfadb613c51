//! Deliberate defects, to check whether the tests find them: `cargo xtask mutants`.

/// Whether the defect of this name is active: always false, at compile time, except in a build with
/// `--cfg leasehold_mutations`. There the environment variable `LEASEHOLD_MUTATION` selects one.
macro_rules! mutation {
    ($name:literal) => {
        cfg!(leasehold_mutations) && crate::mutation::is_chosen($name)
    };
}

pub(crate) fn is_chosen(name: &str) -> bool {
    static CHOSEN: std::sync::LazyLock<Option<String>> =
        std::sync::LazyLock::new(|| std::env::var("LEASEHOLD_MUTATION").ok());
    CHOSEN.as_deref() == Some(name)
}
