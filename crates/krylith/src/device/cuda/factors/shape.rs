//! How the kernels of incomplete factors are mapped: constants of `kernels/ildu_*.cu`, tuned on an H200.

use crate::space::Store;

/// Constants of a specialisation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IlduShape {
    /// Warps of a subdomain in the solve.
    pub(in crate::device::cuda) warps: usize,
    /// Most bytes of a chunk.
    pub(in crate::device::cuda) stage: usize,
    /// Chunks in flight.
    pub(in crate::device::cuda) depth: usize,
}

impl IlduShape {
    /// Threads of a subdomain in the factorisation, a warp a row.
    pub(in crate::device::cuda) const FACTOR_THREADS: usize = 256;

    /// The mapping for blocks of an order: a chunk holds at least two blocks.
    pub(in crate::device::cuda) fn choose(order: usize, _store: Store) -> Self {
        let (warps, stage, depth) = match order {
            1 => (4, 4096, 2),
            2..=4 => (8, 16384, 3),
            5..=16 => (8, 32768, 2),
            _ => (8, 40960, 2),
        };
        Self { warps, stage, depth }
    }

    /// Bytes of the chunks in flight.
    pub(in crate::device::cuda) fn ring(&self) -> usize {
        self.depth * self.stage
    }

    /// Bytes of shared memory that the factorisation wants: two blocks and a column for each warp.
    pub(in crate::device::cuda) fn factor_shared(order: usize) -> usize {
        Self::FACTOR_THREADS / 32 * (2 * order * order + order) * 8
    }
}
