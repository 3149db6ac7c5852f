//! Properties of a square matrix for users to inspect: symmetry, diagonal, diagonal dominance, bandwidth.

use super::Bsr;
use rayon::prelude::*;

/// Differences up to this share of the largest entry of a row, or of a sum, are rounding errors.
const ROUNDING: f64 = 1e-12;
/// A diagonal entry below this share of its row's largest is weak.
pub const WEAK_DIAGONAL: f64 = 1e-3;

/// Properties of a square matrix from one pass over its entries, which compares each with its mirror image.
/// Stored zeros count as absent. Runs on all threads of the host.
///
/// # Examples
/// ```
/// use krylith::matrix::{Bsr, Csr, Shape};
/// let entries = [(0, 0, 2.0), (0, 1, -1.0), (1, 0, -0.5), (1, 1, 2.0), (0, 2, 1.0), (2, 2, 1.0)];
/// let a = Csr::from_triplets(3, 3, &entries)?;
/// let shape = Shape::of(&Bsr::from_csr(&a, 1)?);
/// // (2, 0) is absent; −1 and −½ differ by half.
/// assert_eq!((shape.entries, shape.alone, shape.mismatch), (6, 1, 0.5));
/// assert_eq!((shape.bandwidth, shape.dominant_rows), (2, 3));
/// assert_eq!(shape.asymmetry, 0.5); // 1 in row 0, whose largest entry is 2
/// assert!(!shape.is_symmetric());
/// # Ok::<(), krylith::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Shape {
    /// Number of entries.
    pub entries: usize,
    /// Number of entries aᵢⱼ for which aⱼᵢ is absent.
    pub alone: usize,
    /// The largest |aᵢⱼ − aⱼᵢ| / max(|aᵢⱼ|, |aⱼᵢ|) over pairs of which both are present, and which differ by
    /// more than 10⁻¹² of the largest entry of row i.
    pub mismatch: f64,
    /// The largest |aᵢⱼ − aⱼᵢ| / maxₖ |aᵢₖ| over all entries aᵢⱼ, with 0 for an absent aⱼᵢ. If it is a few
    /// roundings, the matrix is meant to be symmetric.
    pub asymmetry: f64,
    /// The largest ||aᵢⱼ| − |aⱼᵢ|| / maxₖ |aᵢₖ|. If it is a few roundings, [signs of
    /// rows](super::rows_to_negate) may make the matrix symmetric.
    pub unlike_magnitudes: f64,
    /// The largest |i − j|.
    pub bandwidth: usize,
    /// Number of rows with |aᵢᵢ| ≥ (1 − 10⁻¹²) Σⱼ≠ᵢ |aᵢⱼ| and aᵢᵢ ≠ 0. The rows of an M-matrix with zero row
    /// sums count, although their sums are rounded.
    pub dominant_rows: usize,
    /// Number of negative diagonal entries, and of positive ones.
    pub signs: [usize; 2],
    /// Number of rows with 0 < |aᵢᵢ| < 10⁻³ maxⱼ |aᵢⱼ|.
    pub weak_rows: usize,
}

impl Shape {
    /// Computes the properties of a square matrix.
    pub fn of(a: &Bsr) -> Self {
        let rows = 0..a.block_rows();
        rows.into_par_iter().with_min_len(256).map(|i| Self::of_row(a, i)).reduce(Self::default, Self::and)
    }

    /// True if the matrix equals its transpose exactly.
    pub fn is_symmetric(&self) -> bool {
        self.alone == 0 && self.asymmetry == 0.0
    }

    fn of_row(a: &Bsr, i: usize) -> Self {
        let b = a.block();
        let mut shape = Self::default();
        let (mut diagonal, mut others) = (vec![0.0f64; b], vec![0.0f64; b]);
        let (mut largest, mut difference) = (vec![0.0f64; b], vec![[0.0f64; 2]; b]);
        for p in a.row_ptr()[i]..a.row_ptr()[i + 1] {
            let halves = a.block_values(p).chunks_exact(b).zip(&mut largest);
            halves.for_each(|(v, max)| *max = v.iter().fold(*max, |max, v| max.max(v.abs() / 2.0)));
        }
        for p in a.row_ptr()[i]..a.row_ptr()[i + 1] {
            let j = a.col()[p] as usize;
            // In a matrix that is not square, a column without a row has no mirror image.
            let row = if j < a.block_rows() { a.row_ptr()[j]..a.row_ptr()[j + 1] } else { 0..0 };
            let opposite = a.col()[row.clone()].binary_search(&(i as u32)).ok();
            let opposite = opposite.map(|q| a.block_values(row.start + q));
            for (e, &v) in a.block_values(p).iter().enumerate().filter(|(_, v)| **v != 0.0) {
                let (r, c) = (e / b, e % b);
                shape.entries += 1;
                shape.bandwidth = shape.bandwidth.max((i * b + r).abs_diff(j * b + c));
                let mirrored = opposite.map_or(0.0, |block| block[c * b + r]);
                let half = (v / 2.0 - mirrored / 2.0).abs();
                let of_magnitudes = (v.abs() / 2.0 - mirrored.abs() / 2.0).abs();
                difference[r] = [difference[r][0].max(half), difference[r][1].max(of_magnitudes)];
                match mirrored {
                    0.0 => shape.alone += 1,
                    w if half > ROUNDING * largest[r] => {
                        shape.mismatch = shape.mismatch.max(half / (v.abs().max(w.abs()) / 2.0))
                    }
                    _ => {}
                }
                if i == j && r == c { diagonal[r] = v } else { others[r] += v.abs() }
            }
        }
        let ratio = |k: usize| {
            let pairs = difference.iter().map(|d| d[k]).zip(&largest);
            pairs.map(|(d, l)| if d > 0.0 { d / l } else { 0.0 }).fold(0.0, f64::max)
        };
        (shape.asymmetry, shape.unlike_magnitudes) = (ratio(0), ratio(1));
        for ((d, others), largest) in
            diagonal.iter().zip(&others).zip(&largest).filter(|((d, _), _)| **d != 0.0)
        {
            shape.signs[usize::from(*d > 0.0)] += 1;
            shape.dominant_rows += usize::from(d.abs() >= (1.0 - ROUNDING) * others);
            shape.weak_rows += usize::from(d.abs() / 2.0 < WEAK_DIAGONAL * largest);
        }
        shape
    }

    fn and(self, other: Self) -> Self {
        Self {
            entries: self.entries + other.entries,
            alone: self.alone + other.alone,
            mismatch: self.mismatch.max(other.mismatch),
            asymmetry: self.asymmetry.max(other.asymmetry),
            unlike_magnitudes: self.unlike_magnitudes.max(other.unlike_magnitudes),
            bandwidth: self.bandwidth.max(other.bandwidth),
            dominant_rows: self.dominant_rows + other.dominant_rows,
            signs: [0, 1].map(|k| self.signs[k] + other.signs[k]),
            weak_rows: self.weak_rows + other.weak_rows,
        }
    }
}
