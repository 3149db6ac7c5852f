//! Time of an iteration of GMRES(m) with delayed Gram–Schmidt, unpreconditioned, predicted from each rank's
//! work and messages.
//!
//! * T_Kx: the product, as measured on one GPU at the rank's size. Tiles without ghosts run during the halo
//!   exchange.
//! * T_c: the exposed part of an exchange: the cost that remains if it is hidden, plus the time by which it
//!   outlasts the product of the interior rows. Exchanges are measured in rings, where a rank has at most two
//!   neighbours. Each further message costs as much as the second does.
//! * T_Gn: projection and update, as measured on one GPU at the rank's size, and one all-reduce.
//! * The rest, once per cycle: a product, the passes at its end, an all-reduce and a synchronisation of the
//!   ranks' hosts.
//!
//! T_Kx + T_c is the largest over the ranks; T_Gn is that of the rank with most rows. Not modelled: GPUs of
//! different speeds, messages of a rank that wait for each other, and other traffic on the network.

use super::machine::{Host, Machine};
use super::{cycle_bytes, orthogonalization_bytes};
use krylith_core::operator::{Structure, Terms};
use krylith_core::partition::{Partition, Quality};
use krylith_core::{Error, Result};
use std::collections::HashSet;

/// The cost of a block row and of a block.
///
/// # Examples
/// ```
/// use krylith::{matrix::Csr, operator::Terms};
/// use krylith_model::Shape;
/// let a = Csr::from_triplets(2, 2, &[(0, 0, 2.0), (0, 1, 1.0), (1, 1, 3.0)])?;
/// let shape = Shape::of(&Terms::csr(&a)?, true);
/// // By diagonals: two entries, a number of x and a number of y per row.
/// assert_eq!(shape.product_bytes(2.0, 3.0), 2.0 * (2.0 * 8.0 + 8.0 + 8.0));
/// // By rows: three entries with their columns; a row pointer and numbers of x and y per row.
/// let by_rows = Shape { diagonals: 0, ..shape };
/// assert_eq!(by_rows.product_bytes(2.0, 3.0), 3.0 * (8.0 + 4.0) + 2.0 * (4.0 + 8.0 + 8.0));
/// # Ok::<(), krylith::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Shape {
    /// b: unknowns of a node in one stage.
    pub block: usize,
    /// s: stages of the Runge–Kutta scheme, 1 without stages.
    pub stages: usize,
    /// Number of matrices in the sum, one or two.
    pub terms: usize,
    /// True if both matrices have one pattern.
    pub shared: bool,
    /// Numbers stored per block, of all terms together: b² per term if blocks are dense.
    pub slots: usize,
    /// Numbers per row of a scalar matrix stored by diagonals; 0 if stored by rows.
    pub diagonals: usize,
}

impl Shape {
    /// Returns the shape of a system; `dense` ignores structure inside the blocks.
    pub fn of(terms: &Terms, dense: bool) -> Self {
        let (block, count) = (terms.block(), terms.terms().len());
        let slots = if dense { count * block * block } else { Structure::find(terms).slots };
        let diagonals = terms.kept_diagonals().unwrap_or(0);
        Self { block, stages: terms.stages(), terms: count, shared: terms.shared_pattern(), slots, diagonals }
    }

    /// Returns true if blocks are stored with fewer numbers than they have entries.
    pub fn is_structured(&self) -> bool {
        self.slots < self.terms * self.block * self.block
    }

    /// Returns the bytes of a node in a vector.
    pub fn node(&self) -> f64 {
        (8 * self.block * self.stages) as f64
    }

    /// Returns the bytes that a product of block rows must move; `blocks` counts all terms together.
    pub fn product_bytes(&self, rows: f64, blocks: f64) -> f64 {
        if self.diagonals > 0 {
            return (8.0 * self.diagonals as f64 + 2.0 * self.node()) * rows;
        }
        let terms = self.terms as f64;
        let numbers = 8.0 * self.slots as f64 * blocks / terms;
        let patterns = if self.shared { 1.0 } else { terms };
        numbers + 4.0 * patterns * (blocks / terms + rows) + 2.0 * self.node() * rows
    }
}

