//! Coarse levels on the host: [`host`]'s functions on this space's threads.

use super::Cpu;
use crate::Result;
use crate::matrix::Bsr;
use crate::operator::Terms;
use crate::precond::multilevel::host;
use crate::precond::{BlockDiagonal, Coarsen, Coarsening, Transfer};
use crate::space::Store;
use crate::threads::Pool;
use std::sync::Arc;

impl Coarsen for Cpu {
    fn beside(&self, len: usize) -> Result<Self> {
        Ok(Self::with_pool(len, self.pool().clone()))
    }
    fn host_threads(&self) -> Arc<Pool> {
        self.pool().clone()
    }
    fn among(&self, len: usize) -> Result<Self> {
        Ok(Self::distributed(len, self.pool().clone(), self.comm.clone()))
    }
    fn couplings(&self, terms: &Terms) -> Result<Bsr> {
        host::galerkin::couplings(self.pool(), terms)
    }
    fn transfer(&self, couplings: &Bsr, how: &Coarsening, level: usize) -> Result<Option<Transfer>> {
        host::transfer(self.pool(), couplings, how, level)
    }
    fn galerkin(&self, terms: &Terms, transfer: &Transfer) -> Result<Terms<'static>> {
        host::galerkin::terms(self.pool(), terms, transfer)
    }
    fn galerkin_again(&self, terms: &Terms, transfer: &Transfer, coarse: &mut Terms<'static>) -> Result<()> {
        host::galerkin::terms_again(self.pool(), terms, transfer, coarse)
    }
    fn l1_blocks(&self, terms: &Terms, store: Store) -> Result<Self::Blocks> {
        let blocks = host::galerkin::inverse_l1_blocks(self.pool(), terms)?;
        self.prepare_blocks(terms.block() * terms.stages(), (&blocks[..]).into(), store)
    }
    fn l1_blocks_again(&self, terms: &Terms, blocks: &mut Self::Blocks) -> Result<()> {
        let new = host::galerkin::inverse_l1_blocks(self.pool(), terms)?;
        self.update_blocks(blocks, (&new[..]).into())
    }
}
