//! Analysis of a pattern on the GPU for products by diagonals (`kernels/dia_detect.cu`): the diagonals of the
//! matrix and of each row, and the rows with entries in columns of other ranks.

use super::super::Cuda;
use super::super::driver::{Buffer, Device};
use super::shape::{DiaShape, dia_detect, dia_ghost_rows, dia_masks, dia_offsets};
use crate::matrix::Bsr;
use crate::operator::{MOST_DIAGONALS, worth_diagonals};
use crate::space::Precision;
use crate::{Error, Result};
use std::sync::Arc;

/// Slots of the table in which `dia_detect.cu` collects offsets.
const SLOTS: usize = 64;
/// An empty slot.
const EMPTY: i32 = i32::MIN;
/// Stored numbers.
pub(super) enum Values {
    F64(Buffer<f64>),
    F32(Buffer<f32>),
}

impl Values {
    pub(super) fn new(device: &Arc<Device>, precision: Precision, numbers: usize) -> Result<Self> {
        Ok(match precision {
            Precision::F64 => Values::F64(device.allocate(numbers, "diagonals of a matrix")?),
            Precision::F32 => Values::F32(device.allocate(numbers, "diagonals of a matrix")?),
        })
    }

    pub(super) fn pointer(&self) -> u64 {
        match self {
            Values::F64(v) => v.pointer(),
            Values::F32(v) => v.pointer(),
        }
    }
}

/// Rows with entries in columns of other ranks.
pub(super) struct GhostRows {
    pub(super) rows: Buffer<i32>,
    starts: Buffer<i32>,
    pub(super) columns: Buffer<i32>,
    values: Values,
}

/// Mirrors `struct Ghosts` in `kernels/dia.cu`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(in crate::device::cuda) struct Ghosts {
    pub count: i32,
    unused: i32,
    pub rows: u64,
    pub starts: u64,
    pub columns: u64,
    pub values: u64,
}
const _: () = assert!(size_of::<Ghosts>() == 40);

/// Number of thread blocks of [`DiaShape::THREADS`] for `items` items, one per thread.
pub(super) fn blocks(items: usize) -> usize {
    items.div_ceil(DiaShape::THREADS).max(1)
}

impl GhostRows {
    /// Finds the diagonals of each row, and collects the entries in columns of other ranks.
    pub(super) fn find(
        space: &Cuda,
        a: &Bsr,
        own: usize,
        offsets: &[i32],
        masks: &Buffer<u32>,
        precision: Precision,
    ) -> Result<Self> {
        let (device, rows, resident) = (space.device(), a.block_rows(), space.resident(a)?);
        let mut all = [i32::MAX; MOST_DIAGONALS];
        all[..offsets.len()].copy_from_slice(offsets);
        let (threads, grid) = (DiaShape::THREADS, blocks(rows));
        let mut counts = device.zeros::<u64>(grid, "ghosts of rows")?;
        if rows > 0 {
            let function = device.function(&dia_detect(dia_masks))?;
            function.on(device, grid, threads).run(
                rows as u32,
                own as u32,
                &resident.row_ptr,
                &resident.col,
                all,
                masks,
                &counts,
            )?;
        }
        let (mut count, mut entries) = (0, 0);
        if a.block_columns() > own {
            let mut before = vec![0u64; grid];
            device.read(&counts, 0, &mut before)?;
            for b in &mut before {
                let here = std::mem::replace(b, (entries as u64) << 32 | count as u64);
                (count, entries) = (count + (here & 0xffff_ffff) as usize, entries + (here >> 32) as usize);
            }
            if i32::try_from(entries).is_err() {
                return Err(Error::Unsupported(format!(
                    "one GPU has {entries} entries in columns of other ranks, which is too many; distribute the rows over more GPUs"
                )));
            }
            device.write(&before, &mut counts, 0)?;
        }
        let mut starts = device.zeros::<i32>(count + 1, "ghosts of rows")?;
        device.write(&[entries as i32], &mut starts, count)?;
        let found = Self {
            rows: device.zeros(count, "rows with ghosts")?,
            starts,
            columns: device.zeros(entries, "ghosts of rows")?,
            values: Values::new(device, precision, entries)?,
        };
        if count > 0 {
            let function = device.function(&dia_detect(dia_ghost_rows))?;
            function.on(device, grid, threads).run(
                rows as u32,
                own as u32,
                &resident.row_ptr,
                &resident.col,
                masks,
                &counts,
                &found.rows,
                &found.starts,
                &found.columns,
            )?;
        }
        Ok(found)
    }

    pub(super) fn twin(&self) -> Ghosts {
        Ghosts {
            count: self.rows.len() as i32,
            unused: 0,
            rows: self.rows.pointer(),
            starts: self.starts.pointer(),
            columns: self.columns.pointer(),
            values: self.values.pointer(),
        }
    }

    /// Number of thread blocks of the launch that adds ghosts. Without such rows one block waits for the
    /// ghosts.
    pub(super) fn grid(&self, device: &Device) -> usize {
        blocks(self.rows.len()).min(2 * device.multiprocessors())
    }
}

/// Returns the diagonals of a square matrix, ascending, found on the GPU; columns from the number of rows on
/// are ghosts. Returns `None` if there are too many diagonals, or they are too sparse.
pub(super) fn diagonals_on_device(space: &Cuda, a: &Bsr) -> Result<Option<Vec<i32>>> {
    let (device, rows, resident) = (space.device(), a.block_rows(), space.resident(a)?);
    if rows == 0 {
        return Ok(Some(vec![0]));
    }
    // The table, the number of its offsets, a flag for too many, and the number of entries as two words.
    let mut state = [EMPTY; SLOTS + 4];
    state[SLOTS..].fill(0);
    let found = device.upload(&state, "diagonals of a matrix")?;
    let function = device.function(&dia_detect(dia_offsets))?;
    let grid = blocks(rows).min(8 * device.multiprocessors());
    function.on(device, grid, DiaShape::THREADS).run(
        rows as u32,
        rows as u32,
        &resident.row_ptr,
        &resident.col,
        &found,
        found.at(SLOTS + 1),
        found.at(SLOTS + 2),
    )?;
    device.read(&found, 0, &mut state)?;
    let entries = state[SLOTS + 2] as u32 as u64 | (state[SLOTS + 3] as u32 as u64) << 32;
    if state[SLOTS + 1] != 0 {
        return Ok(None);
    }
    let mut offsets: Vec<i32> = state[..SLOTS].iter().copied().filter(|&o| o != EMPTY).collect();
    offsets.sort_unstable();
    if offsets.is_empty() {
        offsets.push(0);
    }
    Ok(worth_diagonals(rows, offsets.len(), entries as usize).then_some(offsets))
}
