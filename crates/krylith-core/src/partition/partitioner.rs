//! Methods to distribute block rows to ranks.
//!
//! The weight of a row is the number of its stored blocks over all terms, because the cost of a product
//! follows that number. `rows` and `multilevel` give all rows the same weight. Results do not depend on the
//! number of threads. No rank is left without rows if there are at least as many rows as ranks.

use super::adjacency::Adjacency;
use super::multilevel;
use crate::operator::Terms;
use crate::{Error, Result};
use rayon::prelude::*;
use std::ops::Range;

/// The owner of each block row. A rank may own no rows.
///
/// # Examples
/// ```
/// use krylith::{matrix::Csr, operator::Terms, partition::Partition};
/// use krylith_core::partition::split;
/// let a = Csr::from_triplets(3, 3, &[(0, 0, 2.0), (0, 1, 1.0), (1, 1, 2.0), (2, 2, 2.0)])?;
/// let halves = Partition::by_rows(3, 2)?;
/// assert_eq!(halves.rows(), [vec![0], vec![1, 2]]);
/// let parts = split(&Terms::csr(&a)?, &halves)?;
/// assert_eq!(parts[0].halo.ghosts, 1); // row 0 uses column 1
/// # Ok::<(), krylith::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Partition {
    /// The owner of each block row.
    pub owner: Vec<u32>,
    /// Number of ranks; owners are smaller.
    pub ranks: usize,
}

impl Partition {
    /// Creates a partition from the owner of each block row.
    ///
    /// # Errors
    /// No ranks, or an owner that is not a rank.
    pub fn new(owner: Vec<u32>, ranks: usize) -> Result<Self> {
        if ranks == 0 || ranks > u32::MAX as usize {
            return Err(Error::invalid(format!("a partition needs 1 to 4294967295 ranks, not {ranks}")));
        }
        if let Some(i) = owner.iter().position(|&r| r as usize >= ranks) {
            return Err(Error::invalid(format!(
                "block row {i} is given to rank {}; ranks are 0 to {}",
                owner[i],
                ranks - 1
            )));
        }
        Ok(Self { owner, ranks })
    }

    /// Returns the block rows of each rank in ascending order.
    pub fn rows(&self) -> Vec<Vec<u64>> {
        let mut rows = vec![Vec::new(); self.ranks];
        for (i, &r) in self.owner.iter().enumerate() {
            rows[r as usize].push(i as u64);
        }
        rows
    }
}

/// A method to distribute block rows to ranks.
///
/// # Examples
/// ```
/// use krylith::{matrix::Csr, operator::Terms, partition::Partitioner};
/// let diagonal: Vec<_> = (0..4).map(|i| (i, i, 1.0)).collect();
/// let terms = Terms::csr(&Csr::from_triplets(4, 4, &diagonal)?)?;
/// // A square of four points, cut in space.
/// let points = [[0.0, 0.0, 0.0], [3.0, 0.0, 0.0], [0.0, 1.0, 0.0], [3.0, 1.0, 0.0]];
/// let cut = Partitioner::Geometric.partition(&terms, Some(&points), 2)?;
/// assert!(cut.owner[0] == cut.owner[2] && cut.owner[1] == cut.owner[3]); // across its longer side
/// # Ok::<(), krylith::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Partitioner {
    /// Runs of consecutive rows, with about equally many rows.
    Rows,
    /// Runs of consecutive rows, with about equally many stored blocks.
    Nonzeros,
    /// Recursive coordinate bisection: boxes in space, with about equally many stored blocks. Needs
    /// coordinates.
    Geometric,
    /// Parts of the graph with few blocks between them, by Krylith's own multilevel cut on all threads.
    Multilevel,
    /// k-way partition of the graph by METIS: few blocks between ranks. Needs the feature `metis`.
    Graph,
}

krylith_base::names! {
    Partitioner, "partition":
    Rows => "rows", Nonzeros => "nonzeros", Geometric => "geometric", Multilevel => "multilevel", Graph => "graph",
}

impl Partitioner {
    /// needed for [`Geometric`](Self::Geometric).
    ///
    /// # Errors
    /// No ranks; coordinates that are missing or do not fit; METIS missing, or a graph too large for it.
    pub fn partition(
        self,
        terms: &Terms,
        coordinates: Option<&[[f64; 3]]>,
        ranks: usize,
    ) -> Result<Partition> {
        match self {
            Partitioner::Rows => Partition::by_rows(terms.block_rows(), ranks),
            Partitioner::Nonzeros => Partition::by_nonzeros(terms, ranks),
            Partitioner::Geometric => {
                let points = coordinates.ok_or_else(|| {
                    Error::invalid(
                        "a geometric partition needs coordinates: add them to the problem, or to system.toml",
                    )
                })?;
                Partition::geometric(terms, points, ranks)
            }
            Partitioner::Multilevel => Partition::multilevel(terms, ranks),
            #[cfg(feature = "metis")]
            Partitioner::Graph => Partition::graph(terms, ranks),
            #[cfg(not(feature = "metis"))]
            Partitioner::Graph => Err(Error::Unsupported(
                "a graph partition needs METIS, which is not in this build: build with feature `metis`"
                    .into(),
            )),
        }
    }
}

