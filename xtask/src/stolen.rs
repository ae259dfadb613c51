//! The time in which a virtual machine did not run, because its host ran others.

use std::fs;

/// How the processors have spent their time up to a moment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Spent {
    all: u64,
    stolen: u64,
}

/// From so many percent on, a failed test may say more about the host than about the code: bursts of a minute in which half of the
/// time is stolen make up so much of a long run.
const TOO_MUCH: u64 = 3;

impl Spent {
    /// Up to now; nothing where the system does not count it.
    pub(crate) fn now() -> Option<Self> {
        Self::parse(&fs::read_to_string("/proc/stat").ok()?)
    }

    /// The first line has all processors: user, nice, system, idle, waiting, two kinds of interrupts, stolen.
    fn parse(stat: &str) -> Option<Self> {
        let times = stat.lines().next()?.strip_prefix("cpu ")?;
        let times: Vec<u64> = times.split_whitespace().take(8).filter_map(|time| time.parse().ok()).collect();
        Some(Self { all: times.iter().sum(), stolen: *times.get(7)? })
    }

    /// How many percent were stolen since then, if that was too much for a judgement by time.
    pub(crate) fn too_much_since(self, before: Self) -> Option<u64> {
        let percent = (self.stolen - before.stolen) * 100 / (self.all - before.all).max(1);
        (percent >= TOO_MUCH).then_some(percent)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stolen_share_is_that_of_the_eighth_number() {
        let before = Spent::parse("cpu  100 0 50 800 10 0 10 30 0 0\ncpu0 1 2 3\n").unwrap();
        let quiet = Spent::parse("cpu  200 0 100 1600 20 0 20 40 0 0\n").unwrap();
        let busy = Spent::parse("cpu  200 0 100 1600 20 0 20 330 0 0\n").unwrap();
        assert_eq!(quiet.too_much_since(before), None);
        assert_eq!(busy.too_much_since(before), Some(23));
        assert!(Spent::parse("intr 1 2 3\n").is_none() && Spent::parse("cpu 1 2\n").is_none());
    }
}
