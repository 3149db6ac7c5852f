//! Random point-block Kronecker systems, for tests of every block size and number of stages.

use krylith_base::threads::each_chunk;
use krylith_core::matrix::{Bsr, Dense, KroneckerSum};
use krylith_core::partition::{RowBlocks, Rows, contiguous};
use krylith_core::{Error, Result};
use std::ops::Range;

use crate::spec::Spec;
use crate::{Generated, GeneratedRows, SystemKind, kronecker_terms, memory};

/// Blocks per row if there are enough nodes.
const BLOCKS: usize = 15;

/// Generates A⊗M + τB⊗L with every row of the sum diagonally dominant.
///
/// In M and L a diagonal entry is 4 times the sum of its row's other magnitudes (at least 4). A and B have
/// diagonals of 1 and of 0.5..1, and other entries that sum to at most 0.1 per row. Every row has its own
/// seed.
pub(crate) fn generate(spec: &Spec) -> Result<Generated> {
    let Parameters { n, b, s, seed, tau, .. } = Parameters::of(spec)?;
    if n > u32::MAX as usize / b {
        return Err(Error::invalid(format!("random: {n} nodes of {b} components do not fit 32-bit columns")));
    }
    memory::check("the random system", (n * BLOCKS.min(n)) as u64 * (b * b * 8 + 8) as u64 * 2)?;

    let [m, l] = Parameters::of(spec)?
        .matrices(0..n)
        .map(|(row_ptr, col, values)| Bsr::new(b, n, n, row_ptr, col, values));
    let (a, coefficients) = stages(s, seed);
    let rhs = rhs(seed, 0..n * b * s);
    Ok(Generated {
        system: SystemKind::Kronecker(KroneckerSum::new(a, coefficients, tau, m?, l?)?),
        rhs,
        coordinates: None,
        grid: None,
        tetrahedra: Vec::new(),
        fields: Vec::new(),
        matrices: Vec::new(),
        spec: spec.full(),
    })
}

/// Generates one rank's rows of the same system.
pub(crate) fn generate_rows(spec: &Spec, rank: usize, ranks: usize) -> Result<GeneratedRows> {
    let parameters = Parameters::of(spec)?;
    let Parameters { n, b, s, seed, tau, .. } = parameters;
    if n > u32::MAX as usize {
        return Err(Error::invalid(format!("random: {n} nodes do not fit 32-bit node numbers")));
    }
    let own = contiguous(n, rank, ranks);
    memory::check(
        "a rank's part of the random system",
        (own.len() * BLOCKS) as u64 * (b * b * 8 + 12) as u64 * 2,
    )?;
    let (a, coefficients) = stages(s, seed);
    let blocks = parameters.matrices(own.clone()).map(|(row_ptr, col, values)| RowBlocks {
        row_ptr,
        col: col.into_iter().map(u64::from).collect(),
        values,
    });
    Ok(GeneratedRows {
        fields: Vec::new(),
        matrices: Vec::new(),
        rhs: rhs(seed, own.start * b * s..own.end * b * s),
        nodes: n,
        coordinates: None,
        grid: None,
        rows: Rows {
            numbers: own.map(|i| i as u64).collect(),
            block: b,
            terms: kronecker_terms(a, &coefficients, tau, blocks)?,
        },
        spec: spec.full(),
    })
}

/// Returns the entries `range` of the right-hand side.
fn rhs(seed: u64, range: Range<usize>) -> Vec<f64> {
    const CHUNK: usize = 4096;
    let mut rhs = vec![0.0; range.len()];
    each_chunk(&mut rhs, CHUNK, 1, &|chunk, out| {
        let mut random = Random::new(seed, 5, 0);
        random.skip((range.start + chunk * CHUNK) as u64);
        out.iter_mut().for_each(|v| *v = 2.0 * random.unit() - 1.0);
    });
    rhs
}

/// The parameters in the text.
#[derive(Clone, Copy)]
struct Parameters {
    n: usize,
    b: usize,
    s: usize,
    seed: u64,
    same: bool,
    tau: f64,
}

