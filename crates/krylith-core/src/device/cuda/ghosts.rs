//! One-off transfers of ghost values from their owners and back, outside a solve, for numbers on a GPU;
//! `halo/ghosts.rs` of krylith-base does the same on the host. Only the transferred values come to the host.

use super::Cuda;
use super::driver::Buffer;
use super::exchange::gather_runs;
use super::launch::Entry;
use super::passes::{passes, raise};
use crate::Result;
use crate::halo::{Halo, from_bytes, to_bytes};
use crate::space::Space;

const THREADS: usize = 256;

impl Cuda {
    /// Fills the ghosts' numbers, which follow this rank's own in `all`, with `run` numbers per node.
    /// Collective.
    ///
    /// # Errors
    /// Out of device memory; a rank that is lost or failed.
    pub(super) fn ghosts_from_owners(&self, halo: &Halo, run: usize, all: &mut Buffer<f64>) -> Result<()> {
        let (device, what) = (self.device(), "ghosts");
        let packed = device.allocate::<f64>(halo.send.len() * run, what)?;
        let mut own = vec![0.0; packed.len()];
        if !own.is_empty() {
            let nodes: Vec<i32> = halo.send.iter().map(|&node| node as i32).collect();
            let (nodes, function) = (device.upload(&nodes, what)?, device.function(&gather_runs.plain())?);
            let grid = own.len().div_ceil(THREADS).min(16 * device.multiprocessors());
            let (count, run) = (halo.send.len() as i32, run as i32);
            function.on(device, grid, THREADS).run(0u64, count, run, &nodes, &*all, &packed)?;
            device.read(&packed, 0, &mut own)?;
        }
        let mut out = vec![Vec::new(); self.comm().size()];
        for n in &halo.neighbours {
            out[n.rank] = to_bytes(&own[n.send.start * run..n.send.end * run]);
        }
        let received = self.comm().all_to_all(out)?;
        let mut ghosts = vec![0.0; halo.ghosts * run];
        for n in &halo.neighbours {
            let to = &mut ghosts[n.receive.start * run..n.receive.end * run];
            from_bytes(&received[n.rank], n.rank, to)?;
        }
        device.write(&ghosts, all, halo.own * run)
    }

    /// Sends every ghost's numbers, none negative, to its owner, which keeps the larger value. The ghosts
    /// stay unchanged. Collective.
    ///
    /// # Errors
    /// Out of device memory; a rank that is lost or failed.
    pub(super) fn larger_to_owners(&self, halo: &Halo, run: usize, all: &mut Buffer<f64>) -> Result<()> {
        let (device, what) = (self.device(), "ghosts");
        let mut ghosts = vec![0.0; halo.ghosts * run];
        if !ghosts.is_empty() {
            device.read(all, halo.own * run, &mut ghosts)?;
        }
        let mut out = vec![Vec::new(); self.comm().size()];
        for n in &halo.neighbours {
            out[n.rank] = to_bytes(&ghosts[n.receive.start * run..n.receive.end * run]);
        }
        let received = self.comm().all_to_all(out)?;
        let mut theirs = vec![0.0; halo.send.len() * run];
        for n in &halo.neighbours {
            let to = &mut theirs[n.send.start * run..n.send.end * run];
            from_bytes(&received[n.rank], n.rank, to)?;
        }
        if theirs.is_empty() {
            return Ok(());
        }
        let (nodes, theirs) = (device.upload(&halo.send, what)?, device.upload(&theirs, what)?);
        let function = device.function(&passes(raise, 1, false))?;
        let (count, run) = (theirs.len() as i32, run as i32);
        let grid = theirs.len().div_ceil(THREADS);
        function.on(device, grid, THREADS).run(count, run, &nodes, &theirs, &*all)
    }
}
