//! Runs of `cargo test` with a time limit: a test that hangs is ended and named.
//!
//! The harness of Rust's tests has no limit for a test, but it reports after a minute which ones still run. So no test has
//! to do anything for its limit, and none can be without one. Ending a test that hangs also ends the tests that run beside
//! it in the same process; cargo continues with the other test binaries.
//!
//! Tests that failed while the host of a virtual machine kept it from running for much of the time are repeated, by themselves and
//! visibly: a stall of a second looks like a lost lease. Elsewhere a failed test has failed.

use std::{
    collections::HashMap,
    fmt::Write as _,
    fs,
    io::{Read, Write as _},
    process::{Child, Command, Stdio},
    sync::mpsc::{self, Receiver, RecvTimeoutError},
    thread,
    time::{Duration, Instant},
};

use crate::{command, stolen::Spent};

/// Several times the duration of the slowest test.
pub(crate) const LIMIT: Duration = Duration::from_secs(180);

/// Shows a command line of `cargo test`, then runs it; a test that takes longer than `limit`, which is more than a minute,
/// is ended.
///
/// # Errors
///
/// When the program cannot be started, a test fails, or one does not end.
pub(crate) fn run(line: &str, limit: Duration) -> Result<(), String> {
    let mut line = line.to_owned();
    for repeats_left in (0..=REPEATS).rev() {
        let before = Spent::now();
        let (outcome, failed) = run_once(&line, limit);
        let percent = Spent::now().zip(before).and_then(|(now, before)| now.too_much_since(before));
        match (outcome, percent) {
            (Err(error), Some(percent)) if repeats_left > 0 && !failed.is_empty() => {
                println!("\n{error}");
                println!(
                    "The machine was kept from running for {percent} % of the time (steal), so these are repeated by themselves: {}",
                    failed.join(" ")
                );
                let targets = line.split_once(" -- ").map_or(&*line, |(targets, _)| targets);
                line = format!("{targets} -- --exact {}", failed.join(" "));
            }
            (outcome, _) => return outcome,
        }
    }
    Ok(())
}

/// How often tests are repeated on a machine that is kept from running.
const REPEATS: u32 = 2;

/// One run, and the tests that failed in it, if they are all that failed and can be named on a command line.
fn run_once(line: &str, limit: Duration) -> (Result<(), String>, Vec<String>) {
    let mut failed = Vec::new();
    let outcome = run_and_note(line, limit, &mut failed);
    let is_nameable = |name: &String| !name.contains(' ');
    if !failed.iter().all(is_nameable) {
        failed.clear();
    }
    (outcome, failed)
}

fn run_and_note(line: &str, limit: Duration, failed: &mut Vec<String>) -> Result<(), String> {
    println!("$ {line}");
    let mut cargo = command::parse(line)
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|error| format!("`{line}` cannot start: {error}"))?;
    let output = cargo.stdout.take().expect("it is piped");
    let (sender, lines) = mpsc::channel();
    let shown = thread::spawn(move || show(output, |line| sender.send(line).is_ok()));
    let hung = watch(&mut cargo, &lines, limit, failed);
    let status = cargo.wait().map_err(|error| format!("`{line}` cannot be waited for: {error}"))?;
    let _ = shown.join();
    match hung.as_slice() {
        [] if status.success() => Ok(()),
        [] => Err(format!("`{line}` failed: {status}")),
        hung => {
            failed.clear();
            Err(format!("`{line}` was ended, because these did not end:\n  {}", hung.join("\n  ")))
        }
    }
}

/// How long there may be no output at all beyond the limit of a test: documentation tests are compiled without output.
const SILENCE: Duration = Duration::from_secs(120);
/// When the harness reports that a test still runs.
const SAID_AFTER: Duration = Duration::from_secs(60);
/// How often the time is checked.
const LOOK: Duration = Duration::from_millis(500);

/// Follows the output to its end, and ends tests that hang; returns their names, and the calls in which their threads
/// waited.
#[expect(clippy::disallowed_methods, reason = "no test clock runs here")]
fn watch(
    cargo: &mut Child,
    lines: &Receiver<String>,
    limit: Duration,
    failed: &mut Vec<String>,
) -> Vec<String> {
    let mut slow: HashMap<String, Instant> = HashMap::new();
    let mut hung = Vec::new();
    let mut last_output = Instant::now();
    let mut last = String::new();
    loop {
        match lines.recv_timeout(LOOK) {
            Ok(line) => {
                last_output = Instant::now();
                // A line without its end is passed on, and again with it.
                failed.extend(failure(&line).map(String::from).filter(|name| failed.last() != Some(name)));
                match event(&line) {
                    Some(Event::Slow(test)) => drop(slow.insert(test.into(), last_output)),
                    Some(Event::Ended(test)) => slow.retain(|slow, _| !test.starts_with(slow.as_str())),
                    Some(Event::Begun) => slow.clear(),
                    None => {}
                }
                last = line;
            }
            Err(RecvTimeoutError::Disconnected) => return hung,
            Err(RecvTimeoutError::Timeout) => {}
        }
        let late = |since: &Instant| since.elapsed() + SAID_AFTER > limit;
        if slow.values().any(late) {
            let names = slow.iter().filter(|(_, since)| late(since)).map(|(name, _)| name.clone());
            hung.extend(names.map(|name| format!("test {name}, after {limit:?}")));
            hung.extend(end_tests(cargo));
            slow.clear();
            last_output = Instant::now();
        } else if last_output.elapsed() > limit + SILENCE {
            // Where tests run one by one, their name is printed before they run.
            hung.push(format!("silence for {:?} after {:?}", last_output.elapsed(), last.trim_end()));
            let ended = end_tests(cargo);
            if ended.is_empty() {
                let _ = cargo.kill();
            }
            hung.extend(ended);
            last_output = Instant::now();
        }
    }
}

