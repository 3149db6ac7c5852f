//! Breadth-first searches in graphs.

/// Returns the reverse Cuthill–McKee order of a graph (George and Liu 1981): the nodes, first to last. In
/// each connected component a breadth-first search starts far from the other nodes and visits neighbours by
/// degree. Then the order is reversed.
///
/// Node i has the neighbours `neighbours[ptr[i]..ptr[i + 1]]`, itself excluded, which are sorted by degree. A
/// neighbour may be listed twice.
///
/// ```
/// use krylith_core::partition::reverse_cuthill_mckee;
/// // The path 1 – 0 – 2: neighbours in the path become neighbours in number.
/// let order = reverse_cuthill_mckee(&[0, 2, 3, 4], &mut [1, 2, 0, 0]);
/// assert_eq!(order[1], 0);
/// ```
pub fn reverse_cuthill_mckee(ptr: &[usize], neighbours: &mut [u32]) -> Vec<u32> {
    let degree = |i: u32| ptr[i as usize + 1] - ptr[i as usize];
    for i in 0..ptr.len() - 1 {
        neighbours[ptr[i]..ptr[i + 1]].sort_unstable_by_key(|&j| (degree(j), j));
    }
    let mut order = from_far_nodes(ptr, neighbours);
    order.reverse();
    order
}

/// Returns the nodes of a graph in the order of breadth-first searches, one for each connected component,
/// from a node far from the others. Node i has the neighbours `col[ptr[i]..ptr[i + 1]]`, which are visited in
/// this order; a neighbour may be listed twice.
pub(crate) fn from_far_nodes(ptr: &[usize], col: &[u32]) -> Vec<u32> {
    const DONE: u8 = 3;
    let n = ptr.len() - 1;
    let mut seen = vec![0u8; n];
    let mut order: Vec<u32> = Vec::with_capacity(n);
    for root in 0..n as u32 {
        if seen[root as usize] == DONE {
            continue;
        }
        let (begin, mut start) = (order.len(), root);
        // The last node of a search is far from its start. So the second and third searches start at the last
        // node of the search before, and the order of the third is kept.
        for mark in 1..=DONE {
            order.truncate(begin);
            order.push(start);
            seen[start as usize] = mark;
            let mut at = begin;
            while at < order.len() {
                let i = order[at] as usize;
                at += 1;
                for &j in &col[ptr[i]..ptr[i + 1]] {
                    if seen[j as usize] != mark {
                        seen[j as usize] = mark;
                        order.push(j);
                    }
                }
            }
            start = order[order.len() - 1];
        }
    }
    order
}
