//! What tests read of a device's factors.

use super::{SchwarzFactors, SubdomainFactors};
use crate::Result;

/// Incomplete factors of subdomains, on the host.
pub trait ReadFactors: SubdomainFactors {
    /// In the plan's order of entries: row-major blocks, D⁻¹ on the diagonal.
    ///
    /// # Errors
    /// A device that fails.
    fn read_factors(&self, factors: &Self::Factors) -> Result<Vec<f64>>;
}

/// Factors of subdomains that overlap, on the host.
pub trait ReadSchwarz: SchwarzFactors {
    /// L and U in the plan's order of entries, row-major blocks; the diagonal is U_ii, not its inverse.
    ///
    /// # Errors
    /// A device that fails.
    fn read_schwarz(&self, factors: &Self::Factors) -> Result<Vec<f64>>;
}
