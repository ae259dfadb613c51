//! The Rust side, controlled by lines of input: the same verbs as in `interop/java`.

mod across;
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
use leasehold_testkit::watched::Watched;

use verbs::Thread;

/// Marks a process as such a driver, and names the port of its server.
const PORT: &str = "LEASEHOLD_INTEROP_PORT";
/// The URL of the locks, if they are on another server than the data.
const URL: &str = "LEASEHOLD_INTEROP_URL";

/// Starts this binary once more, as a process that executes lock commands on this server.
pub(crate) fn start(name: &str, server: &Server) -> Peer {
    Peer::start(name, &mut command(server))
}

/// The same, but the locks are on the primary that these sentinels know, and the server has only data.
pub(crate) fn start_behind(name: &str, data: &Server, watched: &Watched) -> Peer {
    Peer::start(name, command(data).env(URL, watched.url()))
}

fn command(server: &Server) -> Command {
    let mut command = Command::new(env::current_exe().expect("this process knows its program"));
    command
        .args(["driver::child_process_that_runs_the_driver", "--exact", "--nocapture", "--test-threads=1"])
        .env(PORT, server.port().to_string());
    command
}

/// The process that [`start`] runs; without it, nothing.
#[test]
fn child_process_that_runs_the_driver() {
    let Ok(port) = env::var(PORT) else { return };
    let port: u16 = port.parse().unwrap();
    let connect = |watchdog| {
        // A machine that is busy with other tests is slow, not broken.
        let url = env::var(URL).unwrap_or_else(|_| format!("redis://127.0.0.1:{port}"));
        let connect = Client::connect(url).watchdog(watchdog);
        connect.response_timeout(Duration::from_secs(30)).block().expect("the server listens")
    };
    serve(connect, |client, number| Thread::new(client, Owner::number(number), port));
}