impl Partition {
    /// Creates runs of consecutive rows whose lengths differ by at most one.
    ///
    /// # Errors
    /// No ranks.
    pub fn by_rows(rows: usize, ranks: usize) -> Result<Self> {
        let mut partition = Self::new(vec![0; rows], ranks)?;
        (0..ranks).for_each(|rank| partition.owner[contiguous(rows, rank, ranks)].fill(rank as u32));
        Ok(partition)
    }

    /// Creates runs of consecutive rows with stored blocks as equal as whole rows allow.
    ///
    /// # Errors
    /// No ranks.
    pub fn by_nonzeros(terms: &Terms, ranks: usize) -> Result<Self> {
        let weights = weights(terms);
        let n = weights.len();
        let mut partition = Self::new(vec![0; n], ranks)?;
        let before = running_sum(weights.iter().copied());
        let bounds = runs(n, ranks, |part| nearest(&before, before[n], part, ranks));
        bounds.windows(2).enumerate().for_each(|(r, w)| partition.owner[w[0]..w[1]].fill(r as u32));
        Ok(partition)
    }

    /// Cuts by recursive coordinate bisection (Berger and Bokhari, 1987). The longest edge of the nodes'
    /// bounding box is cut so that the weights of both sides are in the ratio ⌊P/2⌋ to ⌈P/2⌉, and so on in
    /// each side. Ties are broken by the coordinate along the next longest edge, and finally by number.
    ///
    /// # Errors
    /// No ranks, another number of points than block rows, a coordinate that is not finite.
    pub fn geometric(terms: &Terms, coordinates: &[[f64; 3]], ranks: usize) -> Result<Self> {
        let weights = weights(terms);
        if coordinates.len() != weights.len() {
            return Err(Error::invalid(format!(
                "{} points for {} block rows; a geometric partition needs one point per block row",
                coordinates.len(),
                weights.len()
            )));
        }
        if let Some(i) = coordinates.iter().position(|x| x.iter().any(|x| !x.is_finite())) {
            return Err(Error::invalid(format!(
                "the point of block row {i} is {:?}; coordinates must be finite",
                coordinates[i]
            )));
        }
        let mut partition = Self::new(vec![0; weights.len()], ranks)?;
        let mut nodes: Vec<u32> = (0..weights.len() as u32).collect();
        let mut rank = 0;
        bisect(&mut nodes, coordinates, &weights, ranks, &mut |nodes| {
            nodes.iter().for_each(|&i| partition.owner[i as usize] = rank);
            rank += 1;
        });
        Ok(partition)
    }

    /// Cuts the graph of A + Aᵀ, over all terms, into parts with about equally many rows, and few blocks
    /// between them. It is the multilevel cut of subdomains
    /// ([`SubdomainCut::Multilevel`](super::SubdomainCut::Multilevel)), on all threads. The result is the
    /// same on every run and for any number of threads. The number of edges is not limited to 32 bits.
    ///
    /// # Errors
    /// No ranks.
    pub fn multilevel(terms: &Terms, ranks: usize) -> Result<Self> {
        let n = terms.block_rows();
        if ranks <= 1 || n <= ranks {
            return Self::by_rows(n, ranks); // nothing to choose
        }
        let (mut owner, groups) = multilevel::cut_into(Adjacency::of(terms), ranks);
        let mut rows = vec![0u64; groups.max(ranks)];
        owner.iter().for_each(|&g| rows[g as usize] += 1);
        // Surplus groups of the cut go to the ranks with the fewest rows.
        let mut rank_of: Vec<u32> = (0..groups as u32).collect();
        for group in ranks..groups {
            let least = (0..ranks).min_by_key(|&r| rows[r]).unwrap_or(0);
            rank_of[group] = least as u32;
            rows[least] += rows[group];
        }
        owner.iter_mut().for_each(|g| *g = rank_of[*g as usize]);
        let mut partition = Self::new(owner, ranks)?;
        partition.fill_empty_ranks();
        Ok(partition)
    }

