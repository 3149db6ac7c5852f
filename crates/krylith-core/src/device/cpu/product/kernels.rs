//! Rows of a product, specialised on block size, stages and stored precision.

use super::super::Wide;
use super::{Group, PADDING, Rows, Values};
use crate::threads::Disjoint;
use crate::threads::prefetch;
use std::ops::Range;

pub(in super::super) type Kernel = fn(&Rows, Range<usize>, &[f64], &mut [f64]);

/// Returns the kernel for a block size and a number of stages.
pub(super) fn kernel(b: usize, s: usize) -> Kernel {
    // Block size; then, for one and for two terms: width of the vectors, and number of separate partial sums.
    macro_rules! table {
        ($(($b:literal, $one:literal, $two:literal, $apart1:literal, $apart2:literal))*) => {
            match (b, s) {
                $(($b, 1) => run::<$b, 1, $one, $two, $apart1, $apart2>,
                ($b, 2) => run::<$b, 2, $one, $two, $apart1, $apart2>,
                ($b, 3) => run::<$b, 3, $one, $two, $apart1, $apart2>,
                ($b, 4) => run::<$b, 4, $one, $two, $apart1, $apart2>,)*
                _ => run_any,
            }
        };
    }
    table!((1, 1, 2, 4, 4)(2, 2, 4, 2, 2)(3, 4, 8, 2, 1)(4, 4, 8, 2, 1)(5, 8, 16, 1, 1)(6, 8, 16, 1, 1)(
        7, 8, 16, 1, 1
    )(8, 8, 16, 1, 1))
}

fn run<const B: usize, const S: usize, const P1: usize, const P2: usize, const U1: usize, const U2: usize>(
    p: &Rows,
    rows: Range<usize>,
    x: &[f64],
    y: &mut [f64],
) {
    let (len, y) = (y.len(), Disjoint::new(y));
    let body = Wide(
        #[inline(always)]
        || {
            // SAFETY: the closure runs once, and y is not used beside it.
            let y = unsafe { y.range(0..len) };
            match p.groups.as_slice() {
                [g] if g.terms.len() == 2 => match &g.values {
                    Values::F64(v) => group::<B, S, 2, P2, U2, f64>(p, g, v, rows.clone(), x, y, false),
                    Values::F32(v) => group::<B, S, 2, P2, U2, f32>(p, g, v, rows.clone(), x, y, false),
                },
                groups => {
                    for (i, g) in groups.iter().enumerate() {
                        match &g.values {
                            Values::F64(v) => {
                                group::<B, S, 1, P1, U1, f64>(p, g, v, rows.clone(), x, y, i > 0)
                            }
                            Values::F32(v) => {
                                group::<B, S, 1, P1, U1, f32>(p, g, v, rows.clone(), x, y, i > 0)
                            }
                        }
                    }
                }
            }
        },
    );
    #[cfg(target_arch = "x86_64")]
    match pulp::Arch::new() {
        pulp::Arch::V4(simd) => simd.vectorize(body),
        pulp::Arch::V3(simd) => simd.vectorize(body),
        // Without a fused multiply–add instruction the body would call a library function for each.
        // SAFETY: `body` does not run, and no other code holds y.
        _ => run_any(p, rows.clone(), x, unsafe { y.range(0..len) }),
    }
    #[cfg(not(target_arch = "x86_64"))]
    pulp::Arch::new().dispatch(body);
}

/// A stored number.
pub(in super::super) trait Number: Copy {
    fn widen(self) -> f64;
}
impl Number for f64 {
    #[inline(always)]
    fn widen(self) -> f64 {
        self
    }
}
impl Number for f32 {
    #[inline(always)]
    fn widen(self) -> f64 {
        self as f64
    }
}

/// Distance in bytes by which values are prefetched; the hardware alone does not run far enough ahead of one
/// core.
const AHEAD: usize = 8192;

/// Computes Z += A_p X_j for the block p of each of `T` terms at once. `P` ≥ T·b numbers form a vector; the
/// surplus is ignored.
///
/// # Safety
/// `values` must be valid for `(B − 1) T B + P` numbers, and `x` for `B S`.
#[inline(always)]
unsafe fn block<const B: usize, const S: usize, const T: usize, const P: usize, V: Number>(
    z: &mut [[f64; P]; S],
    values: *const V,
    x: *const f64,
) {
    if large::<B, T, V>() {
        let mut line = 0;
        while line < T * B * B * size_of::<V>() {
            prefetch(values.wrapping_byte_add(AHEAD + line));
            line += 64;
        }
    }
    for c in 0..B {
        // SAFETY: the caller's promise.
        let column: [V; P] = unsafe { values.add(c * T * B).cast::<[V; P]>().read_unaligned() };
        for k in 0..S {
            // SAFETY: the caller's promise.
            let x = unsafe { *x.add(c * S + k) };
            for l in 0..P {
                z[k][l] = column[l].widen().mul_add(x, z[k][l]);
            }
        }
    }
}

