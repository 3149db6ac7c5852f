//! Helpers for levels: the operator of terms, owned copies of terms, and the part of terms that couples own
//! nodes.

use super::Coarsen;
use crate::Result;
use crate::matrix::{Bsr, Dense};
use crate::operator::{PointBlock, Terms};
use crate::space::Precision;
use rayon::prelude::*;
use std::borrow::Cow;

/// Number of rows below which a second thread costs more time than it saves.
const FEW: usize = 1 << 12;

/// Builds the operator of a level. Coarse matrices of scalar rows never consist of a few diagonals, so there
/// is no search for these.
pub(super) fn operator<S: Coarsen>(
    space: &S,
    terms: &Terms,
    precision: Precision,
    depth: usize,
) -> Result<PointBlock<S>> {
    let scalar = (terms.block(), terms.stages(), terms.terms.len()) == (1, 1, 1);
    match scalar && depth > 0 {
        true => space.level_operator(terms, precision),
        false => PointBlock::new(space, terms, precision, false),
    }
}

/// Returns an owned copy of terms, which shares the arrays.
pub(super) fn owned(terms: &Terms) -> Terms<'static> {
    let own = |(c, a): &(Dense, Cow<Bsr>)| (c.clone(), Cow::Owned((**a).clone()));
    Terms { terms: terms.terms.iter().map(own).collect(), halo: None }
}

/// Returns the couplings among own nodes only.
pub(super) fn own_part(terms: &Terms) -> Result<Terms<'static>> {
    let n = terms.block_rows();
    let own = |a: &Bsr| -> Result<Bsr> {
        let (b, square) = (a.block(), a.block() * a.block());
        let (rows, all, numbers) = (a.row_ptr(), a.col(), a.values());
        // Own columns come before ghosts.
        let length = |i: usize| all[rows[i]..rows[i + 1]].partition_point(|&j| (j as usize) < n);
        let lengths: Vec<usize> = (0..n).into_par_iter().with_min_len(FEW).map(length).collect();
        let pieces: Vec<(Vec<u32>, Vec<f64>)> = lengths
            .par_chunks(FEW)
            .enumerate()
            .map(|(piece, lengths)| {
                let (mut col, mut values) = (Vec::new(), Vec::new());
                for (&start, &length) in rows[piece * FEW..].iter().zip(lengths) {
                    col.extend_from_slice(&all[start..start + length]);
                    values.extend_from_slice(&numbers[start * square..(start + length) * square]);
                }
                (col, values)
            })
            .collect();
        let mut row_ptr = vec![0; n + 1];
        (0..n).for_each(|i| row_ptr[i + 1] = row_ptr[i] + lengths[i]);
        let (col, values): (Vec<_>, Vec<_>) = pieces.into_iter().unzip();
        Bsr::new(b, n, n, row_ptr, col.concat(), values.concat())
    };
    let own = |(c, a): &(Dense, Cow<Bsr>)| Ok((c.clone(), Cow::Owned(own(a)?)));
    Ok(Terms { terms: terms.terms.iter().map(own).collect::<Result<_>>()?, halo: None })
}
