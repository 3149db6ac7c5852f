//! Point-block ILU on the pattern S of the factors, row by row (IKJ; Saad 2003, Alg. 10.1). An exact
//! factorisation and a randomized sweep compute a row in the same way, but read different rows of U.

use super::super::Wide;
use super::super::elimination::{self, Find, Upper, Walk, invert, subtract};
use super::{CpuSchwarz, Levels, Shared, by_order};
use crate::Result;
use crate::precond::{FactorQuality, Factorization, Pivots, SchwarzPlan};
use crate::threads::zeros;
use crate::threads::{Disjoint, Pool, share};
use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// Rows whose defect is summed in order.
const ROWS: usize = 256;

/// Largest number of entries of a block.
const SQUARE: usize = 64;

/// Inputs of the rows.
struct Job<'a> {
    plan: &'a SchwarzPlan,
    matrix: &'a [f64],
    scale: &'a [f64],
    /// Counts of bad pivots. Without them, as in a sweep, the inverse of a bad pivot is NaN.
    pivots: Option<Mutex<Pivots>>,
}

/// Factorises the values that `f` has gathered.
pub(super) fn factorize(pool: &Pool, f: &mut CpuSchwarz, how: Factorization) -> Result<FactorQuality> {
    let CpuSchwarz { plan, matrix, factors, inverse, before, scale, schedule, .. } = f;
    let (plan, order) = (&**plan, plan.block);
    let pivots = matches!(how, Factorization::Exact).then(Mutex::default);
    let job = Job { plan, matrix, scale, pivots };
    match how {
        Factorization::Exact => {
            by_order!(order, rows(pool, &job, &schedule.exact[0], None, factors, inverse));
        }
        Factorization::Random { sweeps, warm } => {
            let [old, old_inverse] = before;
            if old.len() != factors.len() {
                *old = zeros(factors.len(), "a sweep of ras")?;
                *old_inverse = zeros(inverse.len(), "a sweep of ras")?;
            }
            if !warm {
                // L is computed before it is read.
                factors.copy_from_slice(matrix);
                by_order!(order, invert_diagonal(pool, &job, factors, inverse));
            }
            for _ in 0..sweeps {
                std::mem::swap(factors, old);
                std::mem::swap(inverse, old_inverse);
                let old = Some([&old[..], &old_inverse[..]]);
                by_order!(order, rows(pool, &job, &schedule.runs, old, factors, inverse));
            }
        }
    }
    let random = job.pivots.is_none();
    let defect2 = by_order!(order, defect(pool, &job, factors, random))?;
    let finite = all_finite(pool, factors) && all_finite(pool, inverse);
    let pivots = job.pivots.map(|pivots| pivots.into_inner().unwrap_or_else(|e| e.into_inner()));
    Ok(FactorQuality { pivots: pivots.unwrap_or_default(), defect2, finite })
}

impl Job<'_> {
    fn entries(&self, rows: Range<usize>) -> Range<usize> {
        self.plan.row_ptr[rows.start] as usize..self.plan.row_ptr[rows.end] as usize
    }

    fn bytes(&self) -> usize {
        16 * self.matrix.len()
    }

    /// Computes row `i` of L and U into `row`. `other` returns the blocks of U behind the diagonal of a row,
    /// and the inverse of its diagonal.
    #[inline(always)]
    fn eliminate<'o, const B: usize>(
        &'o self,
        i: usize,
        row: &mut [f64],
        other: impl Fn(usize) -> (&'o [f64], &'o [f64]),
    ) {
        let (plan, entries, mut l) = (self.plan, self.entries(i..i + 1), [0.0; SQUARE]);
        row.copy_from_slice(&self.matrix[entries.start * B * B..entries.end * B * B]);
        let walk = Walk::along(&plan.column[entries]);
        elimination::row(B, &plan.column[plan.lower(i)], row, &mut l, walk, |k| {
            let (blocks, inverse) = other(k);
            Upper { columns: &plan.column[plan.upper(k)], blocks, inverse }
        });
    }

    /// Inverts a diagonal block of U.
    #[inline(always)]
    fn invert<const B: usize>(&self, i: usize, diagonal: &[f64], inverse: &mut [f64]) {
        let mut work = [0.0; SQUARE];
        let work = &mut work[..B * B];
        work.copy_from_slice(diagonal);
        if let Err(kind) = invert(B, work, &self.scale[i * B..][..B], inverse) {
            match &self.pivots {
                Some(pivots) => {
                    inverse.fill(0.0);
                    pivots.lock().unwrap_or_else(|e| e.into_inner()).found(self.plan.node[i], kind);
                }
                None => inverse.fill(f64::NAN),
            }
        }
    }
}

