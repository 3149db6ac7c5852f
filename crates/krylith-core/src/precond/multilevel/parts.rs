//! Helpers for levels: the operator of terms, owned copies and parts of terms, and subdomains of smoothers.

use super::host::air;
use super::{Coarsen, Coarsening};
use crate::matrix::{Bsr, Dense};
use crate::operator::{PointBlock, Terms};
use crate::partition::{self, Subdomains};
use crate::precond::IlduSpec;
use crate::space::Precision;
use crate::{Error, Result};
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

/// Drops small couplings of a coarse level.
pub(super) fn filter<S: Coarsen>(space: &S, terms: &mut Terms<'static>, how: &Coarsening) {
    for (_, a) in terms.terms.iter_mut().filter(|_| how.filter > 0.0) {
        *a = Cow::Owned(air::filtered(&space.host_threads(), a, how.filter));
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

/// Returns subdomains for a smoother that needs them: the given ones, or small ones.
pub(super) fn cut_for<S: Coarsen>(
    space: &S,
    terms: &Terms,
    subdomains: Option<Subdomains>,
) -> Result<Subdomains> {
    if let Some(subdomains) = subdomains {
        return Ok(subdomains);
    }
    let device = |rows| space.cut_graph(terms, rows);
    let spec = IlduSpec::default().subdomains(terms.block() * terms.stages());
    Ok(partition::of_whole_on(terms, None, None, spec, &device)?.0)
}

/// Refuses systems that the method of coarsening does not support.
pub(super) fn supported(terms: &Terms, how: &Coarsening) -> Result<()> {
    match how.kind.is_air() && (terms.terms.len(), terms.block(), terms.stages()) != (1, 1, 1) {
        false => Ok(()),
        true => Err(Error::Unsupported(
            "amg: coarsen=air needs nodes of one unknown and a single matrix; use coarsen=smoothed, or ildu"
                .into(),
        )),
    }
}
