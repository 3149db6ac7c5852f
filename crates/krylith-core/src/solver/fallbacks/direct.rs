//! Estimates the cost of sparse direct factors without computing an ordering. Breadth-first levels of the
//! graph are separators, whose sizes give an estimate of the fill.

use super::rules::{POROUS_SPLIT, SPLIT};
use crate::fields::Coupled;
use crate::matrix::Arrays;
use crate::operator::Terms;
use crate::options::Options;
use crate::precond::PrecondSpec;
use crate::problem::LocalProblem;
use crate::solver::symmetric::convective;
use std::borrow::Cow;

/// Largest number of unknowns for which the graph is analysed, on the host and on a GPU. A solve of the
/// second size on a GPU takes some milliseconds.
const LOOKED_AT: [usize; 2] = [1 << 18, 1 << 13];

/// Estimated seconds of the parts of an attempt, which are only compared with each other. They assume one
/// core, so that choices do not depend on the number of threads.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Costs {
    /// Seconds of sparse direct factors; infinite if they were not estimated.
    pub direct: f64,
    /// True if an elimination order gave this estimate.
    pub is_close: bool,
    /// Seconds of incomplete factors of subdomains.
    pub incomplete: f64,
    /// Seconds of one iteration of CG with incomplete factors. An iteration of BiCGSTAB takes twice as long.
    pub iteration: f64,
    /// True if the estimates are for a GPU.
    pub on_gpu: bool,
    /// The largest ratio, over all rows, of the sum of off-diagonal magnitudes to the diagonal magnitude;
    /// infinite if it was not computed.
    pub others: f64,
    /// Number of breadth-first levels of the graph, about its diameter; zero if it was not computed.
    pub levels: usize,
    /// The share of couplings that convection dominates; zero if they were not counted.
    pub convective: f64,
}

// The constants were measured on one core for 2-D and 3-D grids, and for flow, elasticity, porous media,
// reactions and Maxwell's equations with elements of order 1 and 2, of 400 to 160,000 unknowns. The estimates
// of 25 such systems are 0.57 to 2.1 times the measured seconds (bench/runs/2026-11-29-cpu-bare).
/// Seconds of a direct factorisation per entry of L, per cube of a separator, per unknown and per entry of A.
const FACTOR: [f64; 4] = [17e-9, 0.4e-9, 1.4e-6, 0.12e-6];
/// Seconds per unknown to dissect a graph, and the share of the time per cube of a separator that a minimum
/// degree order takes longer. The order with less time is used, but graphs of more nodes than the last number
/// are dissected.
const DISSECT: f64 = 4.6e-6;
const BY_DEGREE: f64 = 0.6;
const DISSECTED: f64 = 100_000.0;
/// Cost of L and U with pivoting, as a multiple of the cost of L alone.
const PIVOTS: f64 = 1.3;
/// Size of the separators of edge elements, as a share of the width of levels. Each level has edges within a
/// layer of nodes and edges across, and a separator has those within. Measured: 0.54 and 0.63 for tetrahedra
/// of 21,000 and 90,000 edges.
const EDGES: f64 = 0.6;
/// The same for an estimate by minimum degree: seconds per entry of L, per operation, per unknown and per
/// entry of A, of L Lᵀ and of L U. The estimates of 66 systems of other codes and of the same sizes are 0.6
/// to 1.9 times the measured seconds, except that pivots delayed to later fronts may take four times as long.
/// Those by levels are 0.3 to 36 times the measured seconds.
const BY_ORDER: [[f64; 4]; 2] = [[63e-9, 4.8e-12, 0.1e-6, 0.1e-6], [63e-9, 6.6e-12, 0.5e-6, 0.27e-6]];
/// Largest ratio of an estimate by minimum degree to one by levels, as a dissection replaces an order by
/// degree that is much worse.
pub(super) const WORSE: f64 = 2.0;
/// Systems of fewer unknowns are factorised without fronts. Their cost per entry of L and per unknown, and
/// that of pivots.
const SMALL: usize = 1500;
const FACTOR_SMALL: [f64; 2] = [25e-9, 0.3e-6];
const PIVOTS_SMALL: f64 = 3.0;
/// Seconds of incomplete factorisation per entry, and of cutting subdomains per block.
const INCOMPLETE: [f64; 2] = [50e-9, 200e-9];
/// Seconds of one iteration per entry.
const ITERATION: f64 = 2.2e-9;
/// Host systems with at most this many unknowns form one subdomain.
pub(super) const WHOLE: usize = 1 << 18;
/// Direct factors that are estimated to take up to this multiple of the time of a split are estimated by an
/// elimination order before the split, which takes 3 to 15 % of their time. Otherwise a split that fails
/// takes as long as the factors: 0.2 of 0.45 s for a contact problem of 27,000 unknowns. The second number
/// is for graphs of at most this share of vertices, as of elements of high order, whose levels are wide.
const UNSURE: [f64; 2] = [4.0, 15.0];
const SHARE: f64 = 2.0 / 3.0;
/// Seconds on a GPU for an incomplete factorisation, and for an iteration.
const GPU: [f64; 2] = [3e-3, 50e-6];

