//! Named steps, their times, and the table that closes a run.

use std::time::{Duration, Instant};

/// The steps of one run, in the order they ran.
#[derive(Default)]
pub(crate) struct Steps {
    done: Vec<Step>,
}

struct Step {
    name: String,
    took: Duration,
    ok: bool,
}

impl Steps {
    /// Runs one step, and returns whether it succeeded.
    ///
    /// A failure is shown and kept for [`finish`](Self::finish); the caller decides whether to run further steps.
    #[expect(clippy::disallowed_methods, reason = "these are times for people; no test clock runs here")]
    pub(crate) fn run(&mut self, name: &str, work: impl FnOnce() -> Result<(), String>) -> bool {
        println!("\n==> {name}");
        let start = Instant::now();
        let result = work();
        let took = start.elapsed();
        if let Err(error) = &result {
            eprintln!("{name}: {error}");
        }
        self.done.push(Step { name: name.into(), took, ok: result.is_ok() });
        result.is_ok()
    }

    /// Prints the time and the outcome of each step.
    ///
    /// # Errors
    ///
    /// When a step failed; the error names every one that did.
    pub(crate) fn finish(self) -> Result<(), String> {
        println!();
        for Step { name, took, ok } in &self.done {
            println!("{name:<24} {:>7.1}s  {}", took.as_secs_f64(), if *ok { "ok" } else { "FAILED" });
        }
        let failed: Vec<_> =
            self.done.iter().filter(|step| !step.ok).map(|step| step.name.as_str()).collect();
        if failed.is_empty() { Ok(()) } else { Err(format!("failed: {}", failed.join(", "))) }
    }
}
