//! Operations of a cycle on a GPU: P ⊗ I and R ⊗ I (`kernels/amg_transfer.cu`), and residuals and smoother
//! steps in the pass of their products (`kernels/smooth.cuh`). Transfers need no tiles and no modules of
//! their own, which would take most of a set-up with blocks.

use super::super::Cuda;
use super::super::driver::{Buffer, Device};
use super::super::launch::{At, Entry, Of, Reals, kernels};
use super::super::product::CudaProduct;
use super::super::smooth::Smooth;
use super::super::specialisations::{STORES, value, vectors};
use crate::matrix::Bsr;
use crate::operator::check_lengths;
use crate::precond::{Diagonal, Direction, Fused, Passes};
use crate::space::{MOST_COLUMNS, Precision};
use crate::{Error, Result};
use arrayvec::ArrayVec;
use std::sync::Arc;

kernels! {
    TRANSFER in "amg_transfer.cu", |_| STORES.map(|precision| amg_transfer::of(precision).into()).into();
    fn amg_transfer(
        halt: At<i32>, rows: i64, order: i32, shift: i32, row_ptr: At<i64>, col: At<u32>, weight: Reals,
        x: At<f64>, y: At<f64>, add: i32,
    );
}

/// Approximate number of entries per lane, where lanes share a row.
const EACH: usize = 4;

impl amg_transfer {
    /// Returns the kernel for weights and vectors of this precision.
    pub(super) fn of(precision: Precision) -> Of<Self> {
        match precision {
            Precision::F64 => amg_transfer.plain(),
            Precision::F32 => Self.with([value(precision)].into_iter().chain(vectors(precision)).collect()),
        }
    }
}

/// Returns the binary logarithm of the lanes of a row, and the number of thread blocks.
pub(super) fn transfer_shape(device: &Device, rows: usize, weights: usize, order: usize) -> (i32, usize) {
    // With several unknowns per node, the threads of a row already share its weights.
    let lanes = if order > 1 { 1 } else { (weights / (EACH * rows)).clamp(1, 32).next_power_of_two() };
    let threads = rows * order * lanes;
    (lanes.ilog2() as i32, threads.div_ceil(256).min(64 * device.multiprocessors()))
}

impl CudaProduct {
    /// True if residuals and smoother steps can be computed in the pass of the product.
    pub(super) fn smooths(&self) -> bool {
        self.interleaved.is_some()
            || self.csr.is_some()
            || self.csr_halo.is_some()
            || self.dia.as_ref().is_some_and(|dia| dia.smooths())
    }

    /// True if the first two steps from zero can also be computed in one pass, which takes two numbers for
    /// each of x.
    pub(super) fn smooths_from_zero(&self) -> bool {
        // A message of NCCL is packed from numbers in memory.
        let sends = self.exchange.as_ref().is_none_or(|exchange| exchange.inside().is_some());
        sends && self.dia.as_ref().is_some_and(|dia| dia.smooths())
    }

    /// Loads the kernels of these passes.
    pub(super) fn prepare_to_smooth(&self, device: &Arc<Device>) -> Result<()> {
        match (&self.dia, &self.csr, &self.csr_halo) {
            (Some(dia), ..) if dia.smooths() => dia.prepare_to_smooth(device),
            (None, Some(csr), _) => csr.prepare_to_smooth(device),
            (None, None, Some(csr)) => csr.prepare_to_smooth(device),
            _ => Ok(()),
        }
    }
}

