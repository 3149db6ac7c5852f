//! Arrays that a caller passes in to be read or filled: on the host, or in the memory of a GPU.
//!
//! Every function that takes numbers from a caller takes `impl Into<Numbers>`: a slice, a vector, or device
//! memory. The trait `krylith::device::cuda::FromDevice` makes the latter, by `Array::from_device` with an
//! address, a length, the GPU and the caller's stream. Callers need not synchronise. Krylith's work on the
//! memory follows the work in the caller's stream at the time of the call, and later work in that stream
//! follows Krylith's.
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

use crate::{Error, Result};
use std::any::Any;
use std::fmt::Debug;
use std::ops::{Deref, Range};
use std::sync::Arc;

pub use krylith_base::alloc::may_fail;

/// A type of number that arrays may have: plain bits with the same layout on hosts and devices.
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
    pub trait Sealed: bytemuck::Pod {}
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

/// Numbers to read: a host slice, or memory of a GPU.
///
/// `From` makes it from slices and vectors; with feature `cuda`, `from_device` of
/// `krylith::device::cuda::FromDevice` makes it from device memory. A copy copies only the reference.
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
    place: Place<&'a [T]>,
}

/// Numbers to write: a host slice, or memory of a GPU.
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
    place: Place<&'a mut [T]>,
}

/// An array of f64 to read.
pub type Numbers<'a> = Array<'a, f64>;
/// An array of f64 to write.
pub type NumbersMut<'a> = ArrayMut<'a, f64>;

/// The location of an array's numbers.
#[doc(hidden)]
#[derive(Debug, Clone, Copy)]
pub enum Place<H> {
    Host(H),
    Device(Remote),
}

/// Device memory that its owner lends. Copies must not outlive the array from which they were taken.
#[doc(hidden)]
#[derive(Debug, Clone, Copy)]
pub struct Remote(Lease);

/// Description of lent memory; read through [`Remote`], which alone can hold one.
#[doc(hidden)]
#[derive(Debug, Clone, Copy)]
pub struct Lease {
    /// Address on the device.
    pub pointer: u64,
    /// Number of numbers.
    pub len: usize,
    /// The GPU, by its CUDA ordinal.
    pub ordinal: usize,
    /// The CUstream in which the owner works; `None` if no work on the memory is pending.
    pub stream: Option<usize>,
    /// The kind of device that can access the memory.
    pub reach: &'static dyn Reach,
}

/// A kind of device that can access memory outside the host. Modules below the devices know devices only by
/// this trait.
#[doc(hidden)]
pub trait Reach: Debug + Sync {
    /// Copies numbers of `size` bytes each to the host, and waits.
    ///
    /// # Errors
    /// Memory that does not match its description.
    fn read(&self, from: &Remote, size: usize, to: &mut [u8]) -> Result<()>;

    /// Copies numbers of `size` bytes each from the host, and waits.
    ///
    /// # Errors
    /// As `read`.
    fn write(&self, from: &[u8], size: usize, to: &Remote) -> Result<()>;

    /// Copies a matrix with `columns` columns whose arrays are all on this device; `None` if the arrays are
    /// not valid.
    ///
    /// # Errors
    /// As `read`; a device without memory for it.
    fn matrix(
        &self,
        columns: usize,
        row_ptr: Lent,
        col: Lent,
        values: Remote,
    ) -> Result<Option<Arc<dyn OnDevice>>>;

    /// Combines new values with a pattern that is on this device in `here`, or that `pattern` returns on the
    /// host.
    ///
    /// # Errors
    /// A value that is not finite; as `matrix`.
    fn values<'p>(
        &self,
        values: Remote,
        here: Option<Arc<dyn OnDevice>>,
        pattern: &dyn Fn() -> &'p Pattern,
    ) -> Result<Arc<dyn OnDevice>>;
}

/// Numbers of any type in device memory, which the device converts as needed.
#[doc(hidden)]
#[derive(Debug, Clone, Copy)]
pub struct Lent {
    pub remote: Remote,
    /// The name of the type in CUDA C++, and its size in bytes.
    pub name: &'static str,
    pub size: usize,
}

/// Row pointers and columns of a sparse matrix.
#[doc(hidden)]
#[derive(Debug, PartialEq)]
pub struct Pattern {
    pub row_ptr: Vec<usize>,
    pub col: Vec<u32>,
}

