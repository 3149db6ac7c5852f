//! Products by diagonals with a matrix in f32 or bf16 and vectors in f32, as residuals and smoother steps of
//! a cycle.

use super::super::Cuda;
use super::super::driver::{Buffer, Device};
use super::super::launch::Function;
use super::super::multilevel::{Diagonals, narrow_again, narrowed, round_diagonals};
use super::super::smooth::Smooth;
use super::detect::Values;
use super::shape::{DiaShape, Narrow, dia_in_pairs, dia_pairs, dia_smooth, dia_that_smooths_f32};
use super::{DiaProduct, MOST_DIAGONALS, Sums, Walk};
use crate::Result;
use std::sync::Arc;

/// The values of a product in f32 or bf16, laid out as there.
pub(in crate::device::cuda) struct NarrowDia {
    rows: usize,
    count: usize,
    offsets: [i32; MOST_DIAGONALS],
    stride: usize,
    values: Stored,
    kernels: Kernels,
}

/// The kernels for any vector, for steps that start from zero, and for results in f64, with one or two rows
/// per thread.
enum Kernels {
    Rows([(Function<dia_smooth>, Walk); 3]),
    Pairs([(Function<dia_pairs>, Walk); 3]),
}

/// Values, in bf16 without those of the main diagonal.
enum Stored {
    F32(Buffer<f32>),
    Bf16(Buffer<u16>),
}

impl NarrowDia {
    /// Copies the values of a product, multiplied by 2^shift. Returns `None` if they are not in f64, or if
    /// the kernels of this stencil do not smooth.
    ///
    /// # Errors
    /// Out of device memory.
    pub fn of(device: &Arc<Device>, from: &DiaProduct, shift: i32) -> Result<Option<Self>> {
        let Values::F64(values) = &from.stored.values else { return Ok(None) };
        if !from.smooths() {
            return Ok(None);
        }
        Self::with(device, from, Stored::F32(narrowed(device, values, shift)?)).map(Some)
    }

    fn with(device: &Arc<Device>, from: &DiaProduct, values: Stored) -> Result<Self> {
        let kernels = Kernels::new(device, from, matches!(values, Stored::Bf16(_)))?;
        let stored = &from.stored;
        Ok(Self {
            rows: from.rows,
            count: stored.count,
            offsets: stored.offsets,
            stride: stored.stride,
            values,
            kernels,
        })
    }

    /// Rounds the values of a product, multiplied by 2^shift, to bf16; `times` is the shift and the address
    /// of the coefficient. Also returns D⁻¹ of its smoother. Returns `None` if bf16 does not suit them, and
    /// as [`of`](Self::of).
    ///
    /// # Errors
    /// Out of device memory.
    pub fn in_bf16(
        device: &Arc<Device>,
        from: &DiaProduct,
        times: (i32, u64),
    ) -> Result<Option<(Self, Buffer<f32>)>> {
        let Values::F64(values) = &from.stored.values else { return Ok(None) };
        if !from.smooths() {
            return Ok(None);
        }
        let to = device.allocate(values.len(), "a multigrid cycle in bf16")?;
        let inverse = device.allocate(from.rows, "a multigrid cycle in bf16")?;
        if !round_diagonals(device, &diagonals(from, values), times, &to, &inverse)? {
            return Ok(None);
        }
        Ok(Some((Self::with(device, from, Stored::Bf16(to))?, inverse)))
    }

    /// Rounds new values of the product to bf16, and writes D⁻¹. Returns false if other diagonals are stored,
    /// or if bf16 does not suit them.
    ///
    /// # Errors
    /// Errors of the device.
    pub fn round(
        &self,
        device: &Arc<Device>,
        from: &DiaProduct,
        times: (i32, u64),
        inverse: &Buffer<f32>,
    ) -> Result<bool> {
        match (&from.stored.values, &self.values) {
            (Values::F64(values), Stored::Bf16(own)) if from.stored.count == self.count => {
                round_diagonals(device, &diagonals(from, values), times, own, inverse)
            }
            _ => Ok(false),
        }
    }

    /// True if the values are in bf16.
    pub fn is_in_bf16(&self) -> bool {
        matches!(self.values, Stored::Bf16(_))
    }

