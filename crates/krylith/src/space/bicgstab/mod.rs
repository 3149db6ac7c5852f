//! The scalars of BiCGSTAB and the small steps on them; [`method::Bicgstab`](crate::method::Bicgstab) has the vectors.
//!
//! As in [`arnoldi`](super::arnoldi), each step is one file, `bicgstab/*.inc`, in the common subset of Rust and C++.
//!
//! # Breakdowns
//! Three denominators may vanish, and each has its name: (r̂, A p̂) (pivot), ω (stabilisation) and (r̂, r) (Lanczos). An
//! inner product vanishes where it is below [`VANISHES`] times the norms of its two vectors: it is then made of
//! rounding errors. The stretch ends before such a number divides anything that x depends on.
//!
//! With r̂ = r the first pivot of a restart is (r, A P⁻¹ r): after a vanishing ω, where r is s, it vanishes at once, and so
//! it does for a b orthogonal to A P⁻¹ b. After a breakdown r̂ is therefore r + σ v with the v at hand and ‖σ v‖ = ‖r‖/2.

use super::arnoldi::{ESTIMATE, HUGE, NOT_FINITE};
use super::step::{Sealed, SmallStep, StepSource};
use super::{HALT, LEFT, LIMIT, REASON, TAKEN, VERIFIED};

/// Iterations of a recorded stretch.
///
/// A stretch costs two small steps and a residual that is mostly skipped, some five launches; when the solve ends, what is left
/// of it and the one under way are launched for nothing, about ten launches an iteration. By the launch costs in
/// ARCHITECTURE.md (1 to 1.5 µs each in a graph; an estimate) eight keeps both near 1 % of 30 iterations of half a millisecond.
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

#[cfg(test)]
mod tests {
    use super::super::FLAGS;
    use super::*;

    /// ‖r̂‖ = 2, ρ = 4, (r̂, v) = 2, (v, v) = 1, (t, s) = 6, (t, t) = 4, (s, s) = 10, (r̂, s) = 0.5, (r̂, t) = 1.
    fn state() -> (Layout, Vec<f64>, [i32; FLAGS]) {
        let l = Layout::default();
        let mut s = vec![f64::NAN; l.len];
        for (slot, value) in [(l.norm, 2.0), (l.target, 0.1), (l.best, 2.0), (l.rho, 4.0), (l.size, 2.0)] {
            s[slot] = value;
        }
        for (slot, value) in [(l.sigma, 2.0), (l.vv, 1.0), (l.ts, 6.0), (l.tt, 4.0), (l.ss, 10.0)] {
            s[slot] = value;
        }
        (s[l.rs], s[l.rt]) = (0.5, 1.0);
        let mut flags = [0; FLAGS];
        flags[LEFT] = 3;
        Step::Begin.run(&mut s, &mut flags, &l, 0);
        assert_eq!((flags[LIMIT], flags[HALT]), (3, 0));
        (l, s, flags)
    }

    #[test]
    fn an_iteration_by_hand() {
        for step in [Step::Merged, Step::Coefficients] {
            let (l, mut s, mut flags) = state();
            step.run(&mut s, &mut flags, &l, 1);
            assert_eq!((s[l.alpha], s[l.omega]), (2.0, 1.5));
            if step == Step::Coefficients {
                // What a pass over the new r would sum.
                (s[l.rho_next], s[l.rr]) = (-1.0, 1.0);
                Step::Turn.run(&mut s, &mut flags, &l, 1);
            } else {
                Step::End.run(&mut s, &mut flags, &l, 1);
            }
            // ρ′ = 0.5 − 1.5·1, ‖r‖² = 10 − 1.5·6, β = ρ′/ρ · α/ω.
            assert_eq!((s[l.rho], s[l.history + 1], s[l.size]), (-1.0, 1.0, 1.0));
            assert!((s[l.beta] + 1.0 / 3.0).abs() < 1e-15);
            assert_eq!((flags[TAKEN], flags[REASON], flags[HALT]), (1, 0, 0));
            Step::Verify.run(&mut s, &mut flags, &l, 0);
            assert_eq!((flags[LEFT], flags[HALT], flags[VERIFIED]), (2, 1, 0), "nothing to verify");
        }
    }

    #[test]
    fn every_reason_by_hand() {
        type Spoil = fn(&mut [f64], &Layout);
        let cases: [(&str, Spoil, i32, i32); 8] = [
            ("pivot", |s, l| s[l.sigma] = 1e-14, PIVOT, 0),
            ("v = 0", |s, l| (s[l.sigma], s[l.vv]) = (0.0, 0.0), PIVOT, 0),
            ("NaN in v", |s, l| (s[l.sigma], s[l.vv]) = (f64::NAN, f64::NAN), NOT_FINITE, 0),
            ("NaN in t", |s, l| s[l.tt] = f64::NAN, NOT_FINITE, 0),
            ("A s orthogonal to s", |s, l| s[l.ts] = 6e-14, STABILIZATION, 1),
            ("(r^, r) = 0", |s, l| s[l.rs] = 1.5, LANCZOS, 1),
            ("cancellation", |s, l| s[l.ss] = 9.0 + 1e-8, ESTIMATE, 1),
            ("growth", |s, l| s[l.ss] = 1e17, GREW, 1),
        ];
        for (name, spoil, reason, taken) in cases {
            let (l, mut s, mut flags) = state();
            spoil(&mut s, &l);
            Step::Merged.run(&mut s, &mut flags, &l, 1);
            assert_eq!((flags[REASON], flags[TAKEN]), (reason, taken), "{name}");
            assert_eq!(flags[HALT], 1 - taken, "{name}: x is updated where the iteration was taken");
            Step::End.run(&mut s, &mut flags, &l, 1);
            assert_eq!(flags[HALT], 1, "{name}");
            Step::Verify.run(&mut s, &mut flags, &l, 0);
            assert_eq!((flags[HALT], flags[VERIFIED]), (0, 1), "{name}");
            let shifted = reason >= PIVOT && name != "v = 0";
            assert_eq!(s[l.shift], if shifted { 0.5 * s[l.size] } else { 0.0 }, "{name}");
            // The true residual: kept if it is the smallest so far.
            for (norm, halt) in [(1.5, 0), (1.75, 1)] {
                (s[l.rr], s[l.rho_next]) = (norm * norm, 2.5);
                Step::Restart.run(&mut s, &mut flags, &l, 0);
                assert_eq!((s[l.norm], s[l.rho], s[l.best], flags[HALT]), (norm, 2.5, 1.5, halt), "{name}");
            }
        }
    }
}
