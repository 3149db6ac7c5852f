//! The paper's modes with its own kernel: CSR-vector on each chunk of rows, and the exchange of Krylith's
//! modes.

use super::Held;
use super::published::{CsrVector, threads_a_row};
use crate::cuda::vendor::Vendor;
use krylith_core::comm::{Communicator, agree};
use krylith_core::device::cuda::{Buffer, Cuda, CudaShared, Device};
use krylith_core::matrix::Csr;
use krylith_core::operator::{LinearOperator, SharedRows};
use krylith_core::partition::replicated::Mode;
use krylith_core::space::Space;
use krylith_core::{Error, Result};
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

/// Rows that one kernel computes.
struct Chunk {
    rows: Range<usize>,
    held: Held,
    kernel: CsrVector,
}

/// A product in a mode, with CSR-vector.
pub(super) struct VectorMode {
    shared: CudaShared,
    chunks: Vec<Chunk>,
    columns: usize,
}

impl VectorMode {
    /// Shares the rows, and returns the product with the seconds of the cuts. Collective.
    pub fn new(
        space: &Cuda,
        comm: &Arc<dyn Communicator>,
        device: &Arc<Device>,
        (a, held): (&Csr, &Csr),
        mode: Mode,
    ) -> Result<(Self, f64)> {
        let links = space.link(comm)?;
        let begin = Instant::now();
        let cuts = agree(&**comm, space.cut_rows(held, &mode, comm.size()))?;
        let setup = begin.elapsed().as_secs_f64();
        let shared = space.share_rows(&links, held, &cuts, &mode)?;
        let chunks = agree(&**comm, Self::chunks(space, device, a, &shared))?;
        Ok((Self { shared, chunks, columns: a.columns() }, setup))
    }

    fn chunks(space: &Cuda, device: &Arc<Device>, a: &Csr, shared: &CudaShared) -> Result<Vec<Chunk>> {
        let vendor = Vendor::open(device)?;
        let (x, y) = (space.vector()?, space.vector()?);
        let chunk = |rows: &Range<usize>| -> Result<Chunk> {
            let held = held(&vendor, a, rows)?;
            let threads = threads_a_row(held.rows, held.entries);
            let at = [x.pointer(), y.at(rows.start)];
            let kernel = CsrVector::new(&vendor, &held, threads, at)?;
            Ok(Chunk { rows: rows.clone(), held, kernel })
        };
        let chunks = shared.chunks().map(chunk).collect::<Result<_>>()?;
        space.wait()?;
        Ok(chunks)
    }
}

/// Uploads rows of a matrix; the first entry stays on a multiple of 32, on which long rows are read.
fn held(vendor: &Rc<Vendor>, a: &Csr, rows: &Range<usize>) -> Result<Held> {
    let ends = &a.row_ptr()[rows.start..=rows.end];
    let (first, end) = (ends[0] & !31, ends[rows.len()]);
    let ptr: Vec<i64> = ends.iter().map(|end| (end - first) as i64).collect();
    let device = &vendor.device;
    Ok(Held {
        rows: rows.len(),
        entries: end - ends[0],
        ptr: device.upload(&ptr, "row pointers")?,
        col: device.upload(&a.col()[first..end], "columns")?,
        values: device.upload(&a.values()[first..end], "values")?,
    })
}

impl LinearOperator<Cuda> for VectorMode {
    fn apply(&self, _: &Cuda, x: &Buffer<f64>, y: &mut Buffer<f64>) -> Result<()> {
        let (from, to) = (x.pointer(), y.pointer());
        self.shared.multiply_by(y, |rows| match self.chunks.iter().find(|chunk| chunk.rows == *rows) {
            Some(chunk) => chunk.kernel.run(&chunk.held, from, to + 8 * rows.start as u64),
            None => Err(Error::Internal("a chunk of rows has no kernel".into())),
        })
    }
    fn key(&self) -> u64 {
        u64::MAX // the suite records no graph with it
    }
    fn bytes(&self) -> u64 {
        let of = |chunk: &Chunk| 12 * chunk.held.entries + 16 * chunk.held.rows;
        (self.chunks.iter().map(of).sum::<usize>() + 8 * self.columns) as u64
    }
}
