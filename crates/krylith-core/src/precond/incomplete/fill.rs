//! The pattern of one subdomain: its permutation, its levels, and the fill of ILU(k).
//!
//! The fill is that of Hysom and Pothen (2002). ILU(k) keeps entry (i, j) if the graph of A has a path from i
//! to j of at most k + 1 edges whose inner nodes are all numbered below min(i, j). A search from node i finds
//! row i independently of other rows, so threads find rows in parallel. For each node j the search keeps the
//! smallest value that the highest inner node of a path to j can have. Entry (i, j) exists if that value is
//! below min(i, j).

use crate::Result;
use crate::interrupt::Allowance;
use rayon::prelude::*;
use std::sync::OnceLock;

/// Number of rows of one task.
const ROWS: usize = 1024;

/// Number of operations between two checks of the limits, which take about a tenth of a millisecond.
const LOOK: u64 = 1 << 15;

/// Marks a node that the search has not reached.
const FAR: u32 = u32::MAX;

/// Marks fill: an entry that the matrix does not have.
pub(in crate::precond) const NONE: u32 = u32::MAX;

/// Returns a number that sorts by column, with the number of an entry. Pairs take twice as long to sort.
pub(in crate::precond) fn keyed(column: u32, from: u32) -> u64 {
    u64::from(column) << 32 | u64::from(from)
}

