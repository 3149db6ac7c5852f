//! What may change in a sum of terms while its patterns stay.

use super::Terms;
use crate::matrix::Dense;
use crate::memory::Numbers;
use crate::{Error, Result};
use std::sync::LazyLock;

/// Coefficients and values of a sum Σ Cₜ ⊗ Aₜ of one or two terms, without patterns: what preconditioners are
/// refreshed with. Made from [`Terms`] by `From`, or from values on the host or in device memory.
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
    /// More than two only where somebody asks for what no device takes; `check` says so.
    count: usize,
}

type Term<'a> = (&'a Dense, Numbers<'a>);

/// Coefficients and host values of one or two terms.
pub(crate) type HostTerms<'a> = [Option<(&'a Dense, &'a [f64])>; 2];

/// The coefficient of a matrix that stands alone.
static ONE: LazyLock<Dense> = LazyLock::new(|| Dense::identity(1));

impl<'a> TermValues<'a> {
    /// The values of one matrix, in the natural order of [`Bsr::values`](crate::matrix::Bsr::values).
    pub fn matrix(values: impl Into<Numbers<'a>>) -> Self {
        Self { terms: [Some((&ONE, values.into())), None], count: 1 }
    }

    /// The coefficients C₀ and C₁, such as A and τB, and the values of two matrices, such as M and L.
    pub fn sum(
        c0: &'a Dense,
        values0: impl Into<Numbers<'a>>,
        c1: &'a Dense,
        values1: impl Into<Numbers<'a>>,
    ) -> Self {
        Self { terms: [Some((c0, values0.into())), Some((c1, values1.into()))], count: 2 }
    }

    /// Terms.
    pub fn len(&self) -> usize {
        self.count
    }

    /// True when there are none.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Coefficient and values of each term.
    pub fn iter(&self) -> impl Iterator<Item = (&'a Dense, Numbers<'a>)> {
        self.terms.into_iter().flatten()
    }

    /// Coefficient and values of term `t`.
    pub fn term(&self, t: usize) -> Option<(&'a Dense, Numbers<'a>)> {
        *self.terms.get(t)?
    }

    /// Stages s: the order of the coefficients.
    pub fn stages(&self) -> usize {
        self.terms[0].map_or(0, |(c, _)| c.rows())
    }

    /// The same values under other coefficients, one a term.
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

    /// The same with other values of term `t`.
    pub(crate) fn with_values(mut self, t: usize, values: Numbers<'a>) -> Self {
        if let Some(Some(term)) = self.terms.get_mut(t) {
            term.1 = values;
        }
        self
    }

    /// The values on the host: where they are, or in `scratch`, which grows once.
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

    /// Refuses other shapes than square coefficients of order `stages` and `numbers[t]` values in term t.
    pub(crate) fn check(&self, stages: usize, numbers: impl ExactSizeIterator<Item = usize>) -> Result<()> {
        check_count(self.count)?;
        let same = self.count == numbers.len()
            && self.iter().zip(numbers).all(|((c, values), numbers)| {
                (c.rows(), c.columns(), values.len()) == (stages, stages, numbers)
            });
        if same {
            return Ok(());
        }
        Err(Error::invalid("the new values have another shape than the preconditioner was built for"))
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

/// Refuses sums that no device takes.
pub(crate) fn check_count(terms: usize) -> Result<()> {
    if (1..=2).contains(&terms) {
        return Ok(());
    }
    Err(Error::Unsupported(format!("a sum of {terms} terms; one or two are supported")))
}
