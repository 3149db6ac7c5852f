//! Smoothed aggregation on a GPU: `kernels/amg_aggregate.cu` and `amg_smooth.cu`. The host's is
//! `precond/multilevel/host/aggregate.rs`, and the same bit by bit.

use super::super::Cuda;
use super::super::compiler::Kernel;
use super::super::driver::{Buffer, launch};
use super::super::scan;
use super::interpolate::{Shape, prolongation};
use super::split::{grid, shift};
use crate::Result;
use crate::matrix::Bsr;
use crate::precond::multilevel::host::split::SEED;

const SMOOTH: &str = "amg_smooth.cu";
const WHAT: &str = "aggregates";
/// Rounds that look for roots, and rounds in which nodes join aggregates, before the host looks how many are left.
const ROUNDS: u32 = 4;
const JOINS: usize = 2;

fn kernel(entry: &'static str) -> Kernel {
    Kernel { file: "amg_aggregate.cu", entry, defines: Vec::new() }
}

/// Every kernel, where one entry stands for all of its file.
pub(super) fn kernels() -> impl Iterator<Item = Kernel> {
    let smooth = Shape::ALL.map(|shape| shape.kernel(SMOOTH, "smooth_rows"));
    std::iter::once(kernel("aggregate_strong")).chain(smooth)
}

/// The aggregates of a matrix.
struct Aggregates {
    /// Of each entry, as `kernels/amg.cuh` has them.
    flags: Buffer<u8>,
    /// Of each node; all bits where it has none.
    of: Buffer<u32>,
    count: usize,
}

/// P by smoothed aggregation with couplings above `theta`; a matrix without columns where there is no aggregate, `None` where the host has to do it: a row of
/// P has more entries than a table has slots.
pub(super) fn smoothed(space: &Cuda, a: &Bsr, theta: f64, level: usize) -> Result<Option<Bsr>> {
    let (device, on, rows) = (space.device(), space.resident(a)?, a.block_rows());
    let aggregates = by_independent_set(space, a, theta, level)?;
    let shape = Shape::choose(rows, a.blocks());
    let function = device.function(&shape.kernel(SMOOTH, "smooth_rows"))?;
    let (counts, full) = (device.room::<u32>(rows, WHAT)?, device.zeros::<u32>(1, WHAT)?);
    let (n, blocks) = (rows as i64, shape.blocks(device, rows));
    let (ptr, col, values) = (on.row_ptr.pointer(), on.col.pointer(), on.values.pointer());
    let (flags, of) = (aggregates.flags.pointer(), aggregates.of.pointer());
    let make = |place: u64, counts: u64, to_col: u64, to_values: u64| {
        let full = full.pointer();
        // SAFETY: the parameter types are the kernel's; arrays have a number for each row or entry, and places are sums of what it has counted itself.
        unsafe {
            launch!(
                device,
                &function,
                blocks,
                shape.threads,
                0,
                n,
                ptr,
                col,
                values,
                flags,
                of,
                place,
                counts,
                to_col,
                to_values,
                full
            )
        }
    };
    make(0, counts.pointer(), 0, 0)?;
    let mut overflow = [0];
    device.read(&full, 0, &mut overflow)?;
    if overflow != [0] {
        return Ok(None);
    }
    let places = scan::scan(device, &counts)?;
    let entries = scan::last(device, &places)? as usize;
    let (to_col, to_values) = (device.room::<u32>(entries, WHAT)?, device.room::<f64>(entries, WHAT)?);
    make(places.pointer(), 0, to_col.pointer(), to_values.pointer())?;
    Ok(Some(prolongation((places, to_col, to_values), aggregates.count)))
}