impl Default for Costs {
    fn default() -> Self {
        Self {
            direct: f64::INFINITY,
            is_close: false,
            incomplete: 0.0,
            iteration: 1.0,
            on_gpu: false,
            others: f64::INFINITY,
            levels: 0,
            convective: 0.0,
        }
    }
}

/// Estimates the costs of this system if `auto` chooses the preconditioner; [`Costs::default`] unless the
/// system is on one rank and small enough to analyse.
pub(crate) fn costs(local: &LocalProblem, options: &Options, symmetric: bool, on_gpu: bool) -> Costs {
    match options.precond_or_auto() {
        PrecondSpec::Auto => {
            let counted = (!symmetric && is_alone(local)).then(|| convective(local.terms)).flatten();
            Costs { convective: counted.unwrap_or_default(), ..Costs::of(local, symmetric, on_gpu) }
        }
        _ => Costs::default(),
    }
}

/// Estimates the seconds of direct factors more closely than by levels, from an order by minimum degree. It
/// takes 3 to 15 % of the time of the factors. Returns `None` unless the matrix is in host memory.
pub(crate) fn by_order(local: &LocalProblem, symmetric: bool, share: f64) -> Option<f64> {
    let (terms, order) = (local.terms, local.order() as f64);
    if terms.terms.iter().any(|(_, a)| a.storage().is_on_device_alone()) {
        return None;
    }
    let [numbers, operations] = cost_by_degree(terms, share)?;
    let kind = local.fields.recognised().map(|found| found.kind);
    let symmetric = symmetric || matches!(kind, Some(Coupled::Flux | Coupled::Viscous | Coupled::Porous));
    let [number, operation, unknown, entry] = BY_ORDER[usize::from(!symmetric)];
    let factors = number * numbers * order.powi(2) + operation * operations * order.powi(3);
    Some(factors + unknown * local.unknowns as f64 + entry * entries(terms, local.order()))
}

/// Returns the number of blocks of all terms.
fn blocks(terms: &Terms) -> usize {
    terms.terms.iter().map(|(_, a)| a.blocks()).sum()
}

/// Returns the number of entries of blocks of this order, which may have several stages.
fn entries(terms: &Terms, order: usize) -> f64 {
    (blocks(terms) * terms.block() * order) as f64
}

/// Returns true if this rank has the whole matrix, which is square.
fn is_alone(local: &LocalProblem) -> bool {
    local.comm.size() == 1 && local.numbers.is_none() && local.terms.is_square()
}

