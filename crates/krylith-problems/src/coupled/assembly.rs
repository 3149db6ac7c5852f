//! Assembly of systems of several fields, row by row.
//!
//! All cells are alike, so the tetrahedra around a node and the columns of its row are the same for all
//! nodes of a kind, except that the boundary cuts some off: a [`Stencil`]. A row is the sum over these
//! tetrahedra in a fixed order and belongs to one thread. So results do not depend on the number of threads.

use krylith_base::threads::{collect, each_task};
use krylith_core::matrix::Csr;
use krylith_core::{Error, Result};
use std::ops::Range;

use super::simplices::{Place, Space, Tet};

/// Nodes per task.
const CHUNK: usize = 256;

/// Adds row `i` of the element matrix of a tetrahedron, laid out as in
/// [`Table`](super::elements::Table), to numbers.
pub(crate) type Element<'a> = Box<dyn Fn(Tet, usize, &mut [f64]) + Sync + 'a>;

/// The rows of all nodes of one kind.
struct Stencil {
    /// Steps to the bases of the columns, −1 to 1 along each axis, and their kinds, ascending.
    columns: Vec<([isize; 3], usize)>,
    /// Tetrahedra around the node: step to the cell, kind, number of the node in it, places of its nodes
    /// among the columns.
    around: Vec<([isize; 3], usize, usize, Vec<usize>)>,
}

/// Returns the place that a step leads to, `None` below the grid.
fn step(at: Place, by: [isize; 3]) -> Option<Place> {
    let to: [Option<usize>; 3] = std::array::from_fn(|d| at[d].checked_add_signed(by[d]));
    Some([to[0]?, to[1]?, to[2]?])
}

impl Stencil {
    fn new(rows: &Space, columns: &Space, kind: usize) -> Self {
        let axes = |mask: u8| [0, 1, 2].map(|d| (mask >> d & 1) as isize);
        let mut around = Vec::new();
        for t in 0..rows.local.len() {
            for (i, own) in rows.local[t].iter().enumerate().filter(|(_, own)| own.kind == kind) {
                let back = axes(own.mask).map(|s| -s);
                let to = |mask: u8| std::array::from_fn(|d| back[d] + axes(mask)[d]);
                let nodes: Vec<([isize; 3], usize)> =
                    columns.local[t].iter().map(|node| (to(node.mask), node.kind)).collect();
                around.push((back, t, i, nodes));
            }
        }
        let order = |node: &([isize; 3], usize)| ([node.0[2], node.0[1], node.0[0]], node.1);
        around.sort_by_key(|(back, t, ..)| order(&(*back, *t)));
        let mut all: Vec<_> = around.iter().flat_map(|(.., nodes)| nodes.iter().copied()).collect();
        all.sort_by_key(order);
        all.dedup();
        let place = |node: &([isize; 3], usize)| all.partition_point(|other| order(other) < order(node));
        let around = around.into_iter();
        let around = around.map(|(back, t, i, nodes)| (back, t, i, nodes.iter().map(place).collect()));
        Self { around: around.collect(), columns: all }
    }
}

/// The coupling of two fields.
pub(crate) struct Block<'a> {
    stencils: Vec<Stencil>,
    rows: &'a Space,
    columns: &'a Space,
    /// False if a component couples to its like only, so that others are not stored.
    mixed: bool,
    element: Element<'a>,
}

/// A row of nodes of a block while it is summed up.
#[derive(Default)]
struct Scratch {
    /// Number and components with boundary values of each column inside the box.
    nodes: Vec<Option<(usize, u8)>>,
    values: Vec<f64>,
    local: Vec<f64>,
}

impl<'a> Block<'a> {
    pub fn new(rows: &'a Space, columns: &'a Space, element: Element<'a>) -> Self {
        let stencils = (0..rows.chains.len()).map(|kind| Stencil::new(rows, columns, kind)).collect();
        Self { stencils, rows, columns, mixed: true, element }
    }

    /// Returns the block with couplings of like components only.
    pub fn by_component(self) -> Self {
        Self { mixed: false, ..self }
    }

