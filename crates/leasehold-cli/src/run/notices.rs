//! The messages of `run` on the standard error while the command runs.

use std::sync::mpsc::{Sender, channel};
use std::thread::{self, JoinHandle};

use serde_json::{Map, Value, json};

use super::failure::LockText;
use crate::options::RunOptions;
use crate::output;

/// The standard error, written by a thread of its own.
///
/// A pipe without a reader blocks its writers, and so does a terminal after Ctrl-S. The thread that has to kill a command in
/// time must not block. Dropping this waits until all is written.
#[derive(Debug)]
pub(super) struct Notices {
    least: Level,
    /// One object for each message, with the fields of the lock, instead of text.
    json: Option<Map<String, Value>>,
    lines: Option<Sender<String>>,
    writer: Option<JoinHandle<()>>,
}

/// How much a message matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Level {
    /// With `--verbose` and `--json`.
    Detail,
    /// Not with `--quiet`.
    Notice,
    /// Always: something endangers the command, or the meaning of the lock.
    Warning,
}

/// What a message is about: the field `event` of its object. [`Notices`] has the text beside it.
#[derive(Debug, Clone)]
pub(super) struct Event {
    level: Level,
    name: &'static str,
    fields: Map<String, Value>,
}

impl Event {
    pub(super) fn new(level: Level, name: &'static str) -> Self {
        Self { level, name, fields: Map::new() }
    }

    /// The same with a field.
    pub(super) fn with(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.fields.insert(name.into(), value.into());
        self
    }
}

impl Notices {
    pub(super) fn new(options: &RunOptions, lock: &LockText) -> Self {
        let least = match options {
            RunOptions { quiet: true, .. } => Level::Warning,
            RunOptions { verbose: true, .. } | RunOptions { json: true, .. } => Level::Detail,
            _ => Level::Notice,
        };
        let json = options.json.then(|| lock.fields());
        let (lines, queue) = channel::<String>();
        let write = move || {
            for line in queue {
                output::write(&line);
            }
        };
        // Without another thread there are no notices, and the command still runs.
        let writer = thread::Builder::new().name("notices".into()).spawn(write).ok();
        Self { least, json, lines: Some(lines), writer }
    }

    /// Whether a message of this level is text that is written.
    pub(super) fn has_text(&self, level: Level) -> bool {
        self.json.is_none() && level >= self.least
    }

    /// Something that an operator should know, whatever the options.
    pub(super) fn warn(&self, text: impl Into<String>) {
        self.say(Event::new(Level::Warning, "warning"), text);
    }

    /// Writes a message, unless the options are against it.
    pub(super) fn say(&self, event: Event, text: impl Into<String>) {
        let Some(lines) = self.lines.as_ref().filter(|_| event.level >= self.least) else { return };
        let text = text.into();
        let line = match &self.json {
            None => output::line(text),
            Some(lock) => object(event, lock, text),
        };
        let _ = lines.send(line);
    }
}

fn object(event: Event, lock: &Map<String, Value>, text: String) -> String {
    let mut object = Map::from_iter([("event".into(), json!(event.name))]);
    object.extend(lock.clone());
    object.extend(event.fields);
    object.insert("text".into(), text.into());
    format!("{}\n", Value::Object(object))
}

impl Drop for Notices {
    fn drop(&mut self) {
        self.lines = None;
        if let Some(writer) = self.writer.take() {
            let _ = writer.join();
        }
    }
}
