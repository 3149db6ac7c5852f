//! The operations that a method needs from the device that holds its vectors.
//!
//! A method is written once against [`Space`] and never names a device. Two rules make that fast on a GPU:
//!
//! * **Scalars are stored beside the vectors.** Reductions write to slots of a [`Schedule::Scalars`] array;
//!   sweeps, basis operations and scalar steps read from them. Nothing returns to the host within a batch of
//!   iterations.
//! * **A batch is recorded.** [`Schedule::record`] runs a closure once on a CPU. On a GPU the first call
//!   captures the launches in a graph, and later calls replay that graph. The control flow inside does not
//!   depend on values: a step that finds the batch finished raises [`HALT`], and guarded launches return at
//!   once.
//!
//! # Why
//! Launches cost too much for the textbook's loops. On an H200 a small sweep with a sum takes 4.4 µs as a
//! launch and 2.6 µs in a graph. An iteration of GMRES at 1.2 million unknowns takes 145 to 246 µs
//! (`bench/runs/2026-11-21-h200`). A loop that computes α on the host also waits for two sums in every
//! iteration. Kernels fused by hand for each method avoid that, but then each method is a GPU project of its
//! own.
//!
//! # Cost
//! * Bodies of sweeps and steps keep to a small subset of Rust and C++. rustc checks one side, the NVRTC test
//!   the other.
//! * On a GPU, and with several ranks, observers and interrupts are asked once a batch. `History` has every
//!   residual.
//! * After `HALT` the other launches of the graph still run and do nothing: at most one batch in a solve.
//!
//! # Ranks
//! Distribution has two parts. A space sums over its communicator wherever it reduces, and an operator with a
//! halo exchanges ghosts. Methods and preconditioners have no code for it. All ranks hold the same sums, bit
//! by bit, so they take the same branches. [`Space::any`] makes common what only one host knows, such as
//! Ctrl-C.
//!
//! # Layout
//! With blocks of b unknowns and s stages, node i, component c, stage k of a vector is at index
//! `(i·b + c)·s + k`. One neighbour in a product is then one run of b·s numbers. `io` translates files of
//! other orders.

mod columns;
mod criterion;
mod gather;
mod held;
mod monitor;
pub(crate) mod plain;
mod reason;
mod schedule;
pub mod step;
mod sweep;
mod transfer;
mod unit;

pub use columns::Columns;
pub use criterion::{Criterion, RelativeTo};
pub use gather::Gather;
#[cfg(feature = "cuda")]
pub(crate) use held::two;
#[doc(hidden)]
pub use held::{HeldVectors, HostVectors};
pub use monitor::{History, Observer, Outcome, Progress, Stop};
pub(crate) use plain::check_pairs;
pub use reason::{HUGE, REASONS, Reason, UNSTABLE};
pub use schedule::{Clock, Phase, Phases, Schedule};
pub use step::{FunctionSource, SmallStep, StepSource};
pub(crate) use sweep::sweep_bound;
pub use sweep::{BoundSweep, Sweep, SweepSource, side_by_side};
pub use transfer::Transfer;
pub(crate) use unit::other_unit;

use crate::comm::Communicator;
use crate::{Error, Result};
use std::ops::Range;

/// Precision in which matrices or bases are stored. Arithmetic is in f64, except in cycles of multigrid.
///
/// # Examples
/// ```
/// use krylith::{Solver, Precision, matrix::Csr};
/// let a = Csr::from_triplets(2, 2, &[(0, 0, 2.0), (0, 1, 0.1), (1, 1, 3.0)])?; // 0.1 is rounded
/// let options = krylith::Options::new().rtol(1e-12).precision(Precision::F32);
/// let solution = Solver::new(&a, &options)?.solve(&[2.1, 3.0], &mut [0.0; 2])?.clone();
/// assert!(solution.converged()); // against the matrix as given
/// # Ok::<(), krylith::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Precision {
    /// 8 bytes per number.
    #[default]
    F64,
    /// 4 bytes per number, widened when loaded.
    F32,
}

krylith_base::names! { Precision, "precision": F64 => "f64", F32 => "f32" }

impl Precision {
    /// Bytes a number.
    pub fn bytes(self) -> usize {
        match self {
            Precision::F64 => 8,
            Precision::F32 => 4,
        }
    }
}

/// Precision in which a preconditioner is stored, and in which it computes if it can.
///
/// # Examples
/// ```
/// use krylith::Options;
/// let options = Options { precond_precision: Some("bf16".parse()?), ..Options::new() };
/// assert_eq!(options.precond_precision, Some(krylith_core::PrecondPrecision::Bf16));
/// assert_eq!(options.to_string(), "precond_precision=bf16");
/// # Ok::<(), krylith::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum PrecondPrecision {
    /// Numbers of 8 bytes.
    #[default]
    F64,
    /// Numbers of 4 bytes. Cycles of multigrid, incomplete factors and their vectors are in f32.
    F32,
    /// As f32, but matrices of multigrid cycles and their transfers take 2 bytes per number.
    Bf16,
}

