//! Weak and strong scaling on more GPUs than a partition can be built for: each GPU has a box of nodes of the
//! Stokes duct.
//!
//! A box of n nodes sends about n^⅔ of them through each face that has a neighbour. GPUs form a grid as
//! nearly cubic as powers of two allow, and so do those of a host. The prediction uses the worst placed GPU:
//! neighbours on all sides, and only the nearest ones on its own host. Edges and corners are counted with the
//! faces.

use super::Machine;
use super::predict::{Load, Shape, Times};
use krylith_core::{Error, Result};

/// The case of the OKP paper: b = 4, s = 2, M and L with one 15-point pattern.
pub const DENSE: Shape = Shape { block: 4, stages: 2, terms: 2, shared: true, slots: 32, diagonals: 0 };
/// The same with the structure inside the blocks of the Stokes problem: 9 numbers of 32.
pub const STRUCTURED: Shape = Shape { slots: 9, ..DENSE };
/// Blocks per row, both matrices together.
const BLOCKS: f64 = 30.0;
/// The restart m of GMRES(m).
pub const RESTART: usize = 30;
/// Vectors that GMRES(30) keeps.
const VECTORS: f64 = 36.0;

/// A prediction for one number of GPUs.
///
/// # Examples
/// ```
/// use krylith_model::{Machine, scaling};
/// let machine = Machine::open("jupiter".as_ref())?;
/// let weak = scaling::weak(&machine, 1e6, 1024)?; // a million nodes on each GPU
/// let (first, last) = (&weak[0], &weak[10]);
/// assert_eq!((last.gpus, last.hosts, last.nodes), (1024, 256, 1e6));
/// let efficiency = first.dense.all() / last.dense.all();
/// assert!(efficiency > 0.8 && efficiency < 1.0);
/// assert!(last.structured.all() < last.dense.all()); // 9 numbers of 32 are moved
/// # Ok::<(), krylith::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Point {
    /// Number of GPUs.
    pub gpus: usize,
    /// Number of hosts.
    pub hosts: usize,
    /// Number of nodes per GPU.
    pub nodes: f64,
    /// Time of an iteration of GMRES(30) with dense blocks.
    pub dense: Times,
    /// The same with structured blocks.
    pub structured: Times,
}

/// Returns the sides of a grid of 2^k boxes, largest first.
fn sides(count: usize) -> [usize; 3] {
    let k = count.next_power_of_two().trailing_zeros() as usize;
    std::array::from_fn(|d| 1 << ((k + 2 - d) / 3))
}

/// Returns the load of the worst placed of `gpus` GPUs with `n` nodes each, `per_host` on a host.
pub fn load(n: f64, gpus: usize, per_host: usize) -> Load {
    let (all, host) = (sides(gpus), sides(per_host.min(gpus)));
    let faces: usize = all.iter().map(|&side| (side - 1).min(2)).sum();
    let near: usize = match per_host >= gpus {
        true => faces,
        false => host.iter().map(|&side| (side - 1).min(1)).sum::<usize>().min(faces),
    };
    let face = n.powf(2.0 / 3.0).min(n);
    Load {
        rows: n,
        blocks: BLOCKS * n,
        boundary: (faces as f64 * face).min(n),
        near: near as f64 * face,
        far: (faces - near) as f64 * face,
    }
}

/// Returns the powers of two from `from` to `to`.
fn counts(from: usize, to: usize) -> impl Iterator<Item = usize> {
    std::iter::successors(Some(from.next_power_of_two()), |p| p.checked_mul(2)).take_while(move |&p| p <= to)
}

fn point(machine: &Machine, n: f64, gpus: usize) -> Result<Point> {
    let per_host = machine.gpus_per_host.min(gpus);
    let hosts = gpus.div_ceil(per_host);
    let load = load(n, gpus, per_host);
    let time = |shape, dense| machine.predict_on(&[load], gpus, shape, dense, RESTART, hosts);
    Ok(Point { gpus, hosts, nodes: n, dense: time(&DENSE, true)?, structured: time(&STRUCTURED, false)? })
}

