//! Subdomains cut by the graph of a matrix that is on a GPU: fine levels there, coarse levels on the host.
//!
//! The algorithm and its results are those of [`multilevel`], bit by bit: every step is a map, a scan or a
//! ranking that does not depend on the order of execution. The GPU coarsens while a level still has enough
//! nodes for every part. The host then cuts the coarse graph, of n / 10 nodes or fewer, and the GPU brings
//! the parts back to the fine levels and refines them. Graphs that do not suit the GPU, because of long rows
//! or a lack of symmetry, are cut on the host from the start.

use super::Cuda;
use super::compiler::Kernel;
use super::driver::{Buffer, Device};
use super::launch::{At, Entry, Of, kernels};
use super::scan::{last as number, scan};
use super::specialisations::define;
use crate::matrix::Bsr;
use crate::operator::Terms;
use crate::partition::{Subdomains, multilevel};
use crate::{Error, Result};
use multilevel::{Graph, Limits};
use std::sync::Arc;

kernels! {
    COARSEN in "cut_coarsen.cu", |_| vec![coarsen(contract).into()];
    fn symmetric(n: i64, ptr: At<i64>, col: At<u32>, unfit: At<u32>);
    fn alone(n: i64, mate: At<u32>);
    fn propose(
        n: i64, ptr: At<i64>, col: At<u32>, weight: At<u32>, size: At<u32>, level: u32, limit: u64,
        mate: At<u32>, want: At<u32>,
    );
    fn join(n: i64, want: At<u32>, mate: At<u32>);
    fn leaders(n: i64, mate: At<u32>, leads: At<u32>, lonely: At<u32>);
    fn pair(
        n: i64, size: At<u32>, mate: At<u32>, number: At<i64>, map: At<u32>, pairs: At<u32>, sizes: At<u32>,
    );
    fn contract(
        n: i64, ptr: At<i64>, col: At<u32>, weight: At<u32>, size: At<u32>, count: i64, pairs: At<u32>,
        map: At<u32>, place: At<i64>, degree: At<u32>, to: At<u32>, weights: At<u32>, overflow: At<u32>,
    );
}

kernels! {
    REFINE in "cut_refine.cu", |_| vec![refine(admit).into()];
    fn spread(n: i64, map: At<u32>, coarse: At<u32>, label: At<u32>);
    fn wish(
        n: i64, ptr: At<i64>, col: At<u32>, weight: At<u32>, size: At<u32>, round: u32, cap: u64,
        label: At<u32>, rows: At<u32>, resting: At<u32>, to: At<u32>, gain: At<i32>,
    );
    fn update_weights(
        n: i64, ptr: At<i64>, col: At<u32>, weight: At<u32>, size: At<u32>, round: u32, label: At<u32>,
        to: At<u32>, gain: At<i32>, keep: At<i32>, moves: At<u32>,
    );
    fn enlist(n: i64, to: At<u32>, keep: At<i32>, begin: At<i64>, cursor: At<u32>, list: At<u32>);
    fn admit(
        n: i64, size: At<u32>, round: u32, cap: u64, to: At<u32>, keep: At<i32>, begin: At<i64>,
        list: At<u32>, rows: At<u32>, after: At<u32>, label: At<u32>, resting: At<u32>,
    );
}

/// Fewest nodes per part, on average, of the graph that the host cuts.
const NODES: usize = 24;
/// Largest share of a level's nodes that the next coarser level may have.
const SHRINKS: f64 = 0.5625;
/// Longest row of a matrix that is cut on the GPU: a single thread reads a row.
const LONGEST: usize = 512;
/// Groups that a thread lists; with more groups it reads its neighbours again.
const LINKS: usize = 16;
/// Warps per thread block of the contraction.
const WARPS: usize = 4;
/// Slots of each warp's table: most neighbours of a pair.
const SLOTS: usize = 512;

