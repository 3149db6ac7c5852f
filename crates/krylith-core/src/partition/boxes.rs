//! Boxes of a structured grid as parts of ranks.

use super::Partition;
use super::contiguous;
use crate::{Error, Result};

impl Partition {
    /// Cuts a grid of nx × ny × nz nodes, numbered with x fastest, into p × q × r boxes, one for each rank.
    /// Ranks are numbered like nodes. The edges of two boxes along an axis differ by at most one node.
    /// Without `shape`, it is that with the fewest links between boxes.
    ///
    /// # Errors
    /// A shape of another number of boxes than ranks, or with more boxes than nodes along an axis; no shape
    /// that fits.
    ///
    /// ```
    /// use krylith::partition::Partition;
    /// let halves = Partition::boxes([4, 2, 1], 2, None)?;
    /// assert_eq!(halves.owner, [0, 0, 1, 1, 0, 0, 1, 1]); // across the longest edge
    /// # Ok::<(), krylith::Error>(())
    /// ```
    pub fn boxes(grid: [usize; 3], ranks: usize, shape: Option<[usize; 3]>) -> Result<Self> {
        let text = |[x, y, z]: [usize; 3]| format!("{x}x{y}x{z}");
        let shape = match shape {
            Some(shape) if product(shape) != ranks => {
                return Err(Error::invalid(format!(
                    "partition=boxes:{} has {} boxes for {ranks} ranks; give one box to each rank",
                    text(shape),
                    product(shape)
                )));
            }
            Some(shape) if (0..3).any(|axis| shape[axis] > grid[axis]) => {
                return Err(Error::invalid(format!(
                    "partition=boxes:{} has more boxes than nodes along an axis of the grid of {} nodes",
                    text(shape),
                    text(grid)
                )));
            }
            Some(shape) => shape,
            None => best_shape(grid, ranks).ok_or_else(|| {
                Error::invalid(format!(
                    "a grid of {} nodes has no {ranks} boxes of whole planes along each axis; use another \
                     number of ranks, or partition=multilevel",
                    text(grid)
                ))
            })?,
        };
        // The box of each plane along an axis.
        let places = |axis: usize| -> Vec<u32> {
            let mut places = vec![0; grid[axis]];
            for part in 0..shape[axis] {
                places[contiguous(grid[axis], part, shape[axis])].fill(part as u32);
            }
            places
        };
        let [x, y, z] = [0, 1, 2].map(places);
        let [p, q, _] = shape.map(|n| n as u32);
        let mut owner = Vec::with_capacity(product(grid));
        for k in &z {
            for j in &y {
                owner.extend(x.iter().map(|i| i + p * (j + q * k)));
            }
        }
        Self::new(owner, ranks)
    }
}

fn product(of: [usize; 3]) -> usize {
    of.iter().product()
}

/// Returns the shape of `ranks` boxes with the fewest links between them. Among equal ones, boxes along z
/// come first, then along y, because their nodes are contiguous.
fn best_shape([nx, ny, nz]: [usize; 3], ranks: usize) -> Option<[usize; 3]> {
    let divisors = |n: usize| (1..=n).filter(move |d| n.is_multiple_of(*d));
    let shapes = divisors(ranks).flat_map(|p| divisors(ranks / p).map(move |q| [p, q, ranks / p / q]));
    let fits = shapes.filter(|[p, q, r]| *p <= nx && *q <= ny && *r <= nz);
    fits.min_by_key(|&[p, q, r]| ((p - 1) * ny * nz + (q - 1) * nx * nz + (r - 1) * nx * ny, p, q))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapes_cut_the_fewest_links() {
        assert_eq!(best_shape([64, 64, 64], 8), Some([2, 2, 2]));
        assert_eq!(best_shape([64, 64, 64], 2), Some([1, 1, 2]));
        assert_eq!(best_shape([64, 64, 64], 512), Some([8, 8, 8]));
        assert_eq!(best_shape([100, 10, 1], 4), Some([4, 1, 1]));
        assert_eq!(best_shape([3, 3, 3], 7), None);
        assert_eq!(best_shape([7, 1, 1], 7), Some([7, 1, 1]));
    }

    /// Every rank has the nodes of one box, and edges differ by at most one node.
    #[test]
    fn parts_are_boxes() {
        for (grid, ranks, shape) in
            [([7, 5, 6], 12, None), ([5, 4, 3], 6, Some([3, 2, 1])), ([4, 4, 4], 1, None)]
        {
            let rows = Partition::boxes(grid, ranks, shape).unwrap().rows();
            let [nx, ny, _] = grid;
            let mut edges: [Vec<usize>; 3] = Default::default();
            for own in &rows {
                let of = |axis: usize| {
                    own.iter().map(move |&i| {
                        let i = i as usize;
                        [i % nx, i / nx % ny, i / nx / ny][axis]
                    })
                };
                let edge = [0, 1, 2].map(|axis| 1 + of(axis).max().unwrap() - of(axis).min().unwrap());
                assert_eq!(product(edge), own.len());
                (0..3).for_each(|axis| edges[axis].push(edge[axis]));
            }
            assert_eq!(rows.iter().map(Vec::len).sum::<usize>(), product(grid));
            assert!(edges.iter().all(|edges| edges.iter().max().unwrap() - edges.iter().min().unwrap() <= 1));
        }
        let refused = |grid, ranks, shape| Partition::boxes(grid, ranks, shape).unwrap_err().to_string();
        assert!(refused([4, 4, 4], 8, Some([2, 2, 1])).contains("4 boxes for 8 ranks"));
        assert!(refused([4, 1, 4], 4, Some([2, 2, 1])).contains("more boxes than nodes"));
        assert!(refused([3, 3, 3], 7, None).contains("no 7 boxes"));
    }
}
