//! How good a partition is: what each rank computes and exchanges.

use super::split::Cut;
use super::{Halo, Part, Partition};
use crate::Result;
use crate::matrix::Bsr;
use crate::operator::Terms;
use rayon::prelude::*;

/// What one rank has to do for a product.
///
/// # Examples
/// ```
/// use krylith::{matrix::Csr, operator::Terms, partition::Partition};
/// use krylith_core::partition::{Share, split};
/// let a = Csr::from_triplets(3, 3, &[(0, 0, 2.0), (0, 1, 1.0), (1, 1, 2.0), (2, 2, 2.0)])?;
/// let parts = split(&Terms::csr(&a)?, &Partition::by_rows(3, 2)?)?;
/// let share = Share::of(&parts[0]);
/// assert_eq!((share.rows, share.blocks, share.cut, share.boundary), (1, 2, 1, 1));
/// # Ok::<(), krylith::Error>(())
/// ```
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Share {
    /// Block rows.
    pub rows: usize,
    /// Stored blocks, all terms together.
    pub blocks: usize,
    /// Those of them whose column belongs to another rank.
    pub cut: usize,
    /// Block rows that have such a block, and so wait for the halo.
    pub boundary: usize,
    /// Nodes that it sends, once for each rank that needs them.
    pub sends: usize,
    /// Nodes that it receives.
    pub receives: usize,
    /// Ranks that it exchanges with.
    pub neighbours: usize,
}

impl Share {
    /// The share of a part.
    pub fn of(part: &Part) -> Share {
        let own = part.halo.own;
        let matrices: Vec<&Bsr> = part.terms.terms.iter().map(|(_, a)| a.as_ref()).collect();
        Share::count(&matrices, 0..own, &part.halo, |j| j as usize >= own)
    }

    /// Counts the given rows; `foreign` tells whether a column belongs to another rank.
    fn count(
        matrices: &[&Bsr],
        rows: impl Iterator<Item = usize>,
        halo: &Halo,
        foreign: impl Fn(u32) -> bool,
    ) -> Share {
        let mut share = Share {
            sends: halo.send.len(),
            receives: halo.ghosts,
            neighbours: halo.neighbours.len(),
            ..Share::default()
        };
        for i in rows {
            let mut cut = 0;
            for a in matrices {
                let row = &a.col()[a.row_ptr()[i]..a.row_ptr()[i + 1]];
                share.blocks += row.len();
                cut += row.iter().filter(|&&j| foreign(j)).count();
            }
            share.rows += 1;
            share.cut += cut;
            share.boundary += usize::from(cut > 0);
        }
        share
    }
}

/// The shares of all ranks, and what follows from them.
///
/// # Examples
/// ```
/// use krylith::{matrix::Csr, operator::Terms, partition::Partition};
/// use krylith_core::partition::Quality;
/// let a = Csr::from_triplets(4, 4, &[(0, 0, 2.0), (1, 1, 2.0), (1, 2, 1.0), (2, 2, 2.0), (3, 3, 2.0)])?;
/// let quality = Quality::of(&Terms::csr(&a)?, &Partition::by_rows(4, 2)?)?;
/// assert_eq!((quality.cut(), quality.rows_over_mean()), (1, 1.0));
/// assert_eq!(quality.bytes(), 8); // one number travels for a product
/// # Ok::<(), krylith::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Quality {
    /// By rank.
    pub shares: Vec<Share>,
    /// Bytes of one node in a vector: 8·b·s.
    pub node_bytes: usize,
}

impl Quality {
    /// The quality of `partition` for products with `terms`; copies no values.
    ///
    /// # Errors
    /// As [`split`](super::split).
    pub fn of(terms: &Terms, partition: &Partition) -> Result<Quality> {
        let cut = Cut::new(terms, partition)?;
        let matrices: Vec<&Bsr> = terms.terms.iter().map(|(_, a)| a.as_ref()).collect();
        let halos = cut.halos()?;
        let shares = halos.par_iter().enumerate().map(|(rank, (halo, _))| {
            let rows = cut.rows[rank].iter().map(|&i| i as usize);
            Share::count(&matrices, rows, halo, |j| partition.owner[j as usize] as usize != rank)
        });
        Ok(Quality { shares: shares.collect(), node_bytes: 8 * terms.block() * terms.stages() })
    }

    /// The largest number of block rows of a rank over the mean.
    pub fn rows_over_mean(&self) -> f64 {
        self.over_mean(|share| share.rows)
    }

    /// The largest number of stored blocks of a rank over the mean.
    pub fn blocks_over_mean(&self) -> f64 {
        self.over_mean(|share| share.blocks)
    }

    /// Stored blocks that couple two ranks.
    pub fn cut(&self) -> usize {
        self.sum(|share| share.cut)
    }

    /// Bytes that the busiest rank sends for one product.
    pub fn busiest_bytes(&self) -> u64 {
        self.largest(|share| share.sends) as u64 * self.node_bytes as u64
    }

    /// Bytes that all ranks send for one product.
    pub fn bytes(&self) -> u64 {
        self.sum(|share| share.sends) as u64 * self.node_bytes as u64
    }

    /// The most ranks that one rank exchanges with.
    pub fn most_neighbours(&self) -> usize {
        self.largest(|share| share.neighbours)
    }

    /// The share of all block rows that wait for a halo, 0 to 1.
    pub fn boundary_share(&self) -> f64 {
        self.sum(|share| share.boundary) as f64 / self.sum(|share| share.rows).max(1) as f64
    }

    fn sum(&self, of: impl Fn(&Share) -> usize) -> usize {
        self.shares.iter().map(of).sum()
    }
    fn largest(&self, of: impl Fn(&Share) -> usize) -> usize {
        self.shares.iter().map(of).max().unwrap_or(0)
    }
    /// 1 where there is nothing to share.
    fn over_mean(&self, of: impl Fn(&Share) -> usize + Copy) -> f64 {
        match self.sum(of) {
            0 => 1.0,
            sum => self.largest(of) as f64 * self.shares.len() as f64 / sum as f64,
        }
    }
}
