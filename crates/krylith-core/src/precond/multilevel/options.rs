//! How a hierarchy is made.

use super::{Coarsening, Cycle, Smoothing};
use crate::space::Precision;

/// How levels are made and visited.
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
    /// How coarser systems are solved.
    pub cycle: Cycle,
    /// How nodes are chosen.
    pub coarsening: Coarsening,
    /// What smooths.
    pub smoothing: Smoothing,
    /// The finest level is smoothed. Without it a cycle is x = P A_c⁻¹ R b with a cycle of the levels below for A_c⁻¹: the coarse part of a
    /// composition, singular by itself.
    pub smooth_finest: bool,
    /// Unknowns from which on nothing is coarsened any more.
    pub coarsest: usize,
    /// Most levels.
    pub levels: usize,
    /// Unknowns of a level of several ranks up to which every rank goes on with the whole of it.
    pub gather: usize,
    /// Precision of everything that is stored; arithmetic is f64.
    pub precision: Precision,
}

impl MultilevelOptions {
    /// Unknowns of the last level where none are given.
    pub const COARSEST: usize = 400;
    /// Most levels where no number is given.
    pub const LEVELS: usize = 25;
    /// Unknowns of a level that is gathered where none are given.
    pub const GATHER: usize = 20_000;
    /// Degree of Chebyshev's polynomials where none is given.
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
