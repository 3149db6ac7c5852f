//! Smoothed aggregation on a GPU: `kernels/amg_aggregate.cu` and `amg_smooth.cu`. The results equal those of
//! the host (`precond/multilevel/host/aggregate.rs`) bit by bit.

use super::super::Cuda;
use super::super::driver::{Buffer, Device};
use super::super::launch::{At, Entry, Function, kernels};
use super::super::scan;
use super::boundary::{Boundary, States};
use super::check_rounds;
use super::interpolate::{Shape, prolongation};
use super::split::{grid, shift};
use crate::Result;
use crate::matrix::Bsr;
use crate::precond::multilevel::host::split::SEED;
use std::sync::Arc;

kernels! {
    AGGREGATE in "amg_aggregate.cu", |_| vec![aggregate_strong.plain().into()];
    fn aggregate_diagonal(n: i64, ptr: At<i64>, col: At<u32>, values: At<f64>, shift: i32, size: At<f64>);
    fn aggregate_strong(
        n: i64, ptr: At<i64>, col: At<u32>, values: At<f64>, shift: i32, theta: f64, size: At<f64>,
        flags: At<u8>, counts: At<u32>, coupled: At<u8>,
    );
    fn roots_begin(
        n: i64, seed: u64, numbers: At<u64>, counts: At<u32>, coupled: At<u8>, weight: At<u64>,
        state: At<u8>,
    );
    fn roots_greatest(
        n: i64, ptr: At<i64>, col: At<u32>, shift: i32, flags: At<u8>, weight: At<u64>, numbers: At<u64>,
        greatest: At<u32>, left: At<u32>,
    );
    fn roots_choose(
        n: i64, ptr: At<i64>, col: At<u32>, shift: i32, flags: At<u8>, here: i64, weight: At<u64>,
        numbers: At<u64>, greatest: At<u32>, state: At<u8>,
    );
    fn roots_touch(
        n: i64, ptr: At<i64>, col: At<u32>, shift: i32, flags: At<u8>, round: u32, weight: At<u64>,
        state: At<u8>, touched: At<u32>,
    );
    fn roots_lose(
        n: i64, ptr: At<i64>, col: At<u32>, shift: i32, flags: At<u8>, round: u32, weight: At<u64>,
        state: At<u8>, touched: At<u32>,
    );
    fn join_begin(n: i64, state: At<u8>, root: At<u32>, first: At<u32>);
    fn join_wish(
        n: i64, ptr: At<i64>, col: At<u32>, shift: i32, flags: At<u8>, own: i64, values: At<f64>,
        numbers: At<u64>, coupled: At<u8>, member: At<u32>, wish: At<u32>, chosen: At<u32>,
    );
    fn join_take(
        n: i64, coupled: At<u8>, wish: At<u32>, chosen: At<u32>, alone: i32, member: At<u32>, left: At<u32>,
    );
    fn first_members(n: i64, member: At<u32>, first: At<u32>);
    fn first_marks(n: i64, member: At<u32>, first: At<u32>, marks: At<u32>);
    fn root_marks(n: i64, member: At<u32>, marks: At<u32>);
    fn root_numbers(n: i64, member: At<u32>, number: At<i64>, aggregate: At<u32>);
    fn aggregate_numbers(n: i64, member: At<u32>, first: At<u32>, number: At<i64>, aggregate: At<u32>);
}

kernels! {
    SMOOTH in "amg_smooth.cu", |_| Shape::ALL.map(|shape| shape.kernel(smooth_rows).into()).into();
    fn smooth_rows(
        n: i64, ptr: At<i64>, col: At<u32>, values: At<f64>, flags: At<u8>, aggregate: At<u32>,
        place: At<i64>, counts: At<u32>, to_col: At<u32>, to_values: At<f64>, full: At<u32>,
    );
}

const WHAT: &str = "aggregates";
/// Rounds that search for roots before the host reads how many nodes are undecided.
const ROUNDS: u32 = 4;
/// Rounds in which nodes join aggregates before the host reads how many are left.
const JOINS: usize = 2;

/// The aggregates of the nodes of a matrix.
pub(super) struct Aggregates {
    /// Flags of each entry, as in `kernels/amg.cuh`.
    flags: Buffer<u8>,
    /// Aggregate of each node; all bits are set where it has none.
    pub of: Buffer<u32>,
    pub count: usize,
    /// Number of aggregates that this rank owns, which are those of its roots.
    pub own: usize,
    /// Number of roots, or of first nodes, before each node.
    pub number: Buffer<i64>,
}

