//! What a method needs to know of its preconditioner: symmetric, definite, fixed.

use super::{InnerMethod, PrecondSpec, RasSub, SchurSpec, SplitForm};
use crate::space::PrecondPrecision;

impl PrecondSpec {
    /// Returns a `P then Q` without `symmetric` that this is or contains, if any. Methods for symmetric
    /// systems cannot use it.
    pub(crate) fn one_way(&self) -> Option<&Self> {
        match self {
            PrecondSpec::Multiplicative(_) => Some(self),
            PrecondSpec::Sum(parts) => parts.iter().find_map(Self::one_way),
            _ => None,
        }
    }

    /// Returns true if the preconditioner is symmetric for a symmetric matrix, as far as is known before it
    /// is built.
    pub fn keeps_symmetry(&self) -> bool {
        match self {
            PrecondSpec::Auto
            | PrecondSpec::None
            | PrecondSpec::Jacobi { .. }
            | PrecondSpec::BlockJacobi(_)
            | PrecondSpec::Lu(_) => true,
            PrecondSpec::Amg(amg) | PrecondSpec::Coarse(amg) => amg.keeps_symmetry(),
            // With shifted pivots the factors of a definite matrix may be indefinite.
            PrecondSpec::Ildu(ildu) => ildu.shift.is_none(),
            PrecondSpec::Sum(parts) | PrecondSpec::Symmetric(parts) => parts.iter().all(Self::keeps_symmetry),
            // A Schur complement makes the preconditioner of a symmetric matrix indefinite.
            PrecondSpec::Split(split) => {
                matches!(split.form, SplitForm::Diagonal | SplitForm::Full)
                    && split.schur.is_none()
                    && split.parts.iter().all(|(_, part)| part.keeps_symmetry())
            }
            PrecondSpec::Aux(aux) => aux.precond.keeps_symmetry(),
            // Block Jacobi, with factors that are as symmetric as their blocks.
            PrecondSpec::Ras(ras) => ras.overlap == 0 && ras.sub == RasSub::Lu,
            PrecondSpec::Inner(inner) => {
                inner.method == InnerMethod::Chebyshev && inner.precond.keeps_symmetry()
            }
            PrecondSpec::Multiplicative(_)
            | PrecondSpec::Stage(_)
            | PrecondSpec::Stages(_)
            | PrecondSpec::Vanka(_)
            | PrecondSpec::Cpr(_) => false,
        }
    }

    /// Returns true if the preconditioner may be a different operator at every application, as with
    /// randomized sweeps on a GPU. It then needs a flexible method.
    pub fn varies(&self) -> bool {
        let own = match self {
            PrecondSpec::Ras(ras) => ras.varies(),
            PrecondSpec::Amg(amg) | PrecondSpec::Coarse(amg) => amg.varies(),
            PrecondSpec::Inner(inner) => inner.method == InnerMethod::Cg,
            _ => false,
        };
        own || self.parts().into_iter().any(Self::varies)
    }

    /// Returns true if some part computes in f32 where the option `precond_precision` asks for it. The map is
    /// then linear up to errors of f32.
    pub(crate) fn rounds(&self) -> bool {
        let own = match self {
            PrecondSpec::Ildu(_) | PrecondSpec::Ras(_) => true,
            PrecondSpec::Amg(amg) | PrecondSpec::Coarse(amg) => amg.compute != Some(PrecondPrecision::F64),
            _ => false,
        };
        own || self.parts().into_iter().any(Self::rounds)
    }

    /// Returns the part, if any, that varies between applications, or that is not symmetric definite although
    /// the blocks that it is made of are. MINRES cannot use it.
    pub(crate) fn unfit_for_minres(&self) -> Option<&Self> {
        match self {
            PrecondSpec::Sum(parts) | PrecondSpec::Symmetric(parts) => {
                parts.iter().find_map(Self::unfit_for_minres)
            }
            PrecondSpec::Split(split) => {
                let fits = match (split.form, &split.schur) {
                    (SplitForm::Diagonal, schur) => !matches!(schur, Some(SchurSpec::Pcd(_))),
                    // The exact factors have the signs of the matrix, which is indefinite.
                    (SplitForm::Full, schur) => schur.is_none(),
                    (SplitForm::Lower | SplitForm::Upper | SplitForm::Simple, _) => false,
                };
                match fits {
                    true => split.parts.iter().find_map(|(_, part)| part.unfit_for_minres()),
                    false => Some(self),
                }
            }
            PrecondSpec::Aux(aux) => aux.precond.unfit_for_minres(),
            PrecondSpec::Inner(inner) if inner.method == InnerMethod::Chebyshev => {
                inner.precond.unfit_for_minres()
            }
            PrecondSpec::Ildu(_) => None, // symmetric with shifted pivots, too
            _ => (self.varies() || !self.keeps_symmetry()).then_some(self),
        }
    }

    /// Returns the inner CG that this is or contains, if any. Its outer method must be flexible.
    pub(crate) fn inner_cg(&self) -> Option<&Self> {
        match self {
            PrecondSpec::Inner(inner) if inner.method == InnerMethod::Cg => Some(self),
            _ => self.parts().into_iter().find_map(Self::inner_cg),
        }
    }
}
