//! Strong couplings and the choice of coarse points on a GPU: `kernels/amg_split.cu` and `amg_paths.cu`. The
//! results equal those of the host (`precond/multilevel/host/split.rs`).

use super::super::Cuda;
use super::super::driver::{Buffer, Device};
use super::super::launch::{At, Entry, Function, kernels};
use super::super::resident::Resident;
use super::super::scan;
use super::boundary::{Boundary, States};
use super::check_rounds;
use super::interpolate::{LongRows, Matrix, Shape, Tables};
use crate::Result;
use crate::matrix::Bsr;
use crate::precond::multilevel::host::split::{SEED, TWICE};
use std::sync::Arc;

kernels! {
    SPLIT in "amg_split.cu", |_| vec![strong_entries.plain().into()];
    fn strong_entries(
        n: i64, ptr: At<i64>, col: At<u32>, values: At<f64>, shift: i32, theta: f64, flags: At<u8>,
        counts: At<u32>,
    );
    fn pmis_begin(
        n: i64, seed: u64, nodes: At<u32>, numbers: At<u64>, lonely_stay: i32, counts: At<u32>,
        weight: At<u64>, state: At<u8>,
    );
    fn pmis_lose(
        n: i64, ptr: At<i64>, col: At<u32>, shift: i32, flags: At<u8>, weight: At<u64>, numbers: At<u64>,
        list: At<u32>, count: At<u32>, round: u32, lost: At<u8>, left: At<u32>,
    );
    fn pmis_decide(
        n: i64, ptr: At<i64>, col: At<u32>, shift: i32, flags: At<u8>, weight: At<u64>, list: At<u32>,
        count: At<u32>, round: u32, own: i64, lost: At<u8>, state: At<u8>, next: At<u32>, left: At<u32>,
    );
    fn pmis_staying(n: i64, state: At<u8>, stays: At<u32>);
    fn coarse_columns(
        n: i64, ptr: At<i64>, col: At<u32>, shift: i32, state: At<u8>, flags: At<u8>, counts: At<u32>,
    );
    fn coarse_part(
        n: i64, ptr: At<i64>, col: At<u32>, values: At<f64>, shift: i32, flags: At<u8>, place: At<i64>,
        to_col: At<u32>, to_values: At<f64>,
    );
    fn staying_nodes(n: i64, number: At<i64>, nodes: At<u32>);
    fn stay_again(count: i64, nodes: At<u32>, again: At<u8>, state: At<u8>);
}

kernels! {
    PATHS in "amg_paths.cu", |_| Shape::ALL.map(|shape| shape.kernel(strong_paths).into()).into();
    fn strong_paths(
        count: i64, a: Matrix, nodes: At<u32>, place: At<i64>, counts: At<u32>, to: At<u32>, rows: At<u32>,
        found: At<u32>,
    );
    fn strong_paths_long(
        count: i64, a: Matrix, nodes: At<u32>, place: At<i64>, counts: At<u32>, to: At<u32>, rows: At<u32>,
        length: u32, slots: u32, keys: At<u32>,
    );
}

/// Rounds of PMIS that are launched before the host first reads the number of undecided nodes; most graphs
/// need five to seven.
const FIRST_ROUNDS: u32 = 6;
/// Rounds between two such reads.
const MORE_ROUNDS: u32 = 3;
const WHAT: &str = "the nodes of a coarse level";

/// Strength of connection and coarse points of a matrix.
pub(super) struct Split {
    /// Flags of each entry, as in `kernels/amg.cuh`.
    pub flags: Buffer<u8>,
    /// Number of coarse points before each node, followed by the number of all coarse points.
    pub number: Buffer<i64>,
    /// Number of coarse points.
    pub coarse: usize,
    /// Entries that rows read of the rows they interpolate through; empty where the level is aggressive.
    pub part: Part,
    /// Global number of each coarse point, where there are other ranks.
    pub names: Option<Buffer<u64>>,
}

