//! The values and coefficients of a sum of terms, which may change while the patterns stay the same.

use super::Terms;
use crate::matrix::Dense;
use crate::memory::Numbers;
use crate::{Error, Result};
use std::sync::LazyLock;

/// Coefficients and values of a sum Σ Cₜ ⊗ Aₜ of one or two terms, without patterns. Preconditioners are
/// refreshed with them. They come from [`Terms`] by `From`, or from values on the host or in device memory.
///
/// # Examples
/// ```
/// use krylith::matrix::{Bsr, Csr, Dense};
/// use krylith::operator::Terms;
/// use krylith_core::operator::TermValues;
///
/// let a = Csr::from_triplets(2, 2, &[(0, 0, 4.0), (0, 1, 1.0), (1, 1, 2.0)])?;
/// let terms = Terms::csr(&a)?;
/// assert_eq!(TermValues::from(&terms).len(), 1);
/// // The same, and two terms: A⊗M + τB⊗L, with τB as one matrix.
/// let same = TermValues::matrix(a.values());
/// let (identity, tau_b) = (Dense::identity(1), Dense::new(1, 1, vec![0.1])?);
/// let sum = TermValues::sum(&identity, a.values(), &tau_b, &[1.0, 0.0, 1.0]);
/// assert_eq!((same.len(), sum.len()), (1, 2));
/// # Ok::<(), krylith::Error>(())
/// ```
#[derive(Debug, Clone, Copy)]
pub struct TermValues<'a> {
    terms: [Option<Term<'a>>; 2],
    /// Number of terms. It may exceed two for sums that no device supports, which `check` reports.
    count: usize,
}

type Term<'a> = (&'a Dense, Numbers<'a>);

/// Coefficients and host values of one or two terms.
pub(crate) type HostTerms<'a> = [Option<(&'a Dense, &'a [f64])>; 2];

/// The coefficient of a single matrix.
static ONE: LazyLock<Dense> = LazyLock::new(|| Dense::identity(1));

impl<'a> TermValues<'a> {
    /// Returns the values of one matrix, in the natural order of [`Bsr::values`](crate::matrix::Bsr::values).
    pub fn matrix(values: impl Into<Numbers<'a>>) -> Self {
        Self { terms: [Some((&ONE, values.into())), None], count: 1 }
    }

    /// Returns the coefficients C₀ and C₁, such as A and τB, with the values of two matrices, such as M and
    /// L.
    pub fn sum(
        c0: &'a Dense,
        values0: impl Into<Numbers<'a>>,
        c1: &'a Dense,
        values1: impl Into<Numbers<'a>>,
    ) -> Self {
        Self { terms: [Some((c0, values0.into())), Some((c1, values1.into()))], count: 2 }
    }

    /// Returns the number of terms.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Returns true if there are no terms.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Iterates over the coefficient and the values of each term.
    pub fn iter(&self) -> impl Iterator<Item = (&'a Dense, Numbers<'a>)> {
        self.terms.into_iter().flatten()
    }

    /// Returns the coefficient and the values of term `t`.
    pub fn term(&self, t: usize) -> Option<(&'a Dense, Numbers<'a>)> {
        *self.terms.get(t)?
    }

    /// Returns the number of stages s: the order of the coefficients.
    pub fn stages(&self) -> usize {
        self.terms[0].map_or(0, |(c, _)| c.rows())
    }

    /// Returns the same values with other coefficients, one per term.
    pub(crate) fn with_coefficients<'b>(&self, coefficients: &'b [Dense]) -> TermValues<'b>
    where
        'a: 'b,
    {
        let mut terms = [None; 2];
        for ((to, (_, values)), c) in terms.iter_mut().zip(self.iter()).zip(coefficients) {
            *to = Some((c, values));
        }
        TermValues { terms, count: self.count }
    }

    /// Returns the same with other values of term `t`.
    pub(crate) fn with_values(mut self, t: usize, values: Numbers<'a>) -> Self {
        if let Some(Some(term)) = self.terms.get_mut(t) {
            term.1 = values;
        }
        self
    }

    /// Returns the values on the host, in place or copied to `scratch`. Only the first copy allocates.
    pub(crate) fn on_host<'s>(&self, scratch: &'s mut [Vec<f64>; 2]) -> Result<HostTerms<'s>>
    where
        'a: 's,
    {
        let mut host = [None; 2];
        for ((to, (c, values)), scratch) in host.iter_mut().zip(self.iter()).zip(scratch) {
            *to = Some((c, values.on_host(scratch)?));
        }
        Ok(host)
    }

    /// Rejects anything but square coefficients of order `stages` and `numbers[t]` values in term t.
    pub(crate) fn check(&self, stages: usize, numbers: impl ExactSizeIterator<Item = usize>) -> Result<()> {
        check_count(self.count)?;
        let same = self.count == numbers.len()
            && self.iter().zip(numbers).all(|((c, values), numbers)| {
                (c.rows(), c.columns(), values.len()) == (stages, stages, numbers)
            });
        if same {
            return Ok(());
        }
        Err(Error::invalid(
            "the new values do not match the terms, stages and entries that the preconditioner was built \
             for; build a new one",
        ))
    }
}

impl<'a> From<&'a Terms<'_>> for TermValues<'a> {
    fn from(terms: &'a Terms<'_>) -> Self {
        let mut values = [None; 2];
        for (to, (c, a)) in values.iter_mut().zip(&terms.terms) {
            *to = Some((c, a.numbers()));
        }
        Self { terms: values, count: terms.terms.len() }
    }
}

/// Rejects sums that no device supports.
pub(crate) fn check_count(terms: usize) -> Result<()> {
    if (1..=2).contains(&terms) {
        return Ok(());
    }
    Err(Error::Unsupported(format!("the sum has {terms} terms; one or two are supported")))
}
