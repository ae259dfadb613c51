//! The time while the command runs under the lock.

use std::os::unix::process::ExitStatusExt as _;
use std::pin::pin;
use std::process::ExitStatus;
use std::time::Duration;
use std::{future, io};

use leasehold::{Client, Loss};
use nix::sys::signal::Signal;
use tokio::select;
use tokio::signal::unix::Signal as Stream;
use tokio::time::{Instant, interval, sleep, sleep_until};

use super::child::Child;
use super::deadline::{Plan, falls_to};
use super::failure::{Cause, LockText};
use super::held::Held;
use super::notices::{Event, Level, Notices};
use super::signals::{Signals, asks_to_end};
use super::stall::Stall;
use super::terminal::Terminal;
use super::warden::Warden;
use crate::duration::human;

/// Everything that has to be watched while the command runs.
#[derive(Debug)]
pub(super) struct Supervisor<'a> {
    pub(super) lock: &'a LockText,
    pub(super) guard: &'a Held,
    /// Since when the lock is held.
    pub(super) since: Instant,
    pub(super) max_hold: Option<Duration>,
    pub(super) client: &'a Client,
    pub(super) stall: Stall,
    pub(super) plan: Plan,
    pub(super) child: &'a mut Child,
    pub(super) warden: &'a mut Warden,
    /// The signals for the command, and SIGTSTP, which is not forwarded.
    pub(super) signals: &'a mut Signals,
    /// Resolves when a child has stopped, among other events.
    pub(super) changes: Stream,
    pub(super) terminal: &'a mut Terminal,
    pub(super) notices: &'a Notices,
}

/// How a command ended.
#[derive(Debug, Clone, Copy)]
pub(super) enum End {
    /// Under the lock, from the beginning to the end.
    Held(ExitStatus),
    /// Ended by us, for this cause.
    Lost(Cause),
    /// The command never began, because the lock was lost before.
    TooLate,
}

/// A killed command that lives longer than this, and longer than the lock, is reported.
const LONGEST_DEATH: Duration = Duration::from_secs(1);

/// A request to the command to end.
#[derive(Debug, Clone, Copy)]
struct TermRequest {
    cause: Cause,
    /// When the command is killed.
    kill: Instant,
}

