//! The quantity that a solve compares with its tolerance.

use super::Stop;
use crate::{Error, Result};

/// The quantity of an x that a solve compares with its tolerance.
///
/// # Examples
/// Rows of unlike scale: the large row alone decides about ‖b − A x‖₂, so the other may be wrong.
/// ```
/// use krylith::{Options, Solver, matrix::Csr};
/// let a = Csr::from_triplets(2, 2, &[(0, 0, 1e9), (1, 0, 1e-3), (1, 1, 1e-3)])?;
/// let options: Options = "criterion=rows method=gmres precond=none rtol=1e-8".parse()?;
/// let mut x = [0.0; 2];
/// let solution = Solver::new(&a, &options)?.solve(&[1e9, 3e-3], &mut x)?.clone();
/// assert_eq!(solution.history.criterion.name(), "rows");
/// assert!(solution.converged() && solution.history.criterion_value <= 1e-8);
/// assert!((x[1] - 2.0).abs() < 1e-6);
/// # Ok::<(), krylith::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Criterion {
    /// ‖r‖₂ ≤ max(rtol ‖b‖₂, atol), where r = b − A x.
    #[default]
    Residual,
    /// ‖D⁻¹r‖₂ ≤ max(rtol ‖D⁻¹b‖₂, atol). D is diagonal, and dᵢ is the 1-norm of row i, or 1 if row i is
    /// empty. In a Kronecker sum, the 1-norm is that of Σ |Cₜ ⊗ Aₜ|.
    Rows,
    /// max |rᵢ| / (|A||x| + |b|)ᵢ ≤ rtol, with 0/0 = 0: the component-wise backward error of x (Oettli and
    /// Prager 1964).
    Backward,
}

krylith_base::names! {
    Criterion, "criterion": Residual => "residual", Rows => "rows", Backward => "backward"
}

impl Criterion {
    /// Returns the quantity in mathematical letters, for titles and messages.
    ///
    /// ```
    /// use krylith_core::space::{Criterion, RelativeTo};
    /// assert_eq!(Criterion::Residual.formula(RelativeTo::B), "‖r‖/‖b‖");
    /// assert_eq!(Criterion::Rows.formula(RelativeTo::R0), "‖D⁻¹r‖/‖D⁻¹r₀‖");
    /// ```
    pub fn formula(self, relative_to: RelativeTo) -> &'static str {
        match (self, relative_to) {
            (Criterion::Residual, RelativeTo::B) => "‖r‖/‖b‖",
            (Criterion::Residual, RelativeTo::R0) => "‖r‖/‖r₀‖",
            (Criterion::Rows, RelativeTo::B) => "‖D⁻¹r‖/‖D⁻¹b‖",
            (Criterion::Rows, RelativeTo::R0) => "‖D⁻¹r‖/‖D⁻¹r₀‖",
            (Criterion::Backward, _) => "max |rᵢ|/(|A||x|+|b|)ᵢ",
        }
    }

    /// Returns the name of the quantity in sentences.
    ///
    /// ```
    /// use krylith_core::space::{Criterion, RelativeTo};
    /// assert_eq!(Criterion::Residual.words(RelativeTo::B), "relative residual");
    /// assert_eq!(Criterion::Backward.words(RelativeTo::B), "component-wise backward error");
    /// ```
    pub fn words(self, relative_to: RelativeTo) -> &'static str {
        match (self, relative_to) {
            (Criterion::Residual, RelativeTo::B) => "relative residual",
            (Criterion::Residual, RelativeTo::R0) => "residual relative to the initial one",
            (Criterion::Rows, RelativeTo::B) => "row-scaled relative residual",
            (Criterion::Rows, RelativeTo::R0) => "row-scaled residual relative to the initial one",
            (Criterion::Backward, _) => "component-wise backward error",
        }
    }
}

/// The vector whose norm divides the residual of a [`Criterion`].
///
/// # Examples
/// A good initial guess: relative to r₀ the solve still gains six digits.
/// ```
/// use krylith::{Solver, matrix::Csr};
/// let a = Csr::from_triplets(2, 2, &[(0, 0, 2.0), (0, 1, 1.0), (1, 1, 3.0)])?;
/// let (b, guess) = ([3.0, 3.0], [1.0, 1.0 + 1e-8]);
/// let mut solver = Solver::new(&a, &"precond=none method=gmres".parse()?)?;
/// assert_eq!(solver.solve(&b, &mut guess.clone())?.history.iterations, 0);
/// let mut solver = Solver::new(&a, &"precond=none method=gmres relative_to=r0".parse()?)?;
/// assert!(solver.solve(&b, &mut guess.clone())?.history.iterations > 0);
/// # Ok::<(), krylith::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum RelativeTo {
    /// The right-hand side b.
    #[default]
    B,
    /// The residual r₀ = b − A x₀ of the initial guess.
    R0,
}

krylith_base::names! { RelativeTo, "vector": B => "b", R0 => "r0" }

impl Stop {
    /// Refuses combinations that have no meaning.
    ///
    /// # Errors
    /// [`Error::Option`] for `backward` with `relative_to=r0` or with an absolute tolerance.
    pub(crate) fn check(&self) -> Result<()> {
        let wrong = |key: &'static str, message: &str| Err(Error::Option { key, message: message.into() });
        if self.criterion != Criterion::Backward {
            return Ok(());
        }
        if self.relative_to == RelativeTo::R0 {
            return wrong(
                "relative_to",
                "is r0, but criterion=backward divides by |A||x| + |b|; leave relative_to out, or use criterion=rows",
            );
        }
        if self.atol > 0.0 {
            return wrong(
                "atol",
                "is not 0, but criterion=backward is relative; leave atol out and give rtol, or use criterion=rows",
            );
        }
        Ok(())
    }

    /// Returns true for ‖r‖₂ ≤ max(rtol ‖b‖₂, atol).
    pub(crate) fn is_usual(&self) -> bool {
        self.criterion == Criterion::Residual && self.relative_to == RelativeTo::B && self.reference.is_none()
    }

    /// Returns the tolerance on the quantity of the criterion, relative to the reference of this history.
    pub(crate) fn relative_target(&self, history: &super::History) -> f64 {
        let reference = match self.is_usual() {
            true => self.given_norm.unwrap_or(history.rhs_norm),
            false => history.reference,
        };
        match reference > 0.0 {
            true => self.rtol.max(self.atol / reference),
            false if self.criterion == Criterion::Backward => self.rtol,
            false => self.atol,
        }
    }

    /// Returns this stop for a solve that continues one with this history.
    pub(crate) fn continued(&self, history: &super::History) -> Self {
        let known = history.reference > 0.0 && history.reference.is_finite();
        match self.relative_to {
            RelativeTo::R0 if known && self.reference.is_none() => {
                Self { reference: Some(history.reference), ..*self }
            }
            _ => *self,
        }
    }
}
