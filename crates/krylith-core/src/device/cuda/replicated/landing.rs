//! Results of products with whole vectors that arrive from GPUs of other processes.

use super::super::driver::Device;
use super::super::peers::{MAX_RANKS, Shared};
use super::{Joined, Places};
use crate::Result;
use crate::comm::agree;
use crate::operator::cuts::Cuts;
use std::ops::Range;
use std::sync::Arc;

/// The buffers in which results arrive from GPUs of other processes: one for y or r, and one for m.
pub(super) struct Landing {
    vectors: [Shared<f64>; 2],
    /// Rows that arrive.
    rows: Vec<Range<usize>>,
}

impl Landing {
    /// Makes the buffers. Collective.
    pub fn new(joined: &Joined, rows: usize, cuts: &Cuts) -> Result<Self> {
        let (comm, device, rank) = (&*joined.comm, joined.fabric.device(), joined.comm.rank());
        let buffer = || {
            let own = device.peer_zeros::<f64>(rows, "results of other processes");
            Shared::new(comm, agree(comm, own)?)
        };
        let sent = cuts.stages.iter().filter(|stage| !stage.redundant);
        let others = sent.flat_map(|stage| stage.runs.iter().enumerate().filter(|(q, _)| *q != rank));
        let mut arriving: Vec<Range<usize>> =
            others.flat_map(|(_, runs)| runs.iter().map(|run| run.rows.clone())).collect();
        arriving.sort_by_key(|rows| rows.start);
        let mut rows: Vec<Range<usize>> = Vec::new();
        for next in arriving {
            match rows.last_mut().filter(|last| last.end == next.start) {
                Some(last) => last.end = next.end,
                None => rows.push(next),
            }
        }
        Ok(Self { vectors: [buffer()?, buffer()?], rows })
    }

    /// Returns the addresses of one buffer on all ranks.
    pub fn places(&self, vector: usize, size: usize) -> Places {
        let mut places = [0; MAX_RANKS];
        (0..size).for_each(|q| places[q] = self.vectors[vector].of(q));
        places
    }

    /// Returns the address of a number that arrives, and so is copied to the first output.
    pub fn first(&self) -> Option<u64> {
        self.rows.first().map(|rows| self.vectors[0].own().pointer() + 8 * rows.start as u64)
    }

    /// Copies the rows that have arrived to the vectors at `outputs`, in the device's stream.
    pub fn copy(&self, device: &Arc<Device>, outputs: &[u64]) -> Result<()> {
        for (from, to) in self.vectors.iter().zip(outputs) {
            for rows in &self.rows {
                let at = 8 * rows.start as u64;
                // SAFETY: both have as many numbers as the matrix has rows.
                let copied = unsafe {
                    device.copy_beside(device.stream(), to + at, from.own().pointer() + at, 8 * rows.len())
                };
                copied?;
            }
        }
        Ok(())
    }
}
