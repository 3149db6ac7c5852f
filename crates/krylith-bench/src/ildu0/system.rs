//! A matrix with its rows grouped by subdomain and without entries that couple subdomains: the input of every
//! baseline. Algorithms are those of the paper that `ildu0/mod.rs` names.

use krylith_core::matrix::Bsr;
use krylith_core::{Error, Result};
use std::ops::Range;

/// A square point-block matrix in which every entry lies within a subdomain.
///
/// Row i here is row `rows[i]` of the given matrix; subdomain p holds the rows `ptr[p]..ptr[p + 1]`. Columns
/// are numbered like rows and ascend within a row, and every row has its diagonal.
pub(crate) struct SubdomainSystem {
    pub a: Bsr,
    pub ptr: Vec<usize>,
    pub rows: Vec<u32>,
    /// Number of stored blocks of the given matrix that couple subdomains and were dropped.
    pub dropped: usize,
}

impl SubdomainSystem {
    /// Uses the whole matrix as one subdomain, in its own order.
    ///
    /// # Errors
    /// Returns the errors of [`decompose`](Self::decompose).
    pub fn whole(a: &Bsr) -> Result<Self> {
        let n = a.block_rows();
        if a.block_columns() != n {
            return Err(not_square());
        }
        match (0..n).find(|&i| a.diagonal_position(i).is_none()) {
            // A copy shares the arrays.
            None => Ok(Self { a: a.clone(), ptr: vec![0, n], rows: (0..n as u32).collect(), dropped: 0 }),
            Some(row) => Err(no_diagonal(row)),
        }
    }

    /// Groups rows by label (Alg. 3.2) and drops entries between groups (§3.2). Rows of a group keep their
    /// order.
    ///
    /// # Errors
    /// Returns an error unless every row has a label below `count`, the matrix is square and every row has a
    /// diagonal.
    pub fn decompose(a: &Bsr, labels: &[u32], count: usize) -> Result<Self> {
        let (order, ptr) = group(labels, count, a.block_rows())?;
        Self::gather(a, order, ptr, Some(labels))
    }

    /// Reorders the rows within each subdomain to `rows[ptr[p]..ptr[p + 1]]`; each subdomain keeps its set of
    /// rows. The order of subdomains may change, too.
    ///
    /// # Errors
    /// Returns an error if the rows are grouped differently from here.
    pub fn regrouped(&self, a: &Bsr, rows: &[u32], ptr: &[usize]) -> Result<Self> {
        let n = self.block_rows();
        let other = || Error::invalid("rows are grouped differently from the case's subdomains");
        let mut label = vec![u32::MAX; n];
        for p in 0..self.count() {
            self.rows[self.ptr[p]..self.ptr[p + 1]].iter().for_each(|&row| label[row as usize] = p as u32);
        }
        if rows.len() != n || ptr.len() != self.ptr.len() || ptr.first() != Some(&0) || ptr.last() != Some(&n)
        {
            return Err(other());
        }
        let mut seen = vec![false; n];
        for group in ptr.windows(2) {
            let group = rows.get(group[0]..group[1]).ok_or_else(other)?;
            let first = group.first().and_then(|&row| label.get(row as usize)).ok_or_else(other)?;
            for &row in group {
                if label.get(row as usize) != Some(first) || std::mem::replace(&mut seen[row as usize], true)
                {
                    return Err(other());
                }
            }
        }
        Self::gather(a, rows.to_vec(), ptr.to_vec(), Some(&label))
    }

    /// Returns the whole matrix with rows and columns in this system's order, without dropping.
    ///
    /// # Errors
    /// Returns an error if the size differs from the system's.
    pub fn reordered(&self, a: &Bsr) -> Result<Bsr> {
        let n = a.block_rows();
        Ok(Self::gather(a, self.rows.clone(), vec![0, n], None)?.a)
    }