impl Split {
    /// Number of coarse points among the first `own` nodes.
    pub fn own(&self, own: usize) -> Result<usize> {
        let mut found = [0];
        self.number.device().read(&self.number, own, &mut found)?;
        Ok(found[0] as usize)
    }
}

/// Number of thread blocks with 256 threads for `threads` threads; the kernels loop over the grid.
pub(super) fn grid(device: &Device, threads: usize) -> usize {
    threads.div_ceil(256).clamp(1, 32 * device.multiprocessors())
}

/// Binary logarithm of the lanes that share a row: half as many as a mean row has entries, because at most so
/// many are strong or undecided.
pub(super) fn shift(rows: usize, entries: usize) -> i32 {
    entries.div_ceil(2 * rows.max(1)).clamp(1, 32).next_power_of_two().ilog2() as i32
}

/// Strong entries as addresses; without `flags`, all entries.
#[derive(Clone, Copy)]
struct Graph {
    rows: usize,
    shift: i32,
    ptr: u64,
    col: u64,
    flags: u64,
}

/// Computes strength of connection and PMIS of level `level`, PMIS twice where that is `aggressive`. With a
/// boundary the nodes are those of all ranks. Collective then.
pub(super) fn split(
    space: &Cuda,
    a: &Bsr,
    theta: f64,
    level: usize,
    aggressive: bool,
    boundary: Option<&Boundary>,
) -> Result<Split> {
    let (device, on) = (space.device(), space.resident(a)?);
    let (rows, entries) = (a.block_rows(), a.blocks());
    let (n, shift) = (rows as i64, shift(rows, entries));
    let (ptr, col) = (on.row_ptr.pointer(), on.col.pointer());
    let flags = device.allocate::<u8>(entries, WHAT)?;
    let counts = device.zeros::<u32>(rows, WHAT)?;
    let strong = device.function(&strong_entries.plain())?;
    let blocks = grid(device, rows << shift);
    strong.on(device, blocks, 256).run(n, ptr, col, &on.values, shift, theta, &flags, &counts)?;
    let graph = Graph { rows, shift, ptr, col, flags: flags.pointer() };
    let all = Nodes { list: 0, numbers: boundary.map_or(0, |b| b.numbers.pointer()), lonely_stay: false };
    let among = boundary.map(|boundary| Among { boundary, number: None });
    let state = pmis(device, graph, &counts, SEED + level as u64, all, among)?;
    let (mut number, mut coarse) = numbers(device, &state, &counts)?;
    let mut part = Part::of(device, &on, graph, &state, counts, !aggressive)?;
    let mut names = None;
    // Other ranks may have coarse points where this one has none.
    if aggressive && (coarse > 0 || boundary.is_some()) {
        let nodes = staying(device, &number, coarse)?;
        let matrix = [ptr, col, 0, graph.flags, part.ptr.pointer(), part.col.pointer(), 0, number.pointer()];
        let shape = Shape::choose(rows, entries);
        let again =
            stay_within_two(device, matrix, shape, &nodes, SEED + TWICE + level as u64, boundary, &number)?;
        let keep = device.function(&stay_again.plain())?;
        keep.on(device, grid(device, coarse), 256).run(coarse as i64, &nodes, &again, &state)?;
        part = Part::none(device)?;
        (number, coarse) = numbers(device, &state, &device.allocate(rows, WHAT)?)?;
        names = boundary.map(|boundary| boundary.names(&staying(device, &number, coarse)?)).transpose()?;
    }
    Ok(Split { flags, number, coarse, part, names })
}

/// Returns the `count` coarse points, ascending.
fn staying(device: &Arc<Device>, number: &Buffer<i64>, count: usize) -> Result<Buffer<u32>> {
    let (nodes, rows) = (device.allocate::<u32>(count, WHAT)?, number.len() - 1);
    let list = device.function(&staying_nodes.plain())?;
    list.on(device, grid(device, rows), 256).run(rows as i64, number, &nodes)?;
    Ok(nodes)
}

