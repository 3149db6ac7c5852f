//! Systems without a grid or coordinates: a tetrahedral mesh with holes and a graph whose degrees follow a
//! power law, both numbered at random, and the plane. They depend only on a seed, not on the number of
//! threads.

use crate::systems::{OFFSETS, Random};
use krylith_core::matrix::Bsr;
use krylith_core::{Error, Result};
use std::ops::Range;

/// Share of the mesh's nodes that are removed.
const HOLES: f64 = 0.05;
/// Edges that each node of the power-law graph draws.
const DRAWN: usize = 8;
/// Addition to every diagonal entry, relative to the largest addition by an edge.
const SHIFT: f64 = 0.01;

/// Splits 0..n into one range per thread.
fn runs(n: usize) -> Vec<Range<usize>> {
    let threads = std::thread::available_parallelism().map_or(1, |p| p.get()).min(n.max(1));
    (0..threads).map(|t| n * t / threads..n * (t + 1) / threads).collect()
}

/// Returns a pseudo-random word from some words: splitmix64 over each.
fn hash(words: &[u64]) -> u64 {
    words.iter().fold(0x9E37_79B9_7F4A_7C15, |state, word| {
        let mut z = (state ^ word).wrapping_add(0x9E37_79B9_7F4A_7C15);
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    })
}

/// Maps a word to a number in [0, 1).
fn unit(word: u64) -> f64 {
    (word >> 11) as f64 / (1u64 << 53) as f64
}

/// Returns 0..n in random order.
fn shuffled(n: usize, seed: u64) -> Vec<u32> {
    let (mut all, mut random): (Vec<u32>, _) = ((0..n as u32).collect(), Random(seed));
    for i in (1..n).rev() {
        let j = ((random.next() + 0.5) * (i + 1) as f64) as usize;
        all.swap(i, j.min(i));
    }
    all
}

/// Diffusion of `block` coupled components on a grid of cubes split into six tetrahedra each. A twentieth of
/// the nodes is removed, and the others are numbered at random. An edge of weight w couples its ends by −w
/// (I + C) with small random C. The diagonal block holds slightly more than the sum of its row's weights, so
/// that the matrix is definite and not symmetric.
pub(super) fn tetrahedra(nodes: [usize; 3], block: usize, seed: u64) -> Result<Bsr> {
    let [nx, ny, nz] = nodes;
    let all = nx * ny * nz;
    if all >= u32::MAX as usize {
        return Err(Error::invalid(format!("a mesh of {all} nodes; columns are 32-bit")));
    }
    // Old number of each new node, and new number of each old one.
    let kept: Vec<u32> =
        shuffled(all, seed).into_iter().filter(|&i| unit(hash(&[seed, 1, i.into()])) >= HOLES).collect();
    let mut number = vec![u32::MAX; all];
    kept.iter().enumerate().for_each(|(new, &old)| number[old as usize] = new as u32);
    let neighbours = |old: usize, row: &mut Vec<(u32, u32)>| {
        let at = [old % nx, old / nx % ny, old / (nx * ny)];
        row.clear();
        for o in OFFSETS {
            let to: [Option<usize>; 3] =
                std::array::from_fn(|d| at[d].checked_add_signed(o[d]).filter(|&x| x < nodes[d]));
            if let [Some(x), Some(y), Some(z)] = to {
                let other = x + nx * (y + ny * z);
                if number[other] != u32::MAX {
                    row.push((number[other], other as u32));
                }
            }
        }
        row.sort_unstable();
    };
    let bb = block * block;
    let fill = |run: Range<usize>| {
        let (mut lengths, mut col, mut values) = (Vec::with_capacity(run.len()), Vec::new(), Vec::new());
        let mut row = Vec::new();
        for new in run {
            let old = kept[new];
            neighbours(old as usize, &mut row);
            lengths.push(row.len());
            let (from, mut sum, mut diagonal) = (values.len(), 0.0, 0);
            for (place, &(column, other)) in row.iter().enumerate() {
                col.push(column);
                if other == old {
                    diagonal = from + place * bb;
                    values.extend(std::iter::repeat_n(0.0, bb));
                    continue;
                }
                let edge = [seed, old.min(other).into(), old.max(other).into()];
                let weight = 0.5 + unit(hash(&edge));
                sum += weight;
                for e in 0..bb {
                    let coupling = 0.2 * (unit(hash(&[seed, old.into(), other.into(), e as u64])) - 0.5);
                    let identity = if e % (block + 1) == 0 { 1.0 } else { 0.0 };
                    values.push(-weight * (identity + coupling / block as f64));
                }
            }
            for c in 0..block {
                values[diagonal + c * (block + 1)] = 1.1 * sum + SHIFT;
            }
        }
        (lengths, col, values)
    };
    join(block, kept.len(), &fill)
}

