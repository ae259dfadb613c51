//! Completions for shells and manual pages, made from the options themselves.

use std::io::{self, Write as _};

use clap::{Command, CommandFactory as _};
use clap_complete::Shell;

use crate::error::Error;
use crate::options::Cli;

/// What a page has in its last line.
const SOURCE: &str = concat!("leasehold ", env!("CARGO_PKG_VERSION"));

/// Prints the completions for a shell.
pub(crate) fn completions(shell: Shell) -> Result<(), Error> {
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut visible(&Cli::command()), "leasehold", &mut text);
    write(&text)
}

/// Prints the manual page of a subcommand, or of the command itself.
pub(crate) fn page(subcommand: Option<&str>) -> Result<(), Error> {
    let mut command = visible(&Cli::command());
    command.build();
    let page = match subcommand {
        None => command,
        Some(name) => {
            let found = command.find_subcommand(name).cloned();
            let known = || command.get_subcommands().map(Command::get_name).collect::<Vec<_>>().join(", ");
            found.ok_or_else(|| Error::NoManual { name: name.to_owned(), known: known() })?
        }
    };
    let mut text = Vec::new();
    let name = page.get_display_name().unwrap_or("leasehold").to_owned();
    clap_mangen::Man::new(page)
        .title(name.to_uppercase())
        .source(SOURCE)
        .render(&mut text)
        .map_err(Error::Output)?;
    write(&text)
}

/// Without the subcommands that only the command itself calls.
fn visible(command: &Command) -> Command {
    let shown = command.get_subcommands().filter(|subcommand| !subcommand.is_hide_set()).cloned();
    let shown: Vec<_> = shown.collect();
    let mut fresh = Command::new("leasehold").version(env!("CARGO_PKG_VERSION")).subcommands(shown);
    if let Some(about) = command.get_about() {
        fresh = fresh.about(about.clone());
    }
    if let Some(examples) = command.get_after_help() {
        fresh = fresh.after_help(examples.clone());
    }
    fresh.subcommand_required(true).disable_help_subcommand(true)
}

fn write(text: &[u8]) -> Result<(), Error> {
    let mut stdout = io::stdout().lock();
    stdout.write_all(text).and_then(|()| stdout.flush()).map_err(Error::Output)
}
