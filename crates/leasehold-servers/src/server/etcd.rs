//! One member of etcd, and the tool that comes with it.

use std::{
    env, fs,
    io::{Read as _, Write as _},
    net::{Ipv4Addr, TcpStream},
    path::{Path, PathBuf},
    process::{Child, ChildStdout, Command, Stdio},
    thread,
    time::Duration,
};

use super::{LOOK_EVERY, LOOKS, directory::Directory, process::Process};
use crate::port;

/// A cluster of one member on ports of its own on the loopback interface, with its data in a directory of its own, in memory if the
/// machine has one there.
///
/// The server ends when this is dropped, and when this process ends for any reason. Leases are granted for one second or more. The
/// methods are blocking and short.
///
/// # Panics
///
/// All methods panic with the server's log when the server does not do what they need within 10 seconds.
#[derive(Debug)]
pub struct Etcd {
    // Dropped before its directory.
    process: Option<Process>,
    port: u16,
    peers: u16,
    directory: Directory,
}

impl Etcd {
    /// Starts a server and waits until it replies.
    ///
    /// # Panics
    ///
    /// When the server is not installed.
    #[must_use]
    pub fn start() -> Self {
        let mut server = Self { process: None, port: 0, peers: 0, directory: Directory::in_memory() };
        // Another process may take a port before the server does; then other ports are tried.
        for _ in 0..10 {
            (server.port, server.peers) = (port::free(), port::free());
            if server.launch() {
                return server;
            }
        }
        panic!("ten ports were taken before etcd could listen on them");
    }

    /// Starts the process and waits until it is healthy; `false` if a port was taken.
    fn launch(&mut self) -> bool {
        fs::write(self.path("etcd.yml"), self.configuration()).expect("the directory can be written to");
        fs::write(self.path("server.log"), "").expect("the directory can be written to");
        let program = installed("etcd");
        let configuration = format!("--config-file={}", self.path("etcd.yml").display());
        let mut process = Process::start(&program, Path::new(&configuration), self.directory.path(), "");
        for _ in 0..LOOKS {
            let exited = process.exited();
            if self.is_healthy() {
                self.process = Some(process);
                return true;
            }
            if let Some(status) = exited {
                let log = self.log();
                let taken = log.contains("address already in use");
                assert!(taken, "etcd ended with {status} instead of starting:\n{log}");
                return false;
            }
            thread::sleep(LOOK_EVERY);
        }
        panic!("etcd is not ready after 10 s:\n{}", self.log());
    }

    fn configuration(&self) -> String {
        let directory = self.directory.path().display();
        let [client, peer] =
            [self.port, self.peers].map(|port| format!("http://{}:{port}", Ipv4Addr::LOCALHOST));
        format!(
            "name: one\ndata-dir: {directory}/data\nlisten-client-urls: {client}\nadvertise-client-urls: {client}\n\
             listen-peer-urls: {peer}\ninitial-advertise-peer-urls: {peer}\ninitial-cluster: one={peer}\n\
             heartbeat-interval: 50\nelection-timeout: 500\nlogger: zap\nlog-outputs: [{directory}/server.log]\n"
        )
    }

    fn is_healthy(&self) -> bool {
        let Ok(mut stream) = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port)) else { return false };
        let request = b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
        let mut reply = String::new();
        stream.set_read_timeout(Some(Duration::from_secs(1))).is_ok()
            && stream.write_all(request).is_ok()
            && stream.read_to_string(&mut reply).is_ok()
            && reply.contains(r#""health":"true""#)
    }

    fn path(&self, file: &str) -> PathBuf {
        self.directory.path().join(file)
    }

    /// The port it listens on, which stays the same when it is restarted.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// `etcd://127.0.0.1:PORT`.
    #[must_use]
    pub fn url(&self) -> String {
        format!("etcd://{}:{}", Ipv4Addr::LOCALHOST, self.port)
    }

    /// Its log since its last start.
    #[must_use]
    pub fn log(&self) -> String {
        fs::read_to_string(self.path("server.log")).unwrap_or_default()
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

    /// Ends the process if it still runs, starts it on the same port with the same data, and waits until it replies.
    ///
    /// # Panics
    ///
    /// When the port was taken meanwhile.
    pub fn restart(&mut self) {
        self.kill();
        assert!(self.launch(), "another process has taken a port of etcd while it did not run");
    }

    /// A call of `etcdctl` that is to be started.
    #[must_use]
    pub fn etcdctl(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(installed("etcdctl"));
        command.env("ETCDCTL_API", "3").arg(format!("--endpoints={}:{}", Ipv4Addr::LOCALHOST, self.port));
        command.args(arguments);
        command
    }

    /// The output of a call of `etcdctl`.
    ///
    /// # Panics
    ///
    /// When it fails.
    #[must_use]
    pub fn ctl(&self, arguments: &[&str]) -> String {
        let output = self.etcdctl(arguments).output().expect("etcdctl can be started");
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "etcdctl {arguments:?}: {error}\n{}", self.log());
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// The keys that begin with `prefix`, the oldest first.
    #[must_use]
    pub fn keys(&self, prefix: &str) -> Vec<String> {
        let found =
            self.ctl(&["get", prefix, "--prefix", "--keys-only", "--sort-by=CREATE", "--order=ASCEND"]);
        found.lines().filter(|line| !line.is_empty()).map(str::to_owned).collect()
    }

    /// `etcdctl lock` on this name, once it has the lock.
    ///
    /// # Panics
    ///
    /// When it cannot be started.
    #[must_use]
    pub fn lock(&self, name: &str) -> EtcdctlLock {
        let mut command = self.etcdctl(&["lock", "--ttl=5", name]);
        let mut child = command.stdout(Stdio::piped()).spawn().expect("etcdctl can be started");
        let mut first = [0];
        let mut output = child.stdout.take().expect("its output is a pipe");
        output.read_exact(&mut first).expect("it prints the key when it has the lock");
        EtcdctlLock { child, _output: output }
    }
}

/// A running `etcdctl lock`, which has the lock. Killed when this is dropped, so that its lease runs out.
#[derive(Debug)]
pub struct EtcdctlLock {
    child: Child,
    /// It ends by a signal if it cannot write any more.
    _output: ChildStdout,
}

impl EtcdctlLock {
    /// Ends it as Ctrl-C does: it releases the lock.
    ///
    /// # Panics
    ///
    /// When it does not end.
    pub fn release(mut self) {
        let sent = Command::new("sh").args(["-c", &format!("kill -INT {}", self.child.id())]).status();
        assert!(sent.is_ok_and(|status| status.success()), "etcdctl can be interrupted");
        self.child.wait().expect("it ends");
    }
}

impl Drop for EtcdctlLock {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The path of a program of etcd.
fn installed(program: &str) -> PathBuf {
    let path = env::var_os("PATH").unwrap_or_default();
    let found = env::split_paths(&path).map(|directory| directory.join(program)).find(|path| path.is_file());
    found.unwrap_or_else(|| {
        panic!("{program} is not installed: run cargo xtask test, which installs it, or apt-get install etcd-server etcd-client")
    })
}
