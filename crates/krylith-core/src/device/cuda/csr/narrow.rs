//! Products of scalar rows with a matrix and vectors in f32, as residuals and smoother steps of a cycle.

use super::super::Cuda;
use super::super::compiler::Kernel;
use super::super::driver::{Buffer, Device};
use super::super::launch::Function;
use super::super::multilevel::{narrow_again, narrowed};
use super::super::smooth::Smooth;
use super::{
    CsrPattern, CsrProduct, CsrShape, EACH, FEW, Tiles, Values, csr_lanes, csr_smooth_cut_rows,
    csr_smooth_product,
};
use crate::Result;
use crate::space::Precision;
use std::sync::Arc;

/// A product that shares the pattern of another matrix in f64, with its values in f32.
pub(in crate::device::cuda) struct NarrowCsr {
    rows: usize,
    pattern: CsrPattern,
    values: Buffer<f32>,
    by: By,
    /// The kernels with results in f64.
    to_f64: Option<Kernels>,
}

/// Distribution of rows. Lanes share the rows of a small matrix.
enum By {
    Lanes(Kernels, u32),
    Tiles(Kernels, Arc<Tiles>),
}

enum Kernels {
    Lanes(Function<csr_lanes>),
    Tiles(Function<csr_smooth_product>, Function<csr_smooth_cut_rows>),
}

/// Returns the kernels of products in f32.
pub(crate) fn narrow_kernels() -> Vec<Kernel> {
    let (shape, lanes) = (CsrShape::narrow(), csr_lanes::of(Precision::F32, Precision::F32));
    vec![
        shape.kernel_that_smooths(csr_smooth_product).into(),
        shape.kernel_to_f64(csr_smooth_product).into(),
        lanes.into(),
        csr_lanes::to_f64().into(),
    ]
}

impl Kernels {
    fn new(device: &Device, lanes: bool, to_f64: bool) -> Result<Self> {
        let shape = CsrShape::narrow();
        Ok(match (lanes, to_f64) {
            (true, false) => Self::Lanes(device.function(&csr_lanes::of(Precision::F32, Precision::F32))?),
            (true, true) => Self::Lanes(device.function(&csr_lanes::to_f64())?),
            (false, false) => Self::Tiles(
                device.function(&shape.kernel_that_smooths(csr_smooth_product))?,
                device.function(&shape.kernel_that_smooths(csr_smooth_cut_rows))?,
            ),
            (false, true) => Self::Tiles(
                device.function(&shape.kernel_to_f64(csr_smooth_product))?,
                device.function(&shape.kernel_to_f64(csr_smooth_cut_rows))?,
            ),
        })
    }
}

impl NarrowCsr {
    /// Copies the values of a product, multiplied by 2^shift. Returns `None` if they are not in f64. With
    /// `to_f64` it also has kernels with results in f64.
    ///
    /// # Errors
    /// Out of device memory.
    pub fn of(device: &Arc<Device>, from: &CsrProduct, shift: i32, to_f64: bool) -> Result<Option<Self>> {
        let Values::F64(values) = &from.values else { return Ok(None) };
        let by = match &from.lanes {
            Some(lanes) => By::Lanes(Kernels::new(device, true, false)?, lanes.shift),
            None => By::Tiles(Kernels::new(device, false, false)?, from.tiles.clone()),
        };
        let to_f64 = match to_f64 {
            true => Some(Kernels::new(device, from.lanes.is_some(), true)?),
            false => None,
        };
        let values = narrowed(device, values, shift)?;
        Ok(Some(Self { rows: from.rows, pattern: from.pattern.clone(), values, by, to_f64 }))
    }

    /// Copies new values of the product, multiplied by 2^shift. Returns false if they are not in f64.
    ///
    /// # Errors
    /// Errors of the device.
    pub fn update(&self, device: &Arc<Device>, from: &CsrProduct, shift: i32) -> Result<bool> {
        match &from.values {
            Values::F64(values) => narrow_again(device, values, shift, &self.values),
            Values::F32(_) => Ok(false),
        }
    }

    /// Makes a product of a matrix of weights.
    ///
    /// # Errors
    /// Out of device memory.
    pub fn of_weights(device: &Arc<Device>, pattern: CsrPattern, values: &Buffer<f64>) -> Result<Self> {
        let rows = pattern.row_ptr.len() - 1;
        let by = match pattern.col.len() <= FEW {
            true => {
                let shift = (values.len() / rows.max(1) / EACH).clamp(1, 32).next_power_of_two().ilog2();
                By::Lanes(Kernels::new(device, true, false)?, shift)
            }
            false => {
                let tiles = Tiles::new(device, &pattern, &CsrShape::choose(Precision::F64))?;
                By::Tiles(Kernels::new(device, false, false)?, Arc::new(tiles))
            }
        };
        Ok(Self { rows, pattern, values: narrowed(device, values, 0)?, by, to_f64: None })
    }

    /// Computes a residual or a smoother step of vectors in f32, and writes it to `to`, which must not be x.
    /// If `of` has an exponent, `to` is in f64. `coefficient` is the address of a factor of the matrix.
    pub fn smooth(&self, space: &Cuda, coefficient: u64, of: Smooth, to: u64) -> Result<()> {
        let (device, halt) = (space.device(), space.halt());
        let (row_ptr, col) = (&self.pattern.row_ptr, &self.pattern.col);
        let own = match &self.by {
            By::Lanes(kernels, _) | By::Tiles(kernels, _) => kernels,
        };
        let kernels = self.to_f64.as_ref().filter(|_| of.exponent != 0).unwrap_or(own);
        match (kernels, &self.by) {
            (Kernels::Lanes(function), By::Lanes(_, shift)) => {
                let grid = (self.rows << shift).div_ceil(256).clamp(1, 64 * device.multiprocessors());
                let (rows, shift) = (self.rows as i64, *shift as i32);
                let launch = function.on(device, grid, 256);
                launch.run(halt, rows, shift, row_ptr, col, &self.values, of.x, to, coefficient, 1, of)
            }
            (Kernels::Tiles(product, cut_rows), By::Tiles(_, t)) => {
                if t.count > 0 {
                    let (entries, threads) = (col.len() as i64, CsrShape::narrow().threads);
                    let (tiles, parts) = (&t.records, &t.parts);
                    product.on(device, t.count, threads).run(
                        halt,
                        tiles,
                        row_ptr,
                        col,
                        &self.values,
                        entries,
                        of.x,
                        to,
                        parts,
                        coefficient,
                        of,
                    )?;
                }
                if t.cut_rows > 0 {
                    let launch = cut_rows.on(device, t.cut_rows.div_ceil(4), 128);
                    launch.run(halt, t.cut_rows as i32, &t.cuts, &t.parts, to, of)?;
                }
                Ok(())
            }
            _ => Err(crate::Error::Internal("the kernels of a product in f32 are of another kind".into())),
        }
    }

    /// Least number of bytes that one product moves.
    pub fn bytes(&self) -> u64 {
        (8 * (self.pattern.col.len() + self.rows) + 8 * self.rows) as u64
    }
}
