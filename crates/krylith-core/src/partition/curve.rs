//! Positions along Hilbert's curve in space.

/// Bits per axis: 3 × 21 fit in 64.
const BITS: u32 = 21;

/// Returns the position of each point along Hilbert's curve through the bounding cube of all points (Skilling
/// 2004).
pub(super) fn hilbert(points: &[[f64; 3]]) -> Vec<u64> {
    let low: [f64; 3] = std::array::from_fn(|d| points.iter().fold(f64::INFINITY, |m, x| m.min(x[d])));
    let high: [f64; 3] = std::array::from_fn(|d| points.iter().fold(f64::NEG_INFINITY, |m, x| m.max(x[d])));
    // One scale for all axes, so that cells are cubes.
    let edge = (0..3).map(|d| high[d] - low[d]).fold(0.0, f64::max);
    let scale = if edge > 0.0 { f64::from(1u32 << BITS) / edge } else { 0.0 };
    let cell = |x: f64, d: usize| (((x - low[d]) * scale) as u64).min((1 << BITS) - 1) as u32;
    points.iter().map(|x| index([cell(x[0], 0), cell(x[1], 1), cell(x[2], 2)])).collect()
}

/// Applies Skilling's transform to the axes, and interleaves the bits.
fn index(mut x: [u32; 3]) -> u64 {
    let mut q = 1 << (BITS - 1);
    while q > 1 {
        let p = q - 1;
        for d in 0..3 {
            if x[d] & q != 0 {
                x[0] ^= p;
            } else {
                let t = (x[0] ^ x[d]) & p;
                x[0] ^= t;
                x[d] ^= t;
            }
        }
        q >>= 1;
    }
    // Gray code.
    x[1] ^= x[0];
    x[2] ^= x[1];
    let mut t = 0;
    let mut q = 1 << (BITS - 1);
    while q > 1 {
        if x[2] & q != 0 {
            t ^= q - 1;
        }
        q >>= 1;
    }
    let x = x.map(|x| x ^ t);
    (0..BITS).rev().fold(0, |key, bit| x.iter().fold(key, |key, x| key << 1 | u64::from(x >> bit & 1)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// On a grid of 8³ points the curve visits all and steps to a neighbour each time.
    #[test]
    fn the_curve_steps_to_neighbours() {
        let at = |i: u32| [i % 8, i / 8 % 8, i / 64];
        let mut order: Vec<u32> = (0..512).collect();
        order.sort_by_key(|&i| index(at(i).map(|x| x << (BITS - 3))));
        for w in order.windows(2) {
            let (x, y) = (at(w[0]), at(w[1]));
            let step: u32 = (0..3).map(|d| x[d].abs_diff(y[d])).sum();
            assert_eq!(step, 1, "{x:?} to {y:?}");
        }
    }
}
