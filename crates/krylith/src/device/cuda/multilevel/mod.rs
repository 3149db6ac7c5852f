//! Coarse levels on a GPU. What it does not do itself yet is done by the host, on matrices that come there by themselves.

mod interpolate;
mod multipass;
mod split;

use super::Cuda;
use super::compiler::Kernel;
use crate::Result;
use crate::device::cpu::Pool;
use crate::matrix::Bsr;
use crate::operator::Terms;
use crate::precond::multilevel::host;
use crate::precond::{BlockDiagonal, Coarsen, CoarsenKind, Coarsening, Transfer};
use crate::space::Store;

/// The kernels of coarse levels.
pub(super) fn kernels() -> Vec<Kernel> {
    split::kernels().chain(interpolate::kernels()).chain(multipass::kernels()).collect()
}

impl Coarsen for Cuda {
    fn beside(&self, len: usize) -> Result<Self> {
        Self::new(self.device(), len)
    }
    fn couplings(&self, terms: &Terms) -> Result<Bsr> {
        host::galerkin::couplings(&Pool::new(0), terms)
    }
    fn transfer(&self, couplings: &Bsr, how: &Coarsening, level: usize) -> Result<Option<Transfer>> {
        let prolongation = match how.kind {
            CoarsenKind::Classical => {
                let aggressive = level < how.aggressive;
                let split = split::split(self, couplings, how.strength, level, aggressive)?;
                let stays = 1..couplings.block_rows();
                if !stays.contains(&split.coarse) {
                    return Ok(None);
                }
                let made = match aggressive {
                    true => multipass::multipass(self, couplings, &split, how.truncate)?,
                    false => Some(interpolate::extended_i(self, couplings, &split, how.truncate)?),
                };
                match made {
                    Some(prolongation) => prolongation,
                    None => return host::transfer(&Pool::new(0), couplings, how, level),
                }
            }
            CoarsenKind::Aggregation { .. } => {
                return host::transfer(&Pool::new(0), couplings, how, level);
            }
        };
        let restriction = host::galerkin::transpose(&Pool::new(0), &prolongation)?;
        Ok(Some(Transfer { prolongation, restriction }))
    }
    fn galerkin(&self, terms: &Terms, transfer: &Transfer) -> Result<Terms<'static>> {
        host::galerkin::terms(&Pool::new(0), terms, transfer)
    }
    fn galerkin_again(&self, terms: &Terms, transfer: &Transfer, coarse: &mut Terms<'static>) -> Result<()> {
        host::galerkin::terms_again(&Pool::new(0), terms, transfer, coarse)
    }
    fn l1_blocks(&self, terms: &Terms, store: Store) -> Result<Self::Blocks> {
        let blocks = host::galerkin::inverse_l1_blocks(&Pool::new(0), terms)?;
        self.prepare_blocks(terms.block() * terms.stages(), (&blocks[..]).into(), store)
    }
    fn l1_blocks_again(&self, terms: &Terms, blocks: &mut Self::Blocks) -> Result<()> {
        let new = host::galerkin::inverse_l1_blocks(&Pool::new(0), terms)?;
        self.update_blocks(blocks, (&new[..]).into())
    }
}
