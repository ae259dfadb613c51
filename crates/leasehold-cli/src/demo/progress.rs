//! The progress bar of a phase.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressFinish, ProgressStyle};

use super::phase::Phase;

/// How many users are done: joined or refused. The bar disappears when dropped, complete or not.
#[derive(Debug)]
pub struct Progress(ProgressBar);

impl Progress {
    /// A bar on the standard error if that is a terminal, and nothing otherwise.
    pub(crate) fn on_stderr(phase: Phase, users: u32) -> Self {
        let style = ProgressStyle::with_template("{prefix:16} [{bar:40}] {pos}/{len} users")
            .expect("the template is a constant")
            .progress_chars("=> ");
        let bar = ProgressBar::with_draw_target(Some(users.into()), ProgressDrawTarget::stderr())
            .with_style(style)
            .with_prefix(phase.label())
            // The summary that follows has all the figures.
            .with_finish(ProgressFinish::AndClear);
        Self(bar)
    }

    /// No bar, even if the standard error is a terminal.
    #[must_use]
    pub fn hidden() -> Self {
        Self(ProgressBar::hidden())
    }

    pub(crate) fn advance(&self, users: u32) {
        self.0.inc(users.into());
    }
}
