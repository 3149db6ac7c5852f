//! Boxes of a structured grid as parts of ranks.

use super::Partition;
use super::{RowNumbers, Stencil, contiguous};
use crate::{Error, Result};
use rayon::prelude::*;
use std::ops::Range;

/// A grid of nodes, numbered with x fastest, that is cut into boxes, one for each rank.
///
/// Ranks are numbered like nodes. The edges of two boxes along an axis differ by at most one node. No list of
/// nodes is stored.
///
/// # Examples
/// ```
/// use krylith_core::partition::{GridBoxes, Stencil};
/// let boxes = GridBoxes::new([100, 100, 100], 8, None)?;
/// assert_eq!(boxes.shape(), [2, 2, 2]);
/// assert_eq!(boxes.edges(7), [50..100, 50..100, 50..100]);
/// assert_eq!(boxes.owner(0), 0);
/// // A box of 50³ nodes has three faces that touch other boxes.
/// let halo = boxes.halo(0, Stencil::Faces);
/// assert_eq!(halo.iter().map(|&(_, nodes)| nodes).collect::<Vec<_>>(), [2500, 2500, 2500]);
/// # Ok::<(), krylith_core::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GridBoxes {
    grid: [usize; 3],
    shape: [usize; 3],
}

impl GridBoxes {
    /// Cuts a grid of nx × ny × nz nodes into p × q × r boxes. Without `shape`, it is that with the fewest
    /// links between boxes.
    ///
    /// # Errors
    /// A shape of another number of boxes than ranks, or with more boxes than nodes along an axis; no shape
    /// that fits.
    pub fn new(grid: [usize; 3], ranks: usize, shape: Option<[usize; 3]>) -> Result<Self> {
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
        Ok(Self { grid, shape })
    }

    /// Returns the number of boxes along each axis.
    pub fn shape(&self) -> [usize; 3] {
        self.shape
    }

    /// Returns the number of boxes.
    pub fn ranks(&self) -> usize {
        product(self.shape)
    }

    /// Returns the number of nodes of the grid.
    pub fn nodes(&self) -> u64 {
        product(self.grid) as u64
    }

    /// Returns the position of a rank's box among the boxes along each axis.
    fn place(&self, rank: usize) -> [usize; 3] {
        let [p, q, _] = self.shape;
        [rank % p, rank / p % q, rank / (p * q)]
    }

    /// Returns the nodes of a rank's box along each axis.
    pub fn edges(&self, rank: usize) -> [Range<usize>; 3] {
        let place = self.place(rank);
        std::array::from_fn(|axis| contiguous(self.grid[axis], place[axis], self.shape[axis]))
    }

    /// Returns the numbers of a rank's nodes, ascending.
    pub fn rows(&self, rank: usize) -> Vec<u64> {
        let ([x, y, z], [nx, ny, _]) = (self.edges(rank), self.grid);
        let mut rows = Vec::with_capacity(x.len() * y.len() * z.len());
        for k in z {
            for j in y.clone() {
                let line = nx * (j + ny * k);
                rows.extend((line + x.start) as u64..(line + x.end) as u64);
            }
        }
        rows
    }

    /// Returns the rank that owns a node.
    pub fn owner(&self, node: u64) -> usize {
        let ([nx, ny, _], node) = (self.grid, node as usize);
        let at = [node % nx, node / nx % ny, node / nx / ny];
        let [i, j, k] = std::array::from_fn(|axis| {
            // Part k begins at node ⌊k n/parts⌋.
            ((at[axis] + 1) * self.shape[axis]).div_ceil(self.grid[axis]) - 1
        });
        i + self.shape[0] * (j + self.shape[1] * k)
    }

    /// Returns the neighbours of a rank, ascending, each with the number of nodes that it sends to the rank.
    /// The rank sends it as many.
    pub fn halo(&self, rank: usize, stencil: Stencil) -> Vec<(usize, usize)> {
        let (place, edges) = (self.place(rank), self.edges(rank));
        let mut halo = Vec::new();
        for step in (0..27).map(|k: isize| [k % 3 - 1, k / 3 % 3 - 1, k / 9 - 1]) {
            let there = |axis: usize| place[axis].checked_add_signed(step[axis]);
            let [Some(i), Some(j), Some(k)] = [0, 1, 2].map(there) else { continue };
            if stencil.couples(step) && i < self.shape[0] && j < self.shape[1] && k < self.shape[2] {
                let along = |axis: usize| if step[axis] == 0 { edges[axis].len() } else { 1 };
                let other = i + self.shape[0] * (j + self.shape[1] * k);
                halo.push((other, [0, 1, 2].map(along).iter().product()));
            }
        }
        halo
    }

