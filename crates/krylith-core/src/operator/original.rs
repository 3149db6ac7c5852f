//! The residual r = b − A x on the host, computed from the values that the caller gave. It decides about
//! convergence if a device stores values in lower precision, and gives the residuals of single fields.

use crate::Result;
use crate::comm::Communicator;
use crate::operator::Terms;
use crate::space::other_unit;
use crate::twofold::Twofold;
use rayon::prelude::*;
use std::borrow::Cow;

/// Number of block rows that a thread takes at a time.
const ROWS: usize = 1024;

/// The system as given: this rank's rows, and the communicator of the ranks that share the system. All
/// functions are collective.
///
/// # Examples
/// ```
/// use krylith::{Problem, matrix::Csr};
/// let a = Csr::from_triplets(2, 2, &[(0, 0, 2.0), (0, 1, 1.0), (1, 1, 3.0)])?;
/// let problem = Problem::csr(&a)?;
/// let r = problem.original().residual(&[3.0, 3.0], &[1.0, 0.0])?;
/// assert_eq!((r, problem.original().norm(&[3.0, 4.0])?), (vec![1.0, 3.0], 5.0));
/// # Ok::<(), krylith::Error>(())
/// ```
#[derive(Clone, Copy)]
pub struct OriginalSystem<'a> {
    /// This rank's rows.
    pub terms: &'a Terms<'a>,
    /// The communicator.
    pub comm: &'a dyn Communicator,
}

impl OriginalSystem<'_> {
    /// Returns this rank's part of b − A x, computed in twice the working precision and rounded once.
    ///
    /// # Errors
    /// A rank that has ended or failed.
    pub fn residual(&self, b: &[f64], x: &[f64]) -> Result<Vec<f64>> {
        Ok(residual(self.terms, b, &self.with_ghosts(x)?))
    }

    /// Returns ‖v‖₂ over all ranks.
    ///
    /// # Errors
    /// A rank that has ended or failed.
    pub fn norm(&self, v: &[f64]) -> Result<f64> {
        Ok(self.norms(|unit| vec![v.iter().map(|v| (unit * v) * (unit * v)).sum()])?[0])
    }

    /// Returns ‖D r‖ and ‖D b‖ over all ranks, for a diagonal D or the identity. Uses all threads; the result
    /// does not depend on their number.
    ///
    /// # Errors
    /// A rank that has ended or failed.
    pub(crate) fn pair_of_norms(&self, d: Option<&[f64]>, r: &[f64], b: &[f64]) -> Result<[f64; 2]> {
        const STRIP: usize = 1 << 12;
        let strip = |k: usize, unit: f64| {
            let range = k * STRIP..((k + 1) * STRIP).min(r.len());
            let mut sums = [0.0; 2];
            for i in range {
                let d = d.map_or(unit, |d| unit * d[i]);
                sums = [sums[0] + (d * r[i]) * (d * r[i]), sums[1] + (d * b[i]) * (d * b[i])];
            }
            sums
        };
        let squares = |unit: f64| {
            let strips = (0..r.len().div_ceil(STRIP)).into_par_iter().with_min_len(8);
            let sums: Vec<[f64; 2]> = strips.map(|k| strip(k, unit)).collect();
            vec![sums.iter().map(|s| s[0]).sum(), sums.iter().map(|s| s[1]).sum()]
        };
        let norms = self.norms(squares)?;
        Ok([norms[0], norms[1]])
    }

    /// Returns the square roots of sums of squares over all ranks. If they overflow or underflow, computes
    /// them again in another unit.
    fn norms(&self, squares: impl Fn(f64) -> Vec<f64>) -> Result<Vec<f64>> {
        let in_unit = |unit: f64| -> Result<Vec<f64>> {
            let mut sums = squares(unit);
            self.comm.sum(&mut sums)?;
            Ok(sums.into_iter().map(f64::sqrt).collect())
        };
        let norms = in_unit(1.0)?;
        let largest = norms.iter().copied().fold(0.0, f64::max);
        let other = other_unit(largest).filter(|_| !norms.iter().any(|norm| norm.is_nan()));
        let Some(unit) = other.map(f64::exp2) else { return Ok(norms) };
        Ok(in_unit(unit)?.into_iter().map(|norm| norm / unit).collect())
    }

    /// Returns the attainable residual u ‖|b| + |A||x|‖ with u = 2⁻⁵³. It is the effect of rounding x to
    /// double precision on ‖b − A x‖.
    ///
    /// # Errors
    /// A rank that has ended or failed.
    pub fn rounding(&self, b: &[f64], x: &[f64]) -> Result<f64> {
        Ok(f64::EPSILON / 2.0 * self.norm(&self.sizes(b, x)?)?)
    }

    /// Returns this rank's part of |b| + |A||x|.
    ///
    /// # Errors
    /// A rank that has ended or failed.
    pub(crate) fn sizes(&self, b: &[f64], x: &[f64]) -> Result<Vec<f64>> {
        let mut sizes = magnitudes(self.terms, &self.with_ghosts(x)?);
        sizes.iter_mut().zip(b).for_each(|(size, b)| *size += b.abs());
        Ok(sizes)
    }

    /// Returns ‖ Σ |Cₜ ⊗ Aₜ| |x| ‖₂, the size that A x could have without cancellation.
    ///
    /// # Errors
    /// A rank that has ended or failed.
    pub fn magnitude(&self, x: &[f64]) -> Result<f64> {
        self.norm(&magnitudes(self.terms, &self.with_ghosts(x)?))
    }

    /// Largest ‖A n‖ / ‖|A| |n|‖ at which a given n counts as a null vector.
    pub(crate) const NULL: f64 = 1e-6;

    /// Returns ‖A n‖ / ‖|A| |n|‖, which is zero up to rounding for a null vector n.
    ///
    /// # Errors
    /// A rank that has ended or failed.
    pub(crate) fn null_share(&self, n: &[f64]) -> Result<f64> {
        let zeros = vec![0.0; n.len()];
        let product = self.norm(&self.residual(&zeros, n)?)?;
        Ok(product / self.magnitude(n)?.max(f64::MIN_POSITIVE))
    }

    /// Returns ‖r_c‖₂ of each component c over all nodes, stages and ranks.
    ///
    /// # Errors
    /// A rank that has ended or failed.
    pub fn by_field(&self, r: &[f64]) -> Result<Vec<f64>> {
        self.norms(|unit| squares_by_field(r, self.terms.block(), self.terms.stages(), unit))
    }

    fn with_ghosts<'x>(&self, x: &'x [f64]) -> Result<Cow<'x, [f64]>> {
        match &self.terms.halo {
            None => Ok(Cow::Borrowed(x)),
            Some(halo) => {
                let run = self.terms.block() * self.terms.stages();
                halo.with_ghosts(self.comm, run, x).map(Cow::Owned)
            }
        }
    }
}

