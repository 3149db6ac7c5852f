//! How the kernels of incomplete factors are mapped: constants of `kernels/ildu_*.cu`, tuned on an H200.

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

    /// Threads that lay out a subdomain's stream.
    pub(in crate::device::cuda) const LAYOUT_THREADS: usize = 128;

    /// Bytes of shared memory that laying out takes: four lists of a level's rows, and a chunk where it is written.
    pub(in crate::device::cuda) fn layout_shared(&self, largest: usize, write: bool) -> usize {
        let chunk = if write { self.stage.next_multiple_of(16) + 16 * 64 * self.warps } else { 0 };
        chunk + (8 * largest).next_multiple_of(16)
    }

    /// The mapping for blocks of an order, with a vector of so many bytes in the largest subdomain. A chunk holds at least
    /// two blocks. Where few subdomains fit a multiprocessor, larger chunks keep as much under way.
    pub(crate) fn choose(order: usize, vector: usize) -> Self {
        let [small, large] = Self::all(order);
        if vector >= 24 << 10 { large } else { small }
    }

    /// The mappings that [`choose`](Self::choose) knows for small and large subdomains.
    pub(in crate::device::cuda) fn all(order: usize) -> [Self; 2] {
        let shape = |(warps, stage)| Self { warps, stage, depth: 2 };
        match order {
            1 => [(4, 5120), (4, 8192)].map(shape),
            2..=16 => [(4, 16384), (8, 32768)].map(shape),
            _ => [(8, 40960); 2].map(shape),
        }
    }

    /// Bytes of the chunks in flight.
    pub(in crate::device::cuda) fn ring(&self) -> usize {
        self.depth * self.stage
    }

    /// Bytes of shared memory that the factorisation wants: two blocks and two columns for each warp.
    pub(in crate::device::cuda) fn factor_shared(order: usize) -> usize {
        Self::FACTOR_THREADS / 32 * 2 * (order * order + order) * 8
    }
}
