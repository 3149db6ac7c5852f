//! The pattern of one subdomain: its permutation, its levels, and the fill of ILU(k).

use crate::Result;
use crate::interrupt::Allowance;

/// Number of operations between two checks of the limits, which take about a millisecond.
const LOOK: u64 = 1 << 18;

/// Marks fill: an entry that the matrix does not have.
pub(in crate::precond) const NONE: u32 = u32::MAX;

/// A square pattern in compressed rows. Columns ascend in each row, and every diagonal entry is present.
#[derive(Default)]
pub(in crate::precond) struct Pattern {
    pub row_ptr: Vec<usize>,
    pub col: Vec<u32>,
    /// Number of each entry in the matrix's pattern; [`NONE`] for fill.
    pub from: Vec<u32>,
}

impl Pattern {
    /// Returns the number of rows.
    pub fn len(&self) -> usize {
        self.row_ptr.len() - 1
    }
    /// Returns the columns of row `i`.
    pub fn row(&self, i: usize) -> &[u32] {
        &self.col[self.row_ptr[i]..self.row_ptr[i + 1]]
    }

    /// Returns the beginning of each row's list of neighbours, and these lists. A neighbour of a row is
    /// coupled to it in either direction. If it is coupled in both directions, it is listed twice, which is
    /// harmless for searches.
    pub fn neighbours(&self) -> (Vec<usize>, Vec<u32>) {
        let n = self.len();
        let mut ptr = vec![0usize; n + 1];
        let edges =
            || (0..n).flat_map(|i| self.row(i).iter().map(move |&j| (i, j as usize))).filter(|(i, j)| i != j);
        for (i, j) in edges() {
            ptr[i + 1] += 1;
            ptr[j + 1] += 1;
        }
        (0..n).for_each(|i| ptr[i + 1] += ptr[i]);
        let (mut next, mut neighbours) = (ptr.clone(), vec![0u32; ptr[n]]);
        for (i, j) in edges() {
            neighbours[next[i]] = j as u32;
            neighbours[next[j]] = i as u32;
            next[i] += 1;
            next[j] += 1;
        }
        (ptr, neighbours)
    }

    /// Returns the pattern with row and column `order[k]` renumbered to k.
    pub fn permuted(&self, order: &[u32]) -> Self {
        let mut place = vec![0u32; order.len()];
        order.iter().enumerate().for_each(|(k, &i)| place[i as usize] = k as u32);
        let mut out = Self {
            row_ptr: Vec::with_capacity(self.row_ptr.len()),
            col: Vec::with_capacity(self.col.len()),
            from: Vec::with_capacity(self.col.len()),
        };
        out.row_ptr.push(0);
        let mut row = Vec::new();
        for &i in order {
            let range = self.row_ptr[i as usize]..self.row_ptr[i as usize + 1];
            row.clear();
            row.extend(range.map(|e| (place[self.col[e] as usize], self.from[e])));
            row.sort_unstable();
            out.col.extend(row.iter().map(|r| r.0));
            out.from.extend(row.iter().map(|r| r.1));
            out.row_ptr.push(out.col.len());
        }
        out
    }

    /// Returns the pattern of ILU(k) for elimination in the order of the rows. Entry (i, j) is kept if its
    /// level of fill is at most `k`; entries of the matrix have level 0, and lev(i, j) = min over pivots p of
    /// lev(i, p) + lev(p, j) + 1 (Saad 2003, Alg. 10.5).
    ///
    /// # Errors
    /// This thread's limits are reached, or its bound on operations is exceeded.
    pub fn filled(&self, k: usize, allowance: &Allowance) -> Result<Self> {
        let n = self.len();
        let mut out = Self { row_ptr: vec![0], col: Vec::new(), from: Vec::new() };
        let mut levels: Vec<u32> = Vec::new();
        let mut diagonal = vec![0usize; n];
        // Row i is a linked list of ascending columns, with the level and the origin of each entry.
        const END: u32 = u32::MAX;
        let (mut next, mut level, mut from) = (vec![END; n + 1], vec![u32::MAX; n], vec![NONE; n]);
        let mut operations = 0;
        for i in 0..n {
            if operations > LOOK {
                allowance.spend(operations)?;
                operations = 0;
            }
            let head = n;
            let mut last = head;
            for e in self.row_ptr[i]..self.row_ptr[i + 1] {
                let j = self.col[e] as usize;
                next[last] = j as u32;
                (level[j], from[j]) = (0, self.from[e]);
                last = j;
            }
            next[last] = END;
            let mut p = next[head];
            while (p as usize) < i {
                // The columns of row p after its diagonal ascend, so one pass along the list inserts all of
                // them.
                let mut at = p as usize;
                let pivot = p as usize;
                operations += 1 + (out.row_ptr[pivot + 1] - diagonal[pivot]) as u64;
                for e in diagonal[pivot] + 1..out.row_ptr[pivot + 1] {
                    let j = out.col[e] as usize;
                    let new = level[pivot].saturating_add(levels[e]).saturating_add(1);
                    if new as usize > k {
                        continue;
                    }
                    while next[at] != END && (next[at] as usize) < j {
                        at = next[at] as usize;
                        operations += 1;
                    }
                    if next[at] as usize == j {
                        level[j] = level[j].min(new);
                    } else {
                        next[j] = next[at];
                        next[at] = j as u32;
                        (level[j], from[j]) = (new, NONE);
                    }
                    at = j;
                }
                p = next[pivot];
            }
            let mut j = next[head];
            while j != END {
                if j as usize == i {
                    diagonal[i] = out.col.len();
                }
                out.col.push(j);
                out.from.push(from[j as usize]);
                levels.push(level[j as usize]);
                j = next[j as usize];
            }
            out.row_ptr.push(out.col.len());
        }
        allowance.spend(operations)?;
        Ok(out)
    }

    /// Returns the position of the diagonal entry of row `i`.
    pub fn diagonal(&self, i: usize) -> usize {
        self.row_ptr[i] + self.row(i).partition_point(|&j| (j as usize) < i)
    }

    /// Computes the level of each row: one more than the highest level of the earlier rows to which it is
    /// coupled, in either direction. Rows of one level can be solved at once, forward with L and backward
    /// with U. Returns how far from the diagonal the farthest entry is.
    pub fn levels_into(&self, diagonal: &[usize], level: &mut Vec<u32>) -> usize {
        level.clear();
        level.resize(self.len(), 0);
        let mut width = 0;
        for (i, (&diagonal, bounds)) in diagonal.iter().zip(self.row_ptr.windows(2)).enumerate() {
            let (before, behind) = (&self.col[bounds[0]..diagonal], &self.col[diagonal + 1..bounds[1]]);
            let own = before.iter().fold(level[i], |own, &j| own.max(level[j as usize] + 1));
            level[i] = own;
            for &j in behind {
                level[j as usize] = level[j as usize].max(own + 1);
            }
            let (first, last) =
                (before.first().map_or(i, |&j| j as usize), behind.last().map_or(i, |&j| j as usize));
            width = width.max(i - first).max(last - i);
        }
        width
    }

    /// Returns the level of each row, as [`levels_into`](Self::levels_into) computes it.
    pub fn levels(&self) -> Vec<u32> {
        let diagonal: Vec<usize> = (0..self.len()).map(|i| self.diagonal(i)).collect();
        let mut levels = Vec::new();
        self.levels_into(&diagonal, &mut levels);
        levels
    }
}
