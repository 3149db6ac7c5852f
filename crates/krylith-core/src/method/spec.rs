//! Methods by name. This is the only list of all methods.

use super::{
    Bicgstab, BicgstabOptions, Cbcg, CbcgOptions, Cg, CgForm, CgOptions, ColumnsMethod, Gmres, GmresOptions,
    Method, Minres, Orthogonalization, Reductions, complex,
};
use crate::Result;
use crate::space::{Columns, Precision, Space};
use krylith_base::names;

/// The name of a Krylov method.
///
/// # Examples
/// ```
/// use krylith::options::MethodName;
/// assert_eq!("bicgstab".parse::<MethodName>()?, MethodName::Bicgstab);
/// # Ok::<(), krylith::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum MethodName {
    /// The solver chooses.
    #[default]
    Auto,
    /// Restarted GMRES, or FGMRES.
    Gmres,
    /// GMRES for preconditioners that vary from iteration to iteration.
    Fgmres,
    /// BiCGSTAB.
    Bicgstab,
    /// Conjugate gradients, for symmetric definite systems.
    Cg,
    /// Communication-avoiding conjugate gradients, for symmetric definite systems on many ranks.
    Cbcg,
    /// MINRES, for symmetric systems that may be indefinite.
    Minres,
}

impl MethodName {
    /// Returns true for methods that need a symmetric system.
    pub fn needs_symmetry(self) -> bool {
        matches!(self, MethodName::Cg | MethodName::Cbcg | MethodName::Minres)
    }

    /// Returns true for both forms of GMRES, which have the same options.
    pub(crate) fn is_gmres(self) -> bool {
        matches!(self, MethodName::Gmres | MethodName::Fgmres)
    }
}

names! {
    MethodName, "method":
    Auto => "auto", Gmres => "gmres", Fgmres => "fgmres", Bicgstab => "bicgstab", Cg => "cg", Cbcg => "cbcg",
    Minres => "minres",
}

names! { Orthogonalization, "orthogonalization": Lowsync => "lowsync", Cgs2 => "cgs2", Mgs => "mgs" }
names! { Reductions, "reductions": Merged => "merged", Classical => "classical" }
names! {
    CgForm, "form of cg":
    Textbook => "textbook", OneReduction => "one-reduction", Flexible => "flexible", Pipelined => "pipelined",
}

/// A method with all of its options.
///
/// # Examples
/// ```
/// use krylith::method::MethodSpec;
/// let gmres: MethodSpec = "gmres:restart=50".parse()?;
/// assert_eq!(gmres.title(), "GMRES(50)");
/// assert_eq!(gmres.to_string(), "gmres:restart=50,orthogonalization=lowsync");
/// # Ok::<(), krylith::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum MethodSpec {
    /// Restarted GMRES, or FGMRES.
    Gmres(GmresOptions),
    /// BiCGSTAB.
    Bicgstab(BicgstabOptions),
    /// Conjugate gradients.
    Cg(CgOptions),
    /// Communication-avoiding conjugate gradients.
    Cbcg(CbcgOptions),
    /// MINRES, which has no options.
    Minres,
}

impl MethodSpec {
    /// Returns true for both kinds of conjugate gradients, whose residual may rise while the error falls.
    pub(crate) fn is_cg(&self) -> bool {
        matches!(self, MethodSpec::Cg(_) | MethodSpec::Cbcg(_))
    }

    /// Returns true if the coefficients are complex.
    pub fn is_complex(&self) -> bool {
        match self {
            MethodSpec::Gmres(options) => options.complex,
            MethodSpec::Bicgstab(options) => options.complex,
            MethodSpec::Cg(_) | MethodSpec::Cbcg(_) | MethodSpec::Minres => false,
        }
    }