/// Work and messages of one rank for a product.
///
/// # Examples
/// One of many GPUs has a cube of n³ points of a 7-point stencil, and a neighbour at each of its six faces.
/// ```
/// use krylith_model::{Load, Machine, Shape};
/// let cube = |n: f64| {
///     let (rows, surface) = (n.powi(3), 6.0 * n * n);
///     let sent = Load { near: surface, near_neighbours: 6.0, ..Load::default() };
///     Load { rows, blocks: 7.0 * rows, boundary: surface, ..sent }
/// };
/// let shape = Shape { block: 1, stages: 1, terms: 1, shared: false, slots: 1, diagonals: 0 };
/// assert_eq!(cube(100.0).near * shape.node(), 480e3); // bytes that it sends
/// let machine = Machine::open("h200-nvlink".as_ref())?;
/// let share = |n: f64| {
///     let t = machine.predict(&[cube(n); 4], &shape, true, 30, 1)?;
///     Ok::<_, krylith::Error>(t.communication / t.all())
/// };
/// assert!(share(200.0)? < share(100.0)?); // the surface grows more slowly than the volume
/// # Ok::<(), krylith::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Load {
    /// Number of block rows.
    pub rows: f64,
    /// Number of stored blocks, all terms together.
    pub blocks: f64,
    /// Number of block rows that wait for the halo.
    pub boundary: f64,
    /// Number of nodes sent or received, whichever is larger, over links of the host.
    pub near: f64,
    /// The same over the network.
    pub far: f64,
    /// Number of ranks of the host that it exchanges with: as many messages go each way.
    pub near_neighbours: f64,
    /// The same over the network.
    pub far_neighbours: f64,
}

impl Load {
    /// Returns the number of ranks that it exchanges with.
    pub fn neighbours(&self) -> f64 {
        self.near_neighbours + self.far_neighbours
    }

    /// Returns the ghosts of a rank for each of its own nodes.
    pub fn ghosts(&self) -> f64 {
        (self.near + self.far) / self.rows.max(1.0)
    }
}

/// The messages of the rank that sends most for a product.
///
/// # Examples
/// ```
/// use krylith_model::{Load, Messages, Shape};
/// let shape = Shape { block: 1, stages: 1, terms: 1, shared: false, slots: 1, diagonals: 0 };
/// // A cube of 100³ points between others: each of its six faces goes to a neighbour.
/// let load = Load { rows: 1e6, near: 6e4, near_neighbours: 6.0, ..Load::default() };
/// let sent = Messages::of(&[load], &shape);
/// assert_eq!((sent.count, sent.bytes, sent.each()), (6.0, 480e3, 80e3));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Messages {
    /// Number of messages.
    pub count: f64,
    /// Bytes of all of them.
    pub bytes: f64,
}

impl Messages {
    /// Returns the messages of the rank that sends most.
    pub fn of(loads: &[Load], shape: &Shape) -> Self {
        let sent =
            |load: &Load| Self { count: load.neighbours(), bytes: (load.near + load.far) * shape.node() };
        loads.iter().map(sent).fold(Self::default(), |a, b| if b.bytes > a.bytes { b } else { a })
    }

    /// Returns the mean bytes of a message.
    pub fn each(&self) -> f64 {
        self.bytes / self.count.max(1.0)
    }
}

/// Seconds of an iteration, and bytes of the rank with most work; T with an index as in the OKP paper.
///
/// # Examples
/// GMRES(30) on 151,686 nodes (the OKP paper has 151,090), b = 4 and s = 2, with dense blocks. An H200 took
/// 242 µs for an iteration (`bench/runs/2026-11-25-h200-suites`).
/// ```
/// use krylith_model::{Machine, scaling};
/// let machine = Machine::open("h200-nvlink".as_ref())?;
/// let all = scaling::load(151_686.0, 1, 4); // all of it on one GPU
/// let t = machine.predict(&[all], &scaling::DENSE, true, 30, 1)?;
/// assert!((t.all() / 242e-6 - 1.0).abs() < 0.05);
/// assert_eq!(t.all(), t.product + t.communication + t.orthogonalization + t.other);
/// assert!(t.product_bytes / t.product < machine.read); // bytes a second
/// # Ok::<(), krylith::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Times {
    /// T_Kx: the product.
    pub product: f64,
    /// T_c: the exposed part of the exchange.
    pub communication: f64,
    /// T_Gn: the orthogonalisation, its all-reduce included.
    pub orthogonalization: f64,
    /// Work at the end of a cycle, divided by its iterations.
    pub other: f64,
    /// Bytes of a product.
    pub product_bytes: f64,
    /// Bytes of an orthogonalisation.
    pub orthogonalization_bytes: f64,
    /// Bytes sent for a product.
    pub sent_bytes: f64,
}