impl Costs {
    fn of(local: &LocalProblem, symmetric: bool, on_gpu: bool) -> Self {
        if !is_alone(local) || !cfg!(feature = "lu") || local.unknowns > LOOKED_AT[usize::from(on_gpu)] {
            return Self { on_gpu, ..Self::default() };
        }
        let (terms, order) = (local.terms, local.order());
        let entries = entries(terms, order);
        let cut = if local.unknowns > WHOLE { INCOMPLETE[1] * blocks(terms) as f64 } else { 0.0 };
        let (incomplete, iteration) = match on_gpu {
            false => (INCOMPLETE[0] * entries + cut, ITERATION * entries),
            true => (GPU[0], GPU[1]),
        };
        let mut graph = Levels::of(terms, symmetric);
        let kind = local.fields.recognised().map(|found| found.kind);
        if kind == Some(Coupled::CurlCurl) {
            graph.scale(EDGES);
        }
        let mut costs = Self {
            direct: graph.seconds(terms.block_rows(), order as f64, entries, symmetric),
            is_close: false,
            incomplete,
            iteration,
            on_gpu,
            others: others(terms),
            levels: graph.parts.iter().map(|part| part.levels).max().unwrap_or(0),
            convective: 0.0,
        };
        if !on_gpu {
            costs.refine_beside_split(local, kind, symmetric);
        }
        costs
    }

    /// Estimates direct factors more closely if they may take about as long as the split of this system.
    fn refine_beside_split(&mut self, local: &LocalProblem, kind: Option<Coupled>, symmetric: bool) {
        let times = match kind {
            Some(Coupled::Flux | Coupled::Viscous | Coupled::Convected) => SPLIT[0],
            Some(Coupled::Porous) => POROUS_SPLIT,
            _ => return,
        };
        let ratio = self.direct / (times * self.iteration);
        let share = if ratio <= UNSURE[0] { 1.0 } else { SHARE };
        if ratio > 1.0 && ratio <= UNSURE[1] {
            let known = by_order(local, symmetric, share);
            self.is_close = known.is_some() || share == 1.0;
            self.direct = known.map_or(self.direct, |known| known.min(WORSE * self.direct));
        }
    }
}

/// Returns max Σ |aᵢⱼ|/|aᵢᵢ| over j ≠ i for a single matrix with scalar rows. If it is below 1, it bounds the
/// condition number of the Jacobi-scaled system, and so the number of iterations.
fn others(terms: &Terms) -> f64 {
    use rayon::prelude::*;
    let [(_, a)] = &terms.terms[..] else { return f64::INFINITY };
    if terms.block() * terms.stages() > 1 {
        return f64::INFINITY;
    }
    let (n, a) = (a.block_rows(), Arrays::of(a));
    let row = |i: usize| {
        let (mut diagonal, mut sum) = (0.0, 0.0);
        for (&j, v) in a.col[a.row(i)].iter().zip(&a.values[a.row(i)]) {
            // There is no branch and no store per entry, because each entry would then wait for the previous
            // one.
            let is_diagonal = j as usize == i;
            diagonal += if is_diagonal { v.abs() } else { 0.0 };
            sum += if is_diagonal { 0.0 } else { v.abs() };
        }
        if diagonal > 0.0 { sum / diagonal } else { f64::INFINITY }
    };
    (0..n).into_par_iter().with_min_len(4096).map(row).reduce(|| 0.0, f64::max)
}

/// Breadth-first levels of the graph of A + Aᵀ, in whose separators the factors by fronts have their fill. If
/// few entries are mirrored, rows are matched with columns first, and the graph of A + Aᵀ says nothing. The
/// column graph replaces it, in which two columns are neighbours if some row has entries in both. It does not
/// depend on the order of rows, and its separators bound the fill for any pivots (George and Ng 1987).
struct Levels {
    parts: Vec<Part>,
    /// Number of rows, or columns, left out because they have too many entries.
    dense: usize,
}

/// A connected part of the graph.
struct Part {
    /// Largest number of vertices of a level with a neighbour in the next level. They separate the graph,
    /// without the rest of a level that spans several layers of nodes, as for quadratic elements. In the
    /// column graph, half of the largest level, because a level there spans two levels of the matrix graph.
    width: usize,
    levels: usize,
}