/// Predicts weak scaling: `nodes` on each of 1, 2, 4, … GPUs.
///
/// # Errors
/// Returns the errors of [`Machine::predict`], and one if there is nothing to compute.
pub fn weak(machine: &Machine, nodes: f64, to: usize) -> Result<Vec<Point>> {
    if !(nodes.is_finite() && nodes >= 1.0) || to == 0 {
        return Err(Error::invalid(format!(
            "weak scaling of {nodes} nodes to {to} GPUs; expected at least 1 of each"
        )));
    }
    counts(1, to).map(|p| point(machine, nodes, p)).collect()
}

/// Predicts strong scaling: `unknowns` on the smallest sufficient number of GPUs, twice as many, and so on.
///
/// # Errors
/// Returns the errors of [`weak`], and one if the memory of all GPUs is not sufficient.
pub fn strong(machine: &Machine, unknowns: f64, to: usize) -> Result<Vec<Point>> {
    let nodes = unknowns * 8.0 / DENSE.node();
    if !(nodes.is_finite() && nodes >= 1.0) || to == 0 {
        return Err(Error::invalid(format!(
            "strong scaling of {unknowns} unknowns to {to} GPUs; expected at least 8 unknowns and 1 GPU"
        )));
    }
    let bytes = DENSE.product_bytes(nodes, BLOCKS * nodes) + VECTORS * nodes * DENSE.node();
    let fits = |p: usize| machine.memory == 0.0 || bytes <= 0.95 * machine.memory * p as f64;
    let first = counts(1, to).find(|&p| fits(p) && nodes >= p as f64).ok_or_else(|| {
        Error::invalid(format!(
            "{unknowns:e} unknowns need {:.0} GB, and {to} GPUs of {} have {:.0} GB; allow more \
             GPUs with --to",
            bytes / 1e9,
            machine.name,
            machine.memory * to as f64 / 1e9
        ))
    })?;
    counts(first, to).filter(|&p| nodes >= p as f64).map(|p| point(machine, nodes / p as f64, p)).collect()
}

#[cfg(test)]
mod tests {
    use super::super::machine::tests::round;
    use super::*;

    #[test]
    fn boxes_have_the_faces_of_their_grid() {
        assert_eq!((sides(1), sides(2), sides(4), sides(8)), ([1; 3], [2, 1, 1], [2, 2, 1], [2; 3]));
        assert_eq!(sides(8192), [32, 16, 16]);
        for (gpus, per_host, near, far) in [
            (1, 4, 0.0, 0.0),
            (2, 4, 1.0, 0.0),
            (4, 4, 2.0, 0.0),
            (8, 4, 2.0, 1.0),
            (8192, 4, 2.0, 4.0),
            (8, 1, 0.0, 3.0),
        ] {
            let load = load(1e6, gpus, per_host);
            let face = 1e6f64.powf(2.0 / 3.0);
            assert!((load.near / face - near).abs() < 1e-9 && (load.far / face - far).abs() < 1e-9, "{gpus}");
            assert!((load.boundary / face - near - far).abs() < 1e-9);
        }
        // A box of one node is all boundary.
        assert_eq!(load(1.0, 8, 8).boundary, 1.0);
    }

    #[test]
    fn weak_scaling_only_loses_and_strong_scaling_gains_less_than_its_gpus() {
        let machine = round();
        let weak = weak(&machine, 151_686.0, 8192).unwrap();
        assert_eq!((weak.len(), weak[13].gpus, weak[13].hosts), (14, 8192, 2048));
        for w in weak.windows(2) {
            assert!(w[1].dense.all() >= w[0].dense.all() && w[1].structured.all() >= w[0].structured.all());
        }
        let strong = strong(&machine, 1e9, 8192).unwrap();
        // 1.25e8 nodes of 4032 and 2304 bytes: 792 GB over 95 GB a GPU.
        assert_eq!(strong[0].gpus, 16);
        for w in strong.windows(2) {
            assert!(w[1].dense.all() < w[0].dense.all() && w[1].dense.all() > 0.5 * w[0].dense.all());
        }
        assert!(super::strong(&machine, 1e12, 64).unwrap_err().to_string().contains("--to"));
        assert!(super::weak(&machine, 0.0, 64).is_err());
    }
}
