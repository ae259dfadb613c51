//! A running driver.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use bench_drivers::Outcome;

use crate::machine;
use crate::plan::{Contender, Options, Program};

/// Where the drivers are.
#[derive(Clone)]
pub(crate) struct Places {
    rust: PathBuf,
    others: PathBuf,
}

impl Places {
    pub(crate) fn new(options: &Options) -> Result<Self, String> {
        let beside = || {
            let this = std::env::current_exe().map_err(|error| error.to_string())?;
            this.parent()
                .map(PathBuf::from)
                .ok_or_else(|| String::from("the folder of this program is unknown"))
        };
        let rust = options.rust.clone().map_or_else(beside, Ok)?;
        Ok(Self { rust, others: options.drivers.clone() })
    }

    /// With the drivers in Rust elsewhere.
    pub(crate) fn with_rust(&self, rust: &Path) -> Self {
        Self { rust: rust.into(), others: self.others.clone() }
    }

    fn command(&self, program: Program) -> Command {
        match program {
            Program::Rust(name) => Command::new(self.rust.join(name)),
            Program::Go => Command::new(self.others.join("go/bench")),
            Program::Java => {
                let mut java = Command::new("java");
                let folder = self.others.join("java").display().to_string();
                java.arg("-cp").arg(format!("{folder}/classes:{folder}/lib/*")).arg("Bench");
                java
            }
            Program::Python => {
                let mut python = Command::new(self.others.join("python/bin/python"));
                python.arg("bench/python/driver.py");
                python
            }
            Program::Node => {
                let mut node = Command::new("node");
                node.arg("bench/node/driver.mjs");
                node
            }
        }
    }
}

/// A driver's process. It is ended when this is dropped.
pub(crate) struct Driver {
    child: Child,
    input: Option<ChildStdin>,
    lines: Receiver<String>,
    complaints: Receiver<String>,
}

impl Driver {
    pub(crate) fn start(places: &Places, contender: &Contender, words: &[String]) -> Result<Self, String> {
        let mut command = places.command(contender.program);
        command.args(contender.words).args(words);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().map_err(|error| format!("its driver does not start: {error}"))?;
        let (send, lines) = channel();
        let output = child.stdout.take().ok_or("no output")?;
        thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                if send.send(line).is_err() {
                    break;
                }
            }
        });
        let (send, complaints) = channel();
        let mut errors = child.stderr.take().ok_or("no output for errors")?;
        thread::spawn(move || {
            let mut text = String::new();
            let _ = errors.read_to_string(&mut text);
            let _ = send.send(text);
        });
        let input = child.stdin.take();
        Ok(Self { child, input, lines, complaints })
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The next line. If the driver ends instead, the error has its standard error.
    pub(crate) fn hear(&mut self, limit: Duration) -> Result<String, String> {
        match self.lines.recv_timeout(limit) {
            Ok(line) => Ok(line),
            Err(RecvTimeoutError::Timeout) => Err(format!("no output for {} s", limit.as_secs())),
            Err(RecvTimeoutError::Disconnected) => {
                let text = self.complaints.recv_timeout(Duration::from_secs(2)).unwrap_or_default();
                let said = text
                    .lines()
                    .rev()
                    .find(|line| !line.trim().is_empty())
                    .unwrap_or("without an error message");
                Err(format!("its driver ended: {}", said.trim()))
            }
        }
    }

    /// Waits for one word.
    pub(crate) fn expect(&mut self, word: &str, limit: Duration) -> Result<(), String> {
        let line = self.hear(limit)?;
        if line == word { Ok(()) } else { Err(format!("the driver wrote {line} instead of {word}")) }
    }

    pub(crate) fn say(&mut self, word: &str) -> Result<(), String> {
        let input = self.input.as_mut().ok_or("the input of its driver is closed")?;
        writeln!(input, "{word}")
            .and_then(|()| input.flush())
            .map_err(|error| format!("its driver has ended: {error}"))
    }

    pub(crate) fn outcome(&mut self, limit: Duration) -> Result<Outcome, String> {
        let line = self.hear(limit)?;
        serde_json::from_str(&line).map_err(|error| format!("{line} is not an outcome: {error}"))
    }

    pub(crate) fn cpu(&self) -> f64 {
        machine::cpu(self.pid()).unwrap_or(0.0)
    }

    /// The same for a job with a low cost that ends no thread.
    pub(crate) fn fine_cpu(&self) -> f64 {
        machine::cpu_of_threads(self.pid()).unwrap_or(0.0)
    }

    pub(crate) fn memory(&self) -> f64 {
        machine::memory(self.pid()).unwrap_or(0.0)
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        // Its keys are removed from the server anyway, so there is no need to wait for it to clean up.
        drop(self.input.take());
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
