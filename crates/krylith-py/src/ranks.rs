//! Systems whose rows the ranks of an MPI program hold, by the communicators of mpi4py.

use crate::system::System;
use krylith_core::Result;
use krylith_core::comm::{Communicator, Mpi, agree};
use krylith_core::matrix::Csr;
use std::sync::Arc;

/// A communicator's Fortran handle, and the bytes of a handle and of a status in its MPI library where the caller knows them.
pub type Handle = (i32, Option<(usize, usize)>);

/// The system of this rank's rows, or the error of whichever rank has one.
pub fn system(
    (comm, sizes): Handle,
    own: Result<Csr>,
    block: Option<usize>,
    threads: Option<usize>,
) -> Result<System> {
    // SAFETY: the Python caller holds the communicator whose handle this is.
    let comm: Arc<dyn Communicator> = unsafe { Mpi::from_handle(comm, sizes) }?;
    let own = agree(&*comm, own)?;
    let problem = krylith_core::Problem::distributed_csr(comm, &own, block)?;
    Ok(System::of(problem, own.nonzeros(), "rows of this rank", threads))
}
