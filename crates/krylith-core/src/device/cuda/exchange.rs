//! The halo of a product on a GPU: the sent values, their destinations, and their transport.
//!
//! Between GPUs that can store into each other's memory, the launch of the product performs the exchange
//! (`kernels/halo.cuh`). With NCCL, the values are gathered into one message per neighbour and a second
//! stream sends them. The product is then split into two launches: tiles without ghosts run while the
//! messages travel, the other tiles afterwards.

use super::Cuda;
use super::driver::{Buffer, Device};
use super::launch::Function;
use super::launch::{At, Entry, kernels};
use super::nccl::Nccl;
use super::peers::{MAX_RANKS, Shared};
use crate::comm::{agree, gather};
use crate::halo::Halo;
use crate::space::Space;
use crate::{Error, Result};
use cudarc::driver::CudaStream;
use std::sync::Arc;

kernels! {
    GATHER in "gather.cu", |_| vec![gather_runs.plain().into()];
    fn gather_runs(halt: At<i32>, count: i32, run: i32, nodes: At<i32>, x: At<f64>, packed: At<f64>);
    fn scatter_runs(halt: At<i32>, count: i32, run: i32, nodes: At<i32>, packed: At<f64>, x: At<f64>);
}

/// The exchange of one halo, for nodes of `run` numbers.
pub(super) struct Exchange {
    halo: Arc<Halo>,
    run: usize,
    nodes: Buffer<i32>,
    way: Way,
}

enum Way {
    Peers {
        device: Buffer<Twin>,
        _ghosts: Shared<f64>,
        _flags: Shared<u64>,
    },
    Nccl {
        nccl: Arc<Nccl>,
        packed: Buffer<f64>,
        ghosts: Buffer<f64>,
        gather: Function<gather_runs>,
        stream: Arc<CudaStream>,
    },
}

/// Mirrors `struct Neighbour` in `kernels/halo.cuh`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct TwinNeighbour {
    rank: u32,
    unused: u32,
    begin: i32,
    end: i32,
    ghosts: [u64; 2],
    flag: u64,
}

/// Mirrors `struct Exchange` in `kernels/halo.cuh`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Twin {
    ticket: u64,
    sent: u32,
    neighbours: i32,
    group: u64,
    ghosts: [u64; 2],
    nodes: u64,
    flags: u64,
    neighbour: [TwinNeighbour; MAX_RANKS - 1],
}
const _: () = assert!(size_of::<Twin>() == 656 && size_of::<TwinNeighbour>() == 40);

/// Alignment in numbers: 16-byte loads are aligned, and no two halves share a cache line.
const ALIGN: usize = 16;

impl Exchange {
    /// Sets up the exchange of a halo. Collective.
    ///
    /// # Errors
    /// Out of device memory; a rank that is lost or failed.
    pub(super) fn new(space: &Cuda, halo: &Arc<Halo>, run: usize) -> Result<Self> {
        let (device, comm) = (space.device(), space.comm());
        let send: Vec<i32> = halo.send.iter().map(|&n| n as i32).collect();
        let nodes = agree(comm, device.upload(&send, "nodes to be sent"))?;
        let way = match space.fabric().nccl() {
            Some(nccl) => {
                let buffers = (|| {
                    let packed = device.zeros(halo.send.len() * run, "a message")?;
                    let ghosts = device.zeros(halo.ghosts * run, "ghosts")?;
                    Ok((packed, ghosts, device.function(&gather_runs.plain())?, device.second_stream()?))
                })();
                let (packed, ghosts, gather, stream) = agree(comm, buffers)?;
                Way::Nccl { nccl: nccl.clone(), packed, ghosts, gather, stream }
            }
            None => Self::among_peers(space, halo, run, &nodes)?,
        };
        Ok(Self { halo: halo.clone(), run, nodes, way })
    }

