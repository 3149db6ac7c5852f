//! Systems that are distributed over the ranks of an MPI program.

use crate::system::System;
use krylith_core::Result;
use krylith_core::comm::{Communicator, Mpi, agree};
use krylith_core::matrix::Csr;
use std::sync::Arc;

/// The Fortran handle of a communicator, and the sizes in bytes of MPI_Comm and MPI_Status if the caller
/// knows them.
pub type Handle = (i32, Option<(usize, usize)>);

/// Returns the system of this rank's rows. An error on one rank becomes an error on all ranks.
pub fn system(
    (comm, sizes): Handle,
    own: Result<Csr>,
    block: Option<usize>,
    threads: Option<usize>,
) -> Result<System> {
    // SAFETY: the Python caller holds the communicator of this handle.
    let comm: Arc<dyn Communicator> = unsafe { Mpi::from_handle(comm, sizes) }?;
    let own = agree(&*comm, own)?;
    let problem = krylith_core::Problem::distributed_csr(comm, &own, block)?;
    Ok(System::of(problem, own.nonzeros(), "rows of this rank", threads))
}
