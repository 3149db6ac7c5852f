//! Solves L y = r and U z = y in all subdomains: by substitution, by Jacobi sweeps, or by sweeps in place
//! (Alg. 2 and 3 of Ma, Le and Cai, paper 5 in docs/papers.md).

use super::{CpuSchwarz, Levels, Shared, by_order};
use crate::precond::{SchwarzPlan, TriangularSolve};
use crate::threads::Pool;

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
            let [lower, upper] = &schedule.exact;
            pass::<B, false, false>(pool, view, lower, false, rhs, &[], next);
            pass::<B, true, false>(pool, view, upper, false, next, &[], now);
            return;
        }
        TriangularSolve::Jacobi { sweeps } => (sweeps, true),
        TriangularSolve::Random { sweeps } => (sweeps, false),
    };
    now.copy_from_slice(rhs);
    for _ in 0..sweeps {
        pass::<B, false, true>(pool, view, &schedule.runs, jacobi, rhs, now, next);
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
        pass::<B, true, true>(pool, view, &schedule.runs, jacobi, rhs, now, next);
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

/// Computes all rows of the solve with L, or with U. In a sweep, a row reads `old` values from other runs
/// and, if `jacobi`, from its own.
fn pass<const B: usize, const UPPER: bool, const SWEEP: bool>(
    pool: &Pool,
    view: &View<impl Copy + Sync + Into<f64>>,
    levels: &Levels,
    jacobi: bool,
    r: &[f64],
    old: &[f64],
    to: &mut [f64],
) {
    let bytes = view.bytes() / view.plan.rows().max(1);
    let to = Shared::new(to);
    levels.each_row(
        pool,
        bytes,
        UPPER,
        #[inline(always)]
        |i, run| {
            let found = view.row::<B, UPPER>(i, &r[i * B..][..B], |j| {
                if SWEEP && (jacobi || !run.contains(&j)) {
                    return &old[j * B..][..B];
                }
                // SAFETY: this reads rows of earlier levels, which no thread writes any more, or earlier rows
                // of this run, which this thread has written.
                unsafe { to.read(j * B..(j + 1) * B) }
            });
            // SAFETY: a row is one thread's, and other runs of its level do not read it.
            unsafe { to.write(i * B..(i + 1) * B) }.copy_from_slice(&found);
        },
    );
}
