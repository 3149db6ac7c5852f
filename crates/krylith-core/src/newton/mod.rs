//! Nonlinear systems F(x) = 0 whose Jacobian is a sparse point-block matrix, by inexact Newton methods.
//!
//! [`Newton`] solves J(x) s = −F(x) with one [`Solver`](crate::Solver), which it keeps. The pattern of J is
//! analysed once, and each step updates only the values. [`Forcing`] sets the tolerance of each linear solve,
//! and a line search shortens s if ‖F‖ would not decrease. [`Newton::continuation`] approaches a hard system
//! through a sequence of easier ones.
//!
//! ```
//! use krylith::matrix::Bsr;
//! use krylith::newton::{Newton, NewtonOptions, NewtonOutcome, NonlinearSystem};
//!
//! /// −u″ = λ eᵘ on 20 points between two zeros (Bratu).
//! struct Bratu { lambda: f64, pattern: Bsr }
//!
//! impl NonlinearSystem for Bratu {
//!     fn pattern(&self) -> &Bsr { &self.pattern }
//!     fn residual(&mut self, x: &[f64], f: &mut [f64]) -> krylith::Result<()> {
//!         let (n, h) = (x.len(), 1.0 / (x.len() + 1) as f64);
//!         let at = |i: usize| if i < n { x[i] } else { 0.0 };
//!         for i in 0..n {
//!             f[i] = 2.0 * x[i] - at(i.wrapping_sub(1)) - at(i + 1) - h * h * self.lambda * x[i].exp();
//!         }
//!         Ok(())
//!     }
//!     fn jacobian(&mut self, x: &[f64], values: &mut [f64]) -> krylith::Result<()> {
//!         let h = 1.0 / (x.len() + 1) as f64;
//!         values.fill(-1.0);
//!         for i in 0..x.len() {
//!             let p = self.pattern.diagonal_position(i).expect("it is stored");
//!             values[p] = 2.0 - h * h * self.lambda * x[i].exp();
//!         }
//!         Ok(())
//!     }
//! }
//!
//! let n = 20;
//! let (mut row_ptr, mut col) = (vec![0], Vec::new());
//! for i in 0..n as u32 {
//!     col.extend((i.saturating_sub(1)..=i + 1).filter(|j| *j < n as u32));
//!     row_ptr.push(col.len());
//! }
//! let values = vec![0.0; col.len()];
//! let mut bratu = Bratu { lambda: 1.0, pattern: Bsr::new(1, n, n, row_ptr, col, values)? };
//!
//! let mut newton = Newton::new(NewtonOptions::default(), &"device=cpu".parse()?)?;
//! let mut x = vec![0.0; n];
//! let report = newton.solve(&mut bratu, &mut x)?;
//! assert_eq!(report.outcome, NewtonOutcome::Converged);
//! assert!((x[n / 2] - 0.14).abs() < 0.01);
//! # Ok::<(), krylith::Error>(())
//! ```
//!
//! F and J are evaluated on the caller's thread, where parallel loops use rayon's current pool. The solver
//! does all other work, so Newton's method runs on every device and on several GPUs without code for them. A
//! time-dependent problem is a [`NonlinearSystem`] that changes between solves.
//!
//! Several ranks can share a system: each evaluates F and J on its own rows. Such a system returns a
//! distributed [`Problem`] from [`NonlinearSystem::problem`]:
//!
//! ```
//! use krylith::comm::{Communicator, Team};
//! use krylith::matrix::{Bsr, Dense};
//! use krylith::newton::{Newton, NewtonOptions, NonlinearSystem};
//! use krylith::partition::{RowBlocks, Rows, distribute};
//! use krylith::{Problem, partition::Part};
//!
//! /// xᵢ³ + xᵢ − xⱼ = 1 for two nodes i and j, one on each rank.
//! struct Pair<'a> { comm: std::sync::Arc<dyn Communicator>, part: &'a Part }
//!
//! impl NonlinearSystem for Pair<'_> {
//!     fn pattern(&self) -> &Bsr { &self.part.terms.terms()[0].1 }
//!     fn problem(&self) -> krylith::Result<Problem<'_>> {
//!         Problem::part(self.comm.clone(), self.part.clone())
//!     }
//!     fn residual(&mut self, x: &[f64], f: &mut [f64]) -> krylith::Result<()> {
//!         let x = self.part.halo.with_ghosts(&*self.comm, 1, x)?; // own numbers, then ghosts
//!         Ok(f[0] = x[0].powi(3) + x[0] - x[1] - 1.0)
//!     }
//!     fn jacobian(&mut self, x: &[f64], values: &mut [f64]) -> krylith::Result<()> {
//!         Ok(values.copy_from_slice(&[3.0 * x[0] * x[0] + 1.0, -1.0]))
//!     }
//! }
//!
//! let x = Team::run(2, |comm| {
//!     let own = comm.rank() as u64;
//!     let blocks = RowBlocks { row_ptr: vec![0, 2], col: vec![own, 1 - own], values: vec![0.0; 2] };
//!     let rows = Rows { numbers: vec![own], block: 1, terms: vec![(Dense::identity(1), blocks)] };
//!     let part = distribute(&*comm, rows)?;
//!     let mut newton = Newton::new(NewtonOptions::default(), &"device=cpu".parse()?)?;
//!     let mut x = [2.0];
//!     newton.solve(&mut Pair { comm, part: &part }, &mut x)?;
//!     Ok(x[0])
//! })?;
//! assert!(x.iter().all(|x| (x - 1.0).abs() < 1e-6));
//! # Ok::<(), krylith::Error>(())
//! ```

