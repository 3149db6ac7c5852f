//! Grouping of scalar rows into blocks: detection of the block size from the pattern of all ranks, and the
//! blocks of one rank.

use super::{ScalarRows, whole_numbers};
use crate::comm::{Communicator, Solo, agree, gather};
use crate::matrix::{Arrays, Bsr, Csr, Grouping, MAX_BLOCK};
use crate::operator::{fold_rows, with_block};
use crate::partition::{RowBlocks, Rows};
use crate::{Error, Result};
use rayon::prelude::*;
use std::ops::Range;

/// Stored zeros that a block size may add, as a share of the entries. The first limit holds in general. The
/// second holds if the rows of a node have the same neighbours, so that a block couples two nodes. A block
/// then takes no more bytes than its entries with their columns, and its factors are simpler. Measured on one
/// core, for collocated Oseen systems of four fields and 7,000 to 55,000 unknowns: set-up of ILDU(0) is 1.4
/// to 4 times as fast, and iterations of BiCGSTAB 1.0 to 1.6 times. The third limit holds if the unknowns of
/// most nodes are coupled as well. For ions in an electric field (100,000 unknowns, 111 % added) BiCGSTAB
/// with ILDU(0) then takes 7 iterations in 0.18 s, and with scalar rows 12 in 0.45 s. For stabilised Stokes
/// flow (37,000 unknowns, 80 %) it is 39 in 0.25 s and 46 in 0.36 s. With 290 to 370 %, blocks take 1.3 to
/// 1.5 times as long, and with blocks of 2 for six species (80 %) 1.2 times.
const FILL: [f64; 3] = [0.2, 0.75, 1.25];
/// Fewer nodes than this are too few to compare neighbours.
const NODES: usize = 16;
/// Rows of a node count as having the same neighbours if each has at least this share of their union.
const SAME: f64 = 0.95;

/// A detected block size for scalar rows.
///
/// # Examples
/// ```
/// use krylith::matrix::Csr;
/// use krylith_core::io::parts::suited_block;
/// // Two nodes of two unknowns that are coupled within each node only.
/// let entries = [(0, 0), (0, 1), (1, 0), (1, 1), (2, 2), (2, 3), (3, 2), (3, 3)].map(|(i, j)| (i, j, 1.0));
/// let found = suited_block(&Csr::from_triplets(4, 4, &entries)?);
/// assert_eq!((found.block, found.added), (2, 0.0)); // blocks of 2 store no zero
/// # Ok::<(), krylith::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SuitedBlock {
    /// The block size; 1 if no larger one suits.
    pub block: usize,
    /// Added zeros as a share of the stored entries.
    pub added: f64,
    /// Size of groups of rows with the same neighbours that are not used as blocks; 1 if there are none. Such
    /// blocks would add too many zeros, or a diagonal entry is zero, which only scalar rows can handle.
    /// Fields that do not couple are no groups.
    pub alike: usize,
    /// Added zeros of the size from 2 on that adds least, as a share of the stored entries, or a lower bound;
    /// `None` if no such size divides the rows.
    pub least: Option<f64>,
}

impl SuitedBlock {
    /// Returns the largest share of added zeros at which such blocks are used.
    pub fn limit(&self) -> f64 {
        FILL.into_iter().find(|limit| self.block == 1 || self.added <= *limit).unwrap_or(FILL[2])
    }
}

