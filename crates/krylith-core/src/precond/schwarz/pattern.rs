//! The pattern of one subdomain: the entries of the matrix inside it, and the fill of ILU(k).
//!
//! The method is that of Hysom and Pothen (2002). ILU(k) keeps entry (i, j) if the graph of A has a path from
//! i to j of at most k + 1 edges whose inner nodes are all numbered below min(i, j). A search from node i
//! finds row i independently of other rows, so threads find rows in parallel. For each node j the search
//! keeps the smallest value that the highest inner node of a path to j can have. Entry (i, j) exists if that
//! value is below min(i, j).

use super::super::ildu::fill::{NONE, Pattern};
use super::overlap::Overlap;
use crate::Result;
use crate::interrupt::Allowance;
use crate::matrix::Bsr;
use rayon::prelude::*;
use std::sync::OnceLock;

/// Number of rows of one task.
const ROWS: usize = 1024;

/// Marks a node that the search has not reached.
const FAR: u32 = u32::MAX;

/// Returns the pattern that `a` and the imported rows have inside a subdomain, whose nodes in order are
/// `rows`. Adds missing diagonal entries. `place` must hold [`NONE`] for every node before, and does so
/// afterwards.
pub(super) fn inside(a: &Bsr, found: &Overlap, rows: &[u32], place: &mut [u32]) -> Pattern {
    rows.iter().enumerate().for_each(|(k, &node)| place[node as usize] = k as u32);
    let own = a.block_rows();
    let look = &*place;
    let pattern = by_rows(
        rows.len(),
        || (),
        |(), k, row: &mut Vec<(u32, u32)>| {
            let mut add = |node: u32, source: u32| {
                let at = look[node as usize];
                if at != NONE {
                    row.push((at, source));
                }
            };
            let node = rows[k] as usize;
            if node < own {
                for e in a.row_ptr()[node]..a.row_ptr()[node + 1] {
                    let column = found.node(a.col()[e]);
                    if column != NONE {
                        add(column, e as u32);
                    }
                }
            } else {
                found.imported[node - own].iter().for_each(|&(column, source)| add(column, source));
            }
            if !row.iter().any(|&(at, _)| at as usize == k) {
                row.push((k as u32, NONE));
            }
            row.sort_unstable();
        },
    );
    rows.iter().for_each(|&node| place[node as usize] = NONE);
    pattern
}

/// Returns the pattern of ILU(`k`) for elimination in the order of the rows. In `from`, entries that `a` does
/// not have are [`NONE`].
///
/// # Errors
/// This thread's limits are reached, or its bound on operations is exceeded.
pub(super) fn filled(a: Pattern, k: usize, allowance: &Allowance) -> Result<Pattern> {
    if k == 0 {
        return Ok(a);
    }
    let (n, ended) = (a.len(), OnceLock::new());
    let found = by_rows(
        n,
        || Search::new(n),
        |search, i, row| {
            if ended.get().is_some() {
                return; // the result is not used
            }
            let operations = search.row(&a, i, k, row);
            if let Err(e) = allowance.spend(operations) {
                _ = ended.set(e);
            }
        },
    );
    ended.into_inner().map_or(Ok(found), Err)
}

/// Builds a pattern from the entries that `write` appends for each of `n` rows, by ascending column. `init`
/// creates the memory of a thread.
fn by_rows<S>(
    n: usize,
    init: impl Fn() -> S + Sync + Send,
    write: impl Fn(&mut S, usize, &mut Vec<(u32, u32)>) + Sync + Send,
) -> Pattern {
    type Piece = (Vec<usize>, Vec<u32>, Vec<u32>);
    let pieces: Vec<Piece> = (0..n.div_ceil(ROWS))
        .into_par_iter()
        .map_init(
            || (init(), Vec::new()),
            |(state, row), piece| {
                let (mut ends, mut col, mut from) = (Vec::new(), Vec::new(), Vec::new());
                for i in piece * ROWS..n.min((piece + 1) * ROWS) {
                    row.clear();
                    write(state, i, row);
                    col.extend(row.iter().map(|e| e.0));
                    from.extend(row.iter().map(|e| e.1));
                    ends.push(col.len());
                }
                (ends, col, from)
            },
        )
        .collect();
    let entries = pieces.iter().map(|piece| piece.1.len()).sum();
    let mut out = Pattern {
        row_ptr: Vec::with_capacity(n + 1),
        col: Vec::with_capacity(entries),
        from: Vec::with_capacity(entries),
    };
    out.row_ptr.push(0);
    for (ends, col, from) in pieces {
        let first = out.col.len();
        out.row_ptr.extend(ends.iter().map(|end| first + end));
        out.col.extend_from_slice(&col);
        out.from.extend_from_slice(&from);
    }
    out
}

/// Reusable memory of a thread.
struct Search {
    /// For each node, one more than the highest inner node of the best path to it: 0 for an edge, [`FAR`] if
    /// there is no path.
    limit: Vec<u32>,
    queued: Vec<bool>,
    reached: Vec<u32>,
    /// Nodes to which the last round found a better path, with the `limit` of that path.
    front: Vec<(u32, u32)>,
    next: Vec<u32>,
}

impl Search {
    fn new(n: usize) -> Self {
        Self {
            limit: vec![FAR; n],
            queued: vec![false; n],
            reached: Vec::new(),
            front: Vec::new(),
            next: Vec::new(),
        }
    }

    /// Appends row `i` of ILU(`k`) to `row`. Returns the number of entries that the search read.
    fn row(&mut self, a: &Pattern, i: usize, k: usize, row: &mut Vec<(u32, u32)>) -> u64 {
        let Self { limit, queued, reached, front, next } = self;
        let own = i as u32;
        reached.clear();
        front.clear();
        for &j in a.row(i).iter().filter(|&&j| j != own) {
            limit[j as usize] = 0;
            reached.push(j);
            if j < own {
                front.push((j, 0));
            }
        }
        let mut looked = 1 + reached.len() as u64;
        for _ in 0..k {
            if front.is_empty() {
                break;
            }
            for &(inner, before) in front.iter() {
                let new = before.max(inner + 1);
                looked += a.row(inner as usize).len() as u64;
                for &j in a.row(inner as usize).iter().filter(|&&j| j != own) {
                    let limit = &mut limit[j as usize];
                    if new >= *limit {
                        continue;
                    }
                    if *limit == FAR {
                        reached.push(j);
                    }
                    *limit = new;
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
        }
        row.push((own, NONE));
        row.extend(reached.iter().filter(|&&j| j > own || limit[j as usize] <= j).map(|&j| (j, NONE)));
        reached.iter().for_each(|&j| limit[j as usize] = FAR);
        row.sort_unstable();
        let mut at = 0;
        for e in a.row_ptr[i]..a.row_ptr[i + 1] {
            while row[at].0 != a.col[e] {
                at += 1;
            }
            row[at].1 = a.from[e];
        }
        looked
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
                let sums = a.filled(k, &Allowance::of_fill()).unwrap();
                let found =
                    filled(Pattern { row_ptr: row_ptr.clone(), ..a }, k, &Allowance::of_fill()).unwrap();
                let rows: Vec<Vec<u32>> = (0..n).map(|i| found.row(i).to_vec()).collect();
                assert!(rows == expected, "seed {seed}, k = {k}");
                assert!(found.from == sums.from, "seed {seed}, k = {k}: sources");
            }
        }
    }
}
