//! Instances that this rank no longer needs. MUMPS frees an instance on all ranks together, but one rank does
//! not know when the others drop theirs: a language with garbage collection does so at any time. So instances
//! wait here until all ranks have dropped them.

use super::Mumps;
use crate::Result;
use crate::comm::wire::{Reader, packed};
use crate::comm::{Communicator, gather};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, MutexGuard};

static RELEASED: Mutex<Vec<Mumps>> = Mutex::new(Vec::new());

fn released() -> MutexGuard<'static, Vec<Mumps>> {
    RELEASED.lock().unwrap_or_else(|e| e.into_inner())
}

/// Keeps an instance for [`free_released`].
pub(super) fn keep(mumps: Mumps) {
    released().push(mumps);
}

/// Frees the instances that all ranks of this communicator have dropped. Collective.
///
/// # Errors
/// A rank that is gone or failed.
pub fn free_released(comm: &dyn Communicator) -> Result<()> {
    let Some(mpi) = comm.mpi() else { return Ok(()) };
    // All ranks have created the same instances.
    if mpi.world.instances.load(Relaxed) == 0 {
        return Ok(());
    }
    let own = |mumps: &Mumps| Arc::ptr_eq(&mumps.world, &mpi.world);
    let mut mine: Vec<u64> = released().iter().filter(|mumps| own(mumps)).map(|mumps| mumps.id).collect();
    mine.sort_unstable();
    let all = gather(comm, &packed(&mine))?;
    for (q, bytes) in all.iter().enumerate() {
        let theirs = Reader::new(bytes, q).all::<u64>()?;
        mine.retain(|id| theirs.contains(id));
    }
    for id in mine {
        let mut list = released();
        let place = list.iter().position(|mumps| own(mumps) && mumps.id == id);
        let taken = place.map(|place| list.swap_remove(place));
        drop(list);
        taken.into_iter().for_each(Mumps::free);
    }
    Ok(())
}