krylith_base::names! { PrecondPrecision, "precision": F64 => "f64", F32 => "f32", Bf16 => "bf16" }

impl PrecondPrecision {
    /// Returns the precision of vectors, and of everything that has no form in bf16.
    pub fn of_vectors(self) -> Precision {
        match self {
            PrecondPrecision::F64 => Precision::F64,
            PrecondPrecision::F32 | PrecondPrecision::Bf16 => Precision::F32,
        }
    }
}

impl From<Precision> for PrecondPrecision {
    fn from(precision: Precision) -> Self {
        match precision {
            Precision::F64 => Self::F64,
            Precision::F32 => Self::F32,
        }
    }
}

/// Returns a number in (−1, 1) that depends only on a seed and an index, by SplitMix64.
pub(crate) fn random(seed: u64, index: u64) -> f64 {
    (splitmix64(seed, index) >> 11) as f64 / (1u64 << 52) as f64 - 1.0
}

/// SplitMix64 (Steele, Lea and Flood 2014) of a seed and an index.
pub(crate) fn splitmix64(seed: u64, index: u64) -> u64 {
    let mut z = (seed << 32 ^ index).wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// Flag slots of [`Schedule::Scalars`]: small integers that steps and launches share. If this flag is not 0,
/// guarded launches return at once.
pub const HALT: usize = 0;
/// Flag: number of basis columns that the cycle has finished; after the small solve, of those that the
/// solution uses.
pub const COLUMNS: usize = 1;
/// Flag: the reason why the batch ended, as the code of a [`Reason`].
pub const REASON: usize = 2;
/// Flag: number of iterations that this batch may take.
pub const LIMIT: usize = 3;
/// Flag: number of iterations that this batch took.
pub const COMPLETED: usize = 4;
/// Flag: number of iterations that the solve may still take.
pub const REMAINING: usize = 5;
/// Flag: 1 if the batch ended with the true residual.
pub const VERIFIED: usize = 6;
/// Flag: number of iterations of a full batch; it fixes the offsets of arrays.
pub const BATCH: usize = 7;
/// Number of flag slots.
pub const FLAGS: usize = 8;

/// Largest number of vectors of a block, as in [`Space::block_products`].
pub const MOST_COLUMNS: usize = 16;

/// Refuses a block of more than [`MOST_COLUMNS`] vectors.
pub(crate) fn check_columns(columns: usize) -> Result<()> {
    match columns <= MOST_COLUMNS {
        true => Ok(()),
        false => Err(Error::invalid(format!(
            "a block has {columns} vectors; at most {MOST_COLUMNS} are supported"
        ))),
    }
}

/// Returns the number of sums of [`Space::block_update`] for blocks of s vectors.
pub const fn block_sums(s: usize) -> usize {
    s * (s + 3) + 1
}

/// Vectors of one length on one device; with several ranks, of this rank's share of that length.
///
/// Slots are indices into `Scalars`. Every operation is asynchronous on a GPU; `read` waits.
///
/// # Examples
/// Code that is generic over `Space` runs on every device. The residual of a fixed-point iteration:
/// ```
/// use krylith::device::Cpu;
/// use krylith::operator::Space;
/// use krylith_core::space::FLAGS;
/// krylith_core::sweeps! {
///     /// Its passes over vectors.
///     const SWEEPS;
///     /// r = b − q, and (r, r).
///     residual: () [b, q] [r] -> [rr] { r = b - q; rr += r * r; }
/// }
/// fn norm_of_difference<S: Space>(space: &S, b: &[f64], q: &[f64]) -> krylith::Result<f64> {
///     let (mut vb, mut vq, mut vr) = (space.vector()?, space.vector()?, space.vector()?);
///     space.write(b, &mut vb)?;
///     space.write(q, &mut vq)?;
///     let mut scalars = space.scalars(1)?;
///     // (r, r) goes to slot 0.
///     space.sweep(residual, &mut scalars, [], [&vb, &vq], [&mut vr], [0])?;
///     let (mut rr, mut flags) = ([0.0], [0; FLAGS]);
///     space.read_scalars(&scalars, 0, &mut rr, &mut flags)?;
///     Ok(rr[0].sqrt())
/// }
/// assert_eq!(norm_of_difference(&Cpu::new(2, 1), &[4.0, 5.0], &[1.0, 1.0])?, 5.0);
/// # Ok::<(), krylith::Error>(())
/// ```
/// # A new device
/// Methods that have a default body here work on every device, by reads, writes and sweeps; a device
/// overrides those that it can do faster. `PlainDevice` of the tests (`tests/host/plain.rs`) implements only
/// the required methods, and passes the conformance tests of spaces, methods, products and Jacobi.
pub trait Space: Schedule + Clock + Sized {
    /// A vector of [`len`](Self::len) numbers in f64.
    type Vector;
    /// Columns of the same length, stored in the precision of a [`Precision`].
    type Basis;

    /// Returns the communicator over which every reduction sums; [`Solo`](crate::comm::Solo) if nothing is
    /// distributed.
    fn comm(&self) -> &dyn Communicator;
    /// Returns the length of a vector on this device: this rank's share.
    fn len(&self) -> usize;
    /// Returns true if vectors have no entries.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// Allocates a vector of zeros.
    fn vector(&self) -> Result<Self::Vector>;
    /// Allocates `columns` columns of zeros.
    fn basis(&self, columns: usize, precision: Precision) -> Result<Self::Basis>;
    /// Allocates a block of `columns` vectors of zeros, at most [`MOST_COLUMNS`], and the workspace for sums
    /// over blocks of this width.
    ///
    /// # Errors
    /// Out of device memory; too many columns.
    fn block(&self, columns: usize) -> Result<Vec<Self::Vector>> {
        plain::block(self, columns)
    }

    /// Copies from the host. The lengths must agree.
    fn write(&self, host: &[f64], to: &mut Self::Vector) -> Result<()>;
    /// Copies to the host, and waits.
    fn read(&self, from: &Self::Vector, host: &mut [f64]) -> Result<()>;
    /// `to ← from`.
    fn copy(&self, from: &Self::Vector, to: &mut Self::Vector) -> Result<()> {
        plain::copy(self, from, to)
    }

    /// Multiplies complex numbers by i, or by −i if `back` is true. A number is a pair of neighbours: (x, y)
    /// becomes (−y, x).
    ///
    /// # Errors
    /// An odd number of entries; errors of the device.
    fn turn(&self, from: &Self::Vector, to: &mut Self::Vector, back: bool) -> Result<()> {
        plain::turn(self, from, to, back)
    }

    /// Fills a vector with random numbers in (−1, 1) that depend only on the seed and on their positions on
    /// this device.
    ///
    /// # Errors
    /// Errors of the device.
    fn fill_random(&self, seed: u64, to: &mut Self::Vector) -> Result<()> {
        plain::fill_random(self, seed, to)
    }

    /// Waits for all work that was launched.
    fn wait(&self) -> Result<()>;

    /// Makes one fused elementwise pass: reads scalars from slots `a` and vectors `x`, updates vectors `y`,
    /// writes sums to slots `o`.
    fn sweep<K, const A: usize, const X: usize, const Y: usize, const O: usize>(
        &self,
        kernel: K,
        scalars: &mut Self::Scalars,
        a: [usize; A],
        x: [&Self::Vector; X],
        y: [&mut Self::Vector; Y],
        o: [usize; O],
    ) -> Result<()>
    where
        K: Sweep<A, X, Y, O>;

    /// Does the same as [`sweep`](Self::sweep), but the sums may still be in transit between ranks when it
    /// returns. They are in their slots after [`arrive`](Self::arrive), which must precede the next such
    /// sweep. A device that sums in stream order has nothing to gain.
    fn sweep_ahead<K, const A: usize, const X: usize, const Y: usize, const O: usize>(
        &self,
        kernel: K,
        scalars: &mut Self::Scalars,
        a: [usize; A],
        x: [&Self::Vector; X],
        y: [&mut Self::Vector; Y],
        o: [usize; O],
    ) -> Result<()>
    where
        K: Sweep<A, X, Y, O>,
    {
        self.sweep(kernel, scalars, a, x, y, o)
    }
    /// Waits for the sums of [`sweep_ahead`](Self::sweep_ahead) and writes them to their slots.
    fn arrive(&self, _scalars: &mut Self::Scalars) -> Result<()> {
        Ok(())
    }

    /// Computes dot products of columns with one vector: `to[i] ← v[columns.start + i]ᵀ x`. One reduction.
    fn project(
        &self,
        v: &Self::Basis,
        columns: Range<usize>,
        x: &Self::Vector,
        scalars: &mut Self::Scalars,
        to: usize,
    ) -> Result<()>;
    /// `x ← x − Σ from[i] v[columns.start + i]`, and `norm2 ← xᵀx` if a slot is given.
    fn subtract(
        &self,
        v: &Self::Basis,
        columns: Range<usize>,
        x: &mut Self::Vector,
        scalars: &mut Self::Scalars,
        from: usize,
        norm2: Option<usize>,
    ) -> Result<()>;
    /// `x ← Σ from[i] v[i]` over the first `flags[COLUMNS]` columns.
    fn expand(
        &self,
        v: &Self::Basis,
        x: &mut Self::Vector,
        scalars: &mut Self::Scalars,
        from: usize,
    ) -> Result<()>;
    /// `v[column] ← x / s`, `x ← x / s`, with s from slot `norm`.
    fn append(
        &self,
        v: &mut Self::Basis,
        column: usize,
        x: &mut Self::Vector,
        scalars: &mut Self::Scalars,
        norm: usize,
    ) -> Result<()>;

    /// Lets `write` fill column `k` as a vector, so that an operator writes its result directly to the basis;
    /// on a GPU without a copy.
    ///
    /// # Errors
    /// An error of `write`; a basis stored in f32, whose columns are not vectors.
    fn with_column(
        &self,
        v: &mut Self::Basis,
        k: usize,
        write: impl FnOnce(&mut Self::Vector) -> Result<()>,
    ) -> Result<()>;

    /// Computes inner products of two vectors with columns, each other and themselves in one reduction: from
    /// slot `to` on `[Vᵀw, Vᵀz, wᵀw, wᵀz, zᵀz]` over the first `j` columns.
    fn project_pair(
        &self,
        v: &Self::Basis,
        j: usize,
        w: &Self::Vector,
        z: &Self::Vector,
        scalars: &mut Self::Scalars,
        to: usize,
    ) -> Result<()> {
        plain::project_pair(self, v, j, [w, z], scalars, to)
    }
    /// Finishes column `j` from `w` and computes the next tentative `w` from `z`, with the sums that
    /// [`project_pair`](Self::project_pair) wrote at `from`. Runs a scalar step of iteration `j` beside that.
    ///
    /// q = (w − V r)/ρ → column j, w ← (z − V t − t_j q)/ρ with ρ² = wᵀw − rᵀr and t_j = (wᵀz − rᵀt)/ρ. A
    /// step that sets [`HALT`] to `j + 2` halts all later work, but this update still runs.
    fn update_pair<T: SmallStep>(
        &self,
        v: &mut Self::Basis,
        j: usize,
        w: &mut Self::Vector,
        z: &Self::Vector,
        scalars: &mut Self::Scalars,
        from: usize,
        beside: T,
    ) -> Result<()>;
    /// Computes the inner products of each of s vectors with each of s others, at most [`MOST_COLUMNS`]:
    /// `to[i·s + j] ← x[i]ᵀ y[j]`. One reduction of s² numbers.
    fn block_products(
        &self,
        x: &[Self::Vector],
        y: &[Self::Vector],
        scalars: &mut Self::Scalars,
        to: usize,
    ) -> Result<()> {
        plain::block_products(self, x, y, scalars, to)
    }
    /// Subtracts combinations of s vectors from s others, and sums the results, in one pass: `q[j] ← basis[j]
    /// − Σ b[j·s + i] q[i]`, and the same for `aq` with `products`. Then it computes from slot `to` on, in
    /// one reduction of s (s + 3) + 1 numbers, `[QᵀAQ by rows from the diagonal on | (AQ)ᵀAQ likewise | Qᵀr |
    /// (AQ)ᵀr | rᵀr]`.
    fn block_update(
        &self,
        basis: &[Self::Vector],
        products: &[Self::Vector],
        r: &Self::Vector,
        q: &mut [Self::Vector],
        aq: &mut [Self::Vector],
        scalars: &mut Self::Scalars,
        b: usize,
        to: usize,
    ) -> Result<()> {
        plain::block_update(self, [basis, products], r, [q, aq], scalars, b, to)
    }
    /// `x ← x + Σ a[i] q[i]`, `r ← r − Σ a[i] aq[i]`.
    fn block_advance(
        &self,
        q: &[Self::Vector],
        aq: &[Self::Vector],
        x: &mut Self::Vector,
        r: &mut Self::Vector,
        scalars: &mut Self::Scalars,
        a: usize,
    ) -> Result<()> {
        plain::block_advance(self, [q, aq], [x, r], scalars, a)
    }
    /// Runs one scalar step; `j` is the iteration within the batch.
    fn step<T: SmallStep>(&self, step: T, scalars: &mut Self::Scalars, j: usize) -> Result<()>;

    /// Returns true on every rank if `mine` is true on any rank. Collective.
    fn any(&self, mine: bool) -> Result<bool> {
        let mut count = [f64::from(u8::from(mine))];
        self.comm().sum(&mut count)?;
        Ok(count[0] > 0.0)
    }
}
