//! Matching of least cost: a cheap initial matching, then a shortest augmenting path for every unmatched row.

use super::NONE;
use crate::Result;
use crate::interrupt::Allowance;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// A matching and its dual variables.
pub(super) struct Found {
    /// The column of each row, or [`NONE`].
    pub column_of: Vec<u32>,
    /// The row of each column, or [`NONE`].
    pub row_of: Vec<u32>,
    /// Dual variables of rows: uᵢ + vⱼ ≤ c_ij, with equality on the matching.
    pub u: Vec<f64>,
    /// Dual variables of columns.
    pub v: Vec<f64>,
}

/// The pattern, with a cost ≥ 0 for every entry; infinite for a stored zero.
#[derive(Clone, Copy)]
struct Graph<'a> {
    row_ptr: &'a [usize],
    col: &'a [u32],
    costs: &'a [f64],
}

impl Graph<'_> {
    /// Iterates over columns and finite costs of a row.
    fn row(&self, i: usize) -> impl Iterator<Item = (usize, f64)> {
        let range = self.row_ptr[i]..self.row_ptr[i + 1];
        let entries = self.col[range.clone()].iter().zip(&self.costs[range]);
        entries.map(|(j, c)| (*j as usize, *c)).filter(|(_, c)| c.is_finite())
    }
}

/// Computes the largest matching of least cost of a square matrix of order n.
///
/// # Errors
/// The limits of this thread, including the limit on operations.
pub(super) fn least_cost(row_ptr: &[usize], col: &[u32], costs: &[f64], n: usize) -> Result<Found> {
    let graph = Graph { row_ptr, col, costs };
    let mut found = cheap(graph, n);
    let mut search = Search::new(n);
    let allowance = Allowance::here("matching rows with columns", "use direct factors, or matching=off");
    for i in 0..n {
        if found.column_of[i] == NONE {
            // One search may visit the whole graph.
            allowance.spend(search.operations)?;
            search.operations = 0;
            search.augment(graph, &mut found, i);
        }
    }
    // Unmatched rows did not take part in the dual updates.
    for i in (0..n).filter(|&i| found.column_of[i] == NONE) {
        found.u[i] = least(graph, &found.v, i);
    }
    Ok(found)
}

/// Returns min_j (c_ij − vⱼ); 0 for an empty row.
fn least(graph: Graph, v: &[f64], i: usize) -> f64 {
    let least = graph.row(i).fold(f64::INFINITY, |least, (j, c)| least.min(c - v[j]));
    if least.is_finite() { least } else { 0.0 }
}

/// Computes feasible duals, and an initial matching on entries with uᵢ + vⱼ = c_ij, moving at most one
/// matched row for each new one.
fn cheap(graph: Graph, n: usize) -> Found {
    let mut v = vec![f64::INFINITY; n];
    for i in 0..n {
        for (j, c) in graph.row(i) {
            v[j] = v[j].min(c);
        }
    }
    v.iter_mut().filter(|v| !v.is_finite()).for_each(|v| *v = 0.0);
    let u: Vec<f64> = (0..n).map(|i| least(graph, &v, i)).collect();
    let mut found = Found { column_of: vec![NONE; n], row_of: vec![NONE; n], u, v };
    // Match the diagonal first, so that a matrix with a good diagonal keeps it.
    for i in 0..n {
        if graph.row(i).any(|(j, c)| j == i && c - found.v[j] == found.u[i]) {
            found.join(i, i);
        }
    }
    for i in 0..n {
        if found.column_of[i] != NONE {
            continue;
        }
        let tight = |&(j, c): &(usize, f64), row: usize| c - found.v[j] == found.u[row];
        let free = |row| graph.row(row).filter(|e| tight(e, row)).find(|&(j, _)| found.row_of[j] == NONE);
        let mut moves = None;
        if let Some((j, _)) = free(i) {
            moves = Some((j, None));
        } else {
            for (j, _) in graph.row(i).filter(|e| tight(e, i)) {
                let other = found.row_of[j] as usize;
                if let Some((k, _)) = free(other) {
                    moves = Some((j, Some((other, k))));
                    break;
                }
            }
        }
        if let Some((j, other)) = moves {
            if let Some((other, k)) = other {
                found.join(other, k);
            }
            found.join(i, j);
        }
    }
    found
}

