//! How one contender compares with another that was measured by turns with it.

use std::fmt;

use crate::markdown::number;

/// Half of the probability that the true median lies outside of the interval.
const TAIL: f64 = 0.025;

/// The median of the ratios of all pairs, and the interval in which the true one lies with 95 %.
///
/// The interval is that of the sign test: from the k-th least to the k-th greatest ratio, for any distribution of the
/// ratios. Fewer than six pairs do not give this confidence; then it goes from the least to the greatest.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Ratio {
    pub(crate) median: f64,
    pub(crate) low: f64,
    pub(crate) high: f64,
}

impl Ratio {
    /// The ratio of these pairs; nothing if there are none.
    pub(crate) fn of(ratios: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut ratios: Vec<f64> = ratios.into_iter().filter(|ratio| ratio.is_finite()).collect();
        ratios.sort_by(f64::total_cmp);
        let count = ratios.len();
        let (lower, upper) = (*ratios.get(count.checked_sub(1)? / 2)?, ratios[count / 2]);
        let cut = cut(count);
        Some(Self { median: f64::midpoint(lower, upper), low: ratios[cut], high: ratios[count - 1 - cut] })
    }
}

impl fmt::Display for Ratio {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { median, low, high } = *self;
        let text = format!("{} ({} … {})", number(median), number(low), number(high));
        f.pad(&text)
    }
}

/// How many ratios lie outside of the interval on each side. Each ratio is below the true median with a probability of one
/// half, so that at most this many are with a probability of 2.5 % or less.
fn cut(count: usize) -> usize {
    let mut chance = 0.5f64.powi(i32::try_from(count).unwrap_or(i32::MAX));
    let mut below = chance;
    let mut cut = 0;
    // `below` is the probability that at most `cut` ratios are less than the true median.
    for outside in 1..count.div_ceil(2) {
        chance *= (count + 1 - outside) as f64 / outside as f64;
        below += chance;
        if below > TAIL {
            break;
        }
        cut = outside;
    }
    cut
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_of_ratios_ignores_values_that_are_not_finite() {
        let of = |ratios: &[f64]| Ratio::of(ratios.iter().copied()).map(|ratio| ratio.median);
        assert_eq!(of(&[]), None);
        assert_eq!(of(&[2.0]), Some(2.0));
        assert_eq!(of(&[4.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(of(&[4.0, 1.0, 2.0, 3.0]), Some(2.5));
        assert_eq!(of(&[f64::INFINITY, 1.0, f64::NAN]), Some(1.0));
    }

    /// The numbers are those of the tables of the sign test.
    #[test]
    fn the_interval_omits_as_many_pairs_as_the_sign_test() {
        for (count, outside) in
            [(1, 0), (3, 0), (5, 0), (8, 0), (9, 1), (11, 1), (12, 2), (15, 3), (20, 5), (25, 7), (100, 39)]
        {
            assert_eq!(cut(count), outside, "of {count}");
        }
    }

    #[test]
    fn the_interval_of_few_pairs_spans_the_least_and_the_greatest() {
        let ratio = Ratio::of([1.1, 0.9, 1.0]).unwrap();
        assert_eq!(ratio, Ratio { median: 1.0, low: 0.9, high: 1.1 });
        let nine = Ratio::of((1..=9).map(f64::from)).unwrap();
        assert_eq!(nine, Ratio { median: 5.0, low: 2.0, high: 8.0 });
        assert_eq!(nine.to_string(), "5.00 (2.00 … 8.00)");
    }
}
