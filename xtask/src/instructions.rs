//! `cargo xtask instructions`: how many instructions a lock costs without a server, against a committed number.
//!
//! Times depend on the machine and its load; instructions hardly do. The memory engine runs on one thread under callgrind,
//! once with few pairs and once with many, and the difference is that of the pairs alone: start and end cancel out.

use std::fs;

use crate::{
    command,
    setup::{self, Source, Tool},
};

const TOOLS: &[Tool] = &[Tool {
    name: "valgrind",
    probe: "valgrind --version",
    reason: "it counts the instructions",
    source: Source::Debian("valgrind"),
}];

const FEW: u64 = 1_000;
const MANY: u64 = 11_000;

/// The committed number: instructions for one pair.
const NUMBER: &str = "crates/leasehold/examples/instructions.txt";

/// The library reads the time from the kernel without the C library, in a page that valgrind does not support. With this
/// flag it uses the C library, which valgrind supports.
const FLAGS: &str = "RUSTFLAGS=--cfg=rustix_use_libc";

/// The target directory, so that the program is found with any other settings.
const TARGET: &str = "target/instructions";

/// How far a count may lie from the committed one, in per cent. Between runs of one build it differs by much less than that,
/// because of the random seeds of hash tables; compilers differ more.
const TOLERANCE: f64 = 3.0;

/// What `cargo xtask instructions` takes.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Install missing programs without asking.
    #[arg(long)]
    yes: bool,
    /// Write the number down instead of comparing it.
    #[arg(long)]
    bless: bool,
}

/// Counts, and compares or writes the number.
///
/// # Errors
///
/// When a pair takes more or fewer instructions than the committed number.
pub(crate) fn run(Args { yes, bless }: &Args) -> Result<(), String> {
    setup::ensure(TOOLS, *yes)?;
    command::run(&format!(
        "{FLAGS} cargo build --release --target-dir {TARGET} -p leasehold --no-default-features --example instructions"
    ))?;
    let (few, many) = (count(FEW)?, count(MANY)?);
    let pair = difference(few, many);
    println!("{pair:.1} instructions for a lock and its release in memory");
    if *bless {
        return fs::write(NUMBER, format!("{pair:.1}\n")).map_err(|error| format!("{NUMBER}: {error}"));
    }
    let text = fs::read_to_string(NUMBER).map_err(|error| format!("{NUMBER}: {error}"))?;
    let was: f64 = text.trim().parse().map_err(|_| format!("{NUMBER} has no number in it"))?;
    let change = (pair / was - 1.0) * 100.0;
    if change.abs() <= TOLERANCE {
        println!("{was:.1} were written down: {change:+.1} %");
        return Ok(());
    }
    Err(format!(
        "a pair took {was:.1} instructions and takes {pair:.1} now, {change:+.1} %: if that is meant, or the compiler is \
         another one, write it down by `cargo xtask instructions --bless`"
    ))
}

/// The instructions of one pair.
#[expect(clippy::cast_precision_loss, reason = "the counts are far below 2⁵²")]
fn difference(few: u64, many: u64) -> f64 {
    many.saturating_sub(few) as f64 / (MANY - FEW) as f64
}

/// The instructions of the whole program with this many pairs.
fn count(pairs: u64) -> Result<u64, String> {
    let out = format!("{TARGET}/callgrind.out");
    command::run(&format!(
        "valgrind --quiet --tool=callgrind --callgrind-out-file={out} {TARGET}/release/examples/instructions {pairs}"
    ))?;
    let text = fs::read_to_string(&out).map_err(|error| format!("{out}: {error}"))?;
    let total = text.lines().find_map(|line| line.strip_prefix("totals: "));
    total.and_then(|total| total.trim().parse().ok()).ok_or_else(|| format!("{out} has no total"))
}
