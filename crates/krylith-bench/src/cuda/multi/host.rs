//! CU-Solver's product as published (Alg. 4 of the OKP paper): s exchanges for each matrix, each through the
//! host.
//!
//! It runs at its best: pinned memory, copies on a stream concurrent with the main-diagonal products, and
//! only waits that the data require. As published, all of x̃ goes to the host, where the scatter selects what
//! neighbours need ([`Staging::Whole`]). [`Staging::Packed`] first gathers that on the device, which the
//! paper does not do.

use super::super::products::{Blocks, CuSolver};
use super::super::vendor::Pinned;
use super::rank::Rank;
use crate::multi::share::{Run, main_and_off, runs};
use crate::multi::{Part, mapping};
use cudarc::driver::CudaEvent;
use cudarc::driver::result as driver;
use krylith_core::Result;
use krylith_core::comm::{Channel, Communicator, Message};
use krylith_core::device::cuda::Buffer;
use krylith_core::partition;
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::{Arc, OnceLock};

/// The part of x̃ that goes to the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Staging {
    Whole,
    Packed,
}

/// Each rank's host copy of x̃, visible to all ranks.
///
/// A copy has a slot for each matrix and stage. The device fills a slot, the thread announces it, and
/// neighbours read it before they announce their own next slot. A slot is filled again one product later;
/// before that, the rank waits for every neighbour's next slot. So no slot is read while it is written.
pub(super) type Board = Arc<Vec<OnceLock<Pinned>>>;

pub(super) struct HostProduct {
    rank: Rc<Rank>,
    /// Main-diagonal parts and off-diagonal parts.
    matrices: CuSolver,
    off: [Blocks; 2],
    staging: Staging,
    board: Board,
    parts: Arc<Vec<partition::Part>>,
    runs: Vec<Run>,
    /// Numbers per slot on the host, for every rank.
    slot: Vec<usize>,
    map: Buffer<i32>,
    packed: Buffer<f64>,
    /// Ghosts, one slot per matrix and stage.
    received: Pinned,
    ghosts: Buffer<f64>,
    copied: Vec<CudaEvent>,
    /// A message to and from each neighbour, which says that its slot is filled.
    word: RefCell<Box<dyn Channel>>,
}

impl HostProduct {
    pub fn new(
        rank: &Rc<Rank>,
        parts: &Arc<Vec<partition::Part>>,
        staging: Staging,
        board: Board,
    ) -> Result<Self> {
        let me = rank.comm.rank();
        let [[m, l], [m_off, l_off]] = &main_and_off(&parts[me])?;
        let matrices = CuSolver::of(&rank.vendor, &parts[me].terms, [m, l], 1, true)?;
        let off = Blocks::pair(&rank.vendor, [m_off, l_off], matrices.layout())?;
        let (b, slots) = (matrices.block, 2 * matrices.stages);
        let halo = &parts[me].halo;
        let of = |h: &partition::Halo| b * if staging == Staging::Whole { h.own } else { h.send.len() };
        let slot: Vec<usize> = parts.iter().map(|p| of(&p.halo)).collect();
        let c = mapping::index_array(halo, b);
        let (starts, _) = mapping::starts(halo);
        let ghosts = halo.ghosts * b;
        let device = &rank.vendor.device;
        let words: Vec<Message> = halo
            .neighbours
            .iter()
            .enumerate()
            .map(|(i, n)| Message { rank: n.rank, send: i..i + 1, receive: i..i + 1 })
            .collect();
        let filled = board[me].set(Pinned::new(&rank.vendor, slots * slot[me])?);
        debug_assert!(filled.is_ok(), "each rank brings one copy");
        Ok(Self {
            runs: runs(parts, me),
            map: device.upload(&mapping::send_gather(&c, &starts, b, 1, halo.own * b), "a map")?,
            packed: rank.vendor.zeros(slots * c.len() * b)?,
            received: Pinned::new(&rank.vendor, slots * ghosts)?,
            ghosts: rank.vendor.zeros(slots * ghosts)?,
            word: RefCell::new(rank.comm.channel(&words)?),
            copied: (0..slots).map(|_| rank.vendor.event(false)).collect::<Result<_>>()?,
            rank: rank.clone(),
            parts: parts.clone(),
            slot,
            matrices,
            off,
            staging,
            board,
        })
    }