/// Detects a block size: the largest up to [`MAX_BLOCK`] that adds at most 20 % stored zeros. Otherwise, one
/// whose rows have the same neighbours by nonzero entries, and that adds at most 75 %, or 125 % if the
/// unknowns of most groups are coupled.
///
/// ```
/// use krylith::matrix::Csr;
/// use krylith_core::io::parts::suited_block;
/// // Two fields at twenty nodes in a row: each couples with itself, and the second with the first.
/// let mut entries = Vec::new();
/// for i in 0..20u32 {
///     for j in i.saturating_sub(1)..(i + 2).min(20) {
///         entries.extend([(2 * i, 2 * j, 1.0), (2 * i + 1, 2 * j, 1.0), (2 * i + 1, 2 * j + 1, 1.0)]);
///     }
/// }
/// let found = suited_block(&Csr::from_triplets(40, 40, &entries)?);
/// assert_eq!((found.block, found.alike), (2, 1));
/// assert!((found.added - 1.0 / 3.0).abs() < 1e-12);
/// # Ok::<(), krylith::Error>(())
/// ```
pub fn suited_block(a: &Csr) -> SuitedBlock {
    let found = suited(&Solo, a, 0, a.rows(), a.rows());
    found.expect("a single rank cannot fail")
}

/// Detects the block size of a matrix that is only on a device, without a copy to the host: the largest that
/// adds at most 20 % stored zeros, or 1. The first rows decide for most sizes.
///
/// # Errors
/// A device that failed.
pub(crate) fn suited_block_on_device(a: &Csr) -> Result<usize> {
    /// Number of rows that are looked at first: a multiple of every block size.
    const SAMPLE: usize = 840;
    /// Largest number of entries of these rows. With longer rows, such as those of hubs, there are fewer.
    const MOST: usize = 1 << 14;
    let Some(first) = a.storage().first_rows(a.rows().min(SAMPLE), MOST)? else { return Ok(1) };
    let sample = first.row_ptr.len() - 1;
    let fits = |blocks: usize, block: usize, entries: usize| {
        (blocks * block * block) as f64 <= (1.0 + FILL[0]) * entries as f64
    };
    let mut columns = Vec::new();
    for block in (2..=MAX_BLOCK).rev().filter(|&block| a.rows().is_multiple_of(block)) {
        let (mut blocks, mut entries) = (0, 0);
        for rows in first.row_ptr[..=sample].windows(block + 1).step_by(block) {
            entries = rows[block];
            columns.clear();
            columns.extend(first.col[rows[0]..rows[block]].iter().map(|j| j / block as u32));
            columns.sort_unstable();
            columns.dedup();
            blocks += columns.len();
        }
        if entries > 0 && fits(blocks, block, entries) {
            let whole = sample == a.rows() && entries == first.row_ptr[sample];
            let all = if whole { Some(blocks) } else { a.storage().count_blocks(block)? };
            if all.is_some_and(|blocks| fits(blocks, block, a.nonzeros())) {
                return Ok(block);
            }
        }
    }
    Ok(1)
}

