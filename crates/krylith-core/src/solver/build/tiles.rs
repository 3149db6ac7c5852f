//! Builds block-Jacobi with tiles: finds the box of grid cells that own rows form, and describes the tiles
//! for reports.

use super::{Boxed, PrecondInfo, Value, numbered};
use crate::comm::agree;
use crate::operator::Terms;
use crate::partition::box_of;
use crate::precond::{BlockTiles, BlockTilesOptions, TileFactor, TileSpec};
use crate::problem::LocalProblem;
use crate::profile::{self, SetupPart};
use crate::solver::SolverSpace;
use crate::space::Precision;
use crate::text::{plural, seconds};
use crate::{Error, Result};
use std::time::Instant;

/// Factorises the tiles of own rows, which form a box of the grid.
pub(super) fn build<S: SolverSpace>(
    space: &S,
    terms: &Terms,
    local: &LocalProblem,
    spec: &TileSpec,
    precision: Precision,
) -> Result<(Boxed<S>, PrecondInfo)> {
    let (comm, start) = (space.comm(), Instant::now());
    let _factors = profile::begin(SetupPart::Factors);
    let cells = agree(comm, local_box(local))?;
    let options = BlockTilesOptions { tile: spec.tile, factor: spec.factor, precision };
    let p = agree(comm, numbered(local, BlockTiles::new(space, terms, cells, options)))?;
    let (tiling, factor) = (*p.tiling(), p.factor());
    let tiles: usize = tiling.counts().iter().product();
    let mut sums = [tiles, tiling.len(), terms.terms[0].1.blocks(), p.shifted()].map(|n| n as f64);
    comm.sum(&mut sums)?;
    let [tiles, rows, matrix, shifted] = sums;
    let (name, each) = match factor {
        TileFactor::Ic0 => ("IC(0)", 4.0),
        TileFactor::Ilu0 => ("ILU(0)", 7.0),
    };
    // A tile larger than the box is cut to the box.
    let [x, y, z] = std::array::from_fn(|k| tiling.tile[k].min(tiling.cells[k]));
    let mut details = vec![format!(
        "{} of at most {x}×{y}×{z} cells, set up in {}",
        plural(tiles as usize, "tile"),
        seconds(start.elapsed().as_secs_f64()),
    )];
    if shifted > 0.0 {
        details.push(format!(
            "{} too small or negative: each was replaced by the largest entry of its row",
            plural(shifted as usize, "pivot")
        ));
    }
    let parameters = vec![
        ("tile".to_string(), Value::Text(format!("{x}x{y}x{z}"))),
        ("factor".into(), Value::Text(factor.name().into())),
        ("tiles".into(), Value::Count(tiles as u64)),
        ("shifted".into(), Value::Count(shifted as u64)),
    ];
    let info = PrecondInfo {
        name: "block-jacobi".into(),
        parameters,
        numbers: each * rows,
        matrix,
        text: format!("block-Jacobi, {name} of tiles"),
        details,
        keeps_symmetry: true,
        ..PrecondInfo::default()
    };
    Ok((Some(Box::new(p)), info))
}

/// Returns the box of grid cells that own rows form, as cells in x, y and z.
fn local_box(local: &LocalProblem) -> Result<[usize; 3]> {
    let rows = local.terms.block_rows();
    let no_grid = || {
        Error::Unsupported(
            "block-jacobi needs a structured grid, numbered with x fastest: give the problem its grid, or \
             use ildu"
                .into(),
        )
    };
    let Some(numbers) = local.numbers else {
        let cells = local.grid.or_else(|| grid_of(local.terms)).ok_or_else(no_grid)?;
        let [x, y, z] = cells;
        return match x.checked_mul(y).and_then(|n| n.checked_mul(z)) == Some(rows) {
            true => Ok(cells),
            false => Err(Error::invalid(format!(
                "{rows} rows on a grid of {x}×{y}×{z} cells; block-jacobi needs one row per cell"
            ))),
        };
    };
    let grid = local.grid.filter(|grid| grid.iter().all(|&n| n > 0)).ok_or_else(no_grid)?;
    match box_of(grid, numbers) {
        Some(edges) => Ok(edges.map(|edge| edge.len())),
        None => Err(Error::Unsupported(format!(
            "block-jacobi needs each rank to own a box of the grid, numbered with x fastest; rank {} \
             ({rows} rows from {} to {}) does not: cut the grid into boxes with partition=boxes, or use ildu",
            local.comm.rank(),
            numbers.at(0),
            numbers.at(rows - 1)
        ))),
    }
}

/// Guesses the grid from the first row, which couples the first cell to its neighbours in x, y and z. The
/// set-up checks all other rows.
fn grid_of(terms: &Terms) -> Option<[usize; 3]> {
    let (_, a) = terms.terms.first()?;
    let n = a.block_rows();
    let first = match a.storage().first_rows(n.min(1), usize::MAX).ok()? {
        Some(first) => first.col,
        None => a.col()[..*a.row_ptr().get(1)?].to_vec(),
    };
    let upper: Vec<usize> = first.iter().map(|&j| j as usize).filter(|&j| j > 0 && j < n).collect();
    let cells = match upper[..] {
        [] | [1] => [n, 1, 1],
        [1, nx] => [nx, n / nx, 1],
        [1, nx, plane] => [nx, plane / nx, n / plane],
        _ => return None,
    };
    (cells.iter().product::<usize>() == n).then_some(cells)
}
