//! The line in a lock file that says who holds the lock: for people and for queries.
//!
//! It is a hint. The kernel knows which process has locked a file; the line is believed only if it names that process.

use std::fs::{self, File};
use std::io::Read as _;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use super::lock_file::LockFile;
use crate::identity::{ClientInfo, Identity};
use crate::owner::{Owner, OwnerId};

/// The length of a record: blanks fill it up, so that one write replaces the record before.
const LENGTH: usize = 256;
/// How much of a host name and of a label is written.
const LONGEST_WORD: usize = 48;

/// The parts of a record that are the same for all holds of a client.
#[derive(Debug)]
pub(super) struct Writer {
    /// `pid=… start=… host=… label=…`
    process: String,
}

/// How a record begins: a file that does not is not ours, and stays as it is.
const BEGIN: &[u8; 4] = b"pid=";

/// The process and the owner that a record names.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Record {
    pub(super) process: u32,
    /// When the process was started, in ticks since the machine was: a later process may have the same number.
    started: Option<u64>,
    pub(super) owner: OwnerId,
    host: Option<String>,
    label: Option<String>,
}

impl Writer {
    /// Process and start are needed to tell whether a holder lives. An anonymous client writes no more than that.
    pub(super) fn new(identity: Option<&Identity>) -> Self {
        let process = std::process::id();
        let started = started(process).map_or_else(|| "-".into(), |ticks| ticks.to_string());
        let info = identity.map(|identity| &identity.info);
        let word = |text: Option<&String>| cut(text.map_or("", String::as_str), LONGEST_WORD);
        let host = word(info.and_then(|info| info.host.as_ref()));
        let label = word(info.and_then(|info| info.label.as_ref()));
        Self { process: format!("pid={process} start={started} host={host} label={label}") }
    }

    /// Writes the record of a hold. A full disk does not prevent the hold.
    pub(super) fn write(&self, lock: &LockFile, owner: OwnerId) {
        if is_ours(lock) {
            let _ = lock.file().write_all_at(self.record(owner).as_bytes(), 0);
        }
    }

    /// A record of a client, which has no owner.
    pub(super) fn client(&self) -> String {
        format!("{} since={}\n", self.process, Since(seconds()))
    }

    /// The record of a hold that begins now.
    fn record(&self, owner: OwnerId) -> String {
        let record = format!("{} since={} owner={owner}", self.process, Since(seconds()));
        format!("{record:<width$}\n", width = LENGTH - 1 - (record.len() - record.chars().count()))
    }
}

/// The record in this file names no holder any more.
pub(super) fn erase(lock: &LockFile) {
    if is_ours(lock) {
        let _ = lock.file().write_all_at(b"pid=- ", 0);
    }
}

/// Whether the file can be written, and is empty or has a record: a lock may have the name of another program's file.
fn is_ours(lock: &LockFile) -> bool {
    let mut begin = [0; BEGIN.len()];
    lock.is_writable && (matches!(lock.file().read_at(&mut begin, 0), Ok(0)) || begin == *BEGIN)
}

fn seconds() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

impl Record {
    /// The record in a lock file, if there is one.
    pub(super) fn read(path: &Path) -> Option<Self> {
        let mut text = String::new();
        let length = u64::try_from(LENGTH).unwrap_or_default();
        File::open(path).ok()?.take(length).read_to_string(&mut text).ok()?;
        Self::parse(&text)
    }

    fn parse(text: &str) -> Option<Self> {
        let field =
            |key: &str| text.split_whitespace().find_map(|word| word.strip_prefix(key)?.strip_prefix('='));
        let owner: Owner = field("owner")?.parse().ok()?;
        Some(Self {
            process: field("pid")?.parse().ok()?,
            started: field("start")?.parse().ok(),
            owner: owner.full()?,
            host: field("host").and_then(known),
            label: field("label").and_then(known),
        })
    }

    /// The client that wrote it, unless it is anonymous.
    pub(super) fn client(&self) -> Option<ClientInfo> {
        let Self { host, label, .. } = self;
        let info = ClientInfo {
            host: host.clone(),
            label: label.clone(),
            pid: Some(self.process),
            ..ClientInfo::default()
        };
        info.host.is_some().then_some(info)
    }

