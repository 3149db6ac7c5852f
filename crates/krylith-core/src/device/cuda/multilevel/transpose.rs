//! Transposes of matrices on a GPU (`kernels/amg_transpose.cu`). The pattern of blocks is transposed with the
//! positions of the blocks as values, by which values are gathered.

use super::super::Cuda;
use super::super::driver::{Buffer, Device};
use super::super::launch::{At, Entry, Of, kernels};
use super::super::resident::Resident;
use super::super::scan::scan;
use super::super::specialisations::define;
use super::near_null::transposed_positions;
use super::stored;
use crate::matrix::Bsr;
use crate::operator::{Map, Terms, TransposedTerms};
use crate::{Error, Result};
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
    fn amg_turn_blocks(numbers: i64, block: i32, places: At<f64>, from: At<f64>, to: At<f64>);
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

/// Returns the transposes of blocks of order `block`. `places` has the position of each block in `from`.
pub(super) fn turned_blocks(
    device: &Arc<Device>,
    block: usize,
    places: &Buffer<f64>,
    from: &Buffer<f64>,
) -> Result<Buffer<f64>> {
    let numbers = places.len() * block * block;
    let to = device.allocate::<f64>(numbers, WHAT)?;
    if numbers > 0 {
        let function = device.function(&kernel(amg_turn_blocks))?;
        let grid = numbers.div_ceil(256).min(32 * device.multiprocessors());
        function.on(device, grid, 256).run(numbers as i64, block as i32, places, from, &to)?;
    }
    Ok(to)
}

impl Cuda {
    /// Transposes terms that this rank alone has.
    pub(in crate::device::cuda) fn transposed_terms(&self, terms: &Terms) -> Result<TransposedTerms> {
        let (device, shared) = (self.device(), terms.shared_pattern());
        let mut matrices: Vec<(Bsr, Arc<Map>)> = Vec::new();
        for (t, (_, a)) in terms.terms.iter().enumerate() {
            let from = self.resident(a)?;
            let (pattern, places) = match matrices.first().filter(|_| t > 0 && shared) {
                Some((first, map)) => (Resident::clone(&*self.resident(first)?), places_of(map)?),
                None => {
                    let turned = transposed_positions(device, &from, a.block_columns())?;
                    let places = turned.values.clone();
                    (turned, places)
                }
            };
            let values = turned_blocks(device, a.block(), &places, &from.values)?;
            let turned = stored(a.block(), a.block_columns(), a.block_rows(), pattern.with_values(values));
            matrices.push((turned, Arc::new(Map::Device(places))));
        }
        Ok(TransposedTerms::new(terms, matrices))
    }

    /// Takes the values and coefficients of terms again.
    pub(in crate::device::cuda) fn turn_again(&self, terms: &Terms, to: &mut TransposedTerms) -> Result<()> {
        for (t, (c, a)) in terms.terms.iter().enumerate() {
            let (from, places) = (self.resident(a)?, places_of(to.map(t))?);
            let values = turned_blocks(self.device(), a.block(), &places, &from.values)?;
            let matrix = &*to.terms().terms[t].1;
            let made = Resident::clone(&*self.resident(matrix)?).with_values(values);
            let made = matrix.with_storage(matrix.storage().with_device_values(Arc::new(made)));
            to.set(t, c, made);
        }
        Ok(())
    }
}

/// Returns the places that a map on this device has.
fn places_of(map: &Map) -> Result<Arc<Buffer<f64>>> {
    let lost = || Error::Internal("the places of a transpose are not on the GPU".into());
    match map {
        Map::Device(places) => places.clone().downcast().map_err(|_| lost()),
        Map::Host(_) => Err(lost()),
    }
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
