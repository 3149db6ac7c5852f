//! Multipass interpolation on a GPU, for levels with aggressive coarsening: `kernels/amg_multipass.cu`. The
//! results equal those of the host (`precond/multilevel/host/multipass.rs`) bit by bit.

use super::super::Cuda;
use super::super::compiler::Kernel;
use super::super::driver::{Buffer, Device};
use super::super::launch::{At, Set, kernels};
use super::check_rounds;
use super::interpolate::{STRIDE, Shape, move_together, prolongation};
use super::split::{Split, grid, shift};
use crate::Result;
use crate::matrix::Bsr;
use std::sync::Arc;

kernels! {
    MULTIPASS in "amg_multipass.cu", all_kernels;
    fn multipass_begin(n: i64, stride: i64, number: At<i64>, pass: At<u32>, to: Rows);
    fn multipass_reach(
        n: i64, ptr: At<i64>, col: At<u32>, shift: i32, flags: At<u8>, pass: At<u32>, last: u32,
        list: At<u32>, count: At<u32>,
    );
    fn multipass_rows(
        n: i64, ptr: At<i64>, col: At<u32>, values: At<f64>, flags: At<u8>, list: At<u32>, count: At<u32>,
        last: u32, stride: i64, numbers: At<u64>, pass: At<u32>, from: Rows, to: Rows, full: At<u32>,
    );
}

const WHAT: &str = "interpolation weights";
/// Passes that are launched before the host checks whether the last one reached any node; most levels need
/// three or four.
const AT_ONCE: usize = 5;

/// The mapping for short rows: lanes for the weights of a neighbour, and a table for those of eight
/// neighbours. A warp processes twice as many rows as with the smallest of [`Shape::ALL`], which takes over
/// the level where a row needs more slots.
const SMALL: Shape = Shape { lanes: 4, threads: 256, slots: 32 };

fn all_kernels(_: Set) -> Vec<Kernel> {
    let shapes = std::iter::once(SMALL).chain(Shape::ALL);
    shapes.map(|shape| shape.kernel(multipass_rows).into()).collect()
}

/// [`Weights`] as the kernels take them.
type Rows = [u64; 3];

/// Rows with the same number of places.
struct Weights {
    counts: Buffer<u32>,
    col: Buffer<u32>,
    values: Buffer<f64>,
}

impl Weights {
    fn new(device: &Arc<Device>, rows: usize, stride: usize) -> Result<Self> {
        let (counts, col) = (device.allocate(rows, WHAT)?, device.allocate(rows * stride, WHAT)?);
        Ok(Self { counts, col, values: device.allocate(rows * stride, WHAT)? })
    }

    /// Returns the addresses of the arrays.
    fn addresses(&self) -> Rows {
        [self.counts.pointer(), self.col.pointer(), self.values.pointer()]
    }
}

/// Returns P by multipass interpolation and a step of Jacobi's method, with rows truncated to their `most`
/// largest weights. Returns `None` if the host has to compute it: `most` is over eight or unlimited, or a
/// row has more weights before truncation than a table has slots.
pub(super) fn multipass(space: &Cuda, a: &Bsr, split: &Split, most: usize) -> Result<Option<Bsr>> {
    if !(1..=STRIDE).contains(&most) {
        return Ok(None);
    }
    let shape = Shape::choose(a.block_rows(), a.blocks());
    if shape == Shape::ALL[0]
        && most <= SMALL.lanes
        && let Some(made) = by_shape(space, a, split, most, SMALL)?
    {
        return Ok(Some(made));
    }
    by_shape(space, a, split, most, shape)
}

/// Computes [`multipass`] with this mapping of rows. Returns `None` if a row has more weights before
/// truncation than a table has slots.
fn by_shape(space: &Cuda, a: &Bsr, split: &Split, most: usize, shape: Shape) -> Result<Option<Bsr>> {
    let (device, on, rows) = (space.device(), space.resident(a)?, a.block_rows());
    let (n, stride) = (rows as i64, most as i64);
    let (before, after) = (Weights::new(device, rows, most)?, Weights::new(device, rows, most)?);
    let (pass, list) = (device.allocate::<u32>(rows, WHAT)?, device.allocate::<u32>(rows, WHAT)?);
    let full = device.zeros::<u32>(1, WHAT)?;
    let (begin, reach, combine) = (
        device.function(&shape.kernel(multipass_begin))?,
        device.function(&shape.kernel(multipass_reach))?,
        device.function(&shape.kernel(multipass_rows))?,
    );
    let (from, to) = (before.addresses(), after.addresses());
    let blocks = shape.blocks_of(device, rows);
    begin.on(device, blocks, shape.threads).run(n, stride, &split.number, &pass, from)?;
    let (shift, blocks) = (shift(rows, a.blocks()), shape.blocks(device, rows));
    let mut last = 0u32;
    loop {
        check_rounds(last as usize, "multipass interpolation")?;
        let found = device.zeros::<u32>(AT_ONCE, WHAT)?;
        for k in 0..AT_ONCE {
            let count = found.at(k);
            let by_rows = grid(device, rows << shift);
            reach.on(device, by_rows, 256).run(
                n,
                &on.row_ptr,
                &on.col,
                shift,
                &split.flags,
                &pass,
                last,
                &list,
                count,
            )?;
            combine.on(device, blocks, shape.threads).run(
                n,
                &on.row_ptr,
                &on.col,
                &on.values,
                &split.flags,
                &list,
                count,
                last,
                stride,
                split.names.as_ref(),
                &pass,
                from,
                from,
                &full,
            )?;
            last += 1;
        }
        let mut reached = [0];
        device.read(&found, AT_ONCE - 1, &mut reached)?;
        if reached == [0] {
            break;
        }
    }
    combine.on(device, blocks, shape.threads).run(
        n,
        &on.row_ptr,
        &on.col,
        &on.values,
        &split.flags,
        0u64,
        0u64,
        last,
        stride,
        split.names.as_ref(),
        &pass,
        from,
        to,
        &full,
    )?;
    let mut overflow = [0];
    device.read(&full, 0, &mut overflow)?;
    if overflow != [0] {
        return Ok(None);
    }
    let arrays = move_together(
        device,
        Shape::choose(rows, a.blocks()),
        most,
        &after.counts,
        &after.col,
        &after.values,
    )?;
    Ok(Some(prolongation(arrays, split.coarse)))
}
