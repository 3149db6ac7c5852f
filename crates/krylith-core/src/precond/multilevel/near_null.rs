//! Near-null vectors of a system, which coarse levels must be able to represent.

use crate::operator::Terms;
use crate::{Error, Result};

/// Near-null vectors of a level. Storage is by scalar rows: each row has the numbers of all vectors.
///
/// Smooth errors of a scalar system are nearly constant, and P reproduces constants. Smooth errors of an
/// elastic body are nearly rigid motions: three translations and three rotations. With a P that reproduces
/// only constants, a solve needs many more iterations there.
///
/// # Examples
/// ```
/// use krylith_core::precond::NearNull;
/// // Two nodes of two components, at (0, 0) and (1, 0): translations and the rotation.
/// let near = NearNull::new(&[vec![1., 0., 1., 0.], vec![0., 1., 0., 1.], vec![0., 0., 0., 1.]])?;
/// assert_eq!(near.count(), 3);
/// # Ok::<(), krylith::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct NearNull {
    /// Number of vectors, k.
    pub(super) count: usize,
    /// Number i·k + j is the value of vector j in scalar row i.
    pub(super) numbers: Vec<f64>,
}

impl NearNull {
    /// Largest number of unknowns of a coarse node: the largest block that operators support.
    pub const MOST: usize = crate::matrix::MAX_BLOCK;
    /// Default of θ. In the 27-point rows of an elastic body hardly any entry exceeds a larger threshold.
    pub const STRENGTH: f64 = 0.02;

    /// Builds near-null vectors from vectors with a number for every scalar row.
    ///
    /// # Errors
    /// No vector, or more than [`MOST`](Self::MOST); vectors of different lengths, or with numbers that are
    /// not finite.
    pub fn new(vectors: &[Vec<f64>]) -> Result<Self> {
        let count = vectors.len();
        if !(1..=Self::MOST).contains(&count) {
            return Err(Error::invalid(format!(
                "got {count} near-null vectors; expected 1 to {}, because a coarse node has one unknown per \
                 vector",
                Self::MOST
            )));
        }
        let rows = vectors[0].len();
        for (j, vector) in vectors.iter().enumerate() {
            if vector.len() != rows {
                return Err(Error::invalid(format!(
                    "near-null vector {j} has {} numbers, but vector 0 has {rows}; all need one number per \
                     row",
                    vector.len()
                )));
            }
            if let Some(i) = vector.iter().position(|v| !v.is_finite()) {
                return Err(Error::invalid(format!(
                    "near-null vector {j}: row {i} is {}; every value must be finite",
                    vector[i]
                )));
            }
        }
        let numbers = (0..rows).flat_map(|i| vectors.iter().map(move |v| v[i])).collect();
        Ok(Self { count, numbers })
    }

    /// Returns the number of vectors.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Rejects vectors that do not match these terms.
    pub(crate) fn check(&self, terms: &Terms) -> Result<()> {
        if terms.stages() > 1 || terms.terms.len() > 1 {
            return Err(Error::invalid(
                "amg: near-null vectors apply to a single matrix, not to a sum of terms or stages; omit them",
            ));
        }
        let (rows, found) = (terms.rows(), self.numbers.len() / self.count);
        match found == rows {
            true => Ok(()),
            false => Err(Error::invalid(format!(
                "amg: near-null vectors have {found} numbers, but the system has {rows} rows"
            ))),
        }
    }
}

/// Returns the rigid modes of nodes with two or three components: translations, then rotations about the
/// centre of all points. In a plane there is one rotation. Returns `None` for other numbers of components.
pub(crate) fn rigid(block: usize, points: &[[f64; 3]]) -> Option<Vec<Vec<f64>>> {
    let middle = |axis: usize| {
        let ends = points
            .iter()
            .map(|p| p[axis])
            .fold([f64::MAX, f64::MIN], |[low, high], v| [low.min(v), high.max(v)]);
        0.5 * (ends[0] + ends[1])
    };
    let middle = [0, 1, 2].map(middle);
    // The planes of the rotations, as pairs of axes.
    let planes: &[[usize; 2]] = match block {
        2 => &[[0, 1]],
        3 => &[[0, 1], [1, 2], [2, 0]],
        _ => return None,
    };
    let translation = |axis: usize| {
        points.iter().flat_map(move |_| (0..block).map(move |c| f64::from(u8::from(c == axis)))).collect()
    };
    let rotation = |&[x, y]: &[usize; 2]| {
        let of = move |p: &[f64; 3]| {
            let mut u = [0.0; 3];
            (u[x], u[y]) = (middle[y] - p[y], p[x] - middle[x]);
            u
        };
        points.iter().flat_map(move |p| of(p).into_iter().take(block)).collect()
    };
    Some((0..block).map(translation).chain(planes.iter().map(rotation)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The displacement x + t u keeps all distances to first order in t: (x − y) · (u(x) − u(y)) = 0 for each
    /// pair of points x and y.
    #[test]
    fn rigid_modes_keep_distances() {
        let points = [[0.0, 0.0, 0.0], [2.0, 1.0, -1.0], [0.5, 4.0, 1.0], [3.0, -2.0, 7.0]];
        for block in [2, 3] {
            let modes = rigid(block, &points).unwrap();
            assert_eq!(modes.len(), block * (block + 1) / 2);
            for (m, mode) in modes.iter().enumerate() {
                assert!(mode.iter().any(|v| *v != 0.0));
                for (i, p) in points.iter().enumerate() {
                    for (j, q) in points.iter().enumerate() {
                        let along = |c: usize| (p[c] - q[c]) * (mode[i * block + c] - mode[j * block + c]);
                        assert!((0..block).map(along).sum::<f64>().abs() < 1e-12, "mode {m}");
                    }
                }
            }
        }
        assert!(rigid(1, &points).is_none() && rigid(4, &points).is_none());
    }

    #[test]
    fn other_vectors_are_refused() {
        for (vectors, words) in [
            (vec![], "0 near-null vectors"),
            (vec![vec![1.0]; 9], "9 near-null vectors; expected 1 to 8"),
            (vec![vec![1.0], vec![1.0, 2.0]], "near-null vector 1 has 2 numbers, but vector 0 has 1"),
            (vec![vec![1.0, f64::NAN]], "near-null vector 0: row 1 is NaN"),
        ] {
            let error = NearNull::new(&vectors).unwrap_err().to_string();
            assert!(error.contains(words), "{error}");
        }
    }
}
