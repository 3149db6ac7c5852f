//! Solves L y = r and U z = y in all subdomains: by substitution, by Jacobi sweeps, or by sweeps in place
//! (Alg. 2 and 3 of Ma, Le and Cai, paper 5 in docs/papers.md).

use super::super::elimination::{Real, Usable};
use super::{CpuSchwarz, Levels, Numbers, Shared, Transposed};
use crate::Result;
use crate::precond::{SchwarzRows, TriangularSolve};
use crate::threads::{Disjoint, Pool, zeros};
use rayon::prelude::*;

/// Vectors over the rows of all subdomains: the right-hand side, the present values, and the next ones.
pub(super) type Vectors<R> = [Vec<R>; 3];

/// Factors as solves read them.
struct View<'a, T> {
    rows: SchwarzRows<'a>,
    /// Columns as distances of 16 bits; empty if they need more.
    near: &'a [u16],
    factors: &'a [T],
    inverse: &'a [T],
}

/// Returns the distances of columns from their rows, less one; none if they need more than 16 bits.
pub(super) fn distances(near: bool, rows: SchwarzRows) -> Result<Vec<u16>> {
    if !near {
        return Ok(Vec::new());
    }
    let mut found: Vec<u16> = zeros(rows.column.len(), "the columns of ras")?;
    let to = Disjoint::new(&mut found);
    (0..rows.len()).into_par_iter().for_each(|i| {
        let own = rows.row_ptr[i] as usize..rows.row_ptr[i + 1] as usize;
        // SAFETY: rows do not overlap.
        let to = unsafe { to.range(own.clone()) };
        for (to, &j) in to.iter_mut().zip(&rows.column[own]) {
            // The diagonal is not read.
            *to = (j as usize).abs_diff(i).saturating_sub(1) as u16;
        }
    });
    Ok(found)
}

/// Numbers of vectors for which there are solves.
pub(super) trait Solves: Real {
    /// Solves for the right-hand side and leaves the result in the present values.
    fn solve(
        pool: &Pool,
        f: &CpuSchwarz,
        how: TriangularSolve,
        transposed: Option<&Transposed>,
        vectors: &mut Vectors<Self>,
    );
}

/// Returns the rows and the distances of columns of the factors, or of their transposes.
fn pattern<'a>(f: &'a CpuSchwarz, transposed: Option<&'a Transposed>) -> (SchwarzRows<'a>, &'a [u16]) {
    transposed.map_or((f.plan.pattern(), &f.near), |t| (t.pattern.rows(), &t.near))
}

/// Solves with this view of the factors, or with that of their transposes.
fn solve_with<R: Real, T: Usable<R>>(
    pool: &Pool,
    f: &CpuSchwarz,
    how: TriangularSolve,
    turned: bool,
    view: &View<T>,
    vectors: &mut Vectors<R>,
) {
    macro_rules! by_order {
        ($($order:literal)*) => {
            match f.plan.block {
                $(
                    $order if turned => view.both::<R, $order, true>(pool, f, how, vectors),
                    $order => view.both::<R, $order, false>(pool, f, how, vectors),
                )*
                order => unreachable!("blocks of order {order}"),
            }
        };
    }
    by_order!(1 2 3 4 5 6 7 8);
}

impl Solves for f64 {
    fn solve(
        pool: &Pool,
        f: &CpuSchwarz,
        how: TriangularSolve,
        transposed: Option<&Transposed>,
        vectors: &mut Vectors<f64>,
    ) {
        let (rows, near) = pattern(f, transposed);
        let turned = transposed.is_some();
        macro_rules! with {
            ($factors:expr, $inverse:expr) => {{
                let view = View { rows, near, factors: &$factors[..], inverse: &$inverse[..] };
                solve_with(pool, f, how, turned, &view, vectors)
            }};
        }
        match (transposed.map(|t| &t.numbers), &f.rounded) {
            (None, None) => with!(f.factors, f.inverse),
            (None, Some([factors, inverse])) | (Some(Numbers::F32([factors, inverse])), _) => {
                with!(factors, inverse)
            }
            (Some(Numbers::F64([factors, inverse])), _) => with!(factors, inverse),
        }
    }
}

impl Solves for f32 {
    fn solve(
        pool: &Pool,
        f: &CpuSchwarz,
        how: TriangularSolve,
        transposed: Option<&Transposed>,
        vectors: &mut Vectors<f32>,
    ) {
        let (rows, near) = pattern(f, transposed);
        let [factors, inverse] = match (transposed.map(|t| &t.numbers), &f.rounded) {
            (None, Some(rounded)) | (Some(Numbers::F32(rounded)), _) => rounded,
            _ => unreachable!("factors in f64 for vectors in f32"),
        };
        let view = View { rows, near, factors: &factors[..], inverse: &inverse[..] };
        solve_with(pool, f, how, transposed.is_some(), &view, vectors);
    }
}

/// Computes sum += a x.
#[inline(always)]
fn multiply<R: Real, const B: usize>(a: &[impl Usable<R>], x: &[R], sum: &mut [R; B]) {
    for r in 0..B {
        for c in 0..B {
            sum[r] += a[r * B + c].get() * x[c];
        }
    }
}

