//! The steps of smoothers: a product with A and a vector pass, in one pass where the device fuses them.

use super::super::Coarsen;
use super::super::side::Side;
use super::{
    Diagonal, Direction, Fused, Lane, LevelWorkspace, Passes, slots, smooth_alone, smooth_blocks_alone,
    smooth_blocks_next, smooth_blocks_second, smooth_blocks_start, smooth_first, smooth_last, smooth_next,
    smooth_second, smooth_start,
};
use crate::Result;
use crate::precond::Ildu;
use crate::precond::compose::{add, residual};

/// Returns the last direction that step k uses, and true if the next step uses the direction of step k. With
/// `from_zero`, step 0 has left its direction in x.
fn directions(steps: &[[f64; 2]], k: usize, from_zero: bool) -> (Direction, bool) {
    let last = match (k, steps[k][0] != 0.0) {
        (0, _) | (_, false) => Direction::None,
        (1, true) if from_zero => Direction::X,
        _ => Direction::P,
    };
    (last, steps.get(k + 1).is_some_and(|[a, _]| *a != 0.0))
}

/// Makes the steps of a polynomial from number `from` on, each in the pass of its product. Steps alternate
/// between x and `room.r`, so that the last one writes to x. If their number is odd, the first one reads x
/// from `room.r`. If `first` is the slot of the first step's c, the first pass also makes that step from x =
/// 0, and reads no x.
fn fused_steps<'a, S: Coarsen>(
    on: &S,
    d: &dyn Fn(usize) -> Diagonal<'a, S>,
    steps: &[[f64; 2]],
    (from, from_zero): (usize, bool),
    first: Option<usize>,
    a: &Side<S>,
    lanes: &mut [Lane<S>],
) -> Result<()> {
    for k in from..steps.len() {
        let (last, keeps) = directions(steps, k, from_zero);
        let first = first.filter(|_| k == from);
        let mut passes = Passes::<S>::new();
        for Lane { b, x, room } in &mut *lanes {
            let LevelWorkspace { r, p, scalars, .. } = &mut **room;
            let (x, to) = if (steps.len() - k) % 2 == 1 { (&*r, &mut **x) } else { (&**x, &mut *r) };
            let p = p.as_mut().filter(|_| keeps || last == Direction::P);
            let pass = Fused::Step { d: d(k), b: *b, p, keeps, last, scalars, at: slots(k), first, to };
            passes.push((x, pass));
        }
        on.fused_together(a.product(), passes)?;
    }
    Ok(())
}

/// Makes all steps of a smoother of scalar nodes from x = 0; step k uses the diagonal `d(k)`.
pub(super) fn first_steps<'a, S: Coarsen>(
    on: &S,
    d: &dyn Fn(usize) -> Diagonal<'a, S>,
    steps: &[[f64; 2]],
    a: &Side<S>,
    lanes: &mut [Lane<S>],
) -> Result<()> {
    let ([_, c], fuses) = (slots(0), on.fuses(a.product()));
    // A pass that makes two steps has one diagonal for both.
    let same = steps.len() > 1
        && match (d(0), d(1)) {
            (Diagonal::Scalar(one), Diagonal::Scalar(other)) => std::ptr::eq(one, other),
            _ => false,
        };
    if fuses && same && on.fuses_from_zero(a.product()) {
        return fused_steps(on, d, steps, (1, true), Some(c), a, lanes);
    }
    // Fused steps alternate between two vectors, and the last one must write to x.
    for Lane { b, x, room } in &mut *lanes {
        let first = if !fuses || steps.len() % 2 == 1 { &mut **x } else { &mut room.r };
        match d(0) {
            Diagonal::Scalar(d) => on.sweep(smooth_first, &mut room.scalars, [c], [d, b], [first], [])?,
            Diagonal::Blocks(d) => {
                let pass = Fused::First { d, b: *b, c: Some((&room.scalars, c)), to: first };
                on.fused(a.product(), b, pass)?;
            }
        }
    }
    if fuses {
        return fused_steps(on, d, steps, (1, true), None, a, lanes);
    }
    (1..steps.len()).try_for_each(|k| step(on, d(k), steps, (k, true), a, lanes))
}