    /// Returns the largest number of ghosts for each own node of a rank.
    pub fn most_ghosts(&self, stencil: Stencil) -> f64 {
        let share = |rank: usize| {
            let ghosts: usize = self.halo(rank, stencil).iter().map(|&(_, nodes)| nodes).sum();
            ghosts as f64 / product(self.edges(rank).map(|edge| edge.len())) as f64
        };
        (0..self.ranks()).map(share).fold(0.0, f64::max)
    }

    /// Returns the number of a rank's nodes that are coupled with nodes of other ranks.
    pub fn boundary(&self, rank: usize) -> usize {
        let (place, edges) = (self.place(rank), self.edges(rank));
        let inner = |axis: usize| {
            let sides = usize::from(place[axis] > 0) + usize::from(place[axis] + 1 < self.shape[axis]);
            edges[axis].len().saturating_sub(sides)
        };
        product(edges.clone().map(|edge| edge.len())) - product([0, 1, 2].map(inner))
    }
}

impl Partition {
    /// Cuts a grid of nx × ny × nz nodes, numbered with x fastest, into p × q × r boxes, one for each rank.
    /// Ranks are numbered like nodes. The edges of two boxes along an axis differ by at most one node.
    /// Without `shape`, it is that with the fewest links between boxes.
    ///
    /// # Errors
    /// Those of [`GridBoxes::new`].
    ///
    /// ```
    /// use krylith::partition::Partition;
    /// let halves = Partition::boxes([4, 2, 1], 2, None)?;
    /// assert_eq!(halves.owner, [0, 0, 1, 1, 0, 0, 1, 1]); // across the longest edge
    /// # Ok::<(), krylith::Error>(())
    /// ```
    pub fn boxes(grid: [usize; 3], ranks: usize, shape: Option<[usize; 3]>) -> Result<Self> {
        let boxes = GridBoxes::new(grid, ranks, shape)?;
        let shape = boxes.shape();
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

/// Returns the box that these nodes of a grid form, as nodes along each axis; `None` if they form none, or do
/// not ascend. No nodes form an empty box.
pub(crate) fn box_of(grid: [usize; 3], numbers: RowNumbers) -> Option<[Range<usize>; 3]> {
    if numbers.is_empty() {
        return Some([0..0, 0..0, 0..0]);
    }
    if grid.contains(&0) {
        return None;
    }
    let [nx, ny, nz] = grid.map(|n| n as u64);
    let (first, last) = (numbers.at(0), numbers.at(numbers.len() - 1));
    let cell = |number: u64| [number % nx, number / nx % ny, number / nx / ny];
    let (from, to) = (cell(first), cell(last));
    let [x, y, z]: [u64; 3] = std::array::from_fn(|axis| (to[axis] + 1).saturating_sub(from[axis]));
    if to[2] >= nz || x.checked_mul(y)?.checked_mul(z)? != numbers.len() as u64 {
        return None;
    }
    let number = |i: u64| from[0] + i % x + nx * (from[1] + i / x % y + ny * (from[2] + i / x / y));
    let fits = match numbers {
        // For a run of rows it is enough to check both ends.
        RowNumbers::Run { .. } => x == nx && (y == ny || z == 1) || (y == 1 && z == 1),
        RowNumbers::List(list) => list.par_iter().enumerate().all(|(i, &own)| own == number(i as u64)),
    };
    fits.then(|| std::array::from_fn(|axis| from[axis] as usize..to[axis] as usize + 1))
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
    /// Owners, ghosts and boundaries are those of the partition and of the links of its nodes.
    #[test]
    fn boxes_are_those_of_the_partition() {
        for (grid, shape) in [
            ([7, 5, 6], [3, 2, 2]),
            ([5, 4, 3], [5, 1, 3]),
            ([4, 4, 9], [1, 1, 4]),
            ([6, 6, 1], [3, 3, 1]),
            ([3, 3, 3], [3, 3, 3]),
            ([5, 1, 1], [1, 1, 1]),
        ] {
            let ranks = product(shape);
            let partition = Partition::boxes(grid, ranks, Some(shape)).unwrap();
            let boxes = GridBoxes::new(grid, ranks, Some(shape)).unwrap();
            let owners: Vec<u32> = (0..product(grid)).map(|i| boxes.owner(i as u64) as u32).collect();
            assert_eq!(owners, partition.owner, "{grid:?} {shape:?}");
            let at =
                |i: usize| [i % grid[0], i / grid[0] % grid[1], i / grid[0] / grid[1]].map(|n| n as isize);
            for (rank, own) in partition.rows().iter().enumerate() {
                assert_eq!(&boxes.rows(rank), own, "{grid:?} {shape:?} {rank}");
                for stencil in [Stencil::Faces, Stencil::Paths, Stencil::Corners] {
                    let coupled = |i: usize, j: usize| {
                        let step: [isize; 3] = std::array::from_fn(|axis| at(j)[axis] - at(i)[axis]);
                        let signs = step.iter().map(|d| d.signum());
                        let (up, down) = (signs.clone().any(|s| s > 0), signs.clone().any(|s| s < 0));
                        let most = step.iter().map(|d| d.abs()).max() == Some(1);
                        most && match stencil {
                            Stencil::Faces => step.iter().map(|d| d.abs()).sum::<isize>() == 1,
                            Stencil::Paths => !(up && down),
                            Stencil::Corners => true,
                        }
                    };
                    let own: Vec<usize> = own.iter().map(|&i| i as usize).collect();
                    let far = |j: &usize| owners[*j] as usize != rank && own.iter().any(|&i| coupled(i, *j));
                    let mut ghosts = vec![0; ranks];
                    (0..product(grid)).filter(far).for_each(|j| ghosts[owners[j] as usize] += 1);
                    let expected: Vec<(usize, usize)> =
                        ghosts.into_iter().enumerate().filter(|(_, nodes)| *nodes > 0).collect();
                    let case = format!("{grid:?} {shape:?} {rank} {stencil:?}");
                    assert_eq!(boxes.halo(rank, stencil), expected, "{case}");
                    let others = |i: &&usize| {
                        (0..product(grid)).any(|j| owners[j] as usize != rank && coupled(**i, j))
                    };
                    assert_eq!(boxes.boundary(rank), own.iter().filter(others).count(), "{case}");
                }
            }
        }
    }

    /// The pressure grid of JUPITER on 512 ranks: ghosts of a rank between others, as a share of its cells.
    #[test]
    fn boxes_of_a_large_grid_need_few_ghosts() {
        let grid = [1280, 1280, 4608];
        let share = |shape: [usize; 3], rank: usize| {
            let boxes = GridBoxes::new(grid, 512, Some(shape)).unwrap();
            let ghosts: usize = boxes.halo(rank, Stencil::Faces).iter().map(|&(_, nodes)| nodes).sum();
            ghosts as f64 / boxes.rows(rank).len() as f64
        };
        // Slabs of 9 planes: 2/9. Boxes of 160×160×576 cells: 2/160 + 2/160 + 2/576.
        assert!((share([1, 1, 512], 100) - 2.0 / 9.0).abs() < 1e-15);
        assert!((share([8, 8, 8], 1 + 8 + 64) - (4.0 / 160.0 + 2.0 / 576.0)).abs() < 1e-15);
    }

    #[test]
    fn boxes_are_recognised_by_their_nodes() {
        let grid = [4, 3, 5];
        let run = |first, count| box_of(grid, RowNumbers::Run { first, count });
        let list = |list: &[u64]| box_of(grid, RowNumbers::List(list));
        assert_eq!(run(12, 24), Some([0..4, 0..3, 1..3]));
        assert_eq!(run(5, 2), Some([1..3, 1..2, 0..1]));
        assert_eq!(run(4, 8), Some([0..4, 1..3, 0..1]));
        assert_eq!((run(4, 12), run(3, 2), run(48, 24)), (None, None, None));
        assert_eq!(list(&[1, 2, 5, 6, 13, 14, 17, 18]), Some([1..3, 0..2, 0..2]));
        assert_eq!((list(&[1, 2, 5, 7]), list(&[2, 1]), list(&[0, 5])), (None, None, None));
        assert_eq!(list(&[]), Some([0..0, 0..0, 0..0]));
        assert_eq!(box_of([0, 3, 3], RowNumbers::List(&[1])), None);
        let boxes = GridBoxes::new(grid, 12, Some([2, 3, 2])).unwrap();
        (0..12).for_each(|rank| assert_eq!(list(&boxes.rows(rank)), Some(boxes.edges(rank)), "{rank}"));
    }
}
