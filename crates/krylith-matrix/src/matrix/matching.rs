//! Structural rank: the largest number of entries of which no two share a row or a column.
//!
//! A matrix whose structural rank is less than its order is singular for all values. The chosen entries are a
//! matching of rows and columns. A largest matching is found by shortest augmenting paths (Hopcroft & Karp
//! 1973), starting from a cheap one: the diagonal, then the first free column of each row (Duff 1981). The
//! work is bounded by √N passes over the entries; in practice a few suffice. Memory: 16 bytes per row and 4
//! per column, whatever the block size.

use super::{Bsr, Dense};

/// A largest matching of rows and columns, and the rows that limit it. Indices count from 0. Those of Σ Cₜ⊗Aₜ
/// with s stages are (i·b + c)·s + k for component c and stage k of block row i.
///
/// # Examples
/// ```
/// use krylith::matrix::{Bsr, Csr, StructuralRank};
/// // Rows 0 and 1 have entries in column 2 only.
/// let a = Csr::from_triplets(3, 3, &[(0, 2, 1.0), (1, 2, 5.0), (2, 0, 1.0), (2, 1, 1.0), (2, 2, 1.0)])?;
/// let found = StructuralRank::of(&[(None, &Bsr::from_csr(&a, 1)?)], usize::MAX).unwrap();
/// assert_eq!((found.rank, found.crowded_columns(), found.crowded_rows), (2, 1, vec![0, 1]));
/// # Ok::<(), krylith::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StructuralRank {
    /// Size of the matching; the rank of the matrix is no larger.
    pub rank: usize,
    /// Rows that this matching leaves free; another largest matching may leave others free.
    pub unmatched_rows: Vec<usize>,
    /// Columns that this matching leaves free.
    pub unmatched_columns: Vec<usize>,
    /// Rows that together have entries in too few columns, whatever the matching; empty if no row is free.
    pub crowded_rows: Vec<usize>,
}

/// No row, or no column.
const NONE: u32 = u32::MAX;

impl StructuralRank {
    /// Computes the structural rank of Σ Cₜ⊗Aₜ; a coefficient of `None` means 1. Stored zeros count as
    /// absent; entries of two terms that cancel count as present. Returns `None` if the search exceeds `most`
    /// entries, or if row numbers need more than 32 bits.
    pub fn of(terms: &[(Option<&Dense>, &Bsr)], most: usize) -> Option<Self> {
        let pattern = Pattern { terms };
        let (rows, columns) = pattern.shape()?;
        let mut search = Search {
            pattern,
            left: most,
            column_of: vec![NONE; rows],
            row_of: vec![NONE; columns],
            level: vec![NONE; rows],
            next: vec![0; rows],
        };
        search.pick_cheaply()?;
        let mut queue = Vec::with_capacity(rows);
        while search.layer(&mut queue)? {
            search.augment()?;
        }
        // No free column can be reached, so the columns reached are all columns of these rows.
        let crowded: Vec<usize> = (0..rows).filter(|&u| search.level[u] != NONE).collect();
        let free = |list: &[u32]| (0..list.len()).filter(|&u| list[u] == NONE).collect::<Vec<usize>>();
        let unmatched_rows = free(&search.column_of);
        Some(Self {
            rank: rows - unmatched_rows.len(),
            unmatched_columns: free(&search.row_of),
            unmatched_rows,
            crowded_rows: crowded,
        })
    }

    /// Number of columns in which [`crowded_rows`](Self::crowded_rows) have entries.
    pub fn crowded_columns(&self) -> usize {
        self.crowded_rows.len() - self.unmatched_rows.len()
    }
}

/// Positions of entries. A row has slots: the positions of its stored blocks, stage by stage; some slots hold
/// no entry.
struct Pattern<'a> {
    terms: &'a [(Option<&'a Dense>, &'a Bsr)],
}

