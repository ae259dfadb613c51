//! The options of the subcommands that look at locks: `ls`, `inspect`, `watch`, `unlock` and `wait`.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use crate::duration;
use crate::url::Url;

// With line breaks of its own, because the help is not wrapped.
pub(super) const LS: &str = "\
List the locks that are held: name, kind, holder, and what is left of the lease.

A lease is renewed while its holder lives, so what is left of it does not tell
how long the lock has been held, or will be. Kinds are lock (plain, fair, spin
or fenced), read, write, group and setnx. A line has one holder; `+2` stands for
two more. Semaphores are not listed.

On a server it searches the keys in small steps, so that other clients do not
wait for it. It shows what is a lock of Leasehold or Redisson by its content, on
etcd also of etcdctl and Go, and no other key. On file: it shows what the kernel
says is locked; a write lock is a lock there, and there is no lease: a lock
lasts as long as its process.";

pub(super) const LS_EXAMPLES: &str = "\
Exit codes:
  0    the list was printed, also if it is empty or not complete
  2    usage error
  69   the lock server is not reachable, or refuses the request, or the
       directory of the locks cannot be used

Examples:
  leasehold ls                                      (on this machine)
  leasehold ls 'stock:*' --url redis://localhost
  leasehold ls --json --url redis://localhost --namespace billing:";

pub(super) const INSPECT: &str = "\
Print what is known about a lock: its kind, its holder and the program that the
holder is part of, how often it is entered, what is left of the lease, the
waiters and the last fencing token.

A client of Redisson tells nothing about itself: its id alone is known; and of
another program on etcd its lease. Who a client is stays known for some minutes
after its end, on etcd as long as its lease.";

pub(super) const INSPECT_EXAMPLES: &str = "\
Exit codes:
  0    it is held
  1    it is free
  2    usage error
  69   the lock server is not reachable, or refuses the request, or the
       directory of the locks cannot be used

Examples:
  leasehold inspect nightly-report
  leasehold inspect stock:7 --url redis://localhost --json";

pub(super) const WATCH: &str = "\
Show the locks that are held, or one lock, until Ctrl-C.

On a terminal the picture is drawn anew each second. Elsewhere each change is a
line: acquired, released or changed, the kind, the name and the holder. What
begins and ends between two looks is not seen. Where a look takes long, the next
one is later, so that the server has rest for four fifths of the time.";

pub(super) const WATCH_EXAMPLES: &str = "\
Exit codes:
  130  ended by Ctrl-C; 128 + the number for other signals
  2    usage error
  69   at the start, the lock server is not reachable, or refuses the request,
       or the directory of the locks cannot be used

Examples:
  leasehold watch --url redis://localhost
  leasehold watch nightly-report --interval 5s | tee changes";

pub(super) const UNLOCK: &str = "\
Free a lock in place of its holder.

It says who is cut off, and asks first. The work of that holder is not ended by
this, and may still be running while another client gets the lock: end the work
first if you can. On file: there is no such thing, because a lock there lasts as
long as a process: the error names the process to end.";

pub(super) const UNLOCK_EXAMPLES: &str = "\
Exit codes:
  0    it was held, and was freed
  1    it was free, or the answer was no, or meanwhile the holder was another
  2    usage error, also without --yes and without a terminal
  69   the lock server is not reachable, or refuses the request, or the
       directory of the locks cannot be used

Examples:
  leasehold unlock nightly-report --url redis://localhost
  leasehold unlock nightly-report --url redis://localhost --yes";

pub(super) const WAIT: &str = "\
Wait until a lock is free, without acquiring it.

It looks four times a second, and sends a request or two for each look. A lock
that is free for a shorter time may be missed; and that it was free says nothing
about the next moment. To do something while it is free, acquire it: leasehold
run.";

