//! Products by diagonals with a matrix and vectors in f32, as residuals and smoother steps of a cycle.

use super::super::Cuda;
use super::super::driver::{Buffer, Device};
use super::super::launch::Function;
use super::super::multilevel::{narrow_again, narrowed};
use super::super::smooth::Smooth;
use super::detect::Values;
use super::shape::{DiaShape, Narrow, dia_smooth, dia_that_smooths_f32};
use super::{DiaProduct, MOST_DIAGONALS, Sums, Walk};
use crate::Result;
use std::sync::Arc;

/// The values of a product in f32, laid out as there.
pub(in crate::device::cuda) struct NarrowDia {
    rows: usize,
    count: usize,
    offsets: [i32; MOST_DIAGONALS],
    stride: usize,
    values: Buffer<f32>,
    /// The kernels for any vector, for steps that start from zero, and for results in f64.
    kernels: [(Function<dia_smooth>, Walk); 3],
}

impl NarrowDia {
    /// Copies the values of a product, multiplied by 2^shift. Returns `None` if they are not in f64, or if
    /// the kernels of this stencil do not smooth.
    ///
    /// # Errors
    /// Out of device memory.
    pub fn of(device: &Arc<Device>, from: &DiaProduct, shift: i32) -> Result<Option<Self>> {
        let stored = &from.stored;
        let Values::F64(values) = &stored.values else { return Ok(None) };
        if !from.smooths() {
            return Ok(None);
        }
        let kernel = |variant| {
            stored.smoothing_by(device, from.rows, |shape, name| dia_that_smooths_f32(shape, name, variant))
        };
        Ok(Some(Self {
            rows: from.rows,
            count: stored.count,
            offsets: stored.offsets,
            stride: stored.stride,
            values: narrowed(device, values, shift)?,
            kernels: [kernel(Narrow::Any)?, kernel(Narrow::FromZero)?, kernel(Narrow::ToF64)?],
        }))
    }

    /// Copies new values of the product, multiplied by 2^shift. Returns false if other diagonals are stored.
    ///
    /// # Errors
    /// Errors of the device.
    pub fn update(&self, device: &Arc<Device>, from: &DiaProduct, shift: i32) -> Result<bool> {
        match &from.stored.values {
            Values::F64(values) => narrow_again(device, values, shift, &self.values),
            Values::F32(_) => Ok(false),
        }
    }

    /// Computes a residual or a smoother step of vectors in f32, and writes it to `to`, which must not be x.
    /// If `of` has an exponent, `to` is in f64. `coefficient` is the address of a factor of the matrix.
    pub fn smooth(&self, space: &Cuda, coefficient: u64, of: Smooth, to: u64) -> Result<()> {
        if self.rows == 0 {
            return Ok(());
        }
        let (function, walk) = &self.kernels[if of.exponent != 0 { 2 } else { usize::from(of.first != 0) }];
        function.on(space.device(), walk.grid, DiaShape::THREADS).run(
            space.halt(),
            self.rows as u32,
            self.count as i32,
            self.offsets,
            &self.values,
            self.stride as i64,
            of.x,
            to,
            coefficient,
            walk.items as i32,
            walk.steps as i32,
            Sums::default(),
            0u64,
            of,
        )
    }

    /// Least number of bytes that one product moves.
    pub fn bytes(&self) -> u64 {
        (self.rows * (4 * self.count + 8)) as u64
    }
}