    /// Returns the method with complex or with real coefficients. Those of CG and MINRES are always real.
    pub(crate) fn with_complex(self, complex: bool) -> Self {
        match self {
            MethodSpec::Gmres(options) => MethodSpec::Gmres(GmresOptions { complex, ..options }),
            MethodSpec::Bicgstab(options) => MethodSpec::Bicgstab(BicgstabOptions { complex, ..options }),
            other => other,
        }
    }

    /// Returns the name of the method.
    pub fn name(&self) -> MethodName {
        match self {
            MethodSpec::Gmres(GmresOptions { flexible: true, .. }) => MethodName::Fgmres,
            MethodSpec::Gmres(_) => MethodName::Gmres,
            MethodSpec::Bicgstab(_) => MethodName::Bicgstab,
            MethodSpec::Cg(_) => MethodName::Cg,
            MethodSpec::Cbcg(_) => MethodName::Cbcg,
            MethodSpec::Minres => MethodName::Minres,
        }
    }

    /// Returns the usual name, such as `GMRES(30)`.
    pub fn title(&self) -> String {
        match self {
            MethodSpec::Gmres(gmres) => {
                format!("{}GMRES({})", if gmres.flexible { "F" } else { "" }, gmres.restart)
            }
            MethodSpec::Bicgstab(_) => "BiCGSTAB".into(),
            MethodSpec::Cg(_) => "CG".into(),
            MethodSpec::Cbcg(cbcg) => format!("CBCG({})", cbcg.steps),
            MethodSpec::Minres => "MINRES".into(),
        }
    }

    /// Returns a short description of the variant, which follows the title in reports.
    pub fn description(&self) -> String {
        match self {
            _ if self.is_complex() => "complex coefficients".into(),
            MethodSpec::Gmres(gmres) => format!("{} orthogonalisation", gmres.orthogonalization),
            MethodSpec::Bicgstab(bicgstab) => format!("{} reductions", bicgstab.reductions),
            MethodSpec::Cg(cg) => format!("{} form", cg.form),
            MethodSpec::Cbcg(cbcg) => format!("{} basis", cbcg.basis),
            MethodSpec::Minres => "short recurrences".into(),
        }
    }

    /// Returns the name for logs, such as `gmres(30)`.
    pub(crate) fn short(&self) -> String {
        match self {
            MethodSpec::Gmres(gmres) => format!("{}({})", self.name(), gmres.restart),
            _ => self.name().to_string(),
        }
    }

    /// Returns the restart length, if the method has one.
    pub fn restart(&self) -> Option<usize> {
        match self {
            MethodSpec::Gmres(gmres) => Some(gmres.restart),
            MethodSpec::Bicgstab(_) | MethodSpec::Cg(_) | MethodSpec::Cbcg(_) | MethodSpec::Minres => None,
        }
    }

    /// Returns the variant for a preconditioner that varies, or the method itself if there is none.
    pub(crate) fn flexible(self) -> Self {
        match self {
            MethodSpec::Cg(_) => MethodSpec::Cg(CgOptions { form: CgForm::Flexible }),
            other => other,
        }
    }

    /// Returns the method with a basis of at most `restart` vectors.
    pub(crate) fn at_most(self, restart: usize) -> Self {
        match self {
            MethodSpec::Gmres(gmres) => {
                MethodSpec::Gmres(GmresOptions { restart: gmres.restart.min(restart), ..gmres })
            }
            other => other,
        }
    }

