//! One run of the real program.

use std::ffi::OsStr;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::patience::{Lines, ended};

/// The program under test.
pub(crate) fn program() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_leasehold"))
}

/// The result of a run.
#[derive(Debug)]
pub(crate) struct Finished {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

/// A program as a shell at a terminal would start it: every signal has its default effect.
///
/// A process inherits which signals are ignored, and the tests must not depend on how they were started: `nohup` and
/// background jobs ignore some that `run` forwards, and runners written in Python ignore others.
pub(crate) fn start(program: impl AsRef<OsStr>) -> Command {
    // The standard library has no safe way to do this. On systems other than Linux `env` lacks the option.
    let mut command = if cfg!(target_os = "linux") {
        let mut command = Command::new("env");
        command.arg("--default-signal").arg(program);
        command
    } else {
        Command::new(program)
    };
    // No test may leave a lock in the home directory of its user.
    command.env("HOME", concat!(env!("CARGO_TARGET_TMPDIR"), "/home"));
    command
}

/// Runs the program with these arguments, separated by spaces, and without a terminal.
pub(crate) fn leasehold(arguments: &str) -> Finished {
    finish(leasehold_command().args(arguments.split_whitespace()))
}

/// The same with `LEASEHOLD_URL` set.
pub(crate) fn leasehold_at(url: &str, arguments: &str) -> Finished {
    finish(leasehold_command().env("LEASEHOLD_URL", url).args(arguments.split_whitespace()))
}

/// The program, without a URL.
pub(crate) fn leasehold_command() -> Command {
    let mut command = start(program());
    // Whatever the environment of the test has.
    without_settings(&mut command);
    command
}

/// Removes the settings of the user who runs the tests.
pub(crate) fn without_settings(command: &mut Command) {
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("LEASEHOLD_"))
    {
        command.env_remove(name);
    }
    command.env("XDG_CONFIG_HOME", "/nonexistent");
}

/// Runs a command to its end, without input.
pub(crate) fn finish(command: &mut Command) -> Finished {
    let what = format!("{command:?}");
    let mut process = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap_or_else(|error| panic!("{what} cannot start: {error}"));
    let stdout = Lines::of(process.stdout.take().expect("a pipe"));
    let stderr = Lines::of(process.stderr.take().expect("a pipe"));
    let status = ended(&what, &mut process);
    let [stdout, stderr] = [stdout, stderr].map(|lines| lines.rest(&format!("all output of {what}")));
    Finished { code: status.code(), stdout, stderr }
}
