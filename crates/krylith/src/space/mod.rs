//! What a method may ask of the device that holds its vectors.
//!
//! A method is written against [`Space`] once and never names a device. Two rules make that fast on a GPU:
//!
//! * **Scalars live beside the vectors.** Reductions write into a [`Space::Scalars`] array by slot, and sweeps,
//!   basis operations and small dense steps read from it. Nothing comes back to the host inside a cycle.
//! * **A stretch of work is recorded.** [`Space::record`] runs a closure once on a CPU; on a GPU it captures the
//!   launches into a graph at the first call and replays that graph afterwards. Inside, control flow does not
//!   depend on values: a step that finds the cycle finished raises [`HALT`], and guarded launches return at once.

pub mod arnoldi;
pub mod bicgstab;
mod monitor;
mod step;
mod sweep;

pub use monitor::{History, Observer, Outcome, Progress, Stop};
pub use step::{SmallStep, StepSource};
pub use sweep::{Sweep, SweepSource};

use crate::Result;
use crate::comm::Communicator;
use std::ops::Range;

/// Precision in which matrices or bases are stored; arithmetic is always f64.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Store {
    /// 8 bytes a number.
    #[default]
    F64,
    /// 4 bytes a number, widened when loaded.
    F32,
}

impl Store {
    /// Bytes a number.
    pub fn bytes(self) -> usize {
        match self {
            Store::F64 => 8,
            Store::F32 => 4,
        }
    }
}

/// What a stretch of a solve is doing; OKP paper, Table 3.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// Products with the operator, T_Kx.
    Product,
    /// Orthogonalisation and normalisation, T_Gn.
    Orthogonalization,
    /// Preconditioner.
    Preconditioner,
    /// Waiting for other ranks: what of T_dt and T_c is not hidden.
    Communication,
    /// Residuals, corrections, small steps.
    Other,
}

/// Seconds a phase.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Phases {
    /// T_Kx.
    pub product: f64,
    /// T_Gn.
    pub orthogonalization: f64,
    /// Preconditioner.
    pub preconditioner: f64,
    /// Waiting for other ranks.
    pub communication: f64,
    /// The rest.
    pub other: f64,
}

impl Phases {
    /// Adds seconds to a phase.
    pub fn add(&mut self, phase: Phase, seconds: f64) {
        match phase {
            Phase::Product => self.product += seconds,
            Phase::Orthogonalization => self.orthogonalization += seconds,
            Phase::Preconditioner => self.preconditioner += seconds,
            Phase::Communication => self.communication += seconds,
            Phase::Other => self.other += seconds,
        }
    }
}

/// Flag slots of [`Space::Scalars`]: small integers that steps and launches share.
pub const HALT: usize = 0;
/// Flag: columns of the basis that the cycle has finished; after the small solve, those that the solution uses.
pub const COLUMNS: usize = 1;
/// Flag: why the cycle or the solve stopped, one of [`arnoldi`]'s reasons.
pub const REASON: usize = 2;
/// Flag: iterations that this cycle may take.
pub const LIMIT: usize = 3;
/// Flag: iterations that this cycle took.
pub const TAKEN: usize = 4;
/// Flag: iterations that the solve may still take.
pub const LEFT: usize = 5;
/// Flag: the stretch ended with the true residual.
pub const VERIFIED: usize = 6;
/// Number of flag slots.
pub const FLAGS: usize = 8;

/// Vectors of one length on one device (and, with a communicator beneath, of one rank's share of a length).
///
/// Slots are indices into `Scalars`. Every operation is asynchronous on a GPU; `read*` waits.
pub trait Space {
    /// A vector of [`len`](Self::len) f64.
    type Vector;
    /// Columns of the same length, stored as [`Store`] says.
    type Basis;
    /// A few f64 and [`FLAGS`] integers beside the vectors.
    type Scalars;
    /// A recorded stretch of work.
    type Recording: Default;

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
    fn basis(&self, columns: usize, store: Store) -> Result<Self::Basis>;
    /// `len` zeros and [`FLAGS`] cleared flags.
    fn scalars(&self, len: usize) -> Result<Self::Scalars>;

