//! Distributes a caller's vectors to the devices of a solver. Also applies A or P⁻¹ once.

use super::attempt::{Engine, Operand};
use super::workers::{Worker, WorkerGroup};
use super::{Solver, lock, lost_thread};
use crate::comm::agree;
use crate::matrix::{FEW, check_finite};
use crate::memory::{Numbers, NumbersMut};
use crate::problem::{LocalProblem, Problem};
use crate::space::Outcome;
use crate::{Error, Result};
use std::sync::Mutex;

/// Largest number of devices that read their parts of a caller's vectors without a copy on the host.
const MOST_RUNS: usize = 16;

/// The work of one thread on its part of a solver. Arguments: thread number, engine, part of the problem, and
/// own entries of both vectors.
pub(super) type Work<'a> =
    dyn Fn(usize, &mut dyn Engine, &LocalProblem, Numbers, NumbersMut) -> Result<()> + Sync + 'a;

/// Runs `work` on every thread with its part of `from` and `to`.
pub(super) fn on_parts(
    workers: &mut WorkerGroup,
    problem: &Problem,
    from: Numbers,
    to: NumbersMut,
    work: &Work<'_>,
) -> Result<()> {
    let parts = workers.parts.take();
    // A device whose rows are consecutive reads its part of both vectors in place. Scattered rows are
    // gathered on the host.
    let mut pieces = [const { Mutex::new(None) }; MOST_RUNS];
    let runs = parts.as_ref().and_then(|parts| parts.runs(MOST_RUNS));
    let (mut to, in_runs) = (to, runs.is_some());
    for (run, piece) in runs.into_iter().flatten().zip(&mut pieces) {
        let (own, others) = to.split_at(run.len());
        *piece = Mutex::new(Some((from.range(run), own)));
        to = others;
    }
    let to = Mutex::new(to);
    let done = workers.command(&|number, worker| {
        let Worker { engine, own } = worker.as_mut().ok_or_else(lost_thread)?;
        match &parts {
            None => work(number, &mut **engine, &problem.part_of_one(), from, lock(&to).reborrow()),
            Some(parts) if in_runs => {
                let piece = lock(&pieces[number]).take();
                let (from, to) = piece.ok_or_else(|| Error::Internal("a device without a run".into()))?;
                work(number, &mut **engine, &parts.local(number, problem), from, to)
            }
            Some(parts) => {
                let [own_from, own_to] = own;
                let rows = parts.local(number, problem).terms.rows();
                own_from.resize(rows, 0.0);
                own_to.resize(rows, 0.0);
                parts.take_own(number, from, own_from)?;
                parts.take_own(number, lock(&to).as_array(), own_to)?;
                let (local, from) = (parts.local(number, problem), Numbers::from(&*own_from));
                work(number, &mut **engine, &local, from, NumbersMut::from(&mut *own_to))?;
                parts.put_own(number, own_to, &mut lock(&to))
            }
        }
    });
    workers.parts = parts;
    done
}

