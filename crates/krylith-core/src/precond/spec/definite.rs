//! The preconditioners that MINRES accepts.

use super::{InnerMethod, PrecondSpec, SchurSpec, SplitForm};

impl PrecondSpec {
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
                    (SplitForm::Lower | SplitForm::Upper, _) => false,
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
}
