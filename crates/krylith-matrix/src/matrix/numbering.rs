//! The order of the unknowns of a square matrix, as far as its pattern shows it.

use super::{Bsr, MAX_BLOCK};

/// Largest number of unknowns of a cell that is looked for.
const MOST: usize = 64;
/// Numbers of cells, and of places in fields, that are looked at. Fewer than the last are too few.
const SAMPLE: [usize; 3] = [64, 200, 16];
/// Largest share of zeros in the blocks of cells, as a share of the entries, at which cells fit whatever
/// couples their unknowns.
const ADDED: f64 = 0.2;
/// Smallest share of couplings between cells that are those of an unknown with its like.
const ALIKE: f64 = 0.95;
/// Smallest share of the other unknowns of its cell to which the best connected unknown couples.
const HUB: f64 = 0.9;
/// Largest share of zeros in the blocks of nodes of k fields, as a multiple of k − 1, which it is without
/// couplings between fields. It is 0.56 for real and imaginary parts that an absorbing layer couples.
const APART: f64 = 0.6;
/// Smallest share of the neighbours of a node that each of its unknowns has.
const SAME: f64 = 0.9;

/// Cells and fields that the pattern of a matrix shows in a sample of its rows.
///
/// # Examples
/// ```
/// use krylith_matrix::matrix::{Bsr, Csr, Numbering};
/// // Two fields of twenty nodes in a row, one after the other; they couple at each node.
/// let mut entries = Vec::new();
/// for (i, f) in (0..20u32).flat_map(|i| [(i, 0), (i, 20)]) {
///     entries.extend((i.saturating_sub(1)..(i + 2).min(20)).map(|j| (f + i, f + j, 1.0)));
///     entries.push((f + i, 20 - f + i, 0.1));
/// }
/// let a = Csr::from_triplets(40, 40, &entries)?;
/// let found = Numbering::of(&Bsr::from_csr(&a, 1)?);
/// assert_eq!((found.fields, found.cells), (Some(2), None));
/// # Ok::<(), krylith::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Numbering {
    /// Number of fields of equal length that follow one another, and whose unknowns at the same place have
    /// the same neighbours: 2 to 8. Looked for in matrices with scalar rows.
    pub fields: Option<usize>,
    /// Number of consecutive unknowns of a cell, above the largest block size and up to 64: blocks of cells
    /// are full, or an unknown of each cell couples with all others there, and cells couple like with like.
    pub cells: Option<usize>,
}

impl Numbering {
    /// Looks at a sample of the rows of a square matrix.
    pub fn of(a: &Bsr) -> Self {
        let (b, n) = (a.block(), a.columns());
        let fits = |k: &usize| n.is_multiple_of(*k) && n / k >= SAMPLE[2];
        let whole = |k: &usize| k.is_multiple_of(b) && fits(k);
        let cells = (MAX_BLOCK + 1..=MOST).filter(whole).find(|k| has_cells(a, *k));
        let tried = (2..=MAX_BLOCK).filter(|k| b == 1 && cells.is_none() && fits(k));
        let apart = |k: usize| Some((k, zeros_of_fields(a, k)? / (k - 1) as f64));
        // Of four fields that couple, pairs couple too.
        let best =
            tried.filter_map(apart).reduce(|best, next| if next.1 <= best.1 + 0.05 { next } else { best });
        Self { fields: best.filter(|(_, zeros)| *zeros <= APART).map(|(k, _)| k), cells }
    }
}

/// Returns the columns of the nonzero entries of a scalar row.
fn columns(a: &Bsr, i: usize) -> impl Iterator<Item = usize> {
    let (b, r) = (a.block(), i % a.block());
    (a.row_ptr()[i / b]..a.row_ptr()[i / b + 1]).flat_map(move |p| {
        let row = &a.block_values(p)[r * b..(r + 1) * b];
        let first = a.col()[p] as usize * b;
        row.iter().enumerate().filter(|(_, v)| **v != 0.0).map(move |(c, _)| first + c)
    })
}

/// Returns about `most` of `count` places.
fn sample(count: usize, most: usize) -> impl Iterator<Item = usize> {
    let most = most.min(count);
    (0..most).map(move |q| q * count / most)
}

