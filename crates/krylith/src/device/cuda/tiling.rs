//! Tiles made on the GPU from row pointers and columns that are there (`kernels/tiling.cu`).
//!
//! The host reads back three times: the stride of the rows, how many tiles there are, and how long their records.

use super::Cuda;
use super::driver::{Buffer, Device, launch};
use super::resident::Resident;
use super::specialisations;
use super::tiles::{HEADER, Pattern, SAMPLES, Tiling, WINDOW, Windows, most_nodes};
use crate::matrix::Bsr;
use crate::{Error, Result};
use std::sync::Arc;

/// A block pattern in the memory of a GPU.
#[derive(Clone, Copy)]
pub(super) struct DevicePattern {
    /// Address of `rows + 1` 64-bit numbers of blocks.
    pub(super) row_ptr: u64,
    /// Address of the 32-bit block columns, ascending in each row.
    pub(super) col: u64,
    pub(super) rows: usize,
    pub(super) columns: usize,
}

impl DevicePattern {
    /// Where the pattern of a matrix lies, as long as `resident` does.
    pub(super) fn of(a: &Bsr, resident: &Resident) -> Self {
        Self {
            row_ptr: resident.row_ptr.pointer(),
            col: resident.col.pointer(),
            rows: a.block_rows(),
            columns: a.block_columns(),
        }
    }
}

/// The tiles of a pattern; the fields are those of `Tiling`.
pub(super) struct DeviceTiling {
    pub(super) count: usize,
    pub(super) first_boundary: usize,
    pub(super) starts: Buffer<u32>,
    /// With 16 bytes more at the end.
    pub(super) records: Buffer<u8>,
    pub(super) long_rows: Buffer<i32>,
    pub(super) part_starts: Buffer<i64>,
    pub(super) positions: usize,
    pub(super) nodes: usize,
    pub(super) record: usize,
}

/// [`Windows`] as the kernels take them.
#[repr(C)]
#[derive(Clone, Copy)]
struct Cut {
    rows: i32,
    planes: i32,
    stride: i32,
    width: i32,
    chunks: i32,
}

const THREADS: usize = 128;

