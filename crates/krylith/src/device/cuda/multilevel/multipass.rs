//! Interpolation on a GPU where a level is coarsened twice as far: `kernels/amg_multipass.cu`. The host's is
//! `precond/multilevel/host/multipass.rs`, and the same bit by bit.

use super::super::Cuda;
use super::super::compiler::Kernel;
use super::super::driver::{Buffer, Device, launch};
use super::check_rounds;
use super::interpolate::{STRIDE, Shape, close_up, prolongation};
use super::split::{Split, grid, shift};
use crate::Result;
use crate::matrix::Bsr;
use std::sync::Arc;

const FILE: &str = "amg_multipass.cu";
const WHAT: &str = "interpolation weights";
/// Passes that are launched before the host looks whether the last of them reached anything: most levels need three or four.
const AT_ONCE: usize = 5;

/// The mapping for short rows: lanes for the weights of a neighbour, and a table for those of eight neighbours. Twice as many rows of a warp as by the smallest
/// of [`Shape::ALL`], which takes the level where a row needs more.
const SMALL: Shape = Shape { lanes: 4, threads: 256, slots: 32 };

/// One entry stands for all of its file.
pub(super) fn kernels() -> [Kernel; 4] {
    let [small, middle, large] = Shape::ALL;
    [SMALL, small, middle, large].map(|shape| shape.kernel(FILE, "multipass_rows"))
}

/// Rows of as many places.
struct Rows {
    counts: Buffer<u32>,
    col: Buffer<u32>,
    values: Buffer<f64>,
}

impl Rows {
    fn new(device: &Arc<Device>, rows: usize, stride: usize) -> Result<Self> {
        let (counts, col) = (device.room(rows, WHAT)?, device.room(rows * stride, WHAT)?);
        Ok(Self { counts, col, values: device.room(rows * stride, WHAT)? })
    }

    /// `Rows` of the kernels.
    fn addresses(&self) -> [u64; 3] {
        [self.counts.pointer(), self.col.pointer(), self.values.pointer()]
    }
}

/// P by multipass interpolation and a step of Jacobi's method, rows truncated to their `most` largest weights; `None` where the host has to do it: more than
/// eight weights, or all, are wanted of a row, or a row has more before truncation than a table has slots.
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

/// The same with rows mapped in this way; `None` where a row has more weights before truncation than a table has slots.
fn by_shape(space: &Cuda, a: &Bsr, split: &Split, most: usize, shape: Shape) -> Result<Option<Bsr>> {
    let (device, on, rows) = (space.device(), space.resident(a)?, a.block_rows());
    let (n, stride) = (rows as i64, most as i64);
    let (before, after) = (Rows::new(device, rows, most)?, Rows::new(device, rows, most)?);
    let (pass, list) = (device.room::<u32>(rows, WHAT)?, device.room::<u32>(rows, WHAT)?);
    let full = device.zeros::<u32>(1, WHAT)?;
    let function = |entry| device.function(&shape.kernel(FILE, entry));
    let (begin, reach, combine) =
        (function("multipass_begin")?, function("multipass_reach")?, function("multipass_rows")?);
    let (pass, list, full_at) = (pass.pointer(), list.pointer(), full.pointer());
    let (ptr, col, values) = (on.row_ptr.pointer(), on.col.pointer(), on.values.pointer());
    let (flags, from, to) = (split.flags.pointer(), before.addresses(), after.addresses());
    let names = split.names.as_ref().map_or(0, Buffer::pointer);
    // SAFETY: the parameter types are the kernel's, here and below; arrays have a number for each row or entry, rows room for `most` weights, and the list for
    // every row.
    unsafe {
        let (blocks, number) = (shape.blocks_of(device, rows), split.number.pointer());
        launch!(device, &begin, blocks, shape.threads, 0, n, stride, number, pass, from)?;
    }
    let (shift, blocks) = (shift(rows, a.blocks()), shape.blocks(device, rows));
    let mut last = 0u32;
    loop {
        check_rounds(last as usize, "multipass interpolation")?;
        let found = device.zeros::<u32>(AT_ONCE, WHAT)?;
        for k in 0..AT_ONCE {
            let count = found.at(k);
            // SAFETY: as above.
            unsafe {
                let by_rows = grid(device, rows << shift);
                launch!(device, &reach, by_rows, 256, 0, n, ptr, col, shift, flags, pass, last, list, count)?;
                launch!(
                    device,
                    &combine,
                    blocks,
                    shape.threads,
                    0,
                    n,
                    ptr,
                    col,
                    values,
                    flags,
                    list,
                    count,
                    last,
                    stride,
                    names,
                    pass,
                    from,
                    from,
                    full_at
                )?;
            }
            last += 1;
        }
        let mut reached = [0];
        device.read(&found, AT_ONCE - 1, &mut reached)?;
        if reached == [0] {
            break;
        }
    }
    // SAFETY: as above.
    unsafe {
        launch!(
            device,
            &combine,
            blocks,
            shape.threads,
            0,
            n,
            ptr,
            col,
            values,
            flags,
            0u64,
            0u64,
            last,
            stride,
            names,
            pass,
            from,
            to,
            full_at
        )?;
    }
    let mut overflow = [0];
    device.read(&full, 0, &mut overflow)?;
    if overflow != [0] {
        return Ok(None);
    }
    let arrays =
        close_up(device, Shape::choose(rows, a.blocks()), most, &after.counts, &after.col, &after.values)?;
    Ok(Some(prolongation(arrays, split.coarse)))
}