impl Parameters {
    fn of(spec: &Spec) -> Result<Self> {
        Ok(Self {
            n: spec.size[0],
            b: spec.whole("block", 1..=8)? as usize,
            s: spec.whole("stages", 1..=8)? as usize,
            seed: spec.whole("seed", 0..=u64::MAX)?,
            same: spec.choice("pattern", &["same", "different"])? == 0,
            tau: spec.positive("tau")?,
        })
    }

    /// Returns the rows `own` of M and of L.
    fn matrices(self, own: Range<usize>) -> [Blocks; 2] {
        let Self { n, b, seed, .. } = self;
        let other = if self.same { 1 } else { 2 };
        [blocks(n, own.clone(), b, seed, 1, 1), blocks(n, own, b, seed, other, 3)]
    }
}

/// Returns A and B.
fn stages(s: usize, seed: u64) -> (Dense, Dense) {
    let mut random = Random::new(seed, 4, 0);
    let mut stage = |diagonal: &mut dyn FnMut(&mut Random) -> f64| {
        let mut a = Dense::identity(s);
        for k in 0..s {
            for j in 0..s {
                a[(k, j)] =
                    if k == j { diagonal(&mut random) } else { (random.unit() - 0.5) * 0.2 / (s - 1) as f64 };
            }
        }
        a
    };
    let a = stage(&mut |_| 1.0);
    let coefficients = stage(&mut |random| 0.5 + 0.5 * random.unit());
    (a, coefficients)
}

/// Row pointers, columns and values.
type Blocks = (Vec<usize>, Vec<u32>, Vec<f64>);

/// Returns rows `own` of a random matrix; `pattern` and `values` choose the random streams of columns and of
/// values.
fn blocks(n: usize, own: Range<usize>, b: usize, seed: u64, pattern: u64, values: u64) -> Blocks {
    let width = BLOCKS.min(n);
    let mut col = vec![0u32; own.len() * width];
    each_chunk(&mut col, width, 256, &|p, row| {
        let i = own.start + p;
        let mut random = Random::new(seed, pattern, i as u64);
        row[0] = i as u32;
        for p in 1..width {
            // Repeats are rare if there are many columns; if there are few, the loop takes them all.
            let mut j = random.below(n) as u32;
            while row[..p].contains(&j) {
                j = (j + 1) % n as u32;
            }
            row[p] = j;
        }
        row.sort_unstable();
    });
    let mut numbers = vec![0.0; own.len() * width * b * b];
    each_chunk(&mut numbers, width * b * b, 256, &|p, row| {
        let i = own.start + p;
        let columns = &col[p * width..(p + 1) * width];
        let mut random = Random::new(seed, values, i as u64);
        row.iter_mut().for_each(|v| *v = 2.0 * random.unit() - 1.0);
        let own = columns.iter().position(|&j| j == i as u32).unwrap_or(0);
        for r in 0..b {
            let diagonal = (own * b + r) * b + r;
            row[diagonal] = 0.0;
            let others: f64 = (0..width).flat_map(|p| &row[(p * b + r) * b..][..b]).map(|v| v.abs()).sum();
            row[diagonal] = 4.0 * others.max(1.0);
        }
    });
    ((0..own.len() + 1).map(|p| p * width).collect(), col, numbers)
}

/// SplitMix64 (Steele, Lea & Flood, 2014), seeded by stream and index so that order and threads do not
/// matter.
pub(crate) struct Random(u64);

impl Random {
    pub fn new(seed: u64, stream: u64, place: u64) -> Self {
        let mut random = Self(seed);
        for word in [stream, place] {
            random.0 = random.next() ^ word.wrapping_mul(0xd134_2543_de82_ef95);
        }
        random
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Skips the next `count` numbers.
    fn skip(&mut self, count: u64) {
        self.0 = self.0.wrapping_add(count.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    }

    /// Returns a number in [0, 1).
    pub fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Returns a number in 0..n.
    fn below(&mut self, n: usize) -> usize {
        ((u128::from(self.next()) * n as u128) >> 64) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_right_hand_side_is_one_stream_of_numbers() {
        let mut random = Random::new(7, 5, 0);
        let all: Vec<f64> = (0..10_000).map(|_| 2.0 * random.unit() - 1.0).collect();
        assert!(rhs(7, 0..10_000) == all);
        assert!(rhs(7, 4000..9001) == all[4000..9001]);
    }
}