    /// Whether the process that wrote it is still the one with this number.
    pub(super) fn is_of_living_process(&self) -> bool {
        self.started.is_some() && started(self.process) == self.started
    }
}

/// A word, unless it stands for nothing.
fn known(word: &str) -> Option<String> {
    (word != "-").then(|| word.to_owned())
}

/// When a process was started, in ticks since the machine was.
fn started(process: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // The name of the program, in parentheses, may contain blanks and parentheses.
    stat.rsplit_once(')')?.1.split_whitespace().nth(19)?.parse().ok()
}

/// A word for a record: the beginning of a text, without blanks.
fn cut(text: &str, most: usize) -> String {
    let word: String = text
        .chars()
        .map(|letter| if letter.is_whitespace() || letter.is_control() { '_' } else { letter })
        .scan(0, |bytes, letter| {
            *bytes += letter.len_utf8();
            (*bytes <= most).then_some(letter)
        })
        .collect();
    if word.is_empty() { "-".into() } else { word }
}

/// A time, as UTC.
struct Since(u64);

impl std::fmt::Display for Since {
    /// The calendar from the number of days, in eras of 400 years that begin in March.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (days, second) = (self.0 / 86_400 + 719_468, self.0 % 86_400);
        let (era, day) = (days / 146_097, days % 146_097);
        let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
        let day = day - (365 * year + year / 4 - year / 100);
        let month = (5 * day + 2) / 153;
        let day = day - (153 * month + 2) / 5 + 1;
        let month = if month < 10 { month + 3 } else { month - 9 };
        let year = era * 400 + year + u64::from(month <= 2);
        let (hour, minute, second) = (second / 3_600, second / 60 % 60, second % 60);
        write!(f, "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client_id::ClientId;

    #[test]
    fn a_record_is_parsed_back_and_believed_as_long_as_its_process_lives() {
        let owner = OwnerId::fresh(ClientId::random(), 1);
        let writer = Writer::new(Some(&Identity::new(owner.client, "seat seller\n\0of the week")));
        let text = writer.record(owner);
        assert_eq!(text.lines().count(), 1);
        assert!(text.contains(" label=seat_seller__of_the_week "), "{text}");
        let record = Record::parse(&text).unwrap();
        assert_eq!((record.process, record.owner), (std::process::id(), owner));
        assert!(record.is_of_living_process());
        let later =
            Record { started: record.started.map(|ticks| ticks + 1), ..Record::parse(&text).unwrap() };
        assert!(!later.is_of_living_process());
        let info = record.client().expect("it is not anonymous");
        assert_eq!(info.label.as_deref(), Some("seat_seller__of_the_week"));
        assert_eq!((info.host.is_some(), info.pid), (true, Some(std::process::id())));
        let anonymous = Record::parse(&Writer::new(None).record(owner)).unwrap();
        assert_eq!((anonymous.is_of_living_process(), anonymous.client()), (true, None));
        for other in ["", "1234\n", "pid=1", "pid=x start=1 owner=1:2"] {
            assert_eq!(Record::parse(other), None);
        }
    }

    #[test]
    fn the_longest_label_and_host_fit_and_each_record_replaces_the_one_before() {
        let word = cut(&"좌".repeat(99), LONGEST_WORD);
        let process = format!("pid={} start={} host={word} label={word}", u32::MAX, u64::MAX);
        let writer = Writer { process };
        let client = ClientId::random();
        for number in [u64::MAX, 0, 7, 1 << 32, 99] {
            let text = writer.record(OwnerId { client, number });
            assert_eq!(text.len(), LENGTH);
            assert!(text.trim_end().ends_with(&format!(" owner={client}:{number}")), "{text}");
        }
    }

    #[test]
    fn a_time_is_shown_as_a_date() {
        for (seconds, text) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_399, "2000-02-28T23:59:59Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (1_709_251_200, "2024-03-01T00:00:00Z"),
            (4_102_444_799, "2099-12-31T23:59:59Z"),
        ] {
            assert_eq!(Since(seconds).to_string(), text);
        }
    }
}
