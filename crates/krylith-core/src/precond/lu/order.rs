//! Elimination orders of A + Aᵀ: minimum degree, and nested dissection if it saves more time than it takes.
//!
//! Unknowns with the same neighbours, such as those of one node of a mesh, are one vertex of the graph. So
//! are the two unknowns of a pivot of order 2.

use super::dissect;
use super::factors::Columns as Matrix;
use super::graph::Graph;
use super::tree::{Columns, Cost, Tree};
use crate::Result;
use crate::interrupt::Limits;
use crate::partition;
use crate::precond::direct::Dissection;
use rayon::prelude::*;

/// Graphs of more vertices than this are not ordered by minimum degree, which takes one thread.
const MANY: usize = 100_000;
/// Graphs of fewer vertices than this are not dissected.
const FEW: usize = 300;

// Measured on one core for 69 systems of 5,000 to 94,000 unknowns: flow, porous media, elasticity, Maxwell's
// equations, reactions, circuits and more.
/// Seconds of factors that a dissection saves, per operation by minimum degree. It halves the operations of
/// most systems in three dimensions, and saves a quarter in two. Pivots are also delayed less. The second
/// number is for L U, which delays more: an optimality system of 36,000 unknowns took 8 s instead of 49 s.
const SAVED: [f64; 2] = [0.1e-9, 0.2e-9];
/// Seconds of a dissection per vertex and per stored neighbour.
const DISSECT: [f64; 2] = [2.5e-6, 0.35e-6];
/// Largest ratio of operations at which a dissection replaces minimum degree, whose fronts are smaller. A
/// circuit of 28,000 unknowns takes 13 s by minimum degree, and 40 s by a dissection with 2 % less
/// operations.
const LESS: f64 = 0.95;

/// Seconds of an order by minimum degree, per unknown.
const DEGREE: f64 = 0.5e-6;
/// Unknowns of pairs are ordered one by one if that takes less than this share of the operations. More
/// pivots are then delayed. Factors of 53 systems below this share take 0.5 to 1 times as long. A periodic
/// flow of 27,000 unknowns with 0.8 of the operations takes 1.3 times as long.
const ONE_BY_ONE: f64 = 0.75;

/// Rows of a task.
const SHARE: usize = 4096;

/// The pattern of A + Aᵀ with its diagonal; rows ascend.
pub(super) struct Pattern {
    ptr: Vec<usize>,
    col: Vec<u32>,
}

impl Pattern {
    /// Builds the pattern of A + Aᵀ with its diagonal from ascending rows of A.
    pub fn of_rows(row_ptr: &[usize], col: &[u32]) -> Self {
        if is_mirrored(row_ptr, col) {
            return Self { ptr: row_ptr.to_vec(), col: col.to_vec() };
        }
        // The columns of a matrix, as here its rows, give the same pattern.
        let rows = col.iter().map(|&j| j as usize).collect();
        Self::new(&Matrix { col_ptr: row_ptr.to_vec(), rows, values: Vec::new() }, None)
    }

    /// Builds the pattern of a matrix whose row i stands at position `row_place[i]`, or of the matrix as it
    /// is if there is no such list.
    pub fn new(a: &Matrix, row_place: Option<&[u32]>) -> Self {
        let n = a.order();
        // Each column as the row of the transposed matrix, and each row.
        let at = |i: usize| row_place.map_or(i as u32, |place| place[i]);
        let mut row_ptr = vec![0usize; n + 1];
        a.rows.iter().for_each(|&i| row_ptr[at(i) as usize + 1] += 1);
        (0..n).for_each(|i| row_ptr[i + 1] += row_ptr[i]);
        let (mut next, mut by_rows) = (row_ptr.clone(), vec![0u32; a.rows.len()]);
        for j in 0..n {
            for &i in &a.rows[a.col_ptr[j]..a.col_ptr[j + 1]] {
                let i = at(i) as usize;
                by_rows[next[i]] = j as u32;
                next[i] += 1;
            }
        }
        let mut pattern = Self { ptr: Vec::with_capacity(n + 1), col: Vec::with_capacity(a.rows.len() + n) };
        pattern.ptr.push(0);
        let mut column = Vec::new();
        for j in 0..n {
            column.clear();
            column.extend(a.rows[a.col_ptr[j]..a.col_ptr[j + 1]].iter().map(|&i| at(i)));
            if row_place.is_some() {
                column.sort_unstable();
            }
            let row = &by_rows[row_ptr[j]..row_ptr[j + 1]];
            let begin = pattern.col.len();
            let (mut c, mut r) = (0, 0);
            while let (Some(&u), Some(&v)) = (column.get(c), row.get(r)) {
                pattern.col.push(u.min(v));
                c += usize::from(u <= v);
                r += usize::from(v <= u);
            }
            pattern.col.extend_from_slice(&column[c..]);
            pattern.col.extend_from_slice(&row[r..]);
            if let Err(at) = pattern.col[begin..].binary_search(&(j as u32)) {
                pattern.col.insert(begin + at, j as u32);
            }
            debug_assert!(pattern.col[begin..].is_sorted());
            pattern.ptr.push(pattern.col.len());
        }
        pattern
    }