/// Computes all rows of L and U. With `old` factors and inverses, a row reads those of the rows before its
/// run.
fn rows<const B: usize>(
    pool: &Pool,
    job: &Job,
    levels: &Levels,
    old: Option<[&[f64]; 2]>,
    factors: &mut [f64],
    inverse: &mut [f64],
) {
    let (bb, plan) = (B * B, job.plan);
    let bytes = job.bytes() / plan.rows().max(1);
    let (factors, inverse) = (Shared::new(factors), Shared::new(inverse));
    levels.each_row(
        pool,
        bytes,
        false,
        false,
        #[inline(always)]
        |i, run| {
            let entries = job.entries(i..i + 1);
            // SAFETY: a row is one thread's, and other runs of its level do not read it.
            let (row, own) = unsafe {
                let entries = entries.start * bb..entries.end * bb;
                (factors.write(entries), inverse.write(i * bb..(i + 1) * bb))
            };
            job.eliminate::<B>(i, row, |k| {
                let (behind, diagonal) = (plan.upper(k), k * bb..(k + 1) * bb);
                let behind = behind.start * bb..behind.end * bb;
                match old {
                    Some([factors, inverse]) if k < run.start => (&factors[behind], &inverse[diagonal]),
                    // SAFETY: this reads rows of earlier levels, which no thread writes any more, or earlier
                    // rows of this run, which this thread has written.
                    _ => unsafe { (factors.read(behind), inverse.read(diagonal)) },
                }
            });
            let diagonal = plan.diagonal[i] as usize - entries.start;
            job.invert::<B>(i, &row[diagonal * bb..][..bb], own);
        },
    );
}

/// Inverts the present diagonal blocks.
fn invert_diagonal<const B: usize>(pool: &Pool, job: &Job, factors: &[f64], inverse: &mut [f64]) {
    let (bb, rows) = (B * B, job.plan.rows());
    let pieces = pool.pieces(16 * inverse.len());
    let inverse = Disjoint::new(inverse);
    pool.run(pieces, |piece| {
        for i in share(rows, piece, pieces) {
            // SAFETY: each row has its own.
            let own = unsafe { inverse.range(i * bb..(i + 1) * bb) };
            job.invert::<B>(i, &factors[job.plan.diagonal[i] as usize * bb..][..bb], own);
        }
    });
}

/// Returns ‖(A − LU)_S‖², or 0 if it is not `wanted`, and ‖A‖².
fn defect<const B: usize>(pool: &Pool, job: &Job, factors: &[f64], wanted: bool) -> Result<[f64; 2]> {
    let (bb, plan) = (B * B, job.plan);
    let chunks = plan.rows().div_ceil(ROWS);
    let mut sums = zeros::<[f64; 2]>(chunks, "the defect of the factors")?;
    let pieces = pool.pieces(job.bytes()).min(chunks);
    let to = Disjoint::new(&mut sums);
    pool.run(pieces, |piece| {
        pulp::Arch::new().dispatch(Wide(
            #[inline(always)]
            || {
                let mut left = Vec::new();
                for chunk in share(chunks, piece, pieces) {
                    let mut sum = [0.0; 2];
                    for i in chunk * ROWS..plan.rows().min((chunk + 1) * ROWS) {
                        let entries = job.entries(i..i + 1);
                        let row = &job.matrix[entries.start * bb..entries.end * bb];
                        sum[1] += row.iter().map(|v| v * v).sum::<f64>();
                        if !wanted {
                            continue;
                        }
                        left.clear();
                        left.extend_from_slice(row);
                        let own = &factors[entries.start * bb..entries.end * bb];
                        let columns = &plan.column[entries.clone()];
                        let diagonal = plan.diagonal[i] as usize - entries.start;
                        for (e, l) in own.chunks_exact(bb).enumerate().take(diagonal) {
                            let k = columns[e] as usize;
                            let mut walk = Walk::along(columns);
                            walk.begin(e);
                            for f in plan.diagonal[k] as usize..plan.row_ptr[k + 1] as usize {
                                if let Some(at) = walk.place(plan.column[f]) {
                                    subtract(B, l, &factors[f * bb..][..bb], &mut left[at * bb..][..bb]);
                                }
                            }
                        }
                        let upper = left[diagonal * bb..].iter_mut().zip(&own[diagonal * bb..]);
                        upper.for_each(|(left, u)| *left -= u);
                        sum[0] += left.iter().map(|v| v * v).sum::<f64>();
                    }
                    // SAFETY: each chunk has its own sums.
                    unsafe { to.range(chunk..chunk + 1)[0] = sum };
                }
            },
        ));
    });
    Ok(sums.iter().fold([0.0; 2], |all, sum| [all[0] + sum[0], all[1] + sum[1]]))
}

fn all_finite(pool: &Pool, numbers: &[f64]) -> bool {
    let (all, pieces) = (AtomicBool::new(true), pool.pieces(8 * numbers.len()));
    pool.run(pieces, |piece| {
        if !numbers[share(numbers.len(), piece, pieces)].iter().all(|v| v.is_finite()) {
            all.store(false, Relaxed);
        }
    });
    all.into_inner()
}
