//! Systems on a grid of cells or nodes, each coupled to its six neighbours: the common part of the Laplacian,
//! the reservoir and radiation.
//!
//! A problem defines the content of one row ([`SevenPoint`]). Rows are then made in parallel and
//! independently, so a matrix does not depend on the number of threads or ranks. Nothing but the result is
//! stored.

use krylith_base::threads::{collect, each_chunk, each_task};
use krylith_core::matrix::{Bsr, Csr, Dense};
use krylith_core::partition::{RowBlocks, Rows};
use krylith_core::{Error, Result};
use std::ops::Range;

use crate::{Generated, GeneratedRows, SystemKind, check_rhs, memory};

/// Rows per task.
const CHUNK: usize = 4096;

/// A grid of points, numbered with x fastest, then y, then z.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Grid {
    sizes: [usize; 3],
}

/// The cell of a block's column, and the axis of the face that leads there (`None` for the cell itself).
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Link {
    pub cell: usize,
    pub axis: Option<usize>,
}

impl Grid {
    /// # Errors
    /// Returns an error for more than 2³² points.
    pub fn new(sizes: [usize; 3]) -> Result<Self> {
        let total = sizes.iter().try_fold(1usize, |total, &n| total.checked_mul(n));
        if total.is_none_or(|total| total > u32::MAX as usize) {
            let [nx, ny, nz] = sizes;
            return Err(Error::invalid(format!("a grid of {nx}x{ny}x{nz} does not fit 32-bit numbers")));
        }
        Ok(Self { sizes })
    }

    /// Returns the number of points in x, y, z.
    pub fn sizes(&self) -> [usize; 3] {
        self.sizes
    }

    /// Returns the number of all points.
    pub fn len(&self) -> usize {
        self.sizes.iter().product()
    }

    /// Returns the grid position (ix, iy, iz) of point `i`.
    pub fn position(&self, i: usize) -> [usize; 3] {
        let [nx, ny, _] = self.sizes;
        [i % nx, i / nx % ny, i / (nx * ny)]
    }

    /// Returns the points that the rows `own` use: one more plane on each side.
    pub fn window(&self, own: &Range<usize>) -> Range<usize> {
        let plane = self.sizes[0] * self.sizes[1];
        own.start.saturating_sub(plane)..(own.end + plane).min(self.len())
    }

    /// Returns the blocks in the row of point `i`, at position (x, y, z), by ascending column, and their
    /// number.
    #[inline(always)]
    fn links(&self, i: usize, [x, y, z]: [usize; 3]) -> ([Link; 7], usize) {
        let [nx, ny, nz] = self.sizes;
        let faces = [
            (z > 0, i.wrapping_sub(nx * ny), Some(2)),
            (y > 0, i.wrapping_sub(nx), Some(1)),
            (x > 0, i.wrapping_sub(1), Some(0)),
            (true, i, None),
            (x + 1 < nx, i + 1, Some(0)),
            (y + 1 < ny, i + nx, Some(1)),
            (z + 1 < nz, i + nx * ny, Some(2)),
        ];
        let (mut links, mut count) = ([Link { cell: i, axis: None }; 7], 0);
        for (there, cell, axis) in faces {
            // Write without a branch and advance only if the neighbour exists; at most seven are kept.
            links[count.min(6)] = Link { cell, axis };
            count += usize::from(there);
        }
        (links, count)
    }

    /// Returns the number of blocks in the rows before that of point `i`.
    fn links_before(&self, i: usize) -> usize {
        let [nx, ny, _] = self.sizes;
        let (plane, all) = (nx * ny, self.len());
        if all == 0 {
            return 0;
        }
        // Rows before i that are first or last along each axis: they lack a neighbour there.
        let (first_x, last_x) = (i.div_ceil(nx), i / nx);
        let in_plane = i % plane;
        let first_y = i / plane * nx + in_plane.min(nx);
        let last_y = i / plane * nx + in_plane.saturating_sub(plane - nx);
        let (first_z, last_z) = (i.min(plane), i.saturating_sub(all - plane));
        7 * i - first_x - last_x - first_y - last_y - first_z - last_z
    }

    /// Returns the position that follows another.
    fn next(&self, [x, y, z]: [usize; 3]) -> [usize; 3] {
        let [nx, ny, _] = self.sizes;
        match (x + 1 < nx, y + 1 < ny) {
            (true, _) => [x + 1, y, z],
            (false, true) => [0, y + 1, z],
            (false, false) => [0, 0, z + 1],
        }
    }
}

