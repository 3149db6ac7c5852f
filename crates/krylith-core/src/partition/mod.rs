//! Distribution of block rows to ranks, and the halo exchange of a product.
//!
//! All sizes here count nodes (block rows). The b·s numbers of a node are contiguous in a vector, so a
//! message gathers contiguous runs and is received directly in the ghost entries. That replaces the
//! pre-mapping and buffering of the OKP paper (Alg. 5 and 6).
//!
//! [`split`] cuts a matrix that every rank can hold. [`distribute`] takes rows that are already distributed,
//! so that no rank ever holds the whole numbering. For the same distribution of rows, both return the same
//! [`Part`].
//!
//! A [`Part`] has its own block rows with local columns. Own nodes come first, then ghosts, ordered by owner
//! and global number. [`Quality`] says from patterns alone what each rank computes and exchanges.
//!
//! To add a partition method, add a constructor of [`Partition`] and a name in `partitioner.rs`. To add a
//! method that cuts subdomains, add a `SubdomainCut`; no subdomain may have more rows than requested. Both
//! must give the same result on every run.

mod adjacency;
mod boxes;
mod choose;
mod curve;
mod distribute;
#[cfg(feature = "metis")]
mod graph;
mod grid;
pub(crate) mod multilevel;
mod partitioner;
mod quality;
mod search;
mod split;
mod subdomains;
mod travel;

/// Rows cut for ranks that all need the whole result.
pub mod replicated {
    pub use crate::operator::cuts::*;
}

pub use crate::halo::{Halo, Neighbour, Numbering, RowNumbers};
pub use boxes::GridBoxes;
pub(crate) use boxes::box_of;
pub(crate) use choose::most_ghosts;
pub use choose::{MANY_GHOSTS, PartitionSpec, boxes_are_better, boxes_reason, choose, enough_rows};
pub use distribute::{RowBlocks, Rows, distribute};
pub use grid::{BoxesOfRuns, Stencil};
pub use partitioner::{Partition, Partitioner, contiguous};
pub(crate) use partitioner::{nearest, runs};
pub use quality::{Quality, Share};
pub(crate) use search::Groups;
#[cfg(feature = "lu")]
pub(crate) use search::alike;
pub use search::reverse_cuthill_mckee;
pub use split::split;
#[cfg(feature = "cuda")]
pub(crate) use subdomains::layer;
pub(crate) use subdomains::of_whole_on;
pub use subdomains::{
    Distribution, LocalSubdomains, SubdomainCut, SubdomainSpec, Subdomains, assign, assign_planes,
    assign_whole, boxes_fit, of_rank, of_whole, slabs_fit,
};
pub use travel::to_boxes;

use crate::matrix::Grouping;
use crate::operator::Terms;
use std::sync::Arc;

/// One rank's part of a distributed system.
///
/// # Examples
/// ```
/// use krylith::{matrix::Csr, operator::Terms, partition::Partition};
/// use krylith_core::partition::split;
/// let a = Csr::from_triplets(3, 3, &[(0, 0, 2.0), (1, 1, 2.0), (1, 2, 1.0), (2, 2, 2.0)])?;
/// for part in split(&Terms::csr(&a)?, &Partition::by_rows(3, 2)?)? {
///     assert_eq!(part.rows.len(), part.halo.own);
///     let matrix = &part.terms.terms()[0].1; // own rows, own and ghost columns
///     assert_eq!(matrix.block_columns(), part.halo.own + part.halo.ghosts);
/// }
/// # Ok::<(), krylith::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct Part {
    /// Global number of each own block row, by local number.
    pub rows: Vec<u64>,
    /// Own block rows × (own + ghost) block columns, in local numbers.
    pub terms: Terms<'static>,
    /// The exchange before a product.
    pub halo: Arc<Halo>,
    /// For each term, the positions of blocks that were given in another order.
    pub(crate) given: Vec<Option<Grouping>>,
}