/// Entries of a matrix in columns of coarse points whose sign differs from that of the diagonal.
pub(super) struct Part {
    pub ptr: Buffer<i64>,
    /// Columns; the highest bit marks a strong entry.
    pub col: Buffer<u32>,
    pub values: Buffer<f64>,
}

impl Part {
    fn none(device: &Arc<Device>) -> Result<Self> {
        Ok(Self {
            ptr: device.allocate(0, WHAT)?,
            col: device.allocate(0, WHAT)?,
            values: device.allocate(0, WHAT)?,
        })
    }

    /// Marks the entries of a graph's matrix in columns of coarse points, and extracts them. `room` is
    /// scratch with one number per row.
    fn of(
        device: &Arc<Device>,
        a: &Resident,
        graph: Graph,
        state: &Buffer<u8>,
        room: Buffer<u32>,
        with_values: bool,
    ) -> Result<Self> {
        let Graph { rows, shift, ptr, col, flags } = graph;
        let (mark, take) =
            (device.function(&coarse_columns.plain())?, device.function(&coarse_part.plain())?);
        let (n, blocks) = (rows as i64, grid(device, rows << shift));
        mark.on(device, blocks, 256).run(n, ptr, col, shift, state, flags, &room)?;
        let places = scan::scan(device, &room)?;
        let entries = scan::last(device, &places)? as usize;
        let to_col = device.allocate::<u32>(entries, WHAT)?;
        let to_values = device.allocate::<f64>(if with_values { entries } else { 0 }, WHAT)?;
        let to = with_values.then_some(&to_values);
        take.on(device, blocks, 256).run(n, ptr, col, &a.values, shift, flags, &places, &to_col, to)?;
        Ok(Self { ptr: places, col: to_col, values: to_values })
    }
}

/// The nodes of a graph: addresses of the numbers that are hashed, and whether nodes on which no other
/// depends become coarse points.
#[derive(Clone, Copy)]
struct Nodes {
    /// Local numbers; 0 stands for the rows themselves.
    list: u64,
    /// Global numbers, or 0 on a single rank.
    numbers: u64,
    lonely_stay: bool,
}

/// Other ranks, and the numbers of their boundary nodes in the graph; `None` if the graph has all nodes.
#[derive(Clone, Copy)]
struct Among<'a> {
    boundary: &'a Boundary<'a>,
    number: Option<&'a Buffer<i64>>,
}

impl Among<'_> {
    /// Number of own nodes in the graph.
    fn own(self) -> Result<usize> {
        let own = self.boundary.own;
        let Some(number) = self.number else { return Ok(own) };
        let mut found = [0];
        number.device().read(number, own, &mut found)?;
        Ok(found[0] as usize)
    }
}

/// Data of the PMIS rounds.
struct Rounds<'a> {
    device: &'a Arc<Device>,
    graph: Graph,
    numbers: u64,
    weight: Buffer<u64>,
    state: Buffer<u8>,
    /// The last round that each node lost.
    lost: Buffer<u8>,
    lists: [Buffer<u32>; 2],
    /// For three rounds, the number of nodes left undecided, and the number of own ones where others are
    /// ghosts.
    left: Buffer<u32>,
    own: i64,
    lose: Function<pmis_lose>,
    decide: Function<pmis_decide>,
}

