//! Vectors that every rank holds whole: the operator between them, by mode.

use super::matrix::Case;
use super::multi::seconds_of;
use super::single::products;
use crate::samples::Samples;
use krylith::Result;
use krylith::comm::Communicator;
use krylith::matrix::Csr;
use krylith::operator::{Gathered, Replicated, SharedRows};
pub(super) use krylith::partition::replicated::Mode;
use std::ops::Range;
use std::sync::Arc;

/// The rows of each rank's part of vectors that are gathered before a product.
pub(crate) fn rows_of(a: &Csr, ranks: usize) -> Result<Vec<Range<usize>>> {
    Gathered::<krylith::device::cpu::Cpu>::rows(a, ranks)
}

/// The operator between vectors that every rank holds whole, and the seconds that its cuts take.
pub(super) fn replicated<S: SharedRows>(
    space: &S,
    comm: &Arc<dyn Communicator>,
    a: &Csr,
    mode: &Mode,
) -> Result<(Replicated<S>, f64)> {
    let operator = Replicated::new(space, comm, a, *mode)?;
    // Joining the GPUs and placing the rows is for the product as such; the cuts are what the mode adds (Table 4).
    let seconds = operator.times().cut;
    Ok((operator, seconds))
}

/// Median seconds of a product by each mode, of the slowest rank.
pub(super) fn swept<S: SharedRows>(
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