impl<T> View<'_, T> {
    fn bytes(&self) -> usize {
        size_of_val(self.factors) / 2
    }

    /// Solves with L and U or, with TURNED, with Uᵀ and Lᵀ. The diagonal belongs to U.
    fn both<R: Real, const B: usize, const TURNED: bool>(
        &self,
        pool: &Pool,
        f: &CpuSchwarz,
        how: TriangularSolve,
        [rhs, now, next]: &mut Vectors<R>,
    ) where
        T: Usable<R>,
    {
        let schedule = &f.schedule;
        let (sweeps, jacobi) = match how {
            TriangularSolve::Exact => {
                let [lower, upper] = &schedule.exact;
                let [first, second] = if TURNED { [upper, lower] } else { [lower, upper] };
                self.pass::<R, B, false, false, TURNED>(pool, first, false, rhs, &[], next);
                self.pass::<R, B, true, false, TURNED>(pool, second, false, next, &[], now);
                return;
            }
            TriangularSolve::Jacobi { sweeps } => (sweeps, true),
            TriangularSolve::Random { sweeps } => (sweeps, false),
        };
        self.begin::<R, B>(TURNED, rhs, now);
        for _ in 0..sweeps {
            self.pass::<R, B, false, true, TURNED>(pool, &schedule.runs, jacobi, rhs, now, next);
            std::mem::swap(now, next);
        }
        std::mem::swap(rhs, now);
        self.begin::<R, B>(!TURNED, rhs, now);
        for _ in 0..sweeps {
            self.pass::<R, B, true, true, TURNED>(pool, &schedule.runs, jacobi, rhs, now, next);
            std::mem::swap(now, next);
        }
    }

    /// Writes the starting values of sweeps: `rhs` or, with `scaled`, the inverse of the diagonal times
    /// `rhs`.
    fn begin<R: Real, const B: usize>(&self, scaled: bool, rhs: &[R], now: &mut [R])
    where
        T: Usable<R>,
    {
        if !scaled {
            return now.copy_from_slice(rhs);
        }
        let inverses = self.inverse.chunks_exact(B * B);
        for ((z, y), inverse) in now.chunks_exact_mut(B).zip(rhs.chunks_exact(B)).zip(inverses) {
            let mut sum = [R::default(); B];
            multiply::<R, B>(inverse, y, &mut sum);
            z.copy_from_slice(&sum);
        }
    }

    /// Computes row `i` of the solve with the upper triangle, or the lower one: r_i − Σ over the other
    /// columns, in ascending order, and times the inverse of the diagonal if the triangle has it. `other`
    /// returns the numbers of a row.
    #[inline(always)]
    fn row<'o, R: Real, const B: usize, const UPPER: bool, const TURNED: bool>(
        &self,
        i: usize,
        r: &[R],
        other: impl Fn(usize) -> &'o [R],
    ) -> [R; B]
    where
        T: Usable<R>,
    {
        let (rows, bb) = (self.rows, B * B);
        let entries = if UPPER { rows.upper(i) } else { rows.lower(i) };
        let mut sum = [R::default(); B];
        let blocks = self.factors[entries.start * bb..entries.end * bb].chunks_exact(bb);
        match self.near.get(entries.clone()) {
            Some(near) => {
                for (&distance, a) in near.iter().zip(blocks) {
                    let distance = 1 + distance as usize;
                    multiply::<R, B>(a, other(if UPPER { i + distance } else { i - distance }), &mut sum);
                }
            }
            None => {
                for (&j, a) in rows.column[entries].iter().zip(blocks) {
                    multiply::<R, B>(a, other(j as usize), &mut sum);
                }
            }
        }
        let mut left = [R::default(); B];
        left.iter_mut().zip(r).zip(&sum).for_each(|((left, r), sum)| *left = *r - *sum);
        if UPPER != TURNED {
            sum = [R::default(); B];
            multiply::<R, B>(&self.inverse[i * bb..][..bb], &left, &mut sum);
            return sum;
        }
        left
    }

    /// Computes all rows of the solve with L, or with U. In a sweep, a row reads `old` values from other runs
    /// and, if `jacobi`, from its own.
    fn pass<R: Real, const B: usize, const UPPER: bool, const SWEEP: bool, const TURNED: bool>(
        &self,
        pool: &Pool,
        levels: &Levels,
        jacobi: bool,
        r: &[R],
        old: &[R],
        to: &mut [R],
    ) where
        T: Usable<R>,
    {
        let bytes = self.bytes() / self.rows.len().max(1);
        let to = Shared::new(to);
        levels.each_row(
            pool,
            bytes,
            UPPER,
            TURNED,
            #[inline(always)]
            |i, run| {
                let found = self.row::<R, B, UPPER, TURNED>(i, &r[i * B..][..B], |j| {
                    if SWEEP && (jacobi || !run.contains(&j)) {
                        return &old[j * B..][..B];
                    }
                    // SAFETY: this reads rows of earlier levels, which no thread writes any more, or earlier
                    // rows of this run, which this thread has written.
                    unsafe { to.read(j * B..(j + 1) * B) }
                });
                // SAFETY: a row is one thread's, and other runs of its level do not read it.
                unsafe { to.write(i * B..(i + 1) * B) }.copy_from_slice(&found);
            },
        );
    }
}
