//! Finds whether neighbouring nodes couple different components, as in elasticity.
//!
//! Algebraic multigrid chooses its coarsening by that. Smoothed aggregation gives each component weights of
//! its own. That suits components that are coupled inside a node only: radiation 48³ with three temperatures
//! takes 5 iterations, and 12 with classical coarsening. If neighbours couple components, smoothing of P with
//! the strong couplings alone loses the constants, and classical coarsening is better: elasticity 24³, 48³
//! takes 26, 28 iterations, and 92, 197 with smoothed aggregation.

use super::Terms;
use crate::matrix::{Arrays, Bsr};

/// Number of block rows in the sample.
const SAMPLE: usize = 1 << 12;
/// A coupling mixes components if its entries off the diagonal sum to more than this multiple of those on it.
pub(crate) const MIXED: f64 = 0.1;
/// Share of such couplings from which a system mixes components. Elasticity on bricks has 20 of 26: in the
/// others the entries cancel.
const SHARE: f64 = 0.25;

/// Returns true if many couplings between nodes mix components, in a sample of the rows on this host. It is
/// false for nodes of one unknown, and for Kronecker sums.
///
/// # Examples
/// ```
/// use krylith::matrix::Bsr;
/// use krylith_core::operator::{Terms, mixes_components};
/// let a = |coupling: [f64; 4]| {
///     let own = [4.0, 1.0, 1.0, 4.0];
///     Bsr::new(2, 2, 2, vec![0, 2, 4], vec![0, 1, 0, 1], [own, coupling, coupling, own].concat())
/// };
/// assert!(!mixes_components(&Terms::bsr(&a([-1.0, 0.0, 0.0, -1.0])?)));
/// assert!(mixes_components(&Terms::bsr(&a([-1.0, 0.3, 0.3, -1.0])?)));
/// # Ok::<(), krylith::Error>(())
/// ```
pub fn mixes_components(terms: &Terms) -> bool {
    single(terms).is_some_and(|a| is_mixed(count(a, step(a.block_rows())).map(|n| n as f64)))
}

/// Returns the matrix of a system that may mix components.
pub(crate) fn single<'a>(terms: &'a Terms) -> Option<&'a Bsr> {
    let [(_, a)] = &terms.terms[..] else { return None };
    (terms.block() > 1 && terms.stages() == 1).then_some(a)
}

/// Returns the distance of the rows of a sample.
pub(crate) fn step(rows: usize) -> usize {
    (rows / SAMPLE).max(1)
}

/// Decides by the number of couplings, and of those that mix components.
pub(crate) fn is_mixed([all, mixed]: [f64; 2]) -> bool {
    all > 0.0 && mixed >= SHARE * all
}

/// Counts the couplings of every `step`-th block row, and those that mix components.
pub(crate) fn count(a: &Bsr, step: usize) -> [u64; 2] {
    let (b, rows) = (a.block(), a.block_rows());
    let Arrays { row_ptr, col, values } = Arrays::of(a);
    let mut found = [0; 2];
    for i in (0..rows).step_by(step) {
        for p in (row_ptr[i]..row_ptr[i + 1]).filter(|&p| col[p] as usize != i) {
            let block = &values[p * b * b..(p + 1) * b * b];
            let sum = |on: bool| {
                let of = block.iter().enumerate().filter(|(e, _)| (e / b == e % b) == on);
                of.map(|(_, v)| v.abs()).sum::<f64>()
            };
            let (own, others) = (sum(true), sum(false));
            found[0] += u64::from(own + others > 0.0);
            found[1] += u64::from(others > MIXED * own);
        }
    }
    found
}
