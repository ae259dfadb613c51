//! What `--version` prints.

/// A text, if the program is built with that engine.
#[cfg(feature = "etcd")]
macro_rules! with_etcd {
    ($text:literal) => {
        $text
    };
}
#[cfg(not(feature = "etcd"))]
macro_rules! with_etcd {
    ($text:literal) => {
        ""
    };
}

/// The version, and what this program was built with. `Cargo.toml` fixes the features of the library but for this one.
pub(crate) const LONG: &str = if cfg!(unix) {
    concat!(
        env!("CARGO_PKG_VERSION"),
        "\nengines:  redis (Redis, Valkey), ",
        with_etcd!("etcd, "),
        "file, memory",
        "\nfeatures: run, tls, sentinel",
        "\nURLs:     redis rediss valkey valkeys redis+sentinel rediss+sentinel",
        "\n          redis+unix ",
        with_etcd!("etcd "),
        "file memory"
    )
} else {
    concat!(
        env!("CARGO_PKG_VERSION"),
        "\nengines:  redis (Redis, Valkey), ",
        with_etcd!("etcd, "),
        "memory",
        "\nfeatures: tls, sentinel",
        "\nURLs:     redis rediss valkey valkeys redis+sentinel rediss+sentinel ",
        with_etcd!("etcd "),
        "memory"
    )
};
