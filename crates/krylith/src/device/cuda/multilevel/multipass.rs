//! Multipass interpolation on a GPU, where a level is coarsened twice as far: `kernels/amg_multipass.cu`. The host's is in
//! `precond/multilevel/host/interpolate.rs`, and the same bit by bit.

use super::super::Cuda;
use super::super::compiler::Kernel;
use super::super::driver::launch;
use super::interpolate::{STRIDE, Shape, close_up, prolongation};
use super::split::{Split, grid, shift};
use crate::Result;
use crate::matrix::Bsr;

const FILE: &str = "amg_multipass.cu";
const WHAT: &str = "interpolation weights";

/// One entry stands for all of its file.
pub(super) fn kernels() -> [Kernel; 4] {
    Shape::ALL.map(|shape| shape.kernel(FILE, "multipass_rows"))
}

/// P by multipass interpolation, each row with its `most` largest weights; `None` where the host has to do it: more than eight weights, or all, are wanted of a
/// row, or a row has more before truncation than a table has slots.
pub(super) fn multipass(space: &Cuda, a: &Bsr, split: &Split, most: usize) -> Result<Option<Bsr>> {
    if !(1..=STRIDE).contains(&most) {
        return Ok(None);
    }
    let (device, on, rows) = (space.device(), space.resident(a)?, a.block_rows());
    let (n, stride, shape) = (rows as i64, most as i64, Shape::choose(rows, a.blocks()));
    let (pass, length) = (device.room::<u32>(rows, WHAT)?, device.room::<u32>(rows, WHAT)?);
    let address = device.room::<u64>(rows, WHAT)?;
    let (list, place) = (device.room::<u32>(rows, WHAT)?, device.room::<i64>(rows, WHAT)?);
    let counts = device.room::<u32>(rows, WHAT)?;
    let (col, values) = (device.room::<u32>(rows * most, WHAT)?, device.room::<f64>(rows * most, WHAT)?);
    let full = device.zeros::<u32>(1, WHAT)?;
    let function = |entry| device.function(&shape.kernel(FILE, entry));
    let (begin, reach, weigh) =
        (function("multipass_begin")?, function("multipass_reach")?, function("multipass_rows")?);
    let (pass, length, address) = (pass.pointer(), length.pointer(), address.pointer());
    let (list, place) = (list.pointer(), place.pointer());
    let (ptr, columns, entries) = (on.row_ptr.pointer(), on.col.pointer(), on.values.pointer());
    let (flags, number) = (split.flags.pointer(), split.number.pointer());
    let (counts_at, to_col, to_values) = (counts.pointer(), col.pointer(), values.pointer());
    // SAFETY: the parameter types are the kernel's, here and below; arrays have a number for each row or entry, and outputs room for `most` weights of
    // each row.
    unsafe {
        let blocks = shape.blocks_of(device, rows);
        launch!(
            device,
            &begin,
            blocks,
            shape.threads,
            0,
            n,
            stride,
            number,
            pass,
            length,
            counts_at,
            to_col,
            to_values
        )?;
    }
    let shift = shift(rows, a.blocks());
    // Rows of all passes: later ones read them.
    let mut kept = Vec::new();
    for last in 0u32.. {
        let found = device.zeros::<u64>(2, WHAT)?;
        // SAFETY: as above; the list has room for every row.
        unsafe {
            let (blocks, found) = (grid(device, rows << shift), found.pointer());
            launch!(
                device, &reach, blocks, 256, 0, n, ptr, columns, shift, flags, pass, length, last, list,
                place, found
            )?;
        }
        let mut sizes = [0; 2];
        device.read(&found, 0, &mut sizes)?;
        let [nodes, records] = sizes.map(|n| n as usize);
        if nodes == 0 {
            break;
        }
        let room = device.room::<[u64; 2]>(records, WHAT)?;
        // SAFETY: as above; places end where the room does.
        unsafe {
            let (count, most, records, full) = (nodes as i64, most as u32, room.pointer(), full.pointer());
            launch!(
                device,
                &weigh,
                shape.blocks(device, nodes),
                shape.threads,
                0,
                count,
                list,
                place,
                ptr,
                columns,
                entries,
                flags,
                number,
                last,
                most,
                stride,
                pass,
                length,
                address,
                records,
                counts_at,
                to_col,
                to_values,
                full
            )?;
        }
        let mut overflow = [0];
        device.read(&full, 0, &mut overflow)?;
        if overflow != [0] {
            return Ok(None);
        }
        kept.push(room);
    }
    let arrays = close_up(device, shape, most, &counts, &col, &values)?;
    Ok(Some(prolongation(arrays, split.coarse)))
}
