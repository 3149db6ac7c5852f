//! Transposes of scalar matrices on a GPU (`kernels/amg_transpose.cu`).

use super::super::driver::Device;
use super::super::launch::{At, Entry, Of, kernels};
use super::super::resident::Resident;
use super::super::scan::scan;
use super::super::specialisations::define;
use crate::Result;
use std::sync::Arc;

kernels! {
    TRANSPOSE in "amg_transpose.cu", |_| vec![kernel(amg_scatter).into()];
    fn amg_count_columns(entries: i64, col: At<u32>, counts: At<u32>);
    fn amg_scatter(
        rows: i64, ptr: At<i64>, col: At<u32>, val: At<f64>, to: At<i64>, left: At<u32>, to_col: At<u32>,
        to_val: At<f64>,
    );
    fn amg_sort_rows(
        rows: i64, ptr: At<i64>, col: At<u32>, val: At<f64>, to_col: At<u32>, to_val: At<f64>,
        longer: At<u32>,
    );
    fn amg_sort_long_rows(
        ptr: At<i64>, col: At<u32>, val: At<f64>, to_col: At<u32>, to_val: At<f64>, longer: At<u32>,
    );
}

/// Least number of entries of a row that is processed by a whole thread block.
const LONG: usize = 256;
const WHAT: &str = "a transpose";

fn kernel<K: Entry>(entry: K) -> Of<K> {
    entry.with(vec![define("LONG", LONG)])
}

/// Returns the transpose of a matrix of scalars with `columns` columns; its columns ascend.
pub(super) fn transpose(device: &Arc<Device>, a: &Resident, columns: usize) -> Result<Resident> {
    let (rows, entries) = (a.row_ptr.len() - 1, a.col.len());
    let counts = device.zeros::<u32>(columns, WHAT)?;
    if entries > 0 {
        let function = device.function(&kernel(amg_count_columns))?;
        let grid = entries.div_ceil(256).min(32 * device.multiprocessors());
        function.on(device, grid, 256).run(entries as i64, &a.col, &counts)?;
    }
    let row_ptr = scan(device, &counts)?;
    let (col, values) = (device.allocate::<u32>(entries, WHAT)?, device.allocate::<f64>(entries, WHAT)?);
    let turned = Resident::new(row_ptr, col, values);
    if entries > 0 {
        let scatter = device.function(&kernel(amg_scatter))?;
        scatter.on(device, (4 * rows).div_ceil(256), 256).run(
            rows as i64,
            &a.row_ptr,
            &a.col,
            &a.values,
            &turned.row_ptr,
            &counts,
            &turned.col,
            &turned.values,
        )?;
    }
    sorted(device, &turned)
}

/// Returns a matrix of scalars with ascending columns. No column occurs twice in a row.
pub(in crate::device::cuda) fn sorted(device: &Arc<Device>, a: &Resident) -> Result<Resident> {
    let (rows, entries) = (a.row_ptr.len() - 1, a.col.len());
    let to = a.with_pattern(device.allocate(entries, WHAT)?, device.allocate(entries, WHAT)?);
    if entries == 0 {
        return Ok(to);
    }
    let longer = device.zeros::<u32>(1 + entries / LONG, WHAT)?;
    let sort = device.function(&kernel(amg_sort_rows))?;
    sort.on(device, (8 * rows).div_ceil(256), 256).run(
        rows as i64,
        &a.row_ptr,
        &a.col,
        &a.values,
        &to.col,
        &to.values,
        &longer,
    )?;
    let sort_long = device.function(&kernel(amg_sort_long_rows))?;
    let sort_long = sort_long.on(device, 2 * device.multiprocessors(), 1024);
    sort_long.run(&a.row_ptr, &a.col, &a.values, &to.col, &to.values, &longer)?;
    Ok(to)
}
