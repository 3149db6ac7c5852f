//! Operators that a program gives as functions, on the host or on a GPU.
//!
//! A function on a GPU gets addresses and a stream as plain numbers, so this module names no device.

use super::{fresh_key, joined_key};
use crate::Result;
use std::fmt;

/// What a function on a GPU gets: the vectors x and y, and the stream of its work.
///
/// The function computes `y ← A x` by work that it puts in the stream. It need not wait for that work. Work
/// that the stream holds already writes x, and later work of the stream reads y. Both vectors have `len`
/// numbers in f64, are aligned to 16 bytes, and are valid during the call and in work of the stream. The
/// primary context of the GPU is current.
///
/// # Examples
/// ```
/// use krylith_core::operator::DeviceVectors;
/// /// The size of a launch with 256 threads in each thread block.
/// fn blocks(v: &DeviceVectors) -> usize { v.len.div_ceil(256) }
/// let v = DeviceVectors { x: 4096, y: 8192, len: 500, gpu: 0, stream: 1, recording: false };
/// assert_eq!(blocks(&v), 2);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeviceVectors {
    /// Address of x, which must not change.
    pub x: u64,
    /// Address of y, whose numbers have no meaning before the call.
    pub y: u64,
    /// Length of both vectors.
    pub len: usize,
    /// Number of the GPU, in CUDA's numbering.
    pub gpu: usize,
    /// The CUstream, which is also a cudaStream_t, as a number.
    pub stream: usize,
    /// True while the stream records a graph: work runs later, and each time that the graph runs. Only a
    /// capturable function sees this.
    pub recording: bool,
}

type OnHost<'f> = dyn Fn(&[f64], &mut [f64]) -> Result<()> + Send + Sync + 'f;
type OnDevice<'f> = dyn Fn(&DeviceVectors) -> Result<()> + Send + Sync + 'f;

enum Call<'f> {
    Host(Box<OnHost<'f>>),
    #[cfg_attr(not(feature = "cuda"), expect(dead_code, reason = "only a GPU calls it"))]
    Device(Box<OnDevice<'f>>),
}

/// A linear map that a program gives as a function: A, or a preconditioner P⁻¹, of a
/// [`Request`](crate::solver::Request). A matrix can precondition it.
///
/// The function runs on a thread of the solver, while the caller waits. If the map changes, make a new
/// operator, because a GPU may have recorded the old one.
///
/// # Examples
/// A function on the host, with the matrix of its neighbours in x as the preconditioner:
/// ```
/// use krylith::{Solver, matrix::Csr};
/// use krylith::operator::FunctionOperator;
/// let n = 50;
/// let next = |i: u32| (i + 1) % n as u32;
/// let line = (0..n as u32).flat_map(|i| [(i, i, 2.5), (i, next(i), -1.0), (next(i), i, -1.0)]);
/// let line: Vec<_> = line.collect();
/// let p = Csr::from_triplets(n, n, &line)?;
/// let a = FunctionOperator::on_host(|x, y| {
///     let at = |i: usize| x[i % n];
///     Ok((0..n).for_each(|i| y[i] = 2.5 * x[i] - at(i + n - 1) - at(i + 1) + 0.1 * at(i + n / 2)))
/// });
/// let mut solver = Solver::new(&p, &"precond=ildu device=cpu rtol=1e-8".parse()?)?;
/// let (b, mut x) = (vec![0.6; n], vec![0.0; n]);
/// assert!(solver.request(&b, &mut x).operator(&a).run()?.converged());
/// assert!(x.iter().all(|x| (x - 1.0).abs() < 1e-7)); // the solution of the function, not of the matrix
/// # Ok::<(), krylith::Error>(())
/// ```
pub struct FunctionOperator<'f> {
    call: Call<'f>,
    transpose: Option<Box<FunctionOperator<'f>>>,
    capturable: bool,
    key: u64,
}

impl fmt::Debug for FunctionOperator<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FunctionOperator")
            .field("on_device", &self.is_on_device())
            .field("capturable", &self.capturable)
            .field("has_transpose", &self.transpose.is_some())
            .finish()
    }
}

impl<'f> FunctionOperator<'f> {
    fn new(call: Call<'f>) -> Self {
        Self { call, transpose: None, capturable: false, key: fresh_key() }
    }

    /// Wraps a function of host vectors, which writes A x of its first argument to the second. It serves
    /// solves on the CPU.
    pub fn on_host(call: impl Fn(&[f64], &mut [f64]) -> Result<()> + Send + Sync + 'f) -> Self {
        Self::new(Call::Host(Box::new(call)))
    }

    /// Wraps a function of vectors in the memory of a GPU. It serves solves on one GPU.
    ///
    /// ```
    /// use krylith::operator::FunctionOperator;
    /// # fn launch(_: u64, _: u64, _: usize, _: usize) -> krylith::Result<()> { Ok(()) }
    /// let a = FunctionOperator::on_device(|v| launch(v.x, v.y, v.len, v.stream)).capturable(true);
    /// assert!(a.is_on_device());
    /// ```
    pub fn on_device(call: impl Fn(&DeviceVectors) -> Result<()> + Send + Sync + 'f) -> Self {
        Self::new(Call::Device(Box::new(call)))
    }

    /// Declares whether the work of a function on a GPU can be recorded in a CUDA graph. The function is then
    /// called while the stream records, and not in each iteration. It must put all of its work in the stream,
    /// the same work for every x. It must not wait, and what it allocates must live as long as the operator.
    /// The default is false: the function is called for every product.
    pub fn capturable(self, capturable: bool) -> Self {
        Self { capturable, ..self }
    }

    /// Gives the transpose of the map, on the same device, for solves with Aᵀ.
    pub fn with_transpose(self, transpose: FunctionOperator<'f>) -> Self {
        Self { transpose: Some(Box::new(transpose)), ..self }
    }

    /// Returns true for a function of vectors on a GPU.
    pub fn is_on_device(&self) -> bool {
        matches!(self.call, Call::Device(_))
    }

    /// Returns the transpose, if it is given.
    pub(crate) fn transpose(&self) -> Option<&FunctionOperator<'f>> {
        self.transpose.as_deref()
    }

    /// Returns true if all of its work can be recorded.
    pub(crate) fn is_recordable(&self) -> bool {
        let turned = self.transpose().is_none_or(|turned| turned.is_recordable());
        self.is_on_device() && self.capturable && turned
    }

    /// Returns a number that no other operator has.
    pub(crate) fn key(&self) -> u64 {
        match self.transpose() {
            Some(turned) => joined_key([self.key, turned.key()]),
            None => self.key,
        }
    }

    /// Calls a function of host vectors; returns `None` for another one.
    pub(crate) fn call_on_host(&self, x: &[f64], y: &mut [f64]) -> Option<Result<()>> {
        match &self.call {
            Call::Host(call) => Some(call(x, y)),
            Call::Device(_) => None,
        }
    }

    /// Calls a function of vectors on a GPU; returns `None` for another one.
    #[cfg(feature = "cuda")]
    pub(crate) fn call_on_device(&self, vectors: &DeviceVectors) -> Option<Result<()>> {
        match &self.call {
            Call::Device(call) => Some(call(vectors)),
            Call::Host(_) => None,
        }
    }
}
