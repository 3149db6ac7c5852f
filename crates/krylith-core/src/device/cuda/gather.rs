//! Copies between a vector and a part of its entries: the launches of `kernels/gather.cu`.
//!
//! Bytes moved: 20 per entry, of which 8 are read or written at random.

use super::Cuda;
use super::driver::Buffer;
use super::exchange::{gather_runs, scatter_runs};
use super::launch::{Entry, Function};
use crate::Result;
use crate::memory::check_len;
use crate::space::{Gather, Space};

const THREADS: usize = 256;

/// Numbers of entries on a GPU, with the kernels that use them.
#[doc(hidden)]
pub struct CudaEntries {
    numbers: Buffer<i32>,
    gather: Function<gather_runs>,
    scatter: Function<scatter_runs>,
}

impl Cuda {
    /// Number of thread blocks for this many entries.
    fn entry_blocks(&self, count: usize) -> usize {
        count.div_ceil(THREADS).min(16 * self.device().multiprocessors())
    }
}

impl Gather for Cuda {
    type Entries = CudaEntries;

    fn entries(&self, numbers: &[u32]) -> Result<CudaEntries> {
        if let Some(i) = numbers.iter().find(|&&i| i as usize >= self.len()) {
            return Err(crate::Error::Internal(format!("entry {i} of a vector of {} numbers", self.len())));
        }
        let (device, host) = (self.device(), numbers.iter().map(|&i| i as i32).collect::<Vec<_>>());
        Ok(CudaEntries {
            numbers: device.upload(&host, "numbers of entries")?,
            gather: device.function(&gather_runs.plain())?,
            scatter: device.function(&scatter_runs.plain())?,
        })
    }

    fn gather(&self, entries: &CudaEntries, x: &Buffer<f64>, to: &mut Buffer<f64>) -> Result<()> {
        let (device, count) = (self.device(), entries.numbers.len());
        check_len(x.len(), self.len())?;
        check_len(to.len(), count)?;
        if count == 0 {
            return Ok(());
        }
        let launch = entries.gather.on(device, self.entry_blocks(count), THREADS);
        launch.run(self.halt(), count as i32, 1, &entries.numbers, x, &*to)
    }

    fn scatter(&self, entries: &CudaEntries, x: &Buffer<f64>, to: &mut Buffer<f64>) -> Result<()> {
        let (device, count) = (self.device(), entries.numbers.len());
        check_len(to.len(), self.len())?;
        check_len(x.len(), count)?;
        if count == 0 {
            return Ok(());
        }
        let launch = entries.scatter.on(device, self.entry_blocks(count), THREADS);
        launch.run(self.halt(), count as i32, 1, &entries.numbers, x, &*to)
    }
}
