//! Structured grids of nodes: which rows of a matrix belong to one, how far its rows reach, and boxes for
//! rows that ranks hold in runs.

use super::{GridBoxes, MANY_GHOSTS, PartitionSpec, Rows, boxes_are_better, boxes_reason};
use crate::comm::{self, Communicator, agree};
use crate::operator::Terms;
use crate::{Error, Result};

/// The nodes of a grid that one row of a matrix couples.
///
/// # Examples
/// ```
/// use krylith_core::partition::{GridBoxes, Stencil};
/// let middle = GridBoxes::new([9, 9, 9], 27, None)?;
/// let neighbours = |stencil| middle.halo(13, stencil).len();
/// assert_eq!([Stencil::Faces, Stencil::Paths, Stencil::Corners].map(neighbours), [6, 14, 26]);
/// # Ok::<(), krylith_core::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stencil {
    /// 7 points: the node and its neighbours along the axes.
    Faces,
    /// 15 points: linear elements on Kuhn's six tetrahedra of each cell.
    Paths,
    /// 27 points: the node and all nodes of its cells.
    Corners,
}

impl Stencil {
    /// Returns true if a node is coupled with the node that is `step` away, by at most one along each axis.
    pub(super) fn couples(self, step: [isize; 3]) -> bool {
        let some = step != [0; 3];
        match self {
            Stencil::Faces => step.iter().filter(|&&d| d != 0).count() == 1,
            Stencil::Paths => some && (step.iter().all(|&d| d >= 0) || step.iter().all(|&d| d <= 0)),
            Stencil::Corners => some,
        }
    }

    /// Returns the smallest stencil that couples two nodes of a grid; `None` if none does.
    fn of(grid: [usize; 3], i: u64, j: u64) -> Option<Self> {
        let [nx, ny, _] = grid.map(|n| n as u64);
        let at = |i: u64| [i % nx, i / nx % ny, i / nx / ny].map(|n| n as isize);
        let (a, b) = (at(i), at(j));
        let step: [isize; 3] = std::array::from_fn(|axis| b[axis] - a[axis]);
        if i == j {
            return Some(Stencil::Faces);
        }
        let near = step.iter().all(|d| d.abs() <= 1);
        [Stencil::Faces, Stencil::Paths, Stencil::Corners].into_iter().find(|s| near && s.couples(step))
    }

    /// Returns the smallest stencil with all couplings of some rows, given as row and columns.
    fn of_rows<'a>(grid: [usize; 3], rows: impl Iterator<Item = (u64, &'a [u64])>) -> Option<Self> {
        let mut most = Stencil::Faces;
        for (i, columns) in rows {
            for &j in columns {
                most = most.max(Self::of(grid, i, j)?);
            }
        }
        Some(most)
    }
}

/// Returns the error for boxes without a grid.
pub(super) fn no_grid() -> Error {
    Error::invalid(
        "partition=boxes needs nodes on a structured grid, numbered with x fastest, and the matrix is not of \
         one: give the grid, or use partition=geometric or multilevel",
    )
}

/// Guesses a grid of `nodes` nodes from the columns of its first row: those of the neighbours of the first
/// node along x, y and z, and of nodes between them.
fn guess(columns: impl Iterator<Item = u64>, nodes: u64) -> Option<[usize; 3]> {
    let mut columns: Vec<u64> = columns.filter(|&j| j > 0 && j < nodes).collect();
    columns.sort_unstable();
    if columns.first() != Some(&1) {
        return None;
    }
    let after = |least: u64| columns.iter().copied().find(|&j| j > least);
    let nx = after(1).unwrap_or(nodes);
    let plane = after(nx + 1).unwrap_or(nodes);
    let fits = plane.is_multiple_of(nx) && nodes.is_multiple_of(plane);
    fits.then(|| [nx, plane / nx, nodes / plane].map(|n| n as usize))
}

/// Returns the grid of a system whose rows couple only neighbours in it.
pub(super) fn of_terms(terms: &Terms) -> Option<[usize; 3]> {
    let nodes = terms.block_rows() as u64;
    let columns = |row: usize| {
        terms.terms.iter().flat_map(move |(_, a)| {
            a.col()[a.row_ptr()[row]..a.row_ptr()[row + 1]].iter().map(|&j| u64::from(j))
        })
    };
    let grid = guess(columns((nodes > 0).then_some(0)?), nodes)?;
    (0..nodes).all(|i| columns(i as usize).all(|j| Stencil::of(grid, i, j).is_some())).then_some(grid)
}

