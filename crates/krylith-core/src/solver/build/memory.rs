//! Estimates of the memory that preconditioners need.

use crate::operator::Terms;
use crate::precond::{PrecondSpec, RasSub, TileFactor};
use crate::space::Precision;

impl PrecondSpec {
    /// Estimates the bytes that the preconditioner needs on the device, before it is built.
    pub fn memory(&self, terms: &Terms, precision: Precision) -> u64 {
        let order = (terms.block() * terms.stages()) as u64;
        let (n, width) = (terms.rows() as u64, precision.bytes() as u64);
        let both =
            |parts: &[PrecondSpec; 2]| parts.iter().map(|part| part.memory(terms, precision)).sum::<u64>();
        match self {
            // The memory of direct factors is checked after the analysis.
            PrecondSpec::None | PrecondSpec::Lu(_) => 0,
            // The blocks exist twice: in f64 for updates, and in the precision of the device.
            PrecondSpec::Auto | PrecondSpec::Jacobi { .. } => n * order * (8 + width),
            // Count both L and U, unless the user chose IC(0), which needs only one triangle.
            PrecondSpec::BlockJacobi(tiles) => {
                let numbers = if tiles.factor == Some(TileFactor::Ic0) { 4 } else { 7 };
                n * numbers * width
            }
            PrecondSpec::Ildu(ildu) => factors(terms, ildu.fill, order, width),
            // Every stage has its own factors, with blocks of the order of M. The product that couples stages
            // is stored like L.
            PrecondSpec::Stage(ildu) => {
                let (b, stages) = (terms.block(), terms.stages() as u64);
                let coupling: u64 = terms.terms.iter().map(|t| t.1.stored() as u64 * width).sum();
                stages * factors(terms, ildu.fill, b as u64, width) + coupling + 8 * n
            }
            // A stage takes its share, and the sum of M and L.
            PrecondSpec::Stages(of) => {
                let stored: u64 = terms.terms.iter().map(|t| t.1.stored() as u64).sum();
                of.memory(terms, precision) + terms.stages() as u64 * stored * 24 + 32 * n
            }
            // Count the subdomain matrices, L and U, and the L and U of the previous sweep.
            PrecondSpec::Ras(ras) if ras.sub == RasSub::Lu => 0,
            PrecondSpec::Ras(ras) => {
                let blocks =
                    terms.terms.iter().map(|t| t.1.blocks() as u64).sum::<u64>() * (1 + ras.fill as u64);
                blocks * (order * order * 24 + 8) + n * (16 * order + 32)
            }
            // Coarse levels with P, R and copies take about twice the memory of the system, and five vectors
            // per level.
            PrecondSpec::Amg(amg) | PrecondSpec::Coarse(amg) => {
                let blocks = terms.terms.iter().map(|t| t.1.blocks() as u64).sum::<u64>();
                let width = amg.precision.unwrap_or(precision).bytes() as u64;
                let square = (terms.block() * terms.block()) as u64;
                2 * blocks * (square * (8 + width) + 4) + n * (order * width + 80)
            }
            PrecondSpec::Sum(parts) => both(parts) + 8 * n,
            PrecondSpec::Multiplicative(parts) | PrecondSpec::Symmetric(parts) => both(parts) + 16 * n,
            // The blocks of the matrix again; a part takes the share of its field, at most all.
            PrecondSpec::Split(split) => {
                let parts = split.parts.iter().map(|(_, part)| part.memory(terms, precision));
                let stored: u64 = terms.terms.iter().map(|t| t.1.stored() as u64).sum();
                parts.max().unwrap_or(0) + stored * (width + 4) + 40 * n
            }
            PrecondSpec::Cpr(cpr) => cpr.precond.memory(terms, precision) / order.max(1) + 24 * n,
            PrecondSpec::Aux(aux) => aux.precond.memory(terms, precision) + 24 * n,
            // The couplings of the constraints, twice. Dense inverses are checked after the analysis.
            PrecondSpec::Vanka(vanka) => {
                let stored: u64 = terms.terms.iter().map(|t| t.1.stored() as u64).sum();
                let width = vanka.precision.unwrap_or(precision).bytes() as u64;
                stored * (width + 4) + 24 * n
            }
            PrecondSpec::Inner(inner) => inner.precond.memory(terms, precision) + 32 * n,
        }
    }
}

/// Estimates the bytes of factors of all blocks that the terms store.
fn factors(terms: &Terms, fill: usize, order: u64, width: u64) -> u64 {
    let all = if terms.shared_pattern() { &terms.terms[..1] } else { &terms.terms[..] };
    let blocks: u64 = all.iter().map(|t| t.1.blocks() as u64).sum();
    // Assume that each level of fill adds as many blocks as the matrix has. Count a working copy in f64 with
    // its pattern, and the factors in the form that an application reads.
    blocks * (1 + fill as u64) * (order * order * (8 + width) + 4 + 2)
}
