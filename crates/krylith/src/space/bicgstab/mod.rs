//! The scalars of BiCGSTAB and the small steps on them; [`method::Bicgstab`](crate::method::Bicgstab) has the vectors.
//!
//! As in [`arnoldi`](super::arnoldi), each step is one file, `bicgstab/*.inc`, in the common subset of Rust and C++.
//!
//! # Breakdowns
//! Three denominators may vanish, and each has its name: (r̂, A p̂) (pivot), ω (stabilisation) and (r̂, r) (Lanczos). An
//! inner product vanishes where it is below [`VANISHES`] times the norms of its two vectors: it is then made of
//! rounding errors. The stretch ends before such a number divides anything that x depends on.
//!
//! With r̂ = r a vanishing ω = (A ŝ, s)/… would make the next pivot (r, A P⁻¹ r) vanish at once, and so would any
//! r orthogonal to A P⁻¹ r. After a breakdown r̂ is therefore r + σ v with the v at hand and ‖σ v‖ = ‖r‖/2.

use super::arnoldi::{ESTIMATE, HUGE, NOT_FINITE};
use super::step::{Sealed, SmallStep, StepSource};
use super::{HALT, LEFT, LIMIT, REASON, TAKEN, VERIFIED};

/// Iterations of a recorded stretch.
///
/// A stretch costs two small steps and a skipped residual, about 6 µs on a GPU; when the solve ends, what is left of it and
/// the one under way are launched for nothing, about 10 µs an iteration. Eight keeps both near 1 % of a solve of 30
/// iterations of half a millisecond.
pub const STRETCH: usize = 8;

/// Where the numbers stand in the scalars; the same struct is passed to the CUDA kernels.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Layout {
    /// ‖b − A x‖ at the last restart; ‖r̂‖ is between half of it and one and a half.
    pub norm: usize,
    /// ‖r‖ at which the solve ends.
    pub target: usize,
    /// Smallest ‖b − A x‖ that was computed.
    pub best: usize,
    /// ‖r‖ by recurrence after iteration j of the stretch, j from 1.
    pub history: usize,
    /// (r̂, r).
    pub rho: usize,
    /// ρ/(r̂, v).
    pub alpha: usize,
    /// (t, s)/(t, t).
    pub omega: usize,
    /// Share of the last direction in the next one.
    pub beta: usize,
    /// (r̂, v).
    pub sigma: usize,
    /// (v, v).
    pub vv: usize,
    /// (t, s); behind it (t, t), (s, s), (r̂, s) and (r̂, t), so that ranks sum them in one message.
    pub ts: usize,
    /// (t, t).
    pub tt: usize,
    /// (s, s).
    pub ss: usize,
    /// (r̂, s).
    pub rs: usize,
    /// (r̂, t).
    pub rt: usize,
    /// (r̂, r) after the iteration; behind it (r, r).
    pub rho_next: usize,
    /// (r, r).
    pub rr: usize,
    /// ‖r‖ as last known.
    pub size: usize,
    /// Share of v in r̂ at a restart.
    pub shift: usize,
    /// [`STRETCH`].
    pub stretch: usize,
    /// Numbers in all.
    pub len: usize,
}

impl Default for Layout {
    fn default() -> Self {
        let at = 4 + STRETCH;
        Self {
            norm: 0,
            target: 1,
            best: 2,
            history: 3,
            rho: at,
            alpha: at + 1,
            omega: at + 2,
            beta: at + 3,
            sigma: at + 4,
            vv: at + 5,
            ts: at + 6,
            tt: at + 7,
            ss: at + 8,
            rs: at + 9,
            rt: at + 10,
            rho_next: at + 11,
            rr: at + 12,
            stretch: STRETCH,
            size: at + 13,
            shift: at + 14,
            len: at + 15,
        }
    }
}

impl Layout {
    /// Slots from 0 that the host reads after a stretch.
    pub fn header(&self) -> usize {
        self.rho
    }
}

