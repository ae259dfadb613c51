//! The messages while `run` waits for a lock.

use std::convert::Infallible;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressFinish, ProgressStyle};
use leasehold::Client;
use tokio::time::{Instant, sleep};

use super::Settings;
use super::failure::{LockText, held, held_briefly};
use super::lock::RunLock;
use super::notices::{Event, Level, Notices};
use crate::duration::human;

/// If the lock is free by then, nothing is shown.
const QUIET: Duration = Duration::from_millis(200);
/// How often the line on a terminal is refreshed.
const REFRESH: Duration = Duration::from_secs(1);

/// A wait for a lock.
#[derive(Debug)]
pub(super) struct Waiting<'a> {
    pub(super) client: &'a Client,
    pub(super) lock: &'a RunLock,
    pub(super) text: &'a LockText,
    /// How long it waits at most, if `--wait` says so.
    pub(super) limit: Option<Duration>,
    pub(super) settings: &'a Settings<'a>,
    pub(super) notices: &'a Notices,
}

impl Waiting<'_> {
    /// Shows the holder of the lock, and an outage of its server, until dropped: on a terminal in one line that is kept up
    /// to date and then cleared, elsewhere once.
    pub(super) async fn report(&self) -> Infallible {
        let start = Instant::now();
        sleep(QUIET).await;
        if self.notices.has_text(Level::Notice) {
            let line = Line::on_stderr();
            if line.is_shown() {
                return self.keep_up_to_date(&line, start).await;
            }
        }
        let text = format!("waiting for {}{}", self.text, held(self.lock, self.text).await);
        self.notices.say(Event::new(Level::Notice, "waiting"), text);
        let mut is_away = false;
        loop {
            match (is_away, self.outage()) {
                (false, Some(reason)) => {
                    let event = Event::new(Level::Notice, "outage");
                    self.notices.say(event, format!("{reason}. {}", self.patience(start)));
                    is_away = true;
                }
                (true, None) => {
                    let text = format!("the server is back: waiting for {}", self.text);
                    self.notices.say(Event::new(Level::Notice, "back"), text);
                    is_away = false;
                }
                _ => {}
            }
            sleep(REFRESH).await;
        }
    }

    async fn keep_up_to_date(&self, line: &Line, start: Instant) -> Infallible {
        loop {
            let how = match self.outage() {
                Some(reason) => format!(": {reason}"),
                None => held_briefly(self.lock, self.text).await,
            };
            let waited = human(Duration::from_secs(start.elapsed().as_secs().max(1)));
            line.show(format!("leasehold: waiting for {} for {waited}{how}", self.text.brief()));
            sleep(REFRESH).await;
        }
    }

    /// Why there is no connection, while there is none.
    fn outage(&self) -> Option<String> {
        let status = self.client.status();
        let reason = status.last_error.map_or_else(String::new, |error| format!(" ({error})"));
        (!status.connected).then(|| format!("the server is away{reason}"))
    }

    /// How long an outage is waited through.
    fn patience(&self, start: Instant) -> String {
        match self.limit {
            Some(limit) => {
                format!("Still waiting, for {} more", human(limit.saturating_sub(start.elapsed())))
            }
            None => format!(
                "Still waiting: it has {} to come back (--outage-limit)",
                human(self.settings.outage_limit())
            ),
        }
    }
}

/// One line of a terminal, cut at its edge. It disappears when dropped.
struct Line(ProgressBar);

impl Line {
    fn on_stderr() -> Self {
        let style = ProgressStyle::with_template("{wide_msg}").expect("the template is a constant");
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr())
            .with_style(style)
            .with_finish(ProgressFinish::AndClear);
        Self(bar)
    }

    /// False if the standard error is not a terminal, or not one that can clear a line.
    fn is_shown(&self) -> bool {
        !self.0.is_hidden()
    }

    fn show(&self, text: String) {
        self.0.set_message(text);
    }
}
