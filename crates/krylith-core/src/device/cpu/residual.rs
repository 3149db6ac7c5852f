//! Computes r = b − A x on the CPU in twice the working precision, together with |b| + |A| |x|. The two
//! decide whether a solve has converged.
//!
//! Memory traffic: the bytes of a product, plus reading b and writing |b| + |A| |x|. A row is summed stage by
//! stage; after the first stage its values come from the cache. A batch of iterations ends with at most one
//! residual, so it need not be as fast as a product.

use super::product::{Group, Number, Own, PADDING, Rows, Values};
use super::{Cpu, CpuProduct, Wide};
use crate::Result;
use crate::operator::check_lengths;
use crate::threads::Disjoint;
use crate::twofold::Twofold;
use std::cell::Cell;
use std::ops::Range;

/// Largest number of unknowns of a node whose sums are on the stack.
const SMALL: usize = 64;

/// The vector that a product is subtracted from, and the results for its rows.
struct Target<'a> {
    /// The vector to subtract from: b, or the result of earlier subtractions.
    from: &'a [f64],
    r: &'a mut [f64],
    m: &'a mut [f64],
    /// Rounding error of r, where more is to be subtracted.
    low: Option<&'a mut [f64]>,
}

impl CpuProduct {
    /// Computes `r ← b − A x` and `m ← |b| + |A| |x|`.
    pub(super) fn residual(
        &self,
        space: &Cpu,
        b: &[f64],
        x: &[f64],
        r: &mut [f64],
        m: &mut [f64],
    ) -> Result<()> {
        let own = &self.own;
        own.check(x, r)?;
        check_lengths(r.len(), m.len(), b.len(), m.len())?;
        let Some(outer) = &self.outer else {
            own.residual(space, b, x, r, m, None);
            return Ok(());
        };
        outer.start(space, x)?;
        let mut low = outer.low(r.len());
        own.residual(space, b, x, r, m, Some(&mut low));
        outer.subtract(space, r, m, &low)
    }
}

impl Own {
    fn residual(
        &self,
        space: &Cpu,
        b: &[f64],
        x: &[f64],
        r: &mut [f64],
        m: &mut [f64],
        low: Option<&mut [f64]>,
    ) {
        match self {
            Own::Rows(rows) => rows.residual(space, b, x, r, m, low),
            Own::Diagonals(d) => d.residual(space, b, x, r, m, low),
        }
    }
}

impl Rows {
    /// Computes `r ← b − A x` and `m ← |b| + |A| |x|`; the rounding error of r goes to `low`.
    pub(super) fn residual(
        &self,
        space: &Cpu,
        b: &[f64],
        x: &[f64],
        r: &mut [f64],
        m: &mut [f64],
        low: Option<&mut [f64]>,
    ) {
        let run = self.run();
        let (r, m, low) = (Disjoint::new(r), Disjoint::new(m), low.map(Disjoint::new));
        space.pool().run(self.pieces.len(), |piece| {
            let rows = self.pieces[piece].clone();
            let numbers = rows.start * run..rows.end * run;
            // SAFETY: the rows of the pieces do not overlap.
            let (r, m) = unsafe { (r.range(numbers.clone()), m.range(numbers.clone())) };
            // SAFETY: as above.
            let low = low.as_ref().map(|low| unsafe { low.range(numbers.clone()) });
            subtract(self, rows, x, Target { from: &b[numbers], r, m, low });
        });
    }

    /// Subtracts one more row from r, starting with its rounding error in `low`.
    pub(super) fn subtract_row(&self, row: usize, x: &[f64], r: &mut [f64], m: &mut [f64], low: &[f64]) {
        let mut sums = Sums::new(self.run());
        for (e, sum) in sums.get().iter_mut().enumerate() {
            *sum = (Twofold { hi: r[e], lo: low[e] }, m[e]);
        }
        add_row(self, row, x, sums.get());
        for (e, (sum, size)) in sums.get().iter().enumerate() {
            (r[e], m[e]) = (sum.value(), *size);
        }
    }
}

/// Sums of a block row with their magnitudes, on the stack for all common sizes.
struct Sums {
    small: [(Twofold, f64); SMALL],
    large: Vec<(Twofold, f64)>,
    run: usize,
}

impl Sums {
    fn new(run: usize) -> Self {
        let large = if run > SMALL { vec![Default::default(); run] } else { Vec::new() };
        Self { small: [Default::default(); SMALL], large, run }
    }

