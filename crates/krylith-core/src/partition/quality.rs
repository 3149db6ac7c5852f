//! Quality of a partition: the work and the exchange of each rank.

use super::split::Cut;
use super::{Halo, Part, Partition};
use crate::Result;
use crate::matrix::Bsr;
use crate::operator::Terms;
use rayon::prelude::*;

/// Work and exchange of one rank for a product.
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
    /// Number of block rows.
    pub rows: usize,
    /// Number of stored blocks over all terms.
    pub blocks: usize,
    /// Number of stored blocks whose column belongs to another rank.
    pub cut: usize,
    /// Number of block rows with such a block, which wait for the halo.
    pub boundary: usize,
    /// Number of nodes that it sends, counted once per receiving rank.
    pub sends: usize,
    /// Number of nodes that it receives.
    pub receives: usize,
    /// Number of ranks that it exchanges with.
    pub neighbours: usize,
}

impl Share {
    /// Returns the share of a part.
    pub fn of(part: &Part) -> Share {
        let own = part.halo.own;
        let matrices: Vec<&Bsr> = part.terms.terms.iter().map(|(_, a)| a.as_ref()).collect();
        Share::count(&matrices, 0..own, &part.halo, |j| j as usize >= own)
    }

    /// Counts the given rows; `foreign` returns true for a column of another rank.
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

/// The shares of all ranks, and derived measures.
///
/// # Examples
/// ```
/// use krylith::{matrix::Csr, operator::Terms, partition::Partition};
/// use krylith_core::partition::Quality;
/// let a = Csr::from_triplets(4, 4, &[(0, 0, 2.0), (1, 1, 2.0), (1, 2, 1.0), (2, 2, 2.0), (3, 3, 2.0)])?;
/// let quality = Quality::of(&Terms::csr(&a)?, &Partition::by_rows(4, 2)?)?;
/// assert_eq!((quality.cut(), quality.rows_over_mean()), (1, 1.0));
/// assert_eq!(quality.bytes(), 8); // one number is sent for a product
/// # Ok::<(), krylith::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Quality {
    /// The share of each rank.
    pub shares: Vec<Share>,
    /// Bytes of one node in a vector: 8·b·s.
    pub node_bytes: usize,
}

impl Quality {
    /// Computes the quality of `partition` for products with `terms`, without copying values.
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

    /// Returns the largest number of block rows of a rank over the mean.
    pub fn rows_over_mean(&self) -> f64 {
        self.over_mean(|share| share.rows)
    }

    /// Returns the largest number of stored blocks of a rank over the mean.
    pub fn blocks_over_mean(&self) -> f64 {
        self.over_mean(|share| share.blocks)
    }

    /// Returns the number of stored blocks that couple two ranks.
    pub fn cut(&self) -> usize {
        self.sum(|share| share.cut)
    }

    /// Returns the bytes that the busiest rank sends for one product.
    pub fn busiest_bytes(&self) -> u64 {
        self.largest(|share| share.sends) as u64 * self.node_bytes as u64
    }

    /// Returns the bytes that all ranks send for one product.
    pub fn bytes(&self) -> u64 {
        self.sum(|share| share.sends) as u64 * self.node_bytes as u64
    }

    /// Returns the largest number of ranks that one rank exchanges with.
    pub fn most_neighbours(&self) -> usize {
        self.largest(|share| share.neighbours)
    }

    /// Returns the share of all block rows that wait for a halo, from 0 to 1.
    pub fn boundary_share(&self) -> f64 {
        self.sum(|share| share.boundary) as f64 / self.sum(|share| share.rows).max(1) as f64
    }

    fn sum(&self, of: impl Fn(&Share) -> usize) -> usize {
        self.shares.iter().map(of).sum()
    }
    fn largest(&self, of: impl Fn(&Share) -> usize) -> usize {
        self.shares.iter().map(of).max().unwrap_or(0)
    }
    /// Returns the largest value over the mean; 1 if the sum is zero.
    fn over_mean(&self, of: impl Fn(&Share) -> usize + Copy) -> f64 {
        match self.sum(of) {
            0 => 1.0,
            sum => self.largest(of) as f64 * self.shares.len() as f64 / sum as f64,
        }
    }
}
