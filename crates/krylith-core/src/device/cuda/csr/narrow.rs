//! Products of scalar rows with a matrix in f32 or bf16 and vectors in f32, as residuals and smoother steps
//! of a cycle.

use super::super::Cuda;
use super::super::compiler::Kernel;
use super::super::driver::{Buffer, Device};
use super::super::launch::Function;
use super::super::multilevel::{narrow_again, narrowed, round_rows};
use super::super::smooth::Smooth;
use super::{
    CsrPattern, CsrProduct, CsrShape, EACH, FEW, Tiles, Values, csr_lanes, csr_smooth_cut_rows,
    csr_smooth_product,
};
use crate::Result;
use crate::space::Precision;
use std::sync::Arc;

/// A product that shares the pattern of another matrix in f64, with its values in f32 or bf16.
pub(in crate::device::cuda) struct NarrowCsr {
    rows: usize,
    pattern: CsrPattern,
    values: Stored,
    by: By,
    /// The kernels with results in f64.
    to_f64: Option<Kernels>,
}

/// Values. Those of a matrix in bf16 have 0 on the diagonal, which is another array, with its coefficient.
enum Stored {
    F32(Buffer<f32>),
    Bf16(Buffer<u16>, Option<Buffer<f32>>),
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

/// Returns the kernels of products in bf16.
pub(crate) fn short_kernels() -> Vec<Kernel> {
    let shape = CsrShape::short();
    vec![
        shape.kernel_that_smooths(csr_smooth_product).into(),
        shape.kernel_to_f64(csr_smooth_product).into(),
        csr_lanes::in_bf16(false).into(),
        csr_lanes::in_bf16(true).into(),
    ]
}

impl Kernels {
    fn new(device: &Device, short: bool, lanes: bool, to_f64: bool) -> Result<Self> {
        let shape = if short { CsrShape::short() } else { CsrShape::narrow() };
        Ok(match (lanes, to_f64) {
            (true, wide) if short => Self::Lanes(device.function(&csr_lanes::in_bf16(wide))?),
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
        Self::with(device, from, Stored::F32(narrowed(device, values, shift)?), to_f64).map(Some)
    }

    fn with(device: &Arc<Device>, from: &CsrProduct, values: Stored, to_f64: bool) -> Result<Self> {
        let (short, lanes) = (matches!(values, Stored::Bf16(..)), from.lanes.is_some());
        let own = Kernels::new(device, short, lanes, false)?;
        let by = match &from.lanes {
            Some(lanes) => By::Lanes(own, lanes.shift),
            None => By::Tiles(own, from.tiles.clone()),
        };
        let to_f64 = to_f64.then(|| Kernels::new(device, short, lanes, true)).transpose()?;
        Ok(Self { rows: from.rows, pattern: from.pattern.clone(), values, by, to_f64 })
    }

    /// Rounds the values of a product, multiplied by 2^shift, to bf16; `times` is the shift and the address
    /// of the coefficient. Also returns D⁻¹ of its smoother. Returns `None` if bf16 does not suit them, and
    /// as [`of`](Self::of).
    ///
    /// # Errors
    /// Out of device memory.
    pub fn in_bf16(
        device: &Arc<Device>,
        from: &CsrProduct,
        times: (i32, u64),
        to_f64: bool,
    ) -> Result<Option<(Self, Buffer<f32>)>> {
        let Values::F64(values) = &from.values else { return Ok(None) };
        let vector = || device.allocate::<f32>(from.rows, "a multigrid cycle in bf16");
        let (own, inverse) = (vector()?, vector()?);
        let to = device.allocate(values.len(), "a multigrid cycle in bf16")?;
        if !round_rows(device, &from.pattern, values, times, &to, [&own, &inverse])? {
            return Ok(None);
        }
        Ok(Some((Self::with(device, from, Stored::Bf16(to, Some(own)), to_f64)?, inverse)))
    }

    /// Rounds new values of the product to bf16, and writes D⁻¹. Returns false if they are not in f64, or if
    /// bf16 does not suit them.
    ///
    /// # Errors
    /// Errors of the device.
    pub fn round(
        &self,
        device: &Arc<Device>,
        from: &CsrProduct,
        times: (i32, u64),
        inverse: &Buffer<f32>,
    ) -> Result<bool> {
        match (&from.values, &self.values) {
            (Values::F64(values), Stored::Bf16(to, Some(own))) => {
                round_rows(device, &from.pattern, values, times, to, [own, inverse])
            }
            _ => Ok(false),
        }
    }

    /// True if the values are in bf16.
    pub fn is_in_bf16(&self) -> bool {
        matches!(self.values, Stored::Bf16(..))
    }

    /// Copies new values of the product, multiplied by 2^shift. Returns false if they are not in f64.
    ///
    /// # Errors
    /// Errors of the device.
    pub fn update(&self, device: &Arc<Device>, from: &CsrProduct, shift: i32) -> Result<bool> {
        match (&from.values, &self.values) {
            (Values::F64(values), Stored::F32(own)) => narrow_again(device, values, shift, own),
            _ => Ok(false),
        }
    }

    /// Makes a product of a matrix of weights.
    ///
    /// # Errors
    /// Out of device memory.
    pub fn of_weights(device: &Arc<Device>, pattern: CsrPattern, values: &Buffer<f64>) -> Result<Self> {
        Self::of_stored_weights(device, pattern, Stored::F32(narrowed(device, values, 0)?))
    }

    /// Makes a product of a matrix of weights in bf16.
    ///
    /// # Errors
    /// Out of device memory.
    pub fn of_short_weights(device: &Arc<Device>, pattern: CsrPattern, values: Buffer<u16>) -> Result<Self> {
        Self::of_stored_weights(device, pattern, Stored::Bf16(values, None))
    }

    fn of_stored_weights(device: &Arc<Device>, pattern: CsrPattern, values: Stored) -> Result<Self> {
        let (rows, entries) = (pattern.row_ptr.len() - 1, pattern.col.len());
        let short = matches!(values, Stored::Bf16(..));
        let by = match entries <= FEW {
            true => {
                let shift = (entries / rows.max(1) / EACH).clamp(1, 32).next_power_of_two().ilog2();
                By::Lanes(Kernels::new(device, short, true, false)?, shift)
            }
            false => {
                let tiles = Tiles::new(device, &pattern, &CsrShape::choose(Precision::F64))?;
                By::Tiles(Kernels::new(device, short, false, false)?, Arc::new(tiles))
            }
        };
        Ok(Self { rows, pattern, values, by, to_f64: None })
    }

    /// Computes a residual or a smoother step of vectors in f32, and writes it to `to`, which must not be x.
    /// If `of` has an exponent, `to` is in f64. `coefficient` is the address of a factor of the matrix.
    pub fn smooth(&self, space: &Cuda, coefficient: u64, of: Smooth, to: u64) -> Result<()> {
        let (device, halt) = (space.device(), space.halt());
        let (row_ptr, col) = (&self.pattern.row_ptr, &self.pattern.col);
        let (values, diagonal) = match &self.values {
            Stored::F32(values) => (values.pointer(), 0),
            Stored::Bf16(values, own) => (values.pointer(), own.as_ref().map_or(0, |own| own.pointer())),
        };
        let of = Smooth { own: diagonal, ..of };
        let own = match &self.by {
            By::Lanes(kernels, _) | By::Tiles(kernels, _) => kernels,
        };
        let kernels = self.to_f64.as_ref().filter(|_| of.exponent != 0).unwrap_or(own);
        match (kernels, &self.by) {
            (Kernels::Lanes(function), By::Lanes(_, shift)) => {
                let grid = (self.rows << shift).div_ceil(256).clamp(1, 64 * device.multiprocessors());
                let (rows, shift) = (self.rows as i64, *shift as i32);
                let launch = function.on(device, grid, 256);
                launch.run(halt, rows, shift, row_ptr, col, values, of.x, to, coefficient, 1, of)
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
                        values,
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
        let (entry, row) = match &self.values {
            Stored::F32(_) => (8, 16),
            Stored::Bf16(_, None) => (6, 16),
            Stored::Bf16(_, Some(_)) => (6, 20),
        };
        (entry * self.pattern.col.len() + row * self.rows) as u64
    }
}