/// Returns P by smoothed aggregation; `None` if a row of P has more entries than a table has slots, so
/// that the host has to compute it.
pub(super) fn smoothed(space: &Cuda, a: &Bsr, aggregates: &Aggregates) -> Result<Option<Bsr>> {
    let (device, on, rows) = (space.device(), space.resident(a)?, a.block_rows());
    let shape = Shape::choose(rows, a.blocks());
    let function = device.function(&shape.kernel(smooth_rows))?;
    let (counts, full) = (device.allocate::<u32>(rows, WHAT)?, device.zeros::<u32>(1, WHAT)?);
    let (n, blocks) = (rows as i64, shape.blocks(device, rows));
    let make = |place: u64, counts: u64, to_col: u64, to_values: u64| {
        function.on(device, blocks, shape.threads).run(
            n,
            &on.row_ptr,
            &on.col,
            &on.values,
            &aggregates.flags,
            &aggregates.of,
            place,
            counts,
            to_col,
            to_values,
            &full,
        )
    };
    make(0, counts.pointer(), 0, 0)?;
    let mut overflow = [0];
    device.read(&full, 0, &mut overflow)?;
    if overflow != [0] {
        return Ok(None);
    }
    let places = scan::scan(device, &counts)?;
    let entries = scan::last(device, &places)? as usize;
    let (to_col, to_values) =
        (device.allocate::<u32>(entries, WHAT)?, device.allocate::<f64>(entries, WHAT)?);
    make(places.pointer(), 0, to_col.pointer(), to_values.pointer())?;
    Ok(Some(prolongation((places, to_col, to_values), aggregates.count)))
}

