//! Krylith as a linear solver of [diffsol](https://docs.rs/diffsol), in place of `FaerSparseLU`.
//!
//! ```
//! use diffsol::{FaerSparseMat, OdeBuilder, OdeSolverMethod};
//! use krylith_diffsol::Krylith;
//! type M = FaerSparseMat<f64>;
//!
//! let problem = OdeBuilder::<M>::new()
//!     .rhs_implicit(|y, _, _, f| f[0] = -2.0 * y[0], |_, _, _, v, f| f[0] = -2.0 * v[0])
//!     .init(|_, _, y| y[0] = 1.0, 1)
//!     .build()?;
//! let mut solver = problem.bdf::<Krylith<M>>()?; // was problem.bdf::<FaerSparseLU<f64>>()
//! while solver.state().t < 1.0 {
//!     solver.step()?;
//! }
//! let y = solver.interpolate(1.0)?;
//! # use diffsol::Vector;
//! assert!((y.get_index(0) - (-2f64).exp()).abs() < 1e-4);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! diffsol makes its solvers by `Default`. For other options, give the method a solver:
//!
//! ```
//! # use diffsol::{Bdf, FaerSparseMat, OdeBuilder, OdeSolverMethod};
//! # use krylith_diffsol::Krylith;
//! # type M = FaerSparseMat<f64>;
//! # let problem = OdeBuilder::<M>::new()
//! #     .rhs_implicit(|y, _, _, f| f[0] = -2.0 * y[0], |_, _, _, v, f| f[0] = -2.0 * v[0])
//! #     .init(|_, _, y| y[0] = 1.0, 1)
//! #     .build()?;
//! let state = problem.bdf_state::<Krylith<M>>()?;
//! let linear = Krylith::new("method=gmres precond=ildu rtol=1e-8".parse()?);
//! let mut solver: Bdf<_, _> = Bdf::new(&problem, state, linear)?;
//! # solver.step()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use diffsol_la::error::LinearSolverError;
use diffsol_la::{Context, LaError, LinearOp, LinearSolver, Matrix, Vector};
use krylith::matrix::Csr;
use krylith::{Options, Outcome, Solver};
use std::cell::RefCell;

/// The tolerance of ‖b − A x‖/‖b‖ if the options have none, as of a direct solver.
const RTOL: f64 = 1e-12;

/// A linear solver of diffsol for any of its matrices of f64. A Jacobian of the same sparsity refreshes the
/// set-up. Batches have a solver each.
pub struct Krylith<M> {
    options: Options,
    /// The matrix that diffsol fills, once its sparsity is known.
    matrix: Option<M>,
    pattern: Pattern,
    state: RefCell<State>,
}

/// The pattern in CSR format, and where the matrix of diffsol has the values of its entries.
#[derive(Default)]
struct Pattern {
    row_ptr: Vec<usize>,
    col: Vec<u32>,
    from: Vec<usize>,
}

#[derive(Default)]
struct State {
    /// One for each batch of the matrix; why there are none after an error.
    solvers: Vec<Solver<'static>>,
    failed: Option<String>,
    b: Vec<f64>,
}

impl<M> Default for Krylith<M> {
    fn default() -> Self {
        Self::new(Options::default())
    }
}

impl<M> Krylith<M> {
    /// Returns a solver with these options. Their `rtol` is the tolerance of ‖b − A x‖/‖b‖, which without it
    /// is that of a direct solver, 1e-12.
    pub fn new(mut options: Options) -> Self {
        options.rtol.get_or_insert(RTOL);
        Self { options, matrix: None, pattern: Pattern::default(), state: RefCell::default() }
    }
}

impl Pattern {
    fn new(rows: usize, entries: impl Iterator<Item = (usize, usize)>) -> Self {
        let entries: Vec<_> = entries.collect();
        let mut from: Vec<usize> = (0..entries.len()).collect();
        from.sort_by_key(|&k| entries[k]);
        let mut row_ptr = vec![0; rows + 1];
        entries.iter().for_each(|&(i, _)| row_ptr[i + 1] += 1);
        (0..rows).for_each(|i| row_ptr[i + 1] += row_ptr[i]);
        let col = from.iter().map(|&k| entries[k].1 as u32).collect();
        Self { row_ptr, col, from }
    }
}