/// Returns true if every `k` consecutive unknowns are those of a cell.
fn has_cells(a: &Bsr, k: usize) -> bool {
    let (mut entries, mut blocks, mut between, mut alike) = (0usize, 0usize, 0usize, 0usize);
    let (mut all, mut hubs, mut met) = (0usize, 0usize, Vec::new());
    for cell in sample(a.columns() / k, SAMPLE[0]) {
        met.clear();
        let mut inside = vec![false; k * k];
        for (r, j) in (0..k).flat_map(|r| columns(a, cell * k + r).map(move |j| (r, j))) {
            entries += 1;
            met.push(j / k);
            if j / k == cell {
                inside[r * k + j % k] = true;
                inside[j % k * k + r] = true;
            } else {
                between += 1;
                alike += usize::from(j % k == r);
            }
        }
        met.sort_unstable();
        met.dedup();
        blocks += met.len();
        let others = |r: usize| (0..k).filter(|&c| c != r && inside[r * k + c]).count();
        all += 1;
        hubs += usize::from((0..k).any(|r| others(r) as f64 >= HUB * (k - 1) as f64));
    }
    let full = (blocks * k * k) as f64 <= (1.0 + ADDED) * entries as f64;
    full || alike as f64 >= ALIKE * between as f64 && hubs as f64 >= ALIKE * all as f64
}

/// Returns the share of zeros in the blocks of nodes of `k` fields that follow one another; `None` if the
/// fields of nodes have not the same neighbours.
fn zeros_of_fields(a: &Bsr, k: usize) -> Option<f64> {
    let nodes = a.columns() / k;
    let (mut entries, mut blocks, mut by_row) = (0usize, 0usize, 0usize);
    let (mut met, mut of_row) = (Vec::new(), Vec::new());
    for node in sample(nodes, SAMPLE[1]) {
        met.clear();
        for field in 0..k {
            of_row.clear();
            of_row.extend(columns(a, field * nodes + node).map(|j| j % nodes));
            entries += of_row.len();
            of_row.sort_unstable();
            of_row.dedup();
            by_row += of_row.len();
            met.extend_from_slice(&of_row);
        }
        met.sort_unstable();
        met.dedup();
        blocks += met.len();
    }
    let same = by_row as f64 >= SAME * (blocks * k) as f64;
    (same && entries > 0).then(|| (blocks * k * k) as f64 / entries as f64 - 1.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::matrix::Csr;

    /// Returns cells on a line, each coupled with its neighbours unknown by unknown, and inside by `inside`.
    fn cells(k: u32, cells: u32, inside: impl Fn(u32, u32) -> bool, number: impl Fn(u32, u32) -> u32) -> Bsr {
        let mut entries = Vec::new();
        for i in 0..cells {
            for r in 0..k {
                entries.extend(
                    (0..k).filter(|&c| c == r || inside(r, c)).map(|c| (number(i, r), number(i, c), 1.0)),
                );
                let near = (i.saturating_sub(1)..(i + 2).min(cells)).filter(|&j| j != i);
                entries.extend(near.map(|j| (number(i, r), number(j, r), -0.1)));
            }
        }
        let n = (k * cells) as usize;
        Bsr::from_csr(&Csr::from_triplets(n, n, &entries).unwrap(), 1).unwrap()
    }

    #[test]
    fn cells_and_fields_are_seen_and_lines_of_a_grid_are_not() {
        let found = |fields, cells| Numbering { fields, cells };
        for (k, count) in [(9, 40), (11, 300), (24, 50), (64, 20)] {
            let full = cells(k, count, |_, _| true, |i, r| i * k + r);
            assert_eq!(Numbering::of(&full), found(None, Some(k as usize)), "{k}");
            // A temperature couples with every group.
            let star = cells(k, count, |r, c| r == 0 || c == 0, |i, r| i * k + r);
            assert_eq!(Numbering::of(&star), found(None, Some(k as usize)), "{k}");
            let line = cells(k, count, |r, c| r.abs_diff(c) == 1, |i, r| i * k + r);
            assert_eq!(Numbering::of(&line), found(None, None), "{k}");
        }
        for (k, count) in [(2, 400), (3, 90), (4, 200), (8, 50)] {
            let by_field = cells(k, count, |_, _| true, |i, r| r * count + i);
            assert_eq!(Numbering::of(&by_field), found(Some(k as usize), None), "{k}");
            let apart = cells(k, count, |_, _| false, |i, r| r * count + i);
            assert_eq!(Numbering::of(&apart), found(None, None), "{k}");
            let alternate = cells(k, count, |_, _| true, |i, r| i * k + r);
            assert_eq!(Numbering::of(&alternate).fields, None, "{k}");
        }
        // Elements of ten unknowns in blocks of five.
        let n = 400u32;
        let all = (0..n).flat_map(|i| (0..n).map(move |j| (i, j)));
        let near = all.filter(|(i, j)| (i / 10).abs_diff(j / 10) <= 1).map(|(i, j)| (i, j, 1.0));
        let a = Csr::from_triplets(400, 400, &near.collect::<Vec<_>>()).unwrap();
        assert_eq!(Numbering::of(&Bsr::from_csr(&a, 5).unwrap()), found(None, Some(10)));
        assert_eq!(Numbering::of(&Bsr::from_csr(&a, 1).unwrap()).cells, Some(10));
    }
}