impl DeviceTiling {
    /// Tiles of at most `tile` blocks; `cluster` puts rows together that share columns. Columns from `own` on are
    /// ghosts.
    pub(super) fn new(
        device: &Arc<Device>,
        pattern: DevicePattern,
        tile: usize,
        cluster: bool,
        own: usize,
    ) -> Result<Self> {
        let what = "tiles of block rows";
        let DevicePattern { row_ptr, col, rows, columns } = pattern;
        let halo = (own < columns) as i32;
        if rows == 0 {
            return Ok(Self {
                count: 0,
                first_boundary: 0,
                starts: device.zeros(1, what)?,
                records: device.zeros(16, what)?,
                long_rows: device.zeros(0, what)?,
                part_starts: device.zeros(0, what)?,
                positions: 0,
                nodes: 1,
                record: HEADER,
            });
        }
        let kernel = |entry| device.function(&specialisations::tiling(entry));
        let windows = if cluster {
            let stride = device.zeros::<i32>(1, what)?;
            // SAFETY: the parameter types are the kernel's; the pattern is one of `rows` rows.
            unsafe {
                let function = kernel("tiling_stride")?;
                let at = stride.pointer();
                launch!(device, &function, 1, SAMPLES, 0, rows as i32, row_ptr, col, own as u32, at)?;
            }
            let mut found = [0];
            device.read(&stride, 0, &mut found)?;
            Windows::strided(rows, found[0] as usize)
        } else {
            Windows::consecutive(rows)
        };
        let n = windows.count;
        let cut = Cut {
            rows: rows as i32,
            planes: windows.planes as i32,
            stride: windows.stride as i32,
            width: windows.width as i32,
            chunks: windows.chunks as i32,
        };
        let most = if cluster { most_nodes(tile) as i32 } else { 0 };
        let order = device.zeros::<u32>(n * WINDOW, what)?;
        let first = device.zeros::<u32>(n * (WINDOW + 1), what)?;
        let short = device.zeros::<[i32; 2]>(n, what)?;
        let sums = device.zeros::<u32>(4 * (n + 1), what)?;
        let scan = kernel("tiling_scan")?;
        // SAFETY: the parameter types are the kernels'; buffers have the lengths that the kernels' heads ask for.
        unsafe {
            launch!(
                device,
                &kernel("tiling_cut")?,
                n,
                THREADS,
                0,
                cut,
                n as i32,
                row_ptr,
                col,
                own as u32,
                halo,
                tile as i32,
                most,
                order.pointer(),
                first.pointer(),
                short.pointer(),
                sums.pointer()
            )?;
            launch!(device, &scan, 4, 1024, 0, sums.pointer(), n as i64)?;
        }
        let mut totals = vec![0; 4 * (n + 1)];
        device.read(&sums, 0, &mut totals)?;
        let [interior, boundary, parts, longs] = [0, 1, 2, 3].map(|k| totals[k * (n + 1) + n] as usize);
        let count = interior + boundary;
        let tiles = device.zeros::<[u64; 2]>(count, what)?;
        let long_rows = device.zeros::<i32>(3 * longs, what)?;
        let part_starts = device.zeros::<i64>(parts, what)?;
        // Lengths of records and of positions, then their sums.
        let starts = device.zeros::<u32>(count + 1, what)?;
        let positions = device.zeros::<u32>(count + 1, what)?;
        let limits = device.zeros::<u32>(2, what)?;
        let function = kernel("tiling_records")?;
        let shared = 4 * (tile.next_power_of_two() + 3 * tile);
        let records = |to: u64| {
            // SAFETY: as above; without records lengths are written, with them what they add up to was allocated.
            unsafe {
                launch!(
                    device,
                    &function,
                    count,
                    THREADS,
                    shared,
                    row_ptr,
                    col,
                    order.pointer(),
                    tiles.pointer(),
                    tile as i32,
                    cluster as i32,
                    starts.pointer(),
                    positions.pointer(),
                    limits.pointer(),
                    to
                )
            }
        };
        // SAFETY: as above.
        unsafe {
            launch!(
                device,
                &kernel("tiling_place")?,
                n,
                THREADS,
                0,
                n as i32,
                row_ptr,
                col,
                own as u32,
                halo,
                tile as i32,
                order.pointer(),
                first.pointer(),
                short.pointer(),
                sums.pointer(),
                tiles.pointer(),
                long_rows.pointer(),
                part_starts.pointer()
            )?;
            records(0)?;
            launch!(device, &scan, 1, 1024, 0, starts.pointer(), count as i64)?;
            launch!(device, &scan, 1, 1024, 0, positions.pointer(), count as i64)?;
        }
        let (mut end, mut blocks, mut most) = ([0], [0], [0; 2]);
        device.read(&starts, count, &mut end)?;
        device.read(&positions, count, &mut blocks)?;
        device.read(&limits, 0, &mut most)?;
        let bytes = device.zeros::<u8>(end[0] as usize * 16 + 16, "indices of the tiles")?;
        records(bytes.pointer())?;
        // What was only needed here is freed: the kernels must be done with it.
        device.wait()?;
        Ok(Self {
            count,
            first_boundary: interior,
            starts,
            records: bytes,
            long_rows,
            part_starts,
            positions: blocks[0] as usize * 4,
            nodes: (most[0] as usize).max(1),
            record: (most[1] as usize).max(HEADER),
        })
    }
}

impl Cuda {
    /// Makes tiles and drops them: to be timed.
    ///
    /// # Errors
    /// A device without room.
    #[doc(hidden)]
    pub fn make_tiles(&self, a: &Bsr, tile: usize, cluster: bool) -> Result<()> {
        let resident = self.resident(a)?;
        let pattern = DevicePattern::of(a, &resident);
        DeviceTiling::new(self.device(), pattern, tile, cluster, a.block_columns()).map(drop)
    }

    /// Makes tiles of at most `tile` blocks, columns from `own` on being ghosts, and compares them with the host's, byte by
    /// byte: for tests.
    ///
    /// # Errors
    /// What differs; a device without room.
    #[doc(hidden)]
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
            ("how many there are", starts.len() == host.starts.len()),
            ("lengths of records", starts == host.starts),
            ("records", records == host.records),
            ("rows longer than a tile", long_rows == host.long_rows),
            ("parts of such rows", part_starts == host.part_starts),
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
