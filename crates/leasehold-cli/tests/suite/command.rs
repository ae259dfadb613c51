//! One run of the real program.

use std::path::Path;
use std::process::{Command, Stdio};

/// The program under test.
pub(crate) fn program() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_leasehold"))
}

/// What a run left behind.
#[derive(Debug)]
pub(crate) struct Finished {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

/// Runs the program with these arguments, apart by spaces, and without a terminal.
pub(crate) fn leasehold(arguments: &str) -> Finished {
    finish(leasehold_command().args(arguments.split_whitespace()))
}

/// The same with `LEASEHOLD_URL` set.
pub(crate) fn leasehold_at(url: &str, arguments: &str) -> Finished {
    finish(leasehold_command().env("LEASEHOLD_URL", url).args(arguments.split_whitespace()))
}

fn leasehold_command() -> Command {
    let mut command = Command::new(program());
    // Whatever the environment of the test says.
    command.env_remove("LEASEHOLD_URL").stdin(Stdio::null());
    command
}

fn finish(command: &mut Command) -> Finished {
    let output = command.output().expect("the program was built with this test");
    let text = |bytes| String::from_utf8(bytes).expect("the program writes UTF-8");
    Finished { code: output.status.code(), stdout: text(output.stdout), stderr: text(output.stderr) }
}
