//! Approximate inverses of Schur complements that are products of several operators.

use super::split_scale;
use crate::Result;
use crate::operator::{LinearOperator, PointBlockSum, applied, joined_key};
use crate::precond::{Preconditioner, SharedOperator};
use std::cell::RefCell;

/// The operators around the inverse of a part, which is one factor of an approximate S⁻¹.
pub(crate) enum Around<S: PointBlockSum> {
    /// y = L⁻¹ (C W A W B) L⁻¹ r: the least-squares commutator, where the part's inverse is that of L = C W
    /// B.
    Lsc(Lsc<S>),
    /// y = M⁻¹ F L⁻¹ r: pressure convection–diffusion, where the part's inverse is that of L.
    Pcd(Pcd<S>),
}

/// Operators of the least-squares commutator.
pub(crate) struct Lsc<S: PointBlockSum> {
    /// Vectors of the first field.
    pub space: S,
    /// A, B and C.
    pub a: SharedOperator<S>,
    pub b: SharedOperator<S>,
    pub c: SharedOperator<S>,
    /// Diagonal of W.
    pub w: S::Vector,
    /// Workspace: two vectors of the first field, one of the second.
    pub work: RefCell<([S::Vector; 2], S::Vector)>,
    pub scalars: RefCell<S::Scalars>,
}

/// Operators of pressure convection–diffusion.
pub(crate) struct Pcd<S: PointBlockSum> {
    pub f: SharedOperator<S>,
    pub mass: Box<dyn Preconditioner<S>>,
    pub work: RefCell<[S::Vector; 2]>,
}

impl<S: PointBlockSum> Around<S> {
    /// Computes y ← S⁻¹ r without its sign, with the inverse of L; or y ← S⁻ᵀ r.
    pub fn apply(
        &self,
        space: &S,
        turned: bool,
        inverse: &dyn Preconditioner<S>,
        r: &S::Vector,
        y: &mut S::Vector,
    ) -> Result<()> {
        match self {
            Self::Lsc(lsc) => {
                let ([u, v], p) = &mut *lsc.work.borrow_mut();
                let (on, scalars) = (&lsc.space, &mut *lsc.scalars.borrow_mut());
                let [b, c] = if turned { [&lsc.c, &lsc.b] } else { [&lsc.b, &lsc.c] };
                applied(inverse, turned, space, r, p)?;
                applied(b, turned, on, p, u)?;
                on.sweep(split_scale, scalars, [], [&lsc.w], [&mut *u], [])?;
                applied(&lsc.a, turned, on, u, v)?;
                on.sweep(split_scale, scalars, [], [&lsc.w], [&mut *v], [])?;
                applied(c, turned, space, v, p)?;
                applied(inverse, turned, space, p, y)
            }
            Self::Pcd(pcd) => {
                let [p, q] = &mut *pcd.work.borrow_mut();
                let steps: [&dyn LinearOperator<S>; 2] = [inverse, &*pcd.mass];
                let [first, last] = if turned { [steps[1], steps[0]] } else { steps };
                applied(first, turned, space, r, p)?;
                applied(&pcd.f, turned, space, p, q)?;
                applied(last, turned, space, q, y)
            }
        }
    }

    pub fn has_transpose(&self) -> bool {
        match self {
            Self::Lsc(_) => true,
            Self::Pcd(pcd) => pcd.mass.has_transpose(),
        }
    }

    /// Returns the bytes of one application beyond those of one application of the inverse, which takes
    /// `inverse`.
    pub fn bytes(&self, inverse: u64) -> u64 {
        match self {
            Self::Lsc(lsc) => {
                inverse + lsc.a.bytes() + lsc.b.bytes() + lsc.c.bytes() + 48 * lsc.space.len() as u64
            }
            Self::Pcd(pcd) => pcd.f.bytes() + pcd.mass.bytes(),
        }
    }

    pub fn key(&self) -> u64 {
        match self {
            Self::Lsc(lsc) => joined_key([lsc.a.key(), lsc.b.key(), lsc.c.key()]),
            Self::Pcd(pcd) => joined_key([pcd.f.key(), pcd.mass.key()]),
        }
    }

    pub fn recordable(&self) -> bool {
        match self {
            Self::Lsc(lsc) => lsc.a.recordable() && lsc.b.recordable() && lsc.c.recordable(),
            Self::Pcd(pcd) => pcd.f.recordable() && pcd.mass.recordable(),
        }
    }
}