/// Returns a kernel of `cut_coarsen.cu`.
fn coarsen<K: Entry>(entry: K) -> Of<K> {
    entry.with(vec![define("WARPS", WARPS), define("SLOTS", SLOTS), define("LONGEST", LONGEST)])
}

/// Returns a kernel of `cut_refine.cu`.
fn refine<K: Entry>(entry: K) -> Of<K> {
    entry.with(vec![define("LINKS", LINKS)])
}

/// Returns one kernel of each file, because a file is compiled as a whole.
pub(crate) fn kernels() -> [Kernel; 2] {
    [coarsen(contract).into(), refine(admit).into()]
}

/// One level on the GPU. Missing weights or sizes stand for 1.
struct Level {
    nodes: usize,
    ptr: Arc<Buffer<i64>>,
    col: Arc<Buffer<u32>>,
    weight: Option<Buffer<u32>>,
    size: Option<Buffer<u32>>,
}

impl Level {
    fn weights(&self) -> Option<&Buffer<u32>> {
        self.weight.as_ref()
    }

    fn sizes(&self) -> Option<&Buffer<u32>> {
        self.size.as_ref()
    }
}

/// Launches a kernel with one thread per node, whose first parameters are the graph of a level.
macro_rules! on_nodes {
    ($device:expr, $kernel:expr, $level:expr, $($argument:expr),* $(,)?) => {{
        let (device, level): (&Arc<Device>, &Level) = ($device, $level);
        let function = device.function(&$kernel)?;
        let launch = function.on(device, grid(device, level.nodes), 256);
        let (ptr, col) = (&*level.ptr, &*level.col);
        launch.run(level.nodes as i64, ptr, col, level.weights(), level.sizes(), $($argument), *)?
    }};
}

/// Launches a kernel over `n` nodes, with `n` as its first argument.
macro_rules! on_each {
    ($device:expr, $kernel:expr, $n:expr, $($argument:expr),* $(,)?) => {{
        let (device, n): (&Arc<Device>, usize) = ($device, $n);
        let function = device.function(&$kernel)?;
        function.on(device, grid(device, n), 256).run(n as i64, $($argument), *)?
    }};
}

fn grid(device: &Device, threads: usize) -> usize {
    threads.div_ceil(256).clamp(1, 32 * device.multiprocessors())
}

const WHAT: &str = "a graph cut";

impl Cuda {
    /// Cuts the subdomains of [`SubdomainCut::Multilevel`](crate::partition::SubdomainCut::Multilevel) on
    /// this GPU. Returns `None` if the host has to cut: terms with different patterns, a pattern that is
    /// not symmetric, rows of more than 512 blocks, or subdomains of so few rows that there is nothing to
    /// coarsen.
    ///
    /// # Errors
    /// `rows` of 0; out of device memory; a missing NVRTC.
    pub fn subdomains(&self, terms: &Terms, rows: usize) -> Result<Option<Subdomains>> {
        if rows == 0 {
            return Err(Error::invalid("the subdomain size is 0; subdomains need at least 1 block row"));
        }
        let n = terms.block_rows();
        let alike = terms.terms.len() == 1 || terms.shared_pattern();
        if n <= rows || !alike || !is_fine(n, n, rows) {
            return Ok(None);
        }
        let labels = cut(self, &terms.terms[0].1, rows)?;
        Ok(labels.map(|(labels, count)| Subdomains::by_first_row(labels, count)))
    }
}

/// True if a level of `nodes` nodes, of `n` rows, can be coarsened and still leave [`NODES`] nodes per
/// part.
fn is_fine(nodes: usize, n: usize, rows: usize) -> bool {
    !multilevel::is_coarse(nodes) && (NODES * n) as f64 <= 0.95 * SHRINKS * rows as f64 * nodes as f64
}