impl Times {
    /// Returns T_all: the seconds of the whole iteration.
    pub fn all(&self) -> f64 {
        self.product + self.communication + self.orthogonalization + self.other
    }
}

/// Returns ⌈log₂ n⌉.
pub(super) fn levels(n: usize) -> f64 {
    f64::from(n.max(1).next_power_of_two().trailing_zeros())
}

impl Machine {
    /// Returns the times of `gpus` GPUs of one host: those measured for this number, else for the next larger
    /// one, else for the largest one.
    fn together(&self, gpus: usize, hosts: usize) -> Result<&Host> {
        let list = if hosts == 1 && !self.peers.is_empty() { &self.peers } else { &self.nccl };
        list.iter().find(|h| h.gpus >= gpus).or(list.last()).ok_or_else(|| {
            let kind = if hosts == 1 { "[[peers]] or [[nccl]]" } else { "[[nccl]]" };
            Error::invalid(format!(
                "machine `{}` has no {kind}, which the prediction of several GPUs needs; measure it with \
                 `krylith bench links`",
                self.name
            ))
        })
    }

    /// Returns the seconds of an all-reduce of GMRES, and of a synchronisation of the hosts' threads.
    pub(super) fn sums(&self, gpus: usize, hosts: usize) -> Result<(f64, f64)> {
        if gpus == 1 {
            return Ok((0.0, 0.0));
        }
        let host = self.together(gpus.div_ceil(hosts), hosts)?;
        let between = if hosts == 1 { 0.0 } else { 2.0 * levels(hosts) * self.network()?.hop };
        // With one GPU per host, sums use the network alone.
        let within = if gpus.div_ceil(hosts) == 1 { 0.0 } else { host.all_reduce };
        Ok((within + between, host.meeting + between))
    }

    fn network(&self) -> Result<&super::Network> {
        self.network.as_ref().ok_or_else(|| {
            Error::invalid(format!(
                "machine `{}` has no section [network], which the prediction of several hosts needs; add \
                 it, or use one host",
                self.name
            ))
        })
    }

    /// Returns the seconds that one more message of a rank costs: rings of 2 and of 4 GPUs differ by it. A
    /// rank has one neighbour in the first, and two in the second.
    fn message(&self, hosts: usize) -> f64 {
        let list = if hosts == 1 && !self.peers.is_empty() { &self.peers } else { &self.nccl };
        let ring = |gpus: usize| list.iter().find(|host| host.gpus == gpus).map(|host| host.exchange.at(0.0));
        match (ring(2), ring(4)) {
            (Some(one), Some(two)) => (two - one).max(0.0),
            _ => 0.0,
        }
    }

    /// Returns the exposed part of an exchange: the seconds that it adds to the product.
    fn exposed(&self, load: &Load, shape: &Shape, product: f64, gpus: usize, hosts: usize) -> Result<f64> {
        if gpus == 1 || load.near + load.far == 0.0 {
            return Ok(0.0);
        }
        let host = self.together(gpus.div_ceil(hosts), hosts)?;
        let (near, far) = (load.near * shape.node(), load.far * shape.node());
        // The curves are those of a ring: they contain one message to a single other GPU, else two.
        let ring = if host.gpus == 2 { 1.0 } else { 2.0 };
        let beyond = |neighbours: f64, measured: f64| (neighbours - measured).max(0.0) * self.message(hosts);
        let more = beyond(load.near_neighbours, ring);
        let mut arrival = if near > 0.0 { host.exchange.at(near) + more } else { 0.0 };
        if far > 0.0 {
            let network = self.network()?;
            // The host's curve at zero bytes is the cost of launching an exchange, over a network too.
            let start = host.exchange.at(0.0);
            let more = beyond(load.far_neighbours, 1.0);
            arrival = arrival.max(start + network.latency + more + far / network.bandwidth);
        }
        let more = beyond(load.neighbours(), ring);
        let interior = product * (1.0 - load.boundary / load.rows.max(1.0));
        Ok((host.hidden.at(near + far) + more).min(arrival) + (arrival - interior).max(0.0))
    }

