//! Krylov methods: one a file, written once for every device, and what is common to all in [`krylov`].

pub mod bicgstab;
pub mod cbcg;
pub mod cg;
pub mod gmres;
pub mod krylov;
mod spec;
mod work;

pub use bicgstab::{Bicgstab, BicgstabOptions, Reductions};
pub use cbcg::{Cbcg, CbcgBasis, CbcgOptions};
pub use cg::{Cg, CgForm, CgOptions};
pub use gmres::{Gmres, GmresOptions, Orthogonalization};
pub use krylov::Krylov;
pub(crate) use krylov::{LIMIT, other_unit};
pub use spec::{MethodName, MethodSpec};
pub use work::Work;

use crate::Result;
use crate::operator::LinearOperator;
use crate::space::{History, Observer, Space, StepSource, Stop, SweepSource};

/// The small steps and the sweeps of every method: what a device compiles.
pub const KERNELS: [(&[StepSource], &[SweepSource]); 5] = [
    (krylov::STEPS, krylov::SWEEPS),
    (bicgstab::STEPS, bicgstab::SWEEPS),
    (cbcg::STEPS, cbcg::SWEEPS),
    (cg::STEPS, cg::SWEEPS),
    (gmres::STEPS, gmres::SWEEPS),
];

/// A method with its workspace, whichever it is.
pub trait Method<S: Space> {
    /// Solves A x = b from the given x; `p` applies P⁻¹.
    ///
    /// # Errors
    /// What the device says; non-convergence is an [`Outcome`](crate::Outcome).
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

    /// What is worth saying of the last solve, such as directions that depended on others.
    fn remark(&self) -> Option<String> {
        None
    }
}
