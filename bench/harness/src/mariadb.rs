//! A `MariaDB` server for one run.

use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use std::{fs, thread};

/// The server, its directory and its port. It has no password, and only this machine can connect.
pub(crate) struct MariaDb {
    process: Child,
    directory: PathBuf,
    port: u16,
}

impl MariaDb {
    pub(crate) fn start() -> Result<Self, String> {
        let directory = std::env::temp_dir().join(format!("leasehold-mariadb-{}", std::process::id()));
        let data = format!("--datadir={}", directory.join("data").display());
        fs::create_dir_all(&directory).map_err(|error| error.to_string())?;
        let user = Command::new("id").arg("-un").output().map_err(|error| error.to_string())?;
        let user = format!("--user={}", String::from_utf8_lossy(&user.stdout).trim());
        let installed = Command::new("mariadb-install-db")
            .args([
                "--no-defaults",
                "--auth-root-authentication-method=normal",
                "--skip-test-db",
                &data,
                &user,
            ])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status();
        if !installed.is_ok_and(|status| status.success()) {
            return Err("mariadb-install-db cannot create a directory".into());
        }
        let free = TcpListener::bind("127.0.0.1:0").and_then(|socket| socket.local_addr());
        let port = free.map_err(|error| error.to_string())?.port();
        let process = Command::new("mariadbd")
            .args(["--no-defaults", "--skip-grant-tables", "--skip-networking=0", &data, &user])
            .args(["--bind-address=127.0.0.1", "--max-connections=300", &format!("--port={port}")])
            .arg(format!("--socket={}", directory.join("socket").display()))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|error| format!("mariadbd does not start: {error}"))?;
        let server = Self { process, directory, port };
        let began = Instant::now();
        while server.questions().is_err() {
            if began.elapsed() > Duration::from_secs(30) {
                return Err("mariadbd does not reply".into());
            }
            thread::sleep(Duration::from_millis(50));
        }
        Ok(server)
    }

    pub(crate) fn url(&self) -> String {
        format!("mysql://root@127.0.0.1:{}/", self.port)
    }

    /// How many statements clients have sent.
    pub(crate) fn questions(&self) -> Result<f64, String> {
        let output = Command::new("mariadb")
            .args(["--no-defaults", "--batch", "--skip-column-names", "--user=root"])
            .arg(format!("--socket={}", self.directory.join("socket").display()))
            .args(["--execute", "SHOW GLOBAL STATUS LIKE 'Questions'"])
            .output()
            .map_err(|error| error.to_string())?;
        let text = String::from_utf8_lossy(&output.stdout);
        let number = text.split_whitespace().last().and_then(|word| word.parse().ok());
        number.ok_or_else(|| "mariadbd does not report its number of statements".into())
    }
}

impl Drop for MariaDb {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = fs::remove_dir_all(&self.directory);
    }
}
