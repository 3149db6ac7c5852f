//! What a method may ask of the device that holds its vectors.
//!
//! A method is written against [`Space`] once and never names a device. Two rules make that fast on a GPU:
//!
//! * **Scalars live beside the vectors.** Reductions write into a [`Schedule::Scalars`] array by slot, and sweeps,
//!   basis operations and small steps read from it. Nothing comes back to the host inside a batch of iterations.
//! * **A batch is recorded.** [`Schedule::record`] runs a closure once on a CPU; on a GPU it captures the launches into a
//!   graph at the first call and replays that graph afterwards. Inside, control flow does not depend on values: a step
//!   that finds the batch finished raises [`HALT`], and guarded launches return at once.
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
//! With blocks of b unknowns and s stages, node i, component c, stage k of a vector stands at
//! `(i·b + c)·s + k`. One neighbour in a product is then one run of b·s numbers. `io` translates files of
//! other orders.

mod monitor;
pub(crate) mod plain;
mod reason;
mod schedule;
pub mod step;
mod sweep;
mod transfer;
mod unit;

pub use monitor::{History, Observer, Outcome, Progress, Stop};
pub use reason::{HUGE, REASONS, Reason};
pub use schedule::{Clock, Phase, Phases, Schedule};
pub use step::{FunctionSource, SmallStep, StepSource};
pub use sweep::{BoundSweep, Sweep, SweepSource, side_by_side};
pub use transfer::Transfer;
pub(crate) use unit::other_unit;

use crate::comm::Communicator;
use crate::{Error, Result};
use std::ops::Range;

/// Precision in which matrices or bases are stored; arithmetic is always f64.
///
/// # Examples
/// ```
/// use krylith::{Solver, Precision, matrix::Csr};
/// let a = Csr::from_triplets(2, 2, &[(0, 0, 2.0), (0, 1, 0.1), (1, 1, 3.0)])?; // 0.1 is rounded
/// let options = krylith::Options { store: Some(Precision::F32), ..krylith::Options::new().rtol(1e-12) };
/// let solution = Solver::new(&a, &options)?.solve(&[2.1, 3.0], &mut [0.0; 2])?.clone();
/// assert!(solution.converged()); // against the matrix as given
/// # Ok::<(), krylith::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Precision {
    /// 8 bytes a number.
    #[default]
    F64,
    /// 4 bytes a number, widened when loaded.
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

/// A number in (−1, 1) that depends on a seed and an index alone: splitmix64.
pub(crate) fn random(seed: u64, index: u64) -> f64 {
    (splitmix64(seed, index) >> 11) as f64 / (1u64 << 52) as f64 - 1.0
}

