//! The real Redisson, in a Java process that locks on command.

use std::{fs, path::Path, process::Command};

use crate::{
    peer::Peer,
    server::Server,
    watched::{self, Watched},
};

/// The project that has the program and the versions of Redisson.
const POM: &str = include_str!("../../../interop/java/pom.xml");
/// Where `cargo xtask interop` builds it.
const BUILT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/interop");

/// The Redisson version that is tested by default.
///
/// # Panics
///
/// When the project does not specify it.
#[must_use]
pub fn newest() -> &'static str {
    let (_, rest) = POM.split_once("<redisson.version>").expect("the project has the version");
    rest.split_once('<').expect("the property has an end").0
}

/// Starts a small Java process with this Redisson that locks on this server.
///
/// # Panics
///
/// When it was not built, or does not start: a test that cannot run must not pass.
#[must_use]
pub fn start(name: &str, version: &str, server: &Server) -> Peer {
    Peer::start(name, command(version).arg(server.port().to_string()))
}

/// The same, but the locks are on the primary that these sentinels know, and the server has only data.
///
/// # Panics
///
/// As for [`start`].
#[must_use]
pub fn start_behind(name: &str, version: &str, data: &Server, watched: &Watched) -> Peer {
    let mut command = command(version);
    command.arg(data.port().to_string());
    command.args([watched::NAME, watched::PASSWORD, watched::SENTINEL_PASSWORD]);
    command.args(watched.sentinels.iter().map(|sentinel| sentinel.port().to_string()));
    Peer::start(name, &mut command)
}

/// The program, without its arguments.
fn command(version: &str) -> Command {
    let built = Path::new(BUILT).join(format!("redisson-{version}"));
    let libraries = fs::read_to_string(built.join("classpath.txt")).unwrap_or_else(|_| missing(&built));
    let mut command = Command::new("java");
    command
        // Its work is short, and there are several processes: a small heap, no collector threads, a fast start.
        .args(["-Xmx64m", "-Xss512k", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData"])
        .arg("-cp")
        .arg(format!("{}:{}", built.join("classes").display(), libraries.trim()))
        .arg("leasehold.interop.Main");
    command
}

fn missing(built: &Path) -> ! {
    panic!(
        "{} is not built: run `cargo xtask interop`, which installs what it needs and builds it",
        built.display()
    )
}
