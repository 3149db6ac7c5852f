//! Properties of a square matrix for users to inspect: symmetry, diagonal dominance, bandwidth.

use super::Bsr;
use rayon::prelude::*;

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
    /// The largest |aᵢⱼ − aⱼᵢ| / max(|aᵢⱼ|, |aⱼᵢ|) over pairs of which both are present.
    pub mismatch: f64,
    /// The largest |aᵢⱼ − aⱼᵢ| / maxₖ |aᵢₖ| over all entries aᵢⱼ, with 0 for an absent aⱼᵢ. If it is a few
    /// roundings, the matrix is meant to be symmetric.
    pub asymmetry: f64,
    /// The largest |i − j|.
    pub bandwidth: usize,
    /// Number of rows with |aᵢᵢ| ≥ Σⱼ≠ᵢ |aᵢⱼ| and aᵢᵢ ≠ 0.
    pub dominant_rows: usize,
}

impl Shape {
    /// Computes the properties of a square matrix.
    pub fn of(a: &Bsr) -> Self {
        let rows = 0..a.block_rows();
        rows.into_par_iter().with_min_len(256).map(|i| Self::of_row(a, i)).reduce(Self::default, Self::and)
    }

    /// True if the matrix equals its transpose exactly.
    pub fn is_symmetric(&self) -> bool {
        self.alone == 0 && self.mismatch == 0.0
    }

    fn of_row(a: &Bsr, i: usize) -> Self {
        let b = a.block();
        let mut shape = Self::default();
        let (mut diagonal, mut others) = (vec![0.0f64; b], vec![0.0f64; b]);
        let (mut largest, mut difference) = (vec![0.0f64; b], vec![0.0f64; b]);
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
                largest[r] = largest[r].max(v.abs() / 2.0);
                difference[r] = difference[r].max((v / 2.0 - mirrored / 2.0).abs());
                match mirrored {
                    0.0 => shape.alone += 1,
                    w => {
                        shape.mismatch =
                            shape.mismatch.max((v / 2.0 - w / 2.0).abs() / (v.abs().max(w.abs()) / 2.0))
                    }
                }
                if i == j && r == c { diagonal[r] = v.abs() } else { others[r] += v.abs() }
            }
        }
        let ratios = difference.iter().zip(&largest).map(|(d, l)| if *d > 0.0 { d / l } else { 0.0 });
        shape.asymmetry = ratios.fold(0.0, f64::max);
        shape.dominant_rows = diagonal.iter().zip(&others).filter(|(d, o)| **d > 0.0 && d >= o).count();
        shape
    }

    fn and(self, other: Self) -> Self {
        Self {
            entries: self.entries + other.entries,
            alone: self.alone + other.alone,
            mismatch: self.mismatch.max(other.mismatch),
            asymmetry: self.asymmetry.max(other.asymmetry),
            bandwidth: self.bandwidth.max(other.bandwidth),
            dominant_rows: self.dominant_rows + other.dominant_rows,
        }
    }
}
