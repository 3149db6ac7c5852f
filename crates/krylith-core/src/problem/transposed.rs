//! The problem with the transposed matrix.

use super::Problem;
use crate::Result;
use crate::operator::{OriginalSystem, TransposedTerms};
use std::borrow::Cow;

impl Problem<'_> {
    /// Returns the problem with Aᵀ, on the host: Σ Cₜᵀ ⊗ Aₜᵀ. Coordinates, fields and near-null vectors stay.
    /// Null vectors stay if they are null vectors of Aᵀ. New values of the result are in its own storage
    /// order. Collective where the problem is distributed.
    ///
    /// [`Solver::solve_transposed`](crate::Solver::solve_transposed) solves with Aᵀ from the set-up for A,
    /// and does not need this.
    ///
    /// # Errors
    /// A rank that has ended or failed.
    ///
    /// ```
    /// use krylith::{Problem, matrix::Csr};
    /// let a = Csr::from_triplets(2, 2, &[(0, 0, 2.0), (0, 1, 1.0), (1, 1, 3.0)])?;
    /// let turned = Problem::csr(&a)?.transposed()?;
    /// assert_eq!(turned.terms().terms()[0].1.to_csr().get(1, 0), 1.0);
    /// # Ok::<(), krylith::Error>(())
    /// ```
    pub fn transposed(&self) -> Result<Problem<'static>> {
        let turned = TransposedTerms::on_host(&*self.comm, &self.terms)?;
        let made = Problem { terms: turned.terms().clone(), ..self.clone().into_owned() };
        let mut null = Vec::new();
        for n in &*self.null {
            if made.original().null_share(n)? <= OriginalSystem::NULL {
                null.push(n.clone());
            }
        }
        let stages = self.stages.as_ref().map(|(a, b)| (a.transposed(), b.transposed()));
        Ok(Problem { null: Cow::Owned(null), stages, given: Vec::new(), ..made })
    }
}
