//! Tiles for timing, and for comparison with the host's.

use super::{DevicePattern, DeviceTiling};
use crate::device::cuda::Cuda;
use crate::device::cuda::tiles::testing::{Pattern, Tiling};
use crate::matrix::Bsr;
use crate::{Error, Result};

impl Cuda {
    /// Makes tiles and drops them, for timing.
    ///
    /// # Errors
    /// Out of device memory.
    pub fn make_tiles(&self, a: &Bsr, tile: usize, cluster: bool) -> Result<()> {
        let resident = self.resident(a)?;
        let pattern = DevicePattern::of(a, &resident);
        DeviceTiling::new(self.device(), pattern, tile, cluster, a.block_columns()).map(drop)
    }

    /// Makes tiles of at most `tile` blocks, with ghosts from column `own` on, and compares them with the
    /// host's, byte by byte. For tests.
    ///
    /// # Errors
    /// The name of a field that differs; out of device memory.
    pub fn check_tiles(&self, a: &Bsr, tile: usize, cluster: bool, own: usize) -> Result<()> {
        let (device, resident) = (self.device(), self.resident(a)?);
        let here = DeviceTiling::new(device, DevicePattern::of(a, &resident), tile, cluster, own)?;
        let pattern = Pattern { row_ptr: a.row_ptr(), col: a.col(), columns: a.block_columns() };
        let host = Tiling::new(pattern, tile, cluster, own);
        let (mut starts, mut records) = (vec![0; here.starts.len()], vec![0; here.records.len()]);
        let (mut long_rows, mut part_starts) =
            (vec![0; here.long_rows.len()], vec![0; here.part_starts.len()]);
        device.read(&here.starts, 0, &mut starts)?;
        device.read(&here.records, 0, &mut records)?;
        device.read(&here.long_rows, 0, &mut long_rows)?;
        device.read(&here.part_starts, 0, &mut part_starts)?;
        records.truncate(records.len() - 16);
        let numbers = [here.first_boundary, here.positions, here.nodes, here.record];
        let checks = [
            ("number of tiles", starts.len() == host.starts.len()),
            ("lengths of records", starts == host.starts),
            ("records", records == host.records),
            ("rows longer than a tile", long_rows == host.long_rows),
            ("parts of rows longer than a tile", part_starts == host.part_starts),
            ("limits", numbers == [host.first_boundary, host.positions, host.nodes, host.record]),
        ];
        match checks.iter().find(|(_, same)| !same) {
            None => Ok(()),
            Some((what, _)) => {
                Err(Error::invalid(format!("tiles of the GPU and of the host differ: {what}")))
            }
        }
    }
}