/// True for blocks of a cache line or more, which prefetch values block by block; smaller blocks do so row by
/// row.
const fn large<const B: usize, const T: usize, V>() -> bool {
    T * B * B * size_of::<V>() >= 64
}

/// Computes rows of one group of `T` terms: Z_t = A_t X for the row, then y = Σ_t Z_t C_tᵀ.
///
/// Small blocks add into `U` partial sums in turn, because additions into a single sum would wait for each
/// other. Loads are not bounds-checked: `prepare` took the pattern from a [`Bsr`](crate::matrix::Bsr), which
/// is valid, and `multiply` has checked the length of x.
#[inline(always)]
fn group<const B: usize, const S: usize, const T: usize, const P: usize, const U: usize, V: Number>(
    p: &Rows,
    g: &Group,
    values: &[V],
    rows: Range<usize>,
    x: &[f64],
    y: &mut [f64],
    add: bool,
) {
    const { assert!(P >= T * B && P <= PADDING) };
    // Entry (k, q) of each coefficient, repeated for the rows of Z that it multiplies.
    let mut coefficients = [[[0.0f64; P]; S]; S];
    for t in 0..T {
        let c = &p.coefficients[g.terms.start + t][..S * S];
        for (k, q) in (0..S * S).map(|e| (e / S, e % S)) {
            coefficients[k][q][t * B..][..B].fill(c[k * S + q]);
        }
    }
    assert!(values.len() >= g.col.len() * T * B * B + PADDING && x.len() == p.block_columns * B * S);
    let (values, col, x) = (values.as_ptr(), g.col.as_ptr(), x.as_ptr());
    // SAFETY: e is an entry of the pattern: its block and the padding behind it are in `values`, and its
    // column is one of `block_columns`.
    let at = |e: usize| unsafe { (values.add(e * T * B * B), x.add(*col.add(e) as usize * B * S)) };
    let mut e = g.row_ptr[rows.start];
    let mut line = values.wrapping_add(e * T * B * B).cast::<i8>();
    for (&end, y) in g.row_ptr[rows.start + 1..=rows.end].iter().zip(y.chunks_exact_mut(B * S)) {
        let mut z = [[[0.0f64; P]; S]; U];
        if !large::<B, T, V>() {
            let end = values.wrapping_add(end * T * B * B).cast::<i8>();
            while line < end {
                prefetch(line.wrapping_add(AHEAD));
                line = line.wrapping_add(64);
            }
        }
        while e + U <= end {
            for u in 0..U {
                let (values, x) = at(e + u);
                // SAFETY: a block and its x, as above.
                unsafe { block::<B, S, T, P, V>(&mut z[u], values, x) };
            }
            e += U;
        }
        while e < end {
            let (values, x) = at(e);
            // SAFETY: a block and its x, as above.
            unsafe { block::<B, S, T, P, V>(&mut z[0], values, x) };
            e += 1;
        }
        let mut sums = z[0];
        for z in &z[1..] {
            for k in 0..S {
                for l in 0..P {
                    sums[k][l] += z[k][l];
                }
            }
        }
        for k in 0..S {
            let mut both = [0.0f64; P];
            for q in 0..S {
                for l in 0..P {
                    both[l] = coefficients[k][q][l].mul_add(sums[q][l], both[l]);
                }
            }
            for r in 0..B {
                let sum = if T == 2 { both[r] + both[B + r] } else { both[r] };
                y[r * S + k] = if add { y[r * S + k] + sum } else { sum };
            }
        }
    }
}

/// Computes rows for any block size and number of stages.
fn run_any(p: &Rows, rows: Range<usize>, x: &[f64], y: &mut [f64]) {
    let (b, s) = (p.block, p.stages);
    // On the stack for all common sizes, so that a product allocates nothing.
    let (mut small, mut large) = ([0.0; 256], Vec::new());
    let z = if b * s <= small.len() {
        &mut small[..b * s]
    } else {
        large.resize(b * s, 0.0);
        &mut large[..]
    };
    for (i, y) in rows.zip(y.chunks_exact_mut(b * s)) {
        y.fill(0.0);
        for g in &p.groups {
            for t in g.terms.clone() {
                z.fill(0.0);
                for e in g.row_ptr[i]..g.row_ptr[i + 1] {
                    let x = &x[g.col[e] as usize * b * s..][..b * s];
                    let at = |r: usize, c: usize| ((e * b + c) * g.terms.len() + t - g.terms.start) * b + r;
                    for r in 0..b {
                        for c in 0..b {
                            let v = match &g.values {
                                Values::F64(v) => v[at(r, c)],
                                Values::F32(v) => v[at(r, c)] as f64,
                            };
                            for k in 0..s {
                                z[r * s + k] += v * x[c * s + k];
                            }
                        }
                    }
                }
                for r in 0..b {
                    for k in 0..s {
                        for q in 0..s {
                            y[r * s + k] += p.coefficients[t][k * s + q] * z[r * s + q];
                        }
                    }
                }
            }
        }
    }
}
