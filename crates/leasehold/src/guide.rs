//! The pages about the whole library. They are files of this package as well, in its folder `docs`.
//!
//! Begin with the [front page](crate). Then:
//!
//! 1. [`guarantees`]: what is promised, what is not, and the schedules that break it.
//! 2. [`engines`]: the engines, what each has and promises, and locks on files in detail.
//! 3. [`operating`]: settings of the server, connections, logs, metrics, rights and URLs.
//! 4. [`messages`]: every error message, and what to do about it.
//! 5. [`redisson`]: coming from Redisson, method by method and setting by setting.
//! 6. [`wire`]: keys, scripts and messages on the server, and the least privileges that a client needs.
//! 7. [`stability`]: what may change in which release, and the oldest Rust that is supported; [`changelog`]: what did change.
//! 8. [`security`]: what the locks protect against, and how to report a vulnerability.
//!
//! # In the repository
//!
//! These are not in the package, because they are about the code of the library and not about its use:
//!
//! - `CONTRIBUTING.md`: how to work on it.
//! - `docs/design.md`, `docs/walks.md` and `docs/decisions`: structure, six requests from file to file, and the reasons.
//! - `docs/behaviours.md`: every promise with its id and its test.
//! - `docs/performance.md` and `docs/bench`: benchmarks beside other libraries.
//! - `examples/fencing`: a fencing token that a row of `SQLite` checks.
//! - `interop/differences.toml`: each difference from the state that Redisson leaves on a server.
//!
//! # Licence
//!
//! Apache-2.0 or MIT, at your option. The package has both texts: `LICENSE-APACHE` and `LICENSE-MIT`.

/// One page: a file of the package. Its links lead to the pages of this module, in place of files of the repository.
macro_rules! page {
    ($($name:ident = $file:literal)+) => {
        $(
            #[cfg_attr(not(doctest), doc = include_str!("guide/links.md"))]
            #[doc = include_str!(concat!("../", $file))]
            pub mod $name {}
        )+
    };
}

page! {
    changelog = "CHANGELOG.md"
    engines = "docs/engines.md"
    guarantees = "docs/guarantees.md"
    messages = "docs/messages.md"
    operating = "docs/operating.md"
    redisson = "docs/redisson.md"
    security = "SECURITY.md"
    stability = "docs/stability.md"
    wire = "docs/wire.md"
}
