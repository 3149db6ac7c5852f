//! Copies between a vector and a part of its entries.

use super::Space;
use crate::Result;

/// A space whose vectors can be gathered to shorter ones and scattered back, such as those of one field.
///
/// # Examples
/// ```
/// use krylith::device::Cpu;
/// use krylith_core::space::{Gather, Space};
/// let (space, pressure) = (Cpu::new(4, 1), Cpu::new(2, 1));
/// let entries = space.entries(&[1, 3])?;
/// let (x, mut p, mut y) = (vec![1.0, 2.0, 3.0, 4.0], pressure.vector()?, space.vector()?);
/// space.gather(&entries, &x, &mut p)?;
/// assert_eq!(p, [2.0, 4.0]);
/// space.scatter(&entries, &p, &mut y)?;
/// assert_eq!(y, [0.0, 2.0, 0.0, 4.0]);
/// # Ok::<(), krylith::Error>(())
/// ```
pub trait Gather: Space {
    /// Numbers of entries, on the device.
    type Entries;
    /// Uploads numbers of entries of this space's vectors. None may occur twice.
    ///
    /// # Errors
    /// Out of device memory.
    fn entries(&self, numbers: &[u32]) -> Result<Self::Entries>;
    /// `to[i] ← x[entries[i]]`. Asynchronous on a GPU; allocates nothing.
    ///
    /// # Errors
    /// A vector of another length.
    fn gather(&self, entries: &Self::Entries, x: &Self::Vector, to: &mut Self::Vector) -> Result<()>;
    /// `to[entries[i]] ← x[i]`; other entries keep their values. Asynchronous on a GPU; allocates nothing.
    ///
    /// # Errors
    /// A vector of another length.
    fn scatter(&self, entries: &Self::Entries, x: &Self::Vector, to: &mut Self::Vector) -> Result<()>;
}
