//! k-way partitions of the matrix's graph by METIS.

use super::Partition;
use super::partitioner::weights;
use crate::operator::Terms;
use crate::{Error, Result};
use metis::option::Seed;
use metis::{Graph, Idx};
use std::sync::Mutex;

/// The same parts every time.
const SEED: Idx = 1;

/// METIS draws from the C library's one random number generator: two calls at once would disturb each other.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

impl Partition {
    /// Multilevel k-way partition (Karypis and Kumar, 1998) that cuts few edges of the graph of A + Aᵀ, all terms
    /// together; rows weigh what they store. The same on every run. METIS works on one thread.
    ///
    /// # Errors
    /// No rank; a graph with more than 2³¹ − 1 edges, both ways counted, or weights that sum to more.
    pub fn graph(terms: &Terms, ranks: usize) -> Result<Self> {
        let n = terms.block_rows();
        if ranks <= 1 || n <= ranks {
            return Self::by_rows(n, ranks); // nothing to choose
        }
        let weights = weights(terms);
        let (row_ptr, col) = symmetric(terms);
        let total = weights.iter().sum::<u64>().max(col.len() as u64).max(n as u64 + 1).max(ranks as u64);
        if total > Idx::MAX as u64 {
            return Err(Error::invalid(format!(
                "a graph partition of {n} block rows with {} edges is beyond METIS's 32-bit numbers; take the \
                 geometric one, or one by nonzeros",
                col.len()
            )));
        }
        let weights: Vec<Idx> = weights.iter().map(|&w| w as Idx).collect();
        let row_ptr: Vec<Idx> = row_ptr.iter().map(|&p| p as Idx).collect();
        let mut owner = vec![0; n];
        let failed = |why: String| Error::invalid(format!("METIS: {why}; take another partition"));
        let guard = ONE_AT_A_TIME.lock().unwrap_or_else(|e| e.into_inner());
        Graph::new(1, ranks as Idx, &row_ptr, &col)
            .map_err(|e| failed(e.to_string()))?
            .set_vwgt(&weights)
            .set_option(Seed(SEED))
            .part_kway(&mut owner)
            .map_err(|e| failed(e.to_string()))?;
        drop(guard);
        let mut partition = Self::new(owner.into_iter().map(|r| r as u32).collect(), ranks)?;
        partition.fill_empty_ranks();
        Ok(partition)
    }

    /// METIS may leave ranks empty where rows are few or heavy: each gets a row of the rank that has most.
    fn fill_empty_ranks(&mut self) {
        let mut count = vec![0usize; self.ranks];
        self.owner.iter().for_each(|&r| count[r as usize] += 1);
        while let Some(empty) = count.iter().position(|&c| c == 0) {
            let Some(largest) = (0..self.ranks).max_by_key(|&r| (count[r], std::cmp::Reverse(r))) else {
                return;
            };
            let Some(row) = self.owner.iter().rposition(|&r| r as usize == largest) else { return };
            if count[largest] < 2 {
                return;
            }
            self.owner[row] = empty as u32;
            count[largest] -= 1;
            count[empty] += 1;
        }
    }
}

/// Pattern of A + Aᵀ over all terms, without its diagonal, in compressed rows.
fn symmetric(terms: &Terms) -> (Vec<usize>, Vec<Idx>) {
    let n = terms.block_rows();
    let all = if terms.shared_pattern() { &terms.terms[..1] } else { &terms.terms[..] };
    let edges = || {
        all.iter().flat_map(move |(_, a)| {
            let row = move |i: usize| {
                a.col()[a.row_ptr()[i]..a.row_ptr()[i + 1]].iter().map(move |&j| (i, j as usize))
            };
            (0..n).flat_map(row).filter(|(i, j)| i != j)
        })
    };
    let mut begin = vec![0usize; n + 1];
    for (i, j) in edges() {
        begin[i + 1] += 1;
        begin[j + 1] += 1;
    }
    (0..n).for_each(|i| begin[i + 1] += begin[i]);
    let mut next = begin.clone();
    let mut col = vec![0 as Idx; begin[n]];
    for (i, j) in edges() {
        col[next[i]] = j as Idx;
        col[next[j]] = i as Idx;
        next[i] += 1;
        next[j] += 1;
    }
    // Sorted, and each neighbour once, in place.
    let (mut row_ptr, mut kept) = (Vec::with_capacity(n + 1), 0);
    row_ptr.push(0);
    for i in 0..n {
        col[begin[i]..begin[i + 1]].sort_unstable();
        let first = kept;
        for p in begin[i]..begin[i + 1] {
            if kept == first || col[kept - 1] != col[p] {
                col[kept] = col[p];
                kept += 1;
            }
        }
        row_ptr.push(kept);
    }
    col.truncate(kept);
    (row_ptr, col)
}