mod continuation;
mod driver;
mod forcing;
mod options;
mod report;

pub use continuation::{Continuation, Stage};
pub use driver::Newton;
pub use forcing::Forcing;
pub use options::NewtonOptions;
pub use report::{NewtonEvent, NewtonObserver, NewtonOutcome, NewtonReport, NewtonSeconds, NewtonStep};

use crate::matrix::Bsr;
use crate::memory::Numbers;
use crate::operator::FunctionOperator;
use crate::problem::Problem;
use crate::{Error, Result};

/// A system of nonlinear equations F(x) = 0 with as many equations as unknowns.
///
/// # Examples
/// ```
/// use krylith::{matrix::Bsr, newton::NonlinearSystem};
/// /// A radiating plate: x⁴ = q at each of two nodes.
/// struct Plate { q: f64, pattern: Bsr }
/// impl NonlinearSystem for Plate {
///     fn pattern(&self) -> &Bsr { &self.pattern }
///     fn residual(&mut self, x: &[f64], f: &mut [f64]) -> krylith::Result<()> {
///         Ok(f.iter_mut().zip(x).for_each(|(f, x)| *f = x.powi(4) - self.q))
///     }
///     fn jacobian(&mut self, x: &[f64], values: &mut [f64]) -> krylith::Result<()> {
///         Ok(values.iter_mut().zip(x).for_each(|(v, x)| *v = 4.0 * x.powi(3)))
///     }
/// }
/// let pattern = Bsr::new(1, 2, 2, vec![0, 1, 2], vec![0, 1], vec![0.0; 2])?;
/// let (mut plate, mut f) = (Plate { q: 16.0, pattern }, [0.0; 2]);
/// plate.residual(&[2.0, 3.0], &mut f)?;
/// assert_eq!(f, [0.0, 65.0]);
/// # Ok::<(), krylith::Error>(())
/// ```
pub trait NonlinearSystem {
    /// Returns the pattern of the Jacobian, with blocks of order b. It must be the same for every x, and its
    /// values are ignored. If several ranks share the system, it has the rows of this rank.
    fn pattern(&self) -> &Bsr;
    /// Computes f ← F(x). Component c of node i is at i·b + c, as in [`Bsr`] rows. x and f have the own rows
    /// of a rank, and no ghosts.
    ///
    /// # Errors
    /// The system cannot be evaluated at x.
    fn residual(&mut self, x: &[f64], f: &mut [f64]) -> Result<()>;
    /// Computes values ← ∂F/∂x at x, in the order of [`Bsr::values`].
    ///
    /// # Errors
    /// The system cannot be evaluated at x.
    fn jacobian(&mut self, x: &[f64], values: &mut [f64]) -> Result<()>;
    /// Receives the place of the linear solves, before the first evaluation of each solve of Newton's method:
    /// the GPU of this rank by its CUDA ordinal, or `None` for the host. Returns true if the system evaluates
    /// F and J in memory of its own, such as that of the GPU. Then
    /// [`residual_in_own_memory`](Self::residual_in_own_memory) and
    /// [`jacobian_in_own_memory`](Self::jacobian_in_own_memory) are called instead of the functions above,
    /// and x, F and J never leave the GPU. The default returns false.
    ///
    /// # Errors
    /// A GPU that the system cannot use.
    fn solves_on(&mut self, _gpu: Option<usize>) -> Result<bool> {
        Ok(false)
    }
    /// Computes F(x) in memory of the system and returns it. x is on the GPU that solves, or on the host.
    ///
    /// # Errors
    /// The system cannot be evaluated at x.
    fn residual_in_own_memory(&mut self, _x: Numbers<'_>) -> Result<Numbers<'_>> {
        Err(Error::Internal("a system without memory of its own".into()))
    }
    /// Computes ∂F/∂x at x in memory of the system and returns it, in the order of [`Bsr::values`].
    ///
    /// # Errors
    /// The system cannot be evaluated at x.
    fn jacobian_in_own_memory(&mut self, _x: Numbers<'_>) -> Result<Numbers<'_>> {
        Err(Error::Internal("a system without memory of its own".into()))
    }
    /// Returns the product with the Jacobian at x as a function, for a Jacobian-free method. Linear solves
    /// then use the function, and the matrix of [`jacobian`](Self::jacobian) only preconditions: it may be an
    /// approximation with fewer entries. It is called after `jacobian`, in each step. x does not change while
    /// the operator is in use, and is on the GPU that solves or on the host. The default is `None`: the
    /// matrix is the Jacobian.
    ///
    /// # Errors
    /// The system cannot be evaluated at x.
    ///
    /// ```
    /// use krylith::{matrix::Bsr, memory::Numbers, newton::{Newton, NewtonOptions, NonlinearSystem}};
    /// use krylith::operator::FunctionOperator;
    /// /// xᵢ³ + xᵢ + 0.1 Σ xⱼ = 1, preconditioned by the diagonal of its Jacobian.
    /// struct Ring(Bsr);
    /// impl NonlinearSystem for Ring {
    ///     fn pattern(&self) -> &Bsr { &self.0 }
    ///     fn residual(&mut self, x: &[f64], f: &mut [f64]) -> krylith::Result<()> {
    ///         let sum: f64 = x.iter().sum();
    ///         Ok(f.iter_mut().zip(x).for_each(|(f, x)| *f = x.powi(3) + x + 0.1 * sum - 1.0))
    ///     }
    ///     fn jacobian(&mut self, x: &[f64], values: &mut [f64]) -> krylith::Result<()> {
    ///         Ok(values.iter_mut().zip(x).for_each(|(v, x)| *v = 3.0 * x * x + 1.1))
    ///     }
    ///     fn jacobian_operator(&mut self, x: Numbers<'_>) -> krylith::Result<Option<FunctionOperator<'_>>> {
    ///         let x = x.to_vec()?;
    ///         Ok(Some(FunctionOperator::on_host(move |v, y| {
    ///             let sum: f64 = v.iter().sum();
    ///             Ok((0..x.len()).for_each(|i| y[i] = (3.0 * x[i] * x[i] + 1.0) * v[i] + 0.1 * sum))
    ///         })))
    ///     }
    /// }
    /// let pattern = Bsr::new(1, 3, 3, vec![0, 1, 2, 3], vec![0, 1, 2], vec![0.0; 3])?;
    /// let mut newton = Newton::new(NewtonOptions::default(), &"device=cpu precond=jacobi".parse()?)?;
    /// assert!(newton.solve(&mut Ring(pattern), &mut [0.0, 1.0, 2.0])?.converged());
    /// # Ok::<(), krylith::Error>(())
    /// ```
    fn jacobian_operator(&mut self, _x: Numbers<'_>) -> Result<Option<FunctionOperator<'_>>> {
        Ok(None)
    }
    /// Returns the coordinates of nodes, which some partitions need.
    fn coordinates(&self) -> Option<&[[f64; 3]]> {
        None
    }
    /// Returns the problem of the linear solves: the pattern, and what solves can use beyond it, such as the
    /// ranks that share the system, fields and null vectors. Its values are ignored. If its values have
    /// another [order](Problem::grouping) than [`Bsr::values`], then [`jacobian`](Self::jacobian) computes
    /// them in that order. The default is the pattern with the coordinates.
    ///
    /// # Errors
    /// A pattern that is not square; coordinates that do not fit; a rank that is gone or failed.
    fn problem(&self) -> Result<Problem<'_>> {
        let problem = Problem::bsr(self.pattern())?;
        match self.coordinates() {
            Some(points) => problem.with_coordinates(points),
            None => Ok(problem),
        }
    }
}