/// Forms aggregates around an independent set of distance two in the graph of couplings above `theta`. With a
/// boundary the nodes are those of all ranks, and aggregates are numbered by their roots instead of their
/// first nodes. Collective then.
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
    let flags_of = device.allocate::<u8>(a.blocks(), WHAT)?;
    let counts_of = device.zeros::<u32>(rows, WHAT)?;
    let (mut size_of, coupled_of) = (device.allocate::<f64>(rows, WHAT)?, device.allocate::<u8>(rows, WHAT)?);
    let (weight_of, state_of) = (device.allocate::<u64>(rows, WHAT)?, device.allocate::<u8>(rows, WHAT)?);
    let (greatest_of, touched_of) = (device.allocate::<u32>(rows, WHAT)?, device.zeros::<u32>(rows, WHAT)?);
    let flags = flags_of.pointer();
    let coupled = coupled_of.pointer();
    let (diagonal, strong) =
        (device.function(&aggregate_diagonal.plain())?, device.function(&aggregate_strong.plain())?);
    let (begin, most, choose) = (
        device.function(&roots_begin.plain())?,
        device.function(&roots_greatest.plain())?,
        device.function(&roots_choose.plain())?,
    );
    let (touch, lose) = (device.function(&roots_touch.plain())?, device.function(&roots_lose.plain())?);
    let numbers = boundary.map_or(0, |boundary| boundary.numbers.pointer());
    let own = boundary.map_or(rows, |boundary| boundary.own) as i64;
    diagonal.on(device, by_rows, 256).run(n, ptr, col, values, shift, &size_of)?;
    if let Some(boundary) = boundary {
        boundary.take_sizes(&mut size_of)?;
    }
    strong
        .on(device, by_rows, 256)
        .run(n, ptr, col, values, shift, theta, &size_of, flags, &counts_of, coupled)?;
    if let Some(boundary) = boundary {
        boundary.take_numbers(None, &counts_of)?;
    }
    let seed = SEED + level as u64;
    begin.on(device, by_nodes, 256).run(n, seed, numbers, &counts_of, coupled, &weight_of, &state_of)?;
    let find = |left: u64| -> Result<()> {
        most.on(device, by_rows, 256).run(
            n,
            ptr,
            col,
            shift,
            flags,
            &weight_of,
            numbers,
            &greatest_of,
            left,
        )?;
        choose.on(device, by_rows, 256).run(
            n,
            ptr,
            col,
            shift,
            flags,
            own,
            &weight_of,
            numbers,
            &greatest_of,
            &state_of,
        )
    };
    let exclude = |round: u32| -> Result<()> {
        touch.on(device, by_rows, 256).run(
            n,
            ptr,
            col,
            shift,
            flags,
            round,
            &weight_of,
            &state_of,
            &touched_of,
        )?;
        lose.on(device, by_rows, 256).run(
            n,
            ptr,
            col,
            shift,
            flags,
            round,
            &weight_of,
            &state_of,
            &touched_of,
        )
    };
    let mut round = 0u32;
    match boundary {
        None => loop {
            check_rounds(round as usize, "the selection of roots")?;
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
                check_rounds(round as usize, "the selection of roots")?;
                let undecided = device.zeros::<u32>(1, WHAT)?;
                let left = undecided.pointer();
                // New roots come first, then the nodes that they exclude, because a rank does not know all
                // rows that exclude a node.
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
        ask: device.function(&join_wish.plain())?,
        take: device.function(&join_take.plain())?,
    };
    // The contents of these arrays are no longer needed.
    let (member_of, wish_of, first_of) = (greatest_of, touched_of, counts_of);
    let (member, wish) = (member_of.pointer(), wish_of.pointer());
    let begin = device.function(&join_begin.plain())?;
    begin.on(device, by_nodes, 256).run(n, &state_of, member, &first_of)?;
    match boundary {
        Some(boundary) => joins.together(boundary, &member_of, wish)?,
        None => joins.alone(member, wish)?,
    }
    if boundary.is_some() {
        let (marks, numbers) =
            (device.function(&root_marks.plain())?, device.function(&root_numbers.plain())?);
        marks.on(device, by_nodes, 256).run(n, member, wish)?;
        let number = scan::scan(device, &wish_of)?;
        let count = scan::last(device, &number)? as usize;
        numbers.on(device, by_nodes, 256).run(n, member, &number, wish)?;
        let mut found = [0];
        device.read(&number, own as usize, &mut found)?;
        return Ok(Aggregates { flags: flags_of, of: wish_of, count, own: found[0] as usize, number });
    }
    let (mins, marks) = (device.function(&first_members.plain())?, device.function(&first_marks.plain())?);
    mins.on(device, by_nodes, 256).run(n, member, &first_of)?;
    marks.on(device, by_nodes, 256).run(n, member, &first_of, wish)?;
    let number = scan::scan(device, &wish_of)?;
    let count = scan::last(device, &number)? as usize;
    let numbers = device.function(&aggregate_numbers.plain())?;
    numbers.on(device, by_nodes, 256).run(n, member, &first_of, &number, wish)?;
    Ok(Aggregates { flags: flags_of, of: wish_of, count, own: count, number })
}

/// Rounds in which nodes join aggregates.
struct Joins<'a> {
    device: &'a Arc<Device>,
    /// Thread blocks for rows, and for nodes.
    grids: [usize; 2],
    graph: (i64, u64, u64, i32, u64),
    values: u64,
    coupled: u64,
    numbers: u64,
    own: i64,
    ask: Function<join_wish>,
    take: Function<join_take>,
}

impl Joins<'_> {
    /// Finds the aggregate that each node would join; `chosen` increases by the number of nodes that found
    /// one.
    fn ask(&self, member: u64, wish: u64, chosen: u64) -> Result<()> {
        let ((n, ptr, col, shift, flags), own) = (self.graph, self.own);
        let (values, numbers, coupled) = (self.values, self.numbers, self.coupled);
        self.ask
            .on(self.device, self.grids[0], 256)
            .run(n, ptr, col, shift, flags, own, values, numbers, coupled, member, wish, chosen)
    }

    /// Lets the nodes join; `left` increases by the number of nodes that do not.
    fn take(&self, member: u64, wish: u64, chosen: u64, alone: bool, left: u64) -> Result<()> {
        let (own, alone, coupled) = (self.own, i32::from(alone), self.coupled);
        self.take.on(self.device, self.grids[1], 256).run(own, coupled, wish, chosen, alone, member, left)
    }

    fn alone(&self, member: u64, wish: u64) -> Result<()> {
        let mut stay = false;
        for round in 0.. {
            check_rounds(round, "the aggregation of nodes")?;
            // For each round, the number of nodes that found an aggregate, and of those that found none.
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

    /// Lets all nodes join, on several ranks. A node forms an aggregate alone only after no node of any rank
    /// finds one to join.
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