/// Detects the block size for the rows of all ranks. This rank's rows start at `first`; each rank's rows
/// start and end at a multiple of every size that divides `common`. Collective.
pub(super) fn suited(
    comm: &dyn Communicator,
    a: &Csr,
    first: usize,
    rows: usize,
    common: usize,
) -> Result<SuitedBlock> {
    let sums = |n: [usize; 2]| {
        let all = whole_numbers(comm, &n)?;
        Ok::<_, crate::Error>([0, 1].map(|k| all.iter().map(|n| n[k]).sum::<usize>()))
    };
    let [stored, _] = sums([a.nonzeros(), 0])?;
    let (mut alike, mut scalar) = (None, SuitedBlock { block: 1, added: 0.0, alike: 1, least: None });
    for block in (2..=MAX_BLOCK).rev() {
        if common.is_multiple_of(block) && a.columns().is_multiple_of(block) {
            let added = |blocks: usize| (blocks * block * block) as f64 / stored as f64 - 1.0;
            // For most sizes, one row of each node already shows that they add too much.
            let [bound, _] = sums([touched_by_one_row(a, block), 0])?;
            let least =
                |known: Option<f64>, blocks| Some(known.map_or(added(blocks), |k| k.min(added(blocks))));
            if added(bound) > FILL[2] {
                scalar.least = least(scalar.least, bound);
                continue;
            }
            let [blocks, _] = sums(touched(a, block, |_| true))?;
            scalar.least = least(scalar.least, blocks);
            if added(blocks) <= FILL[0] {
                return Ok(SuitedBlock { block, added: added(blocks), ..scalar });
            }
            if alike.is_some() || added(blocks) > FILL[2] || rows / block < NODES {
                continue;
            }
            let same = |block: usize| {
                let [known, by_row] = sums(touched(a, block, |v| v != 0.0))?;
                Ok::<_, crate::Error>(by_row as f64 >= SAME * (known * block) as f64)
            };
            let mut fits = same(block)?;
            if fits && added(blocks) > FILL[1] {
                let [coupled, all] = sums(coupled_nodes(a, block, first))?;
                fits = 2 * coupled >= all;
                // Half or a third of a node is not worth so many zeros.
                for node in (2 * block..=MAX_BLOCK).step_by(block) {
                    let divides = common.is_multiple_of(node) && a.columns().is_multiple_of(node);
                    fits = fits && !(divides && same(node)?);
                }
            }
            if fits {
                alike = Some((block, added(blocks)));
            }
        }
    }
    let Some((block, added)) = alike else { return Ok(scalar) };
    let zero = |i: &usize| {
        let (col, values) = a.row(*i);
        !col.iter().zip(values).any(|(&j, &v)| j as usize == first + i && v != 0.0)
    };
    let holes = (0..a.rows()).into_par_iter().with_min_len(ROWS).filter(zero).count();
    let [holes, _] = sums([holes, 0])?;
    Ok(match added <= FILL[2] && holes == 0 {
        true => SuitedBlock { block, added, ..scalar },
        false => SuitedBlock { alike: block, ..scalar },
    })
}

/// Groups this rank's run of rows of a scalar matrix, with global columns, into block rows. Also returns the
/// positions of its entries in the blocks, if blocks are larger than 1×1. Collective.
pub(crate) fn run_of_rows(
    comm: &dyn Communicator,
    own: &Csr,
    block: Option<usize>,
) -> Result<(Rows, Option<Grouping>)> {
    // 0 stands for a block size to be detected.
    let mine = [own.rows(), block.map_or(0, |b| b.max(1))].map(|n| (n as u64).to_le_bytes()).concat();
    let told: Vec<[usize; 2]> = gather(comm, &mine)?
        .iter()
        .map(|bytes| {
            let mut words = bytes.as_chunks().0.iter().map(|word| u64::from_le_bytes(*word) as usize);
            [words.next().unwrap_or(0), words.next().unwrap_or(0)]
        })
        .collect();
    let counts: Vec<usize> = told.iter().map(|[rows, _]| *rows).collect();
    let (all, first) = (counts.iter().sum::<usize>(), counts[..comm.rank()].iter().sum::<usize>());
    let common = counts.iter().fold(0, |a, &b| common_divisor(a, b));
    let checked = match block {
        _ if own.columns() != all => Err(Error::invalid(format!(
            "the rows of rank {} have {} columns, but all ranks together have {all} rows; a system needs as \
             many columns as rows",
            comm.rank(),
            own.columns()
        ))),
        _ if told.iter().any(|[_, b]| *b != told[0][1]) => Err(Error::invalid(
            "the ranks give different block sizes; give the same block size on every rank",
        )),
        Some(b) if b == 0 || b > MAX_BLOCK => {
            Err(Error::invalid(format!("block sizes are 1 to {MAX_BLOCK}, not {b}")))
        }
        Some(b) if !common.is_multiple_of(b) => Err(Error::invalid(format!(
            "the block size is {b}, but the number of rows of some rank is not a multiple of it; give whole \
             blocks to every rank"
        ))),
        _ => Ok(()),
    };
    agree(comm, checked)?;
    let block = match block {
        Some(block) => block,
        None => suited(comm, own, first, all, common)?.block,
    };
    if block == 1 {
        let local: Vec<u64> = (0..own.rows() as u64).collect();
        return Ok((Rows::run(first, 1, own.rows(), RowBlocks::of_rows(own, &local)), None));
    }
    let rows = blocks(ScalarRows { rows: all, first, matrix: own.clone() }, block);
    let columns = rows.col.iter().map(|&j| j as u32).collect(); // of a matrix whose columns have 32 bits
    let stored =
        Bsr::new(block, own.rows() / block, all / block, rows.row_ptr.clone(), columns, rows.values.clone());
    let grouping = agree(comm, stored.and_then(|stored| Grouping::new(own, &stored)))?;
    Ok((Rows::run(first / block, block, own.rows() / block, rows), Some(grouping)))
}

