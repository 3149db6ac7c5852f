//! Options of a hierarchy.

use super::{Coarsening, Cycle, Smoothing};
use crate::space::{Precision, PrecondPrecision};

/// Options for building the levels of a hierarchy and for cycles over them.
///
/// # Examples
/// ```
/// use krylith_core::precond::{Cycle, MultilevelOptions, Smoothing};
/// let smoothing = Smoothing::Jacobi { sweeps: 2 };
/// let options = MultilevelOptions { cycle: Cycle::W, smoothing, ..MultilevelOptions::default() };
/// assert!(options.smooth_finest && options.coarsest == 400);
/// ```
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct MultilevelOptions {
    /// Kind of cycle, which determines how coarser systems are solved.
    pub cycle: Cycle,
    /// Settings of coarsening.
    pub coarsening: Coarsening,
    /// Kind of smoother.
    pub smoothing: Smoothing,
    /// True to smooth on the finest level. Otherwise a cycle is x = P A_c⁻¹ R b, where a cycle over the
    /// coarser levels approximates A_c⁻¹. That is singular, and is meant as the coarse part of a combination.
    pub smooth_finest: bool,
    /// Number of smoothing steps on A v = 0 that each near-null vector v gets on the finest level before it
    /// is used. It brings vectors into the near-null space close to boundary values and jumps of
    /// coefficients.
    pub relax: usize,
    /// Number of unknowns at or below which a level is the last.
    pub coarsest: usize,
    /// Largest number of levels.
    pub levels: usize,
    /// If a level that ranks share has at most this many unknowns, every rank gathers it and continues alone.
    pub gather: usize,
    /// Precision of everything that is stored; arithmetic is in f64.
    pub precision: Precision,
    /// Precision of the matrices and vectors of a cycle. f32 and bf16 need a device with kernels for them,
    /// and levels stored in f64, from which the cycle is rounded. Otherwise the cycle is in f64. In bf16
    /// matrices and transfers of scalar nodes are stored; all else is in f32, and so are levels that bf16
    /// does not suit.
    pub compute: PrecondPrecision,
}

impl MultilevelOptions {
    /// Default number of unknowns of the last level.
    pub const COARSEST: usize = 400;
    /// Default limit of levels.
    pub const LEVELS: usize = 25;
    /// Default number of unknowns at which a shared level is gathered. On two H200s solves take as long with
    /// 200,000, but set-ups take longer.
    pub const GATHER: usize = 20_000;
    /// Default degree of Chebyshev polynomials.
    pub const DEGREE: usize = 2;
}

impl Default for MultilevelOptions {
    fn default() -> Self {
        Self {
            cycle: Cycle::V,
            coarsening: Coarsening::default(),
            smoothing: Smoothing::Chebyshev { degree: Self::DEGREE },
            smooth_finest: true,
            relax: 0,
            coarsest: Self::COARSEST,
            levels: Self::LEVELS,
            gather: Self::GATHER,
            precision: Precision::F64,
            compute: PrecondPrecision::F64,
        }
    }
}
