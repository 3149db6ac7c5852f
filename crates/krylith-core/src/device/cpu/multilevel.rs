//! Coarse levels on the host, on this space's threads.

use super::Cpu;
use super::narrow::Narrow;
use crate::Result;
use crate::precond::{Coarsen, NarrowCycle, NarrowLevel};
use crate::space::PrecondPrecision;
use crate::threads::Pool;
use std::sync::Arc;

impl Coarsen for Cpu {
    fn beside(&self, len: usize) -> Result<Self> {
        Ok(Self::with_pool(len, self.pool().clone()))
    }
    fn host_threads(&self) -> Arc<Pool> {
        self.pool().clone()
    }
    fn computes_in_f32(&self) -> bool {
        Narrow::is_available()
    }
    fn narrow_cycle(
        &self,
        levels: &[NarrowLevel<Self>],
        stored: PrecondPrecision,
    ) -> Result<Option<Box<dyn NarrowCycle<Self>>>> {
        Ok(Narrow::new(self, levels, stored)?.map(|made| Box::new(made) as _))
    }
    fn among(&self, len: usize) -> Result<Self> {
        Ok(Self::distributed(len, self.pool().clone(), self.comm.clone()))
    }
}
