//! Krylov methods: one a file, written once for every device.

mod bicgstab;
mod gmres;
mod spec;

pub use bicgstab::{Bicgstab, BicgstabOptions, Reductions, SWEEPS as BICGSTAB_SWEEPS};
pub use gmres::{Gmres, GmresOptions, Orthogonalization, SWEEPS as GMRES_SWEEPS};
pub use spec::{MethodName, MethodSpec};

use crate::Result;
use crate::operator::LinearOperator;
use crate::space::{History, Observer, Space, Stop};

/// A method with its workspace, whichever it is.
pub trait Method<S: Space> {
    /// Solves A x = b from the given x; `p` applies P⁻¹ from the right.
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
}

macro_rules! methods {
    ($($name:ident),*) => {$(
        impl<S: Space> Method<S> for $name<S> {
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
                $name::solve(self, space, a, p, b, x, stop, observer)
            }
        }
    )*};
}
methods!(Gmres, Bicgstab);
