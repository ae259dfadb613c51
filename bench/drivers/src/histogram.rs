//! Durations, counted in buckets that are 1.6 % wide, the same in every language.

use std::sync::atomic::{AtomicU64, Ordering};

/// Buckets per power of two.
const WIDTH: u64 = 64;
/// Enough for 2⁴⁴ ns, which is five hours.
const BUCKETS: usize = 39 * 64;

fn bucket(nanos: u64) -> usize {
    let shift = (u64::BITS - nanos.leading_zeros()).saturating_sub(7);
    ((u64::from(shift) * WIDTH + (nanos >> shift)) as usize).min(BUCKETS - 1)
}

/// The middle of a bucket.
fn middle(bucket: usize) -> f64 {
    let bucket = bucket as u64;
    if bucket < 2 * WIDTH {
        return bucket as f64;
    }
    let shift = bucket / WIDTH - 1;
    let least = (bucket - shift * WIDTH) << shift;
    least as f64 + (1u64 << shift) as f64 / 2.0
}

/// Counts durations from many tasks.
#[derive(Debug)]
pub struct Recorder {
    shards: Vec<Shard>,
}

#[derive(Debug)]
struct Shard {
    counts: Vec<AtomicU64>,
    sum: AtomicU64,
    max: AtomicU64,
}

impl Recorder {
    /// A recorder with several parts, so that tasks on different threads rarely contend.
    #[must_use]
    pub fn new() -> Self {
        let shard = || Shard {
            counts: (0..BUCKETS).map(|_| AtomicU64::new(0)).collect(),
            sum: AtomicU64::new(0),
            max: AtomicU64::new(0),
        };
        Self { shards: (0..8).map(|_| shard()).collect() }
    }

    /// Counts one duration, for the task of this number.
    pub fn record(&self, task: usize, nanos: u64) {
        let shard = &self.shards[task % self.shards.len()];
        shard.counts[bucket(nanos)].fetch_add(1, Ordering::Relaxed);
        shard.sum.fetch_add(nanos, Ordering::Relaxed);
        shard.max.fetch_max(nanos, Ordering::Relaxed);
    }

    /// The counts so far.
    #[must_use]
    pub fn finish(&self) -> Histogram {
        let mut all = Histogram::default();
        for shard in &self.shards {
            let filled = shard.counts.iter().enumerate().filter_map(|(bucket, count)| {
                let count = count.load(Ordering::Relaxed);
                (count > 0).then_some((bucket, count))
            });
            all.merge(&Histogram {
                buckets: filled.collect(),
                sum: shard.sum.load(Ordering::Relaxed),
                max: shard.max.load(Ordering::Relaxed),
            });
        }
        all
    }
}

impl Default for Recorder {
    fn default() -> Self {
        Self::new()
    }
}

/// Durations in nanoseconds: how many are in each bucket.
#[derive(Debug, Clone, Default, serde::Serialize, serde::Deserialize)]
pub struct Histogram {
    /// The buckets that are not empty, in order, and how many are in each.
    pub buckets: Vec<(usize, u64)>,
    /// The sum of all.
    pub sum: u64,
    /// The greatest.
    pub max: u64,
}

impl Histogram {
    /// Adds the counts of another histogram.
    pub fn merge(&mut self, other: &Self) {
        for &(bucket, count) in &other.buckets {
            match self.buckets.binary_search_by_key(&bucket, |(bucket, _)| *bucket) {
                Ok(at) => self.buckets[at].1 += count,
                Err(at) => self.buckets.insert(at, (bucket, count)),
            }
        }
        self.sum += other.sum;
        self.max = self.max.max(other.max);
    }

    /// How many there are.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.buckets.iter().map(|(_, count)| count).sum()
    }

    /// The mean, if there is one.
    #[must_use]
    pub fn mean(&self) -> Option<f64> {
        let count = self.count();
        (count > 0).then(|| self.sum as f64 / count as f64)
    }

    /// The value that this share of all does not exceed.
    #[must_use]
    pub fn quantile(&self, share: f64) -> Option<f64> {
        let wanted = ((self.count() as f64 * share).ceil() as u64).max(1);
        let mut seen = 0;
        self.buckets.iter().find_map(|(bucket, count)| {
            seen += count;
            (seen >= wanted).then(|| middle(*bucket))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_near_the_middle_of_its_bucket() {
        for power in 0..43 {
            for value in [1u64 << power, (1 << power) + (1 << power) / 3, (2 << power) - 1] {
                let found = middle(bucket(value));
                assert!((found - value as f64).abs() <= value as f64 / 64.0 + 0.5, "{value} became {found}");
            }
        }
    }

    #[test]
    fn quantiles_are_those_of_all_merged_values() {
        let (one, other) = (Recorder::new(), Recorder::new());
        for value in 0..100 {
            one.record(value as usize, value);
        }
        for _ in 0..100 {
            other.record(0, 1_000_000);
        }
        let mut all = one.finish();
        all.merge(&other.finish());
        assert_eq!(all.count(), 200);
        assert_eq!(all.quantile(0.25), Some(49.0));
        assert!((all.quantile(0.99).unwrap() - 1e6).abs() < 2e4);
        assert_eq!(all.max, 1_000_000);
    }
}
