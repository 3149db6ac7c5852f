//! Cycles in f32 on the host (`precond/multilevel/narrow.rs`). Each residual and smoother step is computed in
//! the pass of its product, chunk by chunk, while the numbers of a chunk are in the first-level cache.
//!
//! Traffic of a pass: each number of the matrix, b, D⁻¹ and x once, 4 bytes each, and 4 for the result. In
//! bf16 a number of the matrix has 2 bytes, and the diagonal is another vector in f32.

mod rows;
mod stored;

pub(super) use stored::{Number, Stored};

use super::dia::NarrowDiagonals;
use super::product::Own;
use super::{CHUNK, Cpu, Wide};
use crate::operator::check_lengths;
use crate::precond::range::{exponent, exponent_or_zero, middle, powers};
use crate::precond::{Diagonal, NarrowCycle, NarrowLevel, bf16};
use crate::space::{PrecondPrecision, Space};
use crate::threads::{Disjoint, Pool, share};
use crate::{Error, Result};
use rayon::prelude::*;
use rows::NarrowRows;
use std::cell::RefCell;
use std::ops::Range;
use stored::add_diagonal;

/// Number of numbers below which a second thread costs more time than it saves.
const FEW: usize = 1 << 14;
/// Smoothing sweeps on the last level if it has no inverse.
const SMOOTHED: usize = 10;

/// A V-cycle in f32.
pub(super) struct Narrow {
    levels: Vec<Level>,
    /// The matrices are multiplied by 2^shift.
    shift: i32,
    work: RefCell<Vec<Work>>,
}

/// One level.
struct Level {
    smoother: Option<Smoother>,
    /// P and R; `None` on the last level.
    transfer: Option<[NarrowRows; 2]>,
    inverse: Option<NarrowRows>,
}

struct Smoother {
    matrix: Matrix,
    d: Vec<f32>,
    steps: Vec<[f32; 2]>,
}

/// The matrix of a level.
enum Matrix {
    Diagonals(NarrowDiagonals),
    Rows(NarrowRows),
}

/// Vectors of a level. x is in `x`, and results of passes replace it by way of `next`.
struct Work {
    b: Vec<f32>,
    x: Vec<f32>,
    next: Vec<f32>,
    p: Vec<f32>,
}