/// Makes all steps of a smoother of scalar nodes; step k uses the diagonal `d(k)`.
pub(super) fn all_steps<'a, S: Coarsen>(
    on: &S,
    d: &dyn Fn(usize) -> Diagonal<'a, S>,
    steps: &[[f64; 2]],
    a: &Side<S>,
    lanes: &mut [Lane<S>],
) -> Result<()> {
    let fuses = on.fuses(a.product());
    // Fused steps alternate between two vectors. If their number is odd, the first step works in place.
    let plain = if fuses { steps.len() % 2 } else { steps.len() };
    for k in 0..plain {
        step(on, d(k), steps, (k, false), a, lanes)?;
    }
    if fuses { fused_steps(on, d, steps, (plain, false), None, a, lanes) } else { Ok(()) }
}

/// Makes step k of a polynomial. With `from_zero`, step 0 has left the last direction in x.
pub(super) fn step<S: Coarsen>(
    on: &S,
    d: Diagonal<S>,
    steps: &[[f64; 2]],
    (k, from_zero): (usize, bool),
    a: &Side<S>,
    lanes: &mut [Lane<S>],
) -> Result<()> {
    a.multiply(on, lanes, |lane| (&*lane.x, &mut lane.room.q))?;
    lanes.iter_mut().try_for_each(|lane| pass(on, d, steps, (k, from_zero), a, lane))
}

/// Makes the vector pass of step k, for which `q` holds A x.
fn pass<S: Coarsen>(
    on: &S,
    d: Diagonal<S>,
    steps: &[[f64; 2]],
    (k, from_zero): (usize, bool),
    a: &Side<S>,
    lane: &mut Lane<S>,
) -> Result<()> {
    let Lane { b, x, room } = lane;
    let LevelWorkspace { q, r, p, scalars } = &mut **room;
    let x = &mut **x;
    let ([at_a, at_c], last) = (slots(k), k + 1 == steps.len());
    let (direction, keeps) = directions(steps, k, from_zero);
    let takes = direction != Direction::None;
    let d = match d {
        Diagonal::Scalar(d) => d,
        Diagonal::Blocks(blocks) => {
            on.sweep(residual, scalars, [], [b], [&mut *q], [])?;
            match on.fuses(a.product()) {
                true => on.fused(a.product(), q, Fused::First { d: blocks, b: q, c: None, to: r })?,
                false => on.multiply_blocks(blocks, a.turned, q, r)?,
            }
            return match p.as_mut().filter(|_| keeps || takes) {
                None => on.sweep(smooth_blocks_alone, scalars, [at_c], [r], [x], []),
                Some(p) if !takes => on.sweep(smooth_blocks_start, scalars, [at_c], [r], [p, x], []),
                Some(p) if k == 1 && from_zero => {
                    on.sweep(smooth_blocks_second, scalars, [at_a, at_c], [r], [p, x], [])
                }
                Some(p) => on.sweep(smooth_blocks_next, scalars, [at_a, at_c], [r], [p, x], []),
            };
        }
    };
    match p.as_mut().filter(|_| keeps || takes) {
        None => on.sweep(smooth_alone, scalars, [at_c], [d, b, q], [x], []),
        Some(p) if !takes => on.sweep(smooth_start, scalars, [at_c], [d, b, q], [p, x], []),
        Some(p) if k == 1 && from_zero => {
            on.sweep(smooth_second, scalars, [at_a, at_c], [d, b, q], [p, x], [])
        }
        Some(p) if last => on.sweep(smooth_last, scalars, [at_a, at_c], [d, b, q, p], [x], []),
        Some(p) => on.sweep(smooth_next, scalars, [at_a, at_c], [d, b, q], [p, x], []),
    }
}

/// Computes x ← x + (LDU)⁻¹ (b − A x).
pub(super) fn solve<S: Coarsen>(on: &S, factors: &Ildu<S>, a: &Side<S>, lanes: &mut [Lane<S>]) -> Result<()> {
    a.multiply(on, lanes, |lane| (&*lane.x, &mut lane.room.q))?;
    for Lane { b, room, .. } in &mut *lanes {
        on.sweep(residual, &mut room.scalars, [], [b], [&mut room.q], [])?;
    }
    a.factors(on, factors, lanes, |lane| (&lane.room.q, &mut lane.room.r))?;
    for Lane { x, room, .. } in lanes {
        on.sweep(add, &mut room.scalars, [], [&room.r], [x], [])?;
    }
    Ok(())
}