/// Returns the column and the number of the entry that [`keyed`] has joined.
pub(in crate::precond) fn unkeyed(key: u64) -> (u32, u32) {
    ((key >> 32) as u32, key as u32)
}

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

    /// Returns true if every entry has a mirrored entry. Sums of hashes are compared, so the answer is wrong
    /// with a probability of 2⁻⁶⁴.
    pub fn is_symmetric(&self) -> bool {
        let mut sum = 0u64;
        for i in 0..self.len() as u32 {
            for &j in self.row(i as usize) {
                let both = u64::from(i.min(j)) << 32 | u64::from(i.max(j));
                let hash = (both ^ both >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9);
                let hash = (hash ^ hash >> 32).wrapping_mul(0x94d0_49bb_1331_11eb);
                // The diagonal counts on neither side.
                let side = u64::from(j > i).wrapping_sub(u64::from(j < i));
                sum = sum.wrapping_add(side.wrapping_mul(hash));
            }
        }
        sum == 0
    }

    /// Returns the beginning of each column's list of rows, and these lists.
    pub fn transposed(&self) -> (Vec<usize>, Vec<u32>) {
        let mut ptr = vec![0usize; self.len() + 1];
        self.col.iter().for_each(|&j| ptr[j as usize + 1] += 1);
        (0..self.len()).for_each(|j| ptr[j + 1] += ptr[j]);
        let (mut next, mut rows) = (ptr.clone(), vec![0u32; self.col.len()]);
        for i in 0..self.len() {
            for &j in self.row(i) {
                rows[next[j as usize]] = i as u32;
                next[j as usize] += 1;
            }
        }
        (ptr, rows)
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

    /// Returns the beginning of each row's list of other columns, and these lists.
    pub fn others(&self) -> (Vec<usize>, Vec<u32>) {
        let mut others = Vec::with_capacity(self.col.len() - self.len());
        let mut ptr = Vec::with_capacity(self.row_ptr.len());
        ptr.push(0);
        for i in 0..self.len() {
            others.extend(self.row(i).iter().copied().filter(|&j| j as usize != i));
            ptr.push(others.len());
        }
        (ptr, others)
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
        let (mut row, mut before): (Vec<u64>, _) = (Vec::new(), 0..0);
        for &i in order {
            let range = self.row_ptr[i as usize]..self.row_ptr[i as usize + 1];
            // Rows with the same columns follow one another in most orders, and are sorted once.
            if self.col[range.clone()] != self.col[before.clone()] {
                row.clear();
                row.extend((0u32..).zip(&self.col[range.clone()]).map(|(e, &j)| keyed(place[j as usize], e)));
                row.sort_unstable();
            }
            out.col.extend(row.iter().map(|&key| unkeyed(key).0));
            out.from.extend(row.iter().map(|&key| self.from[range.start + unkeyed(key).1 as usize]));
            out.row_ptr.push(out.col.len());
            before = range;
        }
        out
    }

    /// Builds a pattern of `n` rows, whose entries `write` appends by ascending column. `init` creates the
    /// memory of a thread.
    pub fn by_rows<S>(
        n: usize,
        init: impl Fn() -> S + Sync + Send,
        write: impl Fn(&mut S, usize, &mut Self) + Sync + Send,
    ) -> Self {
        // A single thread needs no pieces, which would be copied.
        let rows = if rayon::current_num_threads() == 1 { n.max(1) } else { ROWS };
        let mut pieces: Vec<Self> = (0..n.div_ceil(rows))
            .into_par_iter()
            .map_init(init, |state, piece| {
                let mut out = Self { row_ptr: vec![0], ..Self::default() };
                for i in piece * rows..n.min((piece + 1) * rows) {
                    write(state, i, &mut out);
                    out.row_ptr.push(out.col.len());
                }
                out
            })
            .collect();
        if pieces.len() == 1 {
            return pieces.swap_remove(0);
        }
        let entries = pieces.iter().map(|piece| piece.col.len()).sum();
        let mut out = Self {
            row_ptr: Vec::with_capacity(n + 1),
            col: Vec::with_capacity(entries),
            from: Vec::with_capacity(entries),
        };
        out.row_ptr.push(0);
        for piece in pieces {
            let first = out.col.len();
            out.row_ptr.extend(piece.row_ptr[1..].iter().map(|end| first + end));
            out.col.extend_from_slice(&piece.col);
            out.from.extend_from_slice(&piece.from);
        }
        out
    }

    /// Returns the pattern of ILU(`k`) for elimination in the order of the rows.
    ///
    /// # Errors
    /// This thread's limits are reached, or its bound on operations is exceeded.
    pub fn filled(self, k: usize, allowance: &Allowance) -> Result<Self> {
        if k == 0 {
            return Ok(self);
        }
        let (n, ended) = (self.len(), OnceLock::new());
        let found = Self::by_rows(
            n,
            || Search::new(n),
            |search, i, out| {
                if ended.get().is_some() {
                    return; // the result is not used
                }
                search.row(&self, i, k, out);
                let due = search.operations > LOOK || (i + 1).is_multiple_of(ROWS) || i + 1 == n;
                if due && let Err(e) = allowance.spend(std::mem::take(&mut search.operations)) {
                    _ = ended.set(e);
                }
            },
        );
        ended.into_inner().map_or(Ok(found), Err)
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

/// Reusable memory of a thread.
struct Search {
    /// For each node, one more than the highest inner node of the best path to it: 0 for an edge, [`FAR`] if
    /// there is no path.
    limit: Vec<u32>,
    /// True for the nodes of `next`.
    queued: Vec<bool>,
    /// Nodes whose limit changed, besides those of the row.
    reached: Vec<u32>,
    /// Nodes below the row to which the last round found a better path, with the limit of that path.
    front: Vec<(u32, u32)>,
    next: Vec<u32>,
    fill: Vec<u32>,
    /// Number of entries read so far.
    operations: u64,
}

impl Search {
    fn new(n: usize) -> Self {
        let (reached, front, next, fill) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        Self { limit: vec![FAR; n], queued: vec![false; n], reached, front, next, fill, operations: 0 }
    }

    /// Appends row `i` of ILU(`k`) to `out`.
    fn row(&mut self, a: &Pattern, i: usize, k: usize, out: &mut Pattern) {
        let Self { limit, queued, reached, front, next, fill, operations } = self;
        let (own, range) = (i as u32, a.row_ptr[i]..a.row_ptr[i + 1]);
        let row = &a.col[range.clone()];
        front.clear();
        for &j in row {
            limit[j as usize] = 0;
            if j < own {
                front.push((j, 0));
            }
        }
        *operations += 1 + row.len() as u64;
        for _ in 1..k {
            for &(inner, before) in front.iter() {
                let (new, others) = (before.max(inner + 1), a.row(inner as usize));
                *operations += others.len() as u64;
                for &j in others {
                    let limit = &mut limit[j as usize];
                    if new >= *limit {
                        continue;
                    }
                    if *limit == FAR {
                        reached.push(j);
                    }
                    if *limit > j && new <= j {
                        fill.push(j);
                    }
                    // A node behind the row is never an inner node: any path is as good as another.
                    *limit = if j > own { 0 } else { new };
                    if j < own && !std::mem::replace(&mut queued[j as usize], true) {
                        next.push(j);
                    }
                }
            }
            // A path may grow by only one edge per round, so the next round starts from the present limits.
            front.clear();
            for j in next.drain(..) {
                queued[j as usize] = false;
                front.push((j, limit[j as usize]));
            }
            if front.is_empty() {
                break;
            }
        }
        // In the last round, only paths to nodes behind their inner ones matter.
        for &(inner, before) in front.iter() {
            let (new, others) = (before.max(inner + 1), a.row(inner as usize));
            *operations += others.len() as u64;
            for &j in others.iter().rev().take_while(|&&j| j >= new) {
                let limit = &mut limit[j as usize];
                if *limit > j {
                    if *limit == FAR {
                        reached.push(j);
                    }
                    *limit = 0;
                    fill.push(j);
                }
            }
        }
        row.iter().chain(reached.iter()).for_each(|&j| limit[j as usize] = FAR);
        reached.clear();
        fill.sort_unstable();
        let mut rest = range.clone();
        for j in fill.drain(..) {
            while rest.start < rest.end && a.col[rest.start] < j {
                out.col.push(a.col[rest.start]);
                out.from.push(a.from[rest.start]);
                rest.start += 1;
            }
            out.col.push(j);
            out.from.push(NONE);
        }
        out.col.extend_from_slice(&a.col[rest.clone()]);
        out.from.extend_from_slice(&a.from[rest]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::space::random;

    /// Returns the level of fill of every entry by textbook elimination (Saad 2003, Alg. 10.5) on a dense
    /// matrix of levels.
    fn textbook(a: &Pattern, k: usize) -> Vec<Vec<u32>> {
        let n = a.len();
        let mut level = vec![vec![usize::MAX; n]; n];
        (0..n).for_each(|i| a.row(i).iter().for_each(|&j| level[i][j as usize] = 0));
        for i in 0..n {
            for p in 0..i {
                if level[i][p] > k {
                    continue;
                }
                for j in p + 1..n {
                    let new = level[i][p].saturating_add(level[p][j]).saturating_add(1);
                    level[i][j] = level[i][j].min(new);
                }
            }
            level[i].iter_mut().filter(|l| **l > k).for_each(|l| *l = usize::MAX);
        }
        level.iter().map(|row| (0..n as u32).filter(|&j| row[j as usize] <= k).collect()).collect()
    }

    #[test]
    fn fill_is_that_of_the_textbook() {
        for (seed, n, per_row) in [(1, 1, 1), (2, 2, 2), (3, 40, 2), (4, 60, 3), (5, 25, 6)] {
            let mut row_ptr = vec![0];
            let (mut col, mut from) = (Vec::new(), Vec::new());
            for i in 0..n {
                // The pattern is unsymmetric and random.
                let mut row: Vec<u32> = (0..per_row)
                    .map(|e| ((random(seed, (i * per_row + e) as u64) + 1.0) / 2.0 * n as f64) as u32)
                    .chain([i as u32])
                    .collect();
                row.sort_unstable();
                row.dedup();
                from.extend((0..row.len()).map(|e| (col.len() + e) as u32));
                col.extend(row);
                row_ptr.push(col.len());
            }
            for k in [0, 1, 2, 3, 5, 1000] {
                let a = Pattern { row_ptr: row_ptr.clone(), col: col.clone(), from: from.clone() };
                let expected = textbook(&a, k);
                let source = |i: usize, j: &u32| {
                    let at = a.row(i).binary_search(j);
                    at.map_or(NONE, |at| (a.row_ptr[i] + at) as u32)
                };
                let sources: Vec<u32> =
                    (0..n).flat_map(|i| expected[i].iter().map(move |j| source(i, j))).collect();
                let all = || Pattern { row_ptr: row_ptr.clone(), col: col.clone(), from: from.clone() };
                let found = all().filled(k, &Allowance::of_fill()).unwrap();
                let rows: Vec<Vec<u32>> = (0..n).map(|i| found.row(i).to_vec()).collect();
                assert!(rows == expected, "seed {seed}, k = {k}");
                assert!(found.from == sources, "seed {seed}, k = {k}: sources");
            }
        }
    }
}