    pub fn len(&self) -> usize {
        self.ptr.len() - 1
    }

    pub fn row(&self, i: u32) -> &[u32] {
        &self.col[self.ptr[i as usize]..self.ptr[i as usize + 1]]
    }

    /// Returns the vertex of each unknown, and the number of vertices. Unknowns with the same row are one
    /// vertex, and so are unknowns with the same number in `pairs`.
    fn vertices(&self, pairs: &[[u32; 2]]) -> (Vec<u32>, usize) {
        const NONE: u32 = u32::MAX;
        let n = self.len();
        let mut leader = partition::alike(&self.ptr, &self.col);
        if !pairs.is_empty() {
            let root = |leader: &[u32], mut i: u32| {
                while leader[i as usize] != i {
                    i = leader[i as usize];
                }
                i
            };
            let mut size = vec![0u32; n];
            leader.iter().for_each(|&i| size[i as usize] += 1);
            let mut is_joined = vec![false; n];
            for &[i, j] in pairs {
                let (a, b) = (root(&leader, i) as usize, root(&leader, j) as usize);
                // Pairs of larger vertices could make chains of vertices across the whole graph.
                let (both, once) = (size[a].min(size[b]) > 1, !is_joined[a] && !is_joined[b]);
                if a == b || both && !once {
                    continue;
                }
                let (into, from) = (a.min(b), a.max(b));
                leader[from] = into as u32;
                size[into] += size[from];
                is_joined[into] |= both || is_joined[from];
            }
            (0..n as u32).for_each(|i| leader[i as usize] = root(&leader, i));
        }
        let (mut vertex, mut count) = (vec![NONE; n], 0);
        for i in 0..n {
            if leader[i] as usize == i {
                vertex[i] = count;
                count += 1;
            } else {
                vertex[i] = vertex[leader[i] as usize];
            }
        }
        (vertex, count as usize)
    }

    /// Returns the graph in which unknowns with the same row are one vertex, and the unknowns of each vertex;
    /// `None` if each is one unknown.
    fn compressed(&self) -> (Graph, Option<Vec<Vec<u32>>>) {
        let (vertex, count) = self.vertices(&[]);
        if count == self.len() {
            return (self.graph_of_unknowns(), None);
        }
        let members = members(&vertex, count);
        (self.graph(&vertex, &members), Some(members))
    }

    /// Returns the graph of vertices that are one unknown each.
    fn graph_of_unknowns(&self) -> Graph {
        let n = self.len();
        let share = |first: usize| {
            let own = first..(first + SHARE).min(n);
            let rows = own.map(|i| self.row(i as u32).iter().copied().filter(move |&j| j as usize != i));
            let mut lengths = Vec::with_capacity(SHARE);
            let mut adj = Vec::new();
            for row in rows {
                let begin = adj.len();
                adj.extend(row);
                lengths.push((adj.len() - begin) as u32);
            }
            (lengths, adj)
        };
        let shares: Vec<_> = (0..n).into_par_iter().step_by(SHARE).map(share).collect();
        let mut graph = Graph { ptr: Vec::with_capacity(n + 1), size: vec![1; n], ..Default::default() };
        graph.adj.reserve_exact(shares.iter().map(|(_, adj)| adj.len()).sum());
        graph.ptr.push(0);
        for (lengths, adj) in shares {
            for length in lengths {
                graph.ptr.push(graph.ptr.last().map_or(0, |p| p + length));
            }
            graph.adj.extend(adj);
        }
        graph
    }

