//! What values do not change: rows and pattern of the subdomain matrices, where their values come from, what travels.

use crate::partition::Halo;
use std::sync::Arc;

/// In [`SchwarzPlan::source`]: an entry that the matrix does not store, which is zero before the factorisation.
pub const FILL: u32 = u32::MAX;

/// All subdomain matrices A_k = R_k^δ A (R_k^δ)ᵀ of one rank, as diagonal blocks of one block matrix, and the pattern S of its
/// ILU(k). Rows of a subdomain are consecutive, and no entry couples two subdomains.
#[derive(Debug, Clone, Default)]
pub struct SchwarzPlan {
    /// Order b of a block, 1 to 8.
    pub block: usize,
    /// Vectors: nodes that this rank owns, and those that its overlap imports, which stand behind them. Empty without neighbours.
    pub nodes: Arc<Halo>,
    /// Values: blocks that this rank stores, in the natural order of [`Bsr::values`](crate::matrix::Bsr::values), and blocks of
    /// rows of others, which stand behind them. A "node" of this halo is a stored block of b² numbers.
    pub blocks: Arc<Halo>,
    /// First row of each subdomain, and the number of rows behind the last.
    pub subdomains: Vec<u32>,
    /// R_k^δ: the node (own, or behind them imported) of each row.
    pub node: Vec<u32>,
    /// (R_k⁰)ᵀ: for each own node the one row that gives its result.
    pub result: Vec<u32>,
    /// Pattern S by rows: where each row begins in `column`, and its end.
    pub row_ptr: Vec<i64>,
    /// Columns, which are numbers of rows, ascending within a row; the diagonal is always there.
    pub column: Vec<u32>,
    /// Where each row's diagonal stands in `column`.
    pub diagonal: Vec<i64>,
    /// For each entry of S the block of `blocks` (own, or behind them imported) that goes there, or [`FILL`].
    pub source: Vec<u32>,
}

impl SchwarzPlan {
    /// Rows of all subdomains together, overlap counted in each.
    pub fn rows(&self) -> usize {
        self.node.len()
    }

    /// Blocks of S: of L below the diagonal, and of U.
    pub fn entries(&self) -> usize {
        self.column.len()
    }
}

/// How factors are computed on the pattern S.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Factorization {
    /// Row by row in the order of elimination.
    Exact,
    /// Alg. 1 of the paper: `sweeps` (η) times over consecutive rows with whatever values are there. `warm` starts from the factors
    /// at hand, else U = A on and above the diagonal and L_ij = A_ij inv(A_jj) below it.
    Random {
        /// η, at least 1.
        sweeps: usize,
        /// Start from the last factors.
        warm: bool,
    },
}

/// How L y = r and U z = y are solved. L has a unit diagonal.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum TriangularSolve {
    /// Substitution.
    Exact,
    /// Alg. 2: γ Jacobi sweeps from y = r, then γ from z = inv(D) y.
    Jacobi {
        /// γ, at least 1.
        sweeps: usize,
    },
    /// Alg. 3: γ sweeps in place over consecutive rows with whatever values are there; all of y, then all of z; starts as for Jacobi.
    Random {
        /// γ, at least 1.
        sweeps: usize,
    },
}

/// How good factors are.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct FactorQuality {
    /// ‖(A − L U)_S‖_F / ‖A‖_F over the subdomains of this rank, as squares, which ranks add up: numerator and denominator.
    pub defect2: [f64; 2],
    /// Every number of the factors and of the inverted diagonal is finite.
    pub finite: bool,
}
