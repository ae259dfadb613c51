//! Real servers: Redis, Valkey, etcd and MariaDB, each started for a test and ended with it.

mod builder;
mod directory;
mod etcd;
mod mark;
mod monitor;
mod mysql;
mod process;
mod program;
mod subscription;

use std::{
    fs, io,
    net::Ipv4Addr,
    path::{Path, PathBuf},
    thread,
    time::Duration,
};

use builder::Mode;
use directory::Directory;
use process::Process;

pub use builder::{Builder, TlsFiles};
pub use etcd::{Etcd, EtcdctlLock};
pub use monitor::Monitor;
pub use mysql::{Mysql, MysqlSession};
pub use program::Flavour;
pub use subscription::{Message, Subscription};

use crate::{
    port,
    resp::{Connection, Value},
};

/// How often, and how many times, a condition is checked: for 10 s.
const LOOK_EVERY: Duration = Duration::from_millis(5);
const LOOKS: u32 = 2000;

/// A real server on a port of its own on the loopback interface, with a directory of its own.
///
/// Nothing is persisted unless the configuration requests it. The server ends when this is dropped, and when this process ends
/// for any reason, be it by a signal or with the server in a `static`.
///
/// The methods are blocking and short, so asynchronous tests may call them too.
///
/// # Panics
///
/// All methods panic with the server's log when the server does not do what they need within 10 seconds.
#[derive(Debug)]
pub struct Server {
    // Dropped before its directory.
    process: Option<Process>,
    flavour: Flavour,
    port: u16,
    lines: Vec<String>,
    password: Option<String>,
    mode: Mode,
    tls: Option<TlsFiles>,
    directory: Directory,
}

impl Server {
    /// Starts a server and waits until it replies.
    ///
    /// # Panics
    ///
    /// When the server is not installed.
    #[must_use]
    pub fn start(flavour: Flavour) -> Self {
        Self::builder(flavour).start()
    }

    /// Configures a server before its start.
    #[must_use]
    pub fn builder(flavour: Flavour) -> Builder {
        Builder::new(flavour)
    }

    fn configured(builder: Builder) -> Self {
        let Builder { flavour, lines, password, mode, tls } = builder;
        let directory = Directory::new();
        let mut server = Self { process: None, flavour, port: 0, lines, password, mode, tls, directory };
        // Another process may take the port before the server does; then another port is tried.
        for _ in 0..10 {
            server.port = port::free();
            if server.launch() {
                return server;
            }
            // A sentinel's has the port in it.
            fs::remove_file(server.configuration_path()).expect("the directory can be written to");
        }
        panic!("ten ports were taken before {} could listen on them", flavour.name());
    }

    /// Starts the process and waits until it replies; `false` if the port was taken.
    fn launch(&mut self) -> bool {
        let configuration = self.configuration_path();
        if self.mode == Mode::Data || !configuration.exists() {
            fs::write(&configuration, self.configuration()).expect("the directory can be written to");
        }
        fs::write(self.log_path(), "").expect("the directory can be written to");
        let (argument, ready) = match self.mode {
            Mode::Data => ("", "Ready to accept connections"),
            Mode::Sentinel => ("--sentinel", "+monitor"),
        };
        let program = self.flavour.program();
        let mut process = Process::start(&program, &configuration, self.directory.path(), argument);
        for _ in 0..LOOKS {
            let exited = process.exited();
            // The log is this server's own, whichever process replies at the port.
            let log = self.log();
            if log.contains(ready) {
                self.process = Some(process);
                self.answered();
                return true;
            }
            if let Some(status) = exited {
                let taken = log.contains("Address already in use");
                // Some say nothing, because they do not know the words of their configuration.
                let has_tls = self.tls.is_none() || !(log.is_empty() || log.contains("finding TLS support"));
                assert!(
                    taken || has_tls,
                    "{} was built without TLS: {}",
                    self.flavour.name(),
                    program.display()
                );
                assert!(taken, "{} ended with {status} instead of starting:\n{log}", self.flavour.name());
                return false;
            }
            thread::sleep(LOOK_EVERY);
        }
        panic!("{} is not ready after 10 s:\n{}", self.flavour.name(), self.log());
    }

    /// Waits for a reply, even if it is that a password is required.
    fn answered(&self) {
        let ask = || self.open().and_then(|mut connection| connection.call(&["PING"]));
        let mut reply = ask();
        for _ in 0..LOOKS {
            // A connection that the server before this one had not accepted yet may be reset.
            if reply.is_ok() {
                return;
            }
            thread::sleep(LOOK_EVERY);
            reply = ask();
        }
        reply.map_or_else(|error| self.silent(&error), drop);
    }

    fn open(&self) -> io::Result<Connection> {
        match self.tls {
            Some(_) => Connection::open_unix(&self.unix_socket()),
            None => Connection::open(self.port),
        }
    }