    /// Copies from the host; lengths must agree.
    fn write(&self, host: &[f64], to: &mut Self::Vector) -> Result<()>;
    /// Copies to the host, and waits.
    fn read(&self, from: &Self::Vector, host: &mut [f64]) -> Result<()>;
    /// `to ← from`.
    fn copy(&self, from: &Self::Vector, to: &mut Self::Vector) -> Result<()>;
    /// Writes host numbers into slots from `at` on, and flags.
    fn write_scalars(
        &self,
        to: &mut Self::Scalars,
        at: usize,
        host: &[f64],
        flags: &[i32; FLAGS],
    ) -> Result<()>;
    /// Reads `host.len()` slots from `at` on and the flags, and waits.
    fn read_scalars(
        &self,
        from: &Self::Scalars,
        at: usize,
        host: &mut [f64],
        flags: &mut [i32; FLAGS],
    ) -> Result<()>;

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

    /// The one reduction of a delayed Gram–Schmidt step: `dots ← [Vᵀw, Vᵀz, wᵀw, wᵀz, zᵀz]` over the first `j`
    /// columns; see [`arnoldi`].
    fn project_delayed(
        &self,
        v: &Self::Basis,
        j: usize,
        w: &Self::Vector,
        z: &Self::Vector,
        scalars: &mut Self::Scalars,
        layout: &arnoldi::Layout,
    ) -> Result<()>;
    /// Finishes column `j` from `w`, makes the next tentative `w` from `z`, and runs
    /// [`arnoldi::delayed`] beside it.
    fn update_delayed(
        &self,
        v: &mut Self::Basis,
        j: usize,
        w: &mut Self::Vector,
        z: &Self::Vector,
        scalars: &mut Self::Scalars,
        layout: &arnoldi::Layout,
    ) -> Result<()>;
    /// One small dense step on the scalars.
    fn step<T: SmallStep>(
        &self,
        step: T,
        scalars: &mut Self::Scalars,
        layout: &T::Layout,
        j: usize,
    ) -> Result<()>;

    /// Launches return at once while `flags[HALT]` of these scalars is set; `None` lifts that.
    fn guard(&self, scalars: Option<&Self::Scalars>);
    /// True when the guard is known to be raised; a device that records answers false.
    fn halted(&self, scalars: &Self::Scalars) -> bool;
    /// Runs `work`, or replays what it recorded under the same `key`.
    fn record(
        &self,
        recording: &mut Self::Recording,
        key: u64,
        work: impl FnMut(&Self) -> Result<()>,
    ) -> Result<()>;
    /// The value in a slot if it is at hand without waiting and this rank may act on it alone; a device that records
    /// answers `None`, and so does one rank of several, which would have to ask the others.
    fn peek(&self, scalars: &Self::Scalars, slot: usize) -> Option<f64>;
    /// What follows is counted under `phase`, where time is being kept.
    fn mark(&self, phase: Phase);
    /// Seconds spent in each phase since the last call, if time is being kept.
    fn take_phases(&self) -> Option<Phases>;
    /// How many stretches of work are given to the device before the results of the first are looked at: 0 on a CPU,
    /// 1 where a device would stand still while the host looks.
    fn lag(&self) -> usize;
    /// Sets out a copy of the first `len` slots and the flags as they are now, for [`collect`](Self::collect); at most
    /// `lag() + 1` are under way.
    fn post(&self, scalars: &mut Self::Scalars, len: usize) -> Result<()>;
    /// The oldest copy that was posted, and waits for it alone.
    fn collect(&self, scalars: &mut Self::Scalars, host: &mut [f64], flags: &mut [i32; FLAGS]) -> Result<()>;
    /// Waits for everything asked for.
    fn wait(&self) -> Result<()>;

    /// True on every rank where any rank says so. Collective.
    fn any(&self, mine: bool) -> Result<bool> {
        let mut count = [f64::from(u8::from(mine))];
        self.comm().sum(&mut count)?;
        Ok(count[0] > 0.0)
    }
}