/// Aggregates around an independent set of distance two in the graph of strong couplings.
fn by_independent_set(space: &Cuda, a: &Bsr, theta: f64, level: usize) -> Result<Aggregates> {
    let (device, on, rows) = (space.device(), space.resident(a)?, a.block_rows());
    let (n, shift) = (rows as i64, shift(rows, a.blocks()));
    let (ptr, col, values) = (on.row_ptr.pointer(), on.col.pointer(), on.values.pointer());
    let (by_rows, by_nodes) = (grid(device, rows << shift), grid(device, rows));
    let function = |entry| device.function(&kernel(entry));
    let flags_of = device.room::<u8>(a.blocks(), WHAT)?;
    let counts_of = device.zeros::<u32>(rows, WHAT)?;
    let (size_of, coupled_of) = (device.room::<f64>(rows, WHAT)?, device.room::<u8>(rows, WHAT)?);
    let (weight_of, state_of) = (device.room::<u64>(rows, WHAT)?, device.room::<u8>(rows, WHAT)?);
    let (greatest_of, touched_of) = (device.room::<u32>(rows, WHAT)?, device.zeros::<u32>(rows, WHAT)?);
    let (flags, counts, size) = (flags_of.pointer(), counts_of.pointer(), size_of.pointer());
    let (coupled, weight, state) = (coupled_of.pointer(), weight_of.pointer(), state_of.pointer());
    let (greatest, touched) = (greatest_of.pointer(), touched_of.pointer());
    let (diagonal, strong) = (function("aggregate_diagonal")?, function("aggregate_strong")?);
    let (begin, most, choose) =
        (function("roots_begin")?, function("roots_greatest")?, function("roots_choose")?);
    let (touch, lose) = (function("roots_touch")?, function("roots_lose")?);
    // SAFETY: the parameter types are the kernels', here and below; arrays have a number for each row or entry.
    unsafe {
        let seed = SEED + level as u64;
        launch!(device, &diagonal, by_rows, 256, 0, n, ptr, col, values, shift, size)?;
        launch!(
            device, &strong, by_rows, 256, 0, n, ptr, col, values, shift, theta, size, flags, counts, coupled
        )?;
        launch!(device, &begin, by_nodes, 256, 0, n, seed, counts, coupled, weight, state)?;
    }
    let mut round = 0u32;
    loop {
        let undecided = device.zeros::<u32>(ROUNDS as usize, WHAT)?;
        for k in 0..ROUNDS as usize {
            round += 1;
            let left = undecided.at(k);
            // SAFETY: as above.
            unsafe {
                launch!(device, &most, by_rows, 256, 0, n, ptr, col, shift, flags, weight, greatest, left)?;
                launch!(
                    device, &choose, by_rows, 256, 0, n, ptr, col, shift, flags, weight, greatest, state
                )?;
                launch!(
                    device, &touch, by_rows, 256, 0, n, ptr, col, shift, flags, round, weight, state, touched
                )?;
                launch!(
                    device, &lose, by_rows, 256, 0, n, ptr, col, shift, flags, round, weight, state, touched
                )?;
            }
        }
        let mut left = [0];
        device.read(&undecided, ROUNDS as usize - 1, &mut left)?;
        if left == [0] {
            break;
        }
    }
    let (member_of, wish_of, first_of) = (greatest_of, touched_of, counts_of);
    let (member, wish, first) = (member_of.pointer(), wish_of.pointer(), first_of.pointer());
    let (begin, ask, take) = (function("join_begin")?, function("join_wish")?, function("join_take")?);
    // SAFETY: as above; what these arrays had is not needed any more.
    unsafe { launch!(device, &begin, by_nodes, 256, 0, n, state, member, first) }?;
    let mut alone = 0i32;
    loop {
        // How many found an aggregate, and how many none, each time.
        let found = device.zeros::<u32>(2 * JOINS, WHAT)?;
        for k in 0..JOINS {
            let (chosen, left) = (found.at(2 * k), found.at(2 * k + 1));
            // SAFETY: as above.
            unsafe {
                launch!(
                    device, &ask, by_rows, 256, 0, n, ptr, col, shift, flags, values, coupled, member, wish,
                    chosen
                )?;
                launch!(device, &take, by_nodes, 256, 0, n, coupled, wish, chosen, alone, member, left)?;
            }
            alone = 1;
        }
        let mut left = [0];
        device.read(&found, 2 * JOINS - 1, &mut left)?;
        if left == [0] {
            break;
        }
    }
    let (mins, marks) = (function("first_members")?, function("first_marks")?);
    // SAFETY: as above.
    unsafe {
        launch!(device, &mins, by_nodes, 256, 0, n, member, first)?;
        launch!(device, &marks, by_nodes, 256, 0, n, member, first, wish)?;
    }
    let number = scan::scan(device, &wish_of)?;
    let count = scan::last(device, &number)? as usize;
    let numbers = function("aggregate_numbers")?;
    // SAFETY: as above.
    unsafe { launch!(device, &numbers, by_nodes, 256, 0, n, member, first, number.pointer(), wish) }?;
    Ok(Aggregates { flags: flags_of, of: wish_of, count })
}
