//! Vectors that every rank holds whole: the operator between them, by mode.

use super::matrix::Case;
use super::multi::seconds_of;
use super::single::products;
use crate::samples::Samples;
use krylith::Result;
use krylith::comm::Communicator;
use krylith::matrix::Csr;
use krylith::operator::{Gathered, LinearOperator, Replicated, SharedRows};
pub(super) use krylith::partition::replicated::Mode;
use krylith::space::Space;
use std::ops::Range;
use std::sync::Arc;

/// The rows of each rank's part of vectors that are gathered before a product.
pub(crate) fn rows_of(a: &Csr, ranks: usize) -> Result<Vec<Range<usize>>> {
    Gathered::<krylith::device::cpu::Cpu>::rows(a, ranks)
}

/// A device whose ranks can hold vectors whole.
pub(super) trait Shared: Space + Sized {
    /// The matrix, whose arrays this device holds too.
    fn held(space: &Self, a: &Csr) -> Result<Csr>;
    /// The operator, and the seconds that its cuts take.
    fn replicated(
        space: &Self,
        comm: &Arc<dyn Communicator>,
        a: &Csr,
        mode: &Mode,
    ) -> Result<(Box<dyn LinearOperator<Self>>, f64)>;
    /// The product of distributed vectors that gathers its argument first, of [`rows_of`]; collective.
    fn gathered(space: &Self, comm: &Arc<dyn Communicator>, a: &Csr)
    -> Result<Box<dyn LinearOperator<Self>>>;
    /// Median seconds of a product by each mode, of the slowest rank.
    fn swept(
        space: &Self,
        comm: &Arc<dyn Communicator>,
        on: (&Case, &Csr),
        modes: &[Mode],
    ) -> Result<Vec<f64>>;
}

impl<S: SharedRows + 'static> Shared for S {
    fn held(space: &S, a: &Csr) -> Result<Csr> {
        space.hold(a)
    }

    fn replicated(
        space: &S,
        comm: &Arc<dyn Communicator>,
        a: &Csr,
        mode: &Mode,
    ) -> Result<(Box<dyn LinearOperator<S>>, f64)> {
        let operator = Replicated::new(space, comm, a, *mode)?;
        // Joining the GPUs and placing the rows is for the product as such; the cuts are what the mode adds (Table 4).
        let seconds = operator.times().cut;
        Ok((Box::new(operator), seconds))
    }

    fn gathered(space: &S, comm: &Arc<dyn Communicator>, a: &Csr) -> Result<Box<dyn LinearOperator<S>>> {
        Ok(Box::new(Gathered::new(space, comm, a)?))
    }

    fn swept(
        space: &S,
        comm: &Arc<dyn Communicator>,
        (case, a): (&Case, &Csr),
        modes: &[Mode],
    ) -> Result<Vec<f64>> {
        let Some(&first) = modes.first() else { return Ok(Vec::new()) };
        let mut operator = Replicated::new(space, comm, a, first)?;
        let (mut x, mut y) = (space.vector()?, space.vector()?);
        space.write(&case.x, &mut x)?;
        let mut all = Vec::new();
        for &mode in modes {
            operator = operator.recut(space, a, mode)?;
            let mut take = |inner: usize| seconds_of(space, &**comm, &operator, &x, &mut y, inner);
            take(1)?;
            let inner = products(take(2)? / 2.0);
            let samples = (0..5).map(|_| take(inner)).collect::<Result<_>>()?;
            all.push(Samples(samples).median());
        }
        Ok(all)
    }
}
