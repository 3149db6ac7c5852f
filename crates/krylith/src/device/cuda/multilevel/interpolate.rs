//! Extended+i interpolation on a GPU: `kernels/amg_interpolate.cu`. The host's is `precond/multilevel/host/interpolate.rs`, and the same bit by bit.

use super::super::Cuda;
use super::super::compiler::Kernel;
use super::super::driver::{Buffer, Device, launch};
use super::super::resident::Resident;
use super::super::specialisations::define;
use super::super::{scan, scan::scan as places_of};
use super::split::{Split, grid};
use crate::Result;
use crate::matrix::Bsr;
use crate::matrix::storage::Storage;
use std::sync::Arc;

/// Up to so many weights a row goes to a place of its own at first, and all are moved together; more are counted before they are computed.
const STRIDE: usize = 8;
/// Bytes of all tables of long rows, at most, where one of them is smaller.
const LONG_BYTES: usize = 256 << 20;
const WHAT: &str = "interpolation weights";

/// How rows are mapped to threads: lanes that share a row, threads of a block, slots of a row's table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Shape {
    lanes: usize,
    threads: usize,
    slots: usize,
}

impl Shape {
    /// Tables of a block have 32 KB in all. Of a row's nodes at a distance of two, those that stay, a table has room for some times as many
    /// as grids have.
    const ALL: [Self; 4] = [
        Self { lanes: 8, threads: 256, slots: 64 },
        Self { lanes: 16, threads: 256, slots: 128 },
        Self { lanes: 32, threads: 256, slots: 256 },
        Self { lanes: 32, threads: 64, slots: 1024 },
    ];

    /// By the mean length of a row.
    fn choose(rows: usize, entries: usize) -> Self {
        match entries / rows.max(1) {
            0..=9 => Self::ALL[0],
            10..=18 => Self::ALL[1],
            19..=40 => Self::ALL[2],
            _ => Self::ALL[3],
        }
    }

    fn kernel(&self, entry: &'static str) -> Kernel {
        let numbers = [("LANES", self.lanes), ("THREADS", self.threads), ("SLOTS", self.slots)];
        Kernel { file: "amg_interpolate.cu", entry, defines: numbers.map(|(name, n)| define(name, n)).into() }
    }
}

/// One entry stands for all of its file.
pub(super) fn kernels() -> [Kernel; 4] {
    Shape::ALL.map(|shape| shape.kernel("interpolate"))
}

/// Where weights go: those of row i from `place[i]` on, or from i·`stride` on where that is 0. 0 for arrays that are not wanted.
#[derive(Clone, Copy, Default)]
struct Output {
    place: u64,
    stride: usize,
    counts: u64,
    col: u64,
    values: u64,
}

/// The rows of a matrix that interpolates, as the kernels see it.
struct Rows<'a> {
    device: &'a Arc<Device>,
    shape: Shape,
    a: Arc<Resident>,
    n: usize,
    split: &'a Split,
    most: u32,
    /// Rows with more nodes than a table has slots.
    long: Buffer<u32>,
}

/// P by extended+i, each row with its `most` largest weights (0: all).
pub(super) fn extended_i(space: &Cuda, a: &Bsr, split: &Split, most: usize) -> Result<Bsr> {
    let (device, n) = (space.device(), a.block_rows());
    let rows = Rows {
        device,
        shape: Shape::choose(n, a.blocks()),
        a: space.resident(a)?,
        n,
        split,
        most: u32::try_from(most).unwrap_or(u32::MAX),
        long: device.room(n, WHAT)?,
    };
    let (row_ptr, col, values) =
        if (1..=STRIDE).contains(&most) { rows.apart(most)? } else { rows.counted()? };
    let entries = col.len();
    let on = Arc::new(Resident::new(row_ptr, col, values));
    Ok(Bsr::from_storage(1, Storage::device(n, split.coarse, entries, on)))
}

/// Row pointers, columns and values.
type Arrays = (Buffer<i64>, Buffer<u32>, Buffer<f64>);