    /// Finds the columns of a node, and sums up its row if `sum`.
    fn gather(&self, (at, kind): (Place, usize), sum: bool, scratch: &mut Scratch) {
        let stencil = &self.stencils[kind];
        scratch.nodes.clear();
        scratch.nodes.extend(stencil.columns.iter().map(|&(by, kind)| {
            let to = step(at, by)?;
            Some((self.columns.number(to, kind)?, self.columns.fixed(to, kind)))
        }));
        if !sum {
            return;
        }
        let each = self.rows.components * self.columns.components;
        scratch.values.clear();
        scratch.values.resize(stencil.columns.len() * each, 0.0);
        for (by, kind, i, places) in &stencil.around {
            let Some(cell) = step(at, *by) else { continue };
            let tet = Tet { at: cell, kind: *kind };
            if !self.rows.mesh.contains(cell) {
                continue;
            }
            scratch.local.clear();
            scratch.local.resize(places.len() * each, 0.0);
            (self.element)(tet, *i, &mut scratch.local);
            for (&place, local) in places.iter().zip(scratch.local.chunks_exact(each)) {
                let sums = &mut scratch.values[place * each..][..each];
                sums.iter_mut().zip(local).for_each(|(sum, v)| *sum += v);
            }
        }
    }

    /// Calls `entry(column, value)` for row `r` of the node that was gathered.
    fn emit(&self, r: usize, scratch: &Scratch, entry: &mut dyn FnMut(usize, f64)) {
        let (rows, columns) = (self.rows.components, self.columns.components);
        for (q, node) in scratch.nodes.iter().enumerate() {
            let Some((number, fixed)) = node else { continue };
            for c in (0..columns).filter(|c| (self.mixed || *c == r) && fixed >> c & 1 == 0) {
                let value = scratch.values.get((q * rows + r) * columns + c).copied().unwrap_or(0.0);
                entry(number * columns + c, value);
            }
        }
    }
}

/// Assembles the square matrix of `fields` from the couplings of row field and column field. Rows of
/// boundary values have only a diagonal entry, and their columns are left out.
///
/// # Errors
/// Returns an error if there are too many unknowns for 32-bit columns.
pub(crate) fn assemble(what: &str, fields: &[&Space], blocks: &[Vec<Option<Block>>]) -> Result<Csr> {
    let first: Vec<usize> = std::iter::once(0)
        .chain(fields.iter().scan(0, |sum, space| {
            *sum += space.len();
            Some(*sum)
        }))
        .collect();
    let n = first[fields.len()];
    if n > u32::MAX as usize {
        return Err(Error::invalid(format!("{what}: {n} unknowns are too many for 32-bit columns")));
    }
    let row = |f: usize,
               node: usize,
               sum: bool,
               parts: &mut [Scratch],
               entry: &mut dyn FnMut(usize, usize, f64)| {
        let (space, own) = (fields[f], &blocks[f]);
        let (at, kind) = space.place(node);
        let fixed = space.fixed(at, kind);
        for (block, part) in own.iter().zip(parts.iter_mut()) {
            if let Some(block) = block {
                block.gather((at, kind), sum, part);
            }
        }
        for r in 0..space.components {
            if fixed >> r & 1 == 1 {
                entry(r, first[f] + node * space.components + r, space.diagonal);
                continue;
            }
            for (g, (block, part)) in own.iter().zip(parts.iter()).enumerate() {
                if let Some(block) = block {
                    block.emit(r, part, &mut |j, v| entry(r, first[g] + j, v));
                }
            }
        }
    };
    // Runs of nodes of one field.
    let runs: Vec<(usize, Range<usize>)> =
        (0..fields.len()).flat_map(|f| chunks(fields[f].nodes()).map(move |nodes| (f, nodes))).collect();
    let scratch = || (0..fields.len()).map(|_| Scratch::default()).collect::<Vec<_>>();
    fill(n, n, runs.len(), &|k| runs[k].1.len() * fields[runs[k].0].components, &|k, sum, entry| {
        let (f, nodes) = runs[k].clone();
        let mut parts = scratch();
        for (p, node) in nodes.enumerate() {
            let before = p * fields[f].components;
            row(f, node, sum, &mut parts, &mut |r, j, v| entry(before + r, j, v));
        }
    })
}

/// The entry of component r of a node and component c of its vertex k, as a function of the node's chain, k,
/// r and c; `None` is not stored.
type OfVertex<'a> = dyn Fn(&[u8], usize, usize, usize) -> Option<f64> + Sync + 'a;