impl Part {
    /// Estimates Σ (separator size)^`power`. A long part counts as a row of square parts.
    fn separators(&self, power: i32) -> f64 {
        let width = self.width as f64;
        width.powi(power) * (self.levels as f64 / width).max(1.0)
    }
}

impl Levels {
    fn of(terms: &Terms, symmetric: bool) -> Self {
        let mut graph = Graph::of(terms, symmetric);
        let dense = |met: &[u8]| met.iter().filter(|&&met| met == NEVER).count();
        let dense = dense(&graph.met).max(dense(&graph.met_row));
        let (mut parts, mut queue) = (Vec::new(), Vec::with_capacity(2 * graph.met.len()));
        for start in 0..graph.met.len() {
            if graph.met[start] == 0 {
                // The second pass starts from the far end that the first pass found, so that levels are many
                // and narrow.
                let (_, far) = graph.pass(1, start, &mut queue);
                parts.push(graph.pass(2, far, &mut queue).0);
            }
        }
        Self { parts, dense }
    }

    /// Corrects the widths of the parts by a factor.
    fn scale(&mut self, factor: f64) {
        self.parts.iter_mut().for_each(|part| part.width = (factor * part.width as f64).ceil() as usize);
    }

    fn widest(&self) -> f64 {
        self.parts.iter().map(|part| part.width).max().unwrap_or(1) as f64
    }

    /// Estimates the blocks of a Cholesky factor of `rows` rows under nested dissection whose largest
    /// separator is the widest level. For grids George (1973) finds terms of the order of n log₂ w and w²,
    /// where w is the size of that separator. The factors of these terms are fitted to measurements.
    fn fill(&self, rows: usize) -> f64 {
        let n = rows as f64;
        let parts: f64 = self.parts.iter().map(|part| part.separators(2)).sum();
        3.0 * n * (1.0 + self.widest()).log2() + 12.0 * parts + n * self.dense as f64
    }

    /// Estimates the seconds of factors of `rows` rows of blocks of this order with this many entries.
    fn seconds(&self, rows: usize, order: f64, entries: f64, symmetric: bool) -> f64 {
        let nodes = rows as f64;
        if nodes * order < SMALL as f64 {
            let pivots = if symmetric { 1.0 } else { PIVOTS_SMALL };
            let numbers = self.fill(rows) * order * order;
            return pivots * FACTOR_SMALL[0] * numbers + FACTOR_SMALL[1] * nodes * order;
        }
        let cubes: f64 = self.parts.iter().map(|part| part.separators(3)).sum::<f64>() * order.powi(3);
        let pivots = if symmetric { 1.0 } else { PIVOTS };
        let factors = pivots * (FACTOR[0] * self.fill(rows) * order * order + FACTOR[1] * cubes);
        let by_degree = if nodes > DISSECTED { f64::INFINITY } else { BY_DEGREE * FACTOR[1] * cubes };
        let ordering = by_degree.min(DISSECT * nodes);
        factors + FACTOR[2] * nodes * order + FACTOR[3] * entries + ordering
    }
}

/// Returns the blocks of L and the operations of L Lᵀ with blocks of order 1, in an order by minimum degree.
#[cfg(feature = "lu")]
fn cost_by_degree(terms: &Terms, share: f64) -> Option<[f64; 2]> {
    let (row_ptr, col) = pattern(terms);
    let cost = crate::precond::lu::cost_by_degree(&row_ptr, &col, share)?;
    Some([cost.entries, cost.operations])
}

/// Without direct factors nothing is estimated.
#[cfg(not(feature = "lu"))]
fn cost_by_degree(_: &Terms, _: f64) -> Option<[f64; 2]> {
    None
}

/// The columns of each row, the rows of each column unless the pattern is symmetric, and the last pass and
/// level that visited each vertex.
struct Graph<'a> {
    row_ptr: Cow<'a, [usize]>,
    col: Cow<'a, [u32]>,
    columns: Option<(Vec<usize>, Vec<u32>)>,
    met: Vec<u8>,
    /// The same for rows, which the column graph passes; else empty.
    met_row: Vec<u8>,
}