impl State {
    /// Takes new values, those of one batch after the other, and sets up at the first time.
    fn set_values(&mut self, pattern: &Pattern, options: &Options, values: &[f64]) -> krylith::Result<()> {
        let batches = if pattern.from.is_empty() { 1 } else { values.len() / pattern.from.len() };
        for batch in 0..batches {
            let of_batch = &values[batch * pattern.from.len()..];
            let values: Vec<f64> = pattern.from.iter().map(|&k| of_batch[k]).collect();
            if let Some(solver) = self.solvers.get_mut(batch) {
                solver.update_values(&values)?;
                continue;
            }
            let rows = pattern.row_ptr.len() - 1;
            let a = Csr::new(rows, rows, pattern.row_ptr.clone(), pattern.col.clone(), values)?;
            self.solvers.push(Solver::new(&a, options)?);
        }
        Ok(())
    }

    /// Overwrites b by the solution with the solver of a batch.
    fn solve(&mut self, batch: usize, b: &mut [f64], transposed: bool) -> Result<(), String> {
        self.b.clear();
        self.b.extend_from_slice(b);
        b.fill(0.0);
        let request = self.solvers[batch].request(&self.b[..], b).transposed(transposed);
        let solution = request.run().map_err(|e| e.to_string())?;
        match solution.outcome() {
            Outcome::Converged | Outcome::RoundingLimit => Ok(()), // the latter is as accurate as a direct solve
            outcome => Err(format!(
                "Krylith: {outcome} after {} iterations, relative residual {:.2e}; the tolerance is {:.2e}. Give \
                 Krylith::new other options",
                solution.history.iterations, solution.history.true_relative_residual, solution.target
            )),
        }
    }
}

fn error(why: String) -> LaError {
    LinearSolverError::Other(why).into()
}

impl<M: Matrix<T = f64>> Krylith<M> {
    fn solve_columns(&self, b: &mut M::V, transposed: bool) -> Result<(), LaError> {
        let state = &mut *self.state.borrow_mut();
        if let Some(why) = &state.failed {
            return Err(error(why.clone()));
        }
        let (batches, columns) = (state.solvers.len(), b.context().nbatch());
        if batches == 0 {
            return Err(LinearSolverError::LinearSolverNotSetup.into());
        }
        if columns % batches != 0 {
            return Err(error(format!(
                "{columns} right-hand sides for {batches} matrices; give each matrix as many"
            )));
        }
        let mut found = Ok(());
        b.for_each_batch_host([], |b, [], column| {
            if found.is_ok() {
                found = state.solve(column * batches / columns, b, transposed);
            }
        });
        found.map_err(error)
    }
}

impl<M: Matrix<T = f64>> LinearSolver<M> for Krylith<M> {
    fn set_sparsity<C: LinearOp<V = M::V, T = f64, M = M, C = M::C>>(&mut self, op: &C) {
        let a = M::new_from_sparsity(op.nrows(), op.ncols(), op.sparsity(), op.context().clone());
        self.pattern = Pattern::new(op.nrows(), a.triplet_iter().0);
        self.matrix = Some(a);
        self.state = RefCell::default();
    }

    fn set_linearisation<C: LinearOp<V = M::V, T = f64, M = M, C = M::C>>(&mut self, op: &C) {
        if self.matrix.is_none() {
            self.set_sparsity(op);
        }
        let Some(a) = &mut self.matrix else { return };
        op.matrix_inplace(a);
        let values: Vec<f64> = a.triplet_iter().1.collect();
        let state = self.state.get_mut();
        // diffsol expects no error here: the next solve returns it.
        state.failed = state.set_values(&self.pattern, &self.options, &values).err().map(|e| e.to_string());
        if state.failed.is_some() {
            state.solvers.clear();
        }
    }

    fn solve_in_place(&self, b: &mut M::V) -> Result<(), LaError> {
        self.solve_columns(b, false)
    }

    fn solve_transpose_in_place(&self, b: &mut M::V) -> Result<(), LaError> {
        self.solve_columns(b, true)
    }
}
