//! Arrays that a caller hands in or wants filled: on the host, or in the memory of a GPU.
//!
//! Every function that takes numbers from a caller takes `impl Into<Numbers>`: a slice, a vector, or
//! [`Array::from_device`] with an address, a length, the GPU and the stream that the caller works in. Nothing needs to
//! be synchronised by hand: what Krylith does with the memory comes after what the caller's stream holds at the time of
//! the call, and what the caller adds to that stream afterwards comes after what Krylith did.
//!
//! ```
//! use krylith::memory::{Numbers, NumbersMut};
//!
//! fn norm(x: Numbers) -> krylith::Result<f64> {
//!     Ok(x.to_vec()?.iter().map(|v| v * v).sum::<f64>().sqrt())
//! }
//! let mut x = vec![3.0, 4.0];
//! assert_eq!(norm(Numbers::from(&x))?, 5.0);
//! NumbersMut::from(&mut x).write(&[0.0, 2.0])?;
//! assert_eq!(norm(Numbers::from(&x))?, 2.0);
//! # Ok::<(), krylith::Error>(())
//! ```

use crate::space::Space;
use crate::{Error, Result};
use std::cell::Cell;
use std::collections::TryReserveError;
use std::ops::Range;

thread_local! {
    static MAY_FAIL: Cell<bool> = const { Cell::new(false) };
}

/// True while this thread asks for host memory of which it says itself, by an [`Error::Memory`], that it is not there. For the
/// allocator of a program that ends where there is no memory: here it should return null.
pub fn may_fail() -> bool {
    MAY_FAIL.try_with(Cell::get).unwrap_or(false)
}

/// [`Vec::try_reserve_exact`], during which [`may_fail`] is true.
pub(crate) fn reserve<T>(to: &mut Vec<T>, more: usize) -> std::result::Result<(), TryReserveError> {
    MAY_FAIL.set(true);
    let done = to.try_reserve_exact(more);
    MAY_FAIL.set(false);
    done
}

/// A type of number that arrays may have: plain bits that host and devices share.
///
/// # Examples
/// ```
/// use krylith::memory::{Array, Number};
/// fn bytes<T: Number>(array: Array<T>) -> usize {
///     array.len() * size_of::<T>()
/// }
/// assert_eq!(bytes(Array::from(&[1i32, 2, 3])), 12); // indices of an application
/// ```
pub trait Number: private::Sealed + Copy + Default + Send + Sync + 'static {
    /// Its name in CUDA C++.
    #[doc(hidden)]
    const NAME: &'static str;
}

mod private {
    pub trait Sealed {}
}

macro_rules! numbers {
    ($($number:ty: $name:literal)*) => {$(
        impl private::Sealed for $number {}
        impl Number for $number {
            const NAME: &'static str = $name;
        }
    )*};
}
numbers!(f64: "double" f32: "float" i32: "int" i64: "long long" u32: "unsigned" u64: "unsigned long long" usize: "unsigned long long");

/// Numbers to be read: a host slice, or memory of a GPU.
///
/// Made from slices and vectors by `From`, from device memory by [`from_device`](Self::from_device), with feature
/// `cuda`. Copying one copies the reference.
///
/// # Examples
/// ```
/// use krylith::memory::Array;
/// let row_ptr = [0i64, 2, 3];
/// let array = Array::from(&row_ptr);
/// assert_eq!((array.len(), array.gpu()), (3, None)); // on the host
/// assert_eq!(array.range(1..3).to_vec()?, [2, 3]);
/// # Ok::<(), krylith::Error>(())
/// ```
#[derive(Debug, Clone, Copy)]
pub struct Array<'a, T: Number = f64> {
    pub(crate) place: Place<&'a [T]>,
}

/// Numbers to be written: a host slice, or memory of a GPU.
///
/// # Examples
/// ```
/// use krylith::memory::ArrayMut;
/// let mut x = vec![0.0; 4];
/// let (mut velocity, mut pressure) = ArrayMut::from(&mut x).split_at(3);
/// velocity.write(&[1.0, 2.0, 3.0])?;
/// pressure.write(&[9.0])?;
/// assert_eq!(x, [1.0, 2.0, 3.0, 9.0]);
/// # Ok::<(), krylith::Error>(())
/// ```
#[derive(Debug)]
pub struct ArrayMut<'a, T: Number = f64> {
    pub(crate) place: Place<&'a mut [T]>,
}

