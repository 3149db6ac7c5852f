//! New values and new coefficients for a solver that is set up.

use super::attempt::{Coefficients, Update};
use super::{Solver, lost_thread};
use crate::interrupt::Limits;
use crate::matrix::{Bsr, Csr, Dense, FEW};
use crate::memory::Numbers;
use crate::problem::{Gathered, same_coefficients};
use crate::{Error, Result};
use std::str::FromStr;

/// Treatment of the preconditioner when values change.
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
    /// Keeps the preconditioner of the old values: cheapest, and sufficient if values change little.
    Keep,
    /// Recomputes the preconditioner for the new values, reusing the analysis of the pattern.
    #[default]
    Refresh,
    /// Rebuilds the preconditioner from scratch.
    Rebuild,
}

impl FromStr for Refresh {
    type Err = Error;
    /// Parses `keep`, `refresh` or `rebuild`.
    fn from_str(name: &str) -> Result<Self> {
        match name {
            "keep" => Ok(Refresh::Keep),
            "refresh" => Ok(Refresh::Refresh),
            "rebuild" => Ok(Refresh::Rebuild),
            other => {
                Err(Error::invalid(format!("unknown refresh `{other}`; expected keep, refresh or rebuild")))
            }
        }
    }
}

impl Solver<'_> {
    /// Replaces the values of the matrix. The pattern is the same, and values are in the order of the matrix
    /// from which the problem was created. [`set_refresh`](Self::set_refresh) decides what happens to the
    /// preconditioner. Collective where the problem is distributed.
    ///
    /// # Errors
    /// A problem of two terms, another number of values, or a value that is not finite; a preconditioner
    /// named in the options that cannot be built for the new values.
    pub fn update_values<'v>(&mut self, values: impl Into<Numbers<'v>>) -> Result<()> {
        match self.problem.terms.terms.len() {
            1 => self.update_term(0, values),
            n => Err(Error::invalid(format!(
                "the problem has {n} terms; name the term to change with update_term"
            ))),
        }
    }

    /// Replaces the values of one term of a sum: in A⊗M + τB⊗L, M is term 0 and L is term 1. Values are in
    /// the order of the matrix from which the term was created.
    ///
    /// Values in the memory of the GPU that solves are copied on the GPU. They are copied to the host only if
    /// a later step needs them there: for several GPUs, refinement of rounded matrices, or residuals by
    /// field.
    ///
    /// # Errors
    /// As [`update_values`](Self::update_values).
    pub fn update_term<'v>(&mut self, term: usize, values: impl Into<Numbers<'v>>) -> Result<()> {
        let values = values.into();
        self.check_whole()?;
        let own = self.check_values(term, values);
        self.agreed(own)?;
        self.take(&[(term, values)], None)
    }

    /// Gives a matrix that preconditioners use by name new values. They take effect with the next update of
    /// the values or of τ. The pattern is the same. Over ranks, every rank sets it.
    ///
    /// # Errors
    /// No matrix of this name; another size or pattern; a value that is not finite.
    ///
    /// ```
    /// use krylith::{Field, Options, Problem, Solver, matrix::Csr};
    /// let a = Csr::from_triplets(2, 2, &[(0, 0, 2.0), (0, 1, 1.0), (1, 0, 1.0)])?;
    /// let one = |v: f64| Csr::from_triplets(1, 1, &[(0, 0, v)]);
    /// let fields = vec![Field::range("u", 0..1), Field::range("p", 1..2)];
    /// let problem = Problem::csr(&a)?.with_fields(fields)?.with_matrix("Mp", one(0.5)?)?;
    /// let options: Options = "precond=split(u: jacobi, p: jacobi; S=Mp) device=cpu".parse()?;
    /// let mut solver = Solver::new(&problem, &options)?;
    /// solver.set_matrix("Mp", one(0.25)?)?;
    /// solver.update_values(&[4.0, 1.0, 1.0])?;
    /// assert!(solver.solve(&[5.0, 1.0], &mut [0.0; 2])?.converged());
    /// # Ok::<(), krylith::Error>(())
    /// ```
    pub fn set_matrix(&mut self, name: &str, matrix: Csr) -> Result<()> {
        if let Some(inner) = self.inner() {
            inner.set_matrix(name, matrix.clone())?;
        }
        self.problem.fields.matrices().renew(name, matrix)
    }

    /// Does the same as [`set_matrix`](Self::set_matrix) with values in the order of the matrix's rows.
    ///
    /// # Errors
    /// As [`set_matrix`](Self::set_matrix); another number of values.
    pub fn set_matrix_values(&mut self, name: &str, values: &[f64]) -> Result<()> {
        if let Some(inner) = self.inner() {
            inner.set_matrix_values(name, values)?;
        }
        self.problem.fields.matrices().renew_values(name, values)
    }

    /// Replaces A, B, τ and the values of M and L in A⊗M + τB⊗L at once, with the same number of stages and
    /// the same patterns. If any of them is refused, nothing changes. Values of M and L are as in
    /// [`update_term`](Self::update_term). Over ranks, every rank calls this with its own values of M and L,
    /// and with the same A, B and τ.
    ///
    /// # Errors
    /// A problem that is not a Kronecker sum; A or B of another order; τ, A or B that are not finite; the
    /// errors of [`update_term`](Self::update_term). An error of one rank is an error on all, and so are
    /// coefficients that differ between ranks.
    ///
    /// ```
    /// use krylith::{Options, Solver, matrix::{Bsr, Dense, KroneckerSum}};
    /// let one = |v: f64| Bsr::new(1, 1, 1, vec![0, 1], vec![0], vec![v]);
    /// let unit = Dense::identity(1);
    /// let system = KroneckerSum::new(unit.clone(), unit.clone(), 0.5, one(2.0)?, one(4.0)?)?;
    /// let mut solver = Solver::new(&system, &"device=cpu".parse()?)?;
    /// let three = Dense::new(1, 1, vec![3.0])?;
    /// solver.update_kronecker(&three, &unit, 0.25, &[1.0], &[8.0])?;
    /// let mut x = [0.0];
    /// solver.solve(&[5.0], &mut x)?;
    /// assert!((x[0] - 1.0).abs() < 1e-5); // (3·1 + 0.25·8) x = 5
    /// # Ok::<(), krylith::Error>(())
    /// ```
    pub fn update_kronecker<'v>(
        &mut self,
        a: &Dense,
        b: &Dense,
        tau: f64,
        m: impl Into<Numbers<'v>>,
        l: impl Into<Numbers<'v>>,
    ) -> Result<()> {
        let (m, l) = (m.into(), l.into());
        self.check_whole()?;
        let Some((old_a, old_b)) = &self.problem.stages else { return Err(no_sum()) };
        let (s, changed) = (old_a.rows(), a != old_a || b != old_b);
        let own = check_coefficients([a, b], s, tau)
            .and_then(|()| self.check_values(0, m))
            .and_then(|()| self.check_values(1, l));
        self.agreed(own)?;
        same_coefficients(&*self.problem.comm, [a, b], tau)?;
        let new = changed.then(|| (a.clone(), b.clone()));
        let coefficients = match new {
            None => Coefficients::Tau(tau),
            Some(stages) => {
                self.problem.stages = Some(stages);
                Coefficients::Stages(tau)
            }
        };
        self.take(&[(0, m), (1, l)], Some(coefficients))
    }

    /// Checks new values of a term before anything is changed.
    fn check_values(&mut self, term: usize, values: Numbers) -> Result<()> {
        let whole = self.whole();
        let terms = &whole.terms.terms;
        if term >= terms.len() {
            return Err(Error::invalid(format!(
                "there is no term {term}; the problem has {} terms, counted from 0",
                terms.len()
            )));
        }
        let count = whole.entries(term)?;
        if values.len() != count {
            return Err(Error::invalid(format!(
                "{} new values for a matrix that stores {count}; expected one value per stored entry",
                values.len()
            )));
        }
        match values.as_host() {
            Some(values) if values.len() > FEW => self.workers.first(|| finite(values)),
            values => values.map_or(Ok(()), finite),
        }
    }

    /// Updates the values of up to two terms, which are checked already, and the coefficients.
    fn take(&mut self, new: &[(usize, Numbers)], coefficients: Option<Coefficients>) -> Result<()> {
        if self.leaders.is_some() {
            return self.take_on_leaders(new, coefficients);
        }
        let mut blocks = std::mem::take(&mut self.blocks);
        let done = self.take_by(new, &mut blocks, coefficients);
        self.blocks = blocks;
        done
    }

    fn take_by(
        &mut self,
        new: &[(usize, Numbers)],
        blocks: &mut [Vec<f64>; 2],
        coefficients: Option<Coefficients>,
    ) -> Result<()> {
        let mut kept: [Option<Bsr>; 2] = [None, None];
        let (mut values, mut anew) = ([(0, None); 2], false);
        let Self { problem, dropped, fixed, workers, .. } = self;
        let mut parts = workers.parts.take();
        let taken: Result<()> = workers.first(|| {
            for (((&(term, given), blocks), kept), to) in
                new.iter().zip(blocks).zip(&mut kept).zip(&mut values)
            {
                let second = dropped.as_mut().map(|dropped| &mut dropped.whole);
                let first = fixed.as_mut().map(|fixed| &mut fixed.given);
                let whole = first.or(second).unwrap_or(&mut *problem);
                let stored = match whole.gather(term, given, blocks)? {
                    Gathered::Same => given,
                    Gathered::Host => Numbers::from(&*blocks),
                    Gathered::Blocks(made) => kept.insert(made).numbers(),
                };
                whole.terms.terms[term].1.to_mut().update_values(stored)?;
                if let Some(fixed) = fixed {
                    let less = dropped.as_mut().map_or(&mut *problem, |dropped| &mut dropped.whole);
                    anew |= !fixed.update(&mut less.terms)?;
                }
                if let Some(dropped) = dropped {
                    anew |= !dropped.update(term, &mut problem.terms)?;
                }
                if let Some(parts) = &mut parts {
                    parts.update_values(&problem.terms, term)?;
                }
                let lent = parts.is_none() && dropped.is_none() && fixed.is_none();
                *to = (term, stored.gpu().filter(|_| lent).map(|_| stored));
            }
            Ok(())
        });
        workers.parts = parts;
        taken?;
        self.scale(coefficients);
        if anew {
            return self.take_whole();
        }
        self.update(Update { values: &values[..new.len()], coefficients })
    }

    /// Computes the coefficients of the terms from A, B and τ.
    pub(super) fn scale(&mut self, coefficients: Option<Coefficients>) {
        let (Some((a, b)), Some(coefficients)) = (&self.problem.stages, coefficients) else { return };
        let tau = coefficients.tau();
        for (term, from, factor) in [(0, a, 1.0), (1, b, tau)] {
            let scale = |to: &mut Dense| {
                for i in 0..from.rows() {
                    (0..from.columns()).for_each(|j| to[(i, j)] = factor * from[(i, j)]);
                }
            };
            scale(&mut self.problem.terms.terms[term].0);
            if let Some(parts) = &mut self.workers.parts {
                parts.for_coefficients(term, scale);
            }
        }
    }

    /// Sets a new τ in A⊗M + τB⊗L. Over ranks, every rank sets the same.
    ///
    /// # Errors
    /// A problem that is not a Kronecker sum; a τ for which τB is not finite, or that differs between ranks;
    /// a preconditioner named in the options that cannot be built for the new τ.
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
        let Some((a, b)) = &self.problem.stages else { return Err(no_sum()) };
        self.agreed(check_tau(b, tau))?;
        same_coefficients(&*self.problem.comm, [a, b], tau)?;
        self.take(&[], Some(Coefficients::Tau(tau)))
    }

    fn update(&mut self, what: Update<'_>) -> Result<()> {
        (self.rows, self.adjoint, self.is_renewed) = (None, None, true);
        let Self { problem, workers, refresh, cancel, .. } = self;
        let parts = workers.parts.take();
        let limits = Limits { cancel: cancel.clone(), deadline: None };
        let done = workers.command(&|number, worker| {
            let _entered = limits.enter();
            let engine = &mut worker.as_mut().ok_or_else(lost_thread)?.engine;
            let local = match &parts {
                None => problem.part_of_one(),
                Some(parts) => parts.local(number, problem),
            };
            engine.update(&local, what, *refresh)
        });
        workers.parts = parts;
        self.after(done)
    }
}

