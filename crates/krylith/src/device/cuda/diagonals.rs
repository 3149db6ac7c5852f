//! Matrices stored by diagonals, on a GPU.

use super::Cuda;
use super::driver::{Buffer, launch};
use super::specialisations;
use crate::Result;
use crate::matrix::Dia;
use crate::memory::Numbers;
use crate::operator::DiagonalFormat;
use crate::space::Space;
use cudarc::driver::CudaFunction;

/// Offsets and values in device memory.
pub struct CudaDiagonals {
    offsets: Buffer<i64>,
    values: Buffer<f64>,
    function: CudaFunction,
}

impl DiagonalFormat for Cuda {
    type Diagonals = CudaDiagonals;

    fn prepare_diagonals(&self, a: &Dia) -> Result<CudaDiagonals> {
        Ok(CudaDiagonals {
            offsets: self.device().upload(a.offsets(), "offsets of diagonals")?,
            values: self.device().upload(a.values(), "diagonals")?,
            function: self.device().function(&specialisations::diagonals())?,
        })
    }

    fn update_diagonals(&self, to: &mut CudaDiagonals, values: Numbers) -> Result<()> {
        self.device().copy_from(values, &mut to.values)
    }

    fn multiply_diagonals(&self, a: &CudaDiagonals, x: &Buffer<f64>, y: &mut Buffer<f64>) -> Result<()> {
        let (n, count) = (self.len() as i64, a.offsets.len() as i32);
        let (offsets, values) = (a.offsets.pointer(), a.values.pointer());
        // SAFETY: the parameter types are the kernel's; the operator checked the lengths.
        unsafe {
            launch!(
                self.device(),
                &a.function,
                self.len().div_ceil(256).max(1),
                256,
                0,
                self.halt(),
                n,
                count,
                offsets,
                values,
                x.pointer(),
                y.pointer()
            )
        }
    }
}