impl Rows<'_> {
    /// Computed once into rows of `stride` places, then moved together.
    fn apart(&self, stride: usize) -> Result<Arrays> {
        let (device, n) = (self.device, self.n);
        let counts = device.room::<u32>(n, WHAT)?;
        let (col, values) = (device.room::<u32>(n * stride, WHAT)?, device.room::<f64>(n * stride, WHAT)?);
        self.compute(Output {
            place: 0,
            stride,
            counts: counts.pointer(),
            col: col.pointer(),
            values: values.pointer(),
        })?;
        let places = places_of(device, &counts)?;
        let entries = scan::last(device, &places)? as usize;
        let (to_col, to_values) = (device.room::<u32>(entries, WHAT)?, device.room::<f64>(entries, WHAT)?);
        let function = device.function(&self.shape.kernel("close_up"))?;
        let blocks = grid(device, n * stride * 256 / self.shape.threads);
        // SAFETY: the parameter types are the kernel's; the counts of which the places are sums are at most `stride` each.
        unsafe {
            let (n, stride, at) = (n as i64, stride as i64, places.pointer());
            let (from, weights) = (col.pointer(), values.pointer());
            let (to, to_weights) = (to_col.pointer(), to_values.pointer());
            launch!(
                device,
                &function,
                blocks,
                self.shape.threads,
                0,
                n,
                stride,
                at,
                from,
                weights,
                to,
                to_weights
            )?;
        }
        Ok((places, to_col, to_values))
    }

    /// Computed twice: to count weights, and to keep them.
    fn counted(&self) -> Result<Arrays> {
        let device = self.device;
        let counts = device.room::<u32>(self.n, WHAT)?;
        self.compute(Output { counts: counts.pointer(), ..Output::default() })?;
        let places = places_of(device, &counts)?;
        let entries = scan::last(device, &places)? as usize;
        let (col, values) = (device.room::<u32>(entries, WHAT)?, device.room::<f64>(entries, WHAT)?);
        let (place, to_col, to_values) = (places.pointer(), col.pointer(), values.pointer());
        self.compute(Output { place, col: to_col, values: to_values, ..Output::default() })?;
        Ok((places, col, values))
    }

    /// All rows: most with tables in shared memory, those with more nodes than that with tables in global memory.
    fn compute(&self, to: Output) -> Result<()> {
        let device = self.device;
        let found = device.zeros::<u32>(2, WHAT)?;
        let at_once = self.shape.threads / self.shape.lanes;
        let blocks = self.n.div_ceil(at_once).clamp(1, 32 * device.multiprocessors());
        let function = device.function(&self.shape.kernel("interpolate"))?;
        let (n, most) = (self.n as i64, self.most);
        let (ptr, col, values) = (self.a.row_ptr.pointer(), self.a.col.pointer(), self.a.values.pointer());
        let (flags, number) = (self.split.flags.pointer(), self.split.number.pointer());
        let (place, stride, counts, to_col, to_values) =
            (to.place, to.stride as i64, to.counts, to.col, to.values);
        // SAFETY: the parameter types are the kernel's; arrays have a number for each row or entry of the matrix, and the output has room for
        // every weight of a row.
        unsafe {
            let (long, found) = (self.long.pointer(), found.pointer());
            launch!(
                device,
                &function,
                blocks,
                self.shape.threads,
                0,
                n,
                ptr,
                col,
                values,
                flags,
                number,
                most,
                place,
                stride,
                counts,
                to_col,
                to_values,
                long,
                found
            )?;
        }
        let mut long = [0; 2];
        device.read(&found, 0, &mut long)?;
        let [count, nodes] = long.map(|n| n as usize);
        if count == 0 {
            return Ok(());
        }
        let slots = (2 * nodes.min(self.split.coarse)).max(64).next_power_of_two();
        let warps = (LONG_BYTES / (16 * slots)).clamp(1, count.min(16 * device.multiprocessors()));
        let (keys, orders) =
            (device.room::<u32>(warps * slots, WHAT)?, device.room::<u32>(warps * slots, WHAT)?);
        let sums = device.room::<f64>(warps * slots, WHAT)?;
        let function = device.function(&self.shape.kernel("interpolate_long"))?;
        // SAFETY: as above; each warp has a table of `slots`, more than its rows have nodes.
        unsafe {
            let (rows, count, slots) = (self.long.pointer(), count as u32, slots as u32);
            let (keys, sums, orders) = (keys.pointer(), sums.pointer(), orders.pointer());
            launch!(
                device, &function, warps, 32, 0, n, ptr, col, values, flags, number, most, place, stride,
                counts, to_col, to_values, rows, count, slots, keys, sums, orders
            )
        }
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
        assert_eq!(Shape::choose(10, 5000), Shape::ALL[3]);
    }
}