    /// Returns the graph of the vertices.
    fn graph(&self, vertex: &[u32], members: &[Vec<u32>]) -> Graph {
        let mut graph = Graph { ptr: vec![0], ..Default::default() };
        let mut seen = vec![u32::MAX; members.len()];
        for (v, own) in members.iter().enumerate() {
            seen[v] = v as u32;
            for &i in own {
                for &j in self.row(i) {
                    let u = vertex[j as usize];
                    if std::mem::replace(&mut seen[u as usize], v as u32) != v as u32 {
                        graph.adj.push(u);
                    }
                }
            }
            graph.ptr.push(graph.adj.len() as u32);
            graph.size.push(own.len() as u32);
        }
        graph
    }
}

/// Returns true if each row has its diagonal entry and the mirror of each of its entries. Rows ascend: row i
/// is then the next one in every column that it has.
fn is_mirrored(row_ptr: &[usize], col: &[u32]) -> bool {
    let mut next = row_ptr[..row_ptr.len() - 1].to_vec();
    let mut is_next = |i: usize, j: usize| {
        let at = next[j];
        next[j] += 1;
        at < row_ptr[j + 1] && col[at] as usize == i
    };
    (0..row_ptr.len() - 1).all(|i| {
        let row = &col[row_ptr[i]..row_ptr[i + 1]];
        row.binary_search(&(i as u32)).is_ok() && row.iter().all(|&j| is_next(i, j as usize))
    })
}

/// Returns the unknowns of each vertex.
fn members(vertex: &[u32], count: usize) -> Vec<Vec<u32>> {
    let mut members = vec![Vec::new(); count];
    vertex.iter().enumerate().for_each(|(i, &v)| members[v as usize].push(i as u32));
    members
}

/// The graph of vertices, and the unknowns of each vertex.
struct Vertices {
    graph: Graph,
    members: Vec<Vec<u32>>,
}

impl Vertices {
    fn new(pattern: &Pattern, pairs: &[[u32; 2]]) -> Self {
        let (vertex, count) = pattern.vertices(pairs);
        let members = members(&vertex, count);
        Self { graph: pattern.graph(&vertex, &members), members }
    }

    /// Returns the columns of L in this order of the vertices.
    fn expanded(&self, pattern: &Pattern, order: &[u32]) -> Columns {
        let unknowns = order.iter().flat_map(|&v| self.members[v as usize].iter().copied()).collect();
        Columns::new(pattern, unknowns)
    }

    /// Returns the columns of L in an order by minimum degree; `None` if there are too many vertices.
    ///
    /// # Errors
    /// Out of memory.
    fn by_degree(&self, pattern: &Pattern) -> Result<Option<Columns>> {
        if self.graph.len() > MANY {
            return Ok(None);
        }
        Ok(Some(self.expanded(pattern, &dissect::minimum_degree(&self.graph)?)))
    }
}

/// Returns the fronts of an order with little work, for symmetric factors or L U.
///
/// # Errors
/// Out of memory; the limits of the caller's work are reached.
pub(super) fn tree(
    pattern: &Pattern,
    symmetric: bool,
    pairs: &[[u32; 2]],
    limits: Option<&Limits>,
) -> Result<Tree> {
    let of_pairs = Vertices::new(pattern, pairs);
    let degree = of_pairs.by_degree(pattern)?;
    let saved = SAVED[usize::from(!symmetric)];
    // Pairs delay fewer pivots, but they fill more than the same unknowns one by one.
    let one_by_one = match &degree {
        Some(columns)
            if !pairs.is_empty() && saved * columns.cost().operations > DEGREE * pattern.len() as f64 =>
        {
            let vertices = Vertices::new(pattern, &[]);
            let found = vertices.by_degree(pattern)?.map(|columns| (vertices, columns));
            found.filter(|(_, own)| own.cost().operations < ONE_BY_ONE * columns.cost().operations)
        }
        _ => None,
    };
    let (mut vertices, degree) = match one_by_one {
        Some((vertices, columns)) => (vertices, Some(columns)),
        None => (of_pairs, degree),
    };
    let (count, edges) = (vertices.graph.len(), vertices.graph.adj.len());
    let seconds = DISSECT[0] * count as f64 + DISSECT[1] * edges as f64;
    let columns = match degree {
        Some(columns) if count < FEW || saved * columns.cost().operations < seconds => columns,
        degree => {
            let order = dissect::order(std::mem::take(&mut vertices.graph), limits)?;
            let dissected = vertices.expanded(pattern, &order);
            match degree {
                Some(degree) if LESS * degree.cost().operations < dissected.cost().operations => degree,
                _ => dissected,
            }
        }
    };
    Ok(columns.tree(pattern))
}

