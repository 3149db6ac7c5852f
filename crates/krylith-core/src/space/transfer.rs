//! Copies between the vectors of a space and the caller's memory.

use super::Space;
use crate::Result;
use crate::memory::{Numbers, NumbersMut, check_len};

/// A space whose vectors can be filled from a caller's memory and read back to it, on the host or on a
/// device.
///
/// Numbers on the space's own device are copied there and never cross to the host. Those of another GPU are
/// copied from GPU to GPU; for a CPU they are copied to the host.
///
/// # Examples
/// ```
/// use krylith::device::Cpu;
/// use krylith::{memory::{Numbers, NumbersMut}, operator::Space};
/// use krylith_core::space::Transfer;
/// /// Twice b, from where the caller has it to where the caller wants it.
/// fn there_and_back<S: Transfer>(space: &S, b: Numbers, x: NumbersMut) -> krylith::Result<()> {
///     let mut v = space.vector()?;
///     space.write_from(b, &mut v)?;
///     space.read_into(&v, x)
/// }
/// let mut x = [0.0; 2];
/// there_and_back(&Cpu::new(2, 1), Numbers::from(&[1.0, 2.0]), NumbersMut::from(&mut x))?;
/// assert_eq!(x, [1.0, 2.0]);
/// # Ok::<(), krylith::Error>(())
/// ```
pub trait Transfer: Space {
    /// `to ← from`. The caller may change its memory as soon as this returns, from the host or in the
    /// caller's stream.
    ///
    /// # Errors
    /// A wrong length; device memory that is not what the caller declared.
    fn write_from(&self, from: Numbers, to: &mut Self::Vector) -> Result<()> {
        check_len(from.len(), self.len())?;
        self.write(from.on_host(&mut Vec::new())?, to)
    }

    /// `to ← from`. Numbers for the host are there when this returns. Those for device memory are there for
    /// all work that the caller's stream gets next.
    ///
    /// # Errors
    /// A wrong length; device memory that is not what the caller declared.
    fn read_into(&self, from: &Self::Vector, mut to: NumbersMut) -> Result<()> {
        check_len(self.len(), to.len())?;
        let mut host = vec![0.0; self.len()];
        self.read(from, &mut host)?;
        to.write(&host)
    }
}