/// Number of rows whose entries are compared with mirrored entries, and the share of mirrored entries from
/// which rows keep their places.
const MIRRORED: (usize, f64) = (500, 0.5);
/// The share of mirrored entries from which columns have no neighbours that rows lack, or few. It is 0.9 to
/// 0.95 for reacting species that do not all depend on each other, where columns would double the time.
const ALIKE: f64 = 0.85;

/// Marks vertices of dense rows and columns, which no pass enters.
const NEVER: u8 = u8::MAX;

/// Returns the mark of a level in a pass. Neighbours differ by at most one level, so three marks suffice.
fn mark(pass: u8, level: usize) -> u8 {
    4 * pass + (level % 3) as u8
}

impl<'a> Graph<'a> {
    fn of(terms: &'a Terms, symmetric: bool) -> Self {
        let n = terms.block_rows();
        let (row_ptr, col) = pattern(terms);
        let many = (10.0 * (n as f64).sqrt()).max(16.0) as usize;
        let is_dense = |ptr: &[usize], i: usize| ptr[i + 1] - ptr[i] > many;
        let met = |dense: bool| if dense { NEVER } else { 0 };
        if symmetric {
            let met = (0..n).map(|i| met(is_dense(&row_ptr, i))).collect();
            return Self { row_ptr, col, columns: None, met, met_row: Vec::new() };
        }
        let of = |i: usize| &col[row_ptr[i]..row_ptr[i + 1]];
        let sample =
            || (0..n).step_by((n / MIRRORED.0).max(1)).flat_map(|i| of(i).iter().map(move |j| (i, *j)));
        let mirrored = sample().filter(|(i, j)| of(*j as usize).contains(&(*i as u32))).count();
        if mirrored as f64 >= ALIKE * sample().count() as f64 {
            // The rows alone then suffice for an estimate.
            drop(row_ptr);
            return Self::of(terms, true);
        }
        let mut col_ptr = vec![0usize; n + 1];
        col.iter().for_each(|&j| col_ptr[j as usize + 1] += 1);
        (0..n).for_each(|j| col_ptr[j + 1] += col_ptr[j]);
        let (mut next, mut row) = (col_ptr.clone(), vec![0u32; col.len()]);
        for i in 0..n {
            for &j in &col[row_ptr[i]..row_ptr[i + 1]] {
                row[next[j as usize]] = i as u32;
                next[j as usize] += 1;
            }
        }
        let keeps = mirrored as f64 >= MIRRORED.1 * sample().count() as f64;
        let dense = |i: usize| is_dense(&col_ptr, i) || keeps && is_dense(&row_ptr, i);
        let of_columns = (0..n).map(|i| met(dense(i))).collect();
        let met_row = if keeps { Vec::new() } else { (0..n).map(|i| met(is_dense(&row_ptr, i))).collect() };
        Self { row_ptr, col, columns: Some((col_ptr, row)), met: of_columns, met_row }
    }

    /// Computes the levels around vertex `from`, and returns a vertex of the last level.
    fn pass(&mut self, pass: u8, from: usize, queue: &mut Vec<u32>) -> (Part, usize) {
        queue.clear();
        queue.push(from as u32);
        self.met[from] = mark(pass, 0);
        let (mut part, mut far) = (Part { width: 1, levels: 0 }, from);
        let (mut level, mut depth, first) = (0..1, 0, mark(pass, 0));
        let of_columns = !self.met_row.is_empty();
        let own = if of_columns { 2 } else { 1 };
        while !level.is_empty() {
            far = queue[level.start] as usize;
            depth += 1;
            let (end, next) = (level.end, mark(pass, depth));
            let mut width = if of_columns { level.len() } else { 0 };
            for at in level {
                let j = queue[at] as usize;
                let rows = self.columns.as_ref().map_or(&[][..], |(ptr, row)| &row[ptr[j]..ptr[j + 1]]);
                if of_columns {
                    for &i in rows {
                        let met = &mut self.met_row[i as usize];
                        if *met < first {
                            *met = first;
                            let i = i as usize;
                            enter(
                                &self.col[self.row_ptr[i]..self.row_ptr[i + 1]],
                                &mut self.met,
                                [first, next],
                                queue,
                            );
                        }
                    }
                    continue;
                }
                let columns = &self.col[self.row_ptr[j]..self.row_ptr[j + 1]];
                let is_last = enter(columns, &mut self.met, [first, next], queue)
                    | enter(rows, &mut self.met, [first, next], queue);
                width += usize::from(is_last);
            }
            part.width = part.width.max(width.div_ceil(own));
            part.levels += own;
            level = end..queue.len();
        }
        (part, far)
    }
}

