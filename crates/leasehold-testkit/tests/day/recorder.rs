//! What is logged, with placeholders for what differs from day to day.

use std::fmt::{self, Write as _};
use std::sync::{Mutex, PoisonError};

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

static LOG: Mutex<Vec<String>> = Mutex::new(Vec::new());

struct Recorder;

impl Subscriber for Recorder {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("leasehold") && *metadata.level() <= Level::INFO
    }

    fn event(&self, event: &Event<'_>) {
        let mut line = Line::default();
        event.record(&mut line);
        let text = format!("{} {}{}", event.metadata().level(), line.message, line.fields);
        LOG.lock().unwrap_or_else(PoisonError::into_inner).push(text);
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

#[derive(Default)]
struct Line {
    message: String,
    fields: String,
}

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let written = match field.name() {
            "message" => write!(self.message, "{value:?}"),
            name @ ("after" | "held_for" | "lasts" | "waited") => write!(self.fields, " {name}=TIME"),
            name => write!(self.fields, " {name}={value:?}"),
        };
        written.expect("a text takes everything");
    }
}

/// Records from here on.
pub(crate) fn install() {
    tracing::subscriber::set_global_default(Recorder).expect("there is no other");
}

pub(crate) fn clear() {
    LOG.lock().unwrap_or_else(PoisonError::into_inner).clear();
}

/// How often these words were logged.
pub(crate) fn count(words: &str) -> usize {
    LOG.lock().unwrap_or_else(PoisonError::into_inner).iter().filter(|line| line.contains(words)).count()
}

/// All lines. A client is named by the order in which it appears, and so is each of its owners.
pub(crate) fn text() -> String {
    let mut names = Names::default();
    let log = LOG.lock().unwrap_or_else(PoisonError::into_inner);
    log.iter().fold(String::new(), |text, line| text + &names.placed(line) + "\n")
}

#[derive(Default)]
struct Names {
    clients: Vec<String>,
    owners: Vec<String>,
}

impl Names {
    fn placed(&mut self, line: &str) -> String {
        let mut words = line.split(' ').map(|word| self.word(word));
        let first = words.next().unwrap_or_default();
        words.fold(first, |line, word| line + " " + &word)
    }

    fn word(&mut self, word: &str) -> String {
        match word.split_once('=') {
            Some((field @ "server", server)) => {
                format!("{field}={}", without_place(server.trim_matches('"')))
            }
            Some((field @ "client", id)) => format!("{field}={}", numbered(&mut self.clients, "CLIENT", id)),
            Some((field @ ("owner" | "holder"), owner)) => {
                format!("{field}={}", numbered(&mut self.owners, "OWNER", owner))
            }
            _ => word.to_owned(),
        }
    }
}

/// The address of a server without its port, or of files without their directory.
fn without_place(server: &str) -> String {
    match server.rsplit_once(':') {
        Some(("file", _)) => "file:DIRECTORY".into(),
        Some((host, _)) => format!("{host}:PORT"),
        None => server.into(),
    }
}

fn numbered(known: &mut Vec<String>, what: &str, id: &str) -> String {
    let number = known.iter().position(|other| other == id).unwrap_or_else(|| {
        known.push(id.to_owned());
        known.len() - 1
    });
    format!("{what}-{}", number + 1)
}