/// The arrays of a matrix in the memory of a device.
#[doc(hidden)]
pub trait OnDevice: Any + Send + Sync {
    /// A copy of the pattern on the host.
    fn pattern(&self) -> Result<Pattern>;
    /// A copy of the values on the host.
    fn values(&self) -> Result<Vec<f64>>;
    /// The values where they are.
    fn numbers(&self) -> Numbers<'_>;
    /// True if both patterns, of the same shape, are known to be equal; `None` if this device cannot compare
    /// them.
    fn same_pattern(&self, other: &Arc<dyn OnDevice>) -> Option<bool>;
    /// True if both have equal values, of which they have the same number; `None` if this device cannot
    /// compare them.
    fn same_values(&self, _other: &Arc<dyn OnDevice>) -> Option<bool> {
        None
    }
    /// The matrix, which has scalar rows, in square blocks on the same device: the number of blocks, and
    /// their arrays. `None` if this device does not group.
    ///
    /// # Errors
    /// A device that failed, or without memory for it.
    fn grouped(&self, _block: usize) -> Result<Option<(usize, Arc<dyn OnDevice>)>> {
        Ok(None)
    }
    /// The number of blocks of this order of a matrix with scalar rows. `None` if this device does not group.
    ///
    /// # Errors
    /// A device that failed.
    fn count_blocks(&self, _block: usize) -> Result<Option<usize>> {
        Ok(None)
    }
    /// The number of blocks of `square` numbers that are all zero. `None` if this device does not count them.
    ///
    /// # Errors
    /// A device that failed.
    fn count_zero_blocks(&self, _square: usize) -> Result<Option<usize>> {
        Ok(None)
    }
    /// True if rows of a square matrix in blocks of this order refer to an unknown whose own row has only a
    /// diagonal. `None` if this device does not look.
    ///
    /// # Errors
    /// A device that failed, or without memory for a byte per row.
    fn refers_to_fixed_rows(&self, _block: usize) -> Result<Option<bool>> {
        Ok(None)
    }
    /// The numbers of negative, zero and positive entries on the diagonal of a square matrix in blocks of
    /// this order. `None` if this device does not count them.
    ///
    /// # Errors
    /// A device that failed.
    fn diagonal_signs(&self, _block: usize) -> Result<Option<[u64; 3]>> {
        Ok(None)
    }
    /// The same pattern with values from the host, on the same device. `None` if this device does not upload
    /// them.
    ///
    /// # Errors
    /// A value that is not finite; a device that failed, or without memory for them.
    fn with_values(&self, _values: &[f64]) -> Result<Option<Arc<dyn OnDevice>>> {
        Ok(None)
    }
    /// The norms of D⁻¹(b − A x), D⁻¹b, b − A x and b, where D is diagonal with the 1-norms of the rows, for
    /// a matrix in square blocks. `None` if this device does not compute them, or if they overflow or
    /// underflow.
    ///
    /// # Errors
    /// A device that failed.
    fn row_scaled_norms(&self, _block: usize, _b: Numbers, _x: Numbers) -> Result<Option<[f64; 4]>> {
        Ok(None)
    }
    /// A copy on the host of the pattern of the first `rows` rows, or of fewer if those have more than `most`
    /// entries.
    ///
    /// # Errors
    /// A device that failed.
    fn first_rows(&self, _rows: usize, _most: usize) -> Result<Pattern> {
        self.pattern()
    }
    /// The same arrays, for a downcast to their type.
    fn as_any(self: Arc<Self>) -> Arc<dyn Any + Send + Sync>;
}

impl Remote {
    /// Creates a reference to lent memory.
    ///
    /// # Safety
    /// While this reference, copies of it and arrays made from them are in use, the memory must hold that
    /// many numbers. The device must be able to read them, and to write them if an array to write is made.
    /// Nothing outside the stream may write to the memory. The stream must be alive as long. `reach` must
    /// know the device by that ordinal.
    pub unsafe fn new(lease: Lease) -> Self {
        Self(lease)
    }

    /// Part of the memory, for numbers of `size` bytes.
    fn range(self, range: Range<usize>, size: usize) -> Self {
        assert!(range.start <= range.end && range.end <= self.len, "{range:?} of {} numbers", self.len);
        Self(Lease { pointer: self.pointer + (range.start * size) as u64, len: range.len(), ..self.0 })
    }
}

impl Deref for Remote {
    type Target = Lease;
    #[inline]
    fn deref(&self) -> &Lease {
        &self.0
    }
}

impl<'a, T: Number> Array<'a, T> {
    /// Creates an array from memory that a device's owner lends.
    #[doc(hidden)]
    pub fn of_remote(remote: Remote) -> Self {
        Self { place: Place::Device(remote) }
    }