/// Builds a matrix from nodes to vertices.
///
/// # Errors
/// Returns an error for a value that is not finite.
pub(crate) fn from_vertices(nodes: &Space, vertices: &Space, entry: &OfVertex<'_>) -> Result<Csr> {
    let (rows, columns) = (nodes.components, vertices.components);
    let runs: Vec<Range<usize>> = chunks(nodes.nodes()).collect();
    fill(nodes.len(), vertices.len(), runs.len(), &|k| runs[k].len() * rows, &|k, _, put| {
        for (p, node) in runs[k].clone().enumerate() {
            let (at, kind) = nodes.place(node);
            let chain = nodes.chains[kind];
            for r in 0..rows {
                for (v, &mask) in chain.iter().enumerate() {
                    let to = std::array::from_fn(|d| at[d] + usize::from(mask >> d & 1));
                    let Some(number) = vertices.number(to, 0) else { continue };
                    for c in 0..columns {
                        if let Some(value) = entry(chain, v, r, c) {
                            put(p * rows + r, number * columns + c, value);
                        }
                    }
                }
            }
        }
    })
}

/// Integrates a load: `element(tet, i)` has the integrals of the node i of a tetrahedron, one per component.
/// Boundary values are zero.
pub(crate) fn load(space: &Space, element: &(dyn Fn(Tet, usize) -> [f64; 3] + Sync)) -> Vec<f64> {
    let stencils: Vec<Stencil> = (0..space.chains.len()).map(|k| Stencil::new(space, space, k)).collect();
    let sums: Vec<[f64; 3]> = collect(0..space.nodes(), CHUNK, &|node| {
        let (at, kind) = space.place(node);
        let (fixed, mut sum) = (space.fixed(at, kind), [0.0; 3]);
        for (by, kind, i, _) in &stencils[kind].around {
            if let Some(cell) = step(at, *by).filter(|cell| space.mesh.contains(*cell)) {
                let part = element(Tet { at: cell, kind: *kind }, *i);
                (0..3).for_each(|c| sum[c] += part[c]);
            }
        }
        std::array::from_fn(|c| if fixed >> c & 1 == 1 { 0.0 } else { sum[c] })
    });
    sums.iter().flat_map(|sum| sum[..space.components].iter().copied()).collect()
}

fn chunks(nodes: usize) -> impl Iterator<Item = Range<usize>> {
    (0..nodes).step_by(CHUNK).map(move |first| first..(first + CHUNK).min(nodes))
}

/// Puts an entry into a matrix: row of the run, column, value.
type Put<'a> = &'a mut dyn FnMut(usize, usize, f64);

/// Builds a matrix from runs of rows, on all threads, in two passes: `run(k, false, put)` counts, and
/// `run(k, true, put)` computes. A run puts its entries row by row, by ascending columns.
fn fill(
    rows: usize,
    columns: usize,
    runs: usize,
    rows_of: &dyn Fn(usize) -> usize,
    run: &(dyn Fn(usize, bool, Put<'_>) + Sync),
) -> Result<Csr> {
    let mut row_ptr = vec![0usize; rows + 1];
    let (mut tasks, mut rest) = (Vec::with_capacity(runs), &mut row_ptr[1..]);
    for k in 0..runs {
        let (own, more) = rest.split_at_mut(rows_of(k));
        tasks.push((k, own));
        rest = more;
    }
    each_task(tasks, &|(k, counts)| run(k, false, &mut |r, _, _| counts[r] += 1));
    for i in 0..rows {
        row_ptr[i + 1] += row_ptr[i];
    }
    let (mut col, mut values) = (vec![0u32; row_ptr[rows]], vec![0.0; row_ptr[rows]]);
    let (mut tasks, mut first) = (Vec::with_capacity(runs), 0);
    let (mut cols, mut numbers) = (&mut col[..], &mut values[..]);
    for k in 0..runs {
        let last = first + rows_of(k);
        let size = row_ptr[last] - row_ptr[first];
        let (own, more) = cols.split_at_mut(size);
        let (own_numbers, more_numbers) = numbers.split_at_mut(size);
        tasks.push((k, own, own_numbers));
        (cols, numbers, first) = (more, more_numbers, last);
    }
    each_task(tasks, &|(k, col, values)| {
        let mut at = 0;
        run(k, true, &mut |_, j, v| {
            (col[at], values[at]) = (j as u32, v);
            at += 1;
        });
    });
    Csr::new(rows, columns, row_ptr, col, values)
}