pub(super) const WAIT_EXAMPLES: &str = "\
Exit codes:
  0    it is free
  2    usage error
  69   the lock server is not reachable, or refuses the request, or the
       directory of the locks cannot be used
  75   it was not free for the whole --wait

Examples:
  leasehold wait nightly-report && ./send-report
  leasehold wait deploy --wait 10m --url redis://localhost";

/// Where the locks are.
#[derive(Debug, Args)]
pub struct TargetOptions {
    /// The server or directory
    ///
    /// As for run: redis://host:port, `file:///directory`, or, unless given,
    /// file: for this user and this machine.
    // Its value may contain a password, so the help must not show the value of the environment variable.
    #[arg(long, env = Url::VARIABLE, hide_env_values = true, verbatim_doc_comment)]
    pub url: Option<Url>,
    /// The file of the settings
    #[arg(long, env = "LEASEHOLD_CONFIG", value_name = "FILE", hide_env_values = true)]
    pub config: Option<PathBuf>,
    /// Allow verify=none in the URL
    #[arg(long)]
    pub allow_unverified_tls: bool,
    /// What names of locks begin with
    ///
    /// Names are given and shown without it, and others are not shown.
    #[arg(long, value_name = "PREFIX")]
    pub namespace: Option<String>,
}

/// The options of `ls`.
#[derive(Debug, Args)]
pub struct LsOptions {
    /// Which names, such as 'stock:*'
    ///
    /// `*` is any text, ? one character; a backslash before them takes their
    /// meaning.
    #[arg(default_value = "*", hide_default_value = true, verbatim_doc_comment)]
    pub pattern: String,
    /// Where the locks are.
    #[command(flatten)]
    pub target: TargetOptions,
    /// List SET NX locks of Leasehold, too
    ///
    /// On a server they are strings as others: the beginning of each string
    /// whose name matches is read.
    #[arg(long, verbatim_doc_comment)]
    pub setnx: bool,
    /// Print one JSON object instead of a table.
    #[arg(long)]
    pub json: bool,
}

/// The options of `inspect`.
#[derive(Debug, Args)]
pub struct InspectOptions {
    /// Name of the lock.
    pub name: String,
    /// Where the locks are.
    #[command(flatten)]
    pub target: TargetOptions,
    /// Print one JSON object instead of text.
    #[arg(long)]
    pub json: bool,
}

/// The options of `watch`.
#[derive(Debug, Args)]
pub struct WatchOptions {
    /// Name of the lock; without it all locks.
    pub name: Option<String>,
    /// Where the locks are.
    #[command(flatten)]
    pub target: TargetOptions,
    /// How often to look.
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = interval)]
    pub interval: Duration,
}

/// The options of `unlock`.
#[derive(Debug, Args)]
pub struct UnlockOptions {
    /// Name of the lock.
    pub name: String,
    /// Where the locks are.
    #[command(flatten)]
    pub target: TargetOptions,
    /// Do not ask
    #[arg(long)]
    pub yes: bool,
    /// Print one JSON object instead of text.
    #[arg(long, requires = "yes")]
    pub json: bool,
}

/// The options of `wait`.
#[derive(Debug, Args)]
pub struct WaitOptions {
    /// Name of the lock.
    pub name: String,
    /// Where the locks are.
    #[command(flatten)]
    pub target: TargetOptions,
    /// How long to wait.
    ///
    /// Without a limit unless given.
    #[arg(long, value_name = "TIME", value_parser = duration::parse)]
    pub wait: Option<Duration>,
    /// Write an error as a JSON object.
    #[arg(long)]
    pub json: bool,
}

/// The shortest interval of `watch`.
const SHORTEST_INTERVAL: Duration = Duration::from_millis(100);

fn interval(text: &str) -> Result<Duration, String> {
    let length = duration::parse(text).map_err(|error| error.to_string())?;
    if length < SHORTEST_INTERVAL {
        return Err("the shortest interval is 100ms".into());
    }
    Ok(length)
}
