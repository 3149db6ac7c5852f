//! Matrices and weights of multigrid cycles that are stored in bf16, which is f32 without the lower half of
//! its bits. Multigrid cycles on CPUs and GPUs follow the same rules (`kernels/amg_bf16.cu`).
//!
//! Numbers are rounded to f32 and then to the nearest bf16, ties to even. Two f64 that differ by rounding
//! errors alone, as entries (i, j) and (j, i) of a Galerkin product may, are mostly the same f32. So a
//! symmetric matrix stays symmetric.
//!
//! **Matrix.** Off-diagonal entries are rounded one by one, with relative errors of at most 2⁻⁸. The diagonal
//! is not: it becomes âᵢᵢ = aᵢᵢ + Σ (aᵢⱼ − âᵢⱼ), in f32, so that the row sums sᵢ stay. If A is symmetric,
//! xᵀÂx = Σ sᵢ xᵢ² − ½ Σ âᵢⱼ (xᵢ − xⱼ)². For off-diagonal entries below 0 and sᵢ ≥ 0 this lies within a
//! factor of 1 ± 2⁻⁸ of xᵀAx. A matrix with row sums of 0 stays semidefinite, with the same null vector. bf16
//! has too few digits for such a diagonal.
//!
//! **Where that does not hold.** Let D be the diagonal plus the ℓ1 norm of the rest of the row. If a rounded
//! diagonal is not within a sixteenth of the given one, or if more than one row in four has a sum below
//! −D/256, the level stays in f32. Constant vectors are then far from the near-null space, as in a graded
//! system.
//!
//! **Weights.** If rows of P did not sum to 1, coarse corrections of smooth errors would leave errors of 2⁻⁸
//! at single points, and convergence would depend on the size of the mesh. So the smallest weight of a row
//! takes the rounding errors of the others. R has the numbers of P where it is Pᵀ.

use crate::matrix::Bsr;
use rayon::prelude::*;
use std::ops::Range;

/// A number in bf16.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[repr(transparent)]
pub(crate) struct Bf16(u16);

/// Largest change of a diagonal, relative to it.
const CHANGE: f64 = 1.0 / 16.0;
/// Size of a negative row sum, relative to D, that counts.
const NEGATIVE: f64 = 1.0 / 256.0;
/// More than one such row in this number is too many. Some are usual near boundary values, on coarse levels
/// of smoothed aggregation.
const OFTEN: usize = 4;
/// Rows that a thread rounds at once.
const CHUNK: usize = 1 << 13;

impl Bf16 {
    /// Rounds a finite number.
    pub fn round(v: f64) -> Self {
        let bits = (v as f32).to_bits();
        Self((bits.wrapping_add(0x7fff + (bits >> 16 & 1)) >> 16) as u16)
    }

    /// Returns the number.
    #[inline(always)]
    pub fn wide(self) -> f32 {
        f32::from_bits(u32::from(self.0) << 16)
    }
}

/// Sums over a row that is rounded.
#[derive(Default)]
pub(crate) struct RoundedRow {
    diagonal: f64,
    /// Σ (aᵢⱼ − âᵢⱼ), Σ |âᵢⱼ| and Σ aᵢⱼ without the diagonal.
    change: f64,
    norm: f64,
    rest: f64,
}

/// Number of rows that bf16 does not suit.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Unfit {
    /// Rows whose diagonal changes too much.
    pub far: usize,
    /// Rows with negative sums.
    pub negative: usize,
}

impl Unfit {
    /// Returns true if a matrix of so many rows may be stored in bf16.
    pub fn fits(self, rows: usize) -> bool {
        self.far == 0 && self.negative * OFTEN <= rows
    }

    /// Adds the rows of two parts.
    pub fn with(self, other: Self) -> Self {
        Self { far: self.far + other.far, negative: self.negative + other.negative }
    }
}

impl RoundedRow {
    /// Takes an entry, and returns what is stored in its place: 0 for the diagonal.
    pub fn take(&mut self, is_diagonal: bool, v: f64) -> Bf16 {
        if is_diagonal {
            self.diagonal += v;
            return Bf16::default();
        }
        let rounded = Bf16::round(v);
        let wide = f64::from(rounded.wide());
        self.change += v - wide;
        self.norm += wide.abs();
        self.rest += v;
        rounded
    }