fn common_divisor(a: usize, b: usize) -> usize {
    if b == 0 { a } else { common_divisor(b, a % b) }
}

/// Minimum number of rows per thread.
const ROWS: usize = 1 << 12;

/// Counts the b×b blocks with an entry for whose value `counts` returns true. Also sums, over the scalar
/// rows, the number of blocks in which each row has such an entry.
fn touched(a: &Csr, b: usize, counts: impl Fn(f64) -> bool + Sync) -> [usize; 2] {
    let (a, nodes, columns) = (Arrays::of_csr(a), a.rows() / b, a.columns() / b);
    // One chunk per thread. Each stores, per block column, the last node (from 1) with a block in it.
    let pieces = (nodes * b).div_ceil(ROWS).clamp(1, rayon::current_num_threads());
    let of_piece = |piece: usize| {
        let mut seen = vec![0u32; columns];
        let of = nodes * piece / pieces..nodes * (piece + 1) / pieces;
        with_block!(b, touched_by_nodes, a, of, &mut seen, &counts)
    };
    let add = |a: [usize; 2], b: [usize; 2]| [a[0] + b[0], a[1] + b[1]];
    match pieces {
        1 => of_piece(0),
        _ => (0..pieces).into_par_iter().map(of_piece).reduce(|| [0; 2], add),
    }
}

/// Counts the blocks in which the first row of each block row has an entry: a lower bound on the number of
/// blocks.
fn touched_by_one_row(a: &Csr, b: usize) -> usize {
    let (a, nodes) = (Arrays::of_csr(a), a.rows() / b);
    let of_node = |node: usize| with_block!(b, touched_by_row, a, node * b);
    fold_rows(nodes, || 0, |sum, node| *sum += of_node(node), |a, b| a + b)
}

/// Computes [`touched`] for a range of nodes.
#[inline(always)]
fn touched_by_nodes(
    b: usize,
    a: Arrays,
    nodes: Range<usize>,
    seen: &mut [u32],
    counts: &impl Fn(f64) -> bool,
) -> [usize; 2] {
    let (mut blocks, mut by_row) = (0, 0);
    for node in nodes {
        let this = node as u32 + 1;
        for row in node * b..(node + 1) * b {
            let mut last = u32::MAX;
            for (&j, &v) in a.col[a.row(row)].iter().zip(&a.values[a.row(row)]) {
                let j = if counts(v) { j / b as u32 } else { last };
                if j != last {
                    by_row += 1;
                    blocks += usize::from(std::mem::replace(&mut seen[j as usize], this) != this);
                }
                last = j;
            }
        }
    }
    [blocks, by_row]
}

/// Counts the block columns in which a scalar row has an entry.
#[inline(always)]
fn touched_by_row(b: usize, a: Arrays, row: usize) -> usize {
    let columns = a.col[a.row(row)].iter().map(|j| j / b as u32);
    let new = |last: &mut u32, j: u32| Some(usize::from(std::mem::replace(last, j) != j));
    columns.scan(u32::MAX, new).sum()
}

