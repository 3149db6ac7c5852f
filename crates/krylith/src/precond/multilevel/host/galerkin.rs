//! Sparse products of a set-up: couplings, transposes, R A P, ℓ1 diagonals.

use super::super::Transfer;
use crate::Result;
use crate::device::cpu::Pool;
use crate::matrix::Bsr;
use crate::operator::Terms;

/// See [`Coarsen::couplings`](super::super::Coarsen::couplings).
pub fn couplings(pool: &Pool, terms: &Terms) -> Result<Bsr> {
    let _ = (pool, terms);
    todo!("helper b")
}

/// The transpose of a matrix of 1×1 blocks.
pub fn transpose(pool: &Pool, a: &Bsr) -> Result<Bsr> {
    let _ = (pool, a);
    todo!("helper b")
}

/// R A P with the diagonal stored; A may have blocks, R and P have none.
pub fn galerkin(pool: &Pool, a: &Bsr, transfer: &Transfer) -> Result<Bsr> {
    let _ = (pool, a, transfer);
    todo!("helper b")
}

/// The values of R A P on the pattern that [`galerkin`] found.
pub fn galerkin_values(pool: &Pool, a: &Bsr, transfer: &Transfer, coarse: &Bsr, values: &mut [f64]) {
    let _ = (pool, a, transfer, coarse, values);
    todo!("helper b")
}

/// See [`Coarsen::galerkin`](super::super::Coarsen::galerkin).
pub fn terms(pool: &Pool, terms: &Terms, transfer: &Transfer) -> Result<Terms<'static>> {
    let coarse = |(c, a): &(crate::matrix::Dense, std::borrow::Cow<Bsr>)| {
        Ok((c.clone(), std::borrow::Cow::Owned(galerkin(pool, a, transfer)?)))
    };
    Ok(Terms { terms: terms.terms.iter().map(coarse).collect::<Result<_>>()?, halo: None })
}

/// See [`Coarsen::galerkin_again`](super::super::Coarsen::galerkin_again).
pub fn terms_again(
    pool: &Pool,
    terms: &Terms,
    transfer: &Transfer,
    coarse: &mut Terms<'static>,
) -> Result<()> {
    let _ = (pool, terms, transfer, coarse);
    todo!("helper b")
}

/// See [`Coarsen::l1_blocks`](super::super::Coarsen::l1_blocks): the inverses, row-major.
pub fn inverse_l1_blocks(pool: &Pool, terms: &Terms) -> Result<Vec<f64>> {
    let _ = (pool, terms);
    todo!("helper b")
}
