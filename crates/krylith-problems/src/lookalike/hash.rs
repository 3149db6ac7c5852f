//! Random numbers and permutations that any thread can evaluate at any index.

/// SplitMix64's finaliser: every bit of the result depends on every bit of `z`.
#[inline]
pub(super) fn mix(z: u64) -> u64 {
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Maps a random word to 0..n, almost uniformly.
#[inline]
pub(super) fn below(word: u64, n: usize) -> usize {
    ((u128::from(word) * n as u128) >> 64) as usize
}

/// A random permutation of 0..n that stores nothing.
///
/// Rounds of x ← (m x + c) mod 2^k and x ← x ⊕ (x >> k/2) are invertible, so they permute 0..2^k, where 2^k
/// is the smallest power of two that is at least n. A result that is not below n is permuted again, less than
/// once on average.
#[derive(Debug, Clone, Copy)]
pub(super) struct Permutation {
    n: u64,
    mask: u64,
    shift: u32,
    /// Multiplier, its inverse and the constant of each round.
    rounds: [[u64; 3]; 4],
}

impl Permutation {
    pub fn new(n: usize, seed: u64) -> Self {
        let bits = (usize::BITS - n.saturating_sub(1).leading_zeros()).max(1);
        let rounds = std::array::from_fn(|r| {
            let word = mix(seed ^ mix(r as u64 + 1));
            let m = word | 1;
            // Newton's iteration doubles the correct bits of an inverse modulo 2^64; m itself has three.
            let inverse = (0..5).fold(m, |x, _| x.wrapping_mul(2u64.wrapping_sub(m.wrapping_mul(x))));
            [m, inverse, mix(word)]
        });
        Self { n: n as u64, mask: (1u64 << bits) - 1, shift: bits.div_ceil(2), rounds }
    }

    /// Returns the new number of `i`.
    #[inline]
    pub fn of(&self, i: usize) -> usize {
        let mut x = i as u64;
        loop {
            for [m, _, c] in self.rounds {
                x = x.wrapping_mul(m).wrapping_add(c) & self.mask;
                x ^= x >> self.shift;
            }
            if x < self.n {
                return x as usize;
            }
        }
    }

    /// Returns the old number of `new`.
    #[inline]
    pub fn inverse(&self, new: usize) -> usize {
        let mut x = new as u64;
        loop {
            for [_, inverse, c] in self.rounds.iter().rev() {
                x ^= x >> self.shift;
                x = x.wrapping_sub(*c).wrapping_mul(*inverse) & self.mask;
            }
            if x < self.n {
                return x as usize;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn permutations_take_every_number_once_and_back() {
        for n in [1, 2, 3, 31, 64, 65, 1000, 4097] {
            let p = Permutation::new(n, 5);
            let mut seen = vec![false; n];
            for i in 0..n {
                let new = p.of(i);
                assert!(!std::mem::replace(&mut seen[new], true), "{n}: {new} is taken twice");
                assert_eq!(p.inverse(new), i, "{n}");
            }
        }
        // The permutation is far from the identity, and neighbours do not stay together.
        let (n, p) = (100_000, Permutation::new(100_000, 5));
        let near = (1..n).filter(|&i| p.of(i).abs_diff(p.of(i - 1)) < n / 100).count();
        assert!((1500..2500).contains(&near), "{near} of {n} neighbours stay within a hundredth");
    }
}
