//! `run` as a job of a terminal.

use std::io::Write as _;
use std::process::{Child, Stdio};

use leasehold_testkit::server::{Flavour, Server};

use crate::command::{program, start};
use crate::patience::{ended, eventually};
use crate::runner::{TestFile, is_locked};

/// A terminal with a shell line running on it, in which `$leasehold` is the program and `$run` is `leasehold run`.
#[derive(Debug)]
pub(crate) struct Terminal {
    process: Child,
    shown: TestFile,
}

impl Terminal {
    pub(crate) fn run(server: &Server, line: &str) -> Self {
        let shown = TestFile::new();
        let process = start("script")
            .args(["--quiet", "--return", "--flush", "--command", line, shown.path()])
            .env("SHELL", "/bin/bash")
            .env("leasehold", program())
            .env("run", format!("{} run", program().display()))
            .env("LEASEHOLD_URL", server.url())
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .expect("`script` makes the terminal: run `cargo xtask test`, which installs it");
        Self { process, shown }
    }

    /// Waits until this appears.
    pub(crate) fn shows(&self, text: &str) {
        eventually(text, || self.shown.text().contains(text));
    }

    /// Types keys.
    pub(crate) fn types(&mut self, keys: &str) {
        let keyboard = self.process.stdin.as_mut().expect("a pipe");
        keyboard.write_all(keys.as_bytes()).expect("the terminal is there");
    }

    /// What has appeared up to the end, and the exit code.
    pub(crate) fn finish(mut self) -> (String, Option<i32>) {
        let code = ended("the line on the terminal", &mut self.process).code();
        (self.shown.text(), code)
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[test]
fn the_command_and_the_next_process_of_the_script_can_read_the_terminal() {
    let server = Server::start(Flavour::Redis);
    let line = r#"$run x -- sh -c 'echo as''k; read a; echo "got $a"'; echo aga''in; read b; echo "then $b"; exit 7"#;
    let mut terminal = Terminal::run(&server, line);
    terminal.shows("ask");
    terminal.types("one\n");
    terminal.shows("got one");
    terminal.shows("again");
    terminal.types("two\n");
    let (text, code) = terminal.finish();
    assert!(text.contains("then two"), "{text}");
    assert_eq!(code, Some(7), "{text}");
}

#[test]
fn a_command_in_a_pipeline_can_read_the_terminal() {
    let server = Server::start(Flavour::Redis);
    let line = r#"echo in | $run x -- sh -c 'read i; echo as''k > /dev/tty; read a < /dev/tty; echo "got $i $a"' | cat"#;
    let mut terminal = Terminal::run(&server, line);
    terminal.shows("ask");
    terminal.types("one\n");
    let (text, code) = terminal.finish();
    assert!(text.contains("got in one"), "{text}");
    assert_eq!(code, Some(0), "{text}");
}

#[test]
fn other_processes_of_a_pipeline_can_read_the_terminal() {
    let server = Server::start(Flavour::Redis);
    let line = r#"$run x -- sh -c 'echo out; sleep 0.5' | sh -c 'read o; echo as''k; read a < /dev/tty; echo "$o $a"'"#;
    let mut terminal = Terminal::run(&server, line);
    terminal.shows("ask");
    terminal.types("one\n");
    let (text, _) = terminal.finish();
    assert!(text.contains("out one"), "{text}");
}

#[test]
fn ctrl_c_ends_the_command_and_the_surrounding_script() {
    let server = Server::start(Flavour::Redis);
    for command in ["$run x -- sh -c", "echo in | $run x -- sh -c"] {
        let line = format!("{command} 'echo rea''dy; exec sleep 1000'; echo went on $((1 + 1))");
        let mut terminal = Terminal::run(&server, &line);
        terminal.shows("ready");
        terminal.types("\x03");
        let (text, code) = terminal.finish();
        assert!(!text.contains("went on 2"), "{command}: {text}");
        assert_eq!(code, Some(130), "{command}: {text}");
        assert!(!is_locked(&server, "x"), "{command}");
    }
}

#[test]
fn ctrl_z_does_not_suspend_a_command_that_holds_a_lock() {
    let server = Server::start(Flavour::Redis);
    for command in ["$run x -- sh -c", "echo in | $run x -- sh -c"] {
        let line = format!("{command} 'echo rea''dy; read a < /dev/tty; echo \"got $a\"'");
        let mut terminal = Terminal::run(&server, &line);
        terminal.shows("ready");
        terminal.types("\x1a");
        terminal.shows("a command that holds a lock cannot be suspended: it continues");
        terminal.types("one\n");
        let (text, _) = terminal.finish();
        assert!(text.contains("got one"), "{command}: {text}");
    }
}