    /// Predicts an iteration of GMRES(m) on as many GPUs as there are loads, spread evenly over hosts.
    /// `dense` selects the kernel for dense blocks; `shape` must match it.
    ///
    /// # Errors
    /// Returns an error if the machine file lacks these kernels, several GPUs or several hosts, and if there
    /// is no load.
    pub fn predict(
        &self,
        loads: &[Load],
        shape: &Shape,
        dense: bool,
        m: usize,
        hosts: usize,
    ) -> Result<Times> {
        self.predict_on(loads, loads.len(), shape, dense, m, hosts)
    }

    /// Like [`predict`](Self::predict), with the loads of a few ranks that represent all `gpus` ranks.
    ///
    /// # Errors
    /// Returns the errors of [`predict`](Self::predict).
    pub fn predict_on(
        &self,
        loads: &[Load],
        gpus: usize,
        shape: &Shape,
        dense: bool,
        m: usize,
        hosts: usize,
    ) -> Result<Times> {
        if loads.is_empty() || m == 0 || hosts == 0 || hosts > gpus {
            return Err(Error::invalid(format!(
                "{gpus} GPUs on {hosts} hosts with restart {m}: each number must be at least 1, and each \
                 host needs a GPU"
            )));
        }
        let (name, curve) = match dense {
            true => ("dense", &self.kernels.dense),
            false => ("structured", &self.kernels.structured),
        };
        for (name, curve) in [(name, curve), ("orthogonalization", &self.kernels.orthogonalization)] {
            if curve.0.is_empty() {
                return Err(Error::invalid(format!(
                    "machine `{}` has no times kernels.{name}; measure them with `krylith bench links`",
                    self.name
                )));
            }
        }
        let mut times = Times::default();
        let mut slowest = 0.0;
        for load in loads {
            let bytes = shape.product_bytes(load.rows, load.blocks);
            let product = curve.at(bytes);
            let sum = product + self.exposed(load, shape, product, gpus, hosts)?;
            if sum > slowest {
                slowest = sum;
                (times.product, times.communication) = (product, sum - product);
            }
            times.product_bytes = times.product_bytes.max(bytes);
            times.sent_bytes = times.sent_bytes.max((load.near + load.far) * shape.node());
        }
        let rows = loads.iter().map(|l| l.rows).fold(0.0, f64::max);
        let unknowns = rows * shape.node() / 8.0;
        let (all_reduce, meeting) = self.sums(gpus, hosts)?;
        times.orthogonalization_bytes = orthogonalization_bytes(unknowns, m);
        times.orthogonalization =
            self.kernels.orthogonalization.at(times.orthogonalization_bytes) + all_reduce;
        let passes = cycle_bytes(unknowns, m) / self.read;
        times.other = (slowest + passes + all_reduce + meeting) / m as f64;
        Ok(times)
    }
}

/// Returns every rank's load; consecutive ranks share a host.
///
/// # Errors
/// Returns the errors of [`Quality::of`].
pub fn loads(terms: &Terms, partition: &Partition, hosts: usize) -> Result<Vec<Load>> {
    let quality = Quality::of(terms, partition)?;
    let (ranks, owner) = (partition.ranks, &partition.owner);
    let host = |rank: u32| rank as usize * hosts / ranks;
    // Nodes that cross between hosts, once for each rank that needs them: (node, receiving rank).
    let mut crossing = HashSet::new();
    if hosts > 1 {
        for (_, a) in terms.terms() {
            for i in 0..a.block_rows() {
                for &j in &a.col()[a.row_ptr()[i]..a.row_ptr()[i + 1]] {
                    if host(owner[i]) != host(owner[j as usize]) {
                        crossing.insert((j, owner[i]));
                    }
                }
            }
        }
    }
    let pairs: HashSet<(u32, u32)> =
        crossing.iter().map(|&(j, reader)| (owner[j as usize], reader)).collect();
    let mut others = vec![HashSet::new(); ranks];
    for (a, b) in pairs {
        others[a as usize].insert(b);
        others[b as usize].insert(a);
    }
    let (mut sent, mut received) = (vec![0usize; ranks], vec![0usize; ranks]);
    for &(j, reader) in &crossing {
        sent[owner[j as usize] as usize] += 1;
        received[reader as usize] += 1;
    }
    let shares = quality.shares.iter().enumerate();
    Ok(shares
        .map(|(r, share)| Load {
            rows: share.rows as f64,
            blocks: share.blocks as f64,
            boundary: share.boundary as f64,
            near: (share.sends - sent[r]).max(share.receives - received[r]) as f64,
            far: sent[r].max(received[r]) as f64,
            near_neighbours: (share.neighbours - others[r].len()) as f64,
            far_neighbours: others[r].len() as f64,
        })
        .collect())
}