    fn gather(a: &Bsr, rows: Vec<u32>, ptr: Vec<usize>, labels: Option<&[u32]>) -> Result<Self> {
        let (n, b) = (a.block_rows(), a.block());
        if a.block_columns() != n || rows.len() != n {
            return Err(not_square());
        }
        let mut new = vec![0u32; n];
        for (i, &row) in rows.iter().enumerate() {
            new[row as usize] = i as u32;
        }
        // The rows of a share: the numbers of their entries, columns and values.
        type Part = (Vec<usize>, Vec<u32>, Vec<f64>);
        let part = |share: Range<usize>| -> Result<Part> {
            let (mut counts, mut columns, mut values) =
                (Vec::with_capacity(share.len()), Vec::new(), Vec::new());
            let mut entries: Vec<(u32, usize)> = Vec::new();
            for &row in &rows[share] {
                let row = row as usize;
                entries.clear();
                for p in a.row_ptr()[row]..a.row_ptr()[row + 1] {
                    let column = a.col()[p] as usize;
                    if labels.is_none_or(|l| l[row] == l[column]) {
                        entries.push((new[column], p));
                    }
                }
                entries.sort_unstable();
                if entries.binary_search_by_key(&new[row], |e| e.0).is_err() {
                    return Err(no_diagonal(row));
                }
                for &(column, p) in &entries {
                    columns.push(column);
                    values.extend_from_slice(a.block_values(p));
                }
                counts.push(entries.len());
            }
            Ok((counts, columns, values))
        };
        let parts = on_all_cores(n, part).into_iter().collect::<Result<Vec<Part>>>()?;
        let kept = parts.iter().map(|part| part.1.len()).sum();
        let (mut row_ptr, mut columns) = (Vec::with_capacity(n + 1), Vec::with_capacity(kept));
        let mut values = Vec::with_capacity(kept * b * b);
        row_ptr.push(0);
        let mut end = 0;
        for (counts, own_columns, own_values) in parts {
            row_ptr.extend(counts.into_iter().map(|count| {
                end += count;
                end
            }));
            columns.extend_from_slice(&own_columns);
            values.extend_from_slice(&own_values);
        }
        let dropped = a.blocks() - columns.len();
        Ok(Self { a: Bsr::new(b, n, n, row_ptr, columns, values)?, ptr, rows, dropped })
    }

    pub fn block_rows(&self) -> usize {
        self.rows.len()
    }
    pub fn len(&self) -> usize {
        self.a.rows()
    }
    pub fn count(&self) -> usize {
        self.ptr.len() - 1
    }
    pub fn blocks(&self) -> usize {
        self.a.blocks()
    }
    /// Returns the number of blocks below the diagonal.
    pub fn strictly_lower(&self) -> usize {
        let row = |i: usize| {
            let row = &self.a.col()[self.a.row_ptr()[i]..self.a.row_ptr()[i + 1]];
            row.partition_point(|&j| (j as usize) < i)
        };
        (0..self.block_rows()).map(row).sum()
    }
    /// Returns the number of block rows of the largest subdomain.
    pub fn largest(&self) -> usize {
        self.ptr.windows(2).map(|w| w[1] - w[0]).max().unwrap_or(0)
    }
    /// Returns a vector of the given matrix in this system's order.
    pub fn sort(&self, x: &[f64]) -> Vec<f64> {
        let b = self.a.block();
        self.rows.iter().flat_map(|&row| x[row as usize * b..][..b].iter().copied()).collect()
    }
    /// Returns a vector of this system in the given matrix's order.
    pub fn unsort(&self, x: &[f64]) -> Vec<f64> {
        let b = self.a.block();
        let mut given = vec![0.0; x.len()];
        for (from, &row) in x.chunks_exact(b).zip(&self.rows) {
            given[row as usize * b..][..b].copy_from_slice(from);
        }
        given
    }
}

fn not_square() -> Error {
    Error::invalid("subdomains need a square matrix, and each row in exactly one subdomain")
}

fn no_diagonal(row: usize) -> Error {
    Error::invalid(format!("block row {row} has no diagonal block; ILU(0) needs one in every row"))
}

/// Returns `part` of each of as many equal shares of 0..n as there are cores, in order; each has a thread.
pub(crate) fn on_all_cores<T: Send>(n: usize, part: impl Fn(Range<usize>) -> T + Sync) -> Vec<T> {
    let part = &part;
    std::thread::scope(|scope| {
        let threads: Vec<_> = shares(n).into_iter().map(|share| scope.spawn(move || part(share))).collect();
        let joined = threads.into_iter().map(|t| t.join().unwrap_or_else(|e| std::panic::resume_unwind(e)));
        joined.collect()
    })
}

/// Splits 0..n into one share per core, about equal and not empty.
pub(crate) fn shares(n: usize) -> Vec<Range<usize>> {
    let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get()).min(n.max(1));
    (0..cores).map(|c| n * c / cores..n * (c + 1) / cores).filter(|share| !share.is_empty()).collect()
}

/// Returns the rows by ascending label, and the start of each label.
fn group(labels: &[u32], count: usize, rows: usize) -> Result<(Vec<u32>, Vec<usize>)> {
    if labels.len() != rows || labels.iter().any(|&l| l as usize >= count) {
        return Err(Error::invalid(format!("expected {rows} labels below {count}")));
    }
    let mut ptr = vec![0usize; count + 1];
    for &label in labels {
        ptr[label as usize + 1] += 1;
    }
    for p in 0..count {
        ptr[p + 1] += ptr[p];
    }
    let (mut next, mut order) = (ptr.clone(), vec![0u32; rows]);
    for (row, &label) in labels.iter().enumerate() {
        order[next[label as usize]] = row as u32;
        next[label as usize] += 1;
    }
    Ok((order, ptr))
}