/// f64 to be read.
pub type Numbers<'a> = Array<'a, f64>;
/// f64 to be written.
pub type NumbersMut<'a> = ArrayMut<'a, f64>;

#[derive(Debug, Clone, Copy)]
pub(crate) enum Place<H> {
    Host(H),
    #[cfg(feature = "cuda")]
    Device(Remote),
}

/// Memory of a GPU that its owner lends.
#[cfg(feature = "cuda")]
#[derive(Debug, Clone, Copy)]
pub(crate) struct Remote {
    /// Address on the GPU.
    pub pointer: u64,
    /// How many numbers.
    pub len: usize,
    /// The GPU, as CUDA counts them.
    pub ordinal: usize,
    /// The CUstream in which the owner works; without one the memory is at rest.
    pub stream: Option<usize>,
}

#[cfg(feature = "cuda")]
impl Remote {
    /// Part of it, of numbers of `size` bytes.
    fn range(self, range: Range<usize>, size: usize) -> Self {
        assert!(range.start <= range.end && range.end <= self.len, "{range:?} of {} numbers", self.len);
        Self { pointer: self.pointer + (range.start * size) as u64, len: range.len(), ..self }
    }
}

impl<'a, T: Number> Array<'a, T> {
    /// How many numbers.
    pub fn len(&self) -> usize {
        match self.place {
            Place::Host(host) => host.len(),
            #[cfg(feature = "cuda")]
            Place::Device(remote) => remote.len,
        }
    }

    /// True when there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The slice, if the numbers are on the host.
    pub fn as_host(&self) -> Option<&'a [T]> {
        match self.place {
            Place::Host(host) => Some(host),
            #[cfg(feature = "cuda")]
            Place::Device(_) => None,
        }
    }

    /// The GPU that holds the numbers, as CUDA counts them; `None` on the host.
    pub fn gpu(&self) -> Option<usize> {
        match self.place {
            Place::Host(_) => None,
            #[cfg(feature = "cuda")]
            Place::Device(remote) => Some(remote.ordinal),
        }
    }

    /// Part of the numbers, in the same place.
    ///
    /// # Panics
    /// A range that goes beyond the end, as with slices.
    pub fn range(self, range: Range<usize>) -> Array<'a, T> {
        match self.place {
            Place::Host(host) => Array::from(&host[range]),
            #[cfg(feature = "cuda")]
            Place::Device(remote) => Array { place: Place::Device(remote.range(range, size_of::<T>())) },
        }
    }

    /// Copies the numbers to `to`, and waits until they are there.
    ///
    /// # Errors
    /// Another length; device memory that is not what it was said to be.
    pub fn read(&self, to: &mut [T]) -> Result<()> {
        check_len(self.len(), to.len())?;
        match self.place {
            Place::Host(host) => to.copy_from_slice(host),
            #[cfg(feature = "cuda")]
            Place::Device(remote) => crate::device::cuda::caller::read(&remote, to)?,
        }
        Ok(())
    }

    /// The numbers in host memory of their own.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn to_vec(&self) -> Result<Vec<T>> {
        let mut to = vec![T::default(); self.len()];
        self.read(&mut to)?;
        Ok(to)
    }

    /// The numbers on the host: where they are, or copied to `scratch`, which grows once.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn on_host<'s>(&self, scratch: &'s mut Vec<T>) -> Result<&'s [T]>
    where
        'a: 's,
    {
        if let Some(host) = self.as_host() {
            return Ok(host);
        }
        scratch.resize(self.len(), T::default());
        self.read(scratch)?;
        Ok(scratch)
    }
}

impl<'a, T: Number> ArrayMut<'a, T> {
    /// How many numbers.
    pub fn len(&self) -> usize {
        match &self.place {
            Place::Host(host) => host.len(),
            #[cfg(feature = "cuda")]
            Place::Device(remote) => remote.len,
        }
    }

    /// True when there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The slice, if the numbers are on the host.
    pub fn as_host(&mut self) -> Option<&mut [T]> {
        match &mut self.place {
            Place::Host(host) => Some(host),
            #[cfg(feature = "cuda")]
            Place::Device(_) => None,
        }
    }

    /// The GPU that holds the numbers, as CUDA counts them; `None` on the host.
    pub fn gpu(&self) -> Option<usize> {
        match &self.place {
            Place::Host(_) => None,
            #[cfg(feature = "cuda")]
            Place::Device(remote) => Some(remote.ordinal),
        }
    }