    /// Copies new values of the product, multiplied by 2^shift. Returns false if other diagonals are stored.
    ///
    /// # Errors
    /// Errors of the device.
    pub fn update(&self, device: &Arc<Device>, from: &DiaProduct, shift: i32) -> Result<bool> {
        match (&from.stored.values, &self.values) {
            (Values::F64(values), Stored::F32(own)) => narrow_again(device, values, shift, own),
            _ => Ok(false),
        }
    }

    /// Computes a residual or a smoother step of vectors in f32, and writes it to `to`, which must not be x.
    /// If `of` has an exponent, `to` is in f64. `coefficient` is the address of a factor of the matrix. In
    /// bf16 the main diagonal follows from D⁻¹ at `of.own`.
    pub fn smooth(&self, space: &Cuda, coefficient: u64, of: Smooth, to: u64) -> Result<()> {
        if self.rows == 0 {
            return Ok(());
        }
        let which = if of.exponent != 0 { 2 } else { usize::from(of.first != 0) };
        let (device, halt, rows) = (space.device(), space.halt(), self.rows as u32);
        let (values, stride) = (self.values.pointer(), self.stride as i64);
        match &self.kernels {
            Kernels::Rows(all) => {
                let (function, walk) = &all[which];
                let (count, items, steps) = (self.count as i32, walk.items as i32, walk.steps as i32);
                let launch = function.on(device, walk.grid, DiaShape::THREADS);
                let sums = Sums::default();
                launch.run(
                    halt,
                    rows,
                    count,
                    self.offsets,
                    values,
                    stride,
                    of.x,
                    to,
                    coefficient,
                    items,
                    steps,
                    sums,
                    0u64,
                    of,
                )
            }
            Kernels::Pairs(all) => {
                let (function, walk) = &all[which];
                let (items, steps) = (walk.items as i32, walk.steps as i32);
                let launch = function.on(device, walk.grid, DiaShape::THREADS);
                launch.run(halt, rows, self.offsets, values, stride, of.x, to, coefficient, items, steps, of)
            }
        }
    }

    /// Least number of bytes that one product moves.
    pub fn bytes(&self) -> u64 {
        let number = if self.is_in_bf16() { 2 * (self.count - 1) } else { 4 * self.count };
        (self.rows * (number + 8)) as u64
    }
}

impl Kernels {
    /// Returns the kernels of two rows per thread. On planes of an odd number of rows, pairs of every other
    /// plane would not be aligned.
    fn new(device: &Arc<Device>, from: &DiaProduct, short: bool) -> Result<Self> {
        let (stored, rows) = (&from.stored, from.rows);
        let (march, plane) = (stored.kernels.walk.march, stored.offsets[stored.count - 1] as usize);
        if march && plane % 2 == 1 {
            let kernel = |variant| {
                stored.smoothing_by(device, rows, |shape, name| {
                    dia_that_smooths_f32(shape, name, variant, short)
                })
            };
            return Ok(Self::Rows([kernel(Narrow::Any)?, kernel(Narrow::FromZero)?, kernel(Narrow::ToF64)?]));
        }
        let kernel = |variant| -> Result<_> {
            let name = if march { "dia_pairs_march" } else { "dia_pairs" };
            let function = device.function(&dia_in_pairs(&stored.kernels.shape, name, variant, short))?;
            let grid = device.multiprocessors() * device.allow_shared(&function, DiaShape::THREADS, 0)?;
            // The kernel also computes a last row without a pair.
            let walk = match march {
                true => Walk::planes(rows / 2, plane / 2, grid),
                false => Walk::rows(rows / 2, grid),
            };
            Ok((function, walk))
        };
        Ok(Self::Pairs([kernel(Narrow::Any)?, kernel(Narrow::FromZero)?, kernel(Narrow::ToF64)?]))
    }
}

impl Stored {
    fn pointer(&self) -> u64 {
        match self {
            Self::F32(v) => v.pointer(),
            Self::Bf16(v) => v.pointer(),
        }
    }
}

fn diagonals<'a>(from: &DiaProduct, values: &'a Buffer<f64>) -> Diagonals<'a> {
    let (stored, rows) = (&from.stored, from.rows);
    let (count, symmetric, stride) = (stored.count, stored.symmetric, stored.stride);
    Diagonals { rows, count, symmetric, offsets: stored.offsets, stride, values }
}
