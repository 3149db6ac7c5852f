//! Operators: linear maps from vectors to vectors.
//!
//! [`LinearOperator`] is the trait for matrices, preconditioners and operators that an application computes
//! itself. [`PointBlock`] is the product with a matrix of any format or with a Kronecker sum, on any device.
//! It is built from [`Terms`]. [`Replicated`] and [`Gathered`] share the rows of a matrix among ranks in
//! other ways.
//!
//! `apply` must neither allocate nor branch on values, because it may be recorded. On a GPU it must not wait
//! for the device either.
//!
//! With `apply_with_dots` a product can compute (p, A p) in its own pass, and a preconditioner (r, r) and (r,
//! z). Products by diagonals and the tiles of block-Jacobi do so. Incomplete factors of subdomains do not,
//! because on an H200 that cost more time than the saved sweep.

mod columns;
pub(crate) mod cuts;
mod format;
mod function;
mod maxima;
pub(crate) mod mixing;
pub(crate) mod original;
mod point_block;
mod replicated;
mod share;
mod structure;
mod term_values;
mod transpose;
mod transposed;
mod whole_rows;

pub use columns::Together;
pub use format::Format;
#[cfg(feature = "cuda")]
pub(crate) use format::{MOST_DIAGONALS, worth_diagonals};
pub(crate) use format::{diagonals_of, kept_diagonals, mirrored, not_by_diagonals};
pub use function::{DeviceVectors, FunctionOperator};
pub(crate) use maxima::{ColumnMaxima, fold_rows, for_blocks_mut, row_maxima, with_block};
#[doc(hidden)]
pub use mixing::mixes_components;
pub use original::OriginalSystem;
pub(crate) use point_block::Interleaved;
pub use point_block::{PointBlock, PointBlockSum, Terms};
pub use replicated::{Gathered, Replicated, SetupTimes, SharedRows};
pub use share::ShareSpec;
pub use structure::Structure;
pub use term_values::TermValues;
pub(crate) use term_values::{HostTerms, check_count};
#[cfg(feature = "cuda")]
pub(crate) use transpose::Map;
pub use transpose::TransposedTerms;
pub(crate) use transpose::{turned, turned_here};
pub use transposed::Transposed;
pub(crate) use whole_rows::{Collecting, WholeRows, whole_diagonal};

use crate::Result;
use crate::space::Space;
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

/// Sums that an application computes together with `y ← A x`, and their slots in
/// [`Scalars`](crate::space::Schedule::Scalars).
///
/// # Examples
/// ```
/// use krylith::device::Cpu;
/// use krylith::operator::{Dots, LinearOperator, PointBlock};
/// use krylith::{Precision, matrix::Csr, operator::{Schedule, Space}};
/// use krylith_core::space::FLAGS;
/// let space = Cpu::new(2, 1);
/// let a = PointBlock::csr(&space, &Csr::from_triplets(2, 2, &[(0, 0, 2.0), (1, 1, 4.0)])?, Precision::F64)?;
/// let (p, mut q, mut scalars) = (vec![1.0, 2.0], space.vector()?, space.scalars(1)?);
/// let (mut sums, mut flags) = ([0.0], [0; FLAGS]);
/// if a.apply_with_dots(&space, &p, &mut q, &mut scalars, Dots::Xy(0))? {
///     space.read_scalars(&scalars, 0, &mut sums, &mut flags)?;
///     assert_eq!(sums, [18.0]); // (p, A p), made in the pass of the product
/// }
/// # Ok::<(), krylith::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dots {
    /// (x, y) in this slot, such as (p, A p) of a product.
    Xy(usize),
    /// (x, x) in this slot and (x, y) in the next, such as (r, r) and (r, z) of a preconditioner.
    XxXy(usize),
}

impl Dots {
    /// Returns the first slot.
    pub(crate) fn slot(self) -> usize {
        let (Dots::Xy(slot) | Dots::XxXy(slot)) = self;
        slot
    }

