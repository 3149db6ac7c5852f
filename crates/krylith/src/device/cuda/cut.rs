//! Subdomains cut by the graph of a matrix that is on a GPU: fine levels there, coarse ones on the host.
//!
//! [`multilevel`] says how, and its parts are these, bit by bit: every step is a map, a scan or a ranking that does not depend
//! on the order of execution. The GPU makes levels coarser while all parts can still be told apart, the host cuts the coarse
//! graph, of n / 10 nodes or fewer, and the GPU brings the parts back and refines them. Graphs that need more than that, with long rows
//! or without symmetry, are the host's from the start.

use super::Cuda;
use super::compiler::Kernel;
use super::driver::{Buffer, Device, launch};
use super::scan::{last as number, scan};
use super::specialisations::define;
use crate::matrix::Bsr;
use crate::operator::Terms;
use crate::partition::{Subdomains, multilevel};
use crate::{Error, Result};
use multilevel::{Graph, Room};
use std::sync::Arc;

/// Nodes that a part has at least, on average, where the host cuts.
const NODES: usize = 24;
/// What a level keeps of the nodes of the one before, at most.
const SHRINKS: f64 = 0.5625;
/// Longest row of a matrix that is cut here: a thread reads it alone.
const LONGEST: usize = 512;
/// Groups that a thread lists; with more it looks through its neighbours again.
const LINKS: usize = 16;
/// Warps of a block that contracts, and slots of each one's table: a pair's neighbours at most.
const WARPS: usize = 4;
const SLOTS: usize = 512;

/// A kernel of the graph cut.
fn kernel(file: &'static str, entry: &'static str) -> Kernel {
    let defines = match file {
        "cut_coarsen.cu" => {
            vec![define("WARPS", WARPS), define("SLOTS", SLOTS), define("LONGEST", LONGEST)]
        }
        _ => vec![define("LINKS", LINKS)],
    };
    Kernel { file, entry, defines }
}

/// All of them.
pub(crate) fn kernels() -> Vec<Kernel> {
    let coarsen = ["symmetric", "alone", "propose", "join", "leaders", "pair", "contract"];
    let refine = ["spread", "wish", "weigh_again", "enlist", "admit"];
    let coarsen = coarsen.map(|entry| kernel("cut_coarsen.cu", entry));
    coarsen.into_iter().chain(refine.map(|entry| kernel("cut_refine.cu", entry))).collect()
}

/// One level on the GPU. No weights or sizes: 1 each.
struct Level {
    nodes: usize,
    ptr: Arc<Buffer<i64>>,
    col: Arc<Buffer<u32>>,
    weight: Option<Buffer<u32>>,
    size: Option<Buffer<u32>>,
}

impl Level {
    fn weights(&self) -> u64 {
        self.weight.as_ref().map_or(0, Buffer::pointer)
    }

    fn sizes(&self) -> u64 {
        self.size.as_ref().map_or(0, Buffer::pointer)
    }
}

/// Launches a kernel whose first parameters are a level's graph, a thread a node.
macro_rules! on_nodes {
    ($device:expr, $entry:literal, $file:literal, $level:expr, $($argument:expr),* $(,)?) => {{
        let (device, level): (&Arc<Device>, &Level) = ($device, $level);
        let function = device.function(&kernel($file, $entry))?;
        let (n, ptr, col) = (level.nodes as i64, level.ptr.pointer(), level.col.pointer());
        let (weight, size) = (level.weights(), level.sizes());
        // SAFETY: the parameter types are the kernel's, and its arrays are as long as the level says.
        unsafe {
            launch!(device, &function, grid(device, level.nodes), 256, 0, n, ptr, col, weight, size, $($argument),*)
        }?
    }};
}

/// Launches a kernel over `n` nodes, whose number is its first argument.
macro_rules! on_each {
    ($device:expr, $entry:literal, $file:literal, $n:expr, $($argument:expr),* $(,)?) => {{
        let (device, n): (&Arc<Device>, usize) = ($device, $n);
        let function = device.function(&kernel($file, $entry))?;
        // SAFETY: the parameter types are the kernel's, and its arrays have `n` elements.
        unsafe { launch!(device, &function, grid(device, n), 256, 0, n as i64, $($argument),*) }?
    }};
}

