//! Elimination of one block row, which every incomplete factorisation on the CPU uses, and the numbers that
//! are stored in f64 or f32.
//!
//! Row i of A ≈ L U is computed in the order IKJ (Saad 2003, Alg. 10.1), in f64. Blocks are row-major and of
//! order m. Callers pass m as a constant, so that loops over blocks are unrolled.

use crate::precond::{PivotKind, TINY_PIVOT, eliminate};
use std::ops::{AddAssign, Mul, Neg, Sub, SubAssign};

/// A finished row: columns and blocks of U behind the diagonal, and the inverse of the diagonal block.
pub(super) struct Upper<'a> {
    pub columns: &'a [u32],
    pub blocks: &'a [f64],
    pub inverse: &'a [f64],
}

/// A way to find columns of the present row.
pub(super) trait Find {
    /// Begins a search for ascending columns behind entry `e`.
    fn begin(&mut self, e: usize);
    /// Returns the entry of column j, if the row has one.
    fn place(&mut self, j: u32) -> Option<usize>;
    /// Returns true if the row has no column that is as high as the last one.
    fn ended(&self) -> bool;
}

/// Finds columns in a table: for each column its entry in the last row so far that has one there. The row
/// begins with entry `begin`.
pub(super) struct Table<'a> {
    pub entry: &'a [u32],
    pub begin: usize,
}

impl Find for Table<'_> {
    #[inline(always)]
    fn begin(&mut self, _: usize) {}
    #[inline(always)]
    fn place(&mut self, j: u32) -> Option<usize> {
        (self.entry[j as usize] as usize).checked_sub(self.begin)
    }
    #[inline(always)]
    fn ended(&self) -> bool {
        false
    }
}

/// Finds columns by a walk along the row.
pub(super) struct Walk<'a> {
    columns: &'a [u32],
    at: usize,
}

impl<'a> Walk<'a> {
    #[inline(always)]
    pub fn along(columns: &'a [u32]) -> Self {
        Self { columns, at: 0 }
    }
}

impl Find for Walk<'_> {
    #[inline(always)]
    fn begin(&mut self, e: usize) {
        self.at = e;
    }
    #[inline(always)]
    fn place(&mut self, j: u32) -> Option<usize> {
        while self.at < self.columns.len() && self.columns[self.at] < j {
            self.at += 1;
        }
        (self.at < self.columns.len() && self.columns[self.at] == j).then_some(self.at)
    }
    #[inline(always)]
    fn ended(&self) -> bool {
        self.at == self.columns.len()
    }
}

/// Eliminates the row whose first `columns.len()` entries are those of L: L_ik = a_ik U_kk⁻¹ for each k,
/// ascending, and then a_ij = a_ij − L_ik U_kj for the j of both rows. `other` returns row k; `l` has space
/// for a block.
#[inline(always)]
pub(super) fn row<'o>(
    m: usize,
    columns: &[u32],
    row: &mut [f64],
    l: &mut [f64],
    mut find: impl Find,
    other: impl Fn(usize) -> Upper<'o>,
) {
    let mm = m * m;
    let l = &mut l[..mm];
    for (e, &k) in columns.iter().enumerate() {
        let Upper { columns, blocks, inverse } = other(k as usize);
        multiply(m, &row[e * mm..][..mm], inverse, l);
        row[e * mm..][..mm].copy_from_slice(l);
        find.begin(e);
        for (&j, u) in columns.iter().zip(blocks.chunks_exact(mm)) {
            let place = find.place(j);
            if find.ended() {
                break;
            }
            if let Some(at) = place {
                subtract(m, l, u, &mut row[at * mm..][..mm]);
            }
        }
    }
}

/// Computes c = a b.
#[inline(always)]
pub(super) fn multiply(m: usize, a: &[f64], b: &[f64], c: &mut [f64]) {
    let (a, b, c) = (&a[..m * m], &b[..m * m], &mut c[..m * m]);
    if m == 1 {
        c[0] = a[0] * b[0];
        return;
    }
    c.fill(0.0);
    for r in 0..m {
        for k in 0..m {
            for q in 0..m {
                c[r * m + q] += a[r * m + k] * b[k * m + q];
            }
        }
    }
}

