//! The progress bar, on a real terminal and elsewhere.

use std::process::{Command, Stdio};

use crate::command::{leasehold, program};

/// What appears on a terminal that runs the program with these arguments.
fn on_a_terminal(arguments: &str) -> String {
    let line = format!("'{}' {arguments}", program().display());
    let output = Command::new("script")
        .args(["--quiet", "--return", "--command", &line, "/dev/null"])
        // No bar is drawn on a terminal that is not known to understand it.
        .env("TERM", "xterm")
        .env("SHELL", "/bin/sh")
        .env_remove("LEASEHOLD_URL")
        .stdin(Stdio::null())
        .output()
        .unwrap_or_else(|error| {
            panic!("`script` makes the terminal: {error}. Run `cargo xtask test`, which installs it.")
        });
    let text = String::from_utf8(output.stdout).expect("the program writes UTF-8");
    assert!(output.status.success(), "{text}");
    text
}

const BARS: [&str; 2] = ["without the lock [", "with the lock    ["];

#[test]
fn each_phase_has_a_bar_on_a_terminal() {
    let text = on_a_terminal("demo --users 20");
    for part in BARS {
        assert!(text.contains(part), "{part:?} is missing in {text:?}");
    }
    assert!(text.contains("/20 users"), "{text:?}");
    assert!(text.contains("20 users for 5 seats"), "{text:?}");
}

#[test]
fn a_pipe_gets_no_bar() {
    let run = leasehold("demo --users 20");
    assert_eq!((run.code, run.stderr.as_str()), (Some(0), ""));
    assert!(!BARS.iter().any(|part| run.stdout.contains(part)), "{}", run.stdout);
}

#[test]
fn json_has_a_terminal_to_itself() {
    let text = on_a_terminal("demo --users 20 --json");
    assert_eq!(text.lines().count(), 1, "{text:?}");
    serde_json::from_str::<serde_json::Value>(&text).expect("one JSON object");
}