    /// Starts the copy of x̃ of a slot to the host.
    fn bring(&self, at: usize, x: u64) -> Result<()> {
        let (rank, me) = (&self.rank, self.rank.comm.rank());
        let len = self.slot[me];
        let from = match self.staging {
            Staging::Whole => x,
            Staging::Packed => {
                let to = self.packed.at(at * len);
                rank.gather(len, self.map.pointer(), x, to)?;
                to
            }
        };
        if let Some(copy) = self.board[me].get() {
            // SAFETY: see `Board`.
            let to = unsafe { copy.write(at * len, len) };
            // SAFETY: both sides hold `len` numbers and outlive the copy.
            let done = unsafe { driver::memcpy_dtoh_async(to, from, rank.messages()) };
            done.map_err(|e| rank.vendor.failure("cuMemcpyDtoHAsync", e))?;
        }
        rank.record(&self.copied[at])
    }

    /// VecScatter: waits for the neighbours' slots and gathers the ghosts from them.
    fn scatter(&self, at: usize) -> Result<()> {
        let (rank, me, b) = (&self.rank, self.rank.comm.rank(), self.matrices.block);
        rank.wait_for(&self.copied[at])?;
        let halo = &self.parts[me].halo;
        let mut word = self.word.borrow_mut();
        word.start()?;
        word.finish()?;
        // SAFETY: the device read this slot one product ago, before the wait for the residual or for a sum.
        let to = unsafe { self.received.write(at * halo.ghosts * b, halo.ghosts * b) };
        match self.staging {
            Staging::Whole => {
                for r in &self.runs {
                    if let Some(copy) = self.board[r.rank].get() {
                        // SAFETY: see `Board`.
                        let from = unsafe { copy.read(at * self.slot[r.rank] + r.from * b, r.nodes * b) };
                        to[r.to * b..(r.to + r.nodes) * b].copy_from_slice(from);
                    }
                }
            }
            Staging::Packed => {
                for n in &halo.neighbours {
                    let theirs = self.parts[n.rank].halo.neighbours.iter().find(|m| m.rank == me);
                    if let (Some(copy), Some(theirs)) = (self.board[n.rank].get(), theirs) {
                        let (begin, len) = (theirs.send.start * b, theirs.send.len() * b);
                        // SAFETY: see `Board`.
                        let from = unsafe { copy.read(at * self.slot[n.rank] + begin, len) };
                        to[n.receive.start * b..n.receive.end * b].copy_from_slice(from);
                    }
                }
            }
        }
        Ok(())
    }

    /// Starts the copy of a slot's ghosts to the device, and makes the work wait for it; returns their
    /// address.
    fn send_up(&self, at: usize) -> Result<u64> {
        let len = self.parts[self.rank.comm.rank()].halo.ghosts * self.matrices.block;
        // SAFETY: written by `scatter`, and not again before the device has read it.
        let from = unsafe { self.received.read(at * len, len) };
        let to = self.ghosts.at(at * len);
        // SAFETY: both sides hold `len` numbers and outlive the copy.
        let done = unsafe { driver::memcpy_htod_async(to, from, self.rank.messages()) };
        done.map_err(|e| self.rank.vendor.failure("cuMemcpyHtoDAsync", e))?;
        self.rank.work_after_messages()?;
        Ok(to)
    }
}

impl HostProduct {
    pub fn multiply(&self, x: u64, y: u64) -> Result<()> {
        let (rank, parts, s) = (&self.rank, &self.matrices, self.matrices.stages);
        let alone = rank.comm.size() == 1;
        for t in 0..2 {
            rank.clock.mark(Part::Product);
            parts.combine(t, x)?;
            if !alone {
                rank.clock.mark(Part::Transfer);
                rank.messages_after_work()?;
                for i in 0..s {
                    self.bring(t * s + i, parts.middle(t, i))?;
                }
                rank.clock.mark(Part::Product);
            }
            for i in 0..s {
                parts.product(0, t, i, y)?;
            }
            if alone {
                continue;
            }
            if rank.clock.is_on() {
                // Wait, so that the whole communication is measured, not only what the products do not hide.
                rank.vendor.device.wait()?;
            }
            for i in 0..s {
                rank.clock.mark(Part::Communication);
                self.scatter(t * s + i)?;
                rank.clock.mark(Part::Transfer);
                let ghosts = self.send_up(t * s + i)?;
                rank.clock.mark(Part::Product);
                self.off[t].bsrmv(&rank.vendor, ghosts, 1.0, y + 8 * (i * parts.q) as u64)?;
            }
        }
        Ok(())
    }
}