    fn among_peers(space: &Cuda, halo: &Halo, run: usize, nodes: &Buffer<i32>) -> Result<Way> {
        let (device, comm) = (space.device(), space.comm());
        let half = (halo.ghosts * run).next_multiple_of(ALIGN);
        let ghosts = agree(comm, device.peer_zeros::<f64>(2 * half, "ghosts"))?;
        let flags = agree(comm, device.peer_zeros::<u64>(halo.neighbours.len(), "flags"))?;
        let (ghosts, flags) = (Shared::new(comm, ghosts)?, Shared::new(comm, flags)?);
        // Every rank announces where its neighbours' nodes go: the size of a half, then each neighbour's rank
        // and first ghost.
        let message = halo.neighbours.iter().flat_map(|n| [n.rank, n.receive.start]);
        let message: Vec<u8> =
            std::iter::once(half).chain(message).flat_map(|n| (n as u64).to_le_bytes()).collect();
        let messages = gather(comm, &message)?;
        let mut neighbour = [TwinNeighbour::default(); MAX_RANKS - 1];
        for (n, twin) in halo.neighbours.iter().zip(&mut neighbour) {
            let theirs: Vec<u64> =
                messages[n.rank].as_chunks::<8>().0.iter().map(|b| u64::from_le_bytes(*b)).collect();
            let place = theirs[1..].chunks_exact(2).position(|p| p[0] as usize == comm.rank());
            let place = place.ok_or_else(|| {
                Error::invalid(format!(
                    "rank {} lists rank {} as a neighbour, but that rank does not list it in return; both \
                     must list each other",
                    comm.rank(),
                    n.rank
                ))
            })?;
            let first = theirs[2 + 2 * place] as usize * run;
            let at = |parity: usize| ghosts.of(n.rank) + 8 * (parity * theirs[0] as usize + first) as u64;
            *twin = TwinNeighbour {
                rank: n.rank as u32,
                unused: 0,
                begin: n.send.start as i32,
                end: n.send.end as i32,
                ghosts: [at(0), at(1)],
                flag: flags.of(n.rank) + 8 * place as u64,
            };
        }
        let twin = Twin {
            ticket: 0,
            sent: 0,
            neighbours: halo.neighbours.len() as i32,
            group: space.fabric().group(),
            ghosts: [ghosts.own().at(0), ghosts.own().at(half)],
            nodes: nodes.pointer(),
            flags: flags.own().pointer(),
            neighbour,
        };
        let device = agree(comm, device.upload(&[twin], "a halo"))?;
        Ok(Way::Peers { device, _ghosts: ghosts, _flags: flags })
    }

    /// Numbers per node.
    pub(super) fn run(&self) -> usize {
        self.run
    }

    /// Returns the halo that is exchanged.
    pub(super) fn halo(&self) -> &Arc<Halo> {
        &self.halo
    }

    /// Address of the device's own record, where the launch of the product performs the exchange.
    pub(super) fn inside(&self) -> Option<u64> {
        match &self.way {
            Way::Peers { device, .. } => Some(device.pointer()),
            Way::Nccl { .. } => None,
        }
    }

    /// Address of the ghosts that [`finish`](Self::finish) waits for.
    pub(super) fn ghosts(&self) -> u64 {
        match &self.way {
            Way::Peers { .. } => 0,
            Way::Nccl { ghosts, .. } => ghosts.pointer(),
        }
    }

    /// Gathers the values of x that neighbours need, and sends them in a second stream.
    pub(super) fn start(&self, space: &Cuda, x: u64) -> Result<()> {
        let Way::Nccl { nccl, packed, ghosts, gather, stream } = &self.way else { return Ok(()) };
        let (device, count, run) = (space.device(), self.halo.send.len(), self.run);
        if count > 0 {
            let blocks = (count * run).div_ceil(512).clamp(1, device.multiprocessors());
            gather.on(device, blocks, 256).run(
                space.halt(),
                count as i32,
                run as i32,
                &self.nodes,
                x,
                packed,
            )?;
        }
        device.fork(stream)?;
        let part = |r: &std::ops::Range<usize>| (r.start * run, r.len() * run);
        let send = self.halo.neighbours.iter().map(|n| (n.rank, packed.at(part(&n.send).0), part(&n.send).1));
        let receive =
            self.halo.neighbours.iter().map(|n| (n.rank, ghosts.at(part(&n.receive).0), part(&n.receive).1));
        nccl.exchange(stream.cu_stream(), send, receive)
    }

    /// Makes later work in the space's stream wait for the ghosts.
    pub(super) fn finish(&self, device: &Device) -> Result<()> {
        match &self.way {
            Way::Peers { .. } => Ok(()),
            Way::Nccl { stream, .. } => device.join(stream),
        }
    }
}
