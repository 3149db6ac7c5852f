//! Nested dissection of a graph: an elimination order that numbers a vertex separator after both sides of it.
//!
//! George (1973), with separators by the multilevel scheme of Karypis and Kumar (1998): pairs of vertices are
//! merged until few are left, the smallest graph gets a separator by growing a region, and each finer level
//! refines it ([`super::separator`]). Graphs of at most [`LEAF`] vertices are ordered by approximate minimum
//! degree. Both sides are dissected concurrently; the order does not depend on the number of threads.

use super::coarsening::Hierarchy;
use super::graph::{APART, Graph};
use super::separator::Side;
use crate::interrupt::Limits;
use crate::{Error, Result};

/// Graphs of at most this many vertices are ordered by minimum degree.
const LEAF: usize = 400;
/// Graphs of at most this many vertices are not bisected where the caller asks for more parts.
const FEWEST: usize = 16;

/// Returns the vertices in an order of elimination with little fill.
///
/// # Errors
/// The limits of the caller's work are reached.
pub(super) fn order(graph: Graph, limits: Option<&Limits>) -> Result<Vec<u32>> {
    let mut out = vec![0; graph.len()];
    dissect(Hierarchy::new(graph), 0, limits, &mut out)?;
    Ok(out)
}

/// Returns such an order, and the sizes of the parts that the first bisections make, in unknowns. With
/// `levels` levels, the first 2^(levels − 1) parts are the sides of the last bisections, from left to right.
/// The separators between pairs of sides follow, then those between pairs of pairs, up to the separator of
/// the whole graph. The order lists the parts in this order. The parts of a graph that was too small for a
/// bisection have size 0, except the first.
///
/// # Errors
/// The limits of the caller's work are reached.
pub(super) fn order_with_parts(
    graph: Graph,
    levels: usize,
    limits: Option<&Limits>,
) -> Result<(Vec<u32>, Vec<u32>)> {
    let (mut nested, weight) = (vec![0; graph.len()], graph.size.clone());
    let mut sizes = dissect(Hierarchy::new(graph), levels, limits, &mut nested)?;
    // Here each separator follows its two sides.
    let mut rest = nested.into_iter();
    let mut parts: Vec<Vec<Vec<u32>>> = sizes.iter().map(|level| vec![Vec::new(); level.len()]).collect();
    nested_parts(levels, 0, 0, &mut |level, at| {
        let mut left = sizes[level][at];
        while left > 0
            && let Some(v) = rest.next()
        {
            left -= weight[v as usize];
            parts[level][at].push(v);
        }
    });
    parts.reverse();
    sizes.reverse();
    Ok((parts.concat().concat(), sizes.concat()))
}

/// Visits parts with each separator after its two sides.
fn nested_parts(levels: usize, level: usize, at: usize, visit: &mut impl FnMut(usize, usize)) {
    if level + 1 < levels {
        nested_parts(levels, level + 1, 2 * at, visit);
        nested_parts(levels, level + 1, 2 * at + 1, visit);
    }
    visit(level, at);
}

/// Orders a graph; returns the sizes of its parts for each of `levels` levels, of which the whole graph's
/// separator is the first.
fn dissect(
    graphs: Hierarchy,
    levels: usize,
    limits: Option<&Limits>,
    out: &mut [u32],
) -> Result<Vec<Vec<u32>>> {
    if let Some(limits) = limits {
        limits.check()?;
    }
    let undivided = |unknowns: u64| {
        let mut sizes: Vec<Vec<u32>> = (0..levels).map(|level| vec![0; 1 << level]).collect();
        sizes.last_mut().into_iter().for_each(|last| last[0] = unknowns as u32);
        sizes
    };
    let (graph, unknowns) = (graphs.graph(), graphs.graph().unknowns());
    if levels == 1 {
        dissect(graphs, 0, limits, out)?;
        return Ok(undivided(unknowns));
    }
    if graph.len() <= if levels == 0 { LEAF } else { FEWEST } {
        return leaf(graph, out).map(|()| undivided(unknowns));
    }
    let graphs = graphs.renewed();
    let (graph, side) = (graphs.graph(), graphs.bisect());
    let halves = graphs.halves(&side);
    let count = halves[0].1.len() + halves[1].1.len();
    if halves.iter().any(|(_, own)| own.len() == graph.len()) || count == 0 {
        return leaf(graph, out).map(|()| undivided(unknowns));
    }
    // The separator is eliminated last.
    let separator = (0..graph.len() as u32).filter(|&v| side[v as usize] == Side::Separator);
    out[count..].iter_mut().zip(separator).for_each(|(out, v)| *out = v);
    let separator = unknowns - halves.iter().map(|(half, _)| half.graph().unknowns()).sum::<u64>();
    drop(graphs);
    let large = count >= APART;
    let (first, second) = out[..count].split_at_mut(halves[0].1.len());
    let one = |(half, own): (Hierarchy, Vec<u32>), out: &mut [u32]| -> Result<Vec<Vec<u32>>> {
        let sizes = dissect(half, levels.saturating_sub(1), limits, out)?;
        out.iter_mut().for_each(|v| *v = own[*v as usize]);
        Ok(sizes)
    };
    let [left, right] = halves;
    let (left, right) = match large {
        true => rayon::join(|| one(left, first), || one(right, second)),
        false => (one(left, first), one(right, second)),
    };
    let mut sizes = if levels > 0 { vec![vec![separator as u32]] } else { Vec::new() };
    sizes.extend(left?.into_iter().zip(right?).map(|(left, right)| [left, right].concat()));
    Ok(sizes)
}

/// Orders a small graph by approximate minimum degree (Amestoy, Davis and Duff 1996).
fn leaf(graph: &Graph, out: &mut [u32]) -> Result<()> {
    let order = minimum_degree(graph)?;
    out.copy_from_slice(&order);
    Ok(())
}

/// Returns an order by approximate minimum degree.
///
/// # Errors
/// Out of memory.
pub(super) fn minimum_degree(graph: &Graph) -> Result<Vec<u32>> {
    use faer::dyn_stack::{MemBuffer, MemStack};
    use faer::sparse::SymbolicSparseColMatRef;
    use faer::sparse::linalg::amd;
    let n = graph.len();
    let failed = |e: String| Error::invalid(format!("lu: out of memory for an order ({e}); use ildu"));
    // Only the upper triangle is read, with its diagonal.
    let (mut ptr, mut rows) = (vec![0u32], Vec::with_capacity(graph.adj.len() / 2));
    for v in 0..n as u32 {
        let begin = rows.len();
        rows.extend(graph.neighbours(v).iter().copied().filter(|&u| u < v));
        rows[begin..].sort_unstable();
        ptr.push(rows.len() as u32);
    }
    let pattern = SymbolicSparseColMatRef::new_checked(n, n, &ptr, None, &rows);
    let (mut forward, mut inverse) = (vec![0u32; n], vec![0u32; n]);
    let mut memory =
        MemBuffer::try_new(amd::order_scratch::<u32>(n, rows.len())).map_err(|e| failed(format!("{e:?}")))?;
    let stack = MemStack::new(&mut memory);
    amd::order(&mut forward, &mut inverse, pattern, Default::default(), stack)
        .map_err(|e| failed(format!("{e:?}")))?;
    Ok(forward)
}
