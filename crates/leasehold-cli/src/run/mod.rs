//! `leasehold run`: a command that runs while a lock is held, and not a moment longer.

pub mod exec;
pub(crate) mod signals;
pub mod warden;

mod child;
mod clock;
mod deadline;
mod enter;
mod failure;
mod held;
mod lock;
mod nesting;
mod notices;
mod program;
mod stall;
mod supervise;
mod terminal;
mod waiting;

use std::io;
use std::os::unix::process::ExitStatusExt as _;
use std::process::{ExitCode, ExitStatus};
use std::time::Duration;

use leasehold::{Client, Config, ConnectOptions};
use nix::sys::signal::Signal;
use tokio::runtime::Builder;
use tokio::select;
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::{Instant, sleep_until, timeout};

use self::child::Child;
use self::deadline::Plan;
use self::enter::Entered;
pub(crate) use self::failure::killed_by;
pub use self::failure::{Cause, LockText, RunError};
use self::held::Held;
use self::notices::{Event, Level, Notices};
use self::signals::{FORWARDED, Signals};
use self::stall::Stall;
use self::supervise::{End, Supervisor};
use self::terminal::Terminal;
use self::warden::Warden;
use crate::config;
use crate::duration::human;
use crate::error::Error;
use crate::options::{IfBusy, RunOptions};
use crate::url::Url;

/// The shortest lease under which a command can be ended in time.
pub(crate) const SHORTEST_LEASE: Duration = Plan::SHORTEST_LEASE;

/// Acquires the lock, runs the command, releases the lock, and returns the exit code of the command.
///
/// Call it on the main thread, see `Child::start`.
///
/// # Errors
///
/// When the command did not run, or not to its end under the lock.
pub fn run(options: &RunOptions) -> Result<ExitCode, Error> {
    signals::block_stop_by_terminal();
    let mut terminal = Terminal::controlling();
    // One thread, this one: the command has to be started from it.
    let runtime = Builder::new_current_thread().enable_all().build().map_err(Error::Runtime)?;
    let done = runtime.block_on(locked(options, &mut terminal));
    // Waits until all notices are written.
    drop(runtime);
    let interrupted = match &done {
        Ok(Done::Ended(status)) => status.signal() == Some(Signal::SIGINT as i32),
        Err(error) => matches!(error, RunError::Interrupted { signal: Signal::SIGINT, .. }),
        Ok(Done::Skipped) => false,
    };
    let interactive = terminal.is_interactive();
    drop(terminal);
    if interrupted && interactive {
        terminal::die_of_interrupt();
    }
    match done? {
        Done::Ended(status) => Ok(ExitCode::from(exit_code(status))),
        Done::Skipped => Ok(ExitCode::SUCCESS),
    }
}

/// The outcome, if there was no failure.
#[derive(Debug, Clone, Copy)]
enum Done {
    Ended(ExitStatus),
    Skipped,
}

async fn locked(options: &RunOptions, terminal: &mut Terminal) -> Result<Done, RunError> {
    let settings = &Settings::new(options)?;
    let url = &settings.url;
    let text = settings.lock_text();
    let notices = Notices::new(options, &text);
    if settings.is_own {
        // An option for fewer messages must not silence this one, on a terminal or not: two machines would both run the
        // command, and nothing else would say so.
        let directory = url.resolved();
        notices.say(
            Event::new(Level::Warning, "machine_only"),
            format!("locking on this machine only ({directory}); for several machines give --url"),
        );
    }
    let plan = plan(settings, &notices);
    let mut signals = Signals::listen(&FORWARDED).map_err(RunError::Start)?;
    let asked = Instant::now();
    let entered = select! {
        biased;
        // Ends without a hold left behind, unlike the default effect of a signal.
        signal = signals.next_request_to_end() => {
            return Err(RunError::Interrupted { lock: text, signal });
        }
        entered = enter::enter(settings, &notices) => entered?,
    };
    let Some(Entered { client, lock, held: guard }) = entered else { return Ok(Done::Skipped) };
    let since = Instant::now();
    notices.say(acquired(&guard, since - asked), format!("got {text} after {}", human(since - asked)));
    let end = hold(settings, &client, plan, &guard, signals, terminal, &notices).await;
    // The command is dead, or never ran: the next holder may begin.
    match end {
        Ok(End::Held(status)) => {
            let (held, code) = (since.elapsed(), exit_code(status));
            let end = |level, name| Event::new(level, name).with("exit_code", code);
            match guard.release().await {
                Ok(()) => notices.say(
                    end(Level::Detail, "released").with("held_ms", milliseconds(held)),
                    format!("released {text} after {}", human(held)),
                ),
                Err(error) => notices.say(
                    end(Level::Warning, "unreleased"),
                    format!("the command has ended, but its lock may still be held: {error}"),
                ),
            }
            Ok(Done::Ended(status))
        }
        Ok(End::Lost(cause)) => {
            give_back(guard).await;
            let reason = if cause.is_unreachable() { failure::unreachable(&lock).await } else { None };
            Err(RunError::Lost { lock: text, cause, reason })
        }
        Ok(End::TooLate) => Err(RunError::TooLate),
        Err(error) => {
            give_back(guard).await;
            Err(RunError::Start(error))
        }
    }
}

/// The options, and what they leave to the environment and the configuration.
#[derive(Debug)]
struct Settings<'a> {
    options: &'a RunOptions,
    config: Config,
    url: Url,
    /// No URL is given: the lock is on this machine.
    is_own: bool,
    lease: Duration,
}

/// How long a wait without a limit goes through an outage unless it is given.
const OUTAGE_LIMIT: Duration = Duration::from_secs(30);
/// The lease unless one is given.
const LEASE: Duration = Duration::from_secs(30);

