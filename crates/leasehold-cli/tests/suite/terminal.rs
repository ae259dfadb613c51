//! The progress bar, on a real terminal and elsewhere.

use crate::command::{finish, leasehold, program, start, without_settings};

/// The output on a terminal that runs the program with these arguments.
fn on_a_terminal(arguments: &str) -> String {
    let line = format!("'{}' {arguments}", program().display());
    let mut command = start("script");
    command
        .args(["--quiet", "--return", "--command", &line, "/dev/null"])
        // No bar is drawn on a terminal without the required features.
        .env("TERM", "xterm")
        .env("SHELL", "/bin/sh");
    without_settings(&mut command);
    let run = finish(&mut command);
    // 127 means that there is no such program.
    assert_ne!(
        run.code,
        Some(127),
        "`script` makes the terminal. Run `cargo xtask test`, which installs it."
    );
    assert_eq!(run.code, Some(0), "{run:?}");
    run.stdout
}

const BARS: [&str; 2] = ["without the lock [", "with the lock    ["];

#[test]
fn each_phase_has_a_progress_bar_on_a_terminal() {
    let text = on_a_terminal("demo --users 20");
    for part in BARS {
        assert!(text.contains(part), "{part:?} is missing in {text:?}");
    }
    assert!(text.contains("/20 users"), "{text:?}");
    assert!(text.contains("20 users for 5 seats"), "{text:?}");
}

#[test]
fn a_pipe_gets_no_progress_bar() {
    let run = leasehold("demo --users 20");
    assert_eq!((run.code, run.stderr.as_str()), (Some(0), ""));
    assert!(!BARS.iter().any(|part| run.stdout.contains(part)), "{}", run.stdout);
}

#[test]
fn json_output_on_a_terminal_has_no_progress_bar() {
    let text = on_a_terminal("demo --users 20 --json");
    assert_eq!(text.lines().count(), 1, "{text:?}");
    serde_json::from_str::<serde_json::Value>(&text).expect("one JSON object");
}