fn grid(device: &Device, threads: usize) -> usize {
    threads.div_ceil(256).clamp(1, 32 * device.multiprocessors())
}

const WHAT: &str = "a graph cut";

impl Cuda {
    /// The subdomains of [`SubdomainCut::Multilevel`](crate::partition::SubdomainCut::Multilevel), cut on this GPU; `None`
    /// where the host has to cut: terms with different patterns, a pattern that is not symmetric, rows of more than 512 blocks,
    /// subdomains of so few rows that there is nothing to coarsen.
    ///
    /// # Errors
    /// `rows` of 0; a device without room, or a missing NVRTC.
    pub fn subdomains(&self, terms: &Terms, rows: usize) -> Result<Option<Subdomains>> {
        if rows == 0 {
            return Err(Error::invalid("subdomains of 0 block rows; they need at least 1"));
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

/// True where a level of that many nodes, of `n` rows, can become coarser and still leave [`NODES`] to a part.
fn is_fine(nodes: usize, n: usize, rows: usize) -> bool {
    !multilevel::is_coarse(nodes) && (NODES * n) as f64 <= 0.95 * SHRINKS * rows as f64 * nodes as f64
}

fn cut(space: &Cuda, a: &Bsr, rows: usize) -> Result<Option<(Vec<u32>, usize)>> {
    let (device, n) = (space.device(), a.block_rows());
    let matrix = space.resident(a)?;
    let unfit = device.zeros::<u32>(1, WHAT)?;
    let (ptr, col) = (matrix.row_ptr.clone(), matrix.col.clone());
    on_each!(device, "symmetric", "cut_coarsen.cu", n, ptr.pointer(), col.pointer(), unfit.pointer());
    if number(device, &unfit)? != 0 {
        return Ok(None);
    }
    let mut levels = vec![Level { nodes: n, ptr, col, weight: None, size: None }];
    let mut maps = Vec::new();
    while is_fine(levels[levels.len() - 1].nodes, n, rows) {
        let Some((map, coarser)) = coarsen(device, &levels[levels.len() - 1], levels.len(), n)? else {
            break;
        };
        maps.push(map);
        levels.push(coarser);
    }
    let mut room = Room::new(n, rows);
    let mut at = levels.len() - 1;
    if at == 0 {
        return Ok(None);
    }
    let (mut label, mut graph) = multilevel::labels(download(device, &levels[at])?, at, &mut room);
    // A group that is not a part yet, or has too many rows, goes on being the host's.
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
        let finer = device.room::<u32>(levels[level].nodes, WHAT)?;
        let (map, coarse) = (maps[level].pointer(), labels.pointer());
        on_each!(device, "spread", "cut_refine.cu", levels[level].nodes, map, coarse, finer.pointer());
        labels = finer;
        weights = refine(device, &levels[level], &labels, weights, rows, multilevel::rounds(level))?;
    }
    let mut label = vec![0; n];
    device.read(&labels, 0, &mut label)?;
    Ok(Some((label, room.parts.len())))
}

/// The pair of each node and the graph of the pairs; `None` where too many nodes found nobody, or a pair has too many neighbours.
fn coarsen(
    device: &Arc<Device>,
    level: &Level,
    next: usize,
    rows: usize,
) -> Result<Option<(Buffer<u32>, Level)>> {
    let n = level.nodes;
    let (mate, want) = (device.room::<u32>(n, WHAT)?, device.room::<u32>(n, WHAT)?);
    on_each!(device, "alone", "cut_coarsen.cu", n, mate.pointer());
    let limit = multilevel::most(rows as u64, n);
    for _ in 0..multilevel::MATCHING_ROUNDS {
        let (mate, want) = (mate.pointer(), want.pointer());
        on_nodes!(device, "propose", "cut_coarsen.cu", level, next as u32, limit, mate, want);
        on_each!(device, "join", "cut_coarsen.cu", n, want, mate);
    }
    let (leads, lonely) = (want, device.zeros::<u32>(1, WHAT)?);
    on_each!(device, "leaders", "cut_coarsen.cu", n, mate.pointer(), leads.pointer(), lonely.pointer());
    let numbers = scan(device, &leads)?;
    if number(device, &lonely)? as usize > n / multilevel::LONELY {
        return Ok(None);
    }
    let count = number(device, &numbers)? as usize;
    let (map, pairs) = (leads, device.room::<u32>(2 * count, WHAT)?);
    let size = device.room::<u32>(count, WHAT)?;
    {
        let (mate, numbers) = (mate.pointer(), numbers.pointer());
        let (map, pairs, sizes) = (map.pointer(), pairs.pointer(), size.pointer());
        on_each!(device, "pair", "cut_coarsen.cu", n, level.sizes(), mate, numbers, map, pairs, sizes);
    }
    let overflow = device.zeros::<u32>(1, WHAT)?;
    let function = device.function(&kernel("cut_coarsen.cu", "contract"))?;
    let blocks = count.div_ceil(WARPS).clamp(1, 64 * device.multiprocessors());
    let contract = |place: u64, degree: u64, to: u64, weights: u64| {
        let (nodes, ptr, col) = (n as i64, level.ptr.pointer(), level.col.pointer());
        let (weight, size, pairs, map) = (level.weights(), level.sizes(), pairs.pointer(), map.pointer());
        let (count, overflow) = (count as i64, overflow.pointer());
        // SAFETY: the parameter types are the kernel's; places and edges are those of the degrees that it found itself.
        unsafe {
            launch!(
                device,
                &function,
                blocks,
                32 * WARPS,
                0,
                nodes,
                ptr,
                col,
                weight,
                size,
                count,
                pairs,
                map,
                place,
                degree,
                to,
                weights,
                overflow
            )
        }
    };
    let degree = device.room::<u32>(count, WHAT)?;
    contract(0, degree.pointer(), 0, 0)?;
    let ptr = scan(device, &degree)?;
    if number(device, &overflow)? != 0 {
        return Ok(None);
    }
    let edges = number(device, &ptr)? as usize;
    let (col, weight) = (device.room::<u32>(edges, WHAT)?, device.room::<u32>(edges, WHAT)?);
    contract(ptr.pointer(), 0, col.pointer(), weight.pointer())?;
    let coarse = Level {
        nodes: count,
        ptr: Arc::new(ptr),
        col: Arc::new(col),
        weight: Some(weight),
        size: Some(size),
    };
    Ok(Some((map, coarse)))
}

/// A coarse level on the host.
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

/// Rounds of moves at one level; groups have `weights` rows, and have those that are returned afterwards.
fn refine(
    device: &Arc<Device>,
    level: &Level,
    labels: &Buffer<u32>,
    mut weights: Buffer<u32>,
    rows: usize,
    rounds: usize,
) -> Result<Buffer<u32>> {
    let (n, groups, cap) = (level.nodes, weights.len(), rows as u64);
    let (to, gain) = (device.room::<u32>(n, WHAT)?, device.room::<i32>(n, WHAT)?);
    let (keep, list) = (device.room::<i32>(n, WHAT)?, device.room::<u32>(n, WHAT)?);
    let resting = device.zeros::<u32>(n, WHAT)?;
    let mut moves = device.room::<u32>(groups, WHAT)?;
    let mut after = device.room::<u32>(groups, WHAT)?;
    for round in 0..rounds as u32 {
        let (label, to, gain, keep) = (labels.pointer(), to.pointer(), gain.pointer(), keep.pointer());
        let (own, resting, list) = (weights.pointer(), resting.pointer(), list.pointer());
        on_nodes!(device, "wish", "cut_refine.cu", level, round, cap, label, own, resting, to, gain);
        device.clear(&mut moves)?;
        let counts = moves.pointer();
        on_nodes!(device, "weigh_again", "cut_refine.cu", level, round, label, to, gain, keep, counts);
        let begin = scan(device, &moves)?;
        device.clear(&mut moves)?;
        on_each!(device, "enlist", "cut_refine.cu", n, to, keep, begin.pointer(), counts, list);
        device.copy(&weights, &mut after, groups)?;
        let (size, begin, left) = (level.sizes(), begin.pointer(), after.pointer());
        on_each!(
            device,
            "admit",
            "cut_refine.cu",
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