/// Dissects the graph of nodes with `block` unknowns each, and returns the order of the unknowns and the
/// sizes of `levels` levels of parts.
///
/// # Errors
/// Out of memory; the limits of the caller's work are reached.
pub(super) fn dissection(
    pattern: &Pattern,
    block: usize,
    levels: usize,
    limits: Option<&Limits>,
) -> Result<Dissection> {
    let (mut graph, members) = pattern.compressed();
    graph.size.iter_mut().for_each(|size| *size *= block as u32);
    let (mut order, parts) = dissect::order_with_parts(graph, levels, limits)?;
    if let Some(members) = members {
        order = order.iter().flat_map(|&v| members[v as usize].iter().copied()).collect();
    }
    if block > 1 {
        order = order.iter().flat_map(|&i| (0..block as u32).map(move |c| i * block as u32 + c)).collect();
    }
    Ok(Dissection { order, parts, levels })
}

/// Returns the pattern of A + Aᵀ for the square matrix with this pattern. Columns of a row may come in any
/// order, and twice.
fn pattern_of(row_ptr: &[usize], col: &[u32]) -> Pattern {
    if row_ptr.windows(2).all(|ends| col[ends[0]..ends[1]].is_sorted_by(|i, j| i < j)) {
        return Pattern::of_rows(row_ptr, col);
    }
    let (mut ptr, mut sorted) = (vec![0], Vec::with_capacity(col.len()));
    for ends in row_ptr.windows(2) {
        let mut row = col[ends[0]..ends[1]].to_vec();
        row.sort_unstable();
        row.dedup();
        sorted.append(&mut row);
        ptr.push(sorted.len());
    }
    Pattern::of_rows(&ptr, &sorted)
}

/// Returns the cost of L Lᵀ for A + Aᵀ in an order by minimum degree; `None` if memory is short, or if the
/// graph, in which unknowns with the same row are one vertex, has more than this `share` of the unknowns as
/// vertices. Columns of a row may come in any order, and twice.
pub(crate) fn cost_by_degree(row_ptr: &[usize], col: &[u32], share: f64) -> Option<Cost> {
    let pattern = pattern_of(row_ptr, col);
    let (vertex, count) = pattern.vertices(&[]);
    if count as f64 > share * pattern.len() as f64 {
        return None;
    }
    let members = members(&vertex, count);
    let vertices = Vertices { graph: pattern.graph(&vertex, &members), members };
    let order = dissect::minimum_degree(&vertices.graph).ok()?;
    Some(vertices.expanded(&pattern, &order).cost())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two unknowns of a node have the same row, and pairs connect each node to the next.
    #[test]
    fn pairs_make_no_chains_of_vertices() {
        let nodes = 400u32;
        let (mut ptr, mut col) = (vec![0], Vec::new());
        for i in 0..2 * nodes {
            let node = i / 2;
            col.extend(2 * node.saturating_sub(1)..(2 * node + 4).min(2 * nodes));
            ptr.push(col.len());
        }
        let pattern = Pattern::of_rows(&ptr, &col);
        let (_, alone) = pattern.vertices(&[]);
        assert_eq!(alone, nodes as usize);
        let pairs: Vec<[u32; 2]> = (0..nodes - 1).map(|k| [2 * k + 2, 2 * k + 1]).collect();
        let (vertex, count) = pattern.vertices(&pairs);
        let mut size = vec![0; count];
        vertex.iter().for_each(|&v| size[v as usize] += 1);
        assert!(size.iter().all(|size| (2..=4).contains(size)), "{size:?}");
        // Single unknowns always join their partners.
        let (vertex, _) = pattern.vertices(&[[0, 1]]);
        assert_eq!(vertex[0], vertex[1]);
    }
}
