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
use super::smoother::{Ends, Lane, LevelWorkspace};
use crate::operator::no_transpose;
use crate::precond::compose::add;
use crate::space::{MOST_COLUMNS, SmallStep, Space, sweep_bound as sweep};
use crate::{Error, Result, steps, sweeps};
use arrayvec::ArrayVec;

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

/// Workspace of a level for cycles on one system or on several.
pub(super) struct Work<S: Coarsen> {
    /// One for each system.
    pub rooms: Vec<LevelWorkspace<S>>,
    /// The systems on the next coarser level; `None` on the last level.
    pub coarse: Option<Coarse<S>>,
}

/// Coarser systems A x = b, with the workspace to solve them.
pub(super) struct Coarse<S: Coarsen> {
    /// b and x of each system.
    vectors: Vec<(S::Vector, S::Vector)>,
    again: Again<S>,
}

/// Workspace of a second visit.
enum Again<S: Coarsen> {
    /// There is no second visit.
    Once,
    /// Two cycles, with the residual r and the second correction d of each system.
    Twice { vectors: Vec<(S::Vector, S::Vector)> },
    /// Two Krylov steps for one system after the other, with the vectors r, d, v = A c and w = A d.
    Krylov { r: S::Vector, d: S::Vector, v: S::Vector, w: S::Vector, scalars: S::Scalars, symmetric: bool },
}

/// b and x of a system.
type Pair<'a, V> = (&'a V, &'a mut V);
/// b and x of each system.
type Pairs<'a, V> = ArrayVec<Pair<'a, V>, MOST_COLUMNS>;

/// Returns b and x of the first systems.
fn pairs<V>(vectors: &mut [(V, V)]) -> Pairs<'_, V> {
    vectors.iter_mut().map(|(b, x)| (&*b, x)).collect()
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
            Cycle::W => Again::Twice { vectors: Vec::new() },
            Cycle::K => Again::Krylov {
                r: on.vector()?,
                d: on.vector()?,
                v: on.vector()?,
                w: on.vector()?,
                scalars: on.scalars(Arrays::at(0).len)?,
                symmetric,
            },
        };
        let mut coarse = Self { vectors: Vec::new(), again };
        coarse.widen(on, 1)?;
        Ok(coarse)
    }

    /// Allocates vectors for at least `count` systems.
    ///
    /// # Errors
    /// Out of device memory.
    pub fn widen(&mut self, on: &S, count: usize) -> Result<()> {
        let fill = |vectors: &mut Vec<(S::Vector, S::Vector)>| {
            while vectors.len() < count {
                vectors.push((on.vector()?, on.vector()?));
            }
            Ok(())
        };
        if let Again::Twice { vectors } = &mut self.again {
            fill(vectors)?;
        }
        fill(&mut self.vectors)
    }

    /// Returns the number of cycles on this level for one visit of the level above.
    pub fn visits(&self) -> u64 {
        if matches!(self.again, Again::Once) { 1 } else { 2 }
    }

    /// Returns x of the first systems.
    fn solutions(&self, count: usize) -> ArrayVec<&S::Vector, MOST_COLUMNS> {
        self.vectors[..count].iter().map(|(_, x)| x).collect()
    }

    /// Returns b of the first systems.
    fn sides(&mut self, count: usize) -> ArrayVec<&mut S::Vector, MOST_COLUMNS> {
        self.vectors[..count].iter_mut().map(|(b, _)| b).collect()
    }

    /// Computes x ≈ A⁻¹ b for the first systems.
    fn solve(&mut self, levels: &[Level<S>], work: &mut [Work<S>], turned: bool, count: usize) -> Result<()> {
        let Self { vectors, again } = self;
        let mut pairs = pairs(&mut vectors[..count]);
        match again {
            Again::Once => cycle(levels, work, turned, &mut pairs),
            Again::Twice { vectors } => two_cycles(levels, work, turned, &mut pairs, &mut vectors[..count]),
            Again::Krylov { .. } if turned => Err(no_transpose("amg with cycle=k")),
            Again::Krylov { r, d, v, w, scalars, symmetric } => pairs.iter_mut().try_for_each(|(b, x)| {
                two_steps(levels, work, b, x, [&mut *r, &mut *d, &mut *v, &mut *w], scalars, *symmetric)
            }),
        }
    }
}

