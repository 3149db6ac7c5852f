//! Row lengths that follow a power law and add up to a given sum.

use krylith_base::threads::collect;
use rayon::prelude::*;

use super::Shape;
use super::build::sums_before;
use super::hash::{below, mix};
use crate::random::Random;

const CHUNK: usize = 1 << 14;

/// An integer version of Lomax's distribution: low + ⌊σ (u^(−1/α) − 1)⌋ for u in (0, 1], at most `high`.
///
/// Its density falls as the length to the power −(α + 1). α is 2, or 4/3 if `heavy`; both need only square
/// roots, which have the same bits on every machine.
#[derive(Debug, Clone, Copy)]
pub(super) struct Tail {
    low: f64,
    high: f64,
    scale: f64,
    heavy: bool,
}

impl Tail {
    /// Returns the distribution with mean `mean`, or the nearest possible.
    pub fn new(mean: f64, low: u32, high: u32, heavy: bool) -> Self {
        let high = high.max(low);
        let at = |scale| Self { low: low.into(), high: high.into(), scale, heavy };
        let (mut small, mut large) = (0.0, 2.0 * f64::from(high) + 2.0);
        for _ in 0..50 {
            let middle = 0.5 * (small + large);
            if at(middle).mean() < mean {
                small = middle;
            } else {
                large = middle;
            }
        }
        at(small)
    }

    /// Returns the length for u in (0, 1].
    #[inline]
    pub fn length(&self, u: f64) -> u32 {
        (self.low + self.scale * (inverse_power(u, self.heavy) - 1.0)).min(self.high) as u32
    }

    /// Integrates the length over u by the midpoint rule, on each interval between successive powers of 1/2.
    fn mean(&self) -> f64 {
        const POINTS: usize = 64;
        let mut mean = 0.0;
        let mut width = 0.5;
        for _ in 0..44 {
            for k in 0..POINTS {
                let u = width * (1.0 + (k as f64 + 0.5) / POINTS as f64);
                mean += width / POINTS as f64 * f64::from(self.length(u));
            }
            width *= 0.5;
        }
        mean
    }
}

/// Returns u to the power −1/2, or −3/4.
#[inline]
fn inverse_power(u: f64, heavy: bool) -> f64 {
    let root = u.sqrt();
    if heavy { 1.0 / (root * root.sqrt()) } else { 1.0 / root }
}

/// Draws a distance of at least 1. The median is about 1 + 0.4 `scale`; far out, the density falls as the
/// distance to the power −3.
#[inline]
pub(super) fn distance(random: &mut Random, scale: f64) -> usize {
    1 + (scale * (inverse_power(1.0 - random.unit(), false) - 1.0)).min(1e12) as usize
}

/// Returns the index `distance` before `i` if `before`, else after it. If that index lies outside 0..n, the
/// one on the other side of `i` is returned; if that lies outside too, 0.
#[inline]
pub(super) fn beside(i: usize, distance: usize, before: bool, n: usize) -> usize {
    match (before, i.checked_sub(distance)) {
        (true, Some(place)) => place,
        _ if i + distance < n => i + distance,
        _ => i.saturating_sub(distance),
    }
}

/// Returns `n` lengths, each computed from its index.
pub(super) fn draw(n: usize, length: &(dyn Fn(usize) -> u32 + Sync)) -> Vec<u32> {
    collect(0..n, CHUNK, length)
}

