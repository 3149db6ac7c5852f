//! The ranks of this run: this process alone, or the processes that mpirun started. Rank 0 prints. Work that
//! can fail on a single rank ends in [`together`]: if one rank failed, all ranks stop there, with that rank's
//! error and exit code. A failure elsewhere, such as during a solve, ends the whole job at once ([`leave`]).

use crate::failure::{Failure, Result};
use crate::output;
use krylith_core::comm::{self, Communicator, Solo};
use krylith_core::partition::RowNumbers;
use std::sync::Arc;
use std::sync::OnceLock;

/// The communicator of this run, and MPI if a launcher started several ranks.
struct World {
    comm: Arc<dyn Communicator>,
    mpi: Option<Arc<comm::Mpi>>,
}

static WORLD: OnceLock<World> = OnceLock::new();

/// Joins the other ranks, if a launcher started several.
///
/// # Errors
/// No MPI library is found under mpirun, the library belongs to another launcher, or MPI reports an error.
pub fn start() -> Result<()> {
    let mpi = comm::Mpi::init()?;
    let comm: Arc<dyn Communicator> = match &mpi {
        Some(mpi) => mpi.clone(),
        None => Arc::new(Solo),
    };
    output::speak(comm.rank() == 0);
    let _ = WORLD.set(World { comm, mpi });
    Ok(())
}

/// Returns the communicator of all ranks, or of this process alone before [`start`].
pub fn comm() -> Arc<dyn Communicator> {
    WORLD.get().map_or_else(|| Arc::new(Solo) as Arc<dyn Communicator>, |w| w.comm.clone())
}

/// Ends a section of work in which any rank may have failed: all ranks continue, or all stop with the same
/// exit code.
///
/// # Errors
/// The failure of the first rank that failed.
pub fn together<T>(mine: Result<T>) -> Result<T> {
    let comm = comm();
    if comm.size() == 1 {
        return mine;
    }
    let message = match &mine {
        Ok(_) => Vec::new(),
        Err(f) => [&[f.code], f.message.as_bytes()].concat(),
    };
    let all = comm::gather(&*comm, &message)?;
    let first = all.iter().position(|message| !message.is_empty());
    match (first, mine) {
        (None, mine) => mine,
        (Some(rank), Err(own)) if rank == comm.rank() => Err(Failure { agreed: true, ..own }),
        (Some(rank), _) => {
            let message = format!("rank {rank}: {}", String::from_utf8_lossy(&all[rank][1..]));
            Err(Failure { code: all[rank][0], message, rank: Some(rank), agreed: true })
        }
    }
}

/// Checks that all ranks were given the same input.
///
/// # Errors
/// The input of a rank differs from that of rank 0.
pub fn same(what: &str, mine: &[u8]) -> Result<()> {
    let all = comm::gather(&*comm(), mine)?;
    match all.iter().position(|other| *other != all[0]) {
        None => Ok(()),
        Some(rank) => {
            let failure = Failure::usage(format!(
                "rank {rank} was given another input than rank 0 ({what}); start all ranks with the same \
                 command"
            ));
            Err(Failure { agreed: true, ..failure })
        }
    }
}

/// Gathers a vector with `run` numbers per node on rank 0; other ranks get an empty vector. `numbers` are
/// those of this rank's nodes, among `nodes` in all. Collective.
///
/// # Errors
/// Another rank failed or ended.
pub fn gathered(
    comm: &dyn Communicator,
    numbers: &[u64],
    nodes: usize,
    own: &[f64],
    run: usize,
) -> Result<Vec<f64>> {
    let mut out = vec![Vec::new(); comm.size()];
    out[0] = RowNumbers::List(numbers).pack(own);
    let all = comm.all_to_all(out)?;
    if comm.rank() > 0 {
        return Ok(Vec::new());
    }
    let mut whole = vec![0.0; nodes * run];
    all.iter().for_each(|message| RowNumbers::unpack(message, run, &mut whole));
    Ok(whole)
}

/// Leaves the other ranks: finalizes MPI if all ranks know of the end, else ends the job.
pub fn leave(result: &Result<u8>) {
    let Some(world) = WORLD.get() else { return };
    match result {
        Err(f) if !f.agreed && world.comm.size() > 1 => world.comm.fail(&f.message),
        _ => {
            if let Some(Err(e)) = world.mpi.as_ref().map(|mpi| mpi.finish()) {
                output::error(&e.to_string());
                world.comm.fail(&e.to_string());
            }
        }
    }
}

/// Returns true if this rank prints a failure: its own, or that of a rank that can no longer print. If all
/// ranks know the failure, only rank 0 prints it.
pub fn prints(failure: &Failure) -> bool {
    let rank = comm().rank();
    match failure.rank {
        _ if failure.agreed => rank == 0,
        None => true,
        Some(lost) => rank == usize::from(lost == 0),
    }
}
