//! Singular symmetric matrices whose null vectors nobody gave, such as those of bodies that nothing holds.
//!
//! The factors then lack pivots in one row for each null vector. These unknowns are pinned: A y = x holds in
//! all other rows, and in theirs if x is in the range of A. A null vector z with zₚ = 1 at a pin and 0 at the
//! others follows from the factors, and zᵀA = 0 shows that the matrix is singular and not just badly
//! conditioned. If x has a part along z, no y solves A y = x.

use super::SparseLu;
use super::direct::{Made, Wanted};
use super::factors::{Columns, Factors, Work};
use super::multifrontal::Multifrontal;
use crate::Result;
use crate::precond::LeftNull;

/// Largest number of null vectors that are looked for.
pub(super) const MOST: usize = 8;
/// Largest |Aᵀz| in the row of a pin that rounding explains, as a share of |Aᵀ||z| there.
const ROUNDING: f64 = 1e-12;
/// Largest error of null vectors before a step of refinement with which factors count as those of the matrix
/// without the pinned rows.
const ACCURATE: f64 = 1e-7;

impl SparseLu {
    /// Pins unknowns in whose rows no pivot was found. `factors` are those of the rest, if they are known.
    /// Else the rest is factorised. Returns false if the matrix is not singular in these rows; it then has
    /// its values again, and no factors.
    ///
    /// # Errors
    /// Out of memory; the limits of the caller's work are reached.
    pub(super) fn pin_found(&mut self, rows: &[usize], factors: Option<Multifrontal>) -> Result<bool> {
        let has_diagonal = |&j: &usize| self.matrix.column(j).any(|(i, _)| i == j);
        let is_pinned = |row: &usize| self.pinned.contains(row);
        if rows.iter().any(is_pinned) || !rows.iter().all(has_diagonal) {
            return Ok(false);
        }
        let work = self.work.get_mut();
        let mut found = None;
        if let Some(factors) = factors.map(Factors::Fronts) {
            let null = self.matrix.left_null_vectors(&factors, rows, work)?;
            found = null.filter(|null| null.error <= ACCURATE).map(|null| (null, factors));
        }
        if found.is_none() {
            let whole = self.matrix.values.clone();
            self.matrix.pin(rows);
            let made = self.matrix.direct(Factors::None, Wanted::Any, self.room, work)?;
            self.matrix.values = whole;
            if let Made::Factors(factors) = made {
                found = self.matrix.left_null_vectors(&factors, rows, work)?.map(|null| (null, factors));
            }
        }
        let Some((null, factors)) = found else { return Ok(false) };
        self.pinned.extend(rows);
        (self.shown, self.factors) = (Some(null), factors);
        self.matrix.pin(rows);
        Ok(true)
    }

    /// Returns the unknowns that are pinned for null vectors that nobody gave.
    pub(crate) fn singular_rows(&self) -> &[usize] {
        &self.pinned[self.given..]
    }

    /// Returns the null vectors that the factors have shown, in the same order.
    pub(crate) fn shown(&self) -> &LeftNull {
        const NONE: &LeftNull = &LeftNull { vectors: Vec::new(), error: 0.0 };
        self.shown.as_ref().unwrap_or(NONE)
    }
}

impl Columns {
    /// Computes a left null vector for each of the rows `pins` with factors of the matrix without these rows;
    /// `None` if the matrix is not singular there.
    fn left_null_vectors(
        &self,
        factors: &Factors,
        pins: &[usize],
        work: &mut Work,
    ) -> Result<Option<LeftNull>> {
        let mut shown = LeftNull::default();
        for &pin in pins {
            let (z, error) = self.left_null_vector(factors, pins, pin, work)?;
            for &row in pins {
                // The row of Aᵀ is the column.
                let terms = self.column(row).map(|(i, v)| v * z[i]);
                let (sum, all) = terms.fold((0.0, 0.0), |(sum, all), v: f64| (sum + v, all + v.abs()));
                if !(sum.abs() <= ROUNDING * all) {
                    return Ok(None);
                }
            }
            shown.error = shown.error.max(error);
            shown.vectors.push(z);
        }
        Ok(Some(shown))
    }

