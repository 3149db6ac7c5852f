//! Smooth random fields that any rank can evaluate anywhere: lattice values with interpolation in between.
//!
//! A lattice value is a hash of seed, stream and position, so a field needs no storage and is the same on
//! every rank. Only additions, products and square roots are used: fields have the same bits on every
//! machine.

use crate::random::Random;

/// Returns a lattice point's random number: mean 0, variance 1, within ±3.5 and close to normal.
fn normal(seed: u64, stream: u64, [x, y, z]: [u64; 3]) -> f64 {
    let word = Random::new(seed, stream, x ^ y.rotate_left(21) ^ z.rotate_left(42)).next();
    // The sum of four uniform numbers has variance 1/3.
    let sum: u64 = (0..4).map(|k| word >> (16 * k) & 0xffff).sum();
    (sum as f64 / 65536.0 - 2.0 + 0.5 / 16384.0) * 3f64.sqrt()
}

/// Returns a lattice point's random number in [0, 1).
pub(crate) fn uniform(seed: u64, stream: u64, [x, y, z]: [u64; 3]) -> f64 {
    Random::new(seed, stream, x ^ y.rotate_left(21) ^ z.rotate_left(42)).unit()
}

/// Evaluates the field at `at`, in units of the lattice and not negative. It is continuous, with mean 0 and
/// variance 1 everywhere.
pub(crate) fn smooth(seed: u64, stream: u64, at: [f64; 3]) -> f64 {
    let base = at.map(|x| x.floor());
    // The weight t²(3 − 2t) avoids the kinks of linear interpolation at lattice planes.
    let t: [f64; 3] = std::array::from_fn(|d| {
        let t = at[d] - base[d];
        t * t * (3.0 - 2.0 * t)
    });
    let (mut sum, mut square) = (0.0, 0.0);
    for corner in 0..8u64 {
        let bit = |d: usize| corner >> d & 1;
        let weight: f64 = (0..3).map(|d| if bit(d) == 1 { t[d] } else { 1.0 - t[d] }).product();
        if weight > 0.0 {
            sum += weight * normal(seed, stream, std::array::from_fn(|d| base[d] as u64 + bit(d)));
            square += weight * weight;
        }
    }
    // Divided by √Σw², because a plain average would vary less between lattice points.
    sum / square.sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_have_mean_0_and_variance_1_and_no_jumps() {
        let (mut mean, mut square) = (0.0, 0.0);
        let count = 40_000;
        for i in 0..count {
            let at = [(i % 200) as f64 * 0.37, (i / 200) as f64 * 0.61, 7.3];
            let v = smooth(5, 1, at);
            mean += v / f64::from(count);
            square += v * v / f64::from(count);
            let near = smooth(5, 1, at.map(|x| x + 1e-9));
            assert!((near - v).abs() < 1e-6, "{at:?}");
        }
        assert!(mean.abs() < 0.05 && (square - 1.0).abs() < 0.05, "mean {mean}, variance {square}");
        assert_ne!(smooth(5, 1, [0.5; 3]), smooth(6, 1, [0.5; 3]));
        assert_ne!(smooth(5, 1, [0.5; 3]), smooth(5, 2, [0.5; 3]));
    }
}
