//! Products by diagonals with several vectors.

use super::super::Cuda;
use super::super::smooth::Smooth;
use super::DiaProduct;
use super::detect::blocks;
use super::shape::{DiaShape, dia_of_columns};
use crate::Result;
use crate::space::MOST_COLUMNS;

/// Mirrors `struct Columns` in `kernels/dia.cu`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(in crate::device::cuda) struct Columns {
    of: [Smooth; MOST_COLUMNS],
    y: [u64; MOST_COLUMNS],
}

impl DiaProduct {
    /// Computes products with several vectors, or their residuals or smoother steps, with one pass over the
    /// values. `of[k].x` and `y[k]` are the addresses of vector k and of its result, which must not be one of
    /// the arguments. The lengths have been checked, and there are no columns of other ranks.
    pub fn multiply_columns(&self, space: &Cuda, smooths: bool, of: &[Smooth], y: &[u64]) -> Result<()> {
        let (device, stored) = (space.device(), &self.stored);
        if self.rows == 0 {
            return Ok(());
        }
        for (of, y) in of.chunks(MOST_COLUMNS).zip(y.chunks(MOST_COLUMNS)) {
            let mut on = Columns::default();
            on.of[..of.len()].copy_from_slice(of);
            on.y[..y.len()].copy_from_slice(y);
            let kind = if smooths { 1 + usize::from(of[0].first != 0) } else { 0 };
            let cell = &stored.kernels.columns[kind];
            let function = match cell.get() {
                Some(function) => function,
                None => {
                    let made = device.function(&dia_of_columns(&stored.kernels.shape, kind))?;
                    cell.get_or_init(|| made)
                }
            };
            function.on(device, blocks(self.rows), DiaShape::THREADS).run(
                space.halt(),
                self.rows as u32,
                stored.count as i32,
                stored.offsets,
                stored.values.pointer(),
                stored.stride as i64,
                on,
                of.len() as i32,
                &self.coefficient,
            )?;
        }
        Ok(())
    }
}