/// Shows the output as it arrives, and passes it on by lines; the last one may have no line break.
fn show(mut output: impl Read, mut send: impl FnMut(String) -> bool) {
    let (mut chunk, mut rest) = ([0; 4096], Vec::new());
    while let Ok(length @ 1..) = output.read(&mut chunk) {
        let mut shown = std::io::stdout().lock();
        let _ = shown.write_all(&chunk[..length]).and_then(|()| shown.flush());
        rest.extend_from_slice(&chunk[..length]);
        while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = rest.drain(..=end).collect();
            if !send(String::from_utf8_lossy(&line).into_owned()) {
                return;
            }
        }
        if !rest.is_empty() {
            send(String::from_utf8_lossy(&rest).into_owned());
        }
    }
}

/// The meaning of a line of the harness.
#[derive(Debug, PartialEq, Eq)]
enum Event<'a> {
    /// The tests of another binary begin.
    Begun,
    /// This test has taken a minute.
    Slow(&'a str),
    /// This test has ended; its name may be followed by its kind.
    Ended(&'a str),
}

fn event(line: &str) -> Option<Event<'_>> {
    let line = line.trim_end();
    if line.starts_with("running ") && line.trim_end_matches('s').ends_with(" test") {
        return Some(Event::Begun);
    }
    let test = line.strip_prefix("test ")?;
    if let Some((name, _)) = test.split_once(" has been running for over ") {
        return Some(Event::Slow(name));
    }
    let (name, how) = test.rsplit_once(" ... ")?;
    (!how.is_empty()).then_some(Event::Ended(name))
}

/// The test that a line of the harness reports as failed.
fn failure(line: &str) -> Option<&str> {
    line.trim_end().strip_prefix("test ")?.strip_suffix(" ... FAILED")
}

/// Ends the test binary that cargo runs now, and returns the states of its threads. Processes that a test has started end
/// with it.
pub(crate) fn end_tests(cargo: &Child) -> Vec<String> {
    let mut ends = children(cargo.id());
    let mut next = 0;
    while let Some(id) = ends.get(next).copied() {
        // These run each documentation test in a process of its own.
        if ["rustdoc", "rust_out"].contains(&name(&format!("/proc/{id}")).as_str()) {
            ends.extend(children(id));
        }
        next += 1;
    }
    let reports = ends.iter().map(|id| threads(*id)).collect();
    for id in ends {
        // The shell's own `kill` is everywhere.
        let _ = Command::new("sh").args(["-c", &format!("kill -9 {id}")]).status();
    }
    reports
}

/// The processes that a process has started, by any of its threads.
fn children(process: u32) -> Vec<u32> {
    let threads = fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten().flatten();
    let lists = threads.filter_map(|thread| fs::read_to_string(thread.path().join("children")).ok());
    lists
        .flat_map(|list| list.split_whitespace().filter_map(|id| id.parse().ok()).collect::<Vec<_>>())
        .collect()
}

/// The state of each thread of a process: its name, which begins like that of its test, its state, and the call in which it
/// waited.
fn threads(process: u32) -> String {
    let mut report = format!("process {process} ({})", name(&format!("/proc/{process}")));
    for thread in fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten().flatten() {
        let path = thread.path().display().to_string();
        let status = fs::read_to_string(format!("{path}/status")).unwrap_or_default();
        let state = status.lines().find_map(|line| line.strip_prefix("State:")).unwrap_or_default().trim();
        let place = fs::read_to_string(format!("{path}/wchan")).unwrap_or_default();
        let _ = write!(report, "\n    {}: {state}, in {place}", name(&path));
    }
    report
}

fn name(path: &str) -> String {
    fs::read_to_string(format!("{path}/comm")).unwrap_or_default().trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_output_lines_of_the_test_harness_are_parsed() {
        let slow = "test outage::a_case has been running for over 60 seconds\n";
        assert_eq!(event(slow), Some(Event::Slow("outage::a_case")));
        assert_eq!(event("test outage::a_case ... ok\n"), Some(Event::Ended("outage::a_case")));
        let panics = event("test tally::noticed - should panic ... ok\n");
        assert_eq!(panics, Some(Event::Ended("tally::noticed - should panic")));
        assert_eq!(event("running 3 tests\n"), Some(Event::Begun));
        assert_eq!(event("running 1 test\n"), Some(Event::Begun));
        // Where tests run one by one, the name is printed before the test.
        assert_eq!(event("test outage::a_case ... "), None);
        assert_eq!(event("leaks: 3 bytes\n"), None);
        assert_eq!(failure("test outage::a_case ... FAILED\n"), Some("outage::a_case"));
        assert_eq!(failure("test outage::a_case ... ok\n"), None);
    }

    #[test]
    fn output_is_forwarded_line_by_line() {
        let mut lines = Vec::new();
        show(&b"one\ntwo\nrest"[..], |line| {
            lines.push(line);
            true
        });
        assert_eq!(lines, ["one\n", "two\n", "rest"]);
    }
}