impl<'a> Settings<'a> {
    /// If the options are consistent.
    fn new(options: &'a RunOptions) -> Result<Self, RunError> {
        if options.wait.is_some() && options.if_busy != IfBusy::Wait {
            return Err(RunError::NothingToLimit(options.if_busy));
        }
        if let (Some(min_hold), Some(max_hold)) = (options.min_hold, options.max_hold)
            && min_hold > max_hold
        {
            return Err(RunError::MinHoldTooLong { min_hold, max_hold });
        }
        let given = Url::given(options.url.as_ref())?;
        let mut config = config::with_url(config::settings(options.config.as_deref())?, given);
        config.namespace = options.namespace.clone().or(config.namespace);
        config.outage_limit = options.outage_limit.or(config.outage_limit);
        let is_own = config.url.is_none();
        if is_own {
            config.url = Some(Url::own_files().secret().to_owned());
            config.url_options.clear();
        }
        let url = config.full_url().map_or_else(Url::own_files, Url::from);
        if url.is_memory() {
            return Err(RunError::Memory);
        }
        if options.close && !url.is_file() {
            return Err(RunError::NothingToClose(url));
        }
        if let Some(watchdog) = config.watchdog.filter(|watchdog| *watchdog < SHORTEST_LEASE) {
            return Err(RunError::WatchdogTooShort(watchdog));
        }
        let lease = options.lease.or(config.watchdog).unwrap_or(LEASE);
        Ok(Self { options, config, url, is_own, lease })
    }

    /// The lock as messages name it.
    fn lock_text(&self) -> LockText {
        LockText::new(self.options, &self.url)
    }

    /// How long a wait without a limit goes through an outage.
    fn outage_limit(&self) -> Duration {
        self.config.outage_limit.unwrap_or(OUTAGE_LIMIT)
    }

    /// The options of the client.
    fn connect(&self) -> ConnectOptions {
        let connect = self.config.connect().unwrap_or_else(|_| Client::connect(self.url.secret()));
        let connect = if self.config.label.is_none() { connect.label("leasehold-run") } else { connect };
        let connect = connect.watchdog(self.lease).outage_limit(self.outage_limit());
        if self.options.allow_unverified_tls { connect.allow_unverified_tls() } else { connect }
    }
}

fn plan(settings: &Settings<'_>, notices: &Notices) -> Plan {
    let (is_file, lease) = (settings.url.is_file(), settings.lease);
    let &RunOptions { max_hold, grace, .. } = settings.options;
    // On files there is no lease to renew, and nothing but `max_hold` ends a hold.
    if is_file && max_hold.is_none() {
        return Plan::endless(lease);
    }
    let lease = max_hold.filter(|_| is_file).unwrap_or(lease);
    let longest = deadline::longest_grace(lease, max_hold);
    if let Some(grace) = grace.filter(|grace| *grace > longest) {
        let (grace, longest) = (human(grace), human(longest));
        notices.warn(format!(
            "a grace of {grace} is too long: {longest} is used, a third of --lease or --max-hold. A lock that is \
             renewed in time always has more than that left"
        ));
    }
    Plan::new(lease, max_hold, grace.unwrap_or(Plan::GRACE))
}

/// Runs the command under the guard. It is dead when this returns, and when the future is dropped.
async fn hold(
    settings: &Settings<'_>,
    client: &Client,
    plan: Plan,
    guard: &Held,
    mut signals: Signals,
    terminal: &mut Terminal,
    notices: &Notices,
) -> io::Result<End> {
    let (since, options, lock) = (Instant::now(), settings.options, &settings.lock_text());
    // Only now: a waiting `run` may be suspended.
    signals.also(Signals::listen(&[Signal::SIGTSTP])?);
    let changes = signal(SignalKind::child())?;
    let mut warden = Warden::start().await?;
    deadline::fresh(guard, settings.lease, options.max_hold).await;
    if !guard.is_held() {
        return Ok(End::TooLate);
    }
    let until = plan.latest(guard);
    warden.allow_until(until);
    let mut child = Child::start(options, guard, warden.group(), until)?;
    terminal.lend_if_interactive(warden.group());
    let supervisor = Supervisor {
        lock,
        guard,
        since,
        max_hold: options.max_hold,
        client,
        stall: Stall::new(settings.lease),
        plan,
        child: &mut child,
        warden: &mut warden,
        signals: &mut signals,
        changes,
        terminal,
        notices,
    };
    let end = supervisor.run().await?;
    if let End::Held(status) = end
        && status.signal() == Some(Signal::SIGINT as i32)
        && !signals.interrupted()
    {
        terminal.pass_on_interrupt();
    }
    terminal.take_back();
    warden.dismiss().await;
    if let (Some(min_hold), true, End::Held(_)) = (options.min_hold, lock.is_file(), &end) {
        // Nothing else would keep the lock.
        select! {
            () = signals.end_requested() => {}
            () = sleep_until(since + min_hold) => {}
        }
    }
    Ok(end)
}

/// Releases a lock early that is about to expire. If the release fails, the lease expires.
async fn give_back(guard: Held) {
    let left = guard.remaining();
    let _ = timeout(left, guard.release()).await;
}

/// The event of a hold that begins.
fn acquired(guard: &Held, waited: Duration) -> Event {
    let event = Event::new(Level::Detail, "acquired")
        .with("waited_ms", milliseconds(waited))
        .with("owner", guard.owner().to_string());
    match guard.token() {
        Some(token) => event.with("token", token),
        None => event,
    }
}

fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

fn exit_code(status: ExitStatus) -> u8 {
    match (status.code(), status.signal()) {
        (Some(code), _) => u8::try_from(code).unwrap_or(u8::MAX),
        (None, Some(signal)) => killed_by(signal),
        (None, None) => 1,
    }
}
