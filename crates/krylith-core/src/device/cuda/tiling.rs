//! Tiles made on the GPU from row pointers and columns in its memory (`kernels/tiling.cu`).
//!
//! The host reads back three values: the stride of the rows, the number of tiles, and the length of their
//! records.

#[cfg(any(test, feature = "testing"))]
mod testing;

use super::driver::{Buffer, Device};
use super::launch::{Address, At, Entry, kernels};
use super::resident::Resident;
use super::tiles::{self, HEADER, SAMPLES, WINDOW, most_nodes};
use crate::Result;
use crate::matrix::Bsr;
use std::sync::Arc;

kernels! {
    TILING in "tiling.cu", |_| vec![tiling_cut.plain().into()];
    fn tiling_stride(rows: i32, row_ptr: At<i64>, col: At<u32>, own: u32, stride: At<i32>);
    fn tiling_cut(
        all: Windows, windows: i32, row_ptr: At<i64>, col: At<u32>, own: u32, halo: i32, tile: i32,
        most_nodes: i32, order: At<u32>, first: At<u32>, tiles: At<[i32; 2]>, counts: At<u32>,
    );
    fn tiling_scan(data: At<u32>, n: i64);
    fn tiling_place(
        windows: i32, row_ptr: At<i64>, col: At<u32>, own: u32, halo: i32, tile: i32, order: At<u32>,
        first: At<u32>, tiles: At<[i32; 2]>, sums: At<u32>, out: Address, long_rows: At<i32>,
        part_starts: At<i64>,
    );
    fn tiling_records(
        row_ptr: At<i64>, col: At<u32>, order: At<u32>, tiles: Address, tile: i32, unsorted: i32,
        starts: At<u32>, positions: At<u32>, limits: At<u32>, records: At<u8>,
    );
}

/// A block pattern in the memory of a GPU.
#[derive(Clone, Copy)]
pub(super) struct DevicePattern {
    /// Address of the `rows + 1` 64-bit row pointers, which count blocks.
    pub(super) row_ptr: u64,
    /// Address of the 32-bit block columns, ascending in each row.
    pub(super) col: u64,
    pub(super) rows: usize,
    pub(super) columns: usize,
}

impl DevicePattern {
    /// Returns the addresses of a matrix's pattern, which are valid while `resident` lives.
    pub(super) fn of(a: &Bsr, resident: &Resident) -> Self {
        Self {
            row_ptr: resident.row_ptr.pointer(),
            col: resident.col.pointer(),
            rows: a.block_rows(),
            columns: a.block_columns(),
        }
    }
}

/// The tiles of a pattern; `tiles/testing.rs` describes the fields.
pub(super) struct DeviceTiling {
    pub(super) count: usize,
    pub(super) first_boundary: usize,
    pub(super) starts: Buffer<u32>,
    /// The records, with 16 more bytes at the end.
    pub(super) records: Buffer<u8>,
    pub(super) long_rows: Buffer<i32>,
    pub(super) part_starts: Buffer<i64>,
    pub(super) positions: usize,
    pub(super) nodes: usize,
    pub(super) record: usize,
}

/// [`tiles::Windows`] as the kernels take them.
#[repr(C)]
#[derive(Clone, Copy)]
pub(in crate::device::cuda) struct Windows {
    rows: i32,
    planes: i32,
    stride: i32,
    width: i32,
    chunks: i32,
}

const THREADS: usize = 128;

impl DeviceTiling {
    /// Makes tiles of at most `tile` blocks; `cluster` puts rows together that share columns. Columns from
    /// `own` on are ghosts.
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
        let windows = if cluster {
            let stride = device.zeros::<i32>(1, what)?;
            let function = device.function(&tiling_stride.plain())?;
            function.on(device, 1, SAMPLES).run(rows as i32, row_ptr, col, own as u32, &stride)?;
            let mut found = [0];
            device.read(&stride, 0, &mut found)?;
            tiles::Windows::strided(rows, found[0] as usize)
        } else {
            tiles::Windows::consecutive(rows)
        };
        let n = windows.count;
        let cut = Windows {
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
        let scan = device.function(&tiling_scan.plain())?;
        device.function(&tiling_cut.plain())?.on(device, n, THREADS).run(
            cut,
            n as i32,
            row_ptr,
            col,
            own as u32,
            halo,
            tile as i32,
            most,
            &order,
            &first,
            &short,
            &sums,
        )?;
        scan.on(device, 4, 1024).run(&sums, n as i64)?;
        let mut totals = vec![0; 4 * (n + 1)];
        device.read(&sums, 0, &mut totals)?;
        let [interior, boundary, parts, longs] = [0, 1, 2, 3].map(|k| totals[k * (n + 1) + n] as usize);
        let count = interior + boundary;
        let tiles = device.zeros::<[u64; 2]>(count, what)?;
        let long_rows = device.zeros::<i32>(3 * longs, what)?;
        let part_starts = device.zeros::<i64>(parts, what)?;
        // Lengths of records and of positions, then their prefix sums.
        let starts = device.zeros::<u32>(count + 1, what)?;
        let positions = device.zeros::<u32>(count + 1, what)?;
        let limits = device.zeros::<u32>(2, what)?;
        let function = device.function(&tiling_records.plain())?;
        let shared = 4 * (tile.next_power_of_two() + 3 * tile);
        let records = |to: u64| {
            function.on(device, count, THREADS).shared(shared).run(
                row_ptr,
                col,
                &order,
                &tiles,
                tile as i32,
                cluster as i32,
                &starts,
                &positions,
                &limits,
                to,
            )
        };
        device.function(&tiling_place.plain())?.on(device, n, THREADS).run(
            n as i32,
            row_ptr,
            col,
            own as u32,
            halo,
            tile as i32,
            &order,
            &first,
            &short,
            &sums,
            &tiles,
            &long_rows,
            &part_starts,
        )?;
        records(0)?;
        scan.on(device, 1, 1024).run(&starts, count as i64)?;
        scan.on(device, 1, 1024).run(&positions, count as i64)?;
        let (mut end, mut blocks, mut most) = ([0], [0], [0; 2]);
        device.read(&starts, count, &mut end)?;
        device.read(&positions, count, &mut blocks)?;
        device.read(&limits, 0, &mut most)?;
        let bytes = device.zeros::<u8>(end[0] as usize * 16 + 16, "indices of the tiles")?;
        records(bytes.pointer())?;
        // Temporary arrays are freed here, so the kernels must be done.
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
