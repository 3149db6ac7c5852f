//! Extended+i interpolation on a GPU: `kernels/amg_interpolate.cu`. The results equal those of the host
//! (`precond/multilevel/host/interpolate.rs`) bit by bit.

use super::super::Cuda;
use super::super::driver::{Buffer, Device};
use super::super::launch::{At, Entry, Of, kernels};
use super::super::resident::Resident;
use super::super::scan;
use super::super::specialisations::define;
use super::split::Split;
use super::stored;
use crate::Result;
use crate::matrix::Bsr;
use std::sync::Arc;

kernels! {
    INTERPOLATE in "amg_interpolate.cu", |_| Shape::ALL.map(|shape| shape.kernel(interpolate).into()).into();
    fn interpolate(
        n: i64, a: Matrix, most: u32, numbers: At<u64>, place: At<i64>, stride: i64, counts: At<u32>,
        to_col: At<u32>, to_values: At<f64>, rows: At<u32>, found: At<u32>,
    );
    fn interpolate_long(
        n: i64, a: Matrix, most: u32, numbers: At<u64>, place: At<i64>, stride: i64, counts: At<u32>,
        to_col: At<u32>, to_values: At<f64>, rows: At<u32>, count: u32, slots: u32, keys: At<u32>,
        sums: At<f64>, orders: At<u32>,
    );
    fn close_up(
        n: i64, stride: i64, place: At<i64>, col: At<u32>, values: At<f64>, to_col: At<u32>,
        to_values: At<f64>,
    );
}

/// Largest number of weights per row that are first written with a fixed stride and then moved together.
/// Longer rows are counted before they are computed.
pub(super) const STRIDE: usize = 8;
/// Largest size in bytes of all tables of long rows, unless a single table is larger.
const LONG_BYTES: usize = 256 << 20;
const WHAT: &str = "interpolation weights";

/// Addresses of a matrix, its strong entries and its coarse part: `Matrix` of the kernels.
pub(super) type Matrix = [u64; 8];

/// Mapping of rows to threads: lanes that share a row, threads per thread block, slots of a row's table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Shape {
    pub lanes: usize,
    pub threads: usize,
    pub slots: usize,
}

impl Shape {
    /// The tables of a thread block take 32 KB in all. A table has slots for several times as many nodes as
    /// the coarse points within a distance of two on a grid.
    pub const ALL: [Self; 3] = [
        Self { lanes: 8, threads: 256, slots: 64 },
        Self { lanes: 8, threads: 128, slots: 128 },
        Self { lanes: 16, threads: 128, slots: 256 },
    ];

    /// Chooses by the mean length of a row.
    pub fn choose(rows: usize, entries: usize) -> Self {
        match entries / rows.max(1) {
            0..=9 => Self::ALL[0],
            10..=18 => Self::ALL[1],
            _ => Self::ALL[2],
        }
    }

    pub fn kernel<K: Entry>(&self, entry: K) -> Of<K> {
        let numbers = [("LANES", self.lanes), ("THREADS", self.threads), ("SLOTS", self.slots)];
        entry.with(numbers.map(|(name, n)| define(name, n)).into())
    }

    /// Number of thread blocks for `rows` rows; the kernels loop over the grid.
    pub fn blocks(&self, device: &Device, rows: usize) -> usize {
        rows.div_ceil(self.threads / self.lanes).clamp(1, 32 * device.multiprocessors())
    }

    /// Number of thread blocks for `threads` threads.
    pub fn blocks_of(&self, device: &Device, threads: usize) -> usize {
        threads.div_ceil(self.threads).clamp(1, 32 * device.multiprocessors())
    }
}

/// Rows with more nodes than a table in shared memory has slots.
pub(super) struct LongRows {
    pub rows: Buffer<u32>,
    /// Number of these rows, and the most nodes that one of them may have.
    pub found: Buffer<u32>,
}

