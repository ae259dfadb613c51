//! The result of the demo, as text and as JSON.

use std::cmp::Ordering;
use std::fmt;

use serde::Serialize;

use super::kind::Kind;
use super::phase::{Outcome, Phase};
use crate::error::Error;
use crate::url::Url;

/// Both phases and their parameters. Its display form is the summary, its serialized form the output of `--json`.
#[derive(Debug, Serialize)]
pub struct Report {
    /// How many users wanted to join.
    pub users: u32,
    /// How many seats there were.
    pub seats: u32,
    /// Over how many processes the users were spread.
    pub processes: u32,
    /// The kind of the lock.
    pub kind: Kind,
    /// The engine that kept the lock.
    pub url: Url,
    /// The phase without the lock.
    pub unlocked: Outcome,
    /// The phase with it.
    pub locked: Outcome,
}

impl Report {
    /// Checks that the lock admitted as many users as it should have.
    ///
    /// # Errors
    ///
    /// [`Error::WrongCount`] if it did not.
    pub fn check(&self) -> Result<(), Error> {
        let (joined, expected) = (self.locked.tally.joined, self.expected());
        if joined == expected { Ok(()) } else { Err(Error::WrongCount { joined, expected }) }
    }

    /// How many users should join.
    fn expected(&self) -> u32 {
        self.users.min(self.seats)
    }

    fn row(&self, f: &mut fmt::Formatter<'_>, phase: Phase, outcome: Outcome) -> fmt::Result {
        let Outcome { tally, ms } = outcome;
        let time = if ms < 10_000 { format!("{ms} ms") } else { format!("{} s", ms / 1000) };
        let label = phase.label();
        let verdict = self.verdict(tally.joined);
        writeln!(f, "  {label:<16}{:>10}{:>10}{time:>11}   {verdict}", tally.joined, tally.refused)
    }

    fn verdict(&self, joined: u32) -> String {
        let expected = self.expected();
        match joined.cmp(&expected) {
            Ordering::Greater => format!("{} too many", joined - expected),
            Ordering::Less => format!("{} too few", expected - joined),
            Ordering::Equal if self.seats == 0 => "no users".into(),
            Ordering::Equal if self.seats >= self.users => "all users".into(),
            Ordering::Equal => "exactly full".into(),
        }
    }

    fn closing(&self) -> &'static str {
        if self.check().is_err() {
            "The lock failed: it admitted the wrong number of users."
        } else if self.seats == 0 {
            "There was no seat at all, so there was nothing to overbook."
        } else if self.seats >= self.users {
            "There was a seat for every user, so there was nothing to overbook."
        } else if self.unlocked.tally.joined > self.seats {
            "Both phases ran the same code; the lock around it is the only difference."
        } else {
            "Without the lock the number was right by chance; with the lock it always is."
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{} for {}, all at once, in {}.",
            counted(self.users, "user", "users"),
            counted(self.seats, "seat", "seats"),
            counted(self.processes, "process", "processes"),
        )?;
        writeln!(f, "The {} lock is kept by {}\n", self.kind.label(), self.url)?;
        writeln!(f, "  {:<16}{:>10}{:>10}{:>11}", "", "joined", "refused", "time")?;
        self.row(f, Phase::Unlocked, self.unlocked)?;
        self.row(f, Phase::Locked, self.locked)?;
        write!(f, "\n{}", self.closing())
    }
}

fn counted(count: u32, one: &str, many: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { many })
}

#[cfg(test)]
mod tests {
    use super::super::phase::Tally;
    use super::*;

    /// A report with these numbers of users and seats, and of users that joined without and with the lock.
    fn report(users: u32, seats: u32, unlocked: u32, locked: u32) -> Report {
        let outcome = |joined| Outcome { tally: Tally { joined, refused: users - joined }, ms: 7 };
        Report {
            users,
            seats,
            processes: 1,
            kind: Kind::Plain,
            url: Url::from("redis://:secret@host".to_owned()),
            unlocked: outcome(unlocked),
            locked: outcome(locked),
        }
    }

    #[test]
    fn the_summary_has_a_row_for_each_phase() {
        let text = "\
100 users for 5 seats, all at once, in 1 process.
The plain lock is kept by redis://host

                      joined   refused       time
  without the lock       100         0       7 ms   95 too many
  with the lock            5        95       7 ms   exactly full

Both phases ran the same code; the lock around it is the only difference.";
        assert_eq!(report(100, 5, 100, 5).to_string(), text);
    }

    #[test]
    fn the_summary_claims_overbooking_only_where_seats_were_overbooked() {
        for (report, claims) in [
            (report(10, 0, 0, 0), ["for 0 seats", "no users", "no seat at all"]),
            (report(10, 10, 10, 10), ["for 10 seats", "all users", "a seat for every user"]),
            (report(1, 1, 1, 1), ["1 user for 1 seat,", "all users", "a seat for every user"]),
            (report(10, 3, 3, 3), ["10 users", "exactly full", "by chance"]),
            (report(10, 3, 9, 4), ["6 too many", "1 too many", "The lock failed"]),
            (report(10, 3, 9, 2), ["6 too many", "1 too few", "The lock failed"]),
        ] {
            let text = report.to_string();
            for claim in claims {
                assert!(text.contains(claim), "{claim:?} is missing in:\n{text}");
            }
            let overbooked = report.unlocked.tally.joined > report.seats && report.check().is_ok();
            assert_eq!(text.contains("only difference"), overbooked, "{text}");
        }
    }

    #[test]
    fn a_wrong_count_under_the_lock_is_an_error() {
        assert!(report(10, 3, 9, 3).check().is_ok());
        for wrong in [2, 4] {
            let error = report(10, 3, 9, wrong).check().unwrap_err();
            assert!(matches!(error, Error::WrongCount { joined, expected: 3 } if joined == wrong), "{error}");
        }
    }

    #[test]
    fn the_largest_demo_fits_into_80_columns() {
        let mut report = report(100_000, 99_999, 100_000, 99_999);
        report.processes = 256;
        report.locked.ms = 1_000_000;
        for line in report.to_string().lines() {
            assert!(line.chars().count() <= 80, "{line}");
        }
        assert!(report.to_string().contains(" 1000 s "), "{report}");
    }

    #[test]
    fn the_json_report_has_exactly_the_documented_keys() {
        let text = r#"{"users":10,"seats":3,"processes":1,"kind":"plain","url":"redis://host","unlocked":{"joined":9,"refused":1,"ms":7},"locked":{"joined":3,"refused":7,"ms":7}}"#;
        assert_eq!(serde_json::to_string(&report(10, 3, 9, 3)).unwrap(), text);
    }
}
