//! Weak and strong scaling on more GPUs than a partition can be built for: each GPU has an equal share of the
//! nodes of a grid, as a box or as a slab.
//!
//! A box of n nodes is a cube. GPUs form a grid as nearly cubic as powers of two allow, and so do those of a
//! host. A box sends n^⅔ nodes through each face that has a neighbour. Slabs cut the same grid across its
//! longest side, and send whole planes. If there are more GPUs than planes, a GPU has a part of a plane, and
//! all nodes of the planes beside it are ghosts. The prediction uses the worst placed GPU: neighbours on all
//! sides, and only the nearest ones on its own host. Nodes of edges and corners are counted with the faces,
//! but their messages are counted one by one.

use super::Machine;
use super::predict::{Load, Shape, Times};
use krylith_core::partition::{GridBoxes, Stencil, boxes_are_better};
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

/// The way in which a grid is cut for GPUs.
///
/// # Examples
/// ```
/// use krylith_model::{Machine, scaling::{self, Cut}};
/// let machine = Machine::open("jupiter".as_ref())?;
/// let last = |cut| Ok::<_, krylith::Error>(scaling::weak(&machine, 1e5, 512, cut)?[9].dense.all());
/// assert!(last(Cut::Boxes)? < last(Cut::Slabs)?); // on 512 GPUs
/// assert_eq!(last(Cut::Auto)?, last(Cut::Boxes)?);
/// # Ok::<(), krylith::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Cut {
    /// The choice of `partition=auto`.
    #[default]
    Auto,
    /// Slabs: runs of rows.
    Slabs,
    /// Boxes.
    Boxes,
}

/// A prediction for one number of GPUs.
///
/// # Examples
/// ```
/// use krylith_model::{Machine, scaling::{self, Cut}};
/// let machine = Machine::open("jupiter".as_ref())?;
/// let weak = scaling::weak(&machine, 1e6, 1024, Cut::Boxes)?; // a million nodes on each GPU
/// let (first, last) = (&weak[0], &weak[10]);
/// assert_eq!((last.gpus, last.hosts, last.nodes), (1024, 256, 1e6));
/// assert_eq!(last.boxes.neighbours(), 14.0); // 6 faces, 6 of 12 edges and 2 of 8 corners
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
    /// True if the times are those of boxes, false for slabs.
    pub in_boxes: bool,
    /// Time of an iteration of GMRES(30) with dense blocks.
    pub dense: Times,
    /// The same with structured blocks.
    pub structured: Times,
    /// Work and messages of the worst placed GPU with a slab.
    pub slabs: Load,
    /// The same with a box.
    pub boxes: Load,
    /// Seconds of an iteration with dense blocks, in slabs and in boxes.
    pub seconds: [f64; 2],
}

/// Returns the sides of a grid of 2^k boxes, largest first.
fn sides(count: usize) -> [usize; 3] {
    let k = count.next_power_of_two().trailing_zeros() as usize;
    std::array::from_fn(|d| 1 << ((k + 2 - d) / 3))
}

/// Equal shares of a grid.
#[derive(Debug, Clone, Copy)]
struct Shares {
    /// Nodes of a GPU.
    n: f64,
    /// Stored blocks of a row.
    blocks: f64,
    stencil: Stencil,
    gpus: usize,
    per_host: usize,
}

impl Shares {
    /// Returns the number of neighbours of the worst placed box among boxes with these `sides`.
    fn neighbours(&self, sides: [usize; 3], inside: bool) -> f64 {
        let Ok(boxes) = GridBoxes::new(sides, sides.iter().product(), Some(sides)) else { return 0.0 };
        // Second along each axis that has a third, else first.
        let place = sides.map(|side| usize::from(inside && side > 2));
        let rank = place[0] + sides[0] * (place[1] + sides[1] * place[2]);
        boxes.halo(rank, self.stencil).len() as f64
    }

    /// Returns the load of the worst placed box.
    fn boxes(&self) -> Load {
        let Self { n, gpus, per_host, .. } = *self;
        let (all, host) = (sides(gpus), sides(per_host.min(gpus)));
        let faces: usize = all.iter().map(|&side| (side - 1).min(2)).sum();
        let neighbours = self.neighbours(all, true);
        let (near, near_neighbours) = match per_host >= gpus {
            true => (faces, neighbours),
            false => {
                let near = host.iter().map(|&side| (side - 1).min(1)).sum::<usize>().min(faces);
                (near, self.neighbours(host, false).min(neighbours))
            }
        };
        let face = n.powf(2.0 / 3.0).min(n);
        Load {
            rows: n,
            blocks: self.blocks * n,
            boundary: (faces as f64 * face).min(n),
            near: near as f64 * face,
            far: (faces - near) as f64 * face,
            near_neighbours,
            far_neighbours: neighbours - near_neighbours,
        }
    }

