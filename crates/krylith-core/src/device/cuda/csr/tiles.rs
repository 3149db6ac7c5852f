//! Tiles of rows, by which `kernels/csr.cu` distributes work.

use super::super::driver::{Buffer, Device};
use super::{CsrPattern, CsrShape, csr_tiles};
use crate::{Error, Result};
use std::sync::Arc;

/// Grouping of rows into tiles: a record of 16 bytes for each tile, and one for the end of the last tile.
pub(super) struct Tiles {
    pub records: Buffer<[i64; 2]>,
    pub count: usize,
    /// Row, first tile and last tile of each row that several tiles share.
    pub cuts: Buffer<i32>,
    pub cut_rows: usize,
    /// Up to three partial sums for each of the two rows that a tile may share.
    pub parts: Buffer<f64>,
}

impl Tiles {
    /// Returns no tiles.
    pub fn none(device: &Arc<Device>) -> Result<Self> {
        let what = "tiles of rows";
        let (records, cuts) = (device.allocate(0, what)?, device.allocate(0, what)?);
        Ok(Self { records, count: 0, cuts, cut_rows: 0, parts: device.allocate(0, what)? })
    }

    /// Groups the rows of a matrix.
    ///
    /// # Errors
    /// Too many entries for one GPU; out of device memory.
    pub fn new(device: &Arc<Device>, pattern: &CsrPattern, shape: &CsrShape) -> Result<Self> {
        let rows = pattern.row_ptr.len() - 1;
        let count = shape.tiles(rows, pattern.col.len());
        if i32::try_from(count).is_err() {
            return Err(Error::Unsupported(format!(
                "the matrix has {} entries, too many for one GPU; distribute it over several GPUs",
                pattern.col.len()
            )));
        }
        let what = "tiles of rows";
        let records = device.zeros(count + 1, what)?;
        // The number of cuts follows the cuts.
        let cuts = device.zeros(3 * count + 1, what)?;
        let mut cut_rows = [0i32];
        if count > 0 {
            let function = device.function(&shape.kernel(csr_tiles))?;
            function.on(device, (count + 1).div_ceil(4), 128).run(
                &pattern.row_ptr,
                rows as i32,
                count as i32,
                &records,
                &cuts,
                cuts.at(3 * count),
            )?;
            device.read(&cuts, 3 * count, &mut cut_rows)?;
        }
        let cut_rows = cut_rows[0] as usize;
        let parts = device.zeros(if cut_rows > 0 { 6 * count } else { 0 }, "partial sums")?;
        Ok(Self { records, count, cuts, cut_rows, parts })
    }
}
