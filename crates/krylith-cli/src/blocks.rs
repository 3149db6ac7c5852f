//! Which block size suits a scalar matrix, and what stands inside the blocks.

use krylith::matrix::{Bsr, Csr, MAX_BLOCK};

/// Stored zeros that a block size may add, as a share of the entries there are.
const FILL: f64 = 0.2;

/// Blocks that a b×b grid over the matrix touches.
fn touched(a: &Csr, b: usize) -> usize {
    let mut last = vec![usize::MAX; a.columns() / b];
    let mut blocks = 0;
    for i in 0..a.rows() {
        for &j in a.row(i).0 {
            let last = &mut last[j as usize / b];
            if *last != i / b {
                (*last, blocks) = (i / b, blocks + 1);
            }
        }
    }
    blocks
}

/// The largest block size up to [`MAX_BLOCK`] that adds at most 20 % stored zeros, and the share it adds.
pub fn detect(a: &Csr) -> (usize, f64) {
    let n = a.nonzeros();
    for b in (2..=MAX_BLOCK).rev() {
        if a.rows() % b == 0 && a.columns() % b == 0 {
            let added = (touched(a, b) * b * b) as f64 / n as f64 - 1.0;
            if added <= FILL {
                return (b, added);
            }
        }
    }
    (1, 0.0)
}

/// Structure that every block of a matrix shares.
#[derive(Debug, Clone, PartialEq)]
pub struct Inside {
    /// For each of the b² places: `None` where every block has a zero, else the group of places that are equal in
    /// every block, numbered in order of appearance.
    pub groups: Vec<Option<usize>>,
}

impl Inside {
    /// Looks at every block.
    pub fn of(a: &Bsr) -> Self {
        let bb = a.block() * a.block();
        let mut zero = vec![true; bb];
        // leader[e]: the first place that equals place e in every block seen so far.
        let mut leader: Vec<usize> = vec![0; bb];
        for block in a.values().chunks_exact(bb) {
            for e in 0..bb {
                zero[e] &= block[e] == 0.0;
                if block[leader[e]] != block[e] {
                    // A group that splits here: places that shared this leader and this value stay together.
                    let old = leader[e];
                    let value = block[e];
                    for f in e..bb {
                        if leader[f] == old && block[f] == value {
                            leader[f] = e;
                        }
                    }
                }
            }
        }
        let mut numbers: Vec<usize> = Vec::new();
        let groups = (0..bb)
            .map(|e| {
                (!zero[e]).then(|| {
                    numbers.iter().position(|&l| l == leader[e]).unwrap_or_else(|| {
                        numbers.push(leader[e]);
                        numbers.len() - 1
                    })
                })
            })
            .collect();
        Self { groups }
    }

    /// Groups of equal places that are not zero.
    pub fn distinct(&self) -> usize {
        self.groups.iter().flatten().max().map_or(0, |g| g + 1)
    }

    /// Places that are zero in every block.
    pub fn zeros(&self) -> usize {
        self.groups.iter().filter(|g| g.is_none()).count()
    }

    /// One line a row of the block: a letter for each group, a dot for a zero.
    pub fn picture(&self) -> Vec<String> {
        let b = self.groups.len().isqrt();
        let letter = |g: &Option<usize>| match g {
            None => '.',
            Some(g) if *g < 26 => (b'a' + *g as u8) as char,
            Some(g) if *g < 52 => (b'A' + (*g - 26) as u8) as char,
            Some(_) => '*',
        };
        let row = |r: &[Option<usize>]| r.iter().map(|g| letter(g).to_string()).collect::<Vec<_>>().join(" ");
        self.groups.chunks_exact(b).map(row).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_and_zero_places_are_found() {
        let values = vec![1.0, 0.0, 2.0, 1.0, 5.0, 0.0, 5.0, 5.0];
        let a = Bsr::new(2, 1, 2, vec![0, 2], vec![0, 1], values).unwrap();
        let inside = Inside::of(&a);
        assert_eq!(inside.groups, [Some(0), None, Some(1), Some(0)]);
        assert_eq!((inside.distinct(), inside.zeros()), (2, 1));
        assert_eq!(inside.picture(), ["a .", "b a"]);
    }

    #[test]
    fn block_sizes_are_found() {
        let mut dense = Vec::new();
        for i in 0..12u32 {
            for j in 0..12u32 {
                if i / 3 == j / 3 {
                    dense.push((i, j, 1.0));
                }
            }
        }
        let a = Csr::from_triplets(12, 12, &dense).unwrap();
        assert_eq!(detect(&a), (3, 0.0));
        let diagonal: Vec<_> = (0..12).map(|i| (i, i, 1.0)).collect();
        assert_eq!(detect(&Csr::from_triplets(12, 12, &diagonal).unwrap()), (1, 0.0));
    }
}
