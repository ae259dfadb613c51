//! The Rust side, controlled by lines of input: the same verbs as in `interop/java`.

mod primitive;
mod turns;
mod verbs;

use std::env;
use std::process::Command;
use std::time::Duration;

use leasehold::{Client, Owner};
use leasehold_testkit::driver::serve;
use leasehold_testkit::peer::Peer;
use leasehold_testkit::server::Server;

use verbs::Thread;

/// Marks a process as such a driver, and names the port of its server.
const PORT: &str = "LEASEHOLD_INTEROP_PORT";

/// Starts this binary once more, as a process that executes lock commands on this server.
pub(crate) fn start(name: &str, server: &Server) -> Peer {
    let mut command = Command::new(env::current_exe().expect("this process knows its program"));
    command
        .args(["driver::child_process_that_runs_the_driver", "--exact", "--nocapture", "--test-threads=1"])
        .env(PORT, server.port().to_string());
    Peer::start(name, &mut command)
}

/// The process that [`start`] runs; without it, nothing.
#[test]
fn child_process_that_runs_the_driver() {
    let Ok(port) = env::var(PORT) else { return };
    let port: u16 = port.parse().unwrap();
    let connect = |watchdog| {
        // A machine that is busy with other tests is slow, not broken.
        let connect = Client::connect(format!("redis://127.0.0.1:{port}")).watchdog(watchdog);
        connect.response_timeout(Duration::from_secs(30)).block().expect("the server listens")
    };
    serve(connect, |client, number| Thread::new(client, Owner::number(number), port));
}
