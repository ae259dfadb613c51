//! Members of etcd, and the tool that comes with it.

use std::{
    env, fs,
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::{Ipv4Addr, TcpStream},
    path::{Path, PathBuf},
    process::{Child, ChildStderr, ChildStdout, Command, Stdio},
    thread,
    time::Duration,
};

use super::{LOOK_EVERY, LOOKS, TlsFiles, directory::Directory, process::Process};
use crate::{certificates::Identity, port};

/// A member of a cluster, on ports of its own on the loopback interface, with its data in a directory of its own, in memory if the
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
    /// The port by which the other members reach it.
    reached_by: u16,
    /// All members, as each of them knows them from its start.
    cluster: String,
    /// Lines of its configuration that replace others.
    settings: String,
    tls: Option<Tls>,
    directory: Directory,
    /// The members that are only there because the cluster has several.
    others: Vec<Self>,
}

/// How the server is reached by TLS.
#[derive(Clone, Debug)]
struct Tls {
    files: TlsFiles,
    /// What `etcdctl` identifies itself with. Without it the server wants no certificate of its clients.
    client: Option<Identity>,
    /// A port without TLS that tells nothing but the health.
    health: u16,
}

impl Etcd {
    /// Starts a cluster of one member and waits until it replies. With `LEASEHOLD_ETCD_MEMBERS=3` it is the first of three, and the
    /// others end with it.
    ///
    /// # Panics
    ///
    /// When the server is not installed.
    #[must_use]
    pub fn start() -> Self {
        match env::var("LEASEHOLD_ETCD_MEMBERS").as_deref() {
            Ok("3") => {
                let [first, second, third] = Self::cluster();
                Self { others: vec![second, third], ..first }
            }
            Ok("1") | Err(_) => {
                let [server] = Self::cluster();
                server
            }
            Ok(other) => panic!("LEASEHOLD_ETCD_MEMBERS is 1 or 3, not {other}"),
        }
    }

    /// Starts a cluster of one member with lines of its own in its configuration, such as `election-timeout: 2000`.
    ///
    /// # Panics
    ///
    /// As for [`start`](Self::start).
    #[must_use]
    pub fn start_with(settings: &str) -> Self {
        let [server] = Self::cluster_with(settings, None, |peers| peers);
        server
    }

    /// Starts a cluster and waits until all members reply.
    ///
    /// # Panics
    ///
    /// As for [`start`](Self::start).
    #[must_use]
    pub fn cluster<const MEMBERS: usize>() -> [Self; MEMBERS] {
        Self::cluster_with("", None, |peers| peers)
    }

    /// Starts a cluster of one member that only TLS reaches, and waits until it is healthy. If there is a certificate for
    /// `etcdctl`, it wants certificates of all clients, and takes the name in each for a user.
    ///
    /// # Panics
    ///
    /// As for [`start`](Self::start).
    #[must_use]
    pub fn secured(files: &TlsFiles, client: Option<&Identity>) -> Self {
        let tls = Tls { files: files.clone(), client: client.cloned(), health: 0 };
        let [server] = Self::cluster_with("", Some(&tls), |peers| peers);
        server
    }

    /// The same with something between the members: `reached_by` is told the port on which a member listens for the others, and
    /// returns the one by which they reach it.
    ///
    /// # Panics
    ///
    /// As for [`start`](Self::start).
    #[must_use]
    pub fn cluster_by<const MEMBERS: usize>(reached_by: impl FnMut(u16) -> u16) -> [Self; MEMBERS] {
        Self::cluster_with("", None, reached_by)
    }

    fn cluster_with<const MEMBERS: usize>(
        settings: &str,
        tls: Option<&Tls>,
        mut reached_by: impl FnMut(u16) -> u16,
    ) -> [Self; MEMBERS] {
        // Another process may take a port before a server does; then other ports are tried.
        for _ in 0..10 {
            // All are open before the first is closed, so that no two of them are the same.
            let listeners = [(); MEMBERS].map(|()| [port::listen(), port::listen()]);
            let ports = listeners.map(|listeners| listeners.map(|listener| port::of(&listener)));
            let mut members = ports.map(|[port, peers]| Self {
                process: None,
                port,
                peers,
                reached_by: reached_by(peers),
                cluster: String::new(),
                settings: settings.to_owned(),
                tls: tls.map(|tls| Tls { health: port::free(), ..tls.clone() }),
                directory: Directory::in_memory(),
                others: Vec::new(),
            });
            let address =
                |Self { peers, reached_by, .. }: &Self| format!("m{peers}=http://{HOST}:{reached_by}");
            let all: Vec<_> = members.iter().map(address).collect();
            for member in &mut members {
                member.cluster = all.join(",");
                member.spawn();
            }
            if members.iter_mut().all(Self::is_up) {
                return members;
            }
        }
        panic!("ten ports were taken before etcd could listen on them");
    }

