//! Access to a device's factors, for tests.

use super::{SchwarzFactors, SubdomainFactors};
use crate::Result;

/// Incomplete factors of subdomains, on the host.
pub trait ReadFactors: SubdomainFactors {
    /// Returns the factors in the plan's order of entries: row-major blocks, D⁻¹ on the diagonal.
    ///
    /// # Errors
    /// Errors of the device.
    fn read_factors(&self, factors: &Self::Factors) -> Result<Vec<f64>>;
}

/// Factors of overlapping subdomains, on the host.
pub trait ReadSchwarz: SchwarzFactors {
    /// Returns L and U in the plan's order of entries, row-major blocks; the diagonal is U_ii, not its
    /// inverse.
    ///
    /// # Errors
    /// Errors of the device.
    fn read_schwarz(&self, factors: &Self::Factors) -> Result<Vec<f64>>;
}
