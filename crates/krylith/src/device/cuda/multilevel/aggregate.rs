//! Smoothed aggregation on a GPU: `kernels/amg_aggregate.cu` and `amg_smooth.cu`. The host's is
//! `precond/multilevel/host/aggregate.rs`, and the same bit by bit.

use super::super::Cuda;
use super::super::compiler::Kernel;
use super::super::driver::{Buffer, Device, launch};
use super::super::scan;
use super::boundary::{Boundary, States};
use super::check_rounds;
use super::interpolate::{Shape, prolongation};
use super::split::{grid, shift};
use crate::Result;
use crate::matrix::Bsr;
use crate::precond::multilevel::host::split::SEED;
use cudarc::driver::CudaFunction;
use std::sync::Arc;

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

/// The aggregates of the nodes of a matrix.
pub(super) struct Aggregates {
    /// Of each entry, as `kernels/amg.cuh` has them.
    flags: Buffer<u8>,
    /// Of each node; all bits where it has none.
    of: Buffer<u32>,
    count: usize,
    /// Those that this rank owns: of its roots.
    pub own: usize,
    /// Of each node how many roots, or first nodes, come before it.
    pub number: Buffer<i64>,
}

/// P by smoothed aggregation; `None` where the host has to do it: a row of P has more entries than a table has slots.
pub(super) fn smoothed(space: &Cuda, a: &Bsr, aggregates: &Aggregates) -> Result<Option<Bsr>> {
    let (device, on, rows) = (space.device(), space.resident(a)?, a.block_rows());
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

/// Aggregates around an independent set of distance two in the graph of couplings above `theta`. With a boundary the nodes are those of all ranks, and
/// aggregates are numbered by their roots instead of their first nodes; collective.
pub(super) fn by_independent_set(
    space: &Cuda,
    a: &Bsr,
    theta: f64,
    level: usize,
    boundary: Option<&Boundary>,
) -> Result<Aggregates> {
    let (device, on, rows) = (space.device(), space.resident(a)?, a.block_rows());
    let (n, shift) = (rows as i64, shift(rows, a.blocks()));
    let (ptr, col, values) = (on.row_ptr.pointer(), on.col.pointer(), on.values.pointer());
    let (by_rows, by_nodes) = (grid(device, rows << shift), grid(device, rows));
    let function = |entry| device.function(&kernel(entry));
    let flags_of = device.room::<u8>(a.blocks(), WHAT)?;
    let counts_of = device.zeros::<u32>(rows, WHAT)?;
    let (mut size_of, coupled_of) = (device.room::<f64>(rows, WHAT)?, device.room::<u8>(rows, WHAT)?);
    let (weight_of, state_of) = (device.room::<u64>(rows, WHAT)?, device.room::<u8>(rows, WHAT)?);
    let (greatest_of, touched_of) = (device.room::<u32>(rows, WHAT)?, device.zeros::<u32>(rows, WHAT)?);
    let (flags, counts, size) = (flags_of.pointer(), counts_of.pointer(), size_of.pointer());
    let (coupled, weight, state) = (coupled_of.pointer(), weight_of.pointer(), state_of.pointer());
    let (greatest, touched) = (greatest_of.pointer(), touched_of.pointer());
    let (diagonal, strong) = (function("aggregate_diagonal")?, function("aggregate_strong")?);
    let (begin, most, choose) =
        (function("roots_begin")?, function("roots_greatest")?, function("roots_choose")?);
    let (touch, lose) = (function("roots_touch")?, function("roots_lose")?);
    let numbers = boundary.map_or(0, |boundary| boundary.numbers.pointer());
    let own = boundary.map_or(rows, |boundary| boundary.own) as i64;
    // SAFETY: the parameter types are the kernels', here and below; arrays have a number for each row or entry.
    unsafe {
        launch!(device, &diagonal, by_rows, 256, 0, n, ptr, col, values, shift, size)?;
    }
    if let Some(boundary) = boundary {
        boundary.take_sizes(&mut size_of)?;
    }
    // SAFETY: as above.
    unsafe {
        launch!(
            device, &strong, by_rows, 256, 0, n, ptr, col, values, shift, theta, size, flags, counts, coupled
        )?;
    }
    if let Some(boundary) = boundary {
        boundary.take_numbers(None, &counts_of)?;
    }
    // SAFETY: as above.
    unsafe {
        let seed = SEED + level as u64;
        launch!(device, &begin, by_nodes, 256, 0, n, seed, numbers, counts, coupled, weight, state)?;
    }
    let find = |left: u64| -> Result<()> {
        // SAFETY: as above.
        unsafe {
            launch!(
                device, &most, by_rows, 256, 0, n, ptr, col, shift, flags, weight, numbers, greatest, left
            )?;
            launch!(
                device, &choose, by_rows, 256, 0, n, ptr, col, shift, flags, own, weight, numbers, greatest,
                state
            )
        }
    };
    let exclude = |round: u32| -> Result<()> {
        // SAFETY: as above.
        unsafe {
            launch!(
                device, &touch, by_rows, 256, 0, n, ptr, col, shift, flags, round, weight, state, touched
            )?;
            launch!(device, &lose, by_rows, 256, 0, n, ptr, col, shift, flags, round, weight, state, touched)
        }
    };
    let mut round = 0u32;
    match boundary {
        None => loop {
            check_rounds(round as usize, "the choice of roots")?;
            let undecided = device.zeros::<u32>(ROUNDS as usize, WHAT)?;
            for k in 0..ROUNDS as usize {
                round += 1;
                find(undecided.at(k))?;
                exclude(round)?;
            }
            let mut left = [0];
            device.read(&undecided, ROUNDS as usize - 1, &mut left)?;
            if left == [0] {
                break;
            }
        },
        Some(boundary) => {
            let states = |left: u64| States {
                number: None,
                state: &state_of,
                weight: &weight_of,
                lost: None,
                round: 0,
                left,
            };
            loop {
                check_rounds(round as usize, "the choice of roots")?;
                let undecided = device.zeros::<u32>(1, WHAT)?;
                let left = undecided.pointer();
                // New roots first, then what they exclude: a rank does not know all rows that do so.
                if boundary.take_states(find(left), states(left))? == 0 {
                    break;
                }
                round += 1;
                boundary.take_states(exclude(round), states(left))?;
            }
        }
    }
    let joins = Joins {
        device,
        grids: [by_rows, by_nodes],
        graph: (n, ptr, col, shift, flags),
        values,
        coupled,
        numbers,
        own,
        ask: function("join_wish")?,
        take: function("join_take")?,
    };
    // What these arrays had is not needed any more.
    let (member_of, wish_of, first_of) = (greatest_of, touched_of, counts_of);
    let (member, wish, first) = (member_of.pointer(), wish_of.pointer(), first_of.pointer());
    let begin = function("join_begin")?;
    // SAFETY: as above.
    unsafe { launch!(device, &begin, by_nodes, 256, 0, n, state, member, first) }?;
    match boundary {
        Some(boundary) => joins.together(boundary, &member_of, wish)?,
        None => joins.alone(member, wish)?,
    }
    if boundary.is_some() {
        let (marks, numbers) = (function("root_marks")?, function("root_numbers")?);
        // SAFETY: as above.
        unsafe { launch!(device, &marks, by_nodes, 256, 0, n, member, wish)? };
        let number = scan::scan(device, &wish_of)?;
        let count = scan::last(device, &number)? as usize;
        // SAFETY: as above; members are nodes that are marked, or none.
        unsafe { launch!(device, &numbers, by_nodes, 256, 0, n, member, number.pointer(), wish) }?;
        let mut found = [0];
        device.read(&number, own as usize, &mut found)?;
        return Ok(Aggregates { flags: flags_of, of: wish_of, count, own: found[0] as usize, number });
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
    Ok(Aggregates { flags: flags_of, of: wish_of, count, own: count, number })
}

/// Rounds in which nodes join aggregates.
struct Joins<'a> {
    device: &'a Arc<Device>,
    /// Blocks of threads for rows, and for nodes.
    grids: [usize; 2],
    graph: (i64, u64, u64, i32, u64),
    values: u64,
    coupled: u64,
    numbers: u64,
    own: i64,
    ask: CudaFunction,
    take: CudaFunction,
}

impl Joins<'_> {
    /// What each node would join; `chosen` goes up by those that found something.
    fn ask(&self, member: u64, wish: u64, chosen: u64) -> Result<()> {
        let ((n, ptr, col, shift, flags), own) = (self.graph, self.own);
        let (values, numbers, coupled) = (self.values, self.numbers, self.coupled);
        // SAFETY: the parameter types are the kernel's; arrays have a number for each row or entry.
        unsafe {
            launch!(
                self.device,
                &self.ask,
                self.grids[0],
                256,
                0,
                n,
                ptr,
                col,
                shift,
                flags,
                own,
                values,
                numbers,
                coupled,
                member,
                wish,
                chosen
            )
        }
    }

    /// They join; `left` goes up by those that do not.
    fn take(&self, member: u64, wish: u64, chosen: u64, alone: bool, left: u64) -> Result<()> {
        let (own, alone, coupled) = (self.own, i32::from(alone), self.coupled);
        // SAFETY: as above.
        unsafe {
            launch!(
                self.device,
                &self.take,
                self.grids[1],
                256,
                0,
                own,
                coupled,
                wish,
                chosen,
                alone,
                member,
                left
            )
        }
    }

    fn alone(&self, member: u64, wish: u64) -> Result<()> {
        let mut stay = false;
        for round in 0.. {
            check_rounds(round, "the aggregation of nodes")?;
            // How many found an aggregate, and how many none, each time.
            let found = self.device.zeros::<u32>(2 * JOINS, WHAT)?;
            for k in 0..JOINS {
                let (chosen, left) = (found.at(2 * k), found.at(2 * k + 1));
                self.ask(member, wish, chosen)?;
                self.take(member, wish, chosen, stay, left)?;
            }
            stay = true;
            let mut left = [0];
            self.device.read(&found, 2 * JOINS - 1, &mut left)?;
            if left == [0] {
                break;
            }
        }
        Ok(())
    }

    /// The same among ranks: nobody stays by himself before no node of any rank finds an aggregate.
    fn together(&self, boundary: &Boundary, member_of: &Buffer<u32>, wish: u64) -> Result<()> {
        let (device, member) = (self.device, member_of.pointer());
        let mut stay = false;
        for round in 0.. {
            check_rounds(round, "the aggregation of nodes")?;
            let found = device.zeros::<u32>(2, WHAT)?;
            let (chosen, left) = (found.at(0), found.at(1));
            let asked = self.ask(member, wish, chosen).and_then(|()| {
                let mut chosen = [0];
                device.read(&found, 0, &mut chosen)?;
                Ok((chosen[0], ()))
            });
            let (all, ()) = boundary.sum(asked)?;
            let taken = self.take(member, wish, chosen, stay && all == 0, left).and_then(|()| {
                let mut left = [0];
                device.read(&found, 1, &mut left)?;
                Ok((left[0], ()))
            });
            stay = true;
            let (left, ()) = boundary.sum(taken)?;
            boundary.take_members(member_of)?;
            if left == 0 {
                break;
            }
        }
        Ok(())
    }
}