    /// Returns the diagonal and D⁻¹ of the rounded row, both for the matrix times c.
    pub fn finish(&self, c: f64, unfit: &mut Unfit) -> [f32; 2] {
        let own = c * (self.diagonal + self.change);
        let norm = c.abs() * self.norm;
        let inverse = 1.0 / (own + if own < 0.0 { -norm } else { norm });
        let kept = self.change.abs() <= CHANGE * self.diagonal.abs() && inverse.is_finite();
        let sum = (self.diagonal + self.rest) * if self.diagonal < 0.0 { -1.0 } else { 1.0 };
        unfit.far += usize::from(!kept);
        unfit.negative += usize::from(sum < -NEGATIVE * (self.diagonal.abs() + self.norm));
        [own as f32, inverse as f32]
    }
}

/// A matrix of scalar rows in bf16, in the order of the entries.
pub(crate) struct RoundedRows {
    /// The entries, with 0 on the diagonal.
    pub values: Vec<Bf16>,
    /// The diagonal, times c.
    pub own: Vec<f32>,
    /// D⁻¹ of its ℓ1-Jacobi smoother, for the matrix times c.
    pub inverse: Vec<f32>,
}

/// Rounds a matrix of scalar rows times `scale`; c is its coefficient. Returns `None` if bf16 does not suit
/// it.
pub(crate) fn matrix(
    row_ptr: &[usize],
    col: &[u32],
    values: &[f64],
    scale: f64,
    c: f64,
) -> Option<RoundedRows> {
    let rows = row_ptr.len() - 1;
    let mut to = RoundedRows {
        values: vec![Bf16::default(); values.len()],
        own: vec![0.0; rows],
        inverse: vec![0.0; rows],
    };
    let (own, inverse) = (to.own.par_chunks_mut(CHUNK), to.inverse.par_chunks_mut(CHUNK));
    let jobs = parts(row_ptr, &mut to.values).into_par_iter().zip(own).zip(inverse);
    let unfit = jobs.map(|(((rows, to), own), inverse)| {
        let (mut unfit, first) = (Unfit::default(), row_ptr[rows.start]);
        for (place, i) in rows.enumerate() {
            let mut row = RoundedRow::default();
            for e in row_ptr[i]..row_ptr[i + 1] {
                to[e - first] = row.take(col[e] as usize == i, values[e] * scale);
            }
            [own[place], inverse[place]] = row.finish(c, &mut unfit);
        }
        unfit
    });
    let unfit = unfit.reduce(Unfit::default, Unfit::with);
    unfit.fits(rows).then_some(to)
}

/// Cuts rows and their entries into parts of `CHUNK` rows.
fn parts<'a>(row_ptr: &[usize], mut entries: &'a mut [Bf16]) -> Vec<(Range<usize>, &'a mut [Bf16])> {
    let rows = row_ptr.len() - 1;
    let mut all = Vec::new();
    for first in (0..rows).step_by(CHUNK) {
        let rows = first..(first + CHUNK).min(rows);
        let (own, rest) = std::mem::take(&mut entries).split_at_mut(row_ptr[rows.end] - row_ptr[rows.start]);
        all.push((rows, own));
        entries = rest;
    }
    all
}

/// Rounds a row of weights, whose sum is kept as well as the smallest of them can.
fn weights_of_row(from: &[f64], to: &mut [Bf16]) {
    let (mut least, mut at, mut lost) = (f64::INFINITY, None, 0.0);
    for (k, (&v, to)) in from.iter().zip(&mut *to).enumerate() {
        *to = Bf16::round(v);
        lost += v - f64::from(to.wide());
        if v != 0.0 && v.abs() < least {
            (least, at) = (v.abs(), Some(k));
        }
    }
    if let Some(k) = at {
        // Its own error is part of the sum.
        to[k] = Bf16::round(f64::from(to[k].wide()) + lost);
    }
}

