//! Stored zeros: finds the blocks of a pattern that hold only zeros, and builds the matrix without them.
//!
//! Assembly of mixed forms stores many zeros: with Taylor–Hood elements a third to two thirds of all entries.
//! They cost time in every method that reads the pattern (orderings, fill, levels, strength of connection),
//! and products move them.

use super::storage::Storage;
use super::{Arrays, Bsr};
use rayon::prelude::*;

/// Treatment of zeros that a matrix stores.
///
/// # Examples
/// ```
/// use krylith::options::ZerosChoice;
/// assert_eq!("drop".parse::<ZerosChoice>()?, ZerosChoice::Drop);
/// # Ok::<(), krylith::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ZerosChoice {
    /// Drops them if they are more than a tenth of the stored blocks.
    #[default]
    Auto,
    /// Keeps them.
    Keep,
    /// Drops them.
    Drop,
}

krylith_base::names! { ZerosChoice, "zeros": Auto => "auto", Keep => "keep", Drop => "drop" }

/// Number of blocks that a thread takes at once.
const RUN: usize = 1 << 14;

/// Number of runs in a sample, and blocks per run. With so many, an estimate of 10 % zeros is not off by half
/// even if all zeros lie in whole runs.
const SAMPLE: [usize; 2] = [512, 64];

/// Smallest number of rows that a thread takes at once, if it remembers a position in every row.
const SHARE: usize = 1 << 14;

