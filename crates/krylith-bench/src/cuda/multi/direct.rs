//! Products with messages from device to device through NCCL: with CU-Solver's kernels, and the OKP paper's
//! own as published.

use super::super::fastest;
use super::super::paper::Kernels;
use super::super::products::{Blocks, CuSolver, Layout, uploaded};
use super::rank::Rank;
use crate::multi::share::main_and_off;
use crate::multi::{Part, mapping};
use krylith_core::comm::Communicator;
use krylith_core::device::cuda::Buffer;
use krylith_core::partition::{self, Halo};
use krylith_core::{Error, Result};
use std::rc::Rc;

/// Returns rank, address and count of every message to send and to receive, with `of_node` numbers per node.
fn messages<'a>(
    halo: &'a Halo,
    of_node: usize,
    send: &'a Buffer<f64>,
    raw: &'a Buffer<f64>,
) -> (impl Iterator<Item = (usize, u64, usize)> + 'a, impl Iterator<Item = (usize, u64, usize)> + 'a) {
    let message = move |rank: usize, buffer: &Buffer<f64>, nodes: &std::ops::Range<usize>| {
        (rank, buffer.at(nodes.start * of_node), nodes.len() * of_node)
    };
    let sent = halo.neighbours.iter().map(move |n| message(n.rank, send, &n.send));
    (sent, halo.neighbours.iter().map(move |n| message(n.rank, raw, &n.receive)))
}

/// Exchange of one message per neighbour for all segments, from device to device.
struct Exchange {
    rank: Rc<Rank>,
    halo: Halo,
    b: usize,
    segments: usize,
    /// Sent and received messages, neighbour by neighbour.
    send: Buffer<f64>,
    raw: Buffer<f64>,
    /// The receive map of Alg. 6.
    map: Buffer<i32>,
    /// Ghosts, segment by segment.
    ghosts: Buffer<f64>,
}

impl Exchange {
    fn new(rank: &Rc<Rank>, halo: &Halo, b: usize, segments: usize) -> Result<Self> {
        let (vendor, (_, starts)) = (&rank.vendor, mapping::starts(halo));
        let (sent, received) = (halo.send.len() * b * segments, halo.ghosts * b * segments);
        Ok(Self {
            rank: rank.clone(),
            halo: halo.clone(),
            b,
            segments,
            send: vendor.zeros(sent)?,
            raw: vendor.zeros(received)?,
            map: vendor.device.upload(&mapping::receive_map(&starts, b, segments), "a receive map")?,
            ghosts: vendor.zeros(received)?,
        })
    }
    /// Sends the contents of `send`, and sorts the received data into segments.
    fn run(&self) -> Result<()> {
        let (rank, of_node) = (&self.rank, self.b * self.segments);
        let Some(nccl) = &rank.nccl else { return Ok(()) };
        rank.clock.mark(Part::Communication);
        let (send, receive) = messages(&self.halo, of_node, &self.send, &self.raw);
        // SAFETY: the ranges lie in buffers that live as long as this exchange.
        unsafe { nccl.exchange_at(rank.messages(), send, receive)? };
        rank.clock.mark(Part::Transfer);
        rank.gather(self.raw.len(), self.map.pointer(), self.raw.pointer(), self.ghosts.pointer())
    }
    /// Returns the address of a segment's ghosts.
    fn segment(&self, i: usize) -> u64 {
        self.ghosts.at(i * self.halo.ghosts * self.b)
    }
}

/// A product with CU-Solver's kernels and one exchange: x̃ for both matrices and all stages, into the ghosts
/// after x̃.
///
/// Nothing overlaps: most rows of an off-diagonal part are empty, and `cusparseDbsrmv` on it takes longer
/// than the exchange that it would hide. Measured on two H200s at the paper's size: 80 µs against 30 µs.
pub(super) struct NcclProduct {
    matrices: CuSolver,
    rank: Rc<Rank>,
    halo: Halo,
    pack: Buffer<i32>,
    unpack: Buffer<i32>,
    send: Buffer<f64>,
    raw: Buffer<f64>,
}

impl NcclProduct {
    pub fn new(rank: &Rc<Rank>, matrices: CuSolver, halo: &Halo) -> Result<Self> {
        let (b, segments) = (matrices.block, 2 * matrices.stages);
        let (c, (starts, arriving)) = (mapping::index_array(halo, b), mapping::starts(halo));
        if segments * matrices.p > i32::MAX as usize {
            return Err(Error::Unsupported("a rank's vectors are too long for 32-bit maps".into()));
        }
        let pack = mapping::send_gather(&c, &starts, b, segments, matrices.p);
        let unpack = mapping::receive_scatter(&arriving, b, segments, (matrices.p, matrices.q));
        let (vendor, device) = (&rank.vendor, &rank.vendor.device);
        Ok(Self {
            send: vendor.zeros(pack.len())?,
            raw: vendor.zeros(unpack.len())?,
            pack: device.upload(&pack, "a map")?,
            unpack: device.upload(&unpack, "a map")?,
            rank: rank.clone(),
            halo: halo.clone(),
            matrices,
        })
    }
}