    /// Returns the load of the worst placed slab of the same grid.
    fn slabs(&self) -> Load {
        let Self { n, gpus, per_host, .. } = *self;
        let ([longest, _, _], edge) = (sides(gpus), n.cbrt());
        // Nodes of a plane across the longest side, and the sides of a slab that have a neighbour.
        let plane = gpus as f64 / longest as f64 * edge * edge;
        let both = (gpus - 1).min(2) as f64;
        let (ghosts, neighbours) = match plane <= n {
            true => (both * plane, both),
            // A part of a plane: its neighbours in the plane, and those in the planes beside, each of which
            // lies across the ends of two parts.
            false => (both * (n + n.min(edge * longest as f64)), (3.0 * both).min((gpus - 1) as f64)),
        };
        // Consecutive GPUs share a host; the worst placed one is the first or the last of its host.
        let near = match (per_host >= gpus, per_host > 1 && plane <= n) {
            (true, _) => 1.0,
            (_, true) => 1.0 / both.max(1.0),
            _ => 0.0,
        };
        Load {
            rows: n,
            blocks: self.blocks * n,
            boundary: ghosts.min(n),
            near: near * ghosts,
            far: (1.0 - near) * ghosts,
            near_neighbours: near * neighbours,
            far_neighbours: (1.0 - near) * neighbours,
        }
    }
}

/// Returns the load of the worst placed of `gpus` GPUs with a box of `n` nodes each, `per_host` on a host.
pub fn load(n: f64, gpus: usize, per_host: usize) -> Load {
    Shares { n, blocks: BLOCKS, stencil: Stencil::Paths, gpus, per_host }.boxes()
}

/// Returns the same load for slabs.
pub fn slab(n: f64, gpus: usize, per_host: usize) -> Load {
    Shares { n, blocks: BLOCKS, stencil: Stencil::Paths, gpus, per_host }.slabs()
}

/// Returns the powers of two from `from` to `to`.
fn counts(from: usize, to: usize) -> impl Iterator<Item = usize> {
    std::iter::successors(Some(from.next_power_of_two()), |p| p.checked_mul(2)).take_while(move |&p| p <= to)
}

fn point(machine: &Machine, n: f64, gpus: usize, cut: Cut) -> Result<Point> {
    let per_host = machine.gpus_per_host.min(gpus);
    let hosts = gpus.div_ceil(per_host);
    let (slabs, boxes) = (slab(n, gpus, per_host), load(n, gpus, per_host));
    let time = |load, shape, dense| machine.predict_on(&[load], gpus, shape, dense, RESTART, hosts);
    let in_boxes = match cut {
        Cut::Auto => boxes_are_better(slabs.ghosts(), boxes.ghosts()),
        Cut::Slabs => false,
        Cut::Boxes => true,
    };
    let taken = if in_boxes { boxes } else { slabs };
    Ok(Point {
        gpus,
        hosts,
        nodes: n,
        in_boxes,
        dense: time(taken, &DENSE, true)?,
        structured: time(taken, &STRUCTURED, false)?,
        slabs,
        boxes,
        seconds: [time(slabs, &DENSE, true)?.all(), time(boxes, &DENSE, true)?.all()],
    })
}

/// Predicts weak scaling: `nodes` on each of 1, 2, 4, … GPUs.
///
/// # Errors
/// Returns the errors of [`Machine::predict`], and one if there is nothing to compute.
pub fn weak(machine: &Machine, nodes: f64, to: usize, cut: Cut) -> Result<Vec<Point>> {
    if !(nodes.is_finite() && nodes >= 1.0) || to == 0 {
        return Err(Error::invalid(format!(
            "weak scaling of {nodes} nodes to {to} GPUs; expected at least 1 of each"
        )));
    }
    counts(1, to).map(|p| point(machine, nodes, p, cut)).collect()
}

