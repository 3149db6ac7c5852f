//! The small dense side of GMRES: Hessenberg matrix, Givens rotations, least squares. About m² numbers.
//!
//! Each step is one file, `arnoldi/*.inc`, in the common subset of Rust and C++: the CPU includes it in the
//! functions below and the CUDA kernels include the very same text. A GPU runs a step in one thread, beside the
//! vector update that precedes it, so the host never waits for a scalar.
//!
//! # Delayed Gram–Schmidt (the default, one reduction an iteration)
//! DCGS2 after Bielich, Langou, Thomas, Świrydowicz, Yamazaki and Boman (2022): classical Gram–Schmidt whose
//! second pass over a vector waits for the first pass of the next one. With V the j finished columns, w the
//! tentative column (orthogonalised once, not normalised) and z = A w, one reduction brings r = Vᵀw, t = Vᵀz,
//! wᵀw, wᵀz and zᵀz. Then ρ² = wᵀw − rᵀr, the finished column is q = (w − V r)/ρ, its product A q = (z − V g)/ρ
//! with g = H r because A V = V H, and the next tentative column is (z − V t − q t_j)/ρ, t_j = (wᵀz − rᵀt)/ρ.
//!
//! ρ is a difference, and harmless: r is at rounding level unless w is itself rounding noise. That case (the
//! space is invariant to working precision) ends the cycle instead of taking a second reduction.

/// Where the numbers of one GMRES(m) stand in the scalars; the same struct is passed to the CUDA kernels.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Layout {
    /// Norm of the vector to be normalised; at a cycle's start ‖r‖.
    pub norm: usize,
    /// ‖r‖ at which the solve ends.
    pub target: usize,
    /// Square of the norm of the last product, for the breakdown test.
    pub scale: usize,
    /// Share of zᵀz that must remain for the early norm estimate to be trusted; the basis precision sets it.
    pub trusted: usize,
    /// One squared norm.
    pub gram: usize,
    /// Residual norm after each iteration of the cycle, from the least-squares problem.
    pub history: usize,
    /// Dot products: r (j), t (j), wᵀw, wᵀz, zᵀz for a delayed step, two groups of `ld` for a classical one.
    pub dots: usize,
    /// Hessenberg matrix, by columns of `ld`.
    pub h: usize,
    /// Its triangular factor, by columns of `ld`.
    pub r: usize,
    /// Cosines of the rotations.
    pub cs: usize,
    /// Sines of the rotations.
    pub sn: usize,
    /// Right-hand side of the least-squares problem before the last rotation of each entry.
    pub start: usize,
    /// Right-hand side of the least-squares problem.
    pub gamma: usize,
    /// Coefficients of the solution in the basis.
    pub y: usize,
    /// m + 1.
    pub ld: usize,
    /// Numbers in all.
    pub len: usize,
    /// ρ, t_j and tᵀt of a delayed step under way.
    pub rho: usize,
    /// Diagonal entries of R under this share of the largest span nothing new; see [`rank`].
    pub rank: usize,
}

impl Layout {
    /// The layout for restart length `m`; what the host reads comes first.
    pub fn new(m: usize) -> Self {
        let ld = m + 1;
        let (rank, history) = (5, 6);
        let dots = history + ld;
        let h = dots + 2 * ld + 3;
        let r = h + ld * m;
        let cs = r + ld * m;
        let (sn, start) = (cs + ld, cs + 2 * ld);
        let (gamma, y) = (cs + 3 * ld, cs + 4 * ld);
        let len = cs + 5 * ld;
        Self {
            norm: 0,
            target: 1,
            scale: 2,
            trusted: 3,
            gram: 4,
            history,
            dots,
            h,
            r,
            cs,
            sn,
            start,
            gamma,
            y,
            ld,
            len,
            rho: dots + 2 * ld,
            rank,
        }
    }

    /// Slots from 0 that the host reads after a cycle.
    pub fn header(&self) -> usize {
        self.history + self.ld
    }
}

/// Reason: the estimate satisfies the tolerance.
pub const ESTIMATE: i32 = 1;
/// Reason: the Krylov space is invariant to working precision.
pub const INVARIANT: i32 = 2;
/// Reason: a sum is NaN or infinite.
pub const NOT_FINITE: i32 = 3;
/// (‖w‖/‖A q‖)² under which a vector is rounding noise.
pub const BREAKDOWN: f64 = 1e-28;
/// What [`Layout::trusted`] holds: the estimate's error is about 1e-16 of this share in f64, 1e-7 of it in f32.
pub fn trusted(basis: Store) -> f64 {
    match basis {
        Store::F64 => 1e-8,
        Store::F32 => 1e-3,
    }
}
/// Sums beyond this are treated as infinite.
pub const HUGE: f64 = 1e300;

/// Eight roundings of the basis: a column that adds less to R is lost in V y, and would only spoil x.
pub fn rank(basis: Store) -> f64 {
    match basis {
        Store::F64 => 1e-15,
        Store::F32 => 5e-7,
    }
}