impl NcclProduct {
    pub fn multiply(&self, x: u64, y: u64) -> Result<()> {
        let (rank, matrices, s) = (&self.rank, &self.matrices, self.matrices.stages);
        rank.clock.mark(Part::Product);
        (0..2).try_for_each(|t| matrices.combine(t, x))?;
        if let Some(nccl) = &rank.nccl {
            let (middle, of_node) = (matrices.middle(0, 0), 2 * s * matrices.block);
            rank.clock.mark(Part::Transfer);
            rank.gather_in_order(self.pack.len(), self.pack.pointer(), middle, self.send.pointer())?;
            rank.clock.mark(Part::Communication);
            let stream = rank.vendor.device.stream().cu_stream();
            let (send, receive) = messages(&self.halo, of_node, &self.send, &self.raw);
            // SAFETY: the ranges lie in buffers that live as long as this product.
            unsafe { nccl.exchange_at(stream, send, receive)? };
            rank.clock.mark(Part::Transfer);
            rank.scatter_in_order(self.unpack.len(), self.unpack.pointer(), self.raw.pointer(), middle)?;
            rank.clock.mark(Part::Product);
        }
        for t in 0..2 {
            (0..s).try_for_each(|i| matrices.product(0, t, i, y))?;
        }
        Ok(())
    }
}

/// OKP-Solver's product as published: Alg. 2 and 3, parallel buffering (Alg. 5), maps (Alg. 6), and one
/// message per neighbour and matrix, from device to device.
pub(super) struct OkpProduct {
    rank: Rc<Rank>,
    kernels: Kernels,
    coefficients: [Buffer<f64>; 2],
    main: [Blocks; 2],
    off: [Blocks; 2],
    middle: [Buffer<f64>; 2],
    q: usize,
    index: Buffer<i32>,
    send_map: Buffer<i32>,
    buffer: Buffer<f64>,
    exchanges: [Exchange; 2],
}

impl OkpProduct {
    /// Creates the product with the number of threads per block with which the row kernel is fastest here;
    /// the paper gives none.
    ///
    /// # Errors
    /// Returns an error for a block size over 5, for a missing library, and if memory is not sufficient.
    pub fn new(rank: &Rc<Rank>, part: &partition::Part) -> Result<Self> {
        let (vendor, b, s) = (&rank.vendor, part.terms.block(), part.terms.stages());
        let (halo, q) = (&part.halo, part.halo.own * b);
        let [[m, l], [m_off, l_off]] = &main_and_off(part)?;
        let main = Blocks::pair(vendor, [m, l], Layout::Columns)?;
        let middle = [vendor.zeros(s * q)?, vendor.zeros(s * q)?];
        let (x, y) = (middle[0].pointer(), middle[1].pointer());
        let load = |threads| Kernels::load(vendor, b, s, threads);
        let (_, kernels) = fastest(vendor, [64, 128, 256], load, |k| k.rows(&main[0], x, q, false, y))?;
        let device = &vendor.device;
        let (starts, _) = mapping::starts(halo);
        let new = || Exchange::new(rank, halo, b, s);
        Ok(Self {
            coefficients: uploaded(vendor, &part.terms)?,
            off: Blocks::pair(vendor, [m_off, l_off], Layout::Columns)?,
            index: device.upload(&mapping::index_array(halo, b), "an index array")?,
            send_map: device.upload(&mapping::send_map(&starts, b, s), "a send map")?,
            buffer: vendor.zeros(halo.send.len() * b * s)?,
            exchanges: [new()?, new()?],
            rank: rank.clone(),
            kernels,
            main,
            middle,
            q,
        })
    }

    /// Buffers, reorders, exchanges and reorders the received data.
    fn communicate(&self, t: usize) -> Result<()> {
        let (rank, exchange, l) = (&self.rank, &self.exchanges[t], self.buffer.len());
        rank.clock.mark(Part::Transfer);
        rank.messages_after_work()?;
        let (x, c, size) = (self.middle[t].pointer(), self.index.pointer(), (exchange.b, exchange.segments));
        rank.buffer(x, self.q, c, l, size, self.buffer.pointer())?;
        rank.gather(l, self.send_map.pointer(), self.buffer.pointer(), exchange.send.pointer())?;
        exchange.run()
    }
}

impl OkpProduct {
    pub fn multiply(&self, x: u64, y: u64) -> Result<()> {
        let (rank, q) = (&self.rank, self.q);
        let alone = rank.comm.size() == 1;
        for t in 0..2 {
            rank.clock.mark(Part::Product);
            let middle = self.middle[t].pointer();
            self.kernels.combine(q, self.coefficients[t].pointer(), x, middle)?;
            if !alone {
                self.communicate(t)?;
                rank.clock.mark(Part::Product);
            }
            self.kernels.rows(&self.main[t], middle, q, t == 1, y)?;
            if !alone {
                rank.work_after_messages()?;
                let exchange = &self.exchanges[t];
                self.kernels.rows(
                    &self.off[t],
                    exchange.segment(0),
                    exchange.halo.ghosts * exchange.b,
                    true,
                    y,
                )?;
            }
        }
        Ok(())
    }
}