impl Found {
    fn join(&mut self, i: usize, j: usize) {
        (self.column_of[i], self.row_of[j]) = (j as u32, i as u32);
    }
}

/// Dijkstra's search over columns, with arrays reused for all rows.
struct Search {
    /// Length of the shortest path to each column, infinite where none is known.
    length: Vec<f64>,
    /// The row before each column on that path.
    before: Vec<u32>,
    /// The cost of the entry between them.
    cost: Vec<f64>,
    /// Columns whose shortest path is known.
    settled: Vec<bool>,
    /// Columns that a search has reached, and those that it has settled, in the order of their path lengths.
    reached: Vec<u32>,
    order: Vec<u32>,
    /// Path lengths as bits of non-negative numbers, which have the same order; ties go to the first column.
    heap: BinaryHeap<Reverse<(u64, u32)>>,
    /// Operations of the last search.
    operations: u64,
}

/// Operations counted per visited entry, and per entry pushed to and popped from the heap.
const ENTRY: u64 = 4;
const ON_HEAP: u64 = 64;

impl Search {
    fn new(n: usize) -> Self {
        Self {
            length: vec![f64::INFINITY; n],
            before: vec![NONE; n],
            cost: vec![0.0; n],
            settled: vec![false; n],
            reached: Vec::new(),
            order: Vec::new(),
            heap: BinaryHeap::new(),
            operations: 0,
        }
    }

    /// Matches row `root` along a shortest path to a free column, if there is one.
    fn augment(&mut self, graph: Graph, found: &mut Found, root: usize) {
        // The shortest path to a free column so far.
        let (mut end, mut shortest) = (NONE, f64::INFINITY);
        let (mut row, mut so_far, mut u) = (root, 0.0, found.u[root]);
        loop {
            self.operations += ENTRY * (graph.row_ptr[row + 1] - graph.row_ptr[row]) as u64;
            for (j, c) in graph.row(row) {
                if self.settled[j] {
                    continue;
                }
                // Rounding may leave a reduced cost below zero.
                let length = so_far + (c - u - found.v[j]).max(0.0);
                if length >= shortest || length >= self.length[j] {
                    continue;
                }
                if self.length[j].is_infinite() {
                    self.reached.push(j as u32);
                }
                (self.length[j], self.before[j], self.cost[j]) = (length, row as u32, c);
                if found.row_of[j] == NONE {
                    (end, shortest) = (j as u32, length);
                } else {
                    self.operations += ON_HEAP;
                    self.heap.push(Reverse((length.to_bits(), j as u32)));
                }
            }
            let next = loop {
                match self.heap.pop() {
                    Some(Reverse((bits, j)))
                        if self.settled[j as usize] || f64::from_bits(bits) > self.length[j as usize] => {}
                    other => break other,
                }
            };
            let Some(Reverse((bits, j))) = next else { break };
            so_far = f64::from_bits(bits);
            if so_far >= shortest {
                break;
            }
            self.settled[j as usize] = true;
            self.order.push(j);
            row = found.row_of[j as usize] as usize;
            u = found.u[row];
        }
        if end != NONE {
            self.update(found, root, end, shortest);
        }
        for j in self.reached.drain(..) {
            (self.length[j as usize], self.settled[j as usize]) = (f64::INFINITY, false);
        }
        self.order.clear();
        self.heap.clear();
    }

    /// Updates the duals, so that the entries of the path are tight, and the matching along the path.
    fn update(&mut self, found: &mut Found, root: usize, end: u32, shortest: f64) {
        for &j in &self.order {
            let (j, by) = (j as usize, shortest - self.length[j as usize]);
            found.v[j] -= by;
            found.u[found.row_of[j] as usize] += by;
        }
        found.u[root] += shortest;
        let mut j = end as usize;
        loop {
            let i = self.before[j] as usize;
            let next = found.column_of[i];
            // Exactly equal, so that rounding errors of many paths do not accumulate.
            found.u[i] = self.cost[j] - found.v[j];
            found.join(i, j);
            if i == root {
                break;
            }
            j = next as usize;
        }
    }
}
