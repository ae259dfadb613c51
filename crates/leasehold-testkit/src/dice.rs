//! Random choices determined by a seed.

use std::time::Duration;

/// A random generator with a seed: Marsaglia's xorshift.
#[derive(Clone, Debug)]
pub struct Dice(u64);

impl Dice {
    /// The generator of this seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        // Adjacent seeds must not begin alike, and none may be zero.
        let mut dice = Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
        for _ in 0..8 {
            dice.roll(1);
        }
        dice
    }

    /// A number below `sides`.
    pub fn roll(&mut self, sides: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % sides
    }

    /// An index into a list of this length.
    ///
    /// # Panics
    ///
    /// If it is empty.
    pub fn index(&mut self, length: usize) -> usize {
        usize::try_from(self.roll(length as u64)).expect("below a length")
    }

    /// A time from `least` on and before `most`.
    ///
    /// # Panics
    ///
    /// If `most` is less than `least`, or very long.
    pub fn between(&mut self, least: Duration, most: Duration) -> Duration {
        let span = most.checked_sub(least).expect("the least is first").as_micros();
        least + Duration::from_micros(self.roll(u64::try_from(span).expect("some seconds at most").max(1)))
    }

    /// True with a chance of one in `sides`.
    pub fn one_in(&mut self, sides: u64) -> bool {
        self.roll(sides) == 0
    }

    /// One of these.
    ///
    /// # Panics
    ///
    /// If there is none.
    pub fn one_of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.index(all.len())]
    }

    /// Another generator, seeded by this one.
    #[must_use]
    pub fn fork(&mut self) -> Self {
        Self::new(self.roll(u64::MAX))
    }
}