fn no_sum() -> Error {
    Error::invalid(
        "tau can change only in a Kronecker sum A⊗M + tau B⊗L, and this problem is a plain matrix or sum",
    )
}

/// Returns an error for new A, B and τ that do not suit a sum of s stages.
fn check_coefficients([a, b]: [&Dense; 2], s: usize, tau: f64) -> Result<()> {
    if [a, b].iter().any(|c| c.rows() != s || c.columns() != s) {
        return Err(Error::invalid(format!(
            "A is {}×{} and B is {}×{}, but this solver has {s} stages; create a new solver for another \
             number of stages",
            a.rows(),
            a.columns(),
            b.rows(),
            b.columns()
        )));
    }
    if let Some(p) = a.values().iter().position(|v| !v.is_finite()) {
        let (i, j) = (p / s, p % s);
        return Err(Error::invalid(format!("A({i}, {j}) is {}; it must be finite", a[(i, j)])));
    }
    check_tau(b, tau)
}

/// Returns an error if τB is not finite.
fn check_tau(b: &Dense, tau: f64) -> Result<()> {
    match b.values().iter().all(|v| (tau * v).is_finite()) && tau.is_finite() {
        true => Ok(()),
        false => Err(Error::invalid(format!("tau is {tau}; tau times B must be finite"))),
    }
}

/// Returns an error for values that are not finite.
fn finite(values: &[f64]) -> Result<()> {
    match crate::matrix::first_not_finite(values) {
        Some(e) => Err(Error::invalid(format!("new value {e} is {}; every value must be finite", values[e]))),
        None => Ok(()),
    }
}