/// What a pass makes of a chunk of A x.
enum Pass<'a> {
    /// b − A x.
    LeftOver(&'a [f32]),
    /// y + A x, where y has the result.
    Added,
    /// A x.
    Product,
    /// The step p = a·(last direction) + c D⁻¹ (b − A x), x + p.
    Step { b: &'a [f32], d: &'a [f32], factors: [f32; 2], last: Last, keeps: bool, p: Disjoint<'a, f32> },
}

/// The vector that holds the last direction.
#[derive(Clone, Copy, PartialEq)]
enum Last {
    None,
    X,
    P,
}

impl Narrow {
    /// Returns true if this processor has the instructions.
    pub fn is_available() -> bool {
        super::product::available()
    }

    /// Makes the cycle of these levels. Returns `None` for blocks, for a processor without the instructions,
    /// or if the range of the numbers is too large.
    pub fn new(on: &Cpu, levels: &[NarrowLevel<Cpu>], stored: PrecondPrecision) -> Result<Option<Self>> {
        let scalar = levels.iter().all(|level| level.terms.block() == 1);
        let Some(shift) = common_exponent(levels).filter(|_| scalar && Self::is_available()) else {
            return Ok(None);
        };
        let (mut made, mut work) = (Vec::new(), Vec::new());
        for level in levels {
            let Some(own) = Level::new(on.pool(), level, shift, stored) else { return Ok(None) };
            made.push(own);
            let n = level.space.len();
            let vector = || crate::threads::zeros(n, "a multigrid cycle in f32");
            work.push(Work { b: vector()?, x: vector()?, next: vector()?, p: vector()? });
        }
        Ok(Some(Self { levels: made, shift, work: RefCell::new(work) }))
    }

    /// Computes x ← B b on a level from the b of its workspace.
    fn cycle(&self, pool: &Pool, depth: usize, work: &mut [Work]) -> Result<()> {
        let level = &self.levels[depth];
        let lost = || Error::Internal("a level of a cycle in f32 has neither smoother nor inverse".into());
        let (own, below) = work.split_first_mut().ok_or_else(lost)?;
        if let Some(inverse) = &level.inverse {
            inverse.run(pool, &own.b, &mut own.x, &Pass::Product);
            return Ok(());
        }
        let smoother = level.smoother.as_ref().ok_or_else(lost)?;
        let (b, d, c) = (&own.b, &smoother.d, smoother.steps[0][1]);
        elementwise(
            pool,
            &mut own.x,
            #[inline(always)]
            |rows, x| {
                for ((x, b), d) in x.iter_mut().zip(&b[rows.clone()]).zip(&d[rows]) {
                    *x = c * d * b;
                }
            },
        );
        smoother.steps(pool, own, 1);
        let (Some([p, r]), Some(coarse)) = (&level.transfer, below.first_mut()) else {
            (1..SMOOTHED).for_each(|_| smoother.steps(pool, own, 0));
            return Ok(());
        };
        smoother.matrix.run(pool, &own.x, &mut own.next, &Pass::LeftOver(&own.b));
        r.run(pool, &own.next, &mut coarse.b, &Pass::Product);
        self.cycle(pool, depth + 1, below)?;
        p.run(pool, &below[0].x, &mut own.x, &Pass::Added);
        smoother.steps(pool, own, 0);
        Ok(())
    }
}

impl Smoother {
    /// Makes the steps from number `from` on. After the first step from x = 0, x is the last direction.
    fn steps(&self, pool: &Pool, work: &mut Work, from: usize) {
        for k in from..self.steps.len() {
            let last = match self.steps[k][0] != 0.0 && k > 0 {
                false => Last::None,
                true if from == 1 && k == 1 => Last::X,
                true => Last::P,
            };
            let keeps = self.steps.get(k + 1).is_some_and(|[a, _]| *a != 0.0);
            let Work { b, x, next, p } = work;
            let p = Disjoint::new(p);
            let step = Pass::Step { b, d: &self.d, factors: self.steps[k], last, keeps, p };
            self.matrix.run(pool, x, next, &step);
            std::mem::swap(x, next);
        }
    }
}

impl Level {
    fn new(pool: &Pool, from: &NarrowLevel<Cpu>, shift: i32, stored: PrecondPrecision) -> Option<Self> {
        let scale = 2f64.powi(shift);
        let mut level = Self { smoother: None, transfer: None, inverse: None };
        if let Some(inverse) = from.inverse {
            let Own::Rows(rows) = &inverse.own else { return None };
            level.inverse = Some(NarrowRows::of_product(pool, rows, 1.0 / scale)?);
        }
        if let (Some((Diagonal::Scalar(d), steps)), Some(operator)) = (from.smoother, from.operator) {
            let operator = operator.borrow();
            let own = &operator.product().own;
            let rounded =
                (stored == PrecondPrecision::Bf16).then(|| Matrix::in_bf16(pool, own, scale)).flatten();
            let (matrix, d) = match (rounded, own) {
                (Some(both), _) => both,
                (None, Own::Diagonals(a)) => {
                    (Matrix::Diagonals(NarrowDiagonals::of(a, scale)?), narrowed(d, 1.0 / scale))
                }
                (None, Own::Rows(a)) => {
                    (Matrix::Rows(NarrowRows::of_product(pool, a, scale)?), narrowed(d, 1.0 / scale))
                }
            };
            level.smoother = Some(Smoother {
                matrix,
                d,
                steps: steps.iter().map(|step| step.map(|v| v as f32)).collect(),
            });
        }
        if let Some(t) = from.transfer.filter(|_| level.is_in_bf16()) {
            let (p, r) = (&t.prolongation, &t.restriction);
            let [of_p, of_r] = bf16::weights(p, r);
            let of = |w, values| NarrowRows::of_weights(pool, w, values);
            level.transfer = Some([of(p, of_p), of(r, of_r)]);
        } else if let Some(t) = from.transfer {
            let [p, r] = [&t.prolongation, &t.restriction].map(|w| NarrowRows::new(pool, w));
            level.transfer = Some([p?, r?]);
        }
        Some(level)
    }

    /// Returns true if the matrix is stored in bf16.
    fn is_in_bf16(&self) -> bool {
        self.smoother.as_ref().is_some_and(|of| of.matrix.is_in_bf16())
    }
}

impl Matrix {
    /// Copies a product in bf16, and returns D⁻¹ of its smoother. Returns `None` if bf16 does not suit it.
    fn in_bf16(pool: &Pool, from: &Own, scale: f64) -> Option<(Self, Vec<f32>)> {
        match from {
            Own::Diagonals(a) => NarrowDiagonals::in_bf16(a, scale).map(|(a, d)| (Self::Diagonals(a), d)),
            Own::Rows(a) => NarrowRows::of_product_in_bf16(pool, a, scale).map(|(a, d)| (Self::Rows(a), d)),
        }
    }

    fn is_in_bf16(&self) -> bool {
        match self {
            Self::Diagonals(a) => a.is_in_bf16(),
            Self::Rows(a) => a.is_in_bf16(),
        }
    }

    fn run(&self, pool: &Pool, x: &[f32], y: &mut [f32], pass: &Pass) {
        match self {
            Self::Rows(rows) => rows.run(pool, x, y, pass),
            Self::Diagonals(a) => {
                let (n, bytes) = (y.len(), a.bytes());
                let (chunks, y) = (n.div_ceil(CHUNK), Disjoint::new(y));
                let pieces = pool.pieces(bytes).min(chunks.max(1));
                pool.run(pieces, |piece| {
                    pulp::Arch::new().dispatch(Wide(
                        #[inline(always)]
                        || {
                            for chunk in share(chunks, piece, pieces) {
                                let rows = chunk * CHUNK..((chunk + 1) * CHUNK).min(n);
                                let mut s = [0.0; CHUNK];
                                a.multiply_rows(rows.clone(), x, &mut s[..rows.len()]);
                                add_diagonal(a.own(), rows.clone(), x, &mut s[..rows.len()]);
                                // SAFETY: chunks do not overlap.
                                let y = unsafe { y.range(rows.clone()) };
                                // SAFETY: as above.
                                unsafe { pass.finish(rows.clone(), &s[..rows.len()], x, y) };
                            }
                        },
                    ));
                });
            }
        }
    }

    fn bytes(&self) -> usize {
        match self {
            Self::Rows(rows) => rows.bytes(),
            Self::Diagonals(a) => a.bytes(),
        }
    }
}

impl Pass<'_> {
    /// Turns these rows of s = A x into the results y.
    ///
    /// # Safety
    /// No other thread uses these rows of p.
    #[inline(always)]
    unsafe fn finish(&self, rows: Range<usize>, s: &[f32], x: &[f32], y: &mut [f32]) {
        // These are loops and not closures, which would not be compiled for the wide instructions.
        match self {
            Self::Product => y.copy_from_slice(s),
            Self::Added => {
                for (y, s) in y.iter_mut().zip(s) {
                    *y += s;
                }
            }
            Self::LeftOver(b) => {
                for ((y, s), b) in y.iter_mut().zip(s).zip(&b[rows]) {
                    *y = b - s;
                }
            }
            Self::Step { b, d, factors: [a, c], last, keeps, p } => {
                let (a, c, b, d, x) = (*a, *c, &b[rows.clone()], &d[rows.clone()], &x[rows.clone()]);
                // SAFETY: the caller's promise.
                let p = unsafe { p.range(rows) };
                for (((y, s), b), d) in y.iter_mut().zip(s).zip(b).zip(d) {
                    *y = c * d * (b - s);
                }
                match last {
                    Last::None => {}
                    Last::X => {
                        for (y, x) in y.iter_mut().zip(x) {
                            *y += a * x;
                        }
                    }
                    Last::P => {
                        for (y, p) in y.iter_mut().zip(&*p) {
                            *y += a * p;
                        }
                    }
                }
                if *keeps {
                    p.copy_from_slice(y);
                }
                for (y, x) in y.iter_mut().zip(x) {
                    *y += x;
                }
            }
        }
    }
}

