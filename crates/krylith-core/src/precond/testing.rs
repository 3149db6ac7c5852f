//! Access to a device's factors, for tests.

use super::{SchwarzFactors, SubdomainFactors};
use crate::Result;

/// A device whose incomplete factors of subdomains can be copied to the host.
pub trait ReadFactors: SubdomainFactors {
    /// Returns the factors as row-major blocks, in the plan's order of entries. The diagonal has D⁻¹.
    ///
    /// # Errors
    /// Errors of the device.
    fn read_factors(&self, factors: &Self::Factors) -> Result<Vec<f64>>;
}

/// A device whose factors of overlapping subdomains can be copied to the host.
pub trait ReadSchwarz: SchwarzFactors {
    /// Returns L and U as row-major blocks, in the plan's order of entries. The diagonal has U_ii, not its
    /// inverse.
    ///
    /// # Errors
    /// Errors of the device.
    fn read_schwarz(&self, factors: &Self::Factors) -> Result<Vec<f64>>;
}
