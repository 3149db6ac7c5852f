//! The graph of A + Aᵀ: which own block rows are coupled, by any term, either way.

use crate::operator::Terms;

/// Neighbours of each node in compressed rows: ascending, each once, without the node itself.
pub(super) struct Adjacency {
    pub row_ptr: Vec<usize>,
    pub col: Vec<u32>,
}

impl Adjacency {
    /// Pattern of A + Aᵀ over all terms; ghost columns are left out.
    pub fn of(terms: &Terms) -> Self {
        let n = terms.block_rows();
        let all = if terms.shared_pattern() { &terms.terms[..1] } else { &terms.terms[..] };
        let edges = || {
            all.iter().flat_map(move |(_, a)| {
                let row = move |i: usize| {
                    a.col()[a.row_ptr()[i]..a.row_ptr()[i + 1]].iter().map(move |&j| (i, j as usize))
                };
                (0..n).flat_map(row).filter(move |&(i, j)| i != j && j < n)
            })
        };
        let mut begin = vec![0usize; n + 1];
        for (i, j) in edges() {
            begin[i + 1] += 1;
            begin[j + 1] += 1;
        }
        (0..n).for_each(|i| begin[i + 1] += begin[i]);
        let mut next = begin.clone();
        let mut col = vec![0u32; begin[n]];
        for (i, j) in edges() {
            col[next[i]] = j as u32;
            col[next[j]] = i as u32;
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
        Self { row_ptr, col }
    }

    /// Neighbours of node `i`.
    pub fn neighbours(&self, i: u32) -> &[u32] {
        &self.col[self.row_ptr[i as usize]..self.row_ptr[i as usize + 1]]
    }
}