    /// Returns the number of sums. They are in consecutive slots, with (x, y) last.
    pub(crate) fn count(self) -> usize {
        match self {
            Dots::Xy(_) => 1,
            Dots::XxXy(_) => 2,
        }
    }
}

/// A linear map on the vectors of a space, such as a matrix, a Kronecker sum or a preconditioner.
///
/// # Examples
/// A matrix-free operator on the host; `examples/matrix_free.rs` has one that uses all threads.
/// ```
/// use krylith::device::Cpu;
/// use krylith::{Outcome, Result, Stop, method::{Cg, CgOptions}, operator::LinearOperator};
/// /// −1 2 −1.
/// struct Wall;
/// impl LinearOperator<Cpu> for Wall {
///     fn apply(&self, _: &Cpu, x: &Vec<f64>, y: &mut Vec<f64>) -> Result<()> {
///         let at = |i: usize| x.get(i).unwrap_or(&0.0);
///         Ok((0..x.len()).for_each(|i| y[i] = 2.0 * x[i] - at(i.wrapping_sub(1)) - at(i + 1)))
///     }
///     fn key(&self) -> u64 { 0 } // nothing is recorded
///     fn bytes(&self) -> u64 { 16 * 50 }
///     fn recordable(&self) -> bool { false } // it works on the host
/// }
/// let space = Cpu::new(50, 1);
/// let (b, mut x) = (vec![1.0; 50], vec![0.0; 50]);
/// let mut cg = Cg::new(&space, CgOptions::default())?;
/// let history = cg.solve(&space, &Wall, None, &b, &mut x, &Stop::default(), &mut ())?;
/// assert_eq!(history.outcome, Outcome::Converged);
/// assert!((x[0] - 25.0).abs() < 1e-3); // x_i = (i + 1)(50 − i)/2
/// # Ok::<(), krylith::Error>(())
/// ```
pub trait LinearOperator<S: Space> {
    /// Computes `y ← A x`. Asynchronous on a GPU; allocates nothing.
    fn apply(&self, space: &S, x: &S::Vector, y: &mut S::Vector) -> Result<()>;

    /// Computes `y ← A x`, with sums over x and y in the same pass if the operator supports it. Returns true
    /// if the sums over all ranks are in their slots. Returns false if only `y ← A x` was computed, so that
    /// the caller must compute the sums in a sweep.
    fn apply_with_dots(
        &self,
        space: &S,
        x: &S::Vector,
        y: &mut S::Vector,
        _scalars: &mut S::Scalars,
        _dots: Dots,
    ) -> Result<bool> {
        self.apply(space, x, y)?;
        Ok(false)
    }

    /// Computes `r ← b − A x`, each entry in twice the working precision and then rounded, and `m ← |b| + |A|
    /// |x|`, which measures the effect of rounding. Returns false, and computes nothing, if the operator has
    /// no such product. Residuals then come from [`apply`](Self::apply).
    fn residual(
        &self,
        _space: &S,
        _b: &S::Vector,
        _x: &S::Vector,
        _r: &mut S::Vector,
        _m: &mut S::Vector,
    ) -> Result<bool> {
        Ok(false)
    }

    /// Allocates what [`apply_columns`](Self::apply_columns) needs for `count` vectors.
    ///
    /// # Errors
    /// Out of device memory.
    fn prepare_columns(&self, _space: &S, _count: usize) -> Result<()> {
        Ok(())
    }

    /// Returns about how many bytes [`prepare_columns`](Self::prepare_columns) allocates for each vector.
    fn bytes_of_column(&self) -> u64 {
        0
    }

    /// Returns true if [`apply_columns`](Self::apply_columns) costs less than one application after the other
    /// where products do not.
    fn gains_by_columns(&self, _space: &S) -> bool {
        false
    }

