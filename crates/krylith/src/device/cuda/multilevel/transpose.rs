//! Transposes of scalar matrices on a GPU (`kernels/amg_transpose.cu`).

use super::super::compiler::Kernel;
use super::super::driver::{Device, launch};
use super::super::resident::Resident;
use super::super::scan::scan;
use super::super::specialisations::define;
use crate::Result;
use std::sync::Arc;

/// Entries from which on a row takes a block of threads.
const LONG: usize = 256;
const WHAT: &str = "a transpose";

fn kernel(entry: &'static str) -> Kernel {
    Kernel { file: "amg_transpose.cu", entry, defines: vec![define("LONG", LONG)] }
}

pub(super) fn kernels() -> Vec<Kernel> {
    ["amg_count_columns", "amg_scatter", "amg_sort_rows", "amg_sort_long_rows"].map(kernel).into()
}

/// The transpose of a matrix of scalars with that many columns; columns ascend.
pub(super) fn transpose(device: &Arc<Device>, a: &Resident, columns: usize) -> Result<Resident> {
    let (rows, entries) = (a.row_ptr.len() - 1, a.col.len());
    let counts = device.zeros::<u32>(columns, WHAT)?;
    let col_at = a.col.pointer();
    if entries > 0 {
        let function = device.function(&kernel("amg_count_columns"))?;
        let grid = entries.div_ceil(256).min(32 * device.multiprocessors());
        // SAFETY: the parameter types are the kernel's; columns are below the length of the counts.
        unsafe { launch!(device, &function, grid, 256, 0, entries as i64, col_at, counts.pointer())? };
    }
    let row_ptr = scan(device, &counts)?;
    let turned =
        Resident::new(row_ptr, device.room::<u32>(entries, WHAT)?, device.room::<f64>(entries, WHAT)?);
    if entries == 0 {
        return Ok(turned);
    }
    let (col, values) = (device.room::<u32>(entries, WHAT)?, device.room::<f64>(entries, WHAT)?);
    let longer = device.zeros::<u32>(1 + entries / LONG, WHAT)?;
    let (to, col, values) = (turned.row_ptr.pointer(), col.pointer(), values.pointer());
    let (to_col, to_values, longer) = (turned.col.pointer(), turned.values.pointer(), longer.pointer());
    let (scatter, sort) =
        (device.function(&kernel("amg_scatter"))?, device.function(&kernel("amg_sort_rows"))?);
    let sort_long = device.function(&kernel("amg_sort_long_rows"))?;
    // SAFETY: the parameter types are the kernels'; the counts are those of the entries, and so is the room.
    unsafe {
        let (ptr, val, left) = (a.row_ptr.pointer(), a.values.pointer(), counts.pointer());
        let grid = (4 * rows).div_ceil(256);
        launch!(device, &scatter, grid, 256, 0, rows as i64, ptr, col_at, val, to, left, col, values)?;
        let grid = (8 * columns).div_ceil(256);
        launch!(device, &sort, grid, 256, 0, columns as i64, to, col, values, to_col, to_values, longer)?;
        let grid = 2 * device.multiprocessors();
        launch!(device, &sort_long, grid, 1024, 0, to, col, values, to_col, to_values, longer)?;
    }
    Ok(turned)
}
