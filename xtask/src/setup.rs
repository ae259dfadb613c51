//! The programs that the commands need, and how missing ones are installed.

use std::{
    env,
    fmt::Write as _,
    io::{self, IsTerminal as _},
};

use crate::command;

/// A program that a command needs.
pub(crate) struct Tool {
    pub(crate) name: &'static str,
    /// A command line that succeeds where the program is usable.
    pub(crate) probe: &'static str,
    /// Why it is needed.
    pub(crate) reason: &'static str,
    pub(crate) source: Source,
}

/// Where a program comes from.
pub(crate) enum Source {
    /// The Debian package of this name.
    Debian(&'static str),
    /// A crate, at the version whose behaviour the project relies on.
    Crate { name: &'static str, version: &'static str },
    /// A wheel of Python, at the version whose behaviour the project relies on, in a virtual environment of its own at this
    /// path; with its dependencies, or without.
    Wheel { name: &'static str, version: &'static str, environment: &'static str, dependencies: bool },
    /// The command of this project that fetches it.
    Xtask(&'static str),
}

/// Makes sure that every tool is usable, by installing those that are missing.
///
/// It installs without asking when `yes` is set or the environment has `CI=true`, and otherwise only after a yes on the
/// terminal.
///
/// # Errors
///
/// When a tool is missing in the end, whatever the cause: a test that cannot run must not count as passed.
pub(crate) fn ensure(tools: &[Tool], yes: bool) -> Result<(), String> {
    let missing = unusable(tools);
    if missing.is_empty() {
        return Ok(());
    }
    let mut report = String::from("missing programs:\n");
    for tool in &missing {
        let _ = writeln!(report, "  {}: {}", tool.name, tool.reason);
    }
    let commands = match install_commands(&missing) {
        Ok(commands) => commands,
        Err(by_hand) => return Err(report + &by_hand),
    };
    report += "These commands install them:\n";
    for line in &commands {
        let _ = writeln!(report, "  {line}");
    }

    if yes || env::var_os("CI").is_some_and(|value| value == "true") {
        eprint!("{report}");
    } else if io::stdin().is_terminal() && io::stderr().is_terminal() {
        eprint!("{report}Install them now? [y/N] ");
        let mut answer = String::new();
        io::stdin().read_line(&mut answer).map_err(|error| format!("cannot read the answer: {error}"))?;
        if !["y", "yes"].contains(&answer.trim().to_lowercase().as_str()) {
            return Err("nothing was installed, so nothing was run".into());
        }
    } else {
        return Err(report + "Run them, or call this again with --yes.");
    }

    for line in &commands {
        command::run(line)?;
    }
    match unusable(tools).as_slice() {
        [] => Ok(()),
        still => Err(format!(
            "still missing after the installation: {}",
            names(still.iter().map(|tool| tool.name))
        )),
    }
}

fn unusable(tools: &[Tool]) -> Vec<&Tool> {
    tools.iter().filter(|tool| !command::works(tool.probe)).collect()
}

/// The command lines that install `missing`, or a list to install by hand where there is no apt-get.
///
/// Debian's packages come first, because the others may need them.
fn install_commands(missing: &[&Tool]) -> Result<Vec<String>, String> {
    let mut packages = Vec::new();
    let mut commands = Vec::new();
    for tool in missing {
        match tool.source {
            Source::Debian(package) => packages.push(package),
            Source::Crate { name, version } => {
                commands.push(format!("cargo install {name} --locked --version {version}"));
            }
            Source::Xtask(name) => {
                let line = format!("cargo xtask {name}");
                // One command may fetch several tools.
                if !commands.contains(&line) {
                    commands.push(line);
                }
            }
            Source::Wheel { name, version, environment, dependencies } => {
                let alone = if dependencies { "" } else { "--no-deps " };
                commands.extend([
                    format!("python3 -m venv --clear {environment}"),
                    format!("{environment}/bin/pip install {alone}{name}=={version}"),
                ]);
            }
        }
    }
    if packages.is_empty() {
        return Ok(commands);
    }
    if !command::works("apt-get --version") {
        return Err(format!(
            "There is no apt-get here. Install the programs of these Debian packages by hand: {}",
            names(packages)
        ));
    }
    let root = command::output("id -u").is_ok_and(|user| user.trim_ascii() == b"0");
    let sudo = if root { "" } else { "sudo " };
    let mut first = vec![
        format!("{sudo}apt-get update"),
        format!("{sudo}apt-get install --yes --no-install-recommends {}", packages.join(" ")),
    ];
    first.append(&mut commands);
    Ok(first)
}

fn names<'a>(names: impl IntoIterator<Item = &'a str>) -> String {
    names.into_iter().collect::<Vec<_>>().join(", ")
}
