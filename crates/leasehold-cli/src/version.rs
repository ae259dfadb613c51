//! What `--version` prints.

/// The version, and what this program was built with. `Cargo.toml` fixes the features of the library.
pub(crate) const LONG: &str = if cfg!(unix) {
    concat!(
        env!("CARGO_PKG_VERSION"),
        "\nengines:  redis (Redis, Valkey), file, memory",
        "\nfeatures: run, tls, sentinel",
        "\nURLs:     redis rediss valkey valkeys redis+sentinel rediss+sentinel",
        "\n          redis+unix file memory"
    )
} else {
    concat!(
        env!("CARGO_PKG_VERSION"),
        "\nengines:  redis (Redis, Valkey), memory",
        "\nfeatures: tls, sentinel",
        "\nURLs:     redis rediss valkey valkeys redis+sentinel rediss+sentinel memory"
    )
};