/// Predicts strong scaling: `unknowns` on the smallest sufficient number of GPUs, twice as many, and so on.
///
/// # Errors
/// Returns the errors of [`weak`], and one if the memory of all GPUs is not sufficient.
pub fn strong(machine: &Machine, unknowns: f64, to: usize, cut: Cut) -> Result<Vec<Point>> {
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
    counts(first, to)
        .filter(|&p| nodes >= p as f64)
        .map(|p| point(machine, nodes / p as f64, p, cut))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::super::machine::tests::round;
    use super::super::predict::loads;
    use super::*;
    use krylith_core::operator::Terms;
    use krylith_core::partition::Partition;

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

    /// The model's boxes and slabs are those of the partition of a real grid.
    #[test]
    fn loads_are_those_of_partitions_of_a_grid() {
        for (text, stencil, blocks) in [("laplace", Stencil::Faces, 7.0), ("stokes", Stencil::Paths, 30.0)] {
            for (gpus, side) in [(2, 6), (4, 4), (8, 4), (32, 3)] {
                let [z, y, x] = sides(gpus);
                let grid = [x * side, y * side, z * side];
                let made = krylith_problems::generate(&format!("{text}:{}x{}x{}", grid[0], grid[1], grid[2]))
                    .unwrap();
                let terms = match &made.system {
                    krylith_problems::SystemKind::Csr(a) => Terms::csr(a).unwrap(),
                    krylith_problems::SystemKind::Kronecker(k) => Terms::kronecker(k),
                    other => panic!("{other:?}"),
                };
                let shares = Shares { n: (side * side * side) as f64, blocks, stencil, gpus, per_host: gpus };
                for (name, model, shape) in
                    [("boxes", shares.boxes(), [x, y, z]), ("slabs", shares.slabs(), [1, 1, gpus])]
                {
                    let case = format!("{text} {grid:?} on {gpus} in {name}");
                    if name == "slabs" && gpus > grid[2] {
                        continue;
                    }
                    let partition = Partition::boxes(grid, gpus, Some(shape)).unwrap();
                    let found = loads(&terms, &partition, 1).unwrap();
                    let most = |of: fn(&Load) -> f64| found.iter().map(of).fold(0.0, f64::max);
                    // Edges and corners, which the model counts with the faces, add nodes of their own.
                    let edges =
                        if stencil == Stencil::Faces || name == "slabs" { 0.0 } else { 8.0 * side as f64 };
                    let ghosts = most(|l| l.near);
                    assert!(
                        ghosts >= model.near - 1e-9 && ghosts <= model.near + edges + 1e-9,
                        "{case}: {ghosts}"
                    );
                    assert_eq!(most(|l| l.near_neighbours), model.near_neighbours, "{case}");
                    assert_eq!(most(|l| l.rows), model.rows, "{case}");
                    assert!(most(|l| l.boundary) <= model.boundary + 1e-9, "{case}");
                }
            }
        }
    }

    /// JUPITER's pressure grid has 1280×1280×4608 cells; a cube as long is 4608³.
    #[test]
    fn ghosts_of_512_gpus_are_those_by_hand() {
        let of = |n: f64| Shares { n, blocks: 7.0, stencil: Stencil::Faces, gpus: 512, per_host: 4 };
        // Cubes of 576³ nodes: six faces. Slabs of 9 planes: two.
        let cube = of(576.0f64.powi(3));
        assert!((cube.boxes().ghosts() - 6.0 / 576.0).abs() < 1e-12);
        assert!((cube.slabs().ghosts() - 2.0 / 9.0).abs() < 1e-12);
        assert_eq!((cube.boxes().neighbours(), cube.slabs().neighbours()), (6.0, 2.0));
        let corners = Shares { stencil: Stencil::Corners, ..cube };
        assert_eq!(corners.boxes().neighbours(), 26.0);
        // With fewer planes than GPUs, both planes beside a part are ghosts.
        let thin = of(27.0);
        assert!(thin.slabs().ghosts() > 2.0 && thin.slabs().ghosts() <= 4.0);
        assert_eq!((thin.slabs().boundary, thin.slabs().near), (27.0, 0.0));
        assert_eq!(of(1.0).boxes().boundary, 1.0);
    }

    #[test]
    fn auto_takes_boxes_by_the_rule_of_partitions() {
        let machine = round();
        let points = weak(&machine, 151_686.0, 8192, Cut::Auto).unwrap();
        for p in &points {
            let many = p.slabs.ghosts() > 0.25;
            assert_eq!(p.in_boxes, many, "{}", p.gpus);
            assert_eq!(p.dense.all(), p.seconds[usize::from(p.in_boxes)]);
        }
        assert!(!points[0].in_boxes && points[0].slabs.ghosts() == 0.0 && points[13].in_boxes);
        // Slabs need more ghosts on more GPUs, until every node is one; boxes do not from 64 GPUs on.
        for w in points.windows(2) {
            assert!(w[1].slabs.ghosts() >= w[0].slabs.ghosts() && w[1].boxes.ghosts() >= w[0].boxes.ghosts());
        }
        assert_eq!(points[6].boxes.ghosts(), points[13].boxes.ghosts());
        assert!(points[13].seconds[0] > points[13].seconds[1]);
    }

    #[test]
    fn weak_scaling_only_loses_and_strong_scaling_gains_less_than_its_gpus() {
        let machine = round();
        let weak = weak(&machine, 151_686.0, 8192, Cut::Boxes).unwrap();
        assert_eq!((weak.len(), weak[13].gpus, weak[13].hosts), (14, 8192, 2048));
        for w in weak.windows(2) {
            assert!(w[1].dense.all() >= w[0].dense.all() && w[1].structured.all() >= w[0].structured.all());
        }
        let strong = strong(&machine, 1e9, 8192, Cut::Boxes).unwrap();
        // 1.25e8 nodes of 4032 and 2304 bytes: 792 GB over 95 GB a GPU.
        assert_eq!(strong[0].gpus, 16);
        for w in strong.windows(2) {
            assert!(w[1].dense.all() < w[0].dense.all() && w[1].dense.all() > 0.5 * w[0].dense.all());
        }
        assert!(super::strong(&machine, 1e12, 64, Cut::Boxes).unwrap_err().to_string().contains("--to"));
        assert!(super::weak(&machine, 0.0, 64, Cut::Boxes).is_err());
    }
}