/// Tables in global memory for long rows: the number of rows, of warps with a table each, and of slots per
/// table.
pub(super) struct Tables {
    pub rows: usize,
    pub warps: usize,
    pub slots: usize,
}

impl LongRows {
    /// Allocates a list for up to `rows` rows.
    pub fn new(device: &Arc<Device>, rows: usize) -> Result<Self> {
        Ok(Self { rows: device.allocate(rows, WHAT)?, found: device.zeros(2, WHAT)? })
    }

    /// Returns tables of `bytes` bytes per slot for the listed rows, with at most `nodes` nodes; `None` where
    /// there are no such rows.
    pub fn tables(&self, device: &Device, nodes: usize, bytes: usize) -> Result<Option<Tables>> {
        let mut found = [0; 2];
        device.read(&self.found, 0, &mut found)?;
        let [rows, most] = found.map(|n| n as usize);
        if rows == 0 {
            return Ok(None);
        }
        let slots = (2 * most.min(nodes)).max(64).next_power_of_two();
        let warps = (LONG_BYTES / (bytes * slots)).clamp(1, rows.min(16 * device.multiprocessors()));
        Ok(Some(Tables { rows, warps, slots }))
    }
}

/// Target of the weights: those of row i start at `place[i]`, or at i·`stride` where `place` is 0. An array
/// that is not needed is 0.
#[derive(Clone, Copy, Default)]
struct Output {
    place: u64,
    stride: usize,
    counts: u64,
    col: u64,
    values: u64,
}

/// The rows of an interpolating matrix, as the kernels take them.
struct Rows<'a> {
    device: &'a Arc<Device>,
    shape: Shape,
    a: Arc<Resident>,
    n: usize,
    split: &'a Split,
    most: u32,
    /// Address of the nodes' global numbers, or 0 on a single rank.
    numbers: u64,
}

/// Row pointers, columns and values.
pub(super) type Arrays = (Buffer<i64>, Buffer<u32>, Buffer<f64>);

/// Returns P by extended+i, where each row keeps its `most` largest weights (0: all). Of equal weights, those
/// with lower `numbers` (an address) are kept.
pub(super) fn extended_i(space: &Cuda, a: &Bsr, split: &Split, most: usize, numbers: u64) -> Result<Bsr> {
    let (device, n) = (space.device(), a.block_rows());
    let shape = Shape::choose(n, a.blocks());
    let limit = u32::try_from(most).unwrap_or(u32::MAX);
    let rows = Rows { device, shape, a: space.resident(a)?, n, split, most: limit, numbers };
    let arrays = if (1..=STRIDE).contains(&most) { rows.apart(most)? } else { rows.counted()? };
    Ok(prolongation(arrays, split.coarse))
}

/// Makes P from its arrays.
pub(super) fn prolongation((row_ptr, col, values): Arrays, coarse: usize) -> Bsr {
    let rows = row_ptr.len() - 1;
    stored(1, rows, coarse, Resident::new(row_ptr, col, values))
}

/// Moves rows of `stride` places together.
pub(super) fn move_together(
    device: &Arc<Device>,
    shape: Shape,
    stride: usize,
    counts: &Buffer<u32>,
    col: &Buffer<u32>,
    values: &Buffer<f64>,
) -> Result<Arrays> {
    let n = counts.len();
    let places = scan::scan(device, counts)?;
    let entries = scan::last(device, &places)? as usize;
    let (to_col, to_values) =
        (device.allocate::<u32>(entries, WHAT)?, device.allocate::<f64>(entries, WHAT)?);
    let function = device.function(&shape.kernel(close_up))?;
    let blocks = shape.blocks_of(device, n * stride);
    let (n, stride) = (n as i64, stride as i64);
    function.on(device, blocks, shape.threads).run(n, stride, &places, col, values, &to_col, &to_values)?;
    Ok((places, to_col, to_values))
}