#[cfg(test)]
mod tests {
    use super::super::machine::tests::round;
    use super::*;
    use krylith_core::partition::Partitioner;

    const SHAPE: Shape = Shape { block: 4, stages: 2, terms: 2, shared: true, slots: 32, diagonals: 0 };

    fn close(a: f64, b: f64) {
        assert!((a - b).abs() <= 1e-12 * b.abs(), "{a:e} {b:e}");
    }

    /// 1 MB of rows per GPU; all times can be checked by hand.
    fn load(near: f64, far: f64) -> Load {
        Load { rows: 1e5, blocks: 3e6, boundary: 2e4, near, far, ..Load::default() }
    }

    #[test]
    fn one_gpu_is_its_kernels_and_nothing_else() {
        let machine = round();
        // 1.5e6 blocks of 256 bytes and 4, 1e5 rows of 4 and 128 bytes: 403.2 MB.
        let bytes = 1.5e6 * 260.0 + 1e5 * 132.0;
        close(SHAPE.product_bytes(1e5, 3e6), bytes);
        let times = machine.predict(&[load(0.0, 0.0)], &SHAPE, true, 30, 1).unwrap();
        let (product, vector) = (10e-6 + bytes / 1e12, 6.4e6);
        close(times.product, product);
        close(times.orthogonalization, 20e-6 + 35.0 * vector / 1e12);
        close(times.other, (product + 39.0 * vector / 1e12) / 30.0);
        assert_eq!(times.communication, 0.0);
        close(times.all(), times.product + times.orthogonalization + times.other);
    }

    #[test]
    fn an_exchange_on_a_host_is_hidden_behind_interior_rows() {
        let machine = round();
        // 1e4 nodes of 64 bytes: 5 + 6.4 µs of exchange, hidden behind 0.8 of 413.2 µs; 1 + 0.64 µs remain.
        let times = machine.predict(&[load(1e4, 0.0); 4], &SHAPE, true, 30, 1).unwrap();
        close(times.communication, 1.64e-6);
        close(times.orthogonalization, 20e-6 + 35.0 * 6.4e6 / 1e12 + 3e-6);
        let one = machine.predict(&[load(0.0, 0.0)], &SHAPE, true, 30, 1).unwrap();
        close(times.other - one.other, (1.64e-6 + 3e-6 + 30e-6) / 30.0);
        // Without interior rows the whole exchange is exposed: 2 GPUs, 4 + 6.4 µs.
        let all = Load { boundary: 1e5, ..load(1e4, 0.0) };
        let times = machine.predict(&[all; 2], &SHAPE, true, 30, 1).unwrap();
        close(times.communication, 1.64e-6 + 10.4e-6);
    }

    #[test]
    fn further_neighbours_cost_a_message_each() {
        let machine = round();
        // Without interior rows: 4 GPUs, 5 + 6.4 µs exposed and 1.64 µs that remain. Both contain a second
        // neighbour. Rings of 4 and of 2 GPUs differ by 1 µs.
        let all = Load { boundary: 1e5, ..load(1e4, 0.0) };
        let time = |near_neighbours: f64| {
            let load = Load { near_neighbours, ..all };
            machine.predict(&[load; 4], &SHAPE, true, 30, 1).unwrap().communication
        };
        close(time(2.0), 1.64e-6 + 11.4e-6);
        close(time(3.0), 2.64e-6 + 12.4e-6);
        // Six faces over a network: five more messages than one, four more than two in the ring of a host.
        let far = Load { boundary: 1e5, far_neighbours: 6.0, ..load(0.0, 1e4) };
        let times = machine.predict_on(&[far], 32, &SHAPE, true, 30, 8).unwrap();
        close(times.communication, 1.64e-6 + 4e-6 + 15e-6 + 5e-6 + 5e-6 + 64e-6);
    }

