//! Solves L y = r and U z = y in all subdomains: by substitution, by Jacobi sweeps, or by sweeps in place
//! (Alg. 2 and 3 of Ma, Le and Cai, paper 5 in docs/papers.md).

use super::{CpuSchwarz, Levels, Numbers, Shared, Transposed, by_order};
use crate::precond::{SchwarzRows, TriangularSolve};
use crate::threads::Pool;

/// Factors as solves read them.
struct View<'a, T> {
    rows: SchwarzRows<'a>,
    factors: &'a [T],
    inverse: &'a [T],
}

/// Solves for `rhs` and leaves the result in `now`.
pub(super) fn solve(
    pool: &Pool,
    f: &CpuSchwarz,
    how: TriangularSolve,
    transposed: Option<&Transposed>,
    rhs: &mut Vec<f64>,
    now: &mut Vec<f64>,
    next: &mut Vec<f64>,
) {
    let order = f.plan.block;
    macro_rules! both {
        ($rows:expr, $factors:expr, $inverse:expr) => {{
            let view = View { rows: $rows, factors: &$factors[..], inverse: &$inverse[..] };
            match transposed {
                None => by_order!(order, forward(pool, f, &view, how, rhs, now, next)),
                Some(_) => by_order!(order, turned(pool, f, &view, how, rhs, now, next)),
            }
        }};
    }
    match (transposed, &f.rounded) {
        (None, None) => both!(f.plan.pattern(), f.factors, f.inverse),
        (None, Some([factors, inverse])) => both!(f.plan.pattern(), factors, inverse),
        (Some(t), _) => match &t.numbers {
            Numbers::F64([factors, inverse]) => both!(t.pattern.rows(), factors, inverse),
            Numbers::F32([factors, inverse]) => both!(t.pattern.rows(), factors, inverse),
        },
    }
}

fn forward<const B: usize>(
    pool: &Pool,
    f: &CpuSchwarz,
    view: &View<impl Copy + Sync + Into<f64>>,
    how: TriangularSolve,
    rhs: &mut Vec<f64>,
    now: &mut Vec<f64>,
    next: &mut Vec<f64>,
) {
    both::<B, false>(pool, f, view, how, rhs, now, next);
}

fn turned<const B: usize>(
    pool: &Pool,
    f: &CpuSchwarz,
    view: &View<impl Copy + Sync + Into<f64>>,
    how: TriangularSolve,
    rhs: &mut Vec<f64>,
    now: &mut Vec<f64>,
    next: &mut Vec<f64>,
) {
    both::<B, true>(pool, f, view, how, rhs, now, next);
}

/// Solves with L and U or, with TURNED, with Uᵀ and Lᵀ. The diagonal belongs to U.
fn both<const B: usize, const TURNED: bool>(
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
            let [first, second] = if TURNED { [upper, lower] } else { [lower, upper] };
            pass::<B, false, false, TURNED>(pool, view, first, false, rhs, &[], next);
            pass::<B, true, false, TURNED>(pool, view, second, false, next, &[], now);
            return;
        }
        TriangularSolve::Jacobi { sweeps } => (sweeps, true),
        TriangularSolve::Random { sweeps } => (sweeps, false),
    };
    begin::<B>(view, TURNED, rhs, now);
    for _ in 0..sweeps {
        pass::<B, false, true, TURNED>(pool, view, &schedule.runs, jacobi, rhs, now, next);
        std::mem::swap(now, next);
    }
    std::mem::swap(rhs, now);
    begin::<B>(view, !TURNED, rhs, now);
    for _ in 0..sweeps {
        pass::<B, true, true, TURNED>(pool, view, &schedule.runs, jacobi, rhs, now, next);
        std::mem::swap(now, next);
    }
}

/// Writes the starting values of sweeps: `rhs` or, with `scaled`, the inverse of the diagonal times `rhs`.
fn begin<const B: usize>(
    view: &View<impl Copy + Sync + Into<f64>>,
    scaled: bool,
    rhs: &[f64],
    now: &mut [f64],
) {
    if !scaled {
        return now.copy_from_slice(rhs);
    }
    for ((z, y), inverse) in
        now.chunks_exact_mut(B).zip(rhs.chunks_exact(B)).zip(view.inverse.chunks_exact(B * B))
    {
        let mut sum = [0.0; B];
        multiply::<B>(inverse, y, &mut sum);
        z.copy_from_slice(&sum);
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

    /// Computes row `i` of the solve with the upper triangle, or the lower one: r_i − Σ over the other
    /// columns, in ascending order, and times the inverse of the diagonal if the triangle has it. `other`
    /// returns the numbers of a row.
    #[inline(always)]
    fn row<'o, const B: usize, const UPPER: bool, const TURNED: bool>(
        &self,
        i: usize,
        r: &[f64],
        other: impl Fn(usize) -> &'o [f64],
    ) -> [f64; B] {
        let (rows, bb) = (self.rows, B * B);
        let entries = if UPPER { rows.upper(i) } else { rows.lower(i) };
        let mut sum = [0.0; B];
        let blocks = self.factors[entries.start * bb..entries.end * bb].chunks_exact(bb);
        for (&j, a) in rows.column[entries].iter().zip(blocks) {
            multiply::<B>(a, other(j as usize), &mut sum);
        }
        let mut left = [0.0; B];
        left.iter_mut().zip(r).zip(&sum).for_each(|((left, r), sum)| *left = r - sum);
        if UPPER != TURNED {
            sum = [0.0; B];
            multiply::<B>(&self.inverse[i * bb..][..bb], &left, &mut sum);
            return sum;
        }
        left
    }
}

/// Computes all rows of the solve with L, or with U. In a sweep, a row reads `old` values from other runs
/// and, if `jacobi`, from its own.
fn pass<const B: usize, const UPPER: bool, const SWEEP: bool, const TURNED: bool>(
    pool: &Pool,
    view: &View<impl Copy + Sync + Into<f64>>,
    levels: &Levels,
    jacobi: bool,
    r: &[f64],
    old: &[f64],
    to: &mut [f64],
) {
    let bytes = view.bytes() / view.rows.len().max(1);
    let to = Shared::new(to);
    levels.each_row(
        pool,
        bytes,
        UPPER,
        TURNED,
        #[inline(always)]
        |i, run| {
            let found = view.row::<B, UPPER, TURNED>(i, &r[i * B..][..B], |j| {
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
