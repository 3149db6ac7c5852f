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

    /// Gathers nodes into connected clusters of up to `size`, nodes near the first one first; the cluster of each, and
    /// how many there are.
    #[cfg(feature = "metis")]
    pub fn clusters(&self, size: usize) -> (Vec<u32>, usize) {
        let n = self.row_ptr.len() - 1;
        let (mut labels, mut count, mut cluster) = (vec![u32::MAX; n], 0, Vec::with_capacity(size));
        for root in 0..n as u32 {
            if labels[root as usize] != u32::MAX {
                continue;
            }
            cluster.clear();
            cluster.push(root);
            labels[root as usize] = count;
            let mut next = 0;
            while next < cluster.len() && cluster.len() < size {
                for &j in self.neighbours(cluster[next]) {
                    if labels[j as usize] == u32::MAX && cluster.len() < size {
                        labels[j as usize] = count;
                        cluster.push(j);
                    }
                }
                next += 1;
            }
            count += 1;
        }
        (labels, count as usize)
    }

    /// The graph of clusters: who has neighbours in whom, and how many pairs of them.
    #[cfg(feature = "metis")]
    pub fn quotient(&self, labels: &[u32], count: usize) -> (Self, Vec<u32>) {
        let mut begin = vec![0usize; count + 1];
        labels.iter().for_each(|&c| begin[c as usize + 1] += 1);
        (0..count).for_each(|c| begin[c + 1] += begin[c]);
        let (mut next, mut members) = (begin.clone(), vec![0u32; labels.len()]);
        for (i, &c) in labels.iter().enumerate() {
            members[next[c as usize]] = i as u32;
            next[c as usize] += 1;
        }
        let (mut row_ptr, mut col, mut edges, mut row) = (vec![0], Vec::new(), Vec::new(), Vec::new());
        for c in 0..count {
            row.clear();
            for &i in &members[begin[c]..begin[c + 1]] {
                row.extend(
                    self.neighbours(i).iter().map(|&j| labels[j as usize]).filter(|&d| d as usize != c),
                );
            }
            row.sort_unstable();
            for same in row.chunk_by(|a, b| a == b) {
                col.push(same[0]);
                edges.push(same.len() as u32);
            }
            row_ptr.push(col.len());
        }
        (Self { row_ptr, col }, edges)
    }
}
