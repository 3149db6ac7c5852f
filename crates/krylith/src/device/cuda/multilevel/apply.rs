//! P ⊗ I and R ⊗ I on a GPU (`kernels/amg_transfer.cu`): no tiles and no module of their own, which took most of a set-up of blocks.

use super::super::Cuda;
use super::super::compiler::Kernel;
use super::super::driver::{Buffer, launch};
use crate::matrix::Bsr;
use crate::operator::check_lengths;
use crate::{Error, Result};

fn kernel() -> Kernel {
    Kernel { file: "amg_transfer.cu", entry: "amg_transfer", defines: Vec::new() }
}

pub(super) fn kernels() -> [Kernel; 1] {
    [kernel()]
}

impl Cuda {
    /// y ← (W ⊗ I) x, added to y if `add` says so; W is in the memory of this GPU.
    pub(super) fn transfer_vector(
        &self,
        w: &Bsr,
        order: usize,
        x: &Buffer<f64>,
        y: &mut Buffer<f64>,
        add: bool,
    ) -> Result<()> {
        let (device, rows) = (self.device(), w.block_rows());
        check_lengths(rows * order, w.block_columns() * order, x.len(), y.len())?;
        let lost = || Error::Internal("weights between two levels that are not on the GPU".into());
        let at = self.at_hand(w).ok_or_else(lost)?;
        if rows == 0 {
            return Ok(());
        }
        let function = device.function(&kernel())?;
        let grid = (rows * order).div_ceil(256).min(64 * device.multiprocessors());
        let (ptr, col, values) = (at.row_ptr.pointer(), at.col.pointer(), at.values.pointer());
        let (halt, x, y, add) = (self.halt(), x.pointer(), y.pointer(), i32::from(add));
        // SAFETY: the parameter types are the kernel's; columns are below the number of nodes of x.
        unsafe {
            launch!(
                device,
                &function,
                grid,
                256,
                0,
                halt,
                rows as i64,
                order as i32,
                ptr,
                col,
                values,
                x,
                y,
                add
            )
        }
    }
}
