//! Names drawn by Zipf's law, the same for all contenders and in every run.

/// How many draws there are; each task begins at another position.
const DRAWS: usize = 1 << 16;

/// Two bytes for each draw, the lower first. The n-th name is drawn 1/n as often as the first.
pub(crate) fn draws(names: usize) -> Vec<u8> {
    let weights: Vec<_> = (1..=names).map(|rank| 1.0 / rank as f64).collect();
    let all: f64 = weights.iter().sum();
    let mut shares = Vec::with_capacity(names);
    weights.iter().fold(0.0, |sum, weight| {
        shares.push((sum + weight) / all);
        sum + weight
    });
    let mut random = 0x9e37_79b9_7f4a_7c15_u64;
    let draw = |_| {
        // Xorshift: pseudo-random numbers are enough, and these are always the same.
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        let share = (random >> 11) as f64 / (1u64 << 53) as f64;
        shares.partition_point(|end| *end < share).min(names - 1) as u16
    };
    (0..DRAWS).map(draw).flat_map(u16::to_le_bytes).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_name_is_drawn_ten_times_as_often_as_the_tenth() {
        let draws = draws(1000);
        let count = |name: u16| draws.chunks(2).filter(|pair| *pair == name.to_le_bytes()).count() as f64;
        let times = count(0) / count(9);
        assert!((8.0..12.0).contains(&times), "{times}");
    }
}
