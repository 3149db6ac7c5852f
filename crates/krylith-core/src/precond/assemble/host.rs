//! The set-up of matrices on the host's threads.

pub(crate) use super::product::{product, product_again};

use super::Grouped;
use crate::Result;
use crate::matrix::{Bsr, Csr, Grouping};
use rayon::prelude::*;

/// Rows below which a second thread costs more than it saves.
const FEW: usize = 1 << 11;

pub(crate) fn grouped(a: &Csr, block: usize) -> Result<Grouped> {
    Ok(Grouped { bsr: Bsr::from_csr(a, block)?, grouping: None })
}

pub(crate) fn group_again(a: &Csr, to: &mut Grouped) -> Result<()> {
    if to.bsr.block() == 1 {
        to.bsr.values_mut().copy_from_slice(a.values());
        return to.bsr.check_finite();
    }
    let grouping = match to.grouping.take() {
        Some(grouping) => grouping,
        None => Grouping::new(a, &to.bsr)?,
    };
    to.grouping.insert(grouping).gather(a.values(), to.bsr.values_mut())?;
    to.bsr.check_finite()
}

fn of_rows<T: Send>(rows: usize, of: impl Fn(usize) -> T + Sync + Send) -> Vec<T> {
    (0..rows).into_par_iter().with_min_len(FEW).map(of).collect()
}

pub(super) fn diagonal(a: &Csr, rows: bool) -> Vec<f64> {
    of_rows(a.rows(), |i| match rows {
        true => a.row(i).1.iter().map(|v| v.abs()).sum::<f64>().copysign(a.get(i, i)),
        false => a.get(i, i),
    })
}

pub(super) fn schur_diagonal(d: &Csr, c: &Csr, w: &[f64], b: &Csr) -> Vec<f64> {
    of_rows(d.rows(), |i| {
        let (col, values) = c.row(i);
        // Columns beyond W are ghosts, whose rows of B are on another rank.
        let own = col.iter().zip(values).filter(|(k, _)| (**k as usize) < w.len());
        d.get(i, i) - own.map(|(&k, c)| c * w[k as usize] * b.get(k as usize, i)).sum::<f64>()
    })
}

pub(super) fn alone(a: &Csr, beside: Option<&Csr>) -> Vec<bool> {
    of_rows(a.rows(), |i| {
        let (col, values) = a.row(i);
        let zero = |v: &f64| *v == 0.0;
        col.iter().zip(values).all(|(&j, v)| j as usize == i || zero(v))
            && beside.is_none_or(|a| a.row(i).1.iter().all(zero))
    })
}

/// Largest entry of a row, relative to the largest of the matrix, that counts as a rounding error.
pub(crate) const CANCELLED: f64 = 1e-13;

pub(super) fn fill_empty(a: &mut Csr) {
    let largest = of_rows(a.rows(), |i| a.row(i).1.iter().fold(0.0f64, |max, v| max.max(v.abs())));
    let least = CANCELLED * largest.iter().copied().fold(0.0, f64::max);
    if largest.iter().all(|largest| *largest > least) {
        return;
    }
    let (row_ptr, col) = (a.row_ptr().to_vec(), a.col().to_vec());
    let values = a.values_mut();
    for (i, largest) in largest.into_iter().enumerate() {
        if largest <= least {
            for p in row_ptr[i]..row_ptr[i + 1] {
                values[p] = if col[p] as usize == i { 1.0 } else { 0.0 };
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn diagonals_are_those_of_the_matrix_or_sums_with_their_signs() {
        let a = Csr::from_triplets(3, 3, &[(0, 0, -2.0), (0, 1, 3.0), (1, 1, 4.0), (2, 0, 1.0)]).unwrap();
        assert_eq!(super::super::inverted(diagonal(&a, false)), [-0.5, 0.25, 0.0]);
        assert_eq!(super::super::inverted(diagonal(&a, true)), [-0.2, 0.25, 1.0]);
    }

    #[test]
    fn rows_that_cancel_become_rows_of_the_identity() {
        let entries = [(0, 0, 1.0), (0, 1, 2.0), (1, 0, 1e-16), (1, 1, -1e-16)];
        let mut a = Csr::from_triplets(2, 2, &entries).unwrap();
        assert_eq!(alone(&a, None), [false, false]);
        fill_empty(&mut a);
        assert_eq!((a.row(0).1, a.row(1).1), (&[1.0, 2.0][..], &[0.0, 1.0][..]));
        assert_eq!((alone(&a, None), alone(&a, Some(&a))), (vec![false, true], vec![false, false]));
    }

    #[test]
    fn blocks_of_two_are_renewed() {
        let entries = |f: f64| [(0, 0, f), (0, 3, 2.0 * f), (1, 1, 3.0 * f), (3, 2, 4.0 * f)];
        let a = |f: f64| Csr::from_triplets(4, 4, &entries(f)).unwrap();
        let mut blocks = grouped(&a(1.0), 2).unwrap();
        group_again(&a(2.0), &mut blocks).unwrap();
        assert_eq!(blocks.bsr.to_csr().get(3, 2), 8.0);
        let mut broken = a(1.0);
        broken.values_mut()[0] = f64::NAN;
        assert!(group_again(&broken, &mut blocks).is_err());
    }
}
