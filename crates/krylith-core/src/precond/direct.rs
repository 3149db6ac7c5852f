//! Direct factors that a device computes itself, by a library of its vendor.
//!
//! The device factorises one scalar matrix in its memory. Which factors are tried, and whether they solve the
//! system, is decided by `precond/lu/on_device.rs` for all devices alike.

use super::assemble::Assemble;
use crate::matrix::Csr;
use crate::space::Space;
use crate::{Error, Result};

/// Systems of fewer unknowns have factors on the host unless the user names the device. cuDSS takes 15 to 25
/// ms to analyse 1,000 to 14,000 unknowns on an H200, and 0.1 s before its first call.
pub(crate) const LEAST_ON_DEVICE: usize = 1 << 13;

/// The form of direct factors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DirectKind {
    /// L Lᵀ, for a symmetric and positive definite matrix.
    Cholesky,
    /// L B Lᵀ, for a symmetric matrix.
    Symmetric,
    /// L U, with pivots from within blocks.
    Lu,
    /// L U, with rows matched to columns for the largest product on the diagonal.
    MatchedLu,
}

impl DirectKind {
    /// Returns the name of the factors.
    pub fn name(self) -> &'static str {
        match self {
            DirectKind::Cholesky => "Cholesky",
            DirectKind::Symmetric => "LBLᵀ",
            DirectKind::Lu | DirectKind::MatchedLu => "LU",
        }
    }
}

/// An elimination order by nested dissection.
#[derive(Debug, Clone, PartialEq)]
pub struct Dissection {
    /// The unknowns in the order of their elimination, part by part.
    pub order: Vec<u32>,
    /// Numbers of unknowns in each side of the last bisections, then in the separators between pairs of
    /// sides, up to the separator of the whole graph: 2^levels − 1 numbers.
    pub parts: Vec<u32>,
    /// Number of levels of parts.
    pub levels: usize,
}

/// What a device is to analyse.
#[derive(Debug, Clone, Copy)]
pub struct DirectRequest<'a> {
    /// The form of the factors.
    pub kind: DirectKind,
    /// The elimination order. Without one, the library finds one.
    pub dissection: Option<&'a Dissection>,
    /// Largest number of numbers in the factors.
    pub most: Option<usize>,
    /// True for factors on all devices of the space, also if one of them has room.
    pub spread: bool,
}

/// The reason why a matrix has no factors of a form.
pub type Unfit = String;

/// A device that may have direct factors of its own.
pub trait DirectFactors: Assemble {
    /// Returns the name and version of the library that computes them; `None` if there is none for this
    /// device.
    ///
    /// # Errors
    /// The library is missing or too old.
    fn direct_library(&self) -> Result<Option<String>> {
        Ok(None)
    }

    /// Returns a space of this device alone, for vectors of a whole system. Its direct factors may also take
    /// the devices with these numbers.
    ///
    /// # Errors
    /// A device without direct factors; out of device memory.
    fn for_whole(&self, _len: usize, _others: &[usize]) -> Result<Self>
    where
        Self: Sized,
    {
        Err(Error::Internal("lu: a device without direct factors".into()))
    }

    /// Returns the number of this device among those of its process.
    fn device_number(&self) -> usize {
        0
    }

    /// Analyses a square scalar matrix. It is moved to the memory of the device unless it is there.
    ///
    /// # Errors
    /// Out of memory; the limits of the caller's work are reached; a device that failed.
    fn direct(
        &self,
        _a: &Csr,
        _request: DirectRequest,
    ) -> Result<std::result::Result<Box<dyn DeviceFactors<Self>>, Unfit>> {
        Err(Error::Internal("lu: a device without direct factors".into()))
    }
}

/// Direct factors in the memory of a device.
pub trait DeviceFactors<S: Space> {
    /// Factorises values of the pattern that was analysed.
    ///
    /// # Errors
    /// As [`DirectFactors::direct`].
    fn factorize(&mut self, space: &S, a: &Csr) -> Result<std::result::Result<(), Unfit>>;

    /// Computes y ← A⁻¹ x, or y ← A⁻ᵀ x. Asynchronous.
    ///
    /// # Errors
    /// A device that failed.
    fn solve(&self, space: &S, transposed: bool, x: &S::Vector, y: &mut S::Vector) -> Result<()>;

    /// Allocates what [`solve_columns`](Self::solve_columns) needs for `count` vectors.
    ///
    /// # Errors
    /// Out of device memory.
    fn prepare_columns(&self, space: &S, count: usize) -> Result<()>;

    /// Computes y[k] ← A⁻¹ x[k] for vectors that were prepared for. The factors are read once for all.
    ///
    /// # Errors
    /// A device that failed.
    fn solve_columns(&self, space: &S, x: &[&S::Vector], y: &mut [&mut S::Vector]) -> Result<()>;

    /// Returns the number of pivots that vanished and were replaced.
    fn replaced_pivots(&self) -> usize;

    /// Returns the number of numbers in the factors.
    fn numbers(&self) -> usize;

    /// Returns remarks for a report, such as factors that are partly in the memory of the host.
    fn remarks(&self) -> Vec<String>;
}
