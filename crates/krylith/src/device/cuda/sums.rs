//! Sums that a kernel makes in a pass of its own: the host's side of `kernels/sums.cuh`.

use super::Cuda;
use super::driver::{Buffer, Device};
use super::scalars::CudaScalars;
use crate::Result;
use std::sync::Arc;

/// Where blocks of threads leave their sums, two each, and how many have ended.
pub(super) struct SumParts {
    parts: Buffer<f64>,
    counter: Buffer<u32>,
}

/// The twin of `struct Sums` in `kernels/sums.cuh`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(super) struct Sums {
    pub parts: u64,
    pub counter: u64,
    pub places: [u64; 2],
    pub peers: u64,
    pub first: i32,
    /// No sums are wanted where this is 0.
    pub total: i32,
    pub last: i32,
    unused: i32,
}
const _: () = assert!(size_of::<Sums>() == 56);

impl SumParts {
    /// For launches of so many blocks in all.
    ///
    /// # Errors
    /// A device without room.
    pub fn new(device: &Arc<Device>, blocks: usize) -> Result<Self> {
        let what = "partial sums";
        Ok(Self { parts: device.zeros(2 * blocks, what)?, counter: device.zeros(1, what)? })
    }

    /// What a single launch of `blocks` blocks is told: two sums, which go to slot `at` and the next.
    pub fn two(&self, space: &Cuda, blocks: usize, scalars: &CudaScalars, at: usize) -> Sums {
        assert!(2 * blocks <= self.parts.len());
        Sums {
            parts: self.parts.pointer(),
            counter: self.counter.pointer(),
            places: [scalars.value(at), scalars.value(at + 1)],
            peers: space.fabric().group(),
            total: blocks as i32,
            last: 1,
            ..Sums::default()
        }
    }

    /// What the ranks of a space without peer stores do after the launch: add up. Collective.
    ///
    /// # Errors
    /// A rank that is gone or failed.
    pub fn finish(space: &Cuda, scalars: &CudaScalars, at: usize, sums: usize) -> Result<()> {
        space.fabric().total(scalars.value(at), sums)
    }
}