impl Solver<'_> {
    /// Computes `y ← A x` on the devices, with the values of the last update, rounded if matrices are stored
    /// in f32. Collective where the problem is distributed.
    ///
    /// # Errors
    /// Vectors of another length than [`Problem::own_len`]; a device or a rank that fails.
    ///
    /// ```
    /// use krylith::{Solver, matrix::Csr};
    /// let a = Csr::from_triplets(2, 2, &[(0, 0, 2.0), (0, 1, 1.0), (1, 1, 3.0)])?;
    /// let mut solver = Solver::new(&a, &"device=cpu".parse()?)?;
    /// let mut y = [0.0; 2];
    /// solver.multiply(&[1.0, 2.0], &mut y)?;
    /// assert_eq!(y, [4.0, 6.0]);
    /// # Ok::<(), krylith::Error>(())
    /// ```
    pub fn multiply<'v>(&mut self, x: impl Into<Numbers<'v>>, y: impl Into<NumbersMut<'v>>) -> Result<()> {
        self.apply(Operand::Matrix, false, x.into(), y.into())
    }

    /// Computes `y ← Aᵀ x`, as [`multiply`](Self::multiply) computes A x. The first call lays out Aᵀ, unless
    /// A is symmetric. Collective where the problem is distributed.
    ///
    /// # Errors
    /// As [`multiply`](Self::multiply).
    ///
    /// ```
    /// use krylith::{Solver, matrix::Csr};
    /// let a = Csr::from_triplets(2, 2, &[(0, 0, 2.0), (0, 1, 1.0), (1, 1, 3.0)])?;
    /// let mut solver = Solver::new(&a, &"device=cpu".parse()?)?;
    /// let mut y = [0.0; 2];
    /// solver.multiply_transposed(&[1.0, 2.0], &mut y)?;
    /// assert_eq!(y, [2.0, 7.0]);
    /// # Ok::<(), krylith::Error>(())
    /// ```
    pub fn multiply_transposed<'v>(
        &mut self,
        x: impl Into<Numbers<'v>>,
        y: impl Into<NumbersMut<'v>>,
    ) -> Result<()> {
        self.apply(Operand::Matrix, true, x.into(), y.into())
    }

    /// Computes `y ← P⁻¹ x` with the current preconditioner: that of the options, or of the last attempt of
    /// the last solve. Without a preconditioner it copies x. Collective where the problem is distributed.
    ///
    /// # Errors
    /// Vectors of another length than [`Problem::own_len`]; a device or a rank that fails.
    ///
    /// ```
    /// use krylith::{Solver, matrix::Csr};
    /// let a = Csr::from_triplets(2, 2, &[(0, 0, 2.0), (0, 1, 1.0), (1, 1, 4.0)])?;
    /// let mut solver = Solver::new(&a, &"precond=jacobi device=cpu".parse()?)?;
    /// let mut y = [0.0; 2];
    /// solver.precondition(&[1.0, 2.0], &mut y)?;
    /// assert_eq!(y, [0.5, 0.5]);
    /// # Ok::<(), krylith::Error>(())
    /// ```
    pub fn precondition<'v>(
        &mut self,
        x: impl Into<Numbers<'v>>,
        y: impl Into<NumbersMut<'v>>,
    ) -> Result<()> {
        self.apply(Operand::Preconditioner, false, x.into(), y.into())
    }

    /// Computes `y ← P⁻ᵀ x` with the preconditioner that [`precondition`](Self::precondition) applies.
    /// Collective where the problem is distributed.
    ///
    /// # Errors
    /// As [`precondition`](Self::precondition); [`Error::Unsupported`] if P⁻¹ is not a fixed linear map.
    ///
    /// ```
    /// use krylith::{Solver, matrix::Csr};
    /// let a = Csr::from_triplets(2, 2, &[(0, 0, 2.0), (0, 1, 1.0), (1, 1, 4.0)])?;
    /// let mut solver = Solver::new(&a, &"precond=jacobi device=cpu".parse()?)?;
    /// let mut y = [0.0; 2];
    /// solver.precondition_transposed(&[1.0, 2.0], &mut y)?;
    /// assert_eq!(y, [0.5, 0.5]);
    /// # Ok::<(), krylith::Error>(())
    /// ```
    pub fn precondition_transposed<'v>(
        &mut self,
        x: impl Into<Numbers<'v>>,
        y: impl Into<NumbersMut<'v>>,
    ) -> Result<()> {
        self.apply(Operand::Preconditioner, true, x.into(), y.into())
    }

    /// Computes ‖r_c‖/‖b‖ for each component c of r = b − A x, over all nodes, stages and ranks. The
    /// computation runs on the host, with the values that the caller gave. Collective where the problem is
    /// distributed.
    ///
    /// # Errors
    /// A rank that has ended or failed.
    pub fn field_residuals(&mut self, b: &[f64], x: &[f64]) -> Result<Vec<f64>> {
        let original = self.fixed.as_ref().map_or(&self.problem, |fixed| &fixed.given).original();
        self.workers.first(|| {
            let norm = original.norm(b)?;
            let fields = original.by_field(&original.residual(b, x)?)?;
            Ok(fields.into_iter().map(|r| if norm > 0.0 { r / norm } else { r }).collect())
        })
    }

    pub(super) fn apply(
        &mut self,
        what: Operand,
        transposed: bool,
        x: Numbers,
        mut y: NumbersMut,
    ) -> Result<()> {
        self.check_whole()?;
        if self.leaders.is_some() {
            return self.apply_on_leaders(what, transposed, x, y);
        }
        self.check_matrix()?;
        self.check_vectors([("x", x.len()), ("y", y.len())])?;
        let work: &Work<'_> = &|_, engine, local, from, to| engine.apply(transposed, local, what, from, to);
        let done = on_parts(&mut self.workers, &self.problem, x, y.reborrow(), work);
        self.after(done)?;
        match (&self.fixed, what) {
            (Some(fixed), Operand::Matrix) => {
                let read = x.to_vec().and_then(|x| Ok((x, y.as_array().to_vec()?)));
                let (from, mut to) = agree(&*self.problem.comm, read)?;
                self.workers.first(|| fixed.add_product(transposed, &from, &mut to))?;
                y.write(&to)
            }
            _ => Ok(()),
        }
    }

    /// Returns an error on every rank if vectors on the host of some rank are not finite. Collective.
    pub(super) fn check_finite(&mut self, vectors: [(&str, Numbers); 2]) -> Result<()> {
        let host = |(name, v): &(&str, Numbers)| v.as_host().map_or(Ok(()), |v| check_finite(name, v));
        let look = || vectors.iter().try_for_each(host);
        let few = vectors.iter().all(|(_, v)| v.len() <= FEW);
        let own = if few { look() } else { self.workers.first(look) };
        self.agreed(own)
    }

    /// Returns an error on every rank if a check fails on some rank, at the cost of one sum. Collective.
    /// If new values fail a check, this call must come before anything collective: other ranks begin their
    /// update with this sum.
    ///
    /// # Errors
    /// The own error, or that of another rank.
    #[doc(hidden)]
    pub fn agreed<T>(&self, own: Result<T>) -> Result<T> {
        let comm = &*self.problem.comm;
        if comm.size() == 1 {
            return own;
        }
        let mut wrong = [f64::from(u8::from(own.is_err()))];
        comm.sum(&mut wrong)?;
        if wrong[0] > 0.0 { agree(comm, own) } else { own }
    }

    /// Returns the error for a solve that could not start because the norm of b is not finite, if b is in
    /// device memory. It names the first such entry. Collective.
    pub(super) fn check_begun(&mut self, b: Numbers) -> Result<()> {
        let history = &self.solution.history;
        if history.outcome != Outcome::NotFinite || history.iterations > 0 || history.rhs_norm.is_finite() {
            return Ok(());
        }
        let own = match b.gpu() {
            Some(_) => self.workers.first(|| b.to_vec().and_then(|b| check_finite("b", &b))),
            None => Ok(()), // b was checked already: the norm overflows
        };
        agree(&*self.problem.comm, own)
    }

    /// Returns an error for vectors that do not have the length of own rows.
    pub(super) fn check_vectors(&self, vectors: [(&str, usize); 2]) -> Result<()> {
        let n = self.problem.own_len();
        match vectors.into_iter().find(|(_, len)| *len != n) {
            Some((name, len)) => {
                Err(Error::invalid(format!("{name} has {len} numbers; the system has {n} unknowns")))
            }
            None => Ok(()),
        }
    }
}