    /// Builds the method with its workspace, on vectors of `space`.
    ///
    /// # Errors
    /// Out of device memory.
    pub fn build<S: Space + 'static>(&self, space: &S) -> Result<Box<dyn Method<S>>> {
        Ok(match self {
            MethodSpec::Gmres(options) if options.complex => {
                Box::new(complex::gmres::Gmres::new(space, *options)?)
            }
            MethodSpec::Bicgstab(options) if options.complex => {
                Box::new(complex::bicgstab::Bicgstab::new(space, *options)?)
            }
            MethodSpec::Gmres(options) => Box::new(Gmres::new(space, *options)?),
            MethodSpec::Bicgstab(options) => Box::new(Bicgstab::new(space, *options)?),
            MethodSpec::Cg(options) => Box::new(Cg::new(space, *options)?),
            MethodSpec::Cbcg(options) => Box::new(Cbcg::new(space, *options)?),
            MethodSpec::Minres => Box::new(Minres::new(space, ())?),
        })
    }

    /// Builds the method for several right-hand sides, with its workspace.
    ///
    /// # Errors
    /// Out of device memory.
    pub fn build_columns<S: Space + 'static>(&self, space: &Columns<S>) -> Result<Box<dyn ColumnsMethod<S>>> {
        Ok(match self {
            MethodSpec::Gmres(options) if options.complex => {
                Box::new(complex::gmres::Gmres::new(space, *options)?)
            }
            MethodSpec::Bicgstab(options) if options.complex => {
                Box::new(complex::bicgstab::Bicgstab::new(space, *options)?)
            }
            MethodSpec::Gmres(options) => Box::new(Gmres::new(space, *options)?),
            MethodSpec::Bicgstab(options) => Box::new(Bicgstab::new(space, *options)?),
            MethodSpec::Cg(options) => Box::new(Cg::new(space, *options)?),
            MethodSpec::Cbcg(options) => Box::new(Cbcg::new(space, *options)?),
            MethodSpec::Minres => Box::new(Minres::new(space, ())?),
        })
    }

    /// Returns the bytes that an iteration moves on this rank, on average over `iterations`. `fixed` is the
    /// number of bytes of one product and one application of the preconditioner. `n` is the length of a
    /// vector.
    pub fn iteration_bytes(&self, fixed: f64, preconditioned: bool, n: f64, iterations: usize) -> f64 {
        match self {
            MethodSpec::Gmres(options) => fixed + n * orthogonalization_bytes(options, iterations),
            MethodSpec::Bicgstab(options) => {
                let vectors = match options.complex {
                    true => 39.0 * 8.0,
                    false => bicgstab_bytes(options.reductions, preconditioned),
                };
                2.0 * fixed + n * vectors
            }
            MethodSpec::Cg(options) => fixed + n * cg_bytes(options.form, preconditioned),
            MethodSpec::Cbcg(options) => fixed + n * cbcg_bytes(options.steps, preconditioned),
            MethodSpec::Minres => fixed + n * minres_bytes(preconditioned),
        }
    }

    /// Returns the bytes that a solve stores for vectors of `n` numbers. The first number is for the basis.
    /// The second is for all other vectors, including the caller's and scratch, and for small dense matrices.
    pub fn memory(&self, n: u64) -> (u64, u64) {
        let (m, width, vectors) = match self {
            MethodSpec::Gmres(options) => (options.restart as u64, options.basis.bytes() as u64, 12),
            MethodSpec::Bicgstab(options) => {
                (0, Precision::F64.bytes() as u64, if options.complex { 21 } else { 16 })
            }
            MethodSpec::Cg(CgOptions { form: CgForm::Pipelined }) => (0, Precision::F64.bytes() as u64, 18),
            MethodSpec::Cg(_) => (0, Precision::F64.bytes() as u64, 14),
            MethodSpec::Cbcg(options) => (4 * options.steps as u64, Precision::F64.bytes() as u64, 13),
            MethodSpec::Minres => (0, Precision::F64.bytes() as u64, 16),
        };
        // FGMRES keeps a second basis, in f64.
        let flexible = matches!(self, MethodSpec::Gmres(GmresOptions { flexible: true, .. }));
        let width = width + if flexible { Precision::F64.bytes() as u64 } else { 0 };
        (n * m * width, vectors * n * 8 + 2 * (m + 1) * (m + 2) * 8)
    }
}

