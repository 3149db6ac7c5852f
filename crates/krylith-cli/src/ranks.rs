//! The ranks of this run: this process alone, or the processes that mpirun started.
//!
//! Rank 0 speaks. Whatever can fail on one rank alone ends in [`together`]: where one rank failed all stop there, with
//! that rank's error and exit code. A failure elsewhere, in mid-solve, ends the whole job at once ([`give_up`]).

use crate::failure::{Failure, Result};
use crate::output;
use krylith_core::comm::{self, Communicator, Solo};
use std::sync::Arc;
use std::sync::OnceLock;

/// What was started.
struct World {
    comm: Arc<dyn Communicator>,
    mpi: Option<Arc<comm::Mpi>>,
}

static WORLD: OnceLock<World> = OnceLock::new();

/// Joins the other ranks, if a launcher started several.
///
/// # Errors
/// No MPI library under mpirun, or another launcher's; what MPI says.
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

/// The ranks; this process alone before [`start`].
pub fn comm() -> Arc<dyn Communicator> {
    WORLD.get().map_or_else(|| Arc::new(Solo) as Arc<dyn Communicator>, |w| w.comm.clone())
}

/// Ends a stretch of work that any rank may have failed in: all go on, or all stop with the same exit code.
///
/// # Errors
/// This rank's own failure, or the first other rank's.
pub fn together<T>(mine: Result<T>) -> Result<T> {
    let comm = comm();
    if comm.size() == 1 {
        return mine;
    }
    let letter = match &mine {
        Ok(_) => Vec::new(),
        Err(f) => [&[f.code], f.message.as_bytes()].concat(),
    };
    let all = comm::gather(&*comm, &letter)?;
    let first = all.iter().position(|letter| !letter.is_empty());
    match (first, mine) {
        (None, mine) => mine,
        (Some(rank), Err(own)) if rank == comm.rank() => Err(Failure { agreed: true, ..own }),
        (Some(rank), _) => {
            let message = format!("rank {rank}: {}", String::from_utf8_lossy(&all[rank][1..]));
            Err(Failure { code: all[rank][0], message, rank: Some(rank), agreed: true })
        }
    }
}

/// Refuses ranks that were given different things.
///
/// # Errors
/// The first rank that differs from rank 0, and what differs.
pub fn same(what: &str, mine: &[u8]) -> Result<()> {
    let all = comm::gather(&*comm(), mine)?;
    match all.iter().position(|other| *other != all[0]) {
        None => Ok(()),
        Some(rank) => {
            let failure = Failure::usage(format!(
                "rank {rank} was given {what} that differs from that of rank 0; start all ranks alike"
            ));
            // Rank 0 says it for all.
            Err(Failure { agreed: true, rank: (comm().rank() > 0).then_some(0), ..failure })
        }
    }
}

/// Why a command that works in one process does not start on several ranks; every rank ends so, and rank 0 says it.
pub fn alone(command: &str) -> Failure {
    let (rank, ranks) = (comm().rank(), comm().size());
    let message = format!(
        "{command} works in one process, and {ranks} were started: start it without mpirun; `krylith solve` shares a system \
         among ranks"
    );
    Failure { agreed: true, rank: (rank > 0).then_some(0), ..Failure::usage(message) }
}

/// Leaves the others: after an end that all know of properly, else by ending the job.
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

/// True if this rank prints a failure: its own, or that of a rank that cannot print any more.
pub fn prints(failure: &Failure) -> bool {
    let rank = comm().rank();
    match failure.rank {
        None => true,
        Some(_) if failure.agreed => false, // that rank is there and says so itself
        Some(lost) => rank == usize::from(lost == 0),
    }
}