/// Calls `f` for chunks of a vector, on all threads.
fn elementwise<T>(pool: &Pool, y: &mut [T], f: impl Fn(Range<usize>, &mut [T]) + Sync)
where
    for<'a> Disjoint<'a, T>: Sync,
{
    let n = y.len();
    let (chunks, y) = (n.div_ceil(CHUNK), Disjoint::new(y));
    let pieces = pool.pieces(12 * n).min(chunks.max(1));
    pool.run(pieces, |piece| {
        pulp::Arch::new().dispatch(Wide(
            #[inline(always)]
            || {
                for chunk in share(chunks, piece, pieces) {
                    let rows = chunk * CHUNK..((chunk + 1) * CHUNK).min(n);
                    // SAFETY: chunks do not overlap.
                    f(rows.clone(), unsafe { y.range(rows) });
                }
            },
        ));
    });
}

/// Rounds numbers times `scale` to f32.
pub(super) fn narrowed(from: &[f64], scale: f64) -> Vec<f32> {
    from.par_iter().with_min_len(FEW).map(|v| (v * scale) as f32).collect()
}

/// Returns the exponent around which those of D⁻¹ lie on all levels; `None` if they differ too much.
fn common_exponent(levels: &[NarrowLevel<Cpu>]) -> Option<i32> {
    let (mut low, mut high) = (f64::INFINITY, 0.0f64);
    for level in levels {
        match level.smoother {
            Some((Diagonal::Scalar(d), _)) => {
                let both = |[a, b]: [f64; 2], [c, d]: [f64; 2]| [a.min(c), b.max(d)];
                let sizes = d.par_iter().with_min_len(FEW).map(|v| v.abs()).filter(|v| *v != 0.0);
                [low, high] = both([low, high], sizes.map(|v| [v, v]).reduce(|| [f64::INFINITY, 0.0], both));
            }
            Some((Diagonal::Blocks(_), _)) => return None,
            None => {}
        }
    }
    if low > high {
        return Some(0); // the only level is solved directly
    }
    if high.is_finite() { middle(exponent(low), exponent(high)) } else { None }
}

