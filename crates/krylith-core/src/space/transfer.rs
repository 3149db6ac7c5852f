//! Vectors of a space and the caller's memory.

use super::Space;
use crate::Result;
use crate::memory::{Numbers, NumbersMut, check_len};

/// A space whose vectors can be filled from a caller's memory and read into it, wherever that is.
///
/// Numbers that are on the space's own device are copied there and never cross to the host. Those of another GPU are
/// copied from GPU to GPU, and for a CPU they come to the host.
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
    /// `to ← from`. The caller's memory may be changed as soon as this returns, from the host or in the caller's stream.
    ///
    /// # Errors
    /// Another length; device memory that is not what it was said to be.
    fn write_from(&self, from: Numbers, to: &mut Self::Vector) -> Result<()> {
        check_len(from.len(), self.len())?;
        self.write(from.on_host(&mut Vec::new())?, to)
    }

    /// `to ← from`. Numbers for the host are there when this returns; those for device memory when the caller's stream
    /// comes to what it is given next.
    ///
    /// # Errors
    /// Another length; device memory that is not what it was said to be.
    fn read_into(&self, from: &Self::Vector, mut to: NumbersMut) -> Result<()> {
        check_len(self.len(), to.len())?;
        let mut host = vec![0.0; self.len()];
        self.read(from, &mut host)?;
        to.write(&host)
    }
}