    /// The same numbers, to be read.
    pub fn as_array(&self) -> Array<'_, T> {
        match &self.place {
            Place::Host(host) => Array::from(&**host),
            #[cfg(feature = "cuda")]
            Place::Device(remote) => Array { place: Place::Device(*remote) },
        }
    }

    /// The same numbers, lent for a shorter time.
    pub fn reborrow(&mut self) -> ArrayMut<'_, T> {
        let all = 0..self.len();
        self.range(all)
    }

    /// Part of the numbers, in the same place.
    ///
    /// # Panics
    /// A range that goes beyond the end, as with slices.
    pub fn range(&mut self, range: Range<usize>) -> ArrayMut<'_, T> {
        match &mut self.place {
            Place::Host(host) => ArrayMut::from(&mut host[range]),
            #[cfg(feature = "cuda")]
            Place::Device(remote) => ArrayMut { place: Place::Device(remote.range(range, size_of::<T>())) },
        }
    }

    /// The first `mid` numbers and the others.
    ///
    /// # Panics
    /// More than there are, as with slices.
    pub fn split_at(self, mid: usize) -> (ArrayMut<'a, T>, ArrayMut<'a, T>) {
        match self.place {
            Place::Host(host) => {
                let (first, second) = host.split_at_mut(mid);
                (ArrayMut::from(first), ArrayMut::from(second))
            }
            #[cfg(feature = "cuda")]
            Place::Device(remote) => {
                let part = |range| ArrayMut { place: Place::Device(remote.range(range, size_of::<T>())) };
                (part(0..mid), part(mid..remote.len))
            }
        }
    }

    /// Copies `from` to the numbers; what the caller's stream gets later sees them.
    ///
    /// # Errors
    /// Another length; device memory that is not what it was said to be.
    pub fn write(&mut self, from: &[T]) -> Result<()> {
        check_len(from.len(), self.len())?;
        match &mut self.place {
            Place::Host(host) => host.copy_from_slice(from),
            #[cfg(feature = "cuda")]
            Place::Device(remote) => crate::device::cuda::caller::write(from, remote)?,
        }
        Ok(())
    }
}

impl<'a, T: Number> From<&'a [T]> for Array<'a, T> {
    fn from(host: &'a [T]) -> Self {
        Self { place: Place::Host(host) }
    }
}
impl<'a, T: Number> From<&'a Vec<T>> for Array<'a, T> {
    fn from(host: &'a Vec<T>) -> Self {
        Self::from(&host[..])
    }
}
impl<'a, T: Number, const N: usize> From<&'a [T; N]> for Array<'a, T> {
    fn from(host: &'a [T; N]) -> Self {
        Self::from(&host[..])
    }
}
impl<'a, T: Number> From<&'a mut [T]> for ArrayMut<'a, T> {
    fn from(host: &'a mut [T]) -> Self {
        Self { place: Place::Host(host) }
    }
}
impl<'a, T: Number> From<&'a mut Vec<T>> for ArrayMut<'a, T> {
    fn from(host: &'a mut Vec<T>) -> Self {
        Self::from(&mut host[..])
    }
}
impl<'a, T: Number, const N: usize> From<&'a mut [T; N]> for ArrayMut<'a, T> {
    fn from(host: &'a mut [T; N]) -> Self {
        Self::from(&mut host[..])
    }
}

/// A space whose vectors can be filled from a caller's memory and read into it, wherever that is.
///
/// Numbers that are on the space's own device are copied there and never cross to the host. Those of another GPU are
/// copied from GPU to GPU, and for a CPU they come to the host.
///
/// # Examples
/// ```
/// use krylith::device::cpu::Cpu;
/// use krylith::memory::{Numbers, NumbersMut, Transfer};
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
    fn write_from(&self, from: Numbers, to: &mut Self::Vector) -> Result<()>;

    /// `to ← from`. Numbers for the host are there when this returns; those for device memory when the caller's stream
    /// comes to what it is given next.
    ///
    /// # Errors
    /// Another length; device memory that is not what it was said to be.
    fn read_into(&self, from: &Self::Vector, to: NumbersMut) -> Result<()>;
}

pub(crate) fn check_len(from: usize, to: usize) -> Result<()> {
    if from == to {
        return Ok(());
    }
    Err(Error::invalid(format!("an array of {from} numbers cannot be copied to one of {to}")))
}