/// Computes x ← B b for each b and x: smoothing from zero, a coarse correction, smoothing. With `turned` it
/// computes x ← Bᵀ b.
pub(super) fn cycle<S: Coarsen>(
    levels: &[Level<S>],
    work: &mut [Work<S>],
    turned: bool,
    pairs: &mut [Pair<S::Vector>],
) -> Result<()> {
    let (Some((level, coarser)), Some((own, below))) = (levels.split_first(), work.split_first_mut()) else {
        return Err(Error::Internal("the cycle went below the last level".into()));
    };
    let (on, count) = (&level.space, pairs.len());
    let lanes = pairs.iter_mut().zip(&mut own.rooms).map(|((b, x), room)| Lane { b: *b, x: &mut **x, room });
    let lanes = &mut *lanes.collect::<ArrayVec<Lane<S>, MOST_COLUMNS>>();
    let Some((transfer, coarse)) = level.transfers(turned).zip(own.coarse.as_mut()) else {
        return level.solve(turned, lanes);
    };
    let smoother = level.smoother.as_ref();
    let [before, after] = smoother.map_or([false; 2], |smoother| smoother.sides(turned));
    let (Some(smoother), true) = (smoother, before) else {
        {
            let (b, mut x): Ends<S::Vector> = lanes.iter_mut().map(|l| (l.b, &mut *l.x)).unzip();
            transfer.restrict(on, &b, &mut coarse.sides(count))?;
            coarse.solve(coarser, below, turned, count)?;
            transfer.prolong(on, &coarse.solutions(count), &mut x)?;
        }
        return match smoother {
            Some(smoother) => smoother.improve(on, &level.side(turned)?, lanes),
            None => Ok(()),
        };
    };
    let a = &level.side(turned)?;
    smoother.begin(on, a, lanes)?;
    // b_c = R (b − A x)
    level.residual(turned, lanes)?;
    {
        let r: ArrayVec<_, MOST_COLUMNS> = lanes.iter().map(|lane| &lane.room.q).collect();
        transfer.restrict(on, &r, &mut coarse.sides(count))?;
    }
    coarse.solve(coarser, below, turned, count)?;
    // x ← x + P x_c
    transfer.correct(on, &coarse.solutions(count), lanes)?;
    if after { smoother.improve(on, a, lanes) } else { Ok(()) }
}

/// Computes x ← B b + B (b − A B b) for each b and x.
fn two_cycles<S: Coarsen>(
    levels: &[Level<S>],
    work: &mut [Work<S>],
    turned: bool,
    systems: &mut [Pair<S::Vector>],
    vectors: &mut [(S::Vector, S::Vector)],
) -> Result<()> {
    let (level, on) = (&levels[0], &levels[0].space);
    cycle(levels, work, turned, systems)?;
    {
        // r = b − A x goes from the workspace of the level, which the next cycle uses, to r.
        let rooms = &mut work[0].rooms;
        let lanes =
            systems.iter_mut().zip(&mut *rooms).map(|((b, x), room)| Lane { b: *b, x: &mut **x, room });
        level.residual(turned, &mut lanes.collect::<ArrayVec<Lane<S>, MOST_COLUMNS>>())?;
        rooms.iter_mut().zip(&mut *vectors).for_each(|(room, (r, _))| std::mem::swap(&mut room.q, r));
    }
    cycle(levels, work, turned, &mut pairs(vectors))?;
    for (((_, x), room), (_, d)) in systems.iter_mut().zip(&mut work[0].rooms).zip(&*vectors) {
        on.sweep(add, &mut room.scalars, [], [d], [&mut **x], [])?;
    }
    Ok(())
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
    cycle(levels, work, false, &mut [(b, &mut *x)])?;
    level.multiply(x, v)?;
    match symmetric {
        true => sweep(on, cycle_energy, scalars, [x, v, b], [])?,
        false => sweep(on, cycle_minimal, scalars, [v, b], [])?,
    }
    step(on, take_first, scalars)?;
    sweep(on, cycle_left_over, scalars, [b, v], [&mut *r])?;
    // Compute d = B r and w = A d.
    cycle(levels, work, false, &mut [(&*r, &mut *d)])?;
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