impl Pattern<'_> {
    /// Number of rows and columns, if 32 bits can hold them.
    fn shape(&self) -> Option<(usize, usize)> {
        let (_, a) = self.terms.first()?;
        let s = self.stages();
        let (rows, columns) = (a.rows().checked_mul(s)?, a.columns().checked_mul(s)?);
        (rows.max(columns) < NONE as usize).then_some((rows, columns))
    }

    fn stages(&self) -> usize {
        self.terms.first().and_then(|t| t.0).map_or(1, Dense::rows)
    }

    /// The column of slot `slot` of row `u`: `None` after the last slot, `Some(NONE)` if the slot holds no
    /// entry.
    fn column(&self, u: usize, mut slot: usize) -> Option<u32> {
        let (s, b) = (self.stages(), self.terms[0].1.block());
        let (i, r, k) = (u / (b * s), u / s % b, u % s);
        for (coefficient, a) in self.terms {
            let slots = (a.row_ptr()[i + 1] - a.row_ptr()[i]) * b * s;
            if slot < slots {
                let (p, c, l) = (a.row_ptr()[i] + slot / (b * s), slot / s % b, slot % s);
                let is_there =
                    a.block_values(p)[r * b + c] != 0.0 && coefficient.is_none_or(|m| m[(k, l)] != 0.0);
                return Some(if is_there { a.col()[p] * (b * s) as u32 + (c * s + l) as u32 } else { NONE });
            }
            slot -= slots;
        }
        None
    }

    /// True if row `u` has a diagonal entry.
    fn has_diagonal(&self, u: usize) -> bool {
        let (s, b) = (self.stages(), self.terms[0].1.block());
        let (i, r, k) = (u / (b * s), u / s % b, u % s);
        self.terms.iter().any(|(coefficient, a)| {
            coefficient.is_none_or(|m| m[(k, k)] != 0.0)
                && a.diagonal_block(i).is_some_and(|d| d[r * b + r] != 0.0)
        })
    }
}

struct Search<'a> {
    pattern: Pattern<'a>,
    /// Number of slots that the search may still examine.
    left: usize,
    column_of: Vec<u32>,
    row_of: Vec<u32>,
    /// Distance of a row from a free one; `NONE` if it is not reached or is finished.
    level: Vec<u32>,
    /// The slot at which the search of each row continues.
    next: Vec<usize>,
}

impl Search<'_> {
    /// The column of slot `slot` of row `u`, as [`Pattern::column`] returns it; `None` once the limit is
    /// reached.
    fn look(&mut self, u: usize, slot: usize) -> Option<Option<u32>> {
        self.left = self.left.checked_sub(1)?;
        Some(self.pattern.column(u, slot))
    }

    fn pick(&mut self, u: usize, column: u32) {
        self.column_of[u] = column;
        self.row_of[column as usize] = u as u32;
    }

    /// Matches the diagonal first, then each remaining row with its first free column.
    fn pick_cheaply(&mut self) -> Option<()> {
        let rows = self.column_of.len();
        for u in 0..rows.min(self.row_of.len()) {
            self.left = self.left.checked_sub(1)?;
            if self.pattern.has_diagonal(u) {
                self.pick(u, u as u32);
            }
        }
        for u in (0..rows).filter(|&u| self.column_of[u] == NONE).collect::<Vec<_>>() {
            let mut slot = 0;
            while let Some(column) = self.look(u, slot)? {
                if column != NONE && self.row_of[column as usize] == NONE {
                    self.pick(u, column);
                    break;
                }
                slot += 1;
            }
        }
        Some(())
    }

    /// Computes the levels of rows, from the free rows to the nearest free column; true if there is one.
    fn layer(&mut self, queue: &mut Vec<u32>) -> Option<bool> {
        queue.clear();
        for u in 0..self.column_of.len() {
            let is_free = self.column_of[u] == NONE;
            self.level[u] = if is_free { 0 } else { NONE };
            if is_free {
                queue.push(u as u32);
            }
        }
        let (mut at, mut nearest) = (0, NONE);
        while let Some(&u) = queue.get(at) {
            let u = u as usize;
            at += 1;
            if self.level[u] >= nearest {
                break;
            }
            let mut slot = 0;
            while let Some(column) = self.look(u, slot)? {
                slot += 1;
                if column == NONE {
                    continue;
                }
                let row = self.row_of[column as usize];
                if row == NONE {
                    nearest = self.level[u] + 1;
                } else if self.level[row as usize] == NONE {
                    self.level[row as usize] = self.level[u] + 1;
                    queue.push(row);
                }
            }
        }
        Some(nearest != NONE)
    }

    /// Follows disjoint shortest paths along the levels from free rows to free columns; each path enlarges
    /// the matching by one.
    fn augment(&mut self) -> Option<()> {
        self.next.fill(0);
        let mut path: Vec<usize> = Vec::new();
        for free in 0..self.column_of.len() {
            if self.column_of[free] != NONE {
                continue;
            }
            path.push(free);
            while let Some(&u) = path.last() {
                match self.look(u, self.next[u])? {
                    None => {
                        self.level[u] = NONE; // no path leads through this row
                        path.pop();
                        if let Some(&before) = path.last() {
                            self.next[before] += 1;
                        }
                    }
                    Some(NONE) => self.next[u] += 1,
                    Some(column) => match self.row_of[column as usize] {
                        NONE => {
                            for u in path.drain(..) {
                                let column = self.pattern.column(u, self.next[u]).unwrap_or(NONE);
                                self.pick(u, column);
                                self.level[u] = NONE;
                            }
                        }
                        row if self.level[row as usize] == self.level[u] + 1 => path.push(row as usize),
                        _ => self.next[u] += 1,
                    },
                }
            }
        }
        Some(())
    }
}
