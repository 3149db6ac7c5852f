//! Coarse levels on the host, on this space's threads.

use super::Cpu;
use crate::Result;
use crate::precond::Coarsen;
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
}
