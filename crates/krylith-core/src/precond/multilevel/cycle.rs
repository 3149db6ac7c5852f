//! Cycles over the levels of a hierarchy.
//!
//! A cycle computes x = B b from x = 0: smooth, add a correction from the coarser level, smooth again. With
//! approximate ideal restriction it smooths after the correction only. Cycles differ in how they solve the
//! coarser system:
//!
//! * V: one cycle on the coarser level.
//! * W: two cycles, the second one for the residual of the first.
//! * K: two steps of a Krylov method whose preconditioner is a cycle (Notay and Vassilevski 2008). The method
//!   is flexible CG if A is symmetric, else GCR. So B is not linear, and the outer method must be flexible.
//!
//! All scalars stay on the device, and the control flow does not depend on values, so a cycle can be recorded
//! in a graph. Two visits on each of l levels make 2ˡ visits of the last level. So W and K visit only the
//! first [`BRANCHING`] coarse levels twice. They visit further levels, and a level with a direct solve, once.

use super::Coarsen;
use super::level::Level;
use super::smoother::LevelWorkspace;
use crate::operator::no_transpose;
use crate::precond::compose::add;
use crate::space::{SmallStep, Space, sweep_bound as sweep};
use crate::{Error, Result, steps, sweeps};

/// Number of coarse levels that W and K visit twice for each visit of the level above.
const BRANCHING: usize = 4;

/// Method of solving a coarser system.
///
/// # Examples
/// ```
/// use krylith_core::precond::Cycle;
/// assert_eq!((Cycle::default(), Cycle::K.name()), (Cycle::V, "k")); // as in amg:cycle=k
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Cycle {
    /// One cycle on the coarser level.
    #[default]
    V,
    /// Two cycles on the coarser level.
    W,
    /// Two steps of a Krylov method on the coarser level.
    K,
}

impl Cycle {
    /// All cycles.
    pub const ALL: [Cycle; 3] = [Cycle::V, Cycle::W, Cycle::K];

    /// Returns the name in options.
    pub fn name(self) -> &'static str {
        match self {
            Cycle::V => "v",
            Cycle::W => "w",
            Cycle::K => "k",
        }
    }
}

steps! {
    /// The scalars of two Krylov steps (see `two_steps`): c = B b, v = A c, d = B r and w = A d.
    pub struct Scalars {
        /// First step: (c, v) and (c, b) in flexible CG, (v, v) and (v, b) in GCR.
        vv, vb,
        /// Second step: (d, v), (d, w) and (d, r) in flexible CG, (w, v), (w, w) and (w, r) in GCR.
        wv, ww, wb,
        /// (c, v) or (v, v) of the first step, and the factors of c and d in x.
        rho, first, second
    }
    /// No arrays.
    arrays Arrays(m) {}
    constants [];
    functions {}
    /// Every step.
    pub const STEPS;
    /// The factor of c that minimises the error in the norm of A (flexible CG) or the residual (GCR); 0 if
    /// (c, v) or (v, v) is 0.
    take_first(s, _) {
        s.rho = s.vv;
        s.first = 0.0;
        if (s.vv != 0.0) { s.first = s.vb / s.vv; }
    }
    /// The factors of c and d; only that of c if d is linearly dependent on c.
    take_both(s, _) {
        s.second = 0.0;
        if (s.rho != 0.0) {
            let rest = s.ww - s.wv * s.wv / s.rho;
            if (abs(rest) > 1e-14 * abs(s.ww)) {
                s.second = s.wb / rest;
                s.first -= s.wv * s.second / s.rho;
            }
        }
    }
}

sweeps! {
    /// The vector passes of two Krylov steps.
    pub const SWEEPS for Scalars;
    /// The dot products (c, v) and (c, b).
    cycle_energy: () [c, v, b] [] -> [vv, vb] { vv += c * v; vb += c * b; }
    /// The dot products (v, v) and (v, b).
    cycle_minimal: () [v, b] [] -> [vv, vb] { vv += v * v; vb += v * b; }
    /// r = b − α v.
    cycle_left_over: (first) [b, v] [r] -> [] { r = b - first * v; }
    /// The dot products (d, v), (d, w) and (d, r).
    cycle_energy_of_both: () [d, v, w, r] [] -> [wv, ww, wb] { wv += d * v; ww += d * w; wb += d * r; }
    /// The dot products (w, v), (w, w) and (w, r).
    cycle_minimal_of_both: () [v, w, r] [] -> [wv, ww, wb] { wv += w * v; ww += w * w; wb += w * r; }
    /// x = α x + β d.
    cycle_combine: (first, second) [d] [x] -> [] { x = first * x + second * d; }
}

/// Workspace of a level for a cycle.
pub(super) struct Work<S: Coarsen> {
    pub room: LevelWorkspace<S>,
    /// The system on the next coarser level; `None` on the last level.
    pub coarse: Option<Coarse<S>>,
}

/// A coarser system A x = b, with the workspace to solve it.
pub(super) struct Coarse<S: Coarsen> {
    b: S::Vector,
    x: S::Vector,
    again: Again<S>,
}

/// Workspace of a second visit.
enum Again<S: Coarsen> {
    /// There is no second visit.
    Once,
    /// Two cycles, with the residual r and the second correction d.
    Twice { r: S::Vector, d: S::Vector, scalars: S::Scalars },
    /// Two Krylov steps, with the vectors r, d, v = A c and w = A d.
    Krylov { r: S::Vector, d: S::Vector, v: S::Vector, w: S::Vector, scalars: S::Scalars, symmetric: bool },
}