fn cut(space: &Cuda, a: &Bsr, rows: usize) -> Result<Option<(Vec<u32>, usize)>> {
    let (device, n) = (space.device(), a.block_rows());
    let matrix = space.resident(a)?;
    let unfit = device.zeros::<u32>(1, WHAT)?;
    let (ptr, col) = (matrix.row_ptr.clone(), matrix.col.clone());
    on_each!(device, coarsen(symmetric), n, ptr.pointer(), col.pointer(), unfit.pointer());
    if number(device, &unfit)? != 0 {
        return Ok(None);
    }
    let mut levels = vec![Level { nodes: n, ptr, col, weight: None, size: None }];
    let mut maps = Vec::new();
    while is_fine(levels[levels.len() - 1].nodes, n, rows) {
        let Some((map, coarser)) = coarser(device, &levels[levels.len() - 1], levels.len(), n)? else {
            break;
        };
        maps.push(map);
        levels.push(coarser);
    }
    let mut room = Limits::new(n, rows);
    let mut at = levels.len() - 1;
    if at == 0 {
        return Ok(None);
    }
    let (mut label, mut graph) = multilevel::labels(download(device, &levels[at])?, at, &mut room);
    // The host goes on with groups that are not parts yet or have too many rows.
    let weights = loop {
        if let Some(weights) = room.settled(&graph, &label) {
            break weights;
        }
        at -= 1;
        if at == 0 {
            return Ok(None);
        }
        let mut map = vec![0; levels[at].nodes];
        device.read(&maps[at], 0, &mut map)?;
        graph = download(device, &levels[at])?;
        label = multilevel::spread(&map, &label);
        multilevel::settle(&graph, at, &mut label, &mut room);
    };
    let mut labels = device.upload(&label, WHAT)?;
    let mut weights = device.upload(&weights, WHAT)?;
    for level in (0..at).rev() {
        let finer = device.allocate::<u32>(levels[level].nodes, WHAT)?;
        let (map, coarse) = (maps[level].pointer(), labels.pointer());
        on_each!(device, refine(spread), levels[level].nodes, map, coarse, finer.pointer());
        labels = finer;
        weights = refined(device, &levels[level], &labels, weights, rows, multilevel::rounds(level))?;
    }
    let mut label = vec![0; n];
    device.read(&labels, 0, &mut label)?;
    Ok(Some((label, room.parts.len())))
}

/// Returns the pair of each node and the graph of the pairs; `None` if too many nodes found no partner, or
/// a pair has too many neighbours.
fn coarser(
    device: &Arc<Device>,
    level: &Level,
    next: usize,
    rows: usize,
) -> Result<Option<(Buffer<u32>, Level)>> {
    let n = level.nodes;
    let (mate, want) = (device.allocate::<u32>(n, WHAT)?, device.allocate::<u32>(n, WHAT)?);
    on_each!(device, coarsen(alone), n, mate.pointer());
    let limit = multilevel::most(rows as u64, n);
    for _ in 0..multilevel::MATCHING_ROUNDS {
        let (mate, want) = (mate.pointer(), want.pointer());
        on_nodes!(device, coarsen(propose), level, next as u32, limit, mate, want);
        on_each!(device, coarsen(join), n, want, mate);
    }
    let (leads, lonely) = (want, device.zeros::<u32>(1, WHAT)?);
    on_each!(device, coarsen(leaders), n, mate.pointer(), leads.pointer(), lonely.pointer());
    let numbers = scan(device, &leads)?;
    if number(device, &lonely)? as usize > n / multilevel::LONELY {
        return Ok(None);
    }
    let count = number(device, &numbers)? as usize;
    let (map, pairs) = (leads, device.allocate::<u32>(2 * count, WHAT)?);
    let size = device.allocate::<u32>(count, WHAT)?;
    on_each!(device, coarsen(pair), n, level.sizes(), &mate, &numbers, &map, &pairs, &size);
    let overflow = device.zeros::<u32>(1, WHAT)?;
    let function = device.function(&coarsen(contract))?;
    let blocks = count.div_ceil(WARPS).clamp(1, 64 * device.multiprocessors());
    let join_pairs = |place: u64, degree: u64, to: u64, weights: u64| {
        let (nodes, count, weight, size) = (n as i64, count as i64, level.weights(), level.sizes());
        function.on(device, blocks, 32 * WARPS).run(
            nodes, &level.ptr, &level.col, weight, size, count, &pairs, &map, place, degree, to, weights,
            &overflow,
        )
    };
    let degree = device.allocate::<u32>(count, WHAT)?;
    join_pairs(0, degree.pointer(), 0, 0)?;
    let ptr = scan(device, &degree)?;
    if number(device, &overflow)? != 0 {
        return Ok(None);
    }
    let edges = number(device, &ptr)? as usize;
    let (col, weight) = (device.allocate::<u32>(edges, WHAT)?, device.allocate::<u32>(edges, WHAT)?);
    join_pairs(ptr.pointer(), 0, col.pointer(), weight.pointer())?;
    let coarse = Level {
        nodes: count,
        ptr: Arc::new(ptr),
        col: Arc::new(col),
        weight: Some(weight),
        size: Some(size),
    };
    Ok(Some((map, coarse)))
}