    /// Computes z with zᵀA = 0 outside the rows `pins`, which is 1 at `pin` and 0 at the others, with factors
    /// of the matrix without these rows. Returns it with the size of the correction by one step of iterative
    /// refinement, as a share of its largest entry. The corrected z is more accurate than that.
    fn left_null_vector(
        &self,
        factors: &Factors,
        pins: &[usize],
        pin: usize,
        work: &mut Work,
    ) -> Result<(Vec<f64>, f64)> {
        let mut z = vec![0.0; self.order()];
        z[pin] = 1.0;
        let mut share = 0.0;
        for _ in 0..2 {
            work.x.clear();
            work.x.extend((0..z.len()).map(|j| self.column(j).map(|(i, v)| v * z[i]).sum::<f64>()));
            pins.iter().for_each(|&u| work.x[u] = 0.0);
            factors.solve(true, work)?;
            z.iter_mut().zip(&work.x).for_each(|(z, d)| *z -= d);
            let largest = |v: &[f64]| v.iter().fold(0.0, |most: f64, v| most.max(v.abs()));
            share = largest(&work.x) / largest(&z);
        }
        Ok((z, share))
    }
}

#[cfg(test)]
mod tests {
    use crate::matrix::Csr;
    use crate::operator::{TermValues, Terms};
    use crate::precond::SparseLu;
    use crate::space::random;

    /// Grids of springs that nothing holds, each of `side`² nodes, with multipliers that do not hold them
    /// either.
    fn free(side: usize, grids: usize) -> Csr {
        let nodes = side * side * grids;
        let mut entries: Vec<(u32, u32, f64)> = Vec::new();
        for i in 0..nodes {
            let (x, y) = (i % side, i / side % side);
            for j in
                [(x + 1 < side).then_some(i + 1), (y + 1 < side).then_some(i + side)].into_iter().flatten()
            {
                let k = 1.0 + 0.5 * random(5, (i + j) as u64);
                let (i, j) = (i as u32, j as u32);
                entries.extend([(i, i, k), (j, j, k), (i, j, -k), (j, i, -k)]);
            }
            let p = (nodes + i) as u32;
            entries.push((p, p, -2.0));
            if x + 1 < side {
                let (i, j) = (i as u32, i as u32 + 1);
                entries.extend([(p, i, 1.0), (i, p, 1.0), (p, j, -1.0), (j, p, -1.0)]);
            }
        }
        Csr::from_triplets(2 * nodes, 2 * nodes, &entries).unwrap()
    }

    /// Returns the largest residual of y = lu(A x), for some x, in all rows.
    fn left(lu: &mut SparseLu, a: &Csr) -> f64 {
        let x: Vec<f64> = (0..a.rows()).map(|i| random(2, i as u64)).collect();
        let times = |x: &[f64]| -> Vec<f64> {
            let row = |i: usize| a.row(i).0.iter().zip(a.row(i).1).map(|(j, v)| v * x[*j as usize]).sum();
            (0..a.rows()).map(row).collect()
        };
        let b = times(&x);
        let mut y = b.clone();
        lu.solve_here(false, &mut y).unwrap();
        times(&y).iter().zip(&b).fold(0.0, |most: f64, (r, b)| most.max((r - b).abs()))
    }

    #[test]
    fn free_bodies_are_held_at_one_unknown_each() {
        for grids in [1, 2, 3] {
            let a = free(30, grids);
            let terms = Terms::csr(&a).unwrap();
            assert!(SparseLu::new(&terms, None).is_err());
            let mut lu = SparseLu::with_or_without(&terms, &[], None).unwrap();
            assert_eq!(lu.singular_rows().len(), grids);
            assert!(left(&mut lu, &a) < 1e-9);
            // Held bodies, and then free ones again.
            let mut held = a.clone();
            for i in 0..held.rows() / 2 {
                let at = held.row(i).0.iter().position(|j| *j as usize == i).unwrap() + held.row_ptr()[i];
                held.values_mut()[at] += 0.1;
            }
            lu.update_values(TermValues::matrix(held.values())).unwrap();
            assert_eq!(lu.singular_rows().len(), 0);
            assert!(left(&mut lu, &held) < 1e-9);
            lu.update_values(TermValues::matrix(a.values())).unwrap();
            assert_eq!(lu.singular_rows().len(), grids);
            assert!(left(&mut lu, &a) < 1e-9);
        }
    }
    /// The vector of one body of two is known, and the other body's is found, also with new values.
    #[test]
    fn null_vectors_besides_the_given_ones_are_found() {
        let (a, nodes) = (free(30, 2), 1800);
        let one: Vec<f64> = (0..a.rows()).map(|i| if i < nodes / 2 { 1.0 } else { 0.0 }).collect();
        let terms = Terms::csr(&a).unwrap();
        let mut lu = SparseLu::with_or_without(&terms, &[one], None).unwrap();
        for _ in 0..2 {
            assert!(matches!(lu.singular_rows(), [row] if (nodes / 2..nodes).contains(row)));
            assert_eq!(lu.shown().vectors.len(), 1);
            assert!(left(&mut lu, &a) < 1e-9);
            lu.update_values(TermValues::matrix(a.values())).unwrap();
        }
    }
}