impl Supervisor<'_> {
    /// Runs until the command has ended, by itself or by us.
    pub(super) async fn run(mut self) -> io::Result<End> {
        let mut lost = pin!(self.guard.lost());
        let mut checks = interval(self.plan.check_every);
        let mut requested: Option<TermRequest> = None;
        let mut wants_terminal = false;
        let cause = loop {
            select! {
                biased;
                status = self.child.ended() => return Ok(self.end_of(status?, requested).await),
                // Another owner may hold the lock by now: kill without SIGTERM.
                loss = &mut lost => break self.cause_of(loss),
                () = falls_to(self.guard, self.plan.kill) => break self.cause(requested),
                // After SIGTERM the command has to end even if the lock is renewed: it is shutting down already.
                () = at(requested.map(|requested| requested.kill)) => break self.cause(requested),
                () = falls_to(self.guard, self.plan.term), if requested.is_none() && self.plan.asks_first() => {
                    requested = Some(self.request_end());
                }
                signal = self.signals.next() => self.forward(signal),
                _ = self.changes.recv() => wants_terminal = self.stopped(wants_terminal),
                _ = checks.tick() => {
                    self.stall.awake();
                    self.warden.allow_until(self.plan.latest(self.guard));
                    if wants_terminal && self.terminal.lend(self.warden.group()) {
                        self.child.signal(Signal::SIGCONT);
                        wants_terminal = false;
                    }
                }
            }
        };
        self.child.signal(Signal::SIGKILL);
        self.dead(cause).await?;
        Ok(End::Lost(cause))
    }

    /// The outcome of a command that has ended, apparently by itself.
    async fn end_of(&mut self, status: ExitStatus, requested: Option<TermRequest>) -> End {
        if let Some(TermRequest { cause, .. }) = requested {
            // It may have left processes behind that ignore SIGTERM.
            self.child.signal(Signal::SIGKILL);
            return End::Lost(cause);
        }
        if !self.guard.is_held() {
            return End::Lost(self.cause_of(self.guard.lost().await));
        }
        let killed = status.signal() == Some(Signal::SIGKILL as i32);
        if killed && self.warden.has_ended().await { End::Lost(Cause::Stalled) } else { End::Held(status) }
    }

    fn request_end(&self) -> TermRequest {
        self.child.ask_to_end(Signal::SIGTERM);
        let cause = self.cause(None);
        let (lock, left) = (self.lock, human(self.guard.remaining()));
        let event = Event::new(Level::Warning, "ending").with("cause", cause.to_string());
        let text = format!("{lock} is about to be lost, in {left}: {cause}. The command was sent SIGTERM.");
        self.notices.say(event, text);
        let grace = self.guard.remaining().saturating_sub(self.plan.kill);
        TermRequest { cause, kill: Instant::now() + grace }
    }

    /// Why the lock is about to be lost.
    fn cause(&self, requested: Option<TermRequest>) -> Cause {
        if let Some(requested) = requested {
            return requested.cause;
        }
        let end = self.since.elapsed() + self.guard.remaining() + self.plan.slack;
        if self.max_hold.is_some_and(|max_hold| end >= max_hold) {
            Cause::MaxHold
        } else if self.stall.is_recent() {
            Cause::Stalled
        } else {
            Cause::NotRenewed
        }
    }

    /// Why the lock is lost, as far as more is known here than the guard knows.
    fn cause_of(&self, loss: Loss) -> Cause {
        match loss {
            Loss::Expired | Loss::Unreachable if self.stall.is_recent() => Cause::Stalled,
            // The connection is younger than the hold.
            Loss::Gone if !self.lock.is_file() && self.client.status().lasting < self.since.elapsed() => {
                Cause::GoneAfterOutage
            }
            _ => Cause::Lost(loss),
        }
    }

    fn forward(&self, signal: Signal) {
        match signal {
            Signal::SIGTSTP => self.not_suspended(),
            _ if asks_to_end(signal) => self.child.ask_to_end(signal),
            _ => self.child.signal(signal),
        }
    }

    /// Handles a command that may have been stopped. True if it needs the terminal and cannot have it.
    fn stopped(&mut self, wants_terminal: bool) -> bool {
        match self.child.stopped_by() {
            Some(Signal::SIGTSTP) => {
                self.child.signal(Signal::SIGCONT);
                self.not_suspended();
                false
            }
            Some(Signal::SIGTTIN | Signal::SIGTTOU) => {
                if self.terminal.lend(self.warden.group()) {
                    self.child.signal(Signal::SIGCONT);
                    return false;
                }
                if !wants_terminal {
                    self.notices.warn(
                        "the command is stopped, because it uses the terminal from the background: bring it to the \
                         foreground, or redirect its input",
                    );
                }
                true
            }
            // Stopped on purpose by another process, or not stopped at all.
            Some(_) | None => wants_terminal,
        }
    }

    /// A suspended process cannot renew, and a suspended command could be continued without a lock.
    fn not_suspended(&self) {
        self.notices.warn("a command that holds a lock cannot be suspended: it continues");
    }

    /// Waits until a killed command is dead, and reports one that takes too long.
    async fn dead(&mut self, cause: Cause) -> io::Result<()> {
        let patience = self.guard.remaining().max(LONGEST_DEATH);
        select! {
            status = self.child.ended() => return status.map(drop),
            () = sleep(patience) => {}
        }
        self.notices.warn(format!(
            "{} is lost ({cause}), and the killed command has not ended: it may run beside the next \
             holder. Check whether it runs as another user or waits for a disk",
            self.lock
        ));
        self.child.ended().await.map(drop)
    }
}

async fn at(instant: Option<Instant>) {
    match instant {
        Some(instant) => sleep_until(instant).await,
        None => future::pending().await,
    }
}