/// Computes c = c − a b.
#[inline(always)]
pub(super) fn subtract(m: usize, a: &[f64], b: &[f64], c: &mut [f64]) {
    let (a, b, c) = (&a[..m * m], &b[..m * m], &mut c[..m * m]);
    for r in 0..m {
        for k in 0..m {
            for q in 0..m {
                c[r * m + q] -= a[r * m + k] * b[k * m + q];
            }
        }
    }
}

/// Computes the largest entry of each scalar row of a block row.
#[inline(always)]
pub(super) fn largest(m: usize, row: &[f64], scale: &mut [f64]) {
    scale.fill(0.0);
    for block in row.chunks_exact(m * m) {
        for (scale, row) in scale.iter_mut().zip(block.chunks_exact(m)) {
            *scale = row.iter().fold(*scale, |most, v| most.max(v.abs()));
        }
    }
}

/// Inverts a row-major pivot by Gauss–Jordan elimination with row pivoting, and overwrites `a`; `scale` has
/// the largest entry of each scalar row of the matrix.
#[inline(always)]
pub(super) fn invert(m: usize, a: &mut [f64], scale: &[f64], inverse: &mut [f64]) -> Result<(), PivotKind> {
    if a.iter().any(|v| !v.is_finite()) {
        return Err(PivotKind::NotFinite);
    }
    if m == 1 {
        inverse[0] = 1.0 / a[0];
        return match a[0] {
            0.0 => Err(PivotKind::Zero),
            v if v.abs() < TINY_PIVOT * scale[0] => Err(PivotKind::Tiny),
            _ if !inverse[0].is_finite() => Err(PivotKind::NotFinite),
            _ => Ok(()),
        };
    }
    inverse.fill(0.0);
    for r in 0..m {
        // Rows with different units are compared relative to the entries of the matrix.
        let largest = if scale[r] > 0.0 { scale[r] } else { 1.0 };
        a[r * m..(r + 1) * m].iter_mut().for_each(|v| *v /= largest);
        inverse[r * m + r] = 1.0 / largest;
    }
    eliminate(m, a, inverse)
}

/// A stored number of factors.
pub(super) trait Stored: Copy + Default + Send + Sync {
    fn narrow(v: f64) -> Self;
    fn widen(self) -> f64;
}

impl Stored for f64 {
    #[inline(always)]
    fn narrow(v: f64) -> f64 {
        v
    }
    #[inline(always)]
    fn widen(self) -> f64 {
        self
    }
}

impl Stored for f32 {
    #[inline(always)]
    fn narrow(v: f64) -> f32 {
        v as f32
    }
    #[inline(always)]
    fn widen(self) -> f64 {
        self as f64
    }
}

/// A number of a vector, in whose precision a solve computes.
pub(super) trait Real:
    Copy
    + Default
    + Send
    + Sync
    + 'static
    + AddAssign
    + SubAssign
    + Sub<Output = Self>
    + Mul<Output = Self>
    + Neg<Output = Self>
{
    /// True if numbers are scaled before they are rounded.
    const SCALED: bool;
    const ONE: Self;
    /// Rounds v f g.
    fn of(v: f64, scale: [f64; 2]) -> Self;
    /// Reverses [`of`](Self::of), with the inverse scale.
    fn back(self, scale: [f64; 2]) -> f64;
}

impl Real for f64 {
    const SCALED: bool = false;
    const ONE: f64 = 1.0;
    #[inline(always)]
    fn of(v: f64, _: [f64; 2]) -> f64 {
        v
    }
    #[inline(always)]
    fn back(self, _: [f64; 2]) -> f64 {
        self
    }
}

impl Real for f32 {
    const SCALED: bool = true;
    const ONE: f32 = 1.0;
    #[inline(always)]
    fn of(v: f64, [f, g]: [f64; 2]) -> f32 {
        (v * f * g) as f32
    }
    #[inline(always)]
    fn back(self, [f, g]: [f64; 2]) -> f64 {
        f64::from(self) * f * g
    }
}

/// A stored number that is used in arithmetic of R.
pub(super) trait Usable<R>: Stored {
    fn get(self) -> R;
}

impl Usable<f64> for f64 {
    #[inline(always)]
    fn get(self) -> f64 {
        self
    }
}
impl Usable<f64> for f32 {
    #[inline(always)]
    fn get(self) -> f64 {
        f64::from(self)
    }
}
impl Usable<f32> for f32 {
    #[inline(always)]
    fn get(self) -> f32 {
        self
    }
}