/// Returns the bytes per unknown that orthogonalisation moves in an average iteration, as counted in
/// `method/gmres.rs`, with the basis in its own precision.
fn orthogonalization_bytes(options: &GmresOptions, iterations: usize) -> f64 {
    let (column, restart) = (options.basis.bytes() as f64, options.restart);
    let (whole, rest) = ((iterations / restart) as f64, (iterations % restart) as f64);
    let (m, n) = (restart as f64, iterations.max(1) as f64);
    // The mean of j over all iterations, where j counts from 0 in each cycle.
    let j = (whole * m * (m - 1.0) / 2.0 + rest * (rest - 1.0).max(0.0) / 2.0) / n;
    match options.orthogonalization {
        _ if options.complex => 6.0 * (j + 1.0) * column + 24.0 * 8.0,
        Orthogonalization::Lowsync => (2.0 * j + 1.0) * column + 5.0 * 8.0,
        Orthogonalization::Cgs2 => (4.0 * j + 1.0) * column + 7.0 * 8.0,
        Orthogonalization::Mgs => (2.0 * j + 1.0) * column + (2.0 * j + 4.0) * 8.0,
    }
}

/// Returns the bytes per unknown of the vector passes of an iteration, as counted in `method/bicgstab.rs`.
fn bicgstab_bytes(reductions: Reductions, preconditioned: bool) -> f64 {
    let vectors = match (reductions, preconditioned) {
        (Reductions::Merged, true) => 18,
        (Reductions::Merged, false) => 16,
        (Reductions::Classical, true) => 19,
        (Reductions::Classical, false) => 18,
    };
    8.0 * f64::from(vectors)
}

/// Returns the bytes per unknown of the vector passes of an iteration, as counted in `method/cg.rs`, without
/// fused sums.
fn cg_bytes(form: CgForm, preconditioned: bool) -> f64 {
    let vectors = match (form, preconditioned) {
        (CgForm::Textbook, true) => 12,
        (CgForm::Flexible | CgForm::OneReduction, true) => 13,
        (CgForm::Pipelined, true) => 18,
        // z is r, which is read only once.
        (CgForm::Textbook | CgForm::Flexible, false) => 10,
        (CgForm::OneReduction, false) => 11,
        (CgForm::Pipelined, false) => 13,
    };
    8.0 * f64::from(vectors)
}

/// Returns the bytes per unknown of the vector passes of an iteration, as counted in `method/cbcg.rs`.
fn cbcg_bytes(steps: usize, preconditioned: bool) -> f64 {
    let s = steps as f64;
    let basis = 4.0 * s - if steps > 1 { 5.0 } else { 4.0 };
    8.0 * (10.0 * s + 5.0 + basis + if preconditioned { 0.0 } else { 2.0 }) / s
}

/// Returns the bytes per unknown of the vector passes of an iteration, as counted in `method/minres.rs`.
fn minres_bytes(preconditioned: bool) -> f64 {
    8.0 * if preconditioned { 17.0 } else { 12.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn specs_are_text() {
        for text in [
            "gmres:restart=7,orthogonalization=mgs",
            "fgmres:restart=50,orthogonalization=lowsync",
            "bicgstab:reductions=classical",
            "cg:form=flexible",
            "cbcg:s=8,basis=monomial",
            "minres",
        ] {
            assert_eq!(text.parse::<MethodSpec>().unwrap().to_string(), text);
        }
        assert_eq!("gmres".parse::<MethodSpec>().unwrap(), MethodSpec::Gmres(GmresOptions::default()));
        for (text, words) in [
            ("auto", "does not name a method"),
            ("bicgstab:restart=3", "applies only to method gmres"),
            ("fgmres:form=flexible", "applies only to method cg"),
            ("minres:form=flexible", "applies only to method cg"),
            ("gmres:restart=0", "from 1"),
        ] {
            let error = text.parse::<MethodSpec>().unwrap_err().to_string();
            assert!(error.contains(words), "{text}: {error}");
        }
    }
}
