//! Systems whose rows the ranks of an MPI program hold, by the communicators of mpi4py.

use crate::system::System;
use krylith::Result;
use krylith::matrix::Csr;

/// True where this build knows ranks.
pub const HAS_MPI: bool = cfg!(feature = "mpi");

/// The system of this rank's rows, or the error of whichever rank has one. `comm` is a communicator's Fortran handle.
#[cfg(feature = "mpi")]
pub fn system(comm: i32, own: Result<Csr>, block: Option<usize>) -> Result<System> {
    use krylith::comm::{Communicator, Mpi, agree};
    use std::sync::Arc;
    // SAFETY: the Python caller holds the communicator whose handle this is.
    let comm: Arc<dyn Communicator> = unsafe { Mpi::from_handle(comm) }?;
    let own = agree(&*comm, own)?;
    let problem = krylith::Problem::distributed_csr(comm, &own, block)?;
    Ok(System::of(problem, own.nonzeros(), "rows of this rank"))
}

/// Refuses: this build knows no ranks.
#[cfg(not(feature = "mpi"))]
pub fn system(_: i32, _: Result<Csr>, _: Option<usize>) -> Result<System> {
    Err(krylith::Error::Unsupported(
        "this package was built without MPI; `maturin build --release --features mpi` builds a wheel with it"
            .into(),
    ))
}
