//! Mapping of the kernels of incomplete factors: constants of `kernels/ildu_*.cu`, tuned on an H200.

/// Constants of a specialisation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IlduShape {
    /// Warps per subdomain in the solve.
    pub(in crate::device::cuda) warps: usize,
    /// Largest size of a chunk in bytes.
    pub(in crate::device::cuda) stage: usize,
    /// Chunks in flight.
    pub(in crate::device::cuda) depth: usize,
}

impl IlduShape {
    /// Threads per subdomain in the factorisation, one warp per row.
    pub(in crate::device::cuda) const FACTOR_THREADS: usize = 256;

    /// Threads that lay out the stream of a subdomain.
    pub(in crate::device::cuda) const LAYOUT_THREADS: usize = 128;

    /// Bytes of shared memory for the layout: four lists of a level's rows, and a chunk where it is written.
    pub(in crate::device::cuda) fn layout_shared(&self, largest: usize, write: bool) -> usize {
        let chunk = if write { self.stage.next_multiple_of(16) + 16 * 64 * self.warps } else { 0 };
        chunk + (8 * largest).next_multiple_of(16)
    }

    /// Returns the mapping for blocks of an order, where the largest subdomain has a vector of `vector`
    /// bytes. A chunk holds at least two blocks. Where few subdomains fit on a multiprocessor, larger chunks
    /// keep as many bytes in flight.
    pub(crate) fn choose(order: usize, vector: usize) -> Self {
        let [small, large] = Self::all(order);
        if vector >= 24 << 10 { large } else { small }
    }

    /// Returns the mappings of [`choose`](Self::choose) for small and for large subdomains.
    pub(in crate::device::cuda) fn all(order: usize) -> [Self; 2] {
        let shape = |(warps, stage)| Self { warps, stage, depth: 2 };
        match order {
            1 => [(4, 5120), (4, 8192)].map(shape),
            2..=16 => [(4, 16384), (8, 32768)].map(shape),
            _ => [(8, 40960); 2].map(shape),
        }
    }

    /// Total size of the chunks in flight, in bytes.
    pub(in crate::device::cuda) fn ring(&self) -> usize {
        self.depth * self.stage
    }

    /// Bytes of shared memory for the factorisation: two blocks and two columns per warp.
    pub(in crate::device::cuda) fn factor_shared(order: usize) -> usize {
        Self::FACTOR_THREADS / 32 * 2 * (order * order + order) * 8
    }
}