impl<S: Coarsen> Coarse<S> {
    /// Allocates vectors for the system of level number `depth`. `last` is true if that level is solved
    /// directly.
    ///
    /// # Errors
    /// Out of device memory.
    pub fn new(on: &S, how: Cycle, depth: usize, last: bool, symmetric: bool) -> Result<Self> {
        let again = match how {
            _ if last || depth > BRANCHING => Again::Once,
            Cycle::V => Again::Once,
            Cycle::W => Again::Twice { r: on.vector()?, d: on.vector()?, scalars: on.scalars(1)? },
            Cycle::K => Again::Krylov {
                r: on.vector()?,
                d: on.vector()?,
                v: on.vector()?,
                w: on.vector()?,
                scalars: on.scalars(Arrays::at(0).len)?,
                symmetric,
            },
        };
        Ok(Self { b: on.vector()?, x: on.vector()?, again })
    }

    /// Returns the number of cycles on this level for one visit of the level above.
    pub fn visits(&self) -> u64 {
        if matches!(self.again, Again::Once) { 1 } else { 2 }
    }

    /// Computes x ≈ A⁻¹ b.
    fn solve(&mut self, levels: &[Level<S>], work: &mut [Work<S>], turned: bool) -> Result<()> {
        let Self { b, x, again } = self;
        match again {
            Again::Once => cycle(levels, work, turned, b, x),
            Again::Twice { r, d, scalars } => two_cycles(levels, work, turned, b, x, r, d, scalars),
            Again::Krylov { .. } if turned => Err(no_transpose("amg with cycle=k")),
            Again::Krylov { r, d, v, w, scalars, symmetric } => {
                two_steps(levels, work, b, x, [r, d, v, w], scalars, *symmetric)
            }
        }
    }
}

/// Computes x ← B b: smoothing from zero, a coarse correction, smoothing. With `turned` it computes x ← Bᵀ b.
pub(super) fn cycle<S: Coarsen>(
    levels: &[Level<S>],
    work: &mut [Work<S>],
    turned: bool,
    b: &S::Vector,
    x: &mut S::Vector,
) -> Result<()> {
    let (Some((level, coarser)), Some((own, below))) = (levels.split_first(), work.split_first_mut()) else {
        return Err(Error::Internal("the cycle went below the last level".into()));
    };
    let (on, room) = (&level.space, &mut own.room);
    let Some((transfer, coarse)) = level.transfers(turned).zip(own.coarse.as_mut()) else {
        return level.solve(turned, b, x, room);
    };
    let Some(smoother) = &level.smoother else {
        transfer.restrict(on, b, &mut coarse.b)?;
        coarse.solve(coarser, below, turned)?;
        return transfer.prolong(on, &coarse.x, x);
    };
    let a = &level.side(turned)?;
    let [before, after] = smoother.sides(turned);
    if !before {
        transfer.restrict(on, b, &mut coarse.b)?;
        coarse.solve(coarser, below, turned)?;
        transfer.prolong(on, &coarse.x, x)?;
        return smoother.improve(on, a, b, x, room);
    }
    smoother.begin(on, a, b, x, room)?;
    // b_c = R (b − A x)
    level.residual(turned, b, x, &mut room.q, &mut room.scalars)?;
    transfer.restrict(on, &room.q, &mut coarse.b)?;
    coarse.solve(coarser, below, turned)?;
    // x ← x + P x_c
    transfer.correct(on, &coarse.x, x, room)?;
    if after { smoother.improve(on, a, b, x, room) } else { Ok(()) }
}

/// Computes x ← B b + B (b − A B b).
fn two_cycles<S: Coarsen>(
    levels: &[Level<S>],
    work: &mut [Work<S>],
    turned: bool,
    b: &S::Vector,
    x: &mut S::Vector,
    r: &mut S::Vector,
    d: &mut S::Vector,
    scalars: &mut S::Scalars,
) -> Result<()> {
    let level = &levels[0];
    cycle(levels, work, turned, b, x)?;
    level.residual(turned, b, x, r, scalars)?;
    cycle(levels, work, turned, r, d)?;
    level.space.sweep(add, scalars, [], [d], [x], [])
}

/// Makes two steps of flexible CG or GCR: computes the x in span{B b, B r} that minimises the error in the
/// norm of A, or the residual.
fn two_steps<S: Coarsen>(
    levels: &[Level<S>],
    work: &mut [Work<S>],
    b: &S::Vector,
    x: &mut S::Vector,
    [r, d, v, w]: [&mut S::Vector; 4],
    scalars: &mut S::Scalars,
    symmetric: bool,
) -> Result<()> {
    let (level, on) = (&levels[0], &levels[0].space);
    // Compute c = B b and v = A c. x holds c.
    cycle(levels, work, false, b, x)?;
    level.multiply(x, v)?;
    match symmetric {
        true => sweep(on, cycle_energy, scalars, [x, v, b], [])?,
        false => sweep(on, cycle_minimal, scalars, [v, b], [])?,
    }
    step(on, take_first, scalars)?;
    sweep(on, cycle_left_over, scalars, [b, v], [&mut *r])?;
    // Compute d = B r and w = A d.
    cycle(levels, work, false, r, d)?;
    level.multiply(d, w)?;
    match symmetric {
        true => sweep(on, cycle_energy_of_both, scalars, [d, v, w, r], [])?,
        false => sweep(on, cycle_minimal_of_both, scalars, [v, w, r], [])?,
    }
    step(on, take_both, scalars)?;
    sweep(on, cycle_combine, scalars, [d], [x])
}

fn step<S: Space, T: SmallStep>(on: &S, step: T, scalars: &mut S::Scalars) -> Result<()> {
    on.step(step, scalars, 0)
}
