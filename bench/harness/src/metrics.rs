//! The measurements of one run.

use std::collections::BTreeMap;

/// Figures by name. Times are in microseconds, memory is in bytes.
pub(crate) type Metrics = BTreeMap<&'static str, f64>;

/// Whether no two tasks held the lock at once.
pub(crate) fn is_exclusive(metrics: &Metrics) -> bool {
    ["violations", "lost"].iter().all(|name| metrics.get(name).is_none_or(|count| *count == 0.0))
}

/// Jain's index: 1 when all have the same, 1/n when one has everything.
pub(crate) fn jain(counts: &[u64]) -> f64 {
    let sum: f64 = counts.iter().map(|count| *count as f64).sum();
    let squares: f64 = counts.iter().map(|count| (*count as f64).powi(2)).sum();
    if squares == 0.0 { 0.0 } else { sum * sum / (counts.len() as f64 * squares) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fairness_index_is_one_for_equal_shares_and_least_for_a_single_winner() {
        assert!((jain(&[5, 5, 5, 5]) - 1.0).abs() < 1e-9);
        assert!((jain(&[9, 0, 0, 0]) - 0.25).abs() < 1e-9);
        assert!(jain(&[0, 0]).abs() < 1e-9);
    }
}
