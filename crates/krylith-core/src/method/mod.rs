//! Krylov methods. Each method is one file, written once for all devices. [`krylov`] has the parts that all
//! methods share.
//!
//! [`Gmres`] (also as FGMRES), [`Bicgstab`], [`Cg`], [`Cbcg`] and [`Minres`] are built for a [`Space`] with
//! their options, and accept any [`LinearOperator`]s as A and P⁻¹. [`Method`] is the trait of all methods.
//! [`MethodSpec`] is a method given by name and options, as in `gmres:restart=50`.

pub mod bicgstab;
pub mod cbcg;
pub mod cg;
pub mod complex;
pub mod gmres;
pub mod krylov;
pub mod minres;
mod spec;
mod work;

pub use bicgstab::{Bicgstab, BicgstabOptions, Reductions};
pub use cbcg::{Cbcg, CbcgBasis, CbcgOptions};
pub use cg::{Cg, CgForm, CgOptions};
pub use gmres::{Gmres, GmresOptions, Orthogonalization};
pub use krylov::{ColumnsMethod, Krylov};
pub(crate) use krylov::{LIMIT, keep};
pub use minres::Minres;
pub use spec::{MethodName, MethodSpec};
pub use work::Work;

use crate::Result;
use crate::operator::LinearOperator;
use crate::space::{History, Observer, Space, StepSource, Stop, SweepSource};
use krylov::Recurrence;

/// The scalar steps and vector sweeps of every method: the kernels that a device compiles.
pub const KERNELS: [(&[StepSource], &[SweepSource]); 9] = [
    (krylov::STEPS, krylov::SWEEPS),
    (&[], krylov::criterion::SWEEPS),
    (bicgstab::STEPS, bicgstab::SWEEPS),
    (cbcg::STEPS, cbcg::SWEEPS),
    (cg::STEPS, cg::SWEEPS),
    (gmres::STEPS, gmres::SWEEPS),
    (minres::STEPS, minres::SWEEPS),
    (complex::bicgstab::STEPS, complex::bicgstab::SWEEPS),
    (complex::gmres::STEPS, complex::gmres::SWEEPS),
];

/// A Krylov method together with its workspace.
///
/// # Examples
/// A method that is chosen at run time:
/// ```
/// use krylith::device::Cpu;
/// use krylith::{Stop, Precision, matrix::Csr, method::{Method, MethodSpec}, operator::PointBlock};
/// let a = Csr::from_triplets(2, 2, &[(0, 0, 2.0), (0, 1, 1.0), (1, 0, 1.0), (1, 1, 3.0)])?;
/// let space = Cpu::new(2, 1);
/// let operator = PointBlock::csr(&space, &a, Precision::F64)?;
/// let spec: MethodSpec = "bicgstab".parse()?;
/// let mut method: Box<dyn Method<Cpu>> = spec.build(&space)?;
/// let mut x = vec![0.0; 2];
/// let history = method.solve(&space, &operator, None, &vec![3.0, 4.0], &mut x, &Stop::default(), &mut ())?;
/// assert_eq!(history.outcome, krylith::Outcome::Converged);
/// # Ok::<(), krylith::Error>(())
/// ```
pub trait Method<S: Space> {
    /// Solves A x = b, starting from the given x. `p` applies P⁻¹.
    ///
    /// # Errors
    /// Errors of the device. Non-convergence is an [`Outcome`](crate::Outcome), not an error.
    fn solve(
        &mut self,
        space: &S,
        a: &dyn LinearOperator<S>,
        p: Option<&dyn LinearOperator<S>>,
        b: &S::Vector,
        x: &mut S::Vector,
        stop: &Stop,
        observer: &mut dyn Observer,
    ) -> Result<&History>;

    /// Returns a note on the last solve for the user, such as the number of directions that were linearly
    /// dependent.
    fn remark(&self) -> Option<String> {
        None
    }
}

impl<S: Space, R: Recurrence<S>> Method<S> for Krylov<S, R> {
    fn solve(
        &mut self,
        space: &S,
        a: &dyn LinearOperator<S>,
        p: Option<&dyn LinearOperator<S>>,
        b: &S::Vector,
        x: &mut S::Vector,
        stop: &Stop,
        observer: &mut dyn Observer,
    ) -> Result<&History> {
        Krylov::solve(self, space, a, p, b, x, stop, observer)
    }

    fn remark(&self) -> Option<String> {
        self.recurrence().remark()
    }
}