    /// Fills ranks that a graph cut left empty, if rows are few or heavy: each gets a row of the rank with
    /// most rows.
    pub(super) fn fill_empty_ranks(&mut self) {
        let mut count = vec![0usize; self.ranks];
        self.owner.iter().for_each(|&r| count[r as usize] += 1);
        while let Some(empty) = count.iter().position(|&c| c == 0) {
            let Some(largest) = (0..self.ranks).max_by_key(|&r| (count[r], std::cmp::Reverse(r))) else {
                return;
            };
            let Some(row) = self.owner.iter().rposition(|&r| r as usize == largest) else { return };
            if count[largest] < 2 {
                return;
            }
            self.owner[row] = empty as u32;
            count[largest] -= 1;
            count[empty] += 1;
        }
    }
}

/// Returns the rows of `rank` in [`Partition::by_rows`], without creating the partition.
///
/// # Panics
/// If `rank` is not below `ranks`.
pub fn contiguous(rows: usize, rank: usize, ranks: usize) -> Range<usize> {
    assert!(rank < ranks, "rank {rank} of {ranks}");
    let begin = |r: usize| (rows as u128 * r as u128 / ranks as u128) as usize;
    begin(rank)..begin(rank + 1)
}

/// Cuts `n` rows into one run per rank and returns the bounds 0, …, `n`. They are as near to `wanted(1)`, …,
/// `wanted(ranks − 1)` as possible without leaving a rank empty, if there are enough rows.
pub(crate) fn runs(n: usize, ranks: usize, wanted: impl Fn(usize) -> usize) -> Vec<usize> {
    let mut bounds = vec![0; ranks + 1];
    for rank in 0..ranks {
        let begin = bounds[rank];
        let end = if rank + 1 < ranks { wanted(rank + 1).clamp(begin, n) } else { n };
        bounds[rank + 1] = if n >= ranks { end.clamp(begin + 1, n - (ranks - rank - 1)) } else { end };
    }
    bounds
}

/// Bisects `nodes` for `ranks` ranks, and passes those of each rank in turn to `give`.
fn bisect(
    nodes: &mut [u32],
    points: &[[f64; 3]],
    weights: &[u64],
    ranks: usize,
    give: &mut impl FnMut(&[u32]),
) {
    if ranks == 1 {
        return give(nodes);
    }
    let mut axes = [0, 1, 2];
    let extent: [f64; 3] = std::array::from_fn(|d| {
        let range = nodes.iter().map(|&i| points[i as usize][d]);
        range.clone().fold(f64::NEG_INFINITY, f64::max) - range.fold(f64::INFINITY, f64::min)
    });
    axes.sort_by(|&d, &e| extent[e].total_cmp(&extent[d]));
    let place = |i: u32| axes.map(|d| points[i as usize][d] + 0.0); // −0 equals 0
    nodes.par_sort_unstable_by(|&i, &j| {
        let (x, y) = (place(i), place(j));
        let order = |k: usize| x[k].total_cmp(&y[k]);
        order(0).then_with(|| order(1)).then_with(|| order(2)).then(i.cmp(&j))
    });
    let low = ranks / 2;
    let before = running_sum(nodes.iter().map(|&i| weights[i as usize]));
    let mut middle = nearest(&before, before[nodes.len()], low, ranks);
    if nodes.len() >= ranks {
        middle = middle.clamp(low, nodes.len() - (ranks - low));
    }
    let (left, right) = nodes.split_at_mut(middle);
    bisect(left, points, weights, low, give);
    bisect(right, points, weights, ranks - low, give);
}

/// Returns the stored blocks of each row over all terms.
pub(super) fn weights(terms: &Terms) -> Vec<u64> {
    let blocks =
        |i: usize| terms.terms.iter().map(|(_, a)| (a.row_ptr()[i + 1] - a.row_ptr()[i]) as u64).sum();
    // An empty row has weight 1, so that a matrix without blocks can be cut.
    (0..terms.block_rows()).into_par_iter().map(|i| 1u64.max(blocks(i))).collect()
}

/// Returns the sums of the first 0, 1, …, n weights.
fn running_sum(weights: impl Iterator<Item = u64>) -> Vec<u64> {
    let sums = weights.scan(0, |sum, w| {
        *sum += w;
        Some(*sum)
    });
    std::iter::once(0).chain(sums).collect()
}

/// Returns the number of items whose running sum is nearest to `part`/`parts` of `total`.
pub(crate) fn nearest(before: &[u64], total: u64, part: usize, parts: usize) -> usize {
    let share = |sum: u64| u128::from(sum) * parts as u128;
    let target = u128::from(total) * part as u128;
    let above = before.partition_point(|&sum| share(sum) < target);
    match above {
        0 => 0,
        _ if target - share(before[above - 1]) <= share(before[above]) - target => above - 1,
        _ => above,
    }
}