/// Returns the state of each node after PMIS; `counts` is the number of nodes that depend on each. Collective
/// where there are other ranks.
fn pmis(
    device: &Arc<Device>,
    graph: Graph,
    counts: &Buffer<u32>,
    seed: u64,
    nodes: Nodes,
    among: Option<Among>,
) -> Result<Buffer<u8>> {
    let rows = graph.rows;
    if let Some(Among { boundary, number }) = among {
        boundary.take_numbers(number, counts)?;
    }
    let rounds = Rounds {
        device,
        graph,
        numbers: nodes.numbers,
        weight: device.allocate(rows, WHAT)?,
        state: device.allocate(rows, WHAT)?,
        lost: device.zeros(rows, WHAT)?,
        lists: [device.allocate(rows, WHAT)?, device.allocate(rows, WHAT)?],
        // Before the first round some nodes are undecided.
        left: device.upload(&[1, 1, 0, 0, 0, 0], WHAT)?,
        own: among.map_or(Ok(-1), |among| among.own().map(|own| own as i64))?,
        lose: device.function(&pmis_lose.plain())?,
        decide: device.function(&pmis_decide.plain())?,
    };
    let begin = device.function(&pmis_begin.plain())?;
    let Nodes { list, numbers, lonely_stay } = nodes;
    let (n, stay, blocks) = (rows as i64, i32::from(lonely_stay), grid(device, rows));
    begin.on(device, blocks, 256).run(n, seed, list, numbers, stay, counts, &rounds.weight, &rounds.state)?;
    match among {
        Some(among) => rounds.together(among),
        None => rounds.alone(),
    }
}

impl Rounds<'_> {
    /// Address at which round `round` counts the nodes that it leaves undecided.
    fn left(&self, round: u32) -> u64 {
        self.left.at(2 * (round % 3) as usize)
    }

    /// Undecided nodes before round `round`: the first round reads all nodes, the others read the list that
    /// the round before has made.
    fn list(&self, round: u32) -> u64 {
        if round == 1 { 0 } else { self.lists[(round % 2) as usize].pointer() }
    }

    /// Marks the lighter one of two neighbours as having lost round `round`.
    fn lose(&self, round: u32) -> Result<()> {
        let Graph { rows, shift, ptr, col, flags } = self.graph;
        let (device, n, blocks) = (self.device, rows as i64, grid(self.device, rows << shift));
        let numbers = self.numbers;
        let (list, count, to) = (self.list(round), self.left(round + 2), self.left(round));
        self.lose.on(device, blocks, 256).run(
            n,
            ptr,
            col,
            shift,
            flags,
            &self.weight,
            numbers,
            list,
            count,
            round,
            &self.lost,
            to,
        )
    }

    /// Makes the nodes that did not lose coarse points, and those that depend on them fine points.
    fn decide(&self, round: u32) -> Result<()> {
        let Graph { rows, shift, ptr, col, flags } = self.graph;
        let (device, n, blocks) = (self.device, rows as i64, grid(self.device, rows << shift));
        let (list, count, to) = (self.list(round), self.left(round + 2), self.left(round));
        let (next, own) = (self.lists[((round + 1) % 2) as usize].pointer(), self.own);
        self.decide.on(device, blocks, 256).run(
            n,
            ptr,
            col,
            shift,
            flags,
            &self.weight,
            list,
            count,
            round,
            own,
            &self.lost,
            &self.state,
            next,
            to,
        )
    }

    /// Runs rounds until all nodes are decided.
    fn alone(self) -> Result<Buffer<u8>> {
        let mut round = 0;
        loop {
            check_rounds(round as usize, "the selection of coarse points")?;
            for _ in 0..if round == 0 { FIRST_ROUNDS } else { MORE_ROUNDS } {
                round += 1;
                self.lose(round)?;
                self.decide(round)?;
            }
            let mut undecided = [0];
            self.device.read(&self.left, 2 * (round % 3) as usize, &mut undecided)?;
            if undecided == [0] {
                return Ok(self.state);
            }
        }
    }

    /// Runs rounds until the nodes of all ranks are decided. Once per round the ranks exchange which boundary
    /// nodes are coarse points. A node's state depends only on heavier nodes, so the state of a ghost may be
    /// stale but never wrong.
    fn together(self, Among { boundary, number }: Among) -> Result<Buffer<u8>> {
        let mut done = Ok(());
        for round in 1.. {
            check_rounds(round as usize, "the selection of coarse points")?;
            let own = States {
                number,
                state: &self.state,
                weight: &self.weight,
                lost: Some(&self.lost),
                round,
                // Number of own nodes that the round before left undecided.
                left: self.left(round + 2) + size_of::<u32>() as u64,
            };
            if boundary.take_states(done.and_then(|()| self.lose(round)), own)? == 0 {
                break;
            }
            done = self.decide(round);
        }
        Ok(self.state)
    }
}

