//! Boxes of a grid as subdomains: they cut the fewest couplings, and do not depend on the number of ranks if
//! runs of rows end between boxes.

use super::{SubdomainCut, SubdomainSpec, Subdomains};
use crate::partition::contiguous;
use std::ops::Range;

/// Returns the boxes of the whole grid that form a run of its rows; `None` if the run cuts a box.
pub(super) fn of_slab(
    grid: [usize; 3],
    run: Range<usize>,
    spec: SubdomainSpec,
) -> Option<(Subdomains, [usize; 3])> {
    let [nx, ny, nz] = grid;
    let wanted = wanted(spec) && nx * ny * nz > spec.rows;
    let Range { start: first, end } = run;
    let size = box_size(grid, spec.rows);
    let layer = nx * ny * size[2];
    let fits =
        first < end && first.is_multiple_of(layer) && (end.is_multiple_of(layer) || end == nx * ny * nz);
    (wanted && fits).then(|| (Subdomains::boxes([nx, ny, (end - first) / (nx * ny)], size), size))
}

/// Returns true if equal runs of rows of a grid on `ranks` ranks consist of whole boxes. Subdomains are then
/// the same as on one rank, even if each rank holds only its own rows.
pub fn slabs_fit(grid: [usize; 3], spec: SubdomainSpec, ranks: usize) -> bool {
    let nodes = grid.iter().product();
    (0..ranks).all(|rank| of_slab(grid, contiguous(nodes, rank, ranks), spec).is_some())
}

/// Returns the number of rows of a layer of boxes, if boxes are the subdomains of the whole grid: runs of
/// whole layers then consist of whole subdomains.
#[cfg(feature = "cuda")]
pub(crate) fn layer(grid: [usize; 3], nodes: usize, spec: SubdomainSpec) -> Option<usize> {
    of_grid(grid, nodes, spec).map(|(_, size)| grid[0] * grid[1] * size[2])
}

/// Returns boxes of at most `rows` points, if boxes fit the request and the grid is the whole system.
pub(super) fn of_grid(
    grid: [usize; 3],
    nodes: usize,
    spec: SubdomainSpec,
) -> Option<(Subdomains, [usize; 3])> {
    let fits = grid.iter().product::<usize>() == nodes && nodes > spec.rows;
    (fits && wanted(spec)).then(|| {
        let size = box_size(grid, spec.rows);
        (Subdomains::boxes(grid, size), size)
    })
}

/// Returns true if boxes fit the requested method.
fn wanted(spec: SubdomainSpec) -> bool {
    matches!(spec.cut, SubdomainCut::Auto | SubdomainCut::Geometric)
}

/// Returns the edge lengths of boxes of at most `rows` points that cut the fewest couplings in the grid. The
/// cost is scaled up by the unused space of smaller boxes at the boundary.
fn box_size(grid: [usize; 3], rows: usize) -> [usize; 3] {
    let [nx, ny, nz] = grid.map(|n| n.max(1));
    let cost = |size: [usize; 3]| {
        let count: [usize; 3] = std::array::from_fn(|d| grid[d].div_ceil(size[d]).max(1));
        let cut = (count[0] - 1) * ny * nz + (count[1] - 1) * nx * nz + (count[2] - 1) * nx * ny;
        let room = count.iter().product::<usize>() * size.iter().product::<usize>();
        (cut as f64) * (room as f64) / (nx * ny * nz) as f64
    };
    let mut best = ([1; 3], f64::INFINITY);
    for x in edges(nx, rows) {
        for y in edges(ny, rows / x) {
            let Some(z) = edges(nz, rows / (x * y)).next() else { continue };
            let cost = cost([x, y, z]);
            if cost < best.1 {
                best = ([x, y, z], cost);
            }
        }
    }
    best.0
}

/// Iterates over edge lengths of at most `most` that cut `n` points into equal pieces except the last,
/// longest first.
fn edges(n: usize, most: usize) -> impl Iterator<Item = usize> {
    let first = if most == 0 { None } else { Some(n.div_ceil(n.div_ceil(most.min(n)))) };
    // The next length has the fewest pieces among the shorter ones.
    std::iter::successors(first, move |&edge| {
        (edge > 1).then(|| n.div_ceil(n.div_ceil(edge - 1)).min(edge - 1))
    })
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
            ([300, 300, 1], 2048, [43, 43, 1]),
            ([5, 1000, 1], 64, [5, 12, 1]),
            ([12, 12, 12], 216, [6, 6, 6]),
            ([1, 1, 7], 3, [1, 1, 3]),
        ] {
            let found = box_size(grid, rows);
            assert!(found.iter().product::<usize>() <= rows, "{grid:?} {rows}: {found:?}");
            assert_eq!(found, size, "{grid:?} {rows}");
        }
    }

    #[test]
    fn slabs_of_a_grid_are_its_boxes() {
        let (grid, spec) = ([8, 8, 16], SubdomainSpec { cut: SubdomainCut::Auto, rows: 64 });
        assert!(slabs_fit(grid, spec, 2) && slabs_fit(grid, spec, 4) && !slabs_fit(grid, spec, 3));
        let (whole, _) = of_grid(grid, 1024, spec).unwrap();
        let (own, size) = of_slab(grid, 512..1024, spec).unwrap();
        assert_eq!((size, own.count()), ([4, 4, 4], 8));
        for p in 0..8 {
            let rows: Vec<u32> = own.rows(p).iter().map(|i| i + 512).collect();
            assert_eq!(rows, whole.rows(8 + p));
        }
    }
}