/// Reason: (r̂, A p̂) vanishes; the iteration was not taken. This one and those of greater number are breakdowns.
pub const PIVOT: i32 = 4;
/// Reason: ω vanishes, A ŝ being orthogonal to s.
pub const STABILIZATION: i32 = 5;
/// Reason: (r̂, r) vanishes.
pub const LANCZOS: i32 = 6;
/// Reason: ‖r‖ has grown past [`GROWTH`], and its digits are those of its peak.
pub const GREW: i32 = 7;
/// Cosine of the angle between two vectors whose inner product is rounding noise.
pub const VANISHES: f64 = 1e-14;
/// Growth of ‖r‖ since the restart that leaves r no digit of b − A x to speak of.
pub const GROWTH: f64 = 1e8;
/// Share of (s, s) that must remain for (r, r) to be known from a difference to eight digits.
pub const TRUSTED: f64 = 1e-8;

/// The steps a device can run on these scalars.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Step {
    /// The true residual has become r and p; halts what follows if an earlier one was smaller.
    Restart,
    /// Begins a stretch, or halts it where there is nothing to do.
    Begin,
    /// α and ω.
    Coefficients,
    /// α and ω, and from the same sums the norm and the β that follow: merged reductions.
    Merged,
    /// β and the norm from sums over the new r, and the end of the iteration: classical reductions.
    Turn,
    /// The end of an iteration.
    End,
    /// The end of a stretch: lets the true residual be computed where it is wanted.
    Verify,
}

impl Step {
    /// Every step.
    pub const ALL: [Step; 7] =
        [Step::Restart, Step::Begin, Step::Coefficients, Step::Merged, Step::Turn, Step::End, Step::Verify];
}

impl Sealed for Step {}

impl SmallStep for Step {
    type Layout = Layout;

    fn run(self, s: &mut [f64], flags: &mut [i32], l: &Layout, _: usize) {
        match self {
            Step::Restart => restart(s, flags, l),
            Step::Begin => begin(s, flags, l),
            Step::Coefficients => {
                coefficients(s, flags, l);
            }
            Step::Merged => {
                if coefficients(s, flags, l) {
                    predict(s, flags, l);
                    turn(s, flags, l);
                }
            }
            Step::Turn => {
                turn(s, flags, l);
                end(flags);
            }
            Step::End => end(flags),
            Step::Verify => verify(s, flags, l),
        }
    }

    fn source(self) -> StepSource {
        let name = match self {
            Step::Restart => "STEP_RESTART",
            Step::Begin => "STEP_BEGIN",
            Step::Coefficients => "STEP_COEFFICIENTS",
            Step::Merged => "STEP_MERGED",
            Step::Turn => "STEP_TURN",
            Step::End => "STEP_END",
            Step::Verify => "STEP_VERIFY",
        };
        StepSource { file: "bicgstab.cu", name, threads: 1 }
    }
}

// What the common subset calls; kernels/bicgstab.cu has the twins.
fn sqrt(x: f64) -> f64 {
    x.sqrt()
}
fn abs(x: f64) -> f64 {
    x.abs()
}
fn taken(flags: &[i32]) -> usize {
    flags[TAKEN] as usize
}
fn longest(l: &Layout) -> i32 {
    l.stretch as i32
}

#[allow(unused_parens)]
fn restart(s: &mut [f64], flags: &mut [i32], l: &Layout) {
    include!("restart.inc")
}

#[allow(unused_parens)]
fn begin(s: &mut [f64], flags: &mut [i32], l: &Layout) {
    include!("begin.inc")
}

#[allow(unused_parens, clippy::needless_return)]
fn coefficients(s: &mut [f64], flags: &mut [i32], l: &Layout) -> bool {
    include!("coefficients.inc")
}

#[allow(unused_parens)]
fn predict(s: &mut [f64], flags: &mut [i32], l: &Layout) {
    include!("predict.inc")
}

#[allow(unused_parens)]
fn turn(s: &mut [f64], flags: &mut [i32], l: &Layout) {
    include!("turn.inc")
}

#[allow(unused_parens)]
fn end(flags: &mut [i32]) {
    include!("end.inc")
}

#[allow(unused_parens)]
fn verify(s: &mut [f64], flags: &mut [i32], l: &Layout) {
    include!("verify.inc")
}