/// Appends the vertices that this pass has not visited to the queue. Returns true if one of the vertices is
/// in the next level. `first` is the smallest mark of the pass, `next` that of the next level.
fn enter(vertices: &[u32], met: &mut [u8], [first, next]: [u8; 2], queue: &mut Vec<u32>) -> bool {
    let mut end = queue.len();
    queue.resize(end + vertices.len(), 0);
    let mut is_last = false;
    for &k in vertices {
        // Without a branch, as processors mispredict which vertices are new.
        let met = &mut met[k as usize];
        let is_new = *met < first;
        queue[end] = k;
        end += usize::from(is_new);
        *met = if is_new { next } else { *met };
        is_last |= *met == next;
    }
    queue.truncate(end);
    is_last
}

/// Returns the pattern of the sum. A block that both terms store appears twice.
fn pattern<'a>(terms: &'a Terms) -> (Cow<'a, [usize]>, Cow<'a, [u32]>) {
    if let [(_, a)] = &terms.terms[..] {
        return (a.row_ptr().into(), a.col().into());
    }
    let (mut ptr, mut col) = (vec![0], Vec::new());
    for i in 0..terms.block_rows() {
        terms.terms.iter().for_each(|(_, a)| col.extend(&a.col()[a.row_ptr()[i]..a.row_ptr()[i + 1]]));
        ptr.push(col.len());
    }
    (ptr.into(), col.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::matrix::Csr;

    /// Returns the matrix of a 5-point or 7-point stencil, with rows shuffled by a stride.
    fn grid([nx, ny, nz]: [usize; 3], stride: usize) -> Csr {
        let n = nx * ny * nz;
        let mut entries = Vec::new();
        for i in 0..n {
            let (x, y, z) = (i % nx, i / nx % ny, i / (nx * ny));
            let row = (i * stride % n) as u32;
            let mut add = |ok: bool, j: usize| {
                if ok {
                    entries.push((row, j as u32, -1.0))
                }
            };
            add(x > 0, i.wrapping_sub(1));
            add(x + 1 < nx, i + 1);
            add(y > 0, i.wrapping_sub(nx));
            add(y + 1 < ny, i + nx);
            add(z > 0, i.wrapping_sub(nx * ny));
            add(z + 1 < nz, i + nx * ny);
            entries.push((row, i as u32, 6.0));
        }
        Csr::from_triplets(n, n, &entries).unwrap()
    }

    #[test]
    fn levels_are_as_wide_as_grids_whatever_the_order_of_rows() {
        for (shape, width) in
            [([40, 40, 1], 40..=42), ([500, 1, 1], 1..=1), ([10, 200, 1], 10..=12), ([10, 10, 10], 60..=80)]
        {
            for (stride, symmetric) in [(1, true), (1, false), (1_000_003, false)] {
                let terms = grid(shape, stride);
                let levels = Levels::of(&Terms::csr(&terms).unwrap(), symmetric);
                assert_eq!(levels.parts.len(), 1);
                assert!(width.contains(&levels.parts[0].width), "{shape:?}: {}", levels.parts[0].width);
            }
        }
    }

    /// For 12³ nodes, an order by minimum degree has about 60,000 entries of L, and 2e7 operations.
    #[cfg(feature = "lu")]
    #[test]
    fn an_order_gives_the_cost_unless_the_graph_has_too_many_vertices() {
        let a = grid([12, 12, 12], 1);
        let terms = Terms::csr(&a).unwrap();
        let [entries, operations] = cost_by_degree(&terms, 1.0).unwrap();
        assert!((3e4..12e4).contains(&entries) && (5e6..8e7).contains(&operations), "{entries} {operations}");
        assert_eq!(cost_by_degree(&terms, SHARE), None, "each row differs");
    }

    /// Quadratic elements in a row: their levels have two planes of nodes.
    #[test]
    fn nodes_inside_a_level_do_not_separate() {
        let (elements, plane) = (60u32, 25u32);
        let mut entries = Vec::new();
        for e in 0..elements {
            let nodes = || 2 * e * plane..(2 * e + 3) * plane;
            entries.extend(nodes().flat_map(|i| nodes().map(move |j| (i, j, 1.0))));
        }
        let n = ((2 * elements + 1) * plane) as usize;
        let a = Csr::from_triplets(n, n, &entries).unwrap();
        for symmetric in [true, false] {
            let levels = Levels::of(&Terms::csr(&a).unwrap(), symmetric);
            assert_eq!(levels.parts[0].width, 25);
        }
    }

    #[test]
    fn rows_are_as_dominant_as_the_least_of_them() {
        let of = |entries: &[(u32, u32, f64)]| {
            others(&Terms::csr(&Csr::from_triplets(2, 2, entries).unwrap()).unwrap())
        };
        assert_eq!(of(&[(0, 0, -4.0), (0, 1, 1.0), (1, 0, 1.0), (1, 1, 2.0)]), 0.5);
        assert_eq!(of(&[(0, 0, 4.0), (0, 1, 1.0), (1, 0, 1.0)]), f64::INFINITY);
        assert_eq!(others(&Terms::csr(&grid([20, 20, 2], 1)).unwrap()), 5.0 / 6.0);
    }

    #[test]
    fn dense_rows_stand_in_no_level() {
        let n = 2000u32;
        let arrow = (1..n).flat_map(|i| [(i, i, 2.0), (i, 0, 1.0), (0, i, 1.0)]).chain([(0, 0, 2.0)]);
        let arrow = Csr::from_triplets(2000, 2000, &arrow.collect::<Vec<_>>()).unwrap();
        for symmetric in [true, false] {
            let levels = Levels::of(&Terms::csr(&arrow).unwrap(), symmetric);
            assert_eq!(levels.dense, 1);
        }
    }

    /// Compares the estimate with processor seconds of bench/runs/2026-11-28-cpu-direct.
    #[test]
    fn seconds_are_what_factors_took_within_a_factor_of_two() {
        for (shape, seconds) in [([16, 16, 16], 0.016), ([40, 40, 40], 1.742), ([700, 700, 1], 4.526)] {
            let terms = grid(shape, 1);
            let levels = Levels::of(&Terms::csr(&terms).unwrap(), true);
            let ratio = levels.seconds(terms.rows(), 1.0, 7.0 * terms.rows() as f64, true) / seconds;
            assert!((0.5..2.0).contains(&ratio), "{shape:?}: {ratio}");
        }
    }

    /// Compares the estimate with the fill that faer's symbolic factorisation counts after AMD.
    #[test]
    fn fill_is_what_factors_have_within_a_factor_of_three() {
        for (shape, numbers) in
            [([100, 100, 1], 2.06e5), ([400, 400, 1], 7.2e6), ([16, 16, 16], 3.95e5), ([32, 32, 32], 1.06e7)]
        {
            for symmetric in [true, false] {
                let terms = Terms::csr(&grid(shape, 1)).unwrap();
                let ratio = Levels::of(&terms, symmetric).fill(terms.block_rows()) / numbers;
                assert!((0.33..3.0).contains(&ratio), "{shape:?}: {ratio}");
            }
        }
    }
}
