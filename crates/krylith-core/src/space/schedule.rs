//! Launching work on a device: recorded batches, the guard that ends them early, read-backs, and timing by
//! phase.
//!
//! # Batches without branches
//! A recorded batch cannot branch on the host. So a step that finds the batch finished sets a `Reason` and
//! raises [`HALT`], and guarded launches then return at once. They cost their launch and move no data. The
//! step that asks for the true residual runs outside the guard and lowers the flag.
//!
//! Conditional WHILE nodes would end a graph early. On an H200 they cost 3.2 to 4.0 µs a round, which is more
//! than they save from about 60 iterations on (`bench/runs/2026-11-22-h200-methods`). So batches stay
//! unrolled.
//!
//! If a device keeps time by phase, it launches work one by one, with events between, and records nothing.

use super::{FLAGS, HALT};
use crate::Result;

/// Phase of a solve; OKP paper, Table 3.
///
/// # Examples
/// ```
/// use krylith_core::space::{Phase, Phases};
/// let mut phases = Phases::default();
/// phases.add(Phase::Product, 0.25);
/// phases.add(Phase::Product, 0.25);
/// assert_eq!(phases.product, 0.5);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// Products with the operator, T_Kx of the paper.
    Product,
    /// Orthogonalisation and normalisation, T_Gn of the paper.
    Orthogonalization,
    /// Preconditioner.
    Preconditioner,
    /// Waiting for other ranks: the part of T_dt and T_c that is not hidden.
    Communication,
    /// Residuals, corrections and scalar steps.
    Other,
}

/// Seconds spent in each phase.
///
/// # Examples
/// ```
/// use krylith::{Solver, matrix::Csr};
/// let a = Csr::from_triplets(2, 2, &[(0, 0, 2.0), (0, 1, 1.0), (1, 1, 3.0)])?;
/// let mut solver = Solver::new(&a, &"device=cpu".parse()?)?;
/// if let Some(phases) = solver.solve(&[3.0, 3.0], &mut [0.0; 2])?.phases {
///     println!("products {:.1e} s, preconditioner {:.1e} s", phases.product, phases.preconditioner);
/// }
/// # Ok::<(), krylith::Error>(())
/// ```
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
    /// All other work.
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

/// Measures time by phase, on devices that can.
///
/// # Examples
/// ```
/// use krylith::device::Cpu;
/// use krylith::operator::Clock;
/// use krylith_core::space::Phase;
/// let space = Cpu::new(1000, 1);
/// space.take_phases(); // from here on
/// space.mark(Phase::Product);
/// // … a product …
/// space.mark(Phase::Other);
/// assert!(space.take_phases().is_none_or(|phases| phases.preconditioner == 0.0));
/// ```
pub trait Clock {
    /// Counts the following work under `phase`, if time is measured.
    fn mark(&self, phase: Phase);
    /// Returns the seconds spent in each phase since the last call, if time is measured.
    fn take_phases(&self) -> Option<Phases>;
}

/// Launches work on a device: at once on a CPU, recorded and replayed on a GPU.
///
/// # Examples
/// ```
/// use krylith::device::Cpu;
/// use krylith::operator::Schedule;
/// use krylith_core::space::FLAGS;
/// let space = Cpu::new(1000, 1);
/// let mut scalars = space.scalars(3)?;
/// space.write_scalars(&mut scalars, 1, &[2.5], &[0; FLAGS])?; // slot 1
/// let (mut numbers, mut flags) = ([0.0; 3], [0; FLAGS]);
/// space.read_scalars(&scalars, 0, &mut numbers, &mut flags)?;
/// assert_eq!(numbers, [0.0, 2.5, 0.0]);
/// # Ok::<(), krylith::Error>(())
/// ```
pub trait Schedule {
    /// A few f64 numbers and [`FLAGS`] integers, stored beside the vectors.
    type Scalars;
    /// A recorded batch of work.
    type Recording: Default;

    /// Allocates `len` zeros and [`FLAGS`] cleared flags.
    fn scalars(&self, len: usize) -> Result<Self::Scalars>;
    /// Writes host numbers to slots from `at` on, and the flags.
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

    /// From here on, work does nothing while `flags[HALT]` of these scalars is set; `None` lifts that. The
    /// guard belongs to the device's queue: it applies to the work of every space on that device.
    fn guard(&self, scalars: Option<&Self::Scalars>);
    /// Takes the scalars of several solves whose bit is set in `which`, for
    /// [`guard_watched`](Self::guard_watched).
    fn watch(&self, _scalars: &[Self::Scalars], _which: u32) {}
    /// From here on, work does nothing while the flags of all watched scalars are set now. A device that
    /// cannot know this without waiting does the work.
    ///
    /// # Errors
    /// A launch that fails.
    fn guard_watched(&self) -> Result<()> {
        self.guard(None);
        Ok(())
    }
    /// Returns true if the guard is known to be raised; a device that records returns false.
    fn halted(&self, scalars: &Self::Scalars) -> bool {
        let mut flags = [0; FLAGS];
        self.read_scalars(scalars, 0, &mut [], &mut flags).is_ok() && flags[HALT] != 0
    }
    /// Runs `work`, or replays the recording that it made under the same `key`; without a key nothing is
    /// recorded.
    fn record(
        &self,
        recording: &mut Self::Recording,
        key: Option<u64>,
        mut work: impl FnMut(&Self) -> Result<()>,
    ) -> Result<()> {
        let _ = (recording, key);
        work(self)
    }
    /// Returns how many launches `work` makes, counted without running them, and loads every kernel; `None`
    /// if nothing is recorded.
    fn launches(&self, work: impl FnMut(&Self) -> Result<()>) -> Result<Option<usize>> {
        let _ = work;
        Ok(None)
    }
    /// Returns the value in a slot if it is available without waiting and this rank may act on it alone. A
    /// device that records returns `None`, and so does one rank of several, which would have to agree with
    /// the others.
    fn peek(&self, scalars: &Self::Scalars, slot: usize) -> Option<f64> {
        let _ = (scalars, slot);
        None
    }
    /// Returns how many batches are launched before the host looks at the results of the first: 0 on a CPU, 1
    /// on a device that would otherwise idle while the host looks.
    fn pipeline_depth(&self) -> usize {
        0
    }
    /// Starts a copy of the first `len` slots and the flags as they are now, for
    /// [`take_readback`](Self::take_readback). At most `pipeline_depth() + 1` copies may be in flight.
    fn enqueue_readback(&self, scalars: &mut Self::Scalars, len: usize) -> Result<()> {
        let _ = (scalars, len); // nothing runs ahead: the values are read when they are taken
        Ok(())
    }
    /// Waits for the oldest copy that was started, and returns it.
    fn take_readback(
        &self,
        scalars: &mut Self::Scalars,
        host: &mut [f64],
        flags: &mut [i32; FLAGS],
    ) -> Result<()> {
        self.read_scalars(scalars, 0, host, flags)
    }
}
