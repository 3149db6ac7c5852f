//! Restricted additive Schwarz with overlap (Cai and Sarkis 1999): M⁻¹ = Σ_k (R_k⁰)ᵀ (A_k)⁻¹ R_k^δ with A_k = R_k^δ A (R_k^δ)ᵀ,
//! whose subdomain solves are point-block ILU(k) with exact, Jacobi or randomized sweeps.

mod overlap;
mod pattern;
mod plan;

pub use plan::{
    FILL, FactorQuality, Factorization, SchwarzOrder, SchwarzPattern, SchwarzPlan, TriangularSolve,
};

use super::ildu::Pivots;
use crate::Result;
use crate::memory::Numbers;
use crate::space::{Space, Store};
use std::sync::Arc;

/// How a device runs factorisations and solves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SchwarzOptions {
    /// Precision in which factors are stored for solves; arithmetic is f64.
    pub store: Store,
    /// Consecutive rows that one warp (on a CPU: one turn of a thread) works through, f_dp.
    pub rows: usize,
    /// Randomized sweeps in a fixed order: bitwise the same every time. A sweep then reads what the sweep before left outside
    /// its own `rows` consecutive rows, and what it has just computed inside them.
    pub deterministic: bool,
}

/// A device that can factorise the subdomain matrices of a rank and solve with their factors.
pub trait SchwarzFactors: Space {
    /// Plan, factors and all memory that computing and applying them takes, on the device.
    type Factors;
    /// Memory and layout for a plan; no values yet. Collective, where the plan's halos have neighbours.
    fn prepare_schwarz(&self, plan: &Arc<SchwarzPlan>, options: SchwarzOptions) -> Result<Self::Factors>;
    /// Gathers the values of the subdomain matrices from `values`, those of the own rows, after an exchange of blocks of
    /// the overlap (`SchwarzPlan::blocks`). Collective.
    fn gather_schwarz(&self, factors: &mut Self::Factors, values: Numbers) -> Result<()>;
    /// Factorises what was gathered. Exact pivots that cannot be inverted are counted by own node (as
    /// [`SubdomainFactors::factorize`](super::SubdomainFactors::factorize) does); for random ones `finite` says it. The diagonal blocks of U are inverted once here.
    fn factorize_schwarz(
        &self,
        factors: &mut Self::Factors,
        how: Factorization,
    ) -> Result<(FactorQuality, Pivots)>;
    /// y ← M⁻¹ x on own nodes: imports x (`SchwarzPlan::nodes`), solves in every subdomain, keeps each own node's result.
    /// Collective. Allocates nothing.
    fn apply_schwarz(
        &self,
        factors: &Self::Factors,
        how: TriangularSolve,
        x: &Self::Vector,
        y: &mut Self::Vector,
    ) -> Result<()>;
    /// Bytes that one application must move at least.
    fn schwarz_bytes(factors: &Self::Factors, how: TriangularSolve) -> u64;
    /// L and U in the plan's order of entries, row-major blocks; the diagonal is U_ii, not its inverse. For tests.
    fn read_schwarz(&self, factors: &Self::Factors) -> Result<Vec<f64>>;
}