/// The steps a device can run on its scalars.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Step {
    /// ‖r‖ from its square in `gram`.
    Start,
    /// Begins a cycle, or halts it where there is nothing to do.
    Begin,
    /// Column j of the Hessenberg matrix from one or two full Gram–Schmidt passes.
    Classical,
    /// Column j−1 made final and column j begun, from one delayed reduction.
    Delayed,
    /// y = R⁻¹γ.
    Solve,
}

impl Step {
    /// Every step.
    pub const ALL: [Step; 5] = [Step::Start, Step::Begin, Step::Classical, Step::Delayed, Step::Solve];
}

impl Sealed for Step {}

impl SmallStep for Step {
    type Layout = Layout;

    fn run(self, s: &mut [f64], flags: &mut [i32], layout: &Layout, j: usize) {
        match self {
            Step::Start => start(s, layout),
            Step::Begin => begin(s, flags, layout),
            Step::Classical => classical(s, flags, layout, j),
            Step::Delayed => delayed(s, flags, layout, j),
            Step::Solve => solve(s, flags, layout),
        }
    }

    fn source(self) -> StepSource {
        let (name, threads) = match self {
            Step::Start => ("STEP_START", 1),
            Step::Begin => ("STEP_BEGIN", 1),
            Step::Classical => ("STEP_CLASSICAL", 1),
            Step::Delayed => ("STEP_DELAYED", 128),
            Step::Solve => ("STEP_SOLVE", 128),
        };
        StepSource { file: "step.cu", name, threads }
    }
}

use super::step::{Sealed, SmallStep, StepSource};
use super::{COLUMNS, HALT, LEFT, LIMIT, REASON, Store, TAKEN};

// What the common subset calls; kernels/arnoldi.cuh has the twins.
fn sqrt(x: f64) -> f64 {
    x.sqrt()
}
fn abs(x: f64) -> f64 {
    x.abs()
}
fn columns(flags: &[i32]) -> usize {
    flags[COLUMNS] as usize
}
/// Halts what follows iteration j, and lets the vector update of iteration j itself go on beside the step.
fn halt_after(flags: &mut [i32], j: usize) {
    flags[HALT] = j as i32 + 2;
}
fn set_columns(flags: &mut [i32], n: usize) {
    flags[COLUMNS] = n as i32;
}

/// m: the number of columns a cycle may have.
fn last_column(l: &Layout) -> i32 {
    l.ld as i32 - 1
}

#[allow(unused_parens)]
fn rotate(s: &mut [f64], l: &Layout, c: usize) {
    include!("rotate.inc")
}

#[allow(unused_parens)]
fn start(s: &mut [f64], l: &Layout) {
    include!("start.inc")
}

#[allow(unused_parens)]
fn begin(s: &mut [f64], flags: &mut [i32], l: &Layout) {
    include!("begin.inc")
}

/// The Hessenberg step of `mgs` and `cgs2`.
#[allow(unused_parens)]
fn classical(s: &mut [f64], flags: &mut [i32], l: &Layout, j: usize) {
    include!("classical.inc")
}

/// The Hessenberg step of the delayed variant. A GPU computes its entries with a thread each.
pub fn delayed(s: &mut [f64], flags: &mut [i32], l: &Layout, j: usize) {
    if delayed_open(s, flags, l, j) {
        (0..=j).for_each(|i| delayed_entry(s, l, j, i));
        delayed_close(s, flags, l, j);
    }
}

#[allow(unused_parens, clippy::needless_return)]
fn delayed_open(s: &mut [f64], flags: &mut [i32], l: &Layout, j: usize) -> bool {
    include!("delayed_open.inc")
}

#[allow(unused_parens)]
fn delayed_entry(s: &mut [f64], l: &Layout, j: usize, i: usize) {
    include!("delayed_entry.inc")
}

#[allow(unused_parens)]
fn delayed_close(s: &mut [f64], flags: &mut [i32], l: &Layout, j: usize) {
    include!("delayed_close.inc")
}

/// y = R⁻¹γ. A GPU takes a column off all rows at once.
fn solve(s: &mut [f64], flags: &mut [i32], l: &Layout) {
    solve_open(s, flags, l);
    for i in (0..columns(flags)).rev() {
        solve_pivot(s, l, i);
        (0..i).for_each(|k| solve_entry(s, l, i, k));
    }
}

#[allow(unused_parens)]
fn solve_open(s: &mut [f64], flags: &mut [i32], l: &Layout) {
    include!("solve_open.inc")
}

#[allow(unused_parens)]
fn solve_pivot(s: &mut [f64], l: &Layout, i: usize) {
    include!("solve_pivot.inc")
}

#[allow(unused_parens)]
fn solve_entry(s: &mut [f64], l: &Layout, i: usize, k: usize) {
    include!("solve_entry.inc")
}
