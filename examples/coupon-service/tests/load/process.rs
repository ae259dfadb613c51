//! A process of the service, which does not outlive its test.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::SocketAddr;
use std::process::{Child, ChildStdout, Command, Stdio};

/// Becomes the service, `$0`, after starting a guard process that ends it when the test has ended without a line.
const GUARDED: &str = r#"
exec 3<&0 </dev/null
(exec >/dev/null; read -r line <&3 || kill -9 $$) &
exec "$0" 3<&-
"#;

pub(crate) struct Process {
    child: Child,
    output: BufReader<ChildStdout>,
    address: SocketAddr,
}

impl Process {
    /// Starts a process with this many coupons, and waits until it listens.
    pub(crate) fn start(redis: &str, coupons: usize) -> Self {
        let mut child = Command::new("sh")
            .args(["-c", GUARDED, env!("CARGO_BIN_EXE_coupon-service")])
            .env("LEASEHOLD_URL", redis)
            // A killed process leaves its lock behind for this long.
            .env("LEASEHOLD_WATCHDOG", "2s")
            .env("COUPON_STORE", redis)
            .env("COUPON_LISTEN", "127.0.0.1:0")
            .env("COUPONS", coupons.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the service starts");
        let mut output = BufReader::new(child.stdout.take().expect("it is piped"));
        let mut line = String::new();
        output.read_line(&mut line).expect("it prints a text");
        let address = line.trim().rsplit(' ').next().and_then(|address| address.parse().ok());
        Self { child, output, address: address.unwrap_or_else(|| panic!("the service printed {line:?}")) }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Ends the process at once; nothing in it is told.
    pub(crate) fn kill(&mut self) {
        self.end_guard();
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Asks the process to end, and returns what it printed then.
    pub(crate) fn terminate(mut self) -> String {
        let ask = format!("kill -TERM {}", self.child.id());
        assert!(Command::new("sh").args(["-c", &ask]).status().is_ok_and(|status| status.success()));
        let mut printed = String::new();
        self.end_guard();
        self.output.read_to_string(&mut printed).expect("it prints a text");
        assert!(self.child.wait().is_ok_and(|status| status.success()), "{printed}");
        printed
    }

    /// Before the process is waited for: the guard must not end another process that gets the same id.
    fn end_guard(&mut self) {
        let _ = self.child.stdin.take().map(|mut guard| guard.write_all(b"\n"));
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}
