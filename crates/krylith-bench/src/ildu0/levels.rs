//! The DAG of a triangle, for each subdomain: rows that may be computed concurrently, and the entries in that
//! order (§4.2 of the paper that `ildu0/mod.rs` names).

use super::system::{SubdomainSystem, on_all_cores};
use krylith_core::{Error, Result};
use std::ops::Range;

/// A strict triangle of the matrix.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Triangle {
    Lower,
    Upper,
}

impl Triangle {
    fn has(self, row: usize, column: usize) -> bool {
        match self {
            Triangle::Lower => column < row,
            Triangle::Upper => column > row,
        }
    }
}

/// Returns the level of each row within its subdomain: 0 if it has no entries in the triangle, else one more
/// than the largest level of the rows it depends on. Alg. 4.2 finds the same in as many rounds as there are
/// levels.
pub(crate) fn levels(s: &SubdomainSystem, triangle: Triangle) -> Vec<u32> {
    let n = s.block_rows();
    let mut level = vec![0u32; n];
    for k in 0..n {
        let i = if triangle == Triangle::Lower { k } else { n - 1 - k };
        for &j in &s.a.col()[s.a.row_ptr()[i]..s.a.row_ptr()[i + 1]] {
            if triangle.has(i, j as usize) {
                level[i] = level[i].max(level[j as usize] + 1);
            }
        }
    }
    level
}

/// A strict triangle in the order of its traversal. Numbers of rows and columns are 16-bit and relative to
/// the subdomain; blocks are row-major.
pub(crate) struct Dag {
    /// Subdomain p has the levels `levels[p]..levels[p + 1]`.
    pub levels: Vec<i32>,
    /// Level l has the rows `row_ptr[l]..row_ptr[l + 1]` of `rows`.
    pub row_ptr: Vec<i32>,
    pub rows: Vec<u16>,
    /// The row at position q of `rows` has the entries `entry_ptr[q]..entry_ptr[q + 1]` (vertex-centric).
    pub entry_ptr: Vec<i32>,
    pub columns: Vec<u16>,
    pub values: Vec<f64>,
    /// Level l has the entries `edge_ptr[l]..edge_ptr[l + 1]` (edge-centric): row·2¹⁶ + column. The first
    /// entries of all its rows precede all second ones, so that neighbouring threads seldom add to the same
    /// number.
    pub edge_ptr: Vec<i32>,
    pub pairs: Vec<u32>,
    pub edge_values: Vec<f64>,
}

impl Dag {
    /// Builds the DAG; `values` are blocks in the pattern of the system.
    ///
    /// # Errors
    /// Returns an error if a subdomain has more rows than 16 bits count, or more entries than 31 bits count.
    pub fn new(s: &SubdomainSystem, triangle: Triangle, values: &[f64]) -> Result<Self> {
        if s.largest() > 1 << 16 || s.blocks() > i32::MAX as usize {
            return Err(Error::Unsupported(format!(
                "the paper's kernels cannot run on a subdomain of {} rows of {} blocks; use \
                 smaller subdomains",
                s.largest(),
                s.blocks()
            )));
        }
        let level = levels(s, triangle);
        let parts = on_all_cores(s.count(), |share| Self::part(s, triangle, values, &level, share));
        let mut made = Self::empty();
        parts.into_iter().for_each(|part| made.append(part));
        Ok(made)
    }

    fn empty() -> Self {
        Self {
            levels: vec![0],
            row_ptr: vec![0],
            rows: Vec::new(),
            entry_ptr: vec![0],
            columns: Vec::new(),
            values: Vec::new(),
            edge_ptr: vec![0],
            pairs: Vec::new(),
            edge_values: Vec::new(),
        }
    }

    /// Appends the DAG of further subdomains.
    fn append(&mut self, part: Self) {
        for (own, more) in [
            (&mut self.levels, &part.levels),
            (&mut self.row_ptr, &part.row_ptr),
            (&mut self.entry_ptr, &part.entry_ptr),
            (&mut self.edge_ptr, &part.edge_ptr),
        ] {
            let before = own.last().copied().unwrap_or(0);
            own.extend(more[1..].iter().map(|end| before + end));
        }
        self.rows.extend_from_slice(&part.rows);
        self.columns.extend_from_slice(&part.columns);
        self.values.extend_from_slice(&part.values);
        self.pairs.extend_from_slice(&part.pairs);
        self.edge_values.extend_from_slice(&part.edge_values);
    }

