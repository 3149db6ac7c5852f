//! Breadth-first searches in graphs, and rows with the same columns.

use rayon::prelude::*;

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

/// Nodes of a graph in groups. The nodes of a group are neighbours of each other, and have the same other
/// neighbours.
pub(crate) struct Groups {
    /// Group of each node. Groups are numbered by their first nodes.
    pub of: Vec<u32>,
    /// Group g has the nodes `nodes[ptr[g]..ptr[g + 1]]`, ascending.
    pub ptr: Vec<usize>,
    pub nodes: Vec<u32>,
}

impl Groups {
    /// Finds groups of rows with the same columns in a symmetric pattern with all diagonal entries.
    pub fn of_rows(ptr: &[usize], col: &[u32]) -> Self {
        let leader = alike(ptr, col);
        let (mut of, mut ends) = (vec![0u32; leader.len()], vec![0usize]);
        for (i, &first) in leader.iter().enumerate() {
            of[i] = match first as usize == i {
                true => {
                    ends.push(0);
                    ends.len() as u32 - 2
                }
                false => of[first as usize],
            };
            ends[of[i] as usize + 1] += 1;
        }
        (1..ends.len()).for_each(|g| ends[g] += ends[g - 1]);
        let (mut next, mut nodes) = (ends.clone(), vec![0u32; of.len()]);
        for (i, &g) in of.iter().enumerate() {
            nodes[next[g as usize]] = i as u32;
            next[g as usize] += 1;
        }
        Self { of, ptr: ends, nodes }
    }

    /// Returns the number of groups.
    pub fn count(&self) -> usize {
        self.ptr.len() - 1
    }

    /// Returns the nodes of a group.
    pub fn nodes(&self, g: usize) -> &[u32] {
        &self.nodes[self.ptr[g]..self.ptr[g + 1]]
    }

    /// Returns the beginning of each group's list of other groups to which it is coupled, and these lists.
    fn neighbours(&self, ptr: &[usize], col: &[u32]) -> (Vec<usize>, Vec<u32>) {
        let (mut ends, mut adj, mut seen) = (vec![0], Vec::new(), vec![u32::MAX; self.count()]);
        for g in 0..self.count() {
            let first = self.nodes(g)[0] as usize;
            seen[g] = g as u32;
            for &j in &col[ptr[first]..ptr[first + 1]] {
                let other = self.of[j as usize];
                if std::mem::replace(&mut seen[other as usize], g as u32) != g as u32 {
                    adj.push(other);
                }
            }
            ends.push(adj.len());
        }
        (ends, adj)
    }

    /// Returns the order of [`reverse_cuthill_mckee`] for the symmetric pattern from which the groups come.
    pub fn reverse_cuthill_mckee(&self, ptr: &[usize], col: &[u32]) -> Vec<u32> {
        const DONE: u8 = 3;
        let (ends, adj) = self.neighbours(ptr, col);
        let key = |i: u32| ((ptr[i as usize + 1] - ptr[i as usize]) as u64) << 32 | u64::from(i);
        let (mut reached, mut expanded) = (vec![0u8; self.count()], vec![0u8; self.count()]);
        let mut order: Vec<u32> = Vec::with_capacity(self.of.len());
        let mut found: Vec<u64> = Vec::new();
        for root in 0..self.of.len() as u32 {
            if reached[self.of[root as usize] as usize] == DONE {
                continue;
            }
            let (begin, mut start) = (order.len(), root);
            // The searches are those of `from_far_nodes`. The nodes of a group are all found at once, but for
            // the first one of a search.
            for mark in 1..=DONE {
                order.truncate(begin);
                order.push(start);
                let mut at = begin;
                while at < order.len() {
                    let g = self.of[order[at] as usize] as usize;
                    at += 1;
                    if std::mem::replace(&mut expanded[g], mark) == mark {
                        continue;
                    }
                    found.clear();
                    let own = std::iter::once(g as u32).chain(adj[ends[g]..ends[g + 1]].iter().copied());
                    for other in own {
                        if std::mem::replace(&mut reached[other as usize], mark) != mark {
                            let nodes = self.nodes(other as usize).iter().filter(|&&i| i != start);
                            found.extend(nodes.map(|&i| key(i)));
                        }
                    }
                    found.sort_unstable();
                    order.extend(found.iter().map(|&key| key as u32));
                }
                start = order[order.len() - 1];
            }
        }
        order.reverse();
        order
    }
}

