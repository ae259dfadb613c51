//! The signals that we receive on behalf of the command.

use std::future::poll_fn;
use std::io;
use std::task::Poll;

use nix::sys::signal::{SigSet, Signal};
use tokio::signal::unix::{Signal as Stream, SignalKind, signal};

/// The signals that are forwarded to the command.
pub(super) const FORWARDED: [Signal; 6] =
    [Signal::SIGHUP, Signal::SIGINT, Signal::SIGQUIT, Signal::SIGTERM, Signal::SIGUSR1, Signal::SIGUSR2];

/// Signals that are reported instead of having their effect.
#[derive(Debug)]
pub(crate) struct Signals {
    streams: Vec<(Signal, Stream)>,
    interrupted: bool,
    asked_to_end: bool,
}

impl Signals {
    /// Starts to listen for these signals, for the rest of the process's life.
    ///
    /// The parent process may have set some to be ignored, as `nohup` does. Those stay ignored, by us and by the command,
    /// which inherits that.
    pub(crate) fn listen(signals: &[Signal]) -> io::Result<Self> {
        let ignored = ignored();
        let streams = signals.iter().filter(|signal| ignored & bit(**signal) == 0);
        let streams = streams.map(|kind| Ok((*kind, signal(SignalKind::from_raw(*kind as i32))?)));
        Ok(Self { streams: streams.collect::<io::Result<_>>()?, interrupted: false, asked_to_end: false })
    }

    /// Listens for these as well.
    pub(super) fn also(&mut self, others: Self) {
        self.streams.extend(others.streams);
    }

    /// The next signal. Never resolves if there is none to listen for.
    pub(crate) async fn next(&mut self) -> Signal {
        let signal = poll_fn(|context| {
            let come = self.streams.iter_mut().find_map(|(signal, stream)| {
                let come = stream.poll_recv(context).is_ready();
                come.then_some(*signal)
            });
            come.map_or(Poll::Pending, Poll::Ready)
        })
        .await;
        self.interrupted |= signal == Signal::SIGINT;
        self.asked_to_end |= asks_to_end(signal);
        signal
    }

    /// Whether SIGINT was received.
    pub(super) fn interrupted(&self) -> bool {
        self.interrupted
    }

    /// Resolves when a signal has requested the end, now or before.
    pub(super) async fn end_requested(&mut self) {
        if !self.asked_to_end {
            self.next_request_to_end().await;
        }
    }

    /// The next signal that requests a process to end.
    pub(super) async fn next_request_to_end(&mut self) -> Signal {
        loop {
            let signal = self.next().await;
            if asks_to_end(signal) {
                return signal;
            }
        }
    }
}

/// Whether a signal requests the end of the process, unlike signals whose meaning is up to the program.
pub(super) fn asks_to_end(signal: Signal) -> bool {
    !matches!(signal, Signal::SIGUSR1 | Signal::SIGUSR2 | Signal::SIGTSTP)
}

/// Allows this thread, and those that it starts from now on, to write to a terminal and lend it to other groups.
///
/// From the background both would stop the whole process by SIGTTOU, renewals included.
pub(super) fn block_stop_by_terminal() {
    let mut set = SigSet::empty();
    set.add(Signal::SIGTTOU);
    // It can only fail for an invalid set.
    let _ = set.thread_block();
}

fn bit(signal: Signal) -> u64 {
    1 << (signal as i32 - 1)
}

/// The signals that this process ignores, as bits.
#[cfg(target_os = "linux")]
fn ignored() -> u64 {
    let status = std::fs::read_to_string("/proc/thread-self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}

/// Where the system does not report it, nothing counts as ignored.
#[cfg(not(target_os = "linux"))]
fn ignored() -> u64 {
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(target_os = "linux")]
    #[test]
    fn a_signal_ignored_at_the_start_of_the_process_is_found_ignored() {
        assert_ne!(ignored() & bit(Signal::SIGPIPE), 0);
        assert_eq!(ignored() & bit(Signal::SIGKILL), 0, "no process can ignore it");
    }
}