/// A system with one block row per grid point, coupled to neighbours only.
pub(crate) trait SevenPoint: Sync {
    /// The name used in messages.
    const NAME: &'static str;
    /// Returns the whole grid.
    fn grid(&self) -> Grid;
    /// Returns the rows that this problem can make: all, or one rank's.
    fn own(&self) -> Range<usize>;
    /// Returns the number of components b of a point.
    fn block(&self) -> usize;
    /// Writes the blocks of row `i`, row-major and in the order of `links`; `blocks` holds zeros.
    fn row(&self, i: usize, links: &[Link], blocks: &mut [f64]);
    /// Writes the b numbers of point `i` into the right-hand side.
    fn rhs(&self, i: usize, out: &mut [f64]);
    /// Returns the coordinates of point `i`.
    fn coordinate(&self, i: usize) -> [f64; 3];
}

/// Returns an error if the host lacks memory for `own` rows of blocks of order `b` and `state` more bytes per
/// row.
pub(crate) fn check_memory(what: &str, own: usize, b: usize, state: usize) -> Result<()> {
    memory::check(what, own as u64 * (7 * (b * b * 8 + 8) + b * 8 + 32 + state) as u64)
}

/// Builds the whole system.
///
/// # Errors
/// Returns an error if the unknowns do not fit 32 bits, or if a value is not finite.
pub(crate) fn whole<P: SevenPoint>(problem: &P, spec: String) -> Result<Generated> {
    let (grid, b) = (problem.grid(), problem.block());
    let n = grid.len();
    if n > u32::MAX as usize / b {
        return Err(Error::invalid(format!(
            "{}: {n} nodes of {b} components do not fit 32-bit columns",
            P::NAME
        )));
    }
    let RowsOf { row_ptr, col, values } = rows(problem, |j| j as u32);
    let system = if b == 1 {
        SystemKind::Csr(Csr::new(n, n, row_ptr, col, values)?)
    } else {
        SystemKind::Bsr(Bsr::new(b, n, n, row_ptr, col, values)?)
    };
    let rhs = rhs(problem)?;
    let coordinates = Some(coordinates(problem));
    Ok(Generated {
        system,
        rhs,
        coordinates,
        grid: Some(grid.sizes()),
        tetrahedra: Vec::new(),
        fields: Vec::new(),
        matrices: Vec::new(),
        spec,
    })
}

/// Builds the matrix alone; rows are scalar.
///
/// # Errors
/// Returns an error if a value is not finite.
pub(crate) fn matrix<P: SevenPoint>(problem: &P) -> Result<Csr> {
    let n = problem.grid().len();
    let RowsOf { row_ptr, col, values } = rows(problem, |j| j as u32);
    Csr::new(n, n, row_ptr, col, values)
}

/// Writes the values of [`matrix`] only.
///
/// # Errors
/// Returns an error if the number of values is wrong.
pub(crate) fn values_into<P: SevenPoint>(problem: &P, values: &mut [f64]) -> Result<()> {
    let grid = problem.grid();
    let (n, given, total) = (grid.len(), values.len(), grid.links_before(grid.len()));
    if given != total {
        return Err(Error::invalid(format!(
            "{}: {given} values for a matrix with {total} stored entries; expected one value per entry",
            P::NAME
        )));
    }
    let (mut tasks, mut more) = (Vec::with_capacity(n.div_ceil(CHUNK)), values);
    for first in (0..n).step_by(CHUNK) {
        let last = (first + CHUNK).min(n);
        let (own, rest) = more.split_at_mut(grid.links_before(last) - grid.links_before(first));
        more = rest;
        tasks.push((first..last, own));
    }
    each_task(tasks, &|(rows, values): (Range<usize>, &mut [f64])| {
        let (mut position, mut at) = (grid.position(rows.start), 0);
        for i in rows {
            let (links, count) = grid.links(i, position);
            position = grid.next(position);
            problem.row(i, &links[..count], &mut values[at..at + count]);
            at += count;
        }
    });
    Ok(())
}