    fn configuration(&self) -> String {
        let Self { port, directory, .. } = self;
        let directory = directory.path().display();
        let mut lines = vec![
            format!("bind {}", Ipv4Addr::LOCALHOST),
            if self.tls.is_some() { format!("port 0\ntls-port {port}") } else { format!("port {port}") },
            format!("dir \"{directory}\""),
            format!("logfile \"{directory}/server.log\""),
        ];
        if self.mode == Mode::Data || self.tls.is_some() {
            lines.push(format!("unixsocket \"{directory}/server.sock\""));
        }
        if let Some(TlsFiles { cert, key, ca }) = &self.tls {
            for (option, path) in [("cert", cert), ("key", key), ("ca-cert", ca)] {
                lines.push(format!("tls-{option}-file \"{}\"", path.display()));
            }
            lines.push("tls-auth-clients no".into());
        }
        if self.mode == Mode::Data {
            lines.extend(["save \"\"", "appendonly no"].map(Into::into));
        }
        lines.extend(self.password.iter().map(|password| format!("requirepass {password}")));
        lines.extend(self.lines.iter().cloned());
        lines.join("\n") + "\n"
    }

    fn configuration_path(&self) -> PathBuf {
        self.directory.path().join("server.conf")
    }

    /// Which server it is.
    #[must_use]
    pub fn flavour(&self) -> Flavour {
        self.flavour
    }

    /// The port it listens on, which stays the same when it is restarted.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// `redis://127.0.0.1:PORT`, with the password if there is one; `rediss://` with TLS.
    #[must_use]
    pub fn url(&self) -> String {
        let password = self.password.as_ref().map(|password| format!(":{password}@")).unwrap_or_default();
        let scheme = if self.tls.is_some() { "rediss" } else { "redis" };
        format!("{scheme}://{password}{}:{}", Ipv4Addr::LOCALHOST, self.port)
    }

    /// The Unix socket it listens on as well.
    #[must_use]
    pub fn unix_socket(&self) -> PathBuf {
        self.directory.path().join("server.sock")
    }

    /// The directory of its files, which is removed with it.
    #[must_use]
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// The id of its process, if it runs.
    #[must_use]
    pub fn pid(&self) -> Option<u32> {
        self.process.as_ref().map(Process::id)
    }

    /// Its log since its last start.
    #[must_use]
    pub fn log(&self) -> String {
        fs::read_to_string(self.log_path()).unwrap_or_default()
    }

    fn log_path(&self) -> PathBuf {
        self.directory.path().join("server.log")
    }

    /// Stops the process where it is, without closing anything; it has stopped when this returns.
    ///
    /// # Panics
    ///
    /// When the server does not run.
    pub fn pause(&self) {
        self.process.as_ref().expect("only a server that runs can be paused").pause();
    }

    /// Resumes a paused process.
    ///
    /// # Panics
    ///
    /// When the server does not run.
    pub fn resume(&self) {
        self.process.as_ref().expect("only a server that runs can be resumed").resume();
    }

    /// Ends the process at once, as a crash would; it has ended when this returns.
    pub fn kill(&mut self) {
        self.process = None;
    }

    /// Ends the process if it still runs, starts it on the same port, and waits until it replies.
    ///
    /// Data is lost, unless the configuration specifies otherwise.
    ///
    /// # Panics
    ///
    /// When the port was taken meanwhile.
    pub fn restart(&mut self) {
        self.kill();
        assert!(self.launch(), "another process has taken port {} while no server listened on it", self.port);
    }

    /// Opens a connection, with the password if there is one.
    ///
    /// # Panics
    ///
    /// When the server does not reply.
    #[must_use]
    pub fn connect(&self) -> Connection {
        self.try_connect().unwrap_or_else(|error| self.silent(&error))
    }

    fn try_connect(&self) -> io::Result<Connection> {
        let mut connection = self.open()?;
        if let Some(password) = &self.password {
            assert_eq!(connection.call(&["AUTH", password])?, "OK");
        }
        Ok(connection)
    }

    /// Sends one command on a connection of its own, and returns the reply, which may be an error.
    ///
    /// # Panics
    ///
    /// When the server does not reply.
    pub fn cli(&self, command: &[impl AsRef<[u8]>]) -> Value {
        self.try_cli(command).unwrap_or_else(|error| self.silent(&error))
    }

    /// The same for a server that may become a replica at any time: sentinels cut the connections of its clients then.
    ///
    /// # Errors
    ///
    /// When the connection is cut, or the server does not reply.
    pub fn try_cli(&self, command: &[impl AsRef<[u8]>]) -> io::Result<Value> {
        self.try_connect()?.call(command)
    }

    /// Starts to record every command that the server executes.
    ///
    /// # Panics
    ///
    /// When the server does not reply.
    #[must_use]
    pub fn monitor(&self) -> Monitor {
        Monitor::new(self)
    }

    /// Starts to record every message on these channels.
    ///
    /// # Panics
    ///
    /// When the server does not reply.
    #[must_use]
    pub fn subscribe(&self, channels: &[&str]) -> Subscription {
        Subscription::new(self, channels)
    }

    fn silent(&self, error: &io::Error) -> ! {
        panic!("{} does not reply: {error}\n{}", self.flavour.name(), self.log());
    }
}