    fn spawn(&mut self) {
        fs::write(self.path("etcd.yml"), self.configuration()).expect("the directory can be written to");
        fs::write(self.path("server.log"), "").expect("the directory can be written to");
        let program = program();
        let configuration = format!("--config-file={}", self.path("etcd.yml").display());
        self.process = Some(Process::start(&program, Path::new(&configuration), self.directory.path(), ""));
    }

    /// Waits until it is healthy; `false` if a port was taken.
    fn is_up(&mut self) -> bool {
        for _ in 0..LOOKS {
            let exited = self.process.as_mut().and_then(Process::exited);
            if self.is_healthy() {
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
        let Self { port, peers, reached_by, cluster, settings, directory, .. } = self;
        let directory = directory.path().display();
        let [client, peer, reached] = [port, peers, reached_by].map(|port| format!("http://{HOST}:{port}"));
        let (client, tls) = match &self.tls {
            None => (client, String::new()),
            Some(Tls { files: TlsFiles { cert, key, ca }, client: identity, health }) => {
                let (cert, key, ca) = (cert.display(), key.display(), ca.display());
                // With this file it wants certificates of its clients, whatever `client-cert-auth` says.
                let clients =
                    identity.as_ref().map(|_| format!("  client-cert-auth: true\n  trusted-ca-file: {ca}\n"));
                let tls = format!(
                    "listen-metrics-urls: http://{HOST}:{health}\nclient-transport-security:\n  cert-file: {cert}\n  \
                     key-file: {key}\n{}",
                    clients.unwrap_or_default()
                );
                (client.replace("http", "https"), tls)
            }
        };
        let usual = format!(
            "name: m{peers}\ndata-dir: {directory}/data\nlisten-client-urls: {client}\n\
             advertise-client-urls: {client}\nlisten-peer-urls: {peer}\ninitial-advertise-peer-urls: {reached}\n\
             initial-cluster: {cluster}\nheartbeat-interval: 50\n\
             election-timeout: 500\nlogger: zap\nlog-outputs: [{directory}/server.log]\n{tls}"
        );
        let key = |line: &str| line.split(':').next().unwrap_or_default().to_owned();
        let is_replaced = |line: &&str| settings.lines().any(|setting| key(setting) == key(line));
        let kept: Vec<_> = usual.lines().filter(|line| !is_replaced(line)).chain(settings.lines()).collect();
        kept.join("\n") + "\n"
    }

    /// Whether it leads its cluster.
    #[must_use]
    pub fn is_leader(&self) -> bool {
        let [id, leader] = self.status(["MemberID", "Leader"]);
        id == leader
    }

    /// Makes another member the leader.
    ///
    /// # Panics
    ///
    /// When this is not the leader.
    pub fn move_leader(&self, to: &Self) {
        let [id] = to.status(["MemberID"]);
        let _ = self.ctl(&["move-leader", &format!("{id:x}")]);
    }

    /// Forgets all revisions before the present one.
    pub fn compact(&self) {
        let [revision] = self.status(["Revision"]);
        let _ = self.ctl(&["compact", "--physical", &revision.to_string()]);
    }

    /// Numbers in its status.
    fn status<const FIELDS: usize>(&self, fields: [&str; FIELDS]) -> [u64; FIELDS] {
        let status = self.ctl(&["endpoint", "status", "-w", "fields"]);
        fields.map(|name| {
            let line = status.lines().find_map(|line| line.strip_prefix(&format!("\"{name}\" : ")));
            line.and_then(|value| value.parse().ok()).unwrap_or_else(|| panic!("no {name} in {status}"))
        })
    }

    /// The id of its process, if it runs.
    #[must_use]
    pub fn pid(&self) -> Option<u32> {
        self.process.as_ref().map(Process::id)
    }

    /// From now on no write to its log of changes reaches its disk, and all else in the process goes on, until the result is dropped.
    ///
    /// # Panics
    ///
    /// When the server does not run, or its system calls cannot be changed: that takes `strace`, and the right to trace a process.
    #[must_use]
    pub fn hang_disk(&self) -> HungDisk {
        let pid = self.pid().expect("only a server that runs has a disk").to_string();
        // Not its database: all who read that wait for its writes.
        let logs =
            fs::read_dir(self.path("data/member/wal")).expect("a server that runs has a log of changes");
        let log = logs
            .flatten()
            .map(|entry| entry.path())
            .find(|path| path.extension().is_some_and(|is| is == "wal"));
        let mut strace = Command::new(installed("strace"))
            .arg("-P")
            .arg(log.expect("it has a log"))
            .args(["-f", "-o", "/dev/null", "-e", "trace=fdatasync,fsync"])
            .args(["-e", "inject=fdatasync,fsync:delay_enter=600s", "-p", &pid])
            .stderr(Stdio::piped())
            .spawn()
            .expect("strace can be started");
        let mut said = BufReader::new(strace.stderr.take().expect("its error output is a pipe"));
        let mut lines = String::new();
        // It names the log first.
        while !lines.contains("attached") {
            let length = said.read_line(&mut lines).expect("it says what it does");
            assert!(length > 0, "strace cannot trace a server: {lines}");
        }
        HungDisk { strace, _said: said }
    }

    fn is_healthy(&self) -> bool {
        self.get("/health").is_some_and(|reply| reply.contains(r#""health":"true""#))
    }

    /// What it tells Prometheus.
    ///
    /// # Panics
    ///
    /// When it does not reply.
    #[must_use]
    pub fn metrics(&self) -> String {
        self.get("/metrics").unwrap_or_else(|| panic!("etcd has no metrics:\n{}", self.log()))
    }

    fn get(&self, path: &str) -> Option<String> {
        let mut stream =
            TcpStream::connect((HOST, self.tls.as_ref().map_or(self.port, |tls| tls.health))).ok()?;
        // The whole reply in one part.
        let request = format!("GET {path} HTTP/1.0\r\nHost: localhost\r\nConnection: close\r\n\r\n");
        let mut reply = String::new();
        stream.set_read_timeout(Some(Duration::from_secs(1))).ok()?;
        stream.write_all(request.as_bytes()).ok()?;
        stream.read_to_string(&mut reply).ok()?;
        Some(reply)
    }

    fn path(&self, file: &str) -> PathBuf {
        self.directory.path().join(file)
    }

    /// The port it listens on, which stays the same when it is restarted.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// `etcd://127.0.0.1:PORT`, or `etcds://127.0.0.1:PORT?ca=…`.
    #[must_use]
    pub fn url(&self) -> String {
        self.url_at(self.port)
    }

    /// The same by way of a proxy.
    #[must_use]
    pub fn url_at(&self, port: u16) -> String {
        match &self.tls {
            None => format!("etcd://{HOST}:{port}"),
            Some(tls) => format!("etcds://{HOST}:{port}?ca={}", tls.files.ca.display()),
        }
    }

    /// A URL with all members of its cluster for each of them, which is the first in it.
    #[must_use]
    pub fn urls(&self) -> Vec<String> {
        let ports = [self.port].into_iter().chain(self.others.iter().map(Self::port));
        let mut hosts: Vec<_> = ports.map(|port| format!("{HOST}:{port}")).collect();
        let rotated = |_| {
            hosts.rotate_left(1);
            format!("etcd://{}", hosts.join(","))
        };
        (0..=self.others.len()).map(rotated).collect()
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
        self.spawn();
        assert!(self.is_up(), "another process has taken a port of etcd while it did not run");
    }

    /// A call of `etcdctl` that is to be started.
    #[must_use]
    pub fn etcdctl(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(installed("etcdctl"));
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        command.env("ETCDCTL_API", "3").arg(format!("--endpoints={scheme}://{HOST}:{}", self.port));
        if let Some(Tls { files, client, .. }) = &self.tls {
            command.arg("--cacert").arg(&files.ca);
            if let Some(Identity { cert, key }) = client {
                command.arg("--cert").arg(cert).arg("--key").arg(key);
            }
        }
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

/// The disk of a server, on which no write ends while this is there.
#[derive(Debug)]
pub struct HungDisk {
    strace: Child,
    /// It ends by a signal if it cannot write any more.
    _said: BufReader<ChildStderr>,
}

impl Drop for HungDisk {
    fn drop(&mut self) {
        let _ = self.strace.kill();
        let _ = self.strace.wait();
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

const HOST: Ipv4Addr = Ipv4Addr::LOCALHOST;

/// The path of the server: the one that `LEASEHOLD_ETCD_SERVER` names, from the root of the repository, or the one in the `PATH`.
fn program() -> PathBuf {
    let Some(named) = env::var_os("LEASEHOLD_ETCD_SERVER") else { return installed("etcd") };
    let named = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(named);
    assert!(
        named.is_file(),
        "LEASEHOLD_ETCD_SERVER names {}, where there is no program: cargo xtask engines installs those that it tests",
        named.display()
    );
    named
}

/// The path of a program of etcd.
fn installed(program: &str) -> PathBuf {
    let path = env::var_os("PATH").unwrap_or_default();
    let found = env::split_paths(&path).map(|directory| directory.join(program)).find(|path| path.is_file());
    found.unwrap_or_else(|| {
        panic!("{program} is not installed: run cargo xtask test, which installs it, or apt-get install etcd-server etcd-client strace")
    })
}