    /// Computes `y[k] ← A x[k]` for several vectors. A product that reads its matrix once for all of them
    /// overrides this; otherwise the vectors follow one another. Each result is the same as that of
    /// [`apply`](Self::apply), to rounding.
    ///
    /// # Errors
    /// As [`apply`](Self::apply).
    fn apply_columns(&self, space: &S, x: &[&S::Vector], y: &mut [&mut S::Vector]) -> Result<()> {
        x.iter().zip(y).try_for_each(|(x, y)| self.apply(space, x, y))
    }

    /// Returns true if [`apply_transpose`](Self::apply_transpose) is supported. A fixed linear map should
    /// support it. A map that is not linear, or differs from call to call, has no transpose.
    fn has_transpose(&self) -> bool {
        false
    }

    /// Computes `y ← Aᵀ x`. Asynchronous on a GPU; allocates nothing. A preconditioner must have been
    /// [prepared](crate::precond::Preconditioner::prepare_transpose) for it.
    ///
    /// # Errors
    /// [`Error::Unsupported`](crate::Error::Unsupported) if the operator has no transpose.
    fn apply_transpose(&self, _space: &S, _x: &S::Vector, _y: &mut S::Vector) -> Result<()> {
        Err(no_transpose("this operator"))
    }

    /// Returns a key that changes when work that was recorded with this operator becomes invalid, because
    /// buffers or kernels have changed. It covers both directions.
    ///
    /// New values in the same buffers keep the key.
    fn key(&self) -> u64;

    /// Returns the fewest bytes that one application can move.
    fn bytes(&self) -> u64;

    /// Returns true if every application is the same work, so that a device may record and replay it. An
    /// operator that works on the host, or calls the caller's code, returns false. Launches around it are
    /// then not recorded.
    fn recordable(&self) -> bool {
        true
    }

    /// Sums numbers over the ranks that apply the operator together. These are the ranks of the space, unless
    /// the operator shares its work with ranks that the space does not know (see [`Replicated`]). The sums
    /// serve decisions that all these ranks must make alike. Collective.
    fn sum(&self, space: &S, numbers: &mut [f64]) -> Result<()> {
        space.comm().sum(numbers)
    }
}

/// Implements the trait for pointers to operators.
macro_rules! behind {
    ($($pointer:ty),*) => {$(
        impl<S: Space, T: LinearOperator<S> + ?Sized> LinearOperator<S> for $pointer {
            fn apply(&self, space: &S, x: &S::Vector, y: &mut S::Vector) -> Result<()> {
                (**self).apply(space, x, y)
            }
            fn apply_with_dots(
                &self,
                space: &S,
                x: &S::Vector,
                y: &mut S::Vector,
                scalars: &mut S::Scalars,
                dots: Dots,
            ) -> Result<bool> {
                (**self).apply_with_dots(space, x, y, scalars, dots)
            }
            fn residual(
                &self,
                space: &S,
                b: &S::Vector,
                x: &S::Vector,
                r: &mut S::Vector,
                m: &mut S::Vector,
            ) -> Result<bool> {
                (**self).residual(space, b, x, r, m)
            }
            fn prepare_columns(&self, space: &S, count: usize) -> Result<()> {
                (**self).prepare_columns(space, count)
            }
            fn bytes_of_column(&self) -> u64 {
                (**self).bytes_of_column()
            }
            fn gains_by_columns(&self, space: &S) -> bool {
                (**self).gains_by_columns(space)
            }
            fn apply_columns(&self, space: &S, x: &[&S::Vector], y: &mut [&mut S::Vector]) -> Result<()> {
                (**self).apply_columns(space, x, y)
            }
            fn has_transpose(&self) -> bool {
                (**self).has_transpose()
            }
            fn apply_transpose(&self, space: &S, x: &S::Vector, y: &mut S::Vector) -> Result<()> {
                (**self).apply_transpose(space, x, y)
            }
            fn key(&self) -> u64 {
                (**self).key()
            }
            fn bytes(&self) -> u64 {
                (**self).bytes()
            }
            fn recordable(&self) -> bool {
                (**self).recordable()
            }
            fn sum(&self, space: &S, numbers: &mut [f64]) -> Result<()> {
                (**self).sum(space, numbers)
            }
        }
    )*};
}
behind!(Box<T>, &T, Rc<T>, Arc<T>);