impl Cuda {
    /// Returns the arguments of a pass, and the address of its result.
    fn arguments(&self, a: &CudaProduct, x: &Buffer<f64>, pass: Fused<Self>) -> Result<(Smooth, u64)> {
        let run = a.block * a.stages;
        let (rows, columns) = (a.block_rows * run, a.block_columns * run);
        let (of, to) = match pass {
            Fused::Added { y } => (Smooth { b: y.pointer(), keeps: 1, ..Smooth::default() }, y),
            Fused::LeftOver { b, r } => {
                check_lengths(rows, columns, b.len(), r.len())?;
                (Smooth { b: b.pointer(), ..Smooth::default() }, r)
            }
            Fused::First { d, b, c, to } => {
                check_lengths(rows, columns, b.len(), to.len())?;
                let c = c.map_or(0, |(scalars, slot)| scalars.value(slot));
                return Ok((
                    Smooth { b: b.pointer(), d: d.address()?, c, ..Smooth::default() },
                    to.pointer(),
                ));
            }
            Fused::Step { d, b, p, keeps, last, scalars, at, first, to } => {
                let d = match d {
                    Diagonal::Scalar(d) => {
                        check_lengths(rows, columns, d.len(), to.len())?;
                        d.pointer()
                    }
                    Diagonal::Blocks(d) => d.address()?,
                };
                for vector in [b].into_iter().chain(p.as_deref()) {
                    check_lengths(rows, columns, vector.len(), to.len())?;
                }
                let last = match last {
                    Direction::None => 0,
                    Direction::X => 1,
                    Direction::P => 2,
                };
                let p = p.map_or(0, |p| p.pointer());
                if p == 0 && (keeps || last == 2) {
                    return Err(Error::Internal(
                        "a smoother step that uses a direction was given none".into(),
                    ));
                }
                let of = Smooth {
                    b: b.pointer(),
                    d,
                    p,
                    a: scalars.value(at[0]),
                    c: scalars.value(at[1]),
                    first: first.map_or(0, |slot| scalars.value(slot)),
                    last,
                    keeps: i32::from(keeps),
                    x: 0,
                    exponent: 0,
                    own: 0,
                };
                (of, to)
            }
        };
        check_lengths(rows, columns, x.len(), to.len())?;
        Ok((Smooth { x: x.pointer(), ..of }, to.pointer()))
    }

    /// Computes the results of passes of one kind, each from its A x.
    pub(super) fn smooth_together(&self, a: &CudaProduct, passes: Passes<'_, Self>) -> Result<()> {
        let dia = a.dia.as_ref().filter(|_| a.exchange.is_none());
        let Some(dia) = dia.filter(|dia| dia.smooths() && passes.len() > 1) else {
            return passes.into_iter().try_for_each(|(x, pass)| self.smooth(a, x, pass));
        };
        let (mut of, mut to) = (ArrayVec::<_, MOST_COLUMNS>::new(), ArrayVec::<_, MOST_COLUMNS>::new());
        for (x, pass) in passes {
            let (one, result) = self.arguments(a, x, pass)?;
            of.push(one);
            to.push(result);
        }
        dia.multiply_columns(self, true, &of, &to)
    }

    /// Computes the result of `pass` from A x.
    pub(super) fn smooth(&self, a: &CudaProduct, x: &Buffer<f64>, pass: Fused<Self>) -> Result<()> {
        let (of, to) = self.arguments(a, x, pass)?;
        if let Some(interleaved) = &a.interleaved {
            return interleaved.multiply(self, of, to);
        }
        match (&a.dia, &a.csr, a.csr_halo.as_ref().zip(a.exchange.as_ref())) {
            (Some(dia), ..) => dia.smooth(self, of, to, a.exchange.as_ref()),
            (None, Some(csr), _) => csr.smooth(self, of, to),
            (None, None, Some((csr, exchange))) => csr.smooth(self, of, to, exchange),
            (None, None, None) => Err(Error::Internal("a tiled product cannot make a smoother step".into())),
        }
    }

    /// Computes y ← (W ⊗ I) x, or adds it to y if `add` is set; W is in the memory of this GPU.
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
        let lost =
            || Error::Internal("the interpolation weights between two levels are not on the GPU".into());
        let at = self.at_hand(w).ok_or_else(lost)?;
        if rows == 0 {
            return Ok(());
        }
        let function = device.function(&amg_transfer.plain())?;
        let (shift, grid) = transfer_shape(device, rows, w.blocks(), order);
        let (halt, add) = (self.halt(), i32::from(add));
        function.on(device, grid, 256).run(
            halt,
            rows as i64,
            order as i32,
            shift,
            &at.row_ptr,
            &at.col,
            &*at.values,
            x,
            &*y,
            add,
        )
    }
}