impl NarrowCycle<Cpu> for Narrow {
    fn apply(&self, on: &Cpu, b: &Vec<f64>, x: &mut Vec<f64>) -> Result<()> {
        let (work, pool) = (&mut *self.work.borrow_mut(), on.pool());
        let n = work[0].b.len();
        check_lengths(n, n, b.len(), x.len())?;
        let largest = largest(pool, b);
        let e = exponent_or_zero(largest);
        let [f, g] = powers(-e);
        elementwise(
            pool,
            &mut work[0].b,
            #[inline(always)]
            |rows, to| {
                for (to, from) in to.iter_mut().zip(&b[rows]) {
                    *to = (from * f * g) as f32;
                }
            },
        );
        self.cycle(pool, 0, work)?;
        let (found, [f, g]) = (&work[0].x, powers(e + self.shift));
        elementwise(
            pool,
            x,
            #[inline(always)]
            |rows, to| {
                for (to, from) in to.iter_mut().zip(&found[rows]) {
                    *to = f64::from(*from) * f * g;
                }
            },
        );
        Ok(())
    }

    /// Nothing is recorded on a CPU, so the cycle is made again.
    fn update(&mut self, _: &[NarrowLevel<Cpu>]) -> Result<bool> {
        Ok(false)
    }

    fn in_bf16(&self) -> [usize; 2] {
        let with = |wanted: &dyn Fn(&Level) -> bool| self.levels.iter().filter(|level| wanted(level)).count();
        [with(&|level| level.is_in_bf16()), with(&|level| level.smoother.is_some())]
    }

    fn bytes(&self) -> u64 {
        let level = |(level, work): (&Level, &Work)| {
            let n = work.b.len();
            let transfers = level.transfer.iter().flatten().map(NarrowRows::bytes).sum::<usize>();
            match (&level.smoother, &level.inverse) {
                (Some(of), _) => 2 * of.steps.len() * (of.matrix.bytes() + 12 * n) + transfers + 8 * n,
                (None, inverse) => inverse.as_ref().map_or(0, NarrowRows::bytes),
            }
        };
        self.levels.iter().zip(&*self.work.borrow()).map(level).sum::<usize>() as u64
    }
}

/// Returns the largest absolute value; infinity or NaN if there is one.
pub(super) fn largest(pool: &Pool, b: &[f64]) -> f64 {
    let chunks = b.len().div_ceil(CHUNK);
    let pieces = pool.pieces(8 * b.len()).min(chunks.max(1));
    let mut found = vec![0u64; pieces];
    {
        let found = Disjoint::new(&mut found);
        pool.run(pieces, |piece| {
            let rows = share(chunks, piece, pieces);
            let rows = rows.start * CHUNK..(rows.end * CHUNK).min(b.len());
            // The bits of positive numbers order as the numbers do.
            let most = b[rows].iter().fold(0u64, |most, v| most.max(v.abs().to_bits()));
            // SAFETY: each piece has its own number.
            let own = unsafe { found.range(piece..piece + 1) };
            own[0] = most;
        });
    }
    f64::from_bits(found.into_iter().max().unwrap_or(0))
}
