//! A server of MariaDB, and the client program that comes with it.

use std::{
    env, fs,
    io::{BufRead as _, BufReader, Write as _},
    net::{Ipv4Addr, TcpStream},
    path::{Path, PathBuf},
    process::{self, Child, ChildStdout, Command, Stdio},
    thread,
};

use super::{LOOK_EVERY, LOOKS, directory::Directory, process::Process};
use crate::port;

/// A server on a port of its own on the loopback interface, with its data in a directory of its own, in memory if the machine has one
/// there.
///
/// The user `app` has the password `p@ss/w:rd`. The server ends when this is dropped, and when this process ends for any reason. The
/// methods are blocking and short.
///
/// # Panics
///
/// All methods panic with the server's log when the server does not do what they need within 10 seconds.
#[derive(Debug)]
pub struct Mysql {
    // Dropped before its directory.
    process: Option<Process>,
    port: u16,
    settings: Vec<String>,
    directory: Directory,
}

impl Mysql {
    /// Starts a server and waits until it replies.
    ///
    /// # Panics
    ///
    /// When the server is not installed.
    #[must_use]
    pub fn start() -> Self {
        Self::with(&[])
    }

    /// The same with these lines in its configuration.
    ///
    /// # Panics
    ///
    /// As for [`start`](Self::start).
    #[must_use]
    pub fn with(settings: &[&str]) -> Self {
        // Another process may take a port before a server does; then other ports are tried.
        for _ in 0..10 {
            let directory = Directory::in_memory();
            copy(&initialized(), directory.path());
            let settings = settings.iter().map(|line| (*line).to_owned()).collect();
            let mut server = Self { process: None, port: port::free(), settings, directory };
            server.spawn();
            if server.is_up() {
                server.sql("CREATE USER IF NOT EXISTS app@'%' IDENTIFIED BY 'p@ss/w:rd'");
                return server;
            }
        }
        panic!("ten ports were taken before MariaDB could listen on them");
    }

    fn spawn(&mut self) {
        fs::write(self.path("my.cnf"), self.configuration()).expect("the directory can be written to");
        fs::write(self.path("server.log"), "").expect("the directory can be written to");
        let configuration = format!("--defaults-file={}", self.path("my.cnf").display());
        let program = installed("mariadbd");
        self.process = Some(Process::start(&program, Path::new(&configuration), self.directory.path(), ""));
    }

    fn configuration(&self) -> String {
        let Self { port, settings, directory, .. } = self;
        let (directory, settings) = (directory.path().display(), settings.join("\n"));
        format!(
            "[mariadbd]\n{}datadir={directory}/data\nport={port}\nbind-address={HOST}\nsocket={directory}/s.sock\n\
             log-error={directory}/server.log\npid-file={directory}/pid\nplugin-load-add=metadata_lock_info\nskip-log-bin\n\
             skip-name-resolve\n{SMALL}{settings}\n",
            user(),
        )
    }

    /// Waits until it replies; `false` if the port was taken.
    fn is_up(&mut self) -> bool {
        for _ in 0..LOOKS {
            let exited = self.process.as_mut().and_then(Process::exited);
            if self.log().contains("ready for connections") && TcpStream::connect((HOST, self.port)).is_ok() {
                return true;
            }
            if let Some(status) = exited {
                let log = self.log();
                let taken = log.contains("Address already in use");
                assert!(taken, "mariadbd ended with {status} instead of starting:\n{log}");
                return false;
            }
            thread::sleep(LOOK_EVERY);
        }
        panic!("mariadbd is not ready after 10 s:\n{}", self.log());
    }

    fn path(&self, file: &str) -> PathBuf {
        self.directory.path().join(file)
    }

    /// The port it listens on, which stays the same when it is restarted.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// `mysql://app:…@127.0.0.1:PORT`.
    #[must_use]
    pub fn url(&self) -> String {
        format!("mysql://app:p%40ss%2Fw:rd@{}:{}", HOST, self.port)
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
        assert!(self.is_up(), "another process has taken the port of MariaDB while it did not run");
    }

    /// The rows of a statement of the administrator, each with tabs between its columns.
    ///
    /// # Panics
    ///
    /// When it fails.
    pub fn sql(&self, statement: &str) -> Vec<String> {
        let output =
            self.client().args(["-e", statement]).output().expect("the client program can be started");
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{statement}: {error}\n{}", self.log());
        String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect()
    }

    fn client(&self) -> Command {
        let mut command = Command::new(installed("mariadb"));
        command.args(["--no-defaults", "--user=root", "--skip-column-names", "--batch", "--unbuffered"]);
        command.arg(format!("--socket={}", self.path("s.sock").display()));
        command
    }

    /// A plain session of the client program, which goes on after errors.
    ///
    /// # Panics
    ///
    /// When it cannot be started.
    #[must_use]
    pub fn session(&self) -> MysqlSession {
        let mut command = self.client();
        let mut child = command
            .arg("--force")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the client program can be started");
        let output = BufReader::new(child.stdout.take().expect("its output is a pipe"));
        MysqlSession { child, output }
    }

