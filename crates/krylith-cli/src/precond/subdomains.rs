//! Which subdomains `ildu0` takes: boxes of a grid where there is one, else the library's cuts.

use super::spelling::Ildu0;
use crate::run::Job;
use krylith::operator::Terms;
use krylith::partition::{SubdomainCut, Subdomains};
use std::borrow::Cow;

/// Subdomains of the job's own rows, and why those.
///
/// # Errors
/// A way that needs coordinates where none are known.
pub fn own(job: &Job, terms: &Terms, ildu: &Ildu0) -> krylith::Result<(Subdomains, String)> {
    let rows = ildu.most_rows(terms.block() * terms.stages());
    let whole = job.numbers.is_none();
    if let Some(grid) = job.grid.filter(|_| whole)
        && let Some((subdomains, size)) = of_grid(grid, terms.block_rows(), ildu.cut, rows)
    {
        let [x, y, z] = size;
        return Ok((subdomains, format!("boxes of {x}×{y}×{z} nodes")));
    }
    let points = points(job, terms.block_rows());
    let (subdomains, why) = Subdomains::cut(terms, points.as_deref(), ildu.cut, rows)?;
    let way = if why.is_empty() { format!("cut={}", ildu.cut.name()) } else { why.to_string() };
    let way = if whole { way } else { format!("{way}; subdomains follow ranks") };
    Ok((subdomains, way))
}

/// Boxes of at most `rows` points, where that is the way wanted and the grid is all there is.
pub fn of_grid(
    grid: [usize; 3],
    nodes: usize,
    cut: SubdomainCut,
    rows: usize,
) -> Option<(Subdomains, [usize; 3])> {
    let fits = grid.iter().product::<usize>() == nodes && nodes > rows;
    let wanted = matches!(cut, SubdomainCut::Auto | SubdomainCut::Geometric);
    (fits && wanted).then(|| {
        let size = box_size(grid, rows);
        (Subdomains::boxes(grid, size), size)
    })
}

/// Edges of boxes of at most `rows` points: nearly cubes, and as equal as the grid allows.
fn box_size(grid: [usize; 3], rows: usize) -> [usize; 3] {
    let mut size = [1; 3];
    // Twice the shortest edge first, for the powers of two that grids like, then point by point.
    for grow in [|e: usize| 2 * e, |e: usize| e + 1] {
        loop {
            let fits = |d: &usize| {
                let grown = grow(size[*d]).min(grid[*d]);
                grown > size[*d] && size.iter().product::<usize>() / size[*d] * grown <= rows
            };
            let Some(d) = (0..3).filter(fits).min_by_key(|&d| size[d]) else { break };
            size[d] = grow(size[d]).min(grid[d]);
        }
    }
    // As many boxes, and none of them a thin rest.
    std::array::from_fn(|d| grid[d].div_ceil(grid[d].div_ceil(size[d])))
}

/// One point for each of the job's own nodes.
fn points<'a>(job: &Job<'a>, nodes: usize) -> Option<Cow<'a, [[f64; 3]]>> {
    let all = job.coordinates?;
    match job.numbers {
        Some(numbers) if all.len() != nodes => {
            numbers.iter().map(|&i| all.get(i as usize).copied()).collect::<Option<Vec<_>>>().map(Cow::Owned)
        }
        _ => (all.len() == nodes).then_some(Cow::Borrowed(all)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn boxes_are_nearly_cubes_and_no_larger_than_asked() {
        for (grid, rows, size) in [
            ([128, 128, 128], 2048, [16, 16, 8]),
            ([128, 128, 128], 512, [8, 8, 8]),
            ([100, 100, 100], 1000, [10, 10, 10]),
            ([300, 300, 1], 2048, [60, 30, 1]),
            ([5, 1000, 1], 64, [5, 12, 1]),
            ([1, 1, 7], 3, [1, 1, 3]),
        ] {
            let found = box_size(grid, rows);
            assert!(found.iter().product::<usize>() <= rows, "{grid:?} {rows}: {found:?}");
            assert_eq!(found, size, "{grid:?} {rows}");
        }
    }
}