/// An operator that several owners share, and whose values change between solves.
impl<S: Space, T: LinearOperator<S> + ?Sized> LinearOperator<S> for RefCell<T> {
    fn apply(&self, space: &S, x: &S::Vector, y: &mut S::Vector) -> Result<()> {
        self.borrow().apply(space, x, y)
    }
    fn apply_with_dots(
        &self,
        space: &S,
        x: &S::Vector,
        y: &mut S::Vector,
        scalars: &mut S::Scalars,
        dots: Dots,
    ) -> Result<bool> {
        self.borrow().apply_with_dots(space, x, y, scalars, dots)
    }
    fn residual(
        &self,
        space: &S,
        b: &S::Vector,
        x: &S::Vector,
        r: &mut S::Vector,
        m: &mut S::Vector,
    ) -> Result<bool> {
        self.borrow().residual(space, b, x, r, m)
    }
    fn prepare_columns(&self, space: &S, count: usize) -> Result<()> {
        self.borrow().prepare_columns(space, count)
    }
    fn bytes_of_column(&self) -> u64 {
        self.borrow().bytes_of_column()
    }
    fn gains_by_columns(&self, space: &S) -> bool {
        self.borrow().gains_by_columns(space)
    }
    fn apply_columns(&self, space: &S, x: &[&S::Vector], y: &mut [&mut S::Vector]) -> Result<()> {
        self.borrow().apply_columns(space, x, y)
    }
    fn has_transpose(&self) -> bool {
        self.borrow().has_transpose()
    }
    fn apply_transpose(&self, space: &S, x: &S::Vector, y: &mut S::Vector) -> Result<()> {
        self.borrow().apply_transpose(space, x, y)
    }
    fn key(&self) -> u64 {
        self.borrow().key()
    }
    fn bytes(&self) -> u64 {
        self.borrow().bytes()
    }
    fn recordable(&self) -> bool {
        self.borrow().recordable()
    }
    fn sum(&self, space: &S, numbers: &mut [f64]) -> Result<()> {
        self.borrow().sum(space, numbers)
    }
}

/// Computes y ← A x, or y ← Aᵀ x if `turned` is true.
pub(crate) fn applied<S: Space, A: LinearOperator<S> + ?Sized>(
    a: &A,
    turned: bool,
    space: &S,
    x: &S::Vector,
    y: &mut S::Vector,
) -> Result<()> {
    if turned { a.apply_transpose(space, x, y) } else { a.apply(space, x, y) }
}

/// The error of an operator that has no transpose.
pub(crate) fn no_transpose(what: &str) -> crate::Error {
    crate::Error::Unsupported(format!(
        "{what} has no transpose; for a solve with Aᵀ use a preconditioner that is a fixed linear map, or \
         create a solver of the transposed matrix"
    ))
}

/// The error of an operator whose transpose was not laid out before its first use.
pub(crate) fn not_prepared() -> crate::Error {
    crate::Error::Internal("a transpose is applied that was not prepared".into())
}

/// Rejects vectors of wrong lengths for a rows×columns product. `x` is the length of the argument, and `y`
/// that of the result.
pub(crate) fn check_lengths(rows: usize, columns: usize, x: usize, y: usize) -> Result<()> {
    if x == columns && y == rows {
        return Ok(());
    }
    Err(crate::Error::invalid(format!(
        "the operator is {rows}×{columns}, but x has {x} numbers and y has {y}"
    )))
}

/// Returns a number that no other operator has.
pub(crate) fn fresh_key() -> u64 {
    use std::sync::atomic::{AtomicU64, Ordering};
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// Returns the key of an operator that consists of others. It changes with any of their keys, and with their
/// order.
pub(crate) fn joined_key(keys: impl IntoIterator<Item = u64>) -> u64 {
    keys.into_iter().fold(0, |all, key| (all ^ key).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(29))
}