/// Estimates the number of blocks that are zero in all of these matrices, which share one pattern; counts
/// them exactly if there are few blocks. A full pass takes a tenth of the set-up time on a GPU.
pub fn zeros_of_sample(matrices: &[&Bsr]) -> f64 {
    let Some((first, others)) = matrices.split_first() else { return 0.0 };
    let ([runs, length], unit, all) = (SAMPLE, first.block() * first.block(), first.blocks());
    if all <= 4 * runs * length {
        return zeros(matrices) as f64;
    }
    let stratum = all / runs;
    let is_zero = |a: &Bsr, k: usize| a.values()[k * unit..(k + 1) * unit].iter().all(|v| *v == 0.0);
    let of_run = |run: usize| {
        // A run begins at a random position of its stratum, so that periods in the pattern do not coincide
        // with the sample's.
        let hash = (run as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        let from = run * stratum + hash as usize % stratum;
        let places = (from..from + length).map(|k| k % all);
        places.filter(|&k| is_zero(first, k) && others.iter().all(|a| is_zero(a, k))).count()
    };
    let found: usize = (0..runs).map(of_run).sum();
    found as f64 / (runs * length) as f64 * all as f64
}

/// Number of blocks that are zero in all of these matrices, which share one pattern.
pub fn zeros(matrices: &[&Bsr]) -> usize {
    let Some((first, others)) = matrices.split_first() else { return 0 };
    let unit = first.block() * first.block();
    let chunk = |(chunk, values): (usize, &[f64])| {
        let from = chunk * RUN * unit;
        let is_zero = |k: usize| {
            let place = from + k * unit..from + (k + 1) * unit;
            others.iter().all(|a| a.values()[place.clone()].iter().all(|v| *v == 0.0))
        };
        if unit == 1 && others.is_empty() {
            return values.iter().map(|v| usize::from(*v == 0.0)).sum();
        }
        let blocks = values.chunks_exact(unit).enumerate();
        blocks.filter(|(k, block)| block.iter().all(|v| *v == 0.0) && is_zero(*k)).count()
    };
    first.values().par_chunks(RUN * unit).enumerate().map(chunk).sum()
}

/// For each block, whether it is zero in all of these matrices, which share one pattern.
pub fn zero_blocks(matrices: &[&Bsr]) -> Vec<bool> {
    let Some((first, others)) = matrices.split_first() else { return Vec::new() };
    let mut zero = vec![false; first.blocks()];
    let unit = first.block() * first.block();
    let is_zero = |values: &[f64]| values.iter().all(|v| *v == 0.0);
    let values = first.values();
    zero.par_chunks_mut(RUN).enumerate().for_each(|(chunk, zero)| {
        let from = chunk * RUN * unit;
        for (zero, block) in zero.iter_mut().zip(values[from..].chunks_exact(unit)) {
            *zero = is_zero(block);
        }
        for other in others {
            let blocks = other.values()[from..].chunks_exact(unit);
            zero.iter_mut().zip(blocks).filter(|(zero, _)| **zero).for_each(|(zero, b)| *zero = is_zero(b));
        }
    });
    zero
}

/// Unmarks zero blocks on the diagonal, and those whose mirrored block is stored and not zero, so that a
/// symmetric pattern stays symmetric. Blocks in ghost columns are left marked, because another rank holds
/// their mirrored block.
pub fn keep_mirrored(a: &Bsr, zero: &mut [bool]) {
    let (rows, arrays) = (a.block_rows(), Arrays { values: &[], ..Arrays::of(a) });
    let share = rows.div_ceil(rayon::current_num_threads()).max(SHARE);
    let stays: Vec<usize> = (0..rows)
        .into_par_iter()
        .step_by(share)
        .flat_map_iter(|first| {
            // The mirrored entries of a row of this share follow those of its rows before, so that each
            // search begins where the last one ended.
            let mut next: Vec<usize> = arrays.row_ptr[..rows].to_vec();
            let mut stays = Vec::new();
            for i in first..rows.min(first + share) {
                for p in arrays.row(i).filter(|&p| zero[p]) {
                    let j = arrays.col[p] as usize;
                    if j >= rows {
                        continue;
                    }
                    let left = &arrays.col[next[j]..arrays.row_ptr[j + 1]];
                    let before = left.iter().take_while(|&&k| (k as usize) < i).count();
                    next[j] += before;
                    let mirrored = left.get(before) == Some(&(i as u32)) && !zero[next[j]];
                    if j == i || mirrored {
                        stays.push(p);
                    }
                }
            }
            stays
        })
        .collect();
    stays.into_iter().for_each(|p| zero[p] = false);
}

/// The blocks that are kept when others are dropped.
#[derive(Debug, Clone)]
pub struct Kept {
    /// Positions of the dropped blocks among all, ascending.
    dropped: Vec<usize>,
    all: usize,
}

impl Kept {
    /// Keeps all blocks that are not marked.
    pub fn all_but(dropped: &[bool]) -> Self {
        let places = (0..dropped.len()).into_par_iter().with_min_len(RUN).filter(|&p| dropped[p]).collect();
        Self::without(places, dropped.len())
    }

    /// Keeps all blocks of `all` but those at these ascending positions.
    pub fn without(dropped: Vec<usize>, all: usize) -> Self {
        Self { dropped, all }
    }

    /// Returns the number of kept blocks before the block at this position.
    pub fn before(&self, place: usize) -> usize {
        place - self.dropped.partition_point(|&p| p < place)
    }

    /// The matrices, which share one pattern, with only the kept blocks; the results share one pattern again.
    pub fn of(&self, matrices: &[&Bsr]) -> Vec<Bsr> {
        let Some(first) = matrices.first() else { return Vec::new() };
        let (b, n, all) = (first.block(), first.block_rows(), Arrays::of(first));
        let row_ptr: Vec<usize> = all.row_ptr.par_iter().map(|&end| self.before(end)).collect();
        let left = self.all - self.dropped.len();
        let mut col = vec![0; left];
        self.gather(1, all.col, &mut col);
        let mut out: Vec<Bsr> = Vec::with_capacity(matrices.len());
        for a in matrices {
            let mut values = vec![0.0; left * b * b];
            self.gather(b * b, a.values(), &mut values);
            let storage = match out.first() {
                None => {
                    Storage::host(n, a.block_columns(), row_ptr.clone(), std::mem::take(&mut col), values)
                }
                Some(first) => first.storage().with_host_values(values),
            };
            out.push(Bsr::from_storage(b, storage));
        }
        out
    }

    /// Copies the `unit` numbers of each kept block.
    pub fn gather<T: Copy + Send + Sync>(&self, unit: usize, from: &[T], to: &mut [T]) {
        let mut pieces = Vec::with_capacity(self.all.div_ceil(RUN));
        let mut rest = to;
        for begin in (0..self.all).step_by(RUN) {
            let end = (begin + RUN).min(self.all);
            let (own, others) = rest.split_at_mut((self.before(end) - self.before(begin)) * unit);
            pieces.push((begin..end, own));
            rest = others;
        }
        pieces.into_par_iter().for_each(|(range, mut to)| {
            let first = self.dropped.partition_point(|&p| p < range.start);
            let inside = self.dropped[first..].iter().copied().take_while(|p| *p < range.end);
            let mut begin = range.start;
            for end in inside.chain([range.end]) {
                let (own, others) = to.split_at_mut((end - begin) * unit);
                own.copy_from_slice(&from[begin * unit..end * unit]);
                (to, begin) = (others, end + 1);
            }
        });
    }

    /// True if a dropped block is no longer zero.
    pub fn misses(&self, unit: usize, values: &[f64]) -> bool {
        let differs = |&p: &usize| values[p * unit..(p + 1) * unit].iter().any(|v| *v != 0.0);
        self.dropped.par_iter().with_min_len(RUN).any(differs)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::matrix::Csr;

    fn bsr(n: usize, entries: &[(u32, u32, f64)]) -> Bsr {
        Bsr::from_csr(&Csr::from_triplets(n, n, entries).unwrap(), 1).unwrap()
    }

    #[test]
    fn zeros_go_but_on_the_diagonal_and_opposite_to_others() {
        let a = bsr(
            3,
            &[(0, 0, 1.0), (0, 1, 0.0), (0, 2, 0.0), (1, 0, 2.0), (1, 1, 0.0), (2, 0, 0.0), (2, 2, 3.0)],
        );
        let mut zero = zero_blocks(&[&a]);
        assert_eq!(zero, [false, true, true, false, true, true, false]);
        keep_mirrored(&a, &mut zero);
        assert_eq!(zero, [false, false, true, false, false, true, false]);
        let kept = Kept::all_but(&zero);
        let out = kept.of(&[&a, &a]);
        assert_eq!((out[0].row_ptr(), out[0].col()), (&[0, 2, 4, 5][..], &[0, 1, 0, 1, 2][..]));
        assert_eq!(out[0].values(), [1.0, 0.0, 2.0, 0.0, 3.0]);
        assert!(out[0].storage().shares_pattern(out[1].storage()));
        assert!(!kept.misses(1, a.values()));
        for (place, missed) in [(1, false), (2, true), (5, true), (6, false)] {
            let mut values = a.values().to_vec();
            values[place] = 0.5;
            assert_eq!(kept.misses(1, &values), missed, "place {place}");
        }
    }

    /// Zeros in every way that a file may order them; few matrices are counted as a whole.
    #[test]
    fn a_sample_tells_about_how_many_zeros_there_are() {
        let n = 1 << 18;
        let orders: [fn(usize) -> usize; 3] =
            [|k| k, |k| k % 512 * 512 + k / 512, |k| k * 97_003 % (1 << 18)];
        for (share, order) in [0.0, 0.04, 0.11, 0.5, 1.0].iter().flat_map(|s| orders.map(|o| (s, o))) {
            let zeros = (share * n as f64) as usize;
            let values = (0..n).map(|k| if order(k) < zeros { 0.0 } else { 1.0 }).collect();
            let a = Bsr::new(1, n, n, (0..=n).collect(), (0..n as u32).collect(), values).unwrap();
            let found = zeros_of_sample(&[&a]) / n as f64;
            assert!((found - share).abs() <= 0.02, "{found} for {share}");
            assert_eq!(zeros_of_sample(&[&a, &a]), found * n as f64);
        }
        assert_eq!(zeros_of_sample(&[&bsr(3, &[(0, 0, 0.0), (1, 1, 2.0)])]), 1.0);
    }

    #[test]
    fn whole_blocks_go_and_zeros_inside_others_stay() {
        let one = [1.0, 0.0, 0.0, 1.0];
        let a = Bsr::from_block_triplets(2, 2, 2, &[(0, 0, one), (0, 1, [0.0; 4]), (1, 1, one)]).unwrap();
        let other = Bsr::from_block_triplets(2, 2, 2, &[(0, 0, one), (0, 1, one), (1, 1, one)]).unwrap();
        assert_eq!(zero_blocks(&[&a]), [false, true, false]);
        assert_eq!(zero_blocks(&[&a, &other]), [false; 3]);
        let kept = Kept::all_but(&zero_blocks(&[&a]));
        assert_eq!(kept.of(&[&a])[0].values(), [one, one].concat());
    }
}