/// Counts the nodes whose unknowns are all coupled within the node, by nonzero entries in either direction,
/// and all nodes. `first` is the number of the first row.
fn coupled_nodes(a: &Csr, b: usize, first: usize) -> [usize; 2] {
    let is_coupled = |node: usize| {
        let own = first + node * b..first + (node + 1) * b;
        let mut near = [0u32; MAX_BLOCK];
        for r in 0..b {
            let (col, values) = a.row(node * b + r);
            let inside = col.iter().zip(values).filter(|(j, v)| **v != 0.0 && own.contains(&(**j as usize)));
            for c in inside.map(|(&j, _)| j as usize - own.start) {
                near[r] |= 1 << c;
                near[c] |= 1 << r;
            }
        }
        let mut seen = 1u32;
        for _ in 1..b {
            seen |= (0..b).filter(|r| seen & 1 << r != 0).fold(0, |all, r| all | near[r]);
        }
        seen == (1 << b) - 1
    };
    let nodes = a.rows() / b;
    [(0..nodes).into_par_iter().with_min_len(ROWS).filter(|&node| is_coupled(node)).count(), nodes]
}

/// Lists the block columns of block row `i` in ascending order.
fn block_columns(a: &Csr, b: usize, i: usize, columns: &mut Vec<u32>) {
    columns.clear();
    for row in i * b..(i + 1) * b {
        columns.extend(a.row(row).0.iter().map(|&j| j / b as u32));
    }
    columns.sort_unstable();
    columns.dedup();
}