impl Rows<'_> {
    /// Computes the weights once, into rows of `stride` places, and moves them together.
    fn apart(&self, stride: usize) -> Result<Arrays> {
        let (device, n) = (self.device, self.n);
        let counts = device.allocate::<u32>(n, WHAT)?;
        let (col, values) =
            (device.allocate::<u32>(n * stride, WHAT)?, device.allocate::<f64>(n * stride, WHAT)?);
        let (counts_at, to_col, to_values) = (counts.pointer(), col.pointer(), values.pointer());
        self.compute(Output { place: 0, stride, counts: counts_at, col: to_col, values: to_values })?;
        move_together(device, self.shape, stride, &counts, &col, &values)
    }

    /// Computes the weights twice: to count them, and to store them.
    fn counted(&self) -> Result<Arrays> {
        let device = self.device;
        let counts = device.allocate::<u32>(self.n, WHAT)?;
        self.compute(Output { counts: counts.pointer(), ..Output::default() })?;
        let places = scan::scan(device, &counts)?;
        let entries = scan::last(device, &places)? as usize;
        let (col, values) = (device.allocate::<u32>(entries, WHAT)?, device.allocate::<f64>(entries, WHAT)?);
        let (place, to_col, to_values) = (places.pointer(), col.pointer(), values.pointer());
        self.compute(Output { place, col: to_col, values: to_values, ..Output::default() })?;
        Ok((places, col, values))
    }

    /// Computes all rows: most with tables in shared memory, those with more nodes with tables in global
    /// memory.
    fn compute(&self, to: Output) -> Result<()> {
        let (device, shape) = (self.device, self.shape);
        let long = LongRows::new(device, self.n)?;
        let function = device.function(&shape.kernel(interpolate))?;
        let (a, split, part) = (&self.a, self.split, &self.split.part);
        // `Matrix` of the kernels.
        let matrix = [
            a.row_ptr.pointer(),
            a.col.pointer(),
            a.values.pointer(),
            split.flags.pointer(),
            part.ptr.pointer(),
            part.col.pointer(),
            part.values.pointer(),
            split.number.pointer(),
        ];
        let (n, most, numbers, threads) = (self.n as i64, self.most, self.numbers, shape.threads);
        let (place, stride, counts, col, values) = (to.place, to.stride as i64, to.counts, to.col, to.values);
        let blocks = shape.blocks(device, self.n);
        function.on(device, blocks, threads).run(
            n,
            matrix,
            most,
            numbers,
            place,
            stride,
            counts,
            col,
            values,
            &long.rows,
            &long.found,
        )?;
        let Some(tables) = long.tables(device, self.split.coarse, 16)? else { return Ok(()) };
        let room = tables.warps * tables.slots;
        let (keys, orders) = (device.allocate::<u32>(room, WHAT)?, device.allocate::<u32>(room, WHAT)?);
        let sums = device.allocate::<f64>(room, WHAT)?;
        let function = device.function(&shape.kernel(interpolate_long))?;
        let (length, slots) = (tables.rows as u32, tables.slots as u32);
        function.on(device, tables.warps, 32).run(
            n, matrix, most, numbers, place, stride, counts, col, values, &long.rows, length, slots, &keys,
            &sums, &orders,
        )
    }
}

#[cfg(test)]
mod tests {
    use super::Shape;

    #[test]
    fn tables_fit_shared_memory() {
        for shape in Shape::ALL {
            let rows = shape.threads / shape.lanes;
            assert_eq!(16 * rows * shape.slots, 32 << 10, "{shape:?}");
            assert!(shape.slots.is_power_of_two() && shape.slots % shape.lanes == 0, "{shape:?}");
        }
        assert_eq!(Shape::choose(0, 0), Shape::ALL[0]);
        assert_eq!(Shape::choose(10, 70), Shape::ALL[0]);
        assert_eq!(Shape::choose(10, 5000), Shape::ALL[2]);
    }
}
