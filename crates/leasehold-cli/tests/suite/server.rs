//! A real Redis server of a test's own.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::runner::{eventually, pid};

/// A server on a free port of the loopback interface, without anything on disk. It ends when dropped.
#[derive(Debug)]
pub(crate) struct Server {
    process: Child,
    port: u16,
}

impl Server {
    pub(crate) fn start() -> Self {
        Self::configured(&[])
    }

    /// Starts a server with further arguments, and waits until it answers.
    pub(crate) fn configured(arguments: &[&str]) -> Self {
        // Somebody else may take the port first: then it is another one's turn.
        (0..10).find_map(|_| Self::attempt(arguments)).expect("a Redis server starts")
    }

    fn attempt(arguments: &[&str]) -> Option<Self> {
        let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).and_then(|listener| listener.local_addr());
        let port = port.expect("there is a free port").port();
        let process = Command::new("redis-server")
            .args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"])
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .expect("`redis-server` is installed");
        let mut server = Self { process, port };
        let mut ended = false;
        eventually("the server answers or ends", || {
            ended = server.process.try_wait().expect("it is our child").is_some();
            ended || TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_ok()
        });
        (!ended).then_some(server)
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// Runs one command and gives the first line of its answer.
    pub(crate) fn ask(&self, command: &str) -> String {
        let mut connection =
            TcpStream::connect((Ipv4Addr::LOCALHOST, self.port)).expect("the server is there");
        write!(connection, "{command}\r\n").expect("the server listens");
        let mut answer = String::new();
        BufReader::new(connection).read_line(&mut answer).expect("the server answers");
        answer.trim_end().to_owned()
    }

    pub(crate) fn is_locked(&self, name: &str) -> bool {
        self.ask(&format!("EXISTS {name}")) == ":1"
    }

    /// Lets the server hang, with all its connections open.
    pub(crate) fn freeze(&self) {
        kill(self.pid(), Signal::SIGSTOP).expect("the server is there");
    }

    pub(crate) fn thaw(&self) {
        kill(self.pid(), Signal::SIGCONT).expect("the server is there");
    }

    fn pid(&self) -> Pid {
        pid(&self.process)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