/// Groups own rows into b×b blocks; entries that are absent become stored zeros.
pub(super) fn blocks(own: ScalarRows, b: usize) -> RowBlocks {
    let a = own.matrix;
    let mut out = RowBlocks { row_ptr: vec![0], ..Default::default() };
    let mut columns = Vec::new();
    for i in 0..a.rows() / b {
        block_columns(&a, b, i, &mut columns);
        let begin = out.values.len();
        out.values.resize(begin + columns.len() * b * b, 0.0);
        for r in 0..b {
            let (col, values) = a.row(i * b + r);
            let mut at = 0;
            for (&j, &v) in col.iter().zip(values) {
                while columns[at] < j / b as u32 {
                    at += 1;
                }
                out.values[begin + at * b * b + r * b + j as usize % b] = v;
            }
        }
        out.col.extend(columns.iter().map(|&j| u64::from(j)));
        out.row_ptr.push(out.col.len());
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

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
        assert_eq!(suited_block(&a), SuitedBlock { block: 3, added: 0.0, alike: 1, least: Some(0.0) });
        assert_eq!(suited_block(&a).limit(), 0.2);
        let diagonal: Vec<_> = (0..12).map(|i| (i, i, 1.0)).collect();
        let scalar = SuitedBlock { block: 1, added: 0.0, alike: 1, least: Some(1.0) };
        assert_eq!(suited_block(&Csr::from_triplets(12, 12, &diagonal).unwrap()), scalar);
    }

    #[test]
    fn blocks_are_counted() {
        let number = |i: u64| crate::space::splitmix64(5, i);
        for (n, b) in [(24, 2), (24, 3), (24, 8), (9000, 6), (9002, 7), (2 * ROWS + 2, 2)] {
            let entry = |k: u64| ((number(3 * k) % n as u64) as u32, (number(3 * k + 1) % n as u64) as u32);
            let value = |k: u64| if number(3 * k + 2).is_multiple_of(3) { 0.0 } else { 1.0 };
            let entries: Vec<_> = (0..4 * n as u64).map(|k| (entry(k).0, entry(k).1, value(k))).collect();
            let a = Csr::from_triplets(n, n, &entries).unwrap();
            for zeros in [true, false] {
                let (mut blocks, mut of_rows) = (HashSet::new(), HashSet::new());
                for i in 0..n {
                    for (&j, _) in a.row(i).0.iter().zip(a.row(i).1).filter(|(_, v)| zeros || **v != 0.0) {
                        blocks.insert((i / b, j as usize / b));
                        of_rows.insert((i, j as usize / b));
                    }
                }
                let found = touched(&a, b, |v| zeros || v != 0.0);
                assert_eq!(found, [blocks.len(), of_rows.len()], "{n} {b} {zeros}");
                let first = of_rows.iter().filter(|(i, _)| i % b == 0).count();
                assert!(!zeros || touched_by_one_row(&a, b) == first, "{n} {b}");
            }
        }
    }

    /// Velocities that couple with themselves and the pressure, and a pressure that couples with all, on a
    /// grid.
    fn oseen([nx, ny]: [usize; 2], stabilised: bool) -> Csr {
        let mut entries = Vec::new();
        let node = |x: usize, y: usize| (4 * (y * nx + x)) as u32;
        for (y, x) in (0..ny).flat_map(|y| (0..nx).map(move |x| (y, x))) {
            let around = [(x, y), (x.wrapping_sub(1), y), (x + 1, y), (x, y.wrapping_sub(1)), (x, y + 1)];
            for &(p, q) in around.iter().filter(|at| at.0 < nx && at.1 < ny) {
                let (i, j) = (node(x, y), node(p, q));
                for f in 0..3 {
                    entries.extend([(i + f, j + f, 1.0), (i + f, j + 3, 0.1), (i + 3, j + f, 0.1)]);
                }
                // A stored zero does not count.
                entries.push((i + 3, j + 3, if stabilised { 1.0 } else { 0.0 }));
            }
        }
        Csr::from_triplets(4 * nx * ny, 4 * nx * ny, &entries).unwrap()
    }

    #[test]
    fn fields_of_a_node_are_seen_by_their_neighbours() {
        let found = suited_block(&oseen([12, 10], true));
        assert_eq!((found.block, found.alike, found.limit()), (4, 1, 0.75));
        assert!((0.2..0.75).contains(&found.added), "{found:?}");
        // Species that couple with a potential only, and a potential, and species that do not couple.
        let species = |coupled: bool| {
            let mut entries = Vec::new();
            for i in 0..60u32 {
                for j in i.saturating_sub(1)..(i + 2).min(60) {
                    entries.extend((0..3).map(|f| (3 * i + f, 3 * j + f, 1.0)));
                    entries.extend(coupled.then_some((3 * i, 3 * j + 2, 0.1)));
                }
                entries.extend(coupled.then_some((3 * i + 1, 3 * i + 2, 0.1)));
            }
            Csr::from_triplets(180, 180, &entries).unwrap()
        };
        let found = suited_block(&species(true));
        assert_eq!((found.block, found.alike), (3, 1));
        assert!((0.75..1.25).contains(&found.added), "{found:?}");
        let found = suited_block(&species(false));
        assert_eq!((found.block, found.alike), (1, 1));
        // Four reacting species: pairs would be half of a node.
        let mut four = Vec::new();
        for i in 0..60u32 {
            four.extend((0..16).map(|e| (4 * i + e / 4, 4 * i + e % 4, 1.0)));
            for j in (i.saturating_sub(8)..(i + 9).min(60)).filter(|&j| j != i) {
                four.extend((0..4).map(|f| (4 * i + f, 4 * j + f, 1.0)));
            }
        }
        let found = suited_block(&Csr::from_triplets(240, 240, &four).unwrap());
        assert_eq!(found.block, 1, "{found:?}");
        // A pressure without a diagonal entry is handled with scalar rows.
        let found = suited_block(&oseen([12, 10], false));
        assert_eq!((found.block, found.alike), (1, 4));
        // Neighbours on a line share most of their neighbours, but do not form a node.
        let (n, mut grid) = (24u32, Vec::new());
        for (y, x) in (0..n).flat_map(|y| (0..n).map(move |x| (y, x))) {
            let around = [(x, y), (x.wrapping_sub(1), y), (x + 1, y), (x, y.wrapping_sub(1)), (x, y + 1)];
            let inside = around.iter().filter(|at| at.0 < n && at.1 < n);
            grid.extend(inside.map(|(p, q)| (y * n + x, q * n + p, 1.0)));
        }
        let found = suited_block(&Csr::from_triplets(576, 576, &grid).unwrap());
        assert_eq!((found.block, found.alike), (1, 1));
    }
}
