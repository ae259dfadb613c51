//! The messages while `run` waits for a lock.

use std::convert::Infallible;
use std::future::pending;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressFinish, ProgressStyle};
use tokio::time::{Instant, sleep};

use super::failure::{LockText, held, held_briefly};
use super::lock::RunLock;
use super::notices::Notices;
use crate::duration::human;

/// If the lock is free by then, nothing is shown.
const QUIET: Duration = Duration::from_millis(200);
/// How often the line on a terminal is refreshed.
const REFRESH: Duration = Duration::from_secs(1);

/// Shows the holder of the lock, until dropped: on a terminal in one line that is kept up to date and then cleared,
/// elsewhere once.
pub(super) async fn report(lock: &RunLock, text: &LockText, notices: &Notices) -> Infallible {
    let start = Instant::now();
    sleep(QUIET).await;
    let line = Line::on_stderr();
    if !line.is_shown() {
        notices.say(format!("waiting for {text}{}", held(lock, text).await));
        return pending().await;
    }
    loop {
        let held = held_briefly(lock, text).await;
        let waited = Duration::from_secs(start.elapsed().as_secs().max(1));
        line.show(format!("leasehold: waiting for {} for {}{held}", text.brief(), human(waited)));
        sleep(REFRESH).await;
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