/// Returns power-law lengths with the sum, minimum and maximum of the shape; one row, at a random index, has
/// the maximum. `empty` is the share of empty rows; it must be 0 unless the minimum is 0.
pub(super) fn power_law(shape: &Shape, empty: f64, heavy: bool, seed: u64) -> Vec<u32> {
    let (n, min, max) = (shape.rows as usize, shape.min, shape.max);
    let longest = below(mix(seed), n);
    let shortest = (longest + n / 2) % n;
    let mean_of_others = (shape.nonzeros - u64::from(min + max)) as f64 / ((n - 2) as f64 * (1.0 - empty));
    // In the real matrices few rows come near the maximum, so the tail ends at half of it.
    let high = (max / 2).max((2.0 * mean_of_others) as u32).min(max - 1);
    let tail = Tail::new(mean_of_others, 1, high, heavy);
    let mut lengths = draw(n, &|i| {
        let mut random = Random::new(seed, 1, i as u64);
        match i {
            _ if i == longest => max,
            _ if i == shortest => min,
            _ if random.unit() < empty => 0,
            _ => tail.length(1.0 - random.unit()),
        }
    });
    settle(&mut lengths, shape.nonzeros, &|_, length, longer| match longer {
        true => length > min && length + 1 < max,
        false => length > min + 1 && length < max,
    });
    lengths
}

/// Lengthens or shortens rows until the lengths add up to `total`, or no row can change. Each pass changes
/// evenly spread rows by one, of those for which `can_change(row, length, longer)` is true.
pub(super) fn settle(
    lengths: &mut [u32],
    total: u64,
    can_change: &(dyn Fn(usize, u32, bool) -> bool + Sync),
) {
    loop {
        let sum: u64 = lengths.par_chunks(CHUNK).map(|c| c.iter().map(|&l| u64::from(l)).sum::<u64>()).sum();
        let longer = sum < total;
        let counts: Vec<usize> = lengths
            .par_chunks(CHUNK)
            .enumerate()
            .map(|(c, rows)| {
                rows.iter().enumerate().filter(|&(k, &l)| can_change(c * CHUNK + k, l, longer)).count()
            })
            .collect();
        let able: usize = counts.iter().sum();
        let wanted = sum.abs_diff(total).min(able as u64);
        if wanted == 0 {
            return;
        }
        let before = sums_before(&counts);
        lengths.par_chunks_mut(CHUNK).enumerate().zip(before).for_each(|((c, rows), mut rank)| {
            let share = |rank: usize| rank as u128 * u128::from(wanted) / able as u128;
            for (k, length) in rows.iter_mut().enumerate() {
                if can_change(c * CHUNK + k, *length, longer) {
                    if share(rank + 1) > share(rank) {
                        *length = if longer { *length + 1 } else { *length - 1 };
                    }
                    rank += 1;
                }
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_add_up() {
        let n = 3 * CHUNK + 5;
        for total in [0, 17, n as u64 - 1, n as u64, 7 * n as u64 + 3] {
            let mut lengths = vec![1u32; n];
            settle(&mut lengths, total, &|_, length, longer| longer || length > 0);
            assert_eq!(lengths.iter().map(|&l| u64::from(l)).sum::<u64>(), total);
            let (low, high) = (lengths.iter().min().unwrap(), lengths.iter().max().unwrap());
            assert!(high - low <= 1, "{total}: {low} to {high}");
        }
        // Rows that may not change keep their length.
        let mut lengths = vec![4, 9, 4];
        settle(&mut lengths, 100, &|i, _, _| i == 1);
        assert_eq!(lengths, [4, 92, 4]);
        settle(&mut lengths, 0, &|_, length, _| length > 2);
        assert_eq!(lengths, [2, 2, 2]);
    }

    #[test]
    fn tails_have_their_mean() {
        for (mean, high, heavy) in [(9.0, 3841, false), (38.0, 12_870, false), (35.0, 2_997_469, true)] {
            let tail = Tail::new(mean, 1, high, heavy);
            let n = 400_000;
            let sum: f64 = (0..n).map(|i| f64::from(tail.length((i as f64 + 0.5) / f64::from(n)))).sum();
            let got = sum / f64::from(n);
            assert!((got / mean - 1.0).abs() < 0.05, "{got} for {mean}");
            assert!(tail.length(1e-300) == high && tail.length(1.0) == 1);
        }
    }
}