/// SplitMix64 (Steele, Lea and Flood 2014) of a seed and a place.
pub(crate) fn splitmix64(seed: u64, index: u64) -> u64 {
    let mut z = (seed << 32 ^ index).wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// Flag slots of [`Schedule::Scalars`]: small integers that steps and launches share. Not 0: launches under the guard
/// return at once.
pub const HALT: usize = 0;
/// Flag: columns of the basis that the cycle has finished; after the small solve, those that the solution uses.
pub const COLUMNS: usize = 1;
/// Flag: why the batch ended, the code of a [`Reason`].
pub const REASON: usize = 2;
/// Flag: iterations that this batch may take.
pub const LIMIT: usize = 3;
/// Flag: iterations that this batch took.
pub const COMPLETED: usize = 4;
/// Flag: iterations that the solve may still take.
pub const REMAINING: usize = 5;
/// Flag: the batch ended with the true residual.
pub const VERIFIED: usize = 6;
/// Flag: iterations of a full batch, for which arrays are laid out.
pub const BATCH: usize = 7;
/// Number of flag slots.
pub const FLAGS: usize = 8;

/// Most vectors of a block: of [`Space::block_products`] and its like.
pub const MOST_COLUMNS: usize = 16;

/// Refuses a block of more than [`MOST_COLUMNS`] vectors.
pub(crate) fn check_columns(columns: usize) -> Result<()> {
    match columns <= MOST_COLUMNS {
        true => Ok(()),
        false => Err(Error::invalid(format!("a block of {columns} vectors; at most {MOST_COLUMNS}"))),
    }
}

/// Sums of [`Space::block_update`] for blocks of s vectors.
pub const fn block_sums(s: usize) -> usize {
    s * (s + 3) + 1
}

/// Vectors of one length on one device (and, with a communicator beneath, of one rank's share of a length).
///
/// Slots are indices into `Scalars`. Every operation is asynchronous on a GPU; `read` waits.
///
/// # Examples
/// Code against it runs on every device. The residual of a fixed-point iteration:
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
///     space.sweep(residual, &mut scalars, [], [&vb, &vq], [&mut vr], [0])?; // (r, r) goes to slot 0, beside the vectors
///     let (mut rr, mut flags) = ([0.0], [0; FLAGS]);
///     space.read_scalars(&scalars, 0, &mut rr, &mut flags)?;
///     Ok(rr[0].sqrt())
/// }
/// assert_eq!(norm_of_difference(&Cpu::new(2, 1), &[4.0, 5.0], &[1.0, 1.0])?, 5.0);
/// # Ok::<(), krylith::Error>(())
/// ```
/// # A new device
/// What has a body here works on every device by reads, writes and sweeps; a device says better where that is faster. `PlainDevice` of the
/// tests (`tests/host/plain.rs`) implements what has none, and passes the conformance of spaces, methods, products and Jacobi.
pub trait Space: Schedule + Clock + Sized {
    /// A vector of [`len`](Self::len) f64.
    type Vector;
    /// Columns of the same length, stored as [`Precision`] says.
    type Basis;

    /// The ranks over which every reduction sums; [`Solo`](crate::comm::Solo) where nothing is distributed.
    fn comm(&self) -> &dyn Communicator;
    /// Length of a vector on this device: this rank's share.
    fn len(&self) -> usize;
    /// True when vectors have no entries.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// A vector of zeros.
    fn vector(&self) -> Result<Self::Vector>;
    /// `columns` columns of zeros.
    fn basis(&self, columns: usize, precision: Precision) -> Result<Self::Basis>;
    /// A block of `columns` vectors of zeros, at most [`MOST_COLUMNS`], with the room that sums over blocks of this width need.
    ///
    /// # Errors
    /// A device without room; too many columns.
    fn block(&self, columns: usize) -> Result<Vec<Self::Vector>> {
        plain::block(self, columns)
    }

    /// Copies from the host; lengths must agree.
    fn write(&self, host: &[f64], to: &mut Self::Vector) -> Result<()>;
    /// Copies to the host, and waits.
    fn read(&self, from: &Self::Vector, host: &mut [f64]) -> Result<()>;
    /// `to ← from`.
    fn copy(&self, from: &Self::Vector, to: &mut Self::Vector) -> Result<()> {
        plain::copy(self, from, to)
    }

    /// Random numbers in (−1, 1), which depend on the seed and their places on this device alone.
    ///
    /// # Errors
    /// What the device says.
    fn fill_random(&self, seed: u64, to: &mut Self::Vector) -> Result<()> {
        plain::fill_random(self, seed, to)
    }

    /// Waits for everything asked for.
    fn wait(&self) -> Result<()>;

    /// One fused elementwise pass: scalars in by slot `a`, vectors `x` read, `y` updated, sums out to slots `o`.
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

    /// As [`sweep`](Self::sweep), but its sums may be on their way over the ranks when it returns: they are in their slots after
    /// [`arrive`](Self::arrive), which comes before the next such sweep. A device that sums in stream order has nothing to gain.
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
    /// Waits for the sums of [`sweep_ahead`](Self::sweep_ahead) and puts them into their slots.
    fn arrive(&self, _scalars: &mut Self::Scalars) -> Result<()> {
        Ok(())
    }

    /// Dot products of columns with one vector: `to[i] ← v[columns.start + i]ᵀ x`. One reduction.
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
    /// `v[column] ← x / s`, `x ← x / s`, with s in slot `norm`.
    fn append(
        &self,
        v: &mut Self::Basis,
        column: usize,
        x: &mut Self::Vector,
        scalars: &mut Self::Scalars,
        norm: usize,
    ) -> Result<()>;

    /// Lets `write` fill column `k` as a vector: what an operator computes goes to the basis directly, on a GPU without a copy.
    ///
    /// # Errors
    /// Those of `write`; a basis stored in f32, whose columns are no vectors.
    fn with_column(
        &self,
        v: &mut Self::Basis,
        k: usize,
        write: impl FnOnce(&mut Self::Vector) -> Result<()>,
    ) -> Result<()>;

    /// Products of two vectors with columns, each other and themselves in one reduction: from slot `to` on
    /// `[Vᵀw, Vᵀz, wᵀw, wᵀz, zᵀz]` over the first `j` columns.
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
    /// Finishes column `j` from `w` and makes the next tentative `w` from `z`, with the sums that
    /// [`project_pair`](Self::project_pair) left at `from`, and runs a small step beside that, of iteration `j`.
    ///
    /// q = (w − V r)/ρ → column j, w ← (z − V t − t_j q)/ρ with ρ² = wᵀw − rᵀr and t_j = (wᵀz − rᵀt)/ρ. A step that sets
    /// [`HALT`] to `j + 2` halts what follows, and leaves this update to be done.
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
    /// Products of each of s vectors with each of s others, at most [`MOST_COLUMNS`]: `to[i·s + j] ← x[i]ᵀ y[j]`. One reduction of s²
    /// numbers.
    fn block_products(
        &self,
        x: &[Self::Vector],
        y: &[Self::Vector],
        scalars: &mut Self::Scalars,
        to: usize,
    ) -> Result<()> {
        plain::block_products(self, x, y, scalars, to)
    }
    /// Takes combinations of s vectors off s others, and sums what comes out, in one pass: `q[j] ← basis[j] − Σ b[j·s + i] q[i]` and the
    /// same of `aq` with `products`; then from slot `to` on, in one reduction of s (s + 3) + 1 numbers,
    /// `[QᵀAQ by rows from the diagonal on | (AQ)ᵀAQ likewise | Qᵀr | (AQ)ᵀr | rᵀr]`.
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
    /// One small step on the scalars; `j` is the iteration within the batch.
    fn step<T: SmallStep>(&self, step: T, scalars: &mut Self::Scalars, j: usize) -> Result<()>;

    /// True on every rank where any rank says so. Collective.
    fn any(&self, mine: bool) -> Result<bool> {
        let mut count = [f64::from(u8::from(mine))];
        self.comm().sum(&mut count)?;
        Ok(count[0] > 0.0)
    }
}
