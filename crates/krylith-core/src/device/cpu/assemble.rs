//! Set-up of matrices on the host.

use super::Cpu;
use crate::Result;
use crate::matrix::{Bsr, Csr};
use crate::precond::assemble::{Assemble, Numbered, Positions};
use crate::precond::direct::DirectFactors;

impl Assemble for Cpu {
    type Cut = Positions;

    fn cut(&self, a: &Bsr, rows: &Numbered, columns: &Numbered) -> Result<(Csr, Positions)> {
        Ok(Positions::cut(a, rows, columns))
    }

    fn cut_again(&self, a: &Bsr, cut: &Positions, to: &mut Csr) -> Result<()> {
        cut.take(a.values(), to);
        Ok(())
    }
}

/// Krylith's own factors are those of the host.
impl DirectFactors for Cpu {}