/// Builds the own rows of the system.
///
/// # Errors
/// Returns an error if the right-hand side is not finite.
pub(crate) fn part<P: SevenPoint>(problem: &P, spec: String) -> Result<GeneratedRows> {
    let RowsOf { row_ptr, col, values } = rows(problem, |j| j as u64);
    Ok(GeneratedRows {
        fields: Vec::new(),
        matrices: Vec::new(),
        rhs: rhs(problem)?,
        nodes: problem.grid().len(),
        coordinates: Some(coordinates(problem)),
        grid: Some(problem.grid().sizes()),
        rows: Rows {
            numbers: problem.own().map(|i| i as u64).collect(),
            block: problem.block(),
            terms: vec![(Dense::identity(1), RowBlocks { row_ptr, col, values })],
        },
        spec,
    })
}

/// Row pointers, columns and values.
struct RowsOf<C> {
    row_ptr: Vec<usize>,
    col: Vec<C>,
    values: Vec<f64>,
}

fn rows<P: SevenPoint, C: Clone + Default + Send>(
    problem: &P,
    column: impl Fn(usize) -> C + Sync,
) -> RowsOf<C> {
    let (grid, own, bb) = (problem.grid(), problem.own(), problem.block() * problem.block());
    let begin = grid.links_before(own.start);
    let row_ptr = collect(own.start..own.end + 1, CHUNK, &|i| grid.links_before(i) - begin);
    let total = row_ptr[own.len()];

    let (mut col, mut values) = (vec![C::default(); total], vec![0.0; total * bb]);
    let mut tasks = Vec::with_capacity(own.len().div_ceil(CHUNK));
    let (mut more_col, mut more_values) = (&mut col[..], &mut values[..]);
    for first in (0..own.len()).step_by(CHUNK) {
        let last = (first + CHUNK).min(own.len());
        let count = row_ptr[last] - row_ptr[first];
        let (columns, rest) = more_col.split_at_mut(count);
        let (blocks, others) = more_values.split_at_mut(count * bb);
        (more_col, more_values) = (rest, others);
        tasks.push((first..last, columns, blocks));
    }
    each_task(tasks, &|(rows, columns, blocks): (Range<usize>, &mut [C], &mut [f64])| {
        let begin = row_ptr[rows.start];
        let mut position = grid.position(own.start + rows.start);
        for p in rows {
            let (links, count) = grid.links(own.start + p, position);
            position = grid.next(position);
            let at = row_ptr[p] - begin;
            for (column_of, link) in columns[at..][..count].iter_mut().zip(&links) {
                *column_of = column(link.cell);
            }
            problem.row(own.start + p, &links[..count], &mut blocks[at * bb..][..count * bb]);
        }
    });
    RowsOf { row_ptr, col, values }
}

fn rhs<P: SevenPoint>(problem: &P) -> Result<Vec<f64>> {
    let (own, b) = (problem.own(), problem.block());
    let mut rhs = vec![0.0; own.len() * b];
    each_chunk(&mut rhs, b, CHUNK, &|p, out| problem.rhs(own.start + p, out));
    check_rhs(&rhs, 1, own.start * b)?;
    Ok(rhs)
}

fn coordinates<P: SevenPoint>(problem: &P) -> Vec<[f64; 3]> {
    collect(problem.own(), CHUNK, &|i| problem.coordinate(i))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_begin_where_those_before_end() {
        for sizes in [[1, 1, 1], [5, 1, 1], [1, 4, 3], [3, 1, 4], [4, 3, 1], [2, 3, 4], [5, 4, 3]] {
            let grid = Grid::new(sizes).unwrap();
            let (mut before, mut position) = (0, [0; 3]);
            for i in 0..grid.len() {
                assert_eq!(
                    (grid.links_before(i), grid.position(i)),
                    (before, position),
                    "{sizes:?}, row {i}"
                );
                let (links, count) = grid.links(i, position);
                // A row has one block per face shared with another point and one for the point itself,
                // ascending.
                let apart =
                    |j: usize| (0..3).map(|d| grid.position(j)[d].abs_diff(position[d])).sum::<usize>();
                let near: Vec<usize> = (0..grid.len()).filter(|&j| apart(j) <= 1).collect();
                let cells: Vec<usize> = links[..count].iter().map(|link| link.cell).collect();
                assert_eq!(cells, near, "{sizes:?}, row {i}");
                for link in &links[..count] {
                    let axis = (0..3).find(|&d| grid.position(link.cell)[d] != position[d]);
                    assert_eq!(link.axis, axis, "{sizes:?}, row {i}");
                }
                before += count;
                position = grid.next(position);
            }
            assert_eq!(grid.links_before(grid.len()), before, "{sizes:?}");
        }
    }
}
