//! New values and new coefficients of a system that is set up.

use super::attempt::Update;
use super::{Solver, lost_thread};
use crate::interrupt::Limits;
use crate::matrix::Dense;
use crate::memory::Numbers;
use crate::{Error, Result};
use std::str::FromStr;

/// What becomes of the preconditioner when values change.
///
/// # Examples
/// ```
/// use krylith::{Solver, matrix::Csr, solver::Refresh};
/// let a = Csr::from_triplets(2, 2, &[(0, 0, 2.0), (0, 1, 1.0), (1, 1, 3.0)])?;
/// let mut solver = Solver::new(&a, &"precond=jacobi device=cpu".parse()?)?;
/// solver.set_refresh(Refresh::Keep); // the values change little: the old inverses will do
/// solver.update_values(&[2.1, 1.0, 2.9])?;
/// assert!(solver.solve(&[3.1, 2.9], &mut [0.0; 2])?.converged());
/// # Ok::<(), krylith::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Refresh {
    /// It stays that of the old values: cheapest, and good where values change little.
    Keep,
    /// It is computed for the new values, on what was found out about the pattern.
    #[default]
    Refresh,
    /// It is built anew.
    Rebuild,
}

impl FromStr for Refresh {
    type Err = Error;
    /// `keep`, `refresh` or `rebuild`.
    fn from_str(name: &str) -> Result<Self> {
        match name {
            "keep" => Ok(Refresh::Keep),
            "refresh" => Ok(Refresh::Refresh),
            "rebuild" => Ok(Refresh::Rebuild),
            other => Err(Error::invalid(format!(
                "unknown refresh `{other}`; the known ones are keep, refresh, rebuild"
            ))),
        }
    }
}

impl Solver<'_> {
    /// New values of a matrix under the same pattern, in the order of the matrix that the problem was made of. [`set_refresh`](Self::set_refresh)
    /// decides what happens to the preconditioner. Collective where the problem is distributed.
    ///
    /// # Errors
    /// A problem of two terms, another number of values, or one that is not finite; a preconditioner that is asked for by name
    /// and cannot be built of them.
    pub fn update_values<'v>(&mut self, values: impl Into<Numbers<'v>>) -> Result<()> {
        match self.problem.terms.terms.len() {
            1 => self.update_term(0, values),
            n => Err(Error::invalid(format!("the problem has {n} terms; say of which the values are"))),
        }
    }

    /// New values of one term of a sum: of A⊗M + τB⊗L, M is term 0 and L term 1.
    ///
    /// Values in the memory of the GPU that solves are read there, and a copy stays there; they come to the host only where
    /// something works there: several GPUs, refinement of rounded matrices, residuals by field.
    ///
    /// # Errors
    /// As [`update_values`](Self::update_values).
    pub fn update_term<'v>(&mut self, term: usize, values: impl Into<Numbers<'v>>) -> Result<()> {
        let values = values.into();
        self.check_whole()?;
        let mut blocks = std::mem::take(&mut self.blocks);
        let whole = self.dropped.as_ref().map_or(&self.problem, |dropped| &dropped.whole);
        let done = match whole.gather(term, values, &mut blocks) {
            Ok(true) => self.update_stored(term, Numbers::from(&blocks)),
            Ok(false) => self.update_stored(term, values),
            Err(e) => Err(e),
        };
        self.blocks = blocks;
        done
    }

    /// New values in the order in which the term is stored.
    fn update_stored(&mut self, term: usize, values: Numbers) -> Result<()> {
        let whole = self.dropped.as_mut().map_or(&mut self.problem, |dropped| &mut dropped.whole);
        let terms = &mut whole.terms.terms;
        let count = terms.len();
        let Some((_, matrix)) = terms.get_mut(term) else {
            return Err(Error::invalid(format!("there is no term {term}; the problem has {count}")));
        };
        if values.len() != matrix.stored() {
            return Err(Error::invalid(format!(
                "{} new values for a matrix that stores {}",
                values.len(),
                matrix.stored()
            )));
        }
        values.as_host().map_or(Ok(()), finite)?;
        matrix.to_mut().update_values(values)?;
        if let Some(dropped) = &self.dropped
            && !dropped.update(term, &mut self.problem.terms)?
        {
            return self.take_whole();
        }
        if let Some(parts) = &mut self.crew.parts {
            parts.update_values(&self.problem.terms, term)?;
        }
        let lent = values.gpu().filter(|_| self.crew.parts.is_none() && self.dropped.is_none());
        let lent = lent.map(|_| values);
        self.update(Update::Values(term, lent))
    }

    /// A new τ of A⊗M + τB⊗L.
    ///
    /// # Errors
    /// Another kind of problem; a τ whose multiples of B are not finite; a preconditioner that is asked for by name and cannot
    /// be built for it.
    ///
    /// ```
    /// use krylith::{Options, Solver, matrix::{Bsr, Dense, KroneckerSum}};
    /// let one = |v: f64| Bsr::new(1, 1, 1, vec![0, 1], vec![0], vec![v]);
    /// let system = KroneckerSum::new(Dense::identity(1), Dense::identity(1), 0.5, one(2.0)?, one(4.0)?)?;
    /// let mut solver = Solver::new(&system, &"device=cpu".parse()?)?;
    /// let mut x = [0.0];
    /// solver.solve(&[8.0], &mut x)?;
    /// assert!((x[0] - 2.0).abs() < 1e-5); // (2 + 0.5·4) x = 8
    /// solver.set_tau(1.5)?;
    /// solver.solve(&[8.0], &mut x)?;
    /// assert!((x[0] - 1.0).abs() < 1e-5);
    /// # Ok::<(), krylith::Error>(())
    /// ```
    pub fn set_tau(&mut self, tau: f64) -> Result<()> {
        self.check_whole()?;
        let Some((_, b)) = &self.problem.stages else {
            return Err(Error::invalid("τ belongs to a Kronecker sum A⊗M + τB⊗L"));
        };
        if !b.values().iter().all(|v| (tau * v).is_finite()) {
            return Err(Error::invalid(format!("tau is {tau}; tau times B must be finite")));
        }
        let scale = |to: &mut Dense| {
            for i in 0..b.rows() {
                (0..b.columns()).for_each(|j| to[(i, j)] = tau * b[(i, j)]);
            }
        };
        scale(&mut self.problem.terms.terms[1].0);
        if let Some(dropped) = &mut self.dropped {
            scale(&mut dropped.whole.terms.terms[1].0);
        }
        if let Some(parts) = &mut self.crew.parts {
            parts.for_coefficients(1, scale);
        }
        self.update(Update::Tau(tau))
    }

    fn update(&mut self, what: Update<'_>) -> Result<()> {
        self.rows = None;
        let Self { problem, crew, refresh, cancel, .. } = self;
        let parts = crew.parts.take();
        let limits = Limits { cancel: cancel.clone(), deadline: None };
        let done = crew.command(&|number, seat| {
            let _entered = limits.enter();
            let engine = &mut seat.as_mut().ok_or_else(lost_thread)?.engine;
            let local = match &parts {
                None => problem.part_of_one(),
                Some(parts) => parts.local(number, problem),
            };
            engine.update(&local, what, *refresh)
        });
        crew.parts = parts;
        self.after(done)
    }
}

/// Refuses values that are not finite.
fn finite(values: &[f64]) -> Result<()> {
    match crate::matrix::first_not_finite(values) {
        Some(e) => Err(Error::invalid(format!("new value {e} is {}; every value must be finite", values[e]))),
        None => Ok(()),
    }
}
