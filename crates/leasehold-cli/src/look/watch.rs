//! `leasehold watch`: the locks that are held, until a signal.

use std::collections::BTreeMap;
use std::io::{self, Write as _};
use std::process::ExitCode;

use console::Term;
use leasehold::{HeldLock, LockKind, QueryError};
use nix::sys::signal::Signal;
use tokio::select;
use tokio::time::{Instant, sleep_until};

use super::failure::LookError;
use super::text::{Details, cut};
use super::{Target, inspect, ls, text};
use crate::error::Error;
use crate::options::WatchOptions;
use crate::output::{line, print, write};
use crate::run::signals::Signals;

/// After a look that took long, the next one begins this many times later.
const REST: u32 = 5;

/// Shows the locks that are held until a signal arrives.
///
/// # Errors
///
/// A URL or name that is malformed, a server that cannot be reached or refuses at the start, and the signal that ends it.
pub async fn run(options: &WatchOptions) -> Result<ExitCode, Error> {
    let ends = [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP, Signal::SIGQUIT];
    let mut signals = Signals::listen(&ends).map_err(LookError::Signals)?;
    let target = select! {
        biased;
        signal = signals.next() => return Err(LookError::Signal(signal).into()),
        target = Target::connect(&options.target) => target?,
    };
    let signal = select! {
        biased;
        signal = signals.next() => signal,
        ended = watch(options, &target) => return ended.map(|()| ExitCode::SUCCESS),
    };
    if signal == Signal::SIGINT {
        // It was asked for, so it is no error.
        return Ok(ExitCode::from(LookError::Signal(signal).exit_code()));
    }
    Err(LookError::Signal(signal).into())
}

async fn watch(options: &WatchOptions, target: &Target) -> Result<(), Error> {
    let screen = Screen::begin();
    let mut known = Known::default();
    let mut is_first = true;
    loop {
        let begun = Instant::now();
        let seen = Seen::look(options, target).await;
        match seen {
            Err(error) if is_first => return Err(LookError::from(error).into()),
            seen => match &screen {
                Some(screen) => screen.draw(&heading(options, target), &seen)?,
                None => known.print_changes(seen)?,
            },
        }
        is_first = false;
        sleep_until(begun + options.interval.max(begun.elapsed() * REST)).await;
    }
}

fn heading(options: &WatchOptions, target: &Target) -> String {
    let every = crate::duration::human(options.interval);
    match &options.name {
        Some(name) => format!("{name:?} on {}, every {every}", target.url),
        None => format!("locks on {}, every {every}", target.url),
    }
}

/// One look.
#[derive(Debug)]
enum Seen {
    All { locks: Vec<HeldLock>, is_complete: bool },
    One(String, Option<Box<(HeldLock, Details)>>),
}

impl Seen {
    async fn look(options: &WatchOptions, Target { client, .. }: &Target) -> Result<Self, QueryError> {
        if let Some(name) = &options.name {
            return Ok(Self::One(name.clone(), inspect::look(client, name).await?.map(Box::new)));
        }
        let listing = client.list("*").await?;
        Ok(Self::All { locks: listing.locks, is_complete: listing.is_complete })
    }

    /// In so many columns.
    fn lines(&self, columns: usize) -> Vec<String> {
        match self {
            Self::All { locks, .. } if locks.is_empty() => vec!["no lock is held".into()],
            Self::All { locks, is_complete } => {
                let mut lines = text::table(locks, Some(columns));
                if !is_complete {
                    lines.insert(0, ls::INCOMPLETE.into());
                }
                lines
            }
            Self::One(name, None) => vec![format!("{name:?} is free")],
            Self::One(_, Some(found)) => text::lines(&found.0, &found.1),
        }
    }

    fn into_locks(self) -> Vec<HeldLock> {
        match self {
            Self::All { locks, .. } => locks,
            Self::One(_, found) => found.into_iter().map(|found| found.0).collect(),
        }
    }
}

/// What was printed of the locks.
#[derive(Debug, Default)]
struct Known {
    holders: BTreeMap<(String, LockKind), String>,
    is_away: bool,
}

impl Known {
    fn print_changes(&mut self, seen: Result<Seen, QueryError>) -> Result<(), Error> {
        let seen = match seen {
            Err(error) => {
                if !self.is_away {
                    write(&line(error));
                }
                self.is_away = true;
                return Ok(());
            }
            // What is missing in a part of a list may be held.
            Ok(Seen::All { is_complete: false, .. }) => {
                if !self.is_away {
                    write(&line(ls::INCOMPLETE));
                }
                self.is_away = true;
                return Ok(());
            }
            Ok(seen) => seen,
        };
        self.is_away = false;
        let locks = seen.into_locks().into_iter();
        let now: BTreeMap<_, _> =
            locks.map(|lock| ((lock.name.clone(), lock.kind), text::who(&lock))).collect();
        for ((name, kind), holder) in &self.holders {
            if !now.contains_key(&(name.clone(), *kind)) {
                print(format_args!("released {kind} {name:?} {holder}"))?;
            }
        }
        for (key @ (name, kind), holder) in &now {
            match self.holders.get(key) {
                Some(before) if before == holder => {}
                Some(_) => print(format_args!("changed {kind} {name:?} {holder}"))?,
                None => print(format_args!("acquired {kind} {name:?} {holder}"))?,
            }
        }
        self.holders = now;
        Ok(())
    }
}

/// The second screen of the terminal, without a cursor. The first one is back when this is dropped.
#[derive(Debug)]
struct Screen(Term);

impl Screen {
    /// None if the standard output is no terminal.
    fn begin() -> Option<Self> {
        let terminal = Term::stdout();
        if !terminal.is_term() {
            return None;
        }
        put("\x1b[?1049h\x1b[?25l").ok()?;
        Some(Self(terminal))
    }

    fn draw(&self, heading: &str, seen: &Result<Seen, QueryError>) -> Result<(), Error> {
        let (rows, columns) = self.0.size();
        let (rows, columns) = (usize::from(rows), usize::from(columns));
        let mut lines = vec![heading.to_owned(), String::new()];
        match seen {
            Ok(seen) => lines.extend(seen.lines(columns)),
            Err(error) => lines.push(line(error).trim_end().to_owned()),
        }
        if lines.len() > rows {
            let hidden = lines.len() - rows + 1;
            lines.truncate(rows.saturating_sub(1));
            lines.push(format!("… and {hidden} more"));
        }
        // Each line is replaced as a whole, and what is below the last one is cleared: nothing flickers.
        let lines: Vec<_> = lines.iter().map(|line| format!("{}\x1b[K", cut(line, columns))).collect();
        put(&format!("\x1b[H{}\x1b[J", lines.join("\r\n"))).map_err(Error::Output)
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        let _ = put("\x1b[?25h\x1b[?1049l");
    }
}

fn put(text: &str) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush())
}