/// Alg. 3.1: returns the number of each grid point's box, x fastest in points and boxes, and the number of
/// boxes.
///
/// If the size does not divide the grid, the last boxes are smaller; it divides the paper's grids.
pub(crate) fn boxes(grid: [usize; 3], size: [usize; 3]) -> (Vec<u32>, usize) {
    let [bx, by, bz] = [0, 1, 2].map(|d| grid[d].div_ceil(size[d]));
    let mut labels = Vec::with_capacity(grid.iter().product());
    for k in 0..grid[2] {
        for j in 0..grid[1] {
            for i in 0..grid[0] {
                labels.push((i / size[0] + bx * (j / size[1] + by * (k / size[2]))) as u32);
            }
        }
    }
    (labels, bx * by * bz)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ildu0::laplacian;

    #[test]
    fn boxes_are_numbered_x_fastest_and_may_be_ragged() {
        let (labels, count) = boxes([4, 2, 1], [2, 2, 1]);
        assert_eq!((labels, count), (vec![0, 0, 1, 1, 0, 0, 1, 1], 2));
        let (labels, count) = boxes([3, 1, 1], [2, 2, 2]);
        assert_eq!((labels, count), (vec![0, 0, 1], 2));
    }

    #[test]
    fn what_couples_boxes_is_dropped_and_nothing_else() {
        let a = laplacian([4, 2, 2], 2).unwrap();
        let (labels, count) = boxes([4, 2, 2], [2, 2, 2]);
        let s = SubdomainSystem::decompose(&a, &labels, count).unwrap();
        assert_eq!(s.rows, [0, 1, 4, 5, 8, 9, 12, 13, 2, 3, 6, 7, 10, 11, 14, 15]);
        assert_eq!(s.ptr, [0, 8, 16]);
        // Four couplings across x = 2, each stored twice.
        assert_eq!((s.dropped, s.blocks() + s.dropped), (8, a.blocks()));
        assert_eq!((s.largest(), s.count(), s.len()), (8, 2, 32));
        for p in 0..2 {
            for i in s.ptr[p]..s.ptr[p + 1] {
                let row = &s.a.col()[s.a.row_ptr()[i]..s.a.row_ptr()[i + 1]];
                assert!(row.windows(2).all(|w| w[0] < w[1]));
                assert!(row.iter().all(|&c| (s.ptr[p]..s.ptr[p + 1]).contains(&(c as usize))));
                for q in s.a.row_ptr()[i]..s.a.row_ptr()[i + 1] {
                    let (row, column) = (s.rows[i], s.rows[s.a.col()[q] as usize]);
                    let from = (a.row_ptr()[row as usize]..a.row_ptr()[row as usize + 1])
                        .find(|&p| a.col()[p] == column)
                        .unwrap();
                    assert_eq!(s.a.block_values(q), a.block_values(from));
                }
            }
        }
        let x: Vec<f64> = (0..32).map(f64::from).collect();
        assert_eq!(s.unsort(&s.sort(&x)), x);
        assert_eq!(s.sort(&x)[4..6], [8.0, 9.0]);
        let whole = SubdomainSystem::whole(&a).unwrap();
        assert_eq!((whole.dropped, whole.count()), (0, 1));
        assert_eq!(whole.a.values(), a.values());
        assert_eq!(s.reordered(&a).unwrap().blocks(), a.blocks());
    }

    #[test]
    fn another_order_keeps_the_groups() {
        let a = laplacian([4, 2, 2], 2).unwrap();
        let (labels, count) = boxes([4, 2, 2], [2, 2, 2]);
        let s = SubdomainSystem::decompose(&a, &labels, count).unwrap();
        let (mut rows, ptr) = (s.rows.clone(), s.ptr.clone());
        rows.reverse();
        let turned = s.regrouped(&a, &rows, &ptr).unwrap();
        assert_eq!((turned.blocks(), turned.dropped, turned.count()), (s.blocks(), s.dropped, 2));
        rows.swap(0, 15);
        assert!(s.regrouped(&a, &rows, &ptr).is_err());
        rows[0] = rows[15];
        assert!(s.regrouped(&a, &rows, &ptr).is_err());
        assert!(s.regrouped(&a, &s.rows, &[0, 4, 8]).is_err());
        assert!(s.regrouped(&a, &s.rows, &[0, 20, 16]).is_err());
    }

    #[test]
    fn wrong_labels_and_missing_diagonals_are_refused() {
        let a = laplacian([2, 2, 2], 1).unwrap();
        assert!(SubdomainSystem::decompose(&a, &[0; 7], 1).is_err());
        assert!(SubdomainSystem::decompose(&a, &[0, 0, 0, 0, 0, 0, 0, 1], 1).is_err());
        let hollow = Bsr::new(1, 2, 2, vec![0, 1, 2], vec![1, 1], vec![1.0, 1.0]).unwrap();
        let error = SubdomainSystem::whole(&hollow).err().unwrap().to_string();
        assert!(error.contains("block row 0"), "{error}");
    }
}