    /// The location of the numbers.
    #[doc(hidden)]
    #[inline]
    pub fn place(&self) -> Place<&'a [T]> {
        self.place
    }

    /// Number of numbers.
    #[inline]
    pub fn len(&self) -> usize {
        match self.place {
            Place::Host(host) => host.len(),
            Place::Device(remote) => remote.len,
        }
    }

    /// True if there are none.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The slice, if the numbers are on the host.
    #[inline]
    pub fn as_host(&self) -> Option<&'a [T]> {
        match self.place {
            Place::Host(host) => Some(host),
            Place::Device(_) => None,
        }
    }

    /// The GPU that holds the numbers, by its CUDA ordinal; `None` on the host.
    #[inline]
    pub fn gpu(&self) -> Option<usize> {
        match self.place {
            Place::Host(_) => None,
            Place::Device(remote) => Some(remote.ordinal),
        }
    }

    /// The device memory, for a device that takes it.
    #[doc(hidden)]
    pub fn lent(&self) -> Option<Lent> {
        match self.place {
            Place::Host(_) => None,
            Place::Device(remote) => Some(Lent { remote, name: T::NAME, size: size_of::<T>() }),
        }
    }

    /// Part of the numbers, in the same place.
    ///
    /// # Panics
    /// If the range goes beyond the end, as with slices.
    pub fn range(self, range: Range<usize>) -> Array<'a, T> {
        match self.place {
            Place::Host(host) => Array::from(&host[range]),
            Place::Device(remote) => Array { place: Place::Device(remote.range(range, size_of::<T>())) },
        }
    }

    /// Copies the numbers to `to`, and waits until they are there.
    ///
    /// # Errors
    /// Another length; device memory that does not match its description.
    pub fn read(&self, to: &mut [T]) -> Result<()> {
        check_len(self.len(), to.len())?;
        match self.place {
            Place::Host(host) => to.copy_from_slice(host),
            Place::Device(remote) => {
                remote.reach.read(&remote, size_of::<T>(), bytemuck::cast_slice_mut(to))?
            }
        }
        Ok(())
    }

    /// Copies the numbers to a vector on the host.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn to_vec(&self) -> Result<Vec<T>> {
        let mut to = vec![T::default(); self.len()];
        self.read(&mut to)?;
        Ok(to)
    }

    /// The numbers on the host: the slice itself, or a copy in `scratch`, which grows once.
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
    /// Creates an array to write from memory that a device's owner lends.
    #[doc(hidden)]
    pub fn of_remote(remote: Remote) -> Self {
        Self { place: Place::Device(remote) }
    }

    /// The location of the numbers.
    #[doc(hidden)]
    #[inline]
    pub fn into_place(self) -> Place<&'a mut [T]> {
        self.place
    }

    /// Number of numbers.
    #[inline]
    pub fn len(&self) -> usize {
        match &self.place {
            Place::Host(host) => host.len(),
            Place::Device(remote) => remote.len,
        }
    }

    /// True if there are none.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The slice, if the numbers are on the host.
    #[inline]
    pub fn as_host(&mut self) -> Option<&mut [T]> {
        match &mut self.place {
            Place::Host(host) => Some(host),
            Place::Device(_) => None,
        }
    }

    /// The GPU that holds the numbers, by its CUDA ordinal; `None` on the host.
    #[inline]
    pub fn gpu(&self) -> Option<usize> {
        match &self.place {
            Place::Host(_) => None,
            Place::Device(remote) => Some(remote.ordinal),
        }
    }

    /// The same numbers, for reading.
    pub fn as_array(&self) -> Array<'_, T> {
        match &self.place {
            Place::Host(host) => Array::from(&**host),
            Place::Device(remote) => Array { place: Place::Device(*remote) },
        }
    }

    /// The same numbers, borrowed for a shorter time.
    pub fn reborrow(&mut self) -> ArrayMut<'_, T> {
        let all = 0..self.len();
        self.range(all)
    }

    /// Part of the numbers, in the same place.
    ///
    /// # Panics
    /// If the range goes beyond the end, as with slices.
    pub fn range(&mut self, range: Range<usize>) -> ArrayMut<'_, T> {
        match &mut self.place {
            Place::Host(host) => ArrayMut::from(&mut host[range]),
            Place::Device(remote) => ArrayMut { place: Place::Device(remote.range(range, size_of::<T>())) },
        }
    }

    /// Splits into the first `mid` numbers and the others.
    ///
    /// # Panics
    /// If `mid` exceeds the length, as with slices.
    pub fn split_at(self, mid: usize) -> (ArrayMut<'a, T>, ArrayMut<'a, T>) {
        match self.place {
            Place::Host(host) => {
                let (first, second) = host.split_at_mut(mid);
                (ArrayMut::from(first), ArrayMut::from(second))
            }
            Place::Device(remote) => {
                let part = |range| ArrayMut { place: Place::Device(remote.range(range, size_of::<T>())) };
                (part(0..mid), part(mid..remote.len))
            }
        }
    }

    /// Copies `from` to the numbers; later work in the caller's stream sees them.
    ///
    /// # Errors
    /// Another length; device memory that does not match its description.
    pub fn write(&mut self, from: &[T]) -> Result<()> {
        check_len(from.len(), self.len())?;
        match &mut self.place {
            Place::Host(host) => host.copy_from_slice(from),
            Place::Device(remote) => {
                remote.reach.write(bytemuck::cast_slice(from), size_of::<T>(), remote)?
            }
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

#[doc(hidden)]
pub fn check_len(from: usize, to: usize) -> Result<()> {
    if from == to {
        return Ok(());
    }
    Err(Error::invalid(format!("an array of {from} numbers cannot be copied to an array of {to} numbers")))
}
