//! Singular symmetric matrices whose null vectors nobody gave, such as those of bodies that nothing holds.
//!
//! The factors then lack pivots in one row for each null vector. These unknowns are pinned: A y = x holds in
//! all other rows, and in theirs if x is in the range of A. A null vector z with zₚ = 1 at a pin and 0 at the
//! others follows from the factors, and A z = 0 shows that the matrix is singular and not just badly
//! conditioned.

use super::SparseLu;
use super::direct::Made;
use super::factors::Factors;
use crate::Result;

/// Largest number of null vectors that are looked for.
pub(super) const MOST: usize = 8;
/// Largest |A z| in the row of a pin that rounding explains, as a share of |A||z| there.
const ROUNDING: f64 = 1e-12;

impl SparseLu {
    /// Pins unknowns in whose rows no pivot was found, and factorises the rest. Returns false if the matrix
    /// is not singular there; it then has its values again, and no factors.
    ///
    /// # Errors
    /// Out of memory; the limits of the caller's work are reached.
    pub(super) fn pin_found(&mut self, rows: &[usize]) -> Result<bool> {
        let has_diagonal = |&j: &usize| self.matrix.column(j).any(|(i, _)| i == j);
        if !self.pinned.is_empty() || !rows.iter().all(has_diagonal) {
            return Ok(false);
        }
        let whole = self.matrix.values.clone();
        self.matrix.pin(rows);
        let work = self.work.get_mut();
        let made = match self.matrix.direct(Factors::None, self.room, work)? {
            Made::Factors(factors) => Some(factors),
            Made::Not(..) | Made::Few(_) => None,
        };
        self.matrix.values = whole;
        let Some(factors) = made else { return Ok(false) };
        for &pin in rows {
            work.x.clear();
            work.x.resize(self.matrix.order(), 0.0);
            self.matrix.column(pin).for_each(|(i, v)| work.x[i] = -v);
            rows.iter().for_each(|&u| work.x[u] = 0.0);
            factors.solve(false, work)?;
            work.x[pin] = 1.0;
            for &row in rows {
                // The row is the column of the symmetric matrix.
                let terms = self.matrix.column(row).map(|(i, v)| v * work.x[i]);
                let (sum, all) = terms.fold((0.0, 0.0), |(sum, all), v: f64| (sum + v, all + v.abs()));
                if !(sum.abs() <= ROUNDING * all) {
                    return Ok(false);
                }
            }
        }
        (self.pinned, self.found, self.factors) = (rows.to_vec(), true, factors);
        self.matrix.pin(rows);
        Ok(true)
    }

    /// Returns the unknowns that are pinned because the matrix is singular; none if null vectors were given.
    pub(crate) fn singular_rows(&self) -> &[usize] {
        if self.found { &self.pinned } else { &[] }
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
}