/// Boxes for rows that ranks hold in runs.
///
/// # Examples
/// ```
/// use krylith::{comm::Solo, partition::{RowBlocks, Rows}};
/// use krylith_core::partition::{BoxesOfRuns, Stencil};
/// // A line of two nodes.
/// let blocks = RowBlocks { row_ptr: vec![0, 2, 4], col: vec![0, 1, 0, 1], values: vec![1.0; 4] };
/// let rows = Rows::in_runs(&Solo, 1, 2, blocks)?;
/// let found = BoxesOfRuns::choose(&Solo, &rows, 2, None, "boxes".parse()?)?.expect("a grid");
/// assert_eq!((found.grid, found.boxes.ranks(), found.stencil), ([2, 1, 1], 1, Stencil::Faces));
/// # Ok::<(), krylith::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct BoxesOfRuns {
    /// The grid of the nodes.
    pub grid: [usize; 3],
    /// The reach of its rows.
    pub stencil: Stencil,
    /// The box of each rank.
    pub boxes: GridBoxes,
    /// The reason for these boxes.
    pub reason: String,
}

impl BoxesOfRuns {
    /// Chooses boxes of a grid for rows that ranks hold in runs; `None` to keep the runs. For `boxes`, these
    /// are the boxes that were asked for; for `auto`, boxes that have clearly fewer ghosts than the runs, by
    /// the rule of [`choose`](super::choose). A grid that is not known is found from the columns. Collective.
    ///
    /// # Errors
    /// The same on every rank: boxes were asked for, and there is no grid, or they do not fit it; a rank that
    /// is gone or failed.
    pub fn choose(
        comm: &dyn Communicator,
        rows: &Rows,
        nodes: usize,
        known: Option<[usize; 3]>,
        wanted: PartitionSpec,
    ) -> Result<Option<Self>> {
        let ranks = comm.size();
        let shape = match wanted {
            PartitionSpec::Boxes(shape) => Some(shape),
            PartitionSpec::Auto => None,
            PartitionSpec::By(_) => return Ok(None),
        };
        let ghosts = match shape {
            Some(_) => 0.0,
            None => comm::largest(comm, ghosts(rows))?,
        };
        if shape.is_none() && ghosts <= MANY_GHOSTS {
            return Ok(None);
        }
        let Some((grid, stencil)) = grid_of(comm, rows, nodes, known)? else {
            return agree(comm, if shape.is_some() { Err(no_grid()) } else { Ok(None) });
        };
        let boxes = GridBoxes::new(grid, ranks, shape.flatten());
        if shape.is_some() {
            let boxes = agree(comm, boxes)?;
            let reason = boxes_named(boxes.shape());
            return Ok(Some(Self { grid, stencil, boxes, reason }));
        }
        let Ok(boxes) = boxes else { return Ok(None) };
        let fewer = boxes.most_ghosts(stencil);
        let reason = boxes_reason(fewer, ghosts, "runs of rows");
        Ok(boxes_are_better(ghosts, fewer).then_some(Self { grid, stencil, boxes, reason }))
    }
}

/// Returns the reason for boxes that were asked for.
pub(super) fn boxes_named([p, q, r]: [usize; 3]) -> String {
    format!("partition by {p}×{q}×{r} boxes of the grid")
}

/// Returns the number of ghosts for each own row of a run.
fn ghosts(rows: &Rows) -> f64 {
    let (Some(&first), Some(&last)) = (rows.numbers.first(), rows.numbers.last()) else { return 0.0 };
    let columns = rows.terms.iter().flat_map(|(_, a)| &a.col);
    let mut foreign: Vec<u64> = columns.copied().filter(|j| !(first..=last).contains(j)).collect();
    foreign.sort_unstable();
    foreign.dedup();
    foreign.len() as f64 / rows.numbers.len() as f64
}