/// Returns b − Σ (Cₜ ⊗ Aₜ) x in twice the working precision, on all threads. x has an entry for every column.
fn residual(terms: &Terms, b: &[f64], x: &[f64]) -> Vec<f64> {
    let (block, s) = (terms.block(), terms.stages());
    let order = block * s;
    let mut r = b.to_vec();
    let rows = r.par_chunks_mut(order * ROWS).enumerate();
    rows.for_each_init(
        || (vec![Twofold::default(); order], vec![Twofold::default(); order]),
        |(sums, z), (chunk, r)| {
            for (i, r) in r.chunks_exact_mut(order).enumerate() {
                let i = chunk * ROWS + i;
                sums.iter_mut().zip(&*r).for_each(|(sum, b)| *sum = Twofold::from(*b));
                for (c, a) in &terms.terms {
                    z.fill(Twofold::default());
                    for p in a.row_ptr()[i]..a.row_ptr()[i + 1] {
                        let x = &x[a.col()[p] as usize * order..][..order];
                        for (row, z) in a.block_values(p).chunks_exact(block).zip(z.chunks_exact_mut(s)) {
                            for (v, x) in row.iter().zip(x.chunks_exact(s)) {
                                (0..s).for_each(|k| z[k].add_product(*v, x[k]));
                            }
                        }
                    }
                    for (z, sums) in z.chunks_exact(s).zip(sums.chunks_exact_mut(s)) {
                        for (k, l) in (0..s * s).map(|e| (e / s, e % s)) {
                            sums[k].add_multiple(-c[(k, l)], z[l]);
                        }
                    }
                }
                r.iter_mut().zip(&*sums).for_each(|(r, sum)| *r = sum.value());
            }
        },
    );
    r
}

/// Returns Σ |Cₜ ⊗ Aₜ| |x|.
fn magnitudes(terms: &Terms, x: &[f64]) -> Vec<f64> {
    let (block, s) = (terms.block(), terms.stages());
    let order = block * s;
    let mut y = vec![0.0; terms.rows()];
    for (c, a) in &terms.terms {
        y.par_chunks_exact_mut(order).with_min_len(ROWS).enumerate().for_each(|(i, y)| {
            for p in a.row_ptr()[i]..a.row_ptr()[i + 1] {
                let x = &x[a.col()[p] as usize * order..][..order];
                for (e, v) in a.block_values(p).iter().enumerate().filter(|(_, v)| **v != 0.0) {
                    for k in 0..s {
                        let sum: f64 = (0..s).map(|l| (c[(k, l)] * x[e % block * s + l]).abs()).sum();
                        y[e / block * s + k] += v.abs() * sum;
                    }
                }
            }
        });
    }
    y
}

/// Returns ‖r_c‖₂² of each component c over this rank's nodes and stages, where r is first multiplied by
/// `unit`.
fn squares_by_field(r: &[f64], block: usize, stages: usize, unit: f64) -> Vec<f64> {
    let mut squares = vec![0.0; block];
    for node in r.chunks_exact(block * stages) {
        for (square, stages) in squares.iter_mut().zip(node.chunks_exact(stages)) {
            *square += stages.iter().map(|v| (unit * v) * (unit * v)).sum::<f64>();
        }
    }
    squares
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::comm::Solo;
    use crate::matrix::{Bsr, Dense, KroneckerSum};

    #[test]
    fn a_hand_checked_kronecker_residual() {
        // M = [2], L = [1], A = I, B = [[0, 1], [1, 0]], tau = 0.5: the operator is [[2, .5], [.5, 2]].
        let one = |v: f64| Bsr::new(1, 1, 1, vec![0, 1], vec![0], vec![v]).unwrap();
        let b = Dense::new(2, 2, vec![0.0, 1.0, 1.0, 0.0]).unwrap();
        let k = KroneckerSum::new(Dense::identity(2), b, 0.5, one(2.0), one(1.0)).unwrap();
        assert_eq!(residual(&Terms::kronecker(&k), &[5.0, 7.0], &[1.0, 2.0]), [2.0, 2.5]);
        let system = OriginalSystem { terms: &Terms::kronecker(&k), comm: &Solo };
        assert_eq!(system.residual(&[5.0, 7.0], &[1.0, 2.0]).unwrap(), [2.0, 2.5]);
        assert_eq!(squares_by_field(&[3.0, 4.0, 0.0, 1.0], 2, 2, 1.0), [25.0, 1.0]);
        assert_eq!(system.norm(&[3.0, 4.0]).unwrap(), 5.0);
    }
}
