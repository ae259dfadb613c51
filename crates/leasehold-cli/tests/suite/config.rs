//! Settings of `run` from options, the environment and a file.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::command::{Finished, finish, leasehold_command};
use crate::runner::TestDirectory;

/// Runs a command that prints whether this file is locked.
fn run(command: &mut Command, lock: &Path) -> Finished {
    let script = r#"flock -n "$1" true && echo free || echo locked"#;
    finish(command.args(["x", "--", "sh", "-c", script, "sh"]).arg(lock))
}

fn command() -> Command {
    let mut command = leasehold_command();
    command.arg("run");
    command
}

/// A configuration that locks in this directory.
fn configured(at: &Path, locks: &TestDirectory, more: &str) {
    fs::create_dir_all(at.parent().expect("a file in a directory")).expect("the test can write its files");
    fs::write(at, format!("url = \"{}\"\n{more}", locks.url())).expect("the test can write its files");
}

#[test]
fn the_settings_are_taken_from_the_strongest_source() {
    let [home, by_option, by_variable, by_file] = [0; 4].map(|_| TestDirectory::new());
    let file = home.path().join("own.toml");
    configured(&file, &by_file, "label = \"job\"\n");
    let locks_in = |command: &mut Command, directory: &TestDirectory| {
        let run = run(command, &directory.lock("x"));
        assert_eq!((run.code, run.stdout.as_str(), run.stderr.as_str()), (Some(0), "locked\n", ""));
    };
    locks_in(command().arg("--config").arg(&file), &by_file);
    locks_in(command().env("LEASEHOLD_CONFIG", &file), &by_file);
    locks_in(command().arg("--config").arg(&file).env("LEASEHOLD_URL", by_variable.url()), &by_variable);
    locks_in(
        command()
            .arg("--config")
            .arg(&file)
            .env("LEASEHOLD_URL", by_variable.url())
            .args(["--url", &by_option.url()]),
        &by_option,
    );

    // The user's own file, wherever that directory is, and not one in the working directory.
    configured(&home.path().join("conf/leasehold/config.toml"), &by_file, "");
    locks_in(command().env("XDG_CONFIG_HOME", home.path().join("conf")), &by_file);
    configured(&home.path().join("user/.config/leasehold/config.toml"), &by_file, "");
    locks_in(command().env_remove("XDG_CONFIG_HOME").env("HOME", home.path().join("user")), &by_file);
    configured(&home.path().join("leasehold/config.toml"), &by_file, "");
    configured(&home.path().join("config.toml"), &by_file, "");
    let elsewhere = run(command().current_dir(home.path()).env("HOME", home.path()), &by_file.lock("x"));
    assert_eq!(elsewhere.stdout, "free\n");
    assert!(elsewhere.stderr.contains("locking on this machine only"), "{elsewhere:?}");
}

#[test]
fn a_configuration_that_cannot_be_used_is_an_error_that_names_the_place_and_no_secret() {
    let (home, locks) = (TestDirectory::new(), TestDirectory::new());
    let file = home.path().join("own.toml");
    let refused = |text: &str| {
        fs::write(&file, text).expect("the test can write its files");
        let run = run(command().arg("--config").arg(&file), &locks.lock("x"));
        assert_eq!((run.code, run.stdout.as_str()), (Some(2), ""), "{run:?}");
        assert!(!run.stderr.contains("hunter2"), "{run:?}");
        run.stderr
    };
    let at = format!("leasehold: the configuration {} is malformed: line 2: ", file.display());
    let text = refused("label = 'x'\nurl = 'redis://:hunter2@h\n");
    assert!(text.starts_with(&at), "{text}");
    let text = refused("label = 'x'\nwatchdog = 'soon'\n");
    assert!(text.starts_with(&at) && text.contains("write a time like 30s"), "{text}");
    let text = refused("label = 'x'\nsentinel_password = 47_11\n");
    assert!(text.contains("expected a string") && !text.contains("4711"), "{text}");
    let text = refused("url = 'redis://:hunter2@127.0.0.1'\ncolour = 'red'\n");
    assert!(text.contains("`colour`"), "{text}");
    let text = refused("watchdog = '1ms'\n");
    assert_eq!(
        text,
        "leasehold: the watchdog of 1ms in the configuration is too short to end a command in time: the least is 200ms\n"
    );
    fs::remove_file(&file).expect("the test can write its files");
    let missing = run(command().arg("--config").arg(&file), &locks.lock("x"));
    let said = format!("leasehold: cannot read the configuration {}: No such file", file.display());
    assert_eq!(missing.code, Some(2));
    assert!(missing.stderr.starts_with(&said), "{missing:?}");
    let empty = run(command().env("LEASEHOLD_CA", ""), &locks.lock("x"));
    assert_eq!(empty.code, Some(2));
    assert_eq!(empty.stderr, "leasehold: LEASEHOLD_CA is empty: unset it, or give it a value\n");
}
