//! Solves L y = r and U z = y in all subdomains: by substitution, by Jacobi sweeps, or by sweeps in place
//! (Alg. 2 and 3 of Ma, Le and Cai, paper 5 in docs/papers.md).

use super::super::Wide;
use super::{CpuSchwarz, Levels, Shared, by_order};
use crate::precond::{SchwarzPlan, TriangularSolve};
use crate::threads::{Disjoint, Pool, share};
use std::ops::Range;

/// Factors as solves read them.
struct View<'a, T> {
    plan: &'a SchwarzPlan,
    factors: &'a [T],
    inverse: &'a [T],
}

/// Solves for `rhs` and leaves the result in `now`.
pub(super) fn solve(
    pool: &Pool,
    f: &CpuSchwarz,
    how: TriangularSolve,
    rhs: &mut Vec<f64>,
    now: &mut Vec<f64>,
    next: &mut Vec<f64>,
) {
    let (plan, order) = (&*f.plan, f.plan.block);
    match &f.rounded {
        None => {
            let view = View { plan, factors: &f.factors[..], inverse: &f.inverse[..] };
            by_order!(order, both(pool, f, &view, how, rhs, now, next));
        }
        Some([factors, inverse]) => {
            let view = View { plan, factors: &factors[..], inverse: &inverse[..] };
            by_order!(order, both(pool, f, &view, how, rhs, now, next));
        }
    }
}

fn both<const B: usize>(
    pool: &Pool,
    f: &CpuSchwarz,
    view: &View<impl Copy + Sync + Into<f64>>,
    how: TriangularSolve,
    rhs: &mut Vec<f64>,
    now: &mut Vec<f64>,
    next: &mut Vec<f64>,
) {
    let schedule = &f.schedule;
    let (sweeps, jacobi) = match how {
        TriangularSolve::Exact => {
            match &schedule.levels {
                Some([lower, upper]) => {
                    by_levels::<B, false>(pool, view, lower, rhs, next);
                    by_levels::<B, true>(pool, view, upper, next, now);
                }
                None => {
                    let all = &schedule.subdomains;
                    sweep::<B, false>(pool, view, all, false, rhs, &[], next);
                    sweep::<B, true>(pool, view, all, false, next, &[], now);
                }
            }
            return;
        }
        TriangularSolve::Jacobi { sweeps } => (sweeps, true),
        TriangularSolve::Random { sweeps } => (sweeps, false),
    };
    now.copy_from_slice(rhs);
    for _ in 0..sweeps {
        sweep::<B, false>(pool, view, &schedule.runs, jacobi, rhs, now, next);
        std::mem::swap(now, next);
    }
    std::mem::swap(rhs, now);
    for ((z, y), inverse) in
        now.chunks_exact_mut(B).zip(rhs.chunks_exact(B)).zip(view.inverse.chunks_exact(B * B))
    {
        let mut sum = [0.0; B];
        multiply::<B>(inverse, y, &mut sum);
        z.copy_from_slice(&sum);
    }
    for _ in 0..sweeps {
        sweep::<B, true>(pool, view, &schedule.runs, jacobi, rhs, now, next);
        std::mem::swap(now, next);
    }
}

/// Computes sum += a x.
#[inline(always)]
fn multiply<const B: usize>(a: &[impl Copy + Into<f64>], x: &[f64], sum: &mut [f64; B]) {
    for r in 0..B {
        for c in 0..B {
            sum[r] += a[r * B + c].into() * x[c];
        }
    }
}

impl<T: Copy + Sync + Into<f64>> View<'_, T> {
    fn bytes(&self) -> usize {
        size_of_val(self.factors) / 2
    }

    /// Computes row `i` of the solve with U, or with L: r_i − Σ over the other columns, in ascending order,
    /// and for U times the inverse of the diagonal. `other` returns the numbers of a row.
    #[inline(always)]
    fn row<'o, const B: usize, const UPPER: bool>(
        &self,
        i: usize,
        r: &[f64],
        other: impl Fn(usize) -> &'o [f64],
    ) -> [f64; B] {
        let (plan, bb) = (self.plan, B * B);
        let entries = if UPPER { plan.upper(i) } else { plan.lower(i) };
        let mut sum = [0.0; B];
        let blocks = self.factors[entries.start * bb..entries.end * bb].chunks_exact(bb);
        for (&j, a) in plan.column[entries].iter().zip(blocks) {
            multiply::<B>(a, other(j as usize), &mut sum);
        }
        let mut left = [0.0; B];
        left.iter_mut().zip(r).zip(&sum).for_each(|((left, r), sum)| *left = r - sum);
        if UPPER {
            sum = [0.0; B];
            multiply::<B>(&self.inverse[i * bb..][..bb], &left, &mut sum);
            return sum;
        }
        left
    }
}

/// Runs one sweep over all runs. A row reads new values from its own run unless `jacobi`, and `old` values
/// from other runs.
fn sweep<const B: usize, const UPPER: bool>(
    pool: &Pool,
    view: &View<impl Copy + Sync + Into<f64>>,
    runs: &[Range<usize>],
    jacobi: bool,
    r: &[f64],
    old: &[f64],
    new: &mut [f64],
) {
    let pieces = pool.pieces(view.bytes()).min(runs.len());
    let new = Disjoint::new(new);
    pool.run(pieces, |piece| {
        pulp::Arch::new().dispatch(Wide(
            #[inline(always)]
            || {
                for run in &runs[share(runs.len(), piece, pieces)] {
                    // SAFETY: runs have rows of their own.
                    let own = unsafe { new.range(run.start * B..run.end * B) };
                    for k in 0..run.len() {
                        let i = if UPPER { run.end - 1 - k } else { run.start + k };
                        let found = {
                            let own = &own[..];
                            view.row::<B, UPPER>(i, &r[i * B..][..B], |j| match !jacobi && run.contains(&j) {
                                true => &own[(j - run.start) * B..][..B],
                                false => &old[j * B..][..B],
                            })
                        };
                        own[(i - run.start) * B..][..B].copy_from_slice(&found);
                    }
                }
            },
        ));
    });
}

/// Substitutes, with all runs of a level at once.
fn by_levels<const B: usize, const UPPER: bool>(
    pool: &Pool,
    view: &View<impl Copy + Sync + Into<f64>>,
    levels: &Levels,
    r: &[f64],
    to: &mut [f64],
) {
    let bytes = view.bytes() / view.plan.rows().max(1);
    let to = Shared::new(to);
    levels.each_row(
        pool,
        bytes,
        #[inline(always)]
        |i| {
            // SAFETY: a row reads rows of earlier levels, which no thread writes any more, and earlier rows
            // of its run, which this thread has written.
            let found = view.row::<B, UPPER>(i, &r[i * B..][..B], |j| unsafe { to.read(j * B..(j + 1) * B) });
            // SAFETY: a row is one thread's, and other runs of its level do not read it.
            unsafe { to.write(i * B..(i + 1) * B) }.copy_from_slice(&found);
        },
    );
}
