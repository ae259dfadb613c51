//! The real Redisson, in a Java process that locks on command.

use std::{fs, path::Path, process::Command};

use crate::{peer::Peer, server::Server};

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
    let built = Path::new(BUILT).join(format!("redisson-{version}"));
    let libraries = fs::read_to_string(built.join("classpath.txt")).unwrap_or_else(|_| missing(&built));
    let mut command = Command::new("java");
    command
        // Its work is short, and there are several processes: a small heap, no collector threads, a fast start.
        .args(["-Xmx64m", "-Xss512k", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData"])
        .arg("-cp")
        .arg(format!("{}:{}", built.join("classes").display(), libraries.trim()))
        .args(["leasehold.interop.Main", &server.port().to_string()]);
    Peer::start(name, &mut command)
}

fn missing(built: &Path) -> ! {
    panic!(
        "{} is not built: run `cargo xtask interop`, which installs what it needs and builds it",
        built.display()
    )
}
