//! Command lines, written as in a shell: words at spaces, `NAME=value` in front for the environment, no quoting.

use std::process::{Command, Stdio};

/// Shows a command line, then runs it with its input and output passed through.
///
/// # Errors
///
/// When the program cannot be started or reports a failure.
pub(crate) fn run(line: &str) -> Result<(), String> {
    run_with(line, &[])
}

/// Shows a command line with more words, which may contain spaces, then runs it likewise.
///
/// # Errors
///
/// When the program cannot be started or reports a failure.
pub(crate) fn run_with(line: &str, words: &[String]) -> Result<(), String> {
    let shown = [&[line.to_owned()], words].concat().join(" ");
    println!("$ {shown}");
    let status =
        parse(line).args(words).status().map_err(|error| format!("`{shown}` cannot start: {error}"))?;
    if status.success() { Ok(()) } else { Err(format!("`{shown}` failed: {status}")) }
}

/// Whether a command line starts and succeeds; none of its output is shown.
pub(crate) fn works(line: &str) -> bool {
    let quiet = parse(line).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status();
    quiet.is_ok_and(|status| status.success())
}

/// The standard output of a command line.
///
/// # Errors
///
/// When the program cannot be started or reports a failure.
pub(crate) fn output(line: &str) -> Result<Vec<u8>, String> {
    output_with(line, &[])
}

/// The standard output of a command line with more words, which may contain spaces.
///
/// # Errors
///
/// When the program cannot be started or reports a failure.
pub(crate) fn output_with(line: &str, words: &[String]) -> Result<Vec<u8>, String> {
    let output = parse(line)
        .args(words)
        .stderr(Stdio::inherit())
        .output()
        .map_err(|error| format!("`{line}` cannot start: {error}"))?;
    if output.status.success() {
        Ok(output.stdout)
    } else {
        Err(format!("`{line}` failed: {}", output.status))
    }
}

/// The program of a command line, its arguments and its environment.
pub(crate) fn parse(line: &str) -> Command {
    let mut words = line.split_whitespace().peekable();
    let mut environment = Vec::new();
    while let Some(pair) = words.peek().and_then(|word| word.split_once('=')) {
        environment.push(pair);
        words.next();
    }
    let mut command = Command::new(words.next().unwrap_or_default());
    command.args(words).envs(environment);
    command
}
