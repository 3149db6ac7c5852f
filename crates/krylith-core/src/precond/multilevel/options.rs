//! Options of a hierarchy.

use super::{Coarsening, Cycle, Smoothing};
use crate::space::Precision;

/// Options for building and visiting the levels.
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
    /// Cycle, which solves the coarser systems.
    pub cycle: Cycle,
    /// Coarsening.
    pub coarsening: Coarsening,
    /// Smoother.
    pub smoothing: Smoothing,
    /// True to smooth the finest level. Otherwise a cycle is x = P A_c⁻¹ R b with a cycle of the levels below
    /// for A_c⁻¹: the coarse part of a combination, singular by itself.
    pub smooth_finest: bool,
    /// Number of unknowns at which coarsening ends.
    pub coarsest: usize,
    /// Largest number of levels.
    pub levels: usize,
    /// Number of unknowns of a shared level up to which every rank continues with the whole level.
    pub gather: usize,
    /// Precision of everything that is stored; arithmetic is in f64.
    pub precision: Precision,
}

impl MultilevelOptions {
    /// Default number of unknowns of the last level.
    pub const COARSEST: usize = 400;
    /// Default limit of levels.
    pub const LEVELS: usize = 25;
    /// Default number of unknowns at which a shared level is gathered.
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
            coarsest: Self::COARSEST,
            levels: Self::LEVELS,
            gather: Self::GATHER,
            precision: Precision::F64,
        }
    }
}
