//! Systems of trilinear bricks: the rows of nodes on a grid, each with up to 27 blocks.

use krylith_core::Result;
use krylith_core::matrix::{Bsr, Csr, Dense};
use krylith_core::partition::{RowBlocks, Rows};
use rayon::prelude::*;
use std::ops::Range;

use crate::{Generated, GeneratedRows, SystemKind};

/// Largest number of blocks in a row.
pub(crate) const POINTS: usize = 27;
/// Corners of a brick.
pub(crate) const CORNERS: usize = 8;

/// A system of bricks, and one rank's rows.
pub(crate) trait Bricks: Sync {
    /// Unknowns per node.
    const B: usize;
    /// Returns the numbers of nodes with unknowns in each direction.
    fn nodes(&self) -> [usize; 3];
    /// Returns the numbers of own nodes.
    fn own(&self) -> Range<usize>;
    /// Calls `f(j, block)` for the blocks of row `i`, columns ascending.
    fn row(&self, i: usize, f: impl FnMut(usize, &[f64]));
    /// Appends the right-hand side of node `i`.
    fn load(&self, i: usize, to: &mut Vec<f64>);
    /// Returns the place of node `i`.
    fn coordinate(&self, i: usize) -> [f64; 3];
}

/// Returns the position of a node on a grid.
pub(crate) fn position(i: usize, [nx, ny, _]: [usize; 3]) -> [usize; 3] {
    [i % nx, i / nx % ny, i / nx / ny]
}

/// Calls `f` with the bricks that contain both nodes, ascending: the lowest node of the brick, and the
/// corners `from` and `to` in it. The grid has these numbers of nodes.
#[inline]
pub(crate) fn common(
    from: [usize; 3],
    to: [usize; 3],
    nodes: [usize; 3],
    mut f: impl FnMut([usize; 3], usize, usize),
) {
    for brick in 0..CORNERS {
        // The brick's lowest node lies `back` below `from`.
        let back = [0, 1, 2].map(|axis| 1 - (brick >> axis & 1));
        let lowest = [0, 1, 2].map(|axis: usize| from[axis].wrapping_sub(back[axis]));
        if (0..3).any(|axis| lowest[axis].wrapping_add(1) >= nodes[axis] || lowest[axis] == usize::MAX) {
            continue;
        }
        let corner = |node: [usize; 3]| {
            (0..3).try_fold(0, |corner, axis| {
                let at = node[axis].checked_sub(lowest[axis]).filter(|&at| at <= 1)?;
                Some(corner + (at << axis))
            })
        };
        if let (Some(a), Some(b)) = (corner(from), corner(to)) {
            f(lowest, a, b);
        }
    }
}

/// Calls `f` for the 2³ Gauss points of a brick with edges `h`: with the weight, and with the value and the
/// gradient of the function of each corner.
pub(crate) fn at_gauss_points(h: [f64; 3], mut f: impl FnMut(f64, &dyn Fn(usize) -> (f64, [f64; 3]))) {
    let gauss = [0.5 - 0.5 / 3f64.sqrt(), 0.5 + 0.5 / 3f64.sqrt()];
    for point in 0..CORNERS {
        let x = [0, 1, 2].map(|axis| gauss[point >> axis & 1]);
        let function = |corner: usize| {
            let value = |axis: usize| if corner >> axis & 1 == 1 { x[axis] } else { 1.0 - x[axis] };
            let slope = |axis: usize| (if corner >> axis & 1 == 1 { 1.0 } else { -1.0 }) / h[axis];
            let gradient = [
                slope(0) * value(1) * value(2),
                value(0) * slope(1) * value(2),
                value(0) * value(1) * slope(2),
            ];
            (value(0) * value(1) * value(2), gradient)
        };
        f(h.iter().product::<f64>() / CORNERS as f64, &function);
    }
}

/// Row pointers, columns and values of own rows.
fn rows<P: Bricks>(of: &P) -> (Vec<usize>, Vec<u64>, Vec<f64>) {
    const CHUNK: usize = 1 << 12;
    let own = of.own();
    let chunks: Vec<Range<usize>> = own.clone().step_by(CHUNK).map(|i| i..(i + CHUNK).min(own.end)).collect();
    let made: Vec<(Vec<usize>, Vec<u64>, Vec<f64>)> = chunks
        .into_par_iter()
        .map(|rows| {
            let (mut ends, mut col, mut values) = (Vec::new(), Vec::new(), Vec::new());
            for i in rows {
                of.row(i, |j, block| {
                    col.push(j as u64);
                    values.extend_from_slice(block);
                });
                ends.push(col.len());
            }
            (ends, col, values)
        })
        .collect();
    let (mut row_ptr, mut col, mut values) = (vec![0], Vec::new(), Vec::new());
    for (ends, own_col, own_values) in made {
        let before = col.len();
        row_ptr.extend(ends.iter().map(|end| before + end));
        col.extend(own_col);
        values.extend(own_values);
    }
    (row_ptr, col, values)
}

fn rhs<P: Bricks>(of: &P) -> Vec<f64> {
    let mut rhs = Vec::with_capacity(of.own().len() * P::B);
    of.own().for_each(|i| of.load(i, &mut rhs));
    rhs
}

fn coordinates<P: Bricks>(of: &P) -> Option<Vec<[f64; 3]>> {
    Some(of.own().map(|i| of.coordinate(i)).collect())
}

/// Builds the whole system.
pub(crate) fn whole<P: Bricks>(of: &P, spec: String) -> Result<Generated> {
    let (row_ptr, col, values) = rows(of);
    let n = of.nodes().iter().product();
    let col = col.into_iter().map(|j| j as u32).collect();
    let system = match P::B {
        1 => SystemKind::Csr(Csr::new(n, n, row_ptr, col, values)?),
        b => SystemKind::Bsr(Bsr::new(b, n, n, row_ptr, col, values)?),
    };
    Ok(Generated {
        system,
        rhs: rhs(of),
        coordinates: coordinates(of),
        grid: Some(of.nodes()),
        tetrahedra: Vec::new(),
        fields: Vec::new(),
        matrices: Vec::new(),
        spec,
    })
}

/// Builds the own rows of the system.
pub(crate) fn part<P: Bricks>(of: &P, spec: String) -> Result<GeneratedRows> {
    let (row_ptr, col, values) = rows(of);
    Ok(GeneratedRows {
        fields: Vec::new(),
        matrices: Vec::new(),
        rows: Rows {
            numbers: of.own().map(|i| i as u64).collect(),
            block: P::B,
            terms: vec![(Dense::identity(1), RowBlocks { row_ptr, col, values })],
        },
        rhs: rhs(of),
        coordinates: coordinates(of),
        grid: Some(of.nodes()),
        nodes: of.nodes().iter().product(),
        spec,
    })
}