    fn get(&mut self) -> &mut [(Twofold, f64)] {
        if self.run > SMALL { &mut self.large } else { &mut self.small[..self.run] }
    }
}

/// Computes b − A x for a range of rows.
fn subtract(p: &Rows, rows: Range<usize>, x: &[f64], to: Target) {
    let to = Cell::new(Some(to));
    pulp::Arch::new().dispatch(Wide(
        #[inline(always)]
        || {
            let Some(Target { from, r, m, mut low }) = to.take() else { return };
            let run = p.run();
            let mut sums = Sums::new(run);
            for (i, row) in rows.clone().enumerate() {
                let first = i * run;
                for (sum, b) in sums.get().iter_mut().zip(&from[first..first + run]) {
                    *sum = (Twofold::from(*b), b.abs());
                }
                add_row(p, row, x, sums.get());
                for (e, (sum, size)) in sums.get().iter().enumerate() {
                    (r[first + e], m[first + e]) = (sum.value(), *size);
                    if let Some(low) = &mut low {
                        low[first + e] = sum.rest();
                    }
                }
            }
        },
    ));
}

/// Subtracts row `i` of A x from the sums, and adds row `i` of |A| |x| to their magnitudes.
#[inline(always)]
fn add_row(p: &Rows, i: usize, x: &[f64], sums: &mut [(Twofold, f64)]) {
    for g in &p.groups {
        let width = g.terms.len() * p.block();
        match (&g.values, width) {
            (Values::F64(v), 1) => row::<1, f64>(p, g, v, i, x, sums),
            (Values::F64(v), 2) => row::<2, f64>(p, g, v, i, x, sums),
            (Values::F64(v), 3..=4) => row::<4, f64>(p, g, v, i, x, sums),
            (Values::F64(v), _) => row::<8, f64>(p, g, v, i, x, sums),
            (Values::F32(v), _) => row::<8, f32>(p, g, v, i, x, sums),
        }
    }
}

/// Subtracts row `i` of one group, whose columns of `T b` numbers are processed `W` at a time.
#[inline(always)]
fn row<const W: usize, V: Number>(
    p: &Rows,
    g: &Group,
    values: &[V],
    i: usize,
    x: &[f64],
    sums: &mut [(Twofold, f64)],
) {
    const { assert!(W <= PADDING) };
    let (b, s, width) = (p.block(), p.stages(), g.terms.len() * p.block());
    let entries = g.row_ptr[i]..g.row_ptr[i + 1];
    for (first, q) in (0..width).step_by(W).flat_map(|first| (0..s).map(move |q| (first, q))) {
        // Sums, their rounding errors, and sums of magnitudes: an entry only waits for one addition of the
        // entry before.
        let (mut hi, mut lo, mut size) = ([0.0f64; W], [0.0f64; W], [0.0f64; W]);
        let columns = g.col[entries.clone()].iter().flat_map(|&j| (0..b).map(move |c| j as usize * b + c));
        let stored = values[entries.start * b * width..].chunks(width.max(1));
        if W == 1 {
            for (j, v) in columns.zip(stored) {
                accumulate(v[0].widen(), x[j * s + q], &mut hi[0], &mut lo[0], &mut size[0]);
            }
        } else {
            for (n, j) in columns.enumerate() {
                let v = &values[(entries.start * b + n) * width + first..][..W];
                for l in 0..W {
                    accumulate(v[l].widen(), x[j * s + q], &mut hi[l], &mut lo[l], &mut size[l]);
                }
            }
        }
        for l in 0..W.min(width - first) {
            let (sum, magnitude) = (Twofold { hi: hi[l], lo: lo[l] }, size[l]);
            let (t, r) = ((first + l) / b, (first + l) % b);
            let coefficients = &p.coefficients[g.terms.start + t];
            for k in 0..s {
                let (c, (to, whole)) = (coefficients[k * s + q], &mut sums[r * s + k]);
                to.add_multiple(-c, sum);
                *whole += c.abs() * magnitude;
            }
        }
    }
}

/// Computes hi + lo += v x, like `Twofold::add_product` on numbers in a vector register, and size += |v x|.
#[inline(always)]
fn accumulate(v: f64, x: f64, hi: &mut f64, lo: &mut f64, size: &mut f64) {
    let product = v * x;
    let sum = *hi + product;
    let z = sum - *hi;
    *lo += v.mul_add(x, -product) + ((*hi - (sum - z)) + (product - z));
    *hi = sum;
    *size += product.abs();
}