/// Returns for each row of a pattern the first row with the same columns, which may be itself. Rows are
/// compared only with those to which they are coupled. Columns ascend.
pub(crate) fn alike(ptr: &[usize], col: &[u32]) -> Vec<u32> {
    const NONE: u32 = u32::MAX;
    /// Number of rows of one task.
    const SHARE: usize = 4096;
    let n = ptr.len() - 1;
    let row = |i: u32| &col[ptr[i as usize]..ptr[i as usize + 1]];
    let mix = |i: u32| u64::from(i).wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(23);
    let hash = |i: u32| row(i).iter().fold(0u64, |h, &j| h.wrapping_add(mix(j)));
    let hash: Vec<u64> = (0..n as u32).into_par_iter().with_min_len(SHARE).map(hash).collect();
    let mut leader = vec![NONE; n];
    for i in 0..n as u32 {
        if leader[i as usize] != NONE {
            continue;
        }
        leader[i as usize] = i;
        for &j in row(i).iter().filter(|&&j| j > i) {
            let alike = hash[j as usize] == hash[i as usize] && leader[j as usize] == NONE;
            if alike && row(j) == row(i) {
                leader[j as usize] = i;
            }
        }
    }
    leader
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Grids of nodes with several unknowns, in two orders of the unknowns, in two components.
    #[test]
    fn groups_have_the_order_of_their_nodes() {
        for (unknowns, by_node) in [(1, true), (3, true), (3, false), (4, false)] {
            let [w, h, count] = [9usize, 7, 2];
            let nodes = w * h * count;
            let number = |k: usize, c: usize| if by_node { k * unknowns + c } else { c * nodes + k };
            let mut rows = vec![Vec::new(); nodes * unknowns];
            for k in 0..nodes {
                let (x, y, z) = (k % w, k / w % h, k / (w * h));
                // One node in five has fewer unknowns that couple.
                let size = |k: usize| if k.is_multiple_of(5) { 1 } else { unknowns };
                let near = |a: usize, b: usize| a.abs_diff(b) <= 1;
                let others = (0..nodes).filter(|o| near(o % w, x) && near(o / w % h, y) && o / (w * h) == z);
                for other in others {
                    for c in 0..size(k) {
                        let columns = (0..size(other)).map(|d| number(other, d) as u32);
                        rows[number(k, c)].extend(columns);
                    }
                }
                (size(k)..unknowns).for_each(|c| rows[number(k, c)].push(number(k, c) as u32));
            }
            rows.iter_mut().for_each(|row| row.sort_unstable());
            let ptr: Vec<usize> = std::iter::once(0)
                .chain(rows.iter().scan(0, |end, row| {
                    *end += row.len();
                    Some(*end)
                }))
                .collect();
            let col = rows.concat();
            let groups = Groups::of_rows(&ptr, &col);
            let single = (0..nodes).filter(|k| k.is_multiple_of(5)).count();
            assert_eq!(groups.count(), nodes + single * (unknowns - 1));
            let (mut without, mut others) = (vec![0], Vec::new());
            for i in 0..rows.len() {
                others.extend(rows[i].iter().copied().filter(|&j| j as usize != i));
                without.push(others.len());
            }
            let wanted = reverse_cuthill_mckee(&without, &mut others);
            assert_eq!(groups.reverse_cuthill_mckee(&ptr, &col), wanted, "{unknowns} {by_node}");
        }
    }
}