/// Numbers the coarse points, and counts them; `room` is scratch with one number per node.
fn numbers(device: &Arc<Device>, state: &Buffer<u8>, room: &Buffer<u32>) -> Result<(Buffer<i64>, usize)> {
    let staying = device.function(&pmis_staying.plain())?;
    let n = state.len();
    staying.on(device, grid(device, n), 256).run(n as i64, state, room)?;
    let number = scan::scan(device, room)?;
    let coarse = scan::last(device, &number)? as usize;
    Ok((number, coarse))
}

/// Runs PMIS on the coarse points, connected by paths of at most two strong couplings, and returns the state
/// of each. `matrix` is `Matrix` of the kernels, `number` is each node's number among the coarse points.
fn stay_within_two(
    device: &Arc<Device>,
    matrix: Matrix,
    shape: Shape,
    nodes: &Buffer<u32>,
    seed: u64,
    boundary: Option<&Boundary>,
    number: &Buffer<i64>,
) -> Result<Buffer<u8>> {
    let count = nodes.len();
    let walk = |place: u64, counts: &Buffer<u32>, to: u64| -> Result<()> {
        let long = LongRows::new(device, count)?;
        let function = device.function(&shape.kernel(strong_paths))?;
        let n = count as i64;
        let (blocks, rows) = (shape.blocks(device, count), long.rows.pointer());
        let threads = shape.threads;
        function.on(device, blocks, threads).run(n, matrix, nodes, place, counts, to, rows, &long.found)?;
        let Some(Tables { rows: length, warps, slots }) = long.tables(device, count, 4)? else {
            return Ok(());
        };
        let keys = device.allocate::<u32>(warps * slots, WHAT)?;
        let function = device.function(&shape.kernel(strong_paths_long))?;
        let (length, slots) = (length as u32, slots as u32);
        function.on(device, warps, 32).run(n, matrix, nodes, place, counts, to, rows, length, slots, &keys)
    };
    let lengths = device.allocate::<u32>(count, WHAT)?;
    walk(0, &lengths, 0)?;
    let ptr = scan::scan(device, &lengths)?;
    let paths = scan::last(device, &ptr)? as usize;
    let col = device.allocate::<u32>(paths, WHAT)?;
    let counts = device.zeros::<u32>(count, WHAT)?;
    walk(ptr.pointer(), &counts, col.pointer())?;
    let (ptr, col) = (ptr.pointer(), col.pointer());
    let graph = Graph { rows: count, shift: shift(count, paths), ptr, col, flags: 0 };
    let names = boundary.map(|boundary| boundary.names(nodes)).transpose()?;
    let numbers = names.as_ref().map_or(0, Buffer::pointer);
    let hashed = Nodes { list: nodes.pointer(), numbers, lonely_stay: true };
    let among = boundary.map(|boundary| Among { boundary, number: Some(number) });
    pmis(device, graph, &counts, seed, hashed, among)
}

#[cfg(test)]
mod tests {
    #[test]
    fn lanes_share_a_row_by_its_length() {
        let lanes = |rows, entries| 1 << super::shift(rows, entries);
        assert_eq!([lanes(0, 0), lanes(10, 0), lanes(10, 10), lanes(10, 30)], [1, 1, 1, 2]);
        assert_eq!([lanes(10, 70), lanes(10, 270), lanes(10, 9000)], [4, 16, 32]);
    }
}
