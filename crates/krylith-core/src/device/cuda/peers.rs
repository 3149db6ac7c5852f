//! Memory of other ranks' GPUs on the same host, as this GPU addresses it.

use super::driver::{Buffer, Device};
use crate::comm::{Communicator, agree, gather};
use crate::{Error, Result};
use cudarc::driver::sys;
use std::sync::Arc;

/// Largest number of ranks that store into each other's memory; `MAX_RANKS` in `kernels/peers.cuh` is equal.
pub(super) const MAX_RANKS: usize = 16;

/// One buffer on every rank, with the address at which this rank's GPU finds each.
pub(super) struct Shared<T> {
    own: Buffer<T>,
    /// Addresses by rank.
    pointers: Vec<u64>,
    /// Addresses that were opened from another process.
    opened: Vec<u64>,
}

impl<T: Copy> Shared<T> {
    /// Maps every rank's `own` buffer for all ranks. Collective; the ranks must be [`reachable`].
    pub(super) fn new(comm: &dyn Communicator, own: Buffer<T>) -> Result<Self> {
        let device = own.device().clone();
        // The zeros must be written before another rank stores here.
        device.wait()?;
        let mut handle = sys::CUipcMemHandle { reserved: [0; 64] };
        let mut done = Ok(());
        if !comm.shares_address_space() {
            device.bind()?;
            // SAFETY: the whole of a live allocation.
            done = device
                .driver("cuIpcGetMemHandle", unsafe { sys::cuIpcGetMemHandle(&mut handle, own.pointer()) });
        }
        agree(comm, std::mem::replace(&mut done, Ok(())))?;
        let mut message = own.pointer().to_le_bytes().to_vec();
        message.extend(handle.reserved.iter().map(|&c| c as u8));
        let mut shared = Self { own, pointers: Vec::new(), opened: Vec::new() };
        for (rank, message) in gather(comm, &message)?.iter().enumerate() {
            let (pointer, bytes) = message.split_first_chunk::<8>().expect("eight bytes and a handle");
            if rank == comm.rank() {
                shared.pointers.push(shared.own.pointer());
            } else if comm.shares_address_space() {
                shared.pointers.push(u64::from_le_bytes(*pointer));
            } else {
                handle.reserved.iter_mut().zip(bytes).for_each(|(to, &from)| *to = from as _);
                let mut pointer = 0;
                let flags = sys::CUipcMem_flags_enum::CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS as u32;
                // SAFETY: the handle of a live allocation on a GPU that this one can access.
                let code = unsafe { sys::cuIpcOpenMemHandle_v2(&mut pointer, handle, flags) };
                done = device.driver("cuIpcOpenMemHandle", code);
                if done.is_err() {
                    break;
                }
                shared.opened.push(pointer);
                shared.pointers.push(pointer);
            }
        }
        agree(comm, done)?;
        Ok(shared)
    }

    /// Returns this rank's buffer.
    pub(super) fn own(&self) -> &Buffer<T> {
        &self.own
    }
    /// Returns the address at which this rank's GPU finds the buffer of `rank`.
    pub(super) fn of(&self, rank: usize) -> u64 {
        self.pointers[rank]
    }
}

impl<T> Drop for Shared<T> {
    fn drop(&mut self) {
        for &pointer in &self.opened {
            // SAFETY: opened once and closed once; the driver waits for a stream that still uses it.
            unsafe { sys::cuIpcCloseMemHandle(pointer) };
        }
    }
}

/// Checks that all ranks can store into each other's memory, and returns the reason if not. Where the ranks
/// are threads, it enables the access. Collective.
pub(super) fn reachable(
    device: &Arc<Device>,
    comm: &dyn Communicator,
) -> Result<std::result::Result<(), String>> {
    let here = comm.host().ranks_on_host.len();
    let mut message = device.uuid()?.to_vec();
    message.extend((device.context_pointer() as u64).to_le_bytes());
    message.extend((device.info().ordinal as u64).to_le_bytes());
    let all = gather(comm, &message)?;
    let mut why = None;
    if here < comm.size() {
        why = Some("the ranks are on several hosts".to_string());
    } else if comm.size() > MAX_RANKS {
        why = Some(format!("there are {} ranks, and peer stores support at most {MAX_RANKS}", comm.size()));
    }
    for (rank, other) in all.iter().enumerate() {
        if rank == comm.rank() || why.is_some() {
            continue;
        }
        if other[..16] == message[..16] {
            why = Some(format!("ranks {} and {rank} share one GPU", comm.rank()));
        } else if comm.shares_address_space() {
            let context = u64::from_le_bytes(other[16..24].try_into().expect("eight bytes"));
            device.bind()?;
            // SAFETY: a primary context of this process, which its rank keeps while it takes part.
            let code = unsafe { sys::cuCtxEnablePeerAccess(context as sys::CUcontext, 0) };
            if code != sys::CUresult::CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED
                && let Err(e) = device.driver("cuCtxEnablePeerAccess", code)
            {
                why = Some(e.to_string());
            }
        } else if !device.can_access(&other[..16]) {
            why = Some(format!(
                "the GPU of rank {rank} cannot be accessed from the GPU of rank {}",
                comm.rank()
            ));
        }
    }
    // All ranks use the other transport if a single pair cannot reach each other.
    let reasons = gather(comm, why.unwrap_or_default().as_bytes())?;
    Ok(match reasons.iter().find(|r| !r.is_empty()) {
        None => Ok(()),
        Some(reason) => Err(String::from_utf8_lossy(reason).into_owned()),
    })
}

/// Returns an error that names the rank for which a kernel waited until it timed out.
pub(super) fn missed(comm: &dyn Communicator, failed: u32, seconds: f64) -> Error {
    let rank = failed as usize - 1;
    match comm.check() {
        Err(e) => e,
        Ok(()) => Error::Rank {
            rank,
            message: format!("its GPU did not answer the GPU of rank {} within {seconds:.0} s", comm.rank()),
            exit_code: 3,
            memory: false,
        },
    }
}