/// Copies a coarse level to the host.
fn download(device: &Device, level: &Level) -> Result<Graph> {
    let read = |from: &Buffer<u32>| {
        let mut to = vec![0u32; from.len()];
        device.read(from, 0, &mut to).map(|()| to)
    };
    let mut ptr = vec![0i64; level.nodes + 1];
    device.read(&level.ptr, 0, &mut ptr)?;
    let (Some(weight), Some(size)) = (&level.weight, &level.size) else {
        unreachable!("the rows themselves are not brought to the host");
    };
    Ok(Graph {
        ptr: ptr.into_iter().map(|p| p as usize).collect(),
        col: read(&level.col)?,
        weight: read(weight)?,
        size: read(size)?,
    })
}

/// Runs rounds of moves at one level. `weights` are the rows of each group before; the result are those
/// after.
fn refined(
    device: &Arc<Device>,
    level: &Level,
    labels: &Buffer<u32>,
    mut weights: Buffer<u32>,
    rows: usize,
    rounds: usize,
) -> Result<Buffer<u32>> {
    let (n, groups, cap) = (level.nodes, weights.len(), rows as u64);
    let (to, gain) = (device.allocate::<u32>(n, WHAT)?, device.allocate::<i32>(n, WHAT)?);
    let (keep, list) = (device.allocate::<i32>(n, WHAT)?, device.allocate::<u32>(n, WHAT)?);
    let resting = device.zeros::<u32>(n, WHAT)?;
    let mut moves = device.allocate::<u32>(groups, WHAT)?;
    let mut after = device.allocate::<u32>(groups, WHAT)?;
    for round in 0..rounds as u32 {
        let (label, to, gain, keep) = (labels.pointer(), to.pointer(), gain.pointer(), keep.pointer());
        let (own, resting, list) = (weights.pointer(), resting.pointer(), list.pointer());
        on_nodes!(device, refine(wish), level, round, cap, label, own, resting, to, gain);
        device.clear(&mut moves)?;
        let counts = moves.pointer();
        on_nodes!(device, refine(update_weights), level, round, label, to, gain, keep, counts);
        let begin = scan(device, &moves)?;
        device.clear(&mut moves)?;
        on_each!(device, refine(enlist), n, to, keep, begin.pointer(), counts, list);
        device.copy(&weights, &mut after, groups)?;
        let (size, begin, left) = (level.sizes(), begin.pointer(), after.pointer());
        on_each!(
            device,
            refine(admit),
            n,
            size,
            round,
            cap,
            to,
            keep,
            begin,
            list,
            own,
            left,
            label,
            resting
        );
        std::mem::swap(&mut weights, &mut after);
    }
    Ok(weights)
}
