//! Boxes of a grid as subdomains: they cut the fewest couplings, and do not depend on the number of ranks if
//! the rows of each rank consist of whole boxes.

use super::{SubdomainCut, SubdomainSpec, Subdomains};
use crate::partition::{GridBoxes, RowNumbers, box_of, contiguous};
use std::ops::Range;

/// Subdomains of the box of a grid that a rank owns.
pub(super) struct OfBox {
    /// The subdomains, in local numbers.
    pub subdomains: Subdomains,
    /// The edge lengths of their boxes.
    pub size: [usize; 3],
    /// True if they are the boxes of the whole grid, so that they do not depend on the ranks.
    pub of_whole: bool,
}

/// Cuts a rank's box of a grid into boxes; `None` if boxes do not fit the request. They are those of the
/// whole grid if the rank's box cuts none of them.
pub(super) fn of_box(grid: [usize; 3], own: &[Range<usize>; 3], spec: SubdomainSpec) -> Option<OfBox> {
    let edges = own.clone().map(|edge| edge.len());
    if !wanted(spec) || edges.contains(&0) || grid.iter().product::<usize>() <= spec.rows {
        return None;
    }
    let size = box_size(grid, spec.rows);
    let of_whole = (0..3).all(|axis| {
        let between = |at: usize| at.is_multiple_of(size[axis]) || at == grid[axis];
        between(own[axis].start) && between(own[axis].end)
    });
    let size = if of_whole { size } else { box_size(edges, spec.rows) };
    Some(OfBox { subdomains: Subdomains::boxes(edges, size), size, of_whole })
}

/// Returns true if equal runs of rows of a grid on `ranks` ranks consist of whole boxes. Subdomains are then
/// the same as on one rank, even if each rank holds only its own rows.
pub fn slabs_fit(grid: [usize; 3], spec: SubdomainSpec, ranks: usize) -> bool {
    let nodes = grid.iter().product();
    let own = |rank: usize| {
        let run = contiguous(nodes, rank, ranks);
        box_of(grid, RowNumbers::Run { first: run.start as u64, count: run.len() })
    };
    fit(grid, spec, (0..ranks).map(own))
}

/// Returns true if each box of ranks consists of whole boxes of subdomains.
pub fn boxes_fit(grid: [usize; 3], spec: SubdomainSpec, boxes: &GridBoxes) -> bool {
    fit(grid, spec, (0..boxes.ranks()).map(|rank| Some(boxes.edges(rank))))
}

fn fit(grid: [usize; 3], spec: SubdomainSpec, own: impl Iterator<Item = Option<[Range<usize>; 3]>>) -> bool {
    own.into_iter()
        .all(|own| own.and_then(|own| of_box(grid, &own, spec)).is_some_and(|found| found.of_whole))
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
        let found = of_box(grid, &[0..8, 0..8, 8..16], spec).unwrap();
        assert_eq!((found.size, found.subdomains.count(), found.of_whole), ([4, 4, 4], 8, true));
        for p in 0..8 {
            let rows: Vec<u32> = found.subdomains.rows(p).iter().map(|i| i + 512).collect();
            assert_eq!(rows, whole.rows(8 + p));
        }
    }

    #[test]
    fn boxes_of_ranks_are_cut_into_boxes() {
        let (grid, spec) = ([8, 8, 16], SubdomainSpec { cut: SubdomainCut::Geometric, rows: 64 });
        let (whole, _) = of_grid(grid, 1024, spec).unwrap();
        // Ranks with whole boxes have those of the whole grid.
        let boxes = GridBoxes::new(grid, 8, Some([2, 2, 2])).unwrap();
        assert!(boxes_fit(grid, spec, &boxes));
        let mut found: Vec<Vec<u32>> = Vec::new();
        for rank in 0..8 {
            let (rows, own) = (boxes.rows(rank), of_box(grid, &boxes.edges(rank), spec).unwrap());
            let subdomains = own.subdomains;
            let global = |p| subdomains.rows(p).iter().map(|&i| rows[i as usize] as u32).collect();
            found.extend((0..subdomains.count()).map(global));
        }
        found.sort();
        let mut expected: Vec<Vec<u32>> = (0..whole.count()).map(|p| whole.rows(p).to_vec()).collect();
        expected.sort();
        assert_eq!(found, expected);
        // A box of 8×8×6 nodes cuts subdomains of 4×4×4: it gets its own, of at most 64 nodes.
        let own = of_box(grid, &[0..8, 0..8, 0..6], spec).unwrap();
        assert_eq!((own.size, own.subdomains.count(), own.of_whole), ([4, 4, 3], 8, false));
        assert!(!boxes_fit(grid, spec, &GridBoxes::new(grid, 3, Some([1, 1, 3])).unwrap()));
        // A method without boxes, and a system that is one subdomain.
        assert!(
            of_box(grid, &[0..8, 0..8, 0..8], SubdomainSpec { cut: SubdomainCut::Runs, ..spec }).is_none()
        );
        assert!(of_box(grid, &[0..8, 0..8, 0..8], SubdomainSpec { rows: 1024, ..spec }).is_none());
    }
}