    /// Builds the DAG of some subdomains.
    fn part(
        s: &SubdomainSystem,
        triangle: Triangle,
        values: &[f64],
        level: &[u32],
        subdomains: Range<usize>,
    ) -> Self {
        let (mut made, bb) = (Self::empty(), s.a.block() * s.a.block());
        let entries = |i: usize| {
            (s.a.row_ptr()[i]..s.a.row_ptr()[i + 1]).filter(move |&p| triangle.has(i, s.a.col()[p] as usize))
        };
        for p in subdomains {
            let (begin, end) = (s.ptr[p], s.ptr[p + 1]);
            let depth = level[begin..end].iter().max().map_or(0, |l| *l as usize + 1);
            let mut of_level: Vec<Vec<usize>> = vec![Vec::new(); depth];
            (begin..end).for_each(|i| of_level[level[i] as usize].push(i));
            for rows in of_level {
                for &i in &rows {
                    made.rows.push((i - begin) as u16);
                    for q in entries(i) {
                        made.columns.push((s.a.col()[q] as usize - begin) as u16);
                        made.values.extend_from_slice(&values[q * bb..][..bb]);
                    }
                    made.entry_ptr.push(made.columns.len() as i32);
                }
                let widest = rows.iter().map(|&i| entries(i).count()).max().unwrap_or(0);
                for k in 0..widest {
                    for &i in &rows {
                        if let Some(q) = entries(i).nth(k) {
                            made.pairs.push(((i - begin) << 16 | (s.a.col()[q] as usize - begin)) as u32);
                            made.edge_values.extend_from_slice(&values[q * bb..][..bb]);
                        }
                    }
                }
                made.row_ptr.push(made.rows.len() as i32);
                made.edge_ptr.push(made.pairs.len() as i32);
            }
            made.levels.push(made.row_ptr.len() as i32 - 1);
        }
        made
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ildu0::{laplacian, system::boxes};

    fn small(b: usize) -> SubdomainSystem {
        let a = laplacian([5, 4, 3], b).unwrap();
        let (labels, count) = boxes([5, 4, 3], [3, 2, 3]);
        SubdomainSystem::decompose(&a, &labels, count).unwrap()
    }

    #[test]
    fn levels_of_a_box_are_the_planes_of_equal_sum() {
        let s = small(1);
        for triangle in [Triangle::Lower, Triangle::Upper] {
            let level = levels(&s, triangle);
            for (i, &row) in s.rows.iter().enumerate() {
                let (x, y, z) = (row as usize % 5, row as usize / 5 % 4, row as usize / 20);
                // The second box along x is 2 wide.
                let (width, x) = if x < 3 { (3, x) } else { (2, x - 3) };
                let up = x + y % 2 + z;
                let expected = if triangle == Triangle::Lower { up } else { width - 1 + 1 + 2 - up };
                assert_eq!(level[i] as usize, expected, "{triangle:?} {row}");
            }
        }
    }

    #[test]
    fn both_orders_hold_every_entry_once_and_after_what_it_needs() {
        let s = small(2);
        for triangle in [Triangle::Lower, Triangle::Upper] {
            let dag = Dag::new(&s, triangle, s.a.values()).unwrap();
            let strict = (0..s.block_rows())
                .map(|i| {
                    let row = &s.a.col()[s.a.row_ptr()[i]..s.a.row_ptr()[i + 1]];
                    row.iter().filter(|&&j| triangle.has(i, j as usize)).count()
                })
                .sum::<usize>();
            assert_eq!((dag.columns.len(), dag.pairs.len()), (strict, strict));
            assert_eq!((dag.values.len(), dag.edge_values.len()), (4 * strict, 4 * strict));
            assert_eq!(dag.levels.len(), s.count() + 1);
            let deepest = dag.levels.windows(2).map(|w| w[1] - w[0]).max();
            assert_eq!(deepest, Some(3 + 2 + 3 - 2));
            let mut by_row: Vec<(u32, u32, Vec<u64>)> = Vec::new();
            let mut by_edge = by_row.clone();
            let bits = |v: &[f64]| v.iter().map(|v| v.to_bits()).collect::<Vec<_>>();
            for p in 0..s.count() {
                let mut done = vec![false; s.ptr[p + 1] - s.ptr[p]];
                for l in dag.levels[p] as usize..dag.levels[p + 1] as usize {
                    let rows = &dag.rows[dag.row_ptr[l] as usize..dag.row_ptr[l + 1] as usize];
                    for q in dag.row_ptr[l] as usize..dag.row_ptr[l + 1] as usize {
                        for e in dag.entry_ptr[q] as usize..dag.entry_ptr[q + 1] as usize {
                            assert!(done[dag.columns[e] as usize]);
                            let row = (p as u32) << 16 | u32::from(dag.rows[q]);
                            by_row.push((row, dag.columns[e].into(), bits(&dag.values[4 * e..][..4])));
                        }
                    }
                    for e in dag.edge_ptr[l] as usize..dag.edge_ptr[l + 1] as usize {
                        let (row, column) = (dag.pairs[e] >> 16, dag.pairs[e] & 0xFFFF);
                        assert!(done[column as usize] && rows.contains(&(row as u16)));
                        by_edge.push(((p as u32) << 16 | row, column, bits(&dag.edge_values[4 * e..][..4])));
                    }
                    rows.iter().for_each(|&r| done[r as usize] = true);
                }
                assert!(done.iter().all(|d| *d));
            }
            by_row.sort();
            by_edge.sort();
            assert_eq!(by_row, by_edge);
        }
    }

    #[test]
    fn a_subdomain_too_large_for_16_bits_is_refused() {
        let a = laplacian([200, 200, 2], 1).unwrap();
        let s = SubdomainSystem::whole(&a).unwrap();
        assert!(Dag::new(&s, Triangle::Lower, s.a.values()).is_err());
    }
}
