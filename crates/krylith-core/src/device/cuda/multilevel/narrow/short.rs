//! Matrices and weights in bf16 (`precond/bf16.rs`): launches of `kernels/amg_bf16.cu`.

use super::super::super::compiler::Kernel;
use super::super::super::csr::{self, CsrPattern};
use super::super::super::dia;
use super::super::super::driver::{Buffer, Device};
use super::super::super::launch::{Address, At, Entry, kernels};
use super::{WHAT, grid};
use crate::Result;
use crate::operator::MOST_DIAGONALS;
use crate::precond::bf16::Unfit;
use std::sync::Arc;

/// Distances of diagonals from the main diagonal; only the first ones are used.
type Offsets = [i32; MOST_DIAGONALS];

kernels! {
    BF16 in "amg_bf16.cu", |set| set.choose([bf16_rows.plain().into()], []);
    fn bf16_rows(
        rows: i64, row_ptr: At<i64>, col: At<u32>, from: At<f64>, shift: i32, coefficient: At<f64>, to: Address,
        own: At<f32>, inverse: At<f32>, unfit: At<u32>,
    );
    fn bf16_diagonals(
        rows: u32, count: i32, symmetric: i32, offsets: Offsets, stride: i64, from: At<f64>, shift: i32,
        coefficient: At<f64>, to: Address, inverse: At<f32>, unfit: At<u32>,
    );
    fn bf16_weights(rows: i64, row_ptr: At<i64>, from: At<f64>, to: Address);
    fn bf16_turned(
        rows: i64, row_ptr: At<i64>, col: At<u32>, from: At<f64>, row_ptr_of_p: At<i64>, col_of_p: At<u32>,
        p: At<f64>, rounded: Address, to: Address,
    );
}

/// Lanes of a row; the kernels have the same constant.
const LANES: usize = 8;

/// Returns the kernels of cycles in bf16 for scalar rows with this many entries.
pub(crate) fn likely_in_bf16(entries: usize) -> Vec<Kernel> {
    let rounding = [bf16_rows.plain().into()];
    rounding.into_iter().chain(csr::short_kernels()).chain(dia::likely_in_bf16(entries)).collect()
}

/// A matrix by diagonals in f64, as `kernels/dia.cu` has it.
pub(in crate::device::cuda) struct Diagonals<'a> {
    pub rows: usize,
    pub count: usize,
    pub symmetric: bool,
    pub offsets: Offsets,
    pub stride: usize,
    pub values: &'a Buffer<f64>,
}

/// Reads how many rows bf16 does not suit, after the kernel that counts them.
fn fits(device: &Arc<Device>, unfit: &Buffer<u32>, rows: usize) -> Result<bool> {
    let mut found = [0; 2];
    device.read(unfit, 0, &mut found)?;
    let [far, negative] = found.map(|n| n as usize);
    Ok(Unfit { far, negative }.fits(rows))
}

/// Rounds a matrix of scalar rows times 2^shift, and writes its diagonal and D⁻¹. `coefficient` is the
/// address of a factor of the matrix. Returns false if bf16 does not suit the matrix, or if an array has
/// another length.
pub(in crate::device::cuda) fn round_rows(
    device: &Arc<Device>,
    pattern: &CsrPattern,
    from: &Buffer<f64>,
    (shift, coefficient): (i32, u64),
    to: &Buffer<u16>,
    [own, inverse]: [&Buffer<f32>; 2],
) -> Result<bool> {
    let rows = pattern.row_ptr.len() - 1;
    if (from.len(), own.len(), inverse.len()) != (to.len(), rows, rows) {
        return Ok(false);
    }
    let unfit = device.zeros::<u32>(2, WHAT)?;
    let launch = device.function(&bf16_rows.plain())?;
    launch.on(device, grid(device, rows * LANES), 256).run(
        rows as i64,
        &*pattern.row_ptr,
        &*pattern.col,
        from,
        shift,
        coefficient,
        to,
        own,
        inverse,
        &unfit,
    )?;
    fits(device, &unfit, rows)
}

/// The same for a matrix by diagonals. Its diagonal follows from D⁻¹.
pub(in crate::device::cuda) fn round_diagonals(
    device: &Arc<Device>,
    from: &Diagonals,
    (shift, coefficient): (i32, u64),
    to: &Buffer<u16>,
    inverse: &Buffer<f32>,
) -> Result<bool> {
    if (from.values.len(), from.rows) != (to.len(), inverse.len()) {
        return Ok(false);
    }
    let unfit = device.zeros::<u32>(2, WHAT)?;
    let launch = device.function(&bf16_diagonals.plain())?;
    launch.on(device, grid(device, from.rows), 256).run(
        from.rows as u32,
        from.count as i32,
        i32::from(from.symmetric),
        from.offsets,
        from.stride as i64,
        from.values,
        shift,
        coefficient,
        to,
        inverse,
        &unfit,
    )?;
    fits(device, &unfit, from.rows)
}

/// Rounds the weights of P and R.
pub(in crate::device::cuda) fn round_weights(
    device: &Arc<Device>,
    [(of_p, p), (of_r, r)]: [(&CsrPattern, &Buffer<f64>); 2],
) -> Result<[Buffer<u16>; 2]> {
    let (to_p, to_r) = (device.allocate::<u16>(p.len(), WHAT)?, device.allocate::<u16>(r.len(), WHAT)?);
    let (rows, turned) = (of_p.row_ptr.len() - 1, of_r.row_ptr.len() - 1);
    let round = device.function(&bf16_weights.plain())?;
    round.on(device, grid(device, rows), 256).run(rows as i64, &*of_p.row_ptr, p, &to_p)?;
    let turn = device.function(&bf16_turned.plain())?;
    turn.on(device, grid(device, turned * LANES), 256).run(
        turned as i64,
        &*of_r.row_ptr,
        &*of_r.col,
        r,
        &*of_p.row_ptr,
        &*of_p.col,
        p,
        &to_p,
        &to_r,
    )?;
    Ok([to_p, to_r])
}
