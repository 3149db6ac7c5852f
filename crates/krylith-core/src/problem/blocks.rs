//! The blocks of a system between its fields, for people who choose preconditioners.

use super::Problem;
use crate::Result;
use crate::matrix::Csr;
use crate::precond::assemble::{Numbered, Positions};

/// Entries that differ by less than this share of the largest entry count as equal.
const EQUAL: f64 = 1e-12;

/// The block of a matrix that couples one field to the equations of another.
///
/// # Examples
/// ```
/// use krylith::{Field, Problem, matrix::Csr};
/// let a = Csr::from_triplets(3, 3, &[(0, 0, 2.0), (1, 1, 2.0), (0, 2, 1.0), (2, 0, -1.0)])?;
/// let fields = vec![Field::range("u", 0..2), Field::range("p", 2..3)];
/// let blocks = Problem::csr(&a)?.with_fields(fields)?.field_blocks()?;
/// assert_eq!((blocks[0].nonzeros, blocks[0].mirror), (2, Some(1.0))); // symmetric
/// assert_eq!((blocks[1].nonzeros, blocks[1].mirror), (1, Some(-1.0))); // minus the transpose of the other
/// assert_eq!((blocks[3].nonzeros, blocks[3].zero_diagonal), (0, Some(1)));
/// # Ok::<(), krylith::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct FieldBlock {
    /// The field of the rows.
    pub rows: String,
    /// The field of the columns.
    pub columns: String,
    /// Number of rows and columns.
    pub shape: [usize; 2],
    /// Number of entries that are not zero.
    pub nonzeros: usize,
    /// Number of diagonal entries that are zero, in a block of one field.
    pub zero_diagonal: Option<usize>,
    /// 1 if the block equals the transpose of the mirrored block, −1 if it is minus that; `None` otherwise.
    pub mirror: Option<f64>,
    /// Number of nonzero entries without a nonzero entry at the transposed position. Where
    /// [`mirror`](Self::mirror) is not `None`, these are rounding errors.
    pub alone: usize,
}

impl Problem<'_> {
    /// Returns the blocks between all pairs of fields, row by row; none if the system has no fields.
    ///
    /// # Errors
    /// An internal error of Krylith.
    pub fn field_blocks(&self) -> Result<Vec<FieldBlock>> {
        let (fields, n) = (self.fields(), self.unknowns);
        let sets: Vec<Numbered> = fields.iter().map(|field| Numbered::new(field.unknowns(), n)).collect();
        let a = &*self.terms.terms[0].1;
        let part = |f: usize, g: usize| Positions::cut(a, &sets[f], &sets[g]).0;
        let mut blocks = Vec::with_capacity(fields.len() * fields.len());
        for f in 0..fields.len() {
            for g in 0..fields.len() {
                let own = part(f, g);
                let other = if f == g { own.transpose() } else { part(g, f).transpose() };
                let zero = (0..own.rows()).filter(|&i| own.get(i, i) == 0.0).count();
                blocks.push(FieldBlock {
                    rows: fields[f].name().into(),
                    columns: fields[g].name().into(),
                    shape: [own.rows(), own.columns()],
                    nonzeros: own.values().iter().filter(|v| **v != 0.0).count(),
                    zero_diagonal: (f == g).then_some(zero),
                    mirror: [1.0, -1.0].into_iter().find(|sign| equal(&own, *sign, &other)),
                    alone: alone(&own, &other),
                });
            }
        }
        Ok(blocks)
    }
}

/// Returns the number of nonzero entries of `a` that are zero in `b`.
fn alone(a: &Csr, b: &Csr) -> usize {
    let of_row = |i: usize| {
        let (col, values) = a.row(i);
        col.iter().zip(values).filter(|&(&j, v)| *v != 0.0 && b.get(i, j as usize) == 0.0).count()
    };
    (0..a.rows()).map(of_row).sum()
}

/// Returns true if `a` equals `sign` times `b`, whatever zeros they store.
fn equal(a: &Csr, sign: f64, b: &Csr) -> bool {
    let least = EQUAL * a.values().iter().chain(b.values()).fold(0.0f64, |max, v| max.max(v.abs()));
    let within = |a: &Csr, b: &Csr| {
        (0..a.rows()).all(|i| {
            let (col, values) = a.row(i);
            col.iter().zip(values).all(|(&j, v)| (v - sign * b.get(i, j as usize)).abs() <= least)
        })
    };
    within(a, b) && within(b, a)
}