/// Returns the grid of rows that ranks hold together, and how far rows reach in it; `None` if some row
/// reaches further. Collective.
fn grid_of(
    comm: &dyn Communicator,
    rows: &Rows,
    nodes: usize,
    known: Option<[usize; 3]>,
) -> Result<Option<([usize; 3], Stencil)>> {
    let known = known.filter(|grid| grid.iter().product::<usize>() == nodes);
    let columns = |k: usize| {
        rows.terms.iter().map(move |(_, a)| (rows.numbers[k], &a.col[a.row_ptr[k]..a.row_ptr[k + 1]]))
    };
    let found = known.or_else(|| {
        let first = rows.numbers.iter().position(|&number| number == 0)?;
        guess(columns(first).flat_map(|(_, columns)| columns.iter().copied()), nodes as u64)
    });
    // All ranks know a known grid; one rank finds another.
    let mut grid = found.filter(|_| known.is_none() || comm.rank() == 0).unwrap_or([0; 3]).map(|n| n as f64);
    comm.sum(&mut grid)?;
    let grid = grid.map(|n| n as usize);
    if grid.contains(&0) {
        return Ok(None);
    }
    let own = Stencil::of_rows(grid, (0..rows.numbers.len()).flat_map(columns));
    let most = comm::largest(comm, own.map_or(3.0, |own| f64::from(own as u8)))?;
    let stencils = [Stencil::Faces, Stencil::Paths, Stencil::Corners];
    Ok(stencils.get(most as usize).map(|&stencil| (grid, stencil)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::comm::Team;
    use crate::matrix::Dense;
    use crate::partition::{RowBlocks, contiguous};

    /// Rows of a grid, whose nodes are coupled with those that `stencil` says.
    fn rows(grid: [usize; 3], stencil: Stencil, own: std::ops::Range<usize>) -> Rows {
        let at = |i: usize| [i % grid[0], i / grid[0] % grid[1], i / grid[0] / grid[1]].map(|n| n as isize);
        let mut blocks = RowBlocks { row_ptr: vec![0], ..RowBlocks::default() };
        for i in own.clone() {
            for j in 0..grid.iter().product() {
                let step: [isize; 3] = std::array::from_fn(|axis| at(j)[axis] - at(i)[axis]);
                if i == j || step.iter().all(|d| d.abs() <= 1) && stencil.couples(step) {
                    blocks.col.push(j as u64);
                }
            }
            blocks.row_ptr.push(blocks.col.len());
        }
        blocks.values = vec![1.0; blocks.col.len()];
        Rows { numbers: own.map(|i| i as u64).collect(), block: 1, terms: vec![(Dense::identity(1), blocks)] }
    }

    fn chosen(
        grid: [usize; 3],
        stencil: Stencil,
        ranks: usize,
        known: bool,
        wanted: &str,
    ) -> Result<Vec<Option<BoxesOfRuns>>> {
        let nodes = grid.iter().product();
        let wanted: PartitionSpec = wanted.parse()?;
        Team::run(ranks, |comm| {
            let rows = rows(grid, stencil, contiguous(nodes, comm.rank(), ranks));
            BoxesOfRuns::choose(&*comm, &rows, nodes, known.then_some(grid), wanted)
        })
    }

    #[test]
    fn grids_are_found_from_columns() {
        for stencil in [Stencil::Faces, Stencil::Paths, Stencil::Corners] {
            for grid in [[4, 3, 5], [2, 2, 2], [6, 5, 1], [9, 1, 1], [2, 7, 3]] {
                for found in chosen(grid, stencil, 2, false, "boxes").unwrap() {
                    let found = found.unwrap();
                    assert_eq!(found.grid, grid, "{stencil:?}");
                    // On a line all stencils are the same.
                    let flat = grid.iter().filter(|&&n| n > 1).count() < 2;
                    assert_eq!(found.stencil, if flat { Stencil::Faces } else { stencil }, "{grid:?}");
                }
            }
        }
        let ring = |comm: &dyn Communicator| {
            let (row_ptr, col) =
                ((0..=8).map(|i| 2 * i).collect(), (0..8).flat_map(|i| [i, (i + 1) % 8]).collect());
            let blocks = RowBlocks { row_ptr, col, values: vec![1.0; 16] };
            BoxesOfRuns::choose(comm, &Rows::run(0, 1, 8, blocks), 8, None, PartitionSpec::Boxes(None))
        };
        let error = ring(&crate::comm::Solo).unwrap_err().to_string();
        assert!(error.contains("structured grid") && error.contains("multilevel"), "{error}");
    }

    #[test]
    fn auto_takes_boxes_where_runs_have_many_ghosts() {
        // Slabs of one plane of 64 nodes have two ghosts a node; boxes of 2×8×2 and so on fewer.
        let found = chosen([8, 8, 8], Stencil::Faces, 8, true, "auto").unwrap();
        for found in found {
            let found = found.unwrap();
            assert_eq!(found.boxes.shape(), [2, 2, 2]);
            assert!(found.reason.contains("at most 0.75 ghosts per node; runs of rows would have 2.00"));
        }
        // Slabs of four planes have half a ghost a node at both ends.
        assert!(chosen([4, 4, 32], Stencil::Faces, 2, true, "auto").unwrap().iter().all(Option::is_none));
        assert!(chosen([4, 4, 8], Stencil::Faces, 2, true, "rows").unwrap().iter().all(Option::is_none));
        let error = chosen([4, 4, 4], Stencil::Faces, 3, true, "boxes:2x1x1").unwrap_err().to_string();
        assert!(error.contains("2 boxes for 3 ranks"), "{error}");
    }
}