/// The Laplacian of a graph with a slightly larger diagonal: symmetric and definite. Node i draws eight other
/// nodes, low numbers more often. Degrees follow a power law with exponent 2.5; the largest is near 8
/// n^(2/3). Nodes are numbered at random.
pub(super) fn power_law(n: usize, seed: u64) -> Result<Bsr> {
    if n == 0 || n >= u32::MAX as usize {
        return Err(Error::invalid(format!("a graph of {n} nodes; columns are 32-bit")));
    }
    let number = shuffled(n, seed);
    let drawn = |i: usize, k: usize| {
        let u = unit(hash(&[seed, i as u64, k as u64]));
        ((u * u * u * n as f64) as usize).min(n - 1)
    };
    let edges = || {
        (0..n).flat_map(|i| (0..DRAWN).map(move |k| (i, k))).filter_map(|(i, k)| {
            let j = drawn(i, k);
            (i != j).then(|| (number[i], number[j]))
        })
    };
    // Both directions of every edge, sorted by row by counting.
    let mut start = vec![0usize; n + 1];
    edges().for_each(|(i, j)| [i, j].into_iter().for_each(|i| start[i as usize + 1] += 1));
    (0..n).for_each(|i| start[i + 1] += start[i]);
    let (mut next, mut other) = (start.clone(), vec![0u32; start[n]]);
    for (i, j) in edges() {
        for (i, j) in [(i, j), (j, i)] {
            other[next[i as usize]] = j;
            next[i as usize] += 1;
        }
    }
    let fill = |run: Range<usize>| {
        let (mut lengths, mut col, mut values) = (Vec::with_capacity(run.len()), Vec::new(), Vec::new());
        let mut row: Vec<u32> = Vec::new();
        for i in run {
            row.clear();
            row.extend_from_slice(&other[start[i]..start[i + 1]]);
            row.push(i as u32);
            row.sort_unstable();
            row.dedup();
            lengths.push(row.len());
            let from = values.len();
            let (mut sum, mut diagonal) = (0.0, from);
            for (place, &j) in row.iter().enumerate() {
                col.push(j);
                if j as usize == i {
                    diagonal = from + place;
                    values.push(0.0);
                    continue;
                }
                let weight = 0.5 + unit(hash(&[seed, i.min(j as usize) as u64, i.max(j as usize) as u64]));
                sum += weight;
                values.push(-weight);
            }
            values[diagonal] = sum + SHIFT * (sum + 1.0);
        }
        (lengths, col, values)
    };
    join(1, n, &fill)
}

/// The five-point matrix of Poisson's equation on n² nodes: 4, and −1 for each neighbour.
pub(super) fn plane(n: usize) -> Result<Bsr> {
    if n * n >= u32::MAX as usize {
        return Err(Error::invalid(format!("a plane of {n}² nodes; columns are 32-bit")));
    }
    let fill = |run: Range<usize>| {
        let (mut lengths, mut col, mut values) = (Vec::with_capacity(run.len()), Vec::new(), Vec::new());
        for i in run {
            let (x, y, from) = (i % n, i / n, col.len());
            let near = [(y > 0, i.wrapping_sub(n)), (x > 0, i.wrapping_sub(1)), (true, i)];
            let far = [(x + 1 < n, i + 1), (y + 1 < n, i + n)];
            for (_, j) in near.into_iter().chain(far).filter(|(there, _)| *there) {
                col.push(j as u32);
                values.push(if i == j { 4.0 } else { -1.0 });
            }
            lengths.push(col.len() - from);
        }
        (lengths, col, values)
    };
    join(1, n * n, &fill)
}

/// Row lengths, columns and values of a range of rows.
type Rows = (Vec<usize>, Vec<u32>, Vec<f64>);

/// Joins the rows that `fill` makes for each range, computed on all threads.
fn join(block: usize, n: usize, fill: &(dyn Fn(Range<usize>) -> Rows + Sync)) -> Result<Bsr> {
    let parts: Vec<Rows> = std::thread::scope(|scope| {
        let threads: Vec<_> = runs(n).into_iter().map(|run| scope.spawn(move || fill(run))).collect();
        threads.into_iter().map(|t| t.join().expect("rows of a graph")).collect()
    });
    let blocks = parts.iter().map(|part| part.1.len()).sum();
    let (mut row_ptr, mut col) = (Vec::with_capacity(n + 1), Vec::with_capacity(blocks));
    let mut values = Vec::with_capacity(blocks * block * block);
    row_ptr.push(0);
    let mut end = 0;
    for (lengths, columns, numbers) in parts {
        row_ptr.extend(lengths.into_iter().map(|length| {
            end += length;
            end
        }));
        col.extend(columns);
        values.extend(numbers);
    }
    Bsr::new(block, n, n, row_ptr, col, values)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::answer::system::symmetric;

    #[test]
    fn tetrahedra_have_fifteen_blocks_a_row_and_holes() {
        let a = tetrahedra([12, 11, 10], 4, 5).unwrap();
        let n = a.block_rows();
        assert!((0.92..0.98).contains(&(n as f64 / 1320.0)), "{n}");
        let longest = (0..n).map(|i| a.row_ptr()[i + 1] - a.row_ptr()[i]).max();
        assert_eq!(longest, Some(15));
        // The numbering is random, so neighbours are far from each other.
        let far = (0..n).flat_map(|i| (a.row_ptr()[i]..a.row_ptr()[i + 1]).map(move |p| (i, p)));
        let far = far.filter(|&(i, p)| i.abs_diff(a.col()[p] as usize) > n / 10).count();
        assert!(far as f64 > 0.6 * a.blocks() as f64, "{far} of {}", a.blocks());
        assert!(!symmetric(&a));
        for i in 0..a.block_rows() {
            assert!(a.diagonal_block(i).unwrap()[5] > 0.0, "{i}");
        }
    }

    #[test]
    fn the_power_law_graph_has_hubs_and_is_symmetric() {
        let a = power_law(5000, 3).unwrap();
        assert!(symmetric(&a));
        let mut lengths: Vec<usize> = a.row_ptr().windows(2).map(|w| w[1] - w[0]).collect();
        lengths.sort_unstable();
        let (median, largest) = (lengths[2500], lengths[4999]);
        assert!((10..20).contains(&median) && largest > 1000, "{median} {largest}");
        let again = power_law(5000, 3).unwrap();
        assert_eq!((a.col(), a.values()), (again.col(), again.values()));
    }
}