/// Rounds P and R. Where R has the number of P at the mirrored position, it has the rounded number too.
pub(crate) fn weights(p: &Bsr, r: &Bsr) -> [Vec<Bf16>; 2] {
    let mut of_p = vec![Bf16::default(); p.values().len()];
    let mut of_r = vec![Bf16::default(); r.values().len()];
    let (ends, columns, from) = (p.row_ptr(), p.col(), p.values());
    parts(ends, &mut of_p).into_par_iter().for_each(|(rows, to)| {
        let first = ends[rows.start];
        for i in rows {
            weights_of_row(&from[ends[i]..ends[i + 1]], &mut to[ends[i] - first..ends[i + 1] - first]);
        }
    });
    let (of_p, rows_of_r) = (of_p, r.row_ptr());
    parts(rows_of_r, &mut of_r).into_par_iter().for_each(|(rows, to)| {
        let first = rows_of_r[rows.start];
        for c in rows {
            for e in rows_of_r[c]..rows_of_r[c + 1] {
                let (i, v) = (r.col()[e] as usize, r.values()[e]);
                let mut mirrored =
                    (ends[i]..ends[i + 1]).filter(|&q| columns[q] as usize == c && from[q] == v);
                to[e - first] = mirrored.next().map_or_else(|| Bf16::round(v), |q| of_p[q]);
            }
        }
    });
    [of_p, of_r]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_rounded_to_the_nearest() {
        for (v, wide) in [
            (0.0, 0.0),
            (1.0, 1.0),
            (-1.0, -1.0),
            (1.0 + 1.0 / 256.0, 1.0),              // a tie
            (1.0 + 3.0 / 256.0, 1.0 + 1.0 / 64.0), // a tie
            (1.0 + 1.1 / 256.0, 1.0 + 1.0 / 128.0),
            (-(1.0 + 1.1 / 256.0), -(1.0 + 1.0 / 128.0)),
            (1.999, 2.0),
        ] {
            let found = Bf16::round(v).wide();
            assert!((found - wide).abs() <= 1e-6 * wide.abs(), "{v}: {found}");
        }
        for k in 0..1000 {
            let v = (1.0 + f64::from(k) / 777.0) * 2f64.powi(k % 60 - 30);
            assert!((f64::from(Bf16::round(v).wide()) - v).abs() <= v / 256.0);
            // Rounding errors of f64 do not matter.
            assert_eq!(Bf16::round(v), Bf16::round(v * (1.0 + 1e-16)));
        }
        // A tie of f64 with an error on either side.
        let tie = 1.0 + 1.0 / 256.0;
        assert_eq!(Bf16::round(tie * (1.0 + 4e-16)), Bf16::round(tie * (1.0 - 4e-16)));
    }

    /// A ring with couplings that are not exact in bf16.
    fn ring(n: usize, shift: f64) -> (Vec<usize>, Vec<u32>, Vec<f64>) {
        let coupling = |i: usize| 1.0 / (3.0 + (i % n) as f64 % 7.0);
        let (mut row_ptr, mut col, mut values) = (vec![0], Vec::new(), Vec::new());
        for i in 0..n {
            let (before, after) = (coupling(i + n - 1), coupling(i));
            col.extend([(i + n - 1) % n, i, (i + 1) % n].map(|j| j as u32));
            values.extend([-before, before + after + shift, -after]);
            row_ptr.push(col.len());
        }
        (row_ptr, col, values)
    }

    #[test]
    fn row_sums_stay_and_the_matrix_stays_symmetric() {
        let n = 60;
        let (row_ptr, col, values) = ring(n, 0.0);
        let scale = 2f64.powi(3);
        let rounded = matrix(&row_ptr, &col, &values, scale, -2.0).unwrap();
        let at = |i: usize, j: usize| {
            let e = (row_ptr[i]..row_ptr[i + 1]).find(|&e| col[e] as usize == j).unwrap();
            f64::from(rounded.values[e].wide())
        };
        let mut changed = 0;
        for i in 0..n {
            let (left, right) = ((i + n - 1) % n, (i + 1) % n);
            assert_eq!((at(i, right), at(i, i)), (at(right, i), 0.0));
            let own = f64::from(rounded.own[i]);
            let [others, norm] =
                [-2.0 * (at(i, left) + at(i, right)), 2.0 * (at(i, left) + at(i, right)).abs()];
            assert!((own + others).abs() <= 1e-6 * norm && own < 0.0, "{i}: {own} and {others}");
            assert!((f64::from(rounded.inverse[i]) * (own - norm) - 1.0).abs() <= 1e-6);
            changed += usize::from(at(i, right) != scale * values[3 * i + 2]);
        }
        assert!(changed > n / 2);
    }

    #[test]
    fn rows_that_bf16_does_not_suit_are_found() {
        let n = 1000;
        let (row_ptr, col, mut values) = ring(n, 0.0);
        let fits = |values: &[f64]| matrix(&row_ptr, &col, values, 1.0, 1.0).is_some();
        assert!(fits(&values));
        let plain = values.clone();
        // A diagonal far below the others.
        values[31] = 1e-3;
        assert!(!fits(&values));
        // A graded system: constant vectors are no near-null vectors.
        let (row_ptr_of, columns, given) = ring(100, 0.0);
        let size = |i: usize| 1.2f64.powi((i as i32 - 50).abs());
        let graded: Vec<f64> = (0..300).map(|e| given[e] * size(e / 3) * size(columns[e] as usize)).collect();
        assert!(matrix(&row_ptr_of, &columns, &given, 1.0, 1.0).is_some());
        assert!(matrix(&row_ptr_of, &columns, &graded, 1.0, 1.0).is_none());
        // A few negative sums are no reason.
        let mut few = plain.clone();
        (0..10).for_each(|i| few[300 * i + 1] *= 0.95);
        assert!(fits(&few));
        assert!(!fits(&[vec![0.0; 3], plain[3..].to_vec()].concat()));
    }

    #[test]
    fn weights_keep_their_sums() {
        let rows: [&[f64]; 6] =
            [&[1.0 / 3.0; 3], &[0.3, 0.25, 0.45], &[1.0], &[0.1, -0.05, 0.95], &[0.9, 0.1, 0.0], &[]];
        for from in rows {
            let mut to = vec![Bf16::default(); from.len()];
            weights_of_row(from, &mut to);
            let sum: f64 = to.iter().map(|v| f64::from(v.wide())).sum();
            let least = from.iter().copied().filter(|v| *v != 0.0).fold(f64::INFINITY, |l, v| l.min(v.abs()));
            let wanted: f64 = from.iter().sum();
            assert!(from.is_empty() || (sum - wanted).abs() <= least / 128.0, "{from:?}: {sum}");
            assert!(from.iter().zip(&to).all(|(v, to)| (v - f64::from(to.wide())).abs() <= 1.0 / 128.0));
            assert!(from.iter().zip(&to).all(|(v, to)| *v != 0.0 || to.wide() == 0.0));
        }
        let mut thirds = [Bf16::default(); 3];
        weights_of_row(&[1.0 / 3.0; 3], &mut thirds);
        assert_eq!(thirds.map(Bf16::wide).iter().sum::<f32>(), 1.0);

        let p = Bsr::new(
            1,
            3,
            2,
            vec![0, 2, 3, 5],
            vec![0, 1, 1, 0, 1],
            vec![0.7, 0.3, 1.0, 1.0 / 3.0, 2.0 / 3.0],
        );
        let p = p.unwrap();
        let r = Bsr::new(1, 2, 3, vec![0, 2, 5], vec![0, 2, 0, 1, 2], vec![0.7, 0.5, 0.3, 1.0, 2.0 / 3.0])
            .unwrap();
        let [of_p, of_r] = weights(&p, &r);
        assert_eq!((of_r[0], of_r[2], of_r[3], of_r[4]), (of_p[0], of_p[1], of_p[2], of_p[4]));
        assert_eq!(of_r[1], Bf16::round(0.5)); // R differs from the transpose of P here
    }
}