    /// The ids of the connections of the user `app`.
    ///
    /// # Panics
    ///
    /// As for [`sql`](Self::sql).
    #[must_use]
    pub fn connections(&self) -> Vec<u32> {
        let rows = self.sql("SELECT ID FROM information_schema.PROCESSLIST WHERE USER = 'app' ORDER BY ID");
        rows.iter().map(|row| row.parse().expect("an id is a number")).collect()
    }

    /// The names of locks that are held, and which connection holds each, in the order of the names.
    ///
    /// # Panics
    ///
    /// As for [`sql`](Self::sql).
    #[must_use]
    pub fn locks(&self) -> Vec<(String, u32)> {
        let rows = self.sql(
            "SELECT TABLE_SCHEMA, THREAD_ID FROM information_schema.METADATA_LOCK_INFO \
             WHERE LOCK_TYPE = 'User lock' ORDER BY TABLE_SCHEMA",
        );
        let lock = |row: &String| {
            let (name, id) = row.rsplit_once('\t').expect("two columns");
            (name.to_owned(), id.parse().expect("an id is a number"))
        };
        rows.iter().map(lock).collect()
    }
}

/// A plain session. Killed when this is dropped, so that the server frees its locks.
#[derive(Debug)]
pub struct MysqlSession {
    child: Child,
    output: BufReader<ChildStdout>,
}

impl MysqlSession {
    /// The first row of a statement that has one, once there is one.
    ///
    /// # Panics
    ///
    /// When the session has ended.
    pub fn sql(&mut self, statement: &str) -> String {
        self.send(statement);
        self.row()
    }

    /// Sends a statement, without waiting for its row.
    ///
    /// # Panics
    ///
    /// When the session has ended.
    pub fn send(&mut self, statement: &str) {
        let input = self.child.stdin.as_mut().expect("its input is a pipe");
        writeln!(input, "{statement};").expect("the session takes statements");
    }

    /// The next row.
    ///
    /// # Panics
    ///
    /// When the session has ended.
    pub fn row(&mut self) -> String {
        let mut row = String::new();
        let length = self.output.read_line(&mut row).expect("its output can be read");
        assert!(length > 0, "the session has ended");
        row.trim_end().to_owned()
    }
}

impl Drop for MysqlSession {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

const HOST: Ipv4Addr = Ipv4Addr::LOCALHOST;

/// Little memory and no waits for a disk: locks need neither.
const SMALL: &str = "innodb-buffer-pool-size=8M\ninnodb-log-file-size=4M\ninnodb-flush-log-at-trx-commit=0\n\
                     key-buffer-size=1M\naria-pagecache-buffer-size=1M\nperformance-schema=off\n";

/// The directory of a server that has never run, in the cache of the user: making one takes some seconds.
fn initialized() -> PathBuf {
    let cache = env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    let cache = cache.or_else(|| env::var_os("HOME").map(|home| PathBuf::from(home).join(".cache")));
    let cache = cache.unwrap_or_else(env::temp_dir).join("leasehold");
    let version = Command::new(installed("mariadbd")).arg("--version").output().expect("it says its version");
    let version = String::from_utf8_lossy(&version.stdout).into_owned();
    let version: String = version.split_whitespace().nth(2).unwrap_or("mariadb").replace('/', "-");
    let done = cache.join(format!("mariadb-{version}"));
    if done.is_dir() {
        return done;
    }
    fs::create_dir_all(&cache).expect("the cache can be written to");
    let making = cache.join(format!("mariadb-{}", process::id()));
    let _ = fs::remove_dir_all(&making);
    let output = Command::new(installed("mariadb-install-db"))
        .args(["--no-defaults", "--auth-root-authentication-method=normal", "--skip-test-db"])
        .args(["--innodb-log-file-size=4M", "--innodb-buffer-pool-size=8M"])
        .arg(format!("--datadir={}", making.display()))
        .args(if user().is_empty() { None } else { Some("--user=root") })
        .output()
        .expect("mariadb-install-db can be started");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    // Another process may have been faster.
    if fs::rename(&making, &done).is_err() {
        let _ = fs::remove_dir_all(&making);
    }
    assert!(done.is_dir(), "{} can be made", done.display());
    done
}

/// The administrator of the machine has to say so, or the server does not start.
fn user() -> &'static str {
    let is_root = Command::new("id").arg("-u").output().is_ok_and(|output| output.stdout.starts_with(b"0\n"));
    if is_root { "user=root\n" } else { "" }
}

fn copy(from: &Path, to: &Path) {
    let status = Command::new("cp").arg("-r").arg(from).arg(to.join("data")).status();
    assert!(status.is_ok_and(|status| status.success()), "{} can be copied", from.display());
}

/// The path of a program of MariaDB.
fn installed(program: &str) -> PathBuf {
    let path = env::var_os("PATH").unwrap_or_default();
    let places = env::split_paths(&path).chain(["/usr/sbin".into()]);
    let found = places.map(|directory| directory.join(program)).find(|path| path.is_file());
    found.unwrap_or_else(|| {
        panic!("{program} is not installed: run cargo xtask test, which installs it, or apt-get install mariadb-server")
    })
}