    #[test]
    fn hosts_add_their_network() {
        let machine = round();
        let all = Load { boundary: 1e5, ..load(0.0, 1e4) };
        // NCCL's fixed cost for 4 GPUs per host, 5 µs; 640 KB at 10 GB/s; three levels of hosts up and down.
        let times = machine.predict_on(&[all], 32, &SHAPE, true, 30, 8).unwrap();
        close(times.communication, 1.64e-6 + 15e-6 + 5e-6 + 64e-6);
        close(times.orthogonalization, 20e-6 + 35.0 * 6.4e6 / 1e12 + 9e-6 + 24e-6);
        let mut alone = machine.clone();
        alone.network = None;
        let e = alone.predict_on(&[all], 32, &SHAPE, true, 30, 8).unwrap_err().to_string();
        assert!(e.contains("[network]"), "{e}");
        alone.peers.clear();
        alone.nccl.clear();
        let e = alone.predict_on(&[all], 4, &SHAPE, true, 30, 1).unwrap_err().to_string();
        assert!(e.contains("[[peers]]"), "{e}");
        alone.kernels.structured.0.clear();
        let e = alone.predict(&[all], &SHAPE, false, 30, 1).unwrap_err().to_string();
        assert!(e.contains("kernels.structured"), "{e}");
        assert!(machine.predict(&[], &SHAPE, true, 30, 1).is_err());
    }

    #[test]
    fn more_of_anything_takes_longer() {
        let machine = round();
        let time =
            |l: Load, gpus, hosts| machine.predict_on(&[l], gpus, &SHAPE, true, 30, hosts).unwrap().all();
        let base = load(1e4, 1e4);
        let t = time(base, 32, 8);
        for more in [
            Load { rows: 2e5, ..base },
            Load { blocks: 6e6, ..base },
            Load { near: 1e6, ..base },
            Load { far: 1e5, ..base },
            Load { boundary: 1e5, far: 1e5, ..base },
        ] {
            assert!(time(more, 32, 8) > t, "{more:?}");
        }
        assert!(time(base, 64, 16) > t);
        // The slowest rank counts, at any position.
        let slow = Load { blocks: 6e6, ..base };
        let mixed = machine.predict_on(&[base, slow, base, base], 4, &SHAPE, true, 30, 1).unwrap();
        assert_eq!(mixed.product, machine.predict_on(&[slow], 4, &SHAPE, true, 30, 1).unwrap().product);
    }

    #[test]
    fn loads_are_those_of_the_partition() {
        let made = krylith_problems::generate("stokes:4x4x8").unwrap();
        let krylith_problems::SystemKind::Kronecker(k) = made.system else { panic!("a Kronecker sum") };
        let terms = Terms::kronecker(&k);
        let partition = Partitioner::Rows.partition(&terms, None, 4).unwrap();
        // Slabs of two layers of 16 nodes: one layer to each side, every row at the boundary; hosts of two
        // ranks.
        let found = loads(&terms, &partition, 2).unwrap();
        assert_eq!(found.iter().map(|l| l.rows).collect::<Vec<_>>(), [32.0; 4]);
        assert_eq!(found.iter().map(|l| l.boundary).collect::<Vec<_>>(), [16.0, 32.0, 32.0, 16.0]);
        assert_eq!(
            found.iter().map(|l| (l.near, l.far)).collect::<Vec<_>>(),
            [(16.0, 0.0), (16.0, 16.0), (16.0, 16.0), (16.0, 0.0)]
        );
        assert_eq!(
            found.iter().map(|l| (l.near_neighbours, l.far_neighbours)).collect::<Vec<_>>(),
            [(1.0, 0.0), (1.0, 1.0), (1.0, 1.0), (1.0, 0.0)]
        );
        let whole = loads(&terms, &partition, 1).unwrap();
        assert_eq!((whole[1].near, whole[1].far), (32.0, 0.0));
        let all: f64 = whole.iter().map(|l| l.blocks).sum();
        assert_eq!(all, (k.m.blocks() + k.l.blocks()) as f64);
    }
}
