//! The outline of subdomain factors: counts that the host knows even if the arrays are on a device.

use crate::Result;
use crate::operator::{TermValues, Terms};
use crate::partition::Subdomains;

/// Counts of a plan.
///
/// # Examples
/// ```
/// use krylith::device::Cpu;
/// use krylith::precond::{Ildu, IlduOptions};
/// use krylith::{matrix::Csr, operator::Terms};
/// use krylith_core::partition::Subdomains;
/// let entries = [(0, 0, 4.0), (0, 1, 1.0), (1, 0, 1.0), (1, 1, 4.0), (1, 2, 1.0), (2, 2, 4.0)];
/// let a = Csr::from_triplets(3, 3, &entries)?;
/// let cut = Subdomains::from_labels(&[0, 0, 1], 2)?; // rows 0 and 1, row 2
/// let ildu = Ildu::new(&Cpu::new(3, 1), &Terms::csr(&a)?, &cut, IlduOptions::default())?;
/// let outline = ildu.outline();
/// assert_eq!((outline.subdomains, outline.stored, outline.dropped), (2, 6, 1));
/// # Ok::<(), krylith::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outline {
    /// Order of a block, b·s.
    pub order: usize,
    /// Number of own block rows.
    pub block_rows: usize,
    /// Number of subdomains.
    pub subdomains: usize,
    /// Number of block rows in the largest subdomain.
    pub largest: usize,
    /// Number of levels of the deepest subdomain.
    pub deepest: usize,
    /// Number of blocks in the factors: L, D and U.
    pub entries: usize,
    /// Number of stored blocks in the union of the terms' patterns, ghost columns included.
    pub stored: usize,
    /// Number of these stored blocks that couple subdomains and are left out.
    pub dropped: usize,
    /// Number of stored blocks of each term's matrix.
    pub blocks: Vec<usize>,
}

impl Outline {
    /// Returns what is known before the analysis; other counts are 0.
    pub(crate) fn of(terms: &Terms, subdomains: &Subdomains) -> Self {
        Self {
            order: terms.block() * terms.stages(),
            block_rows: terms.block_rows(),
            subdomains: subdomains.count(),
            largest: subdomains.largest(),
            deepest: 0,
            entries: 0,
            stored: 0,
            dropped: 0,
            blocks: terms.terms.iter().map(|t| t.1.blocks()).collect(),
        }
    }

    /// Returns the ratio of blocks in the factors to stored blocks of the matrix.
    pub fn fill(&self) -> f64 {
        if self.stored > 0 { self.entries as f64 / self.stored as f64 } else { 1.0 }
    }

    /// Rejects values whose shape differs from that of the terms that the plan was made for.
    ///
    /// # Errors
    /// A different order of blocks, number of terms, or number of stored blocks.
    pub fn check(&self, values: &TermValues) -> Result<()> {
        let (stages, block) = (values.stages(), self.block(values));
        // If the number of stages does not divide the order, there is no block size. `usize::MAX` then
        // matches no number of values.
        let size = if block * stages == self.order { block * block } else { usize::MAX };
        values.check(stages, self.blocks.iter().map(|&blocks| blocks.saturating_mul(size)))
    }

    /// Returns the block size b of values that belong to the plan.
    pub(crate) fn block(&self, values: &TermValues) -> usize {
        self.order / values.stages().max(1)
    }
}
