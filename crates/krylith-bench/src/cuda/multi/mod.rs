//! The published solvers on several GPUs of one process, a thread each, and the strongest simple one.

mod direct;
mod host;
mod machine;
pub(crate) mod ours;
mod rank;

pub use rank::compile_for as compile_exchange_kernels;

use super::machine::How;
use super::products::CuSolver;
use crate::multi::crew::Crew;
use crate::multi::{Job, Session};
use direct::{NcclProduct, OkpProduct};
use host::{Board, HostProduct, Staging};
use krylith::comm::Communicator;
use krylith::{Error, Result};
use machine::RankMachine;
use rank::Rank;
use std::sync::{Arc, OnceLock};

/// y = A x on one rank's share of device vectors, stage after stage.
trait Product {
    fn multiply(&self, x: u64, y: u64) -> Result<()>;
}

/// A solver that is not Krylith's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Baseline {
    /// As published: x̃ through the host, stage by stage, MGS with host scalars.
    CuSolver,
    /// The same, with what neighbours need gathered on the device before it goes to the host.
    CuSolverPacked,
    /// CU's kernels, one exchange a product by NCCL, CGS2 by gemv with NCCL's all-reduce.
    CuNccl,
    /// As published: its kernels, buffering and maps, device to device, MGS with host scalars.
    Okp,
}

impl Baseline {
    /// In the order of the tables; speed-ups are counted from the first.
    pub const ALL: [Self; 4] = [Self::CuSolver, Self::CuSolverPacked, Self::CuNccl, Self::Okp];

    pub fn name(self) -> &'static str {
        match self {
            Self::CuSolver => "CU-Solver",
            Self::CuSolverPacked => "CU-Solver, packed",
            Self::CuNccl => "CU kernels, NCCL, CGS2",
            Self::Okp => "OKP-Solver",
        }
    }

    /// Makes it ready on the job's GPUs.
    ///
    /// # Errors
    /// A GPU or library that is missing, no room.
    pub fn open(self, job: &Job) -> Result<Box<dyn Session>> {
        if self != Self::Okp && job.kronecker.block() == 1 {
            return Err(Error::Unsupported("cusparseDbsrmv needs a block size of at least 2".into()));
        }
        let (s, restart, iterations) = (job.kronecker.stages(), job.restart, job.iterations);
        let board: Board = Arc::new(job.gpus.iter().map(|_| OnceLock::new()).collect());
        Crew::on(job, move |place, gpu, parts, rhs| {
            let rank = Rank::open(gpu, place, matches!(self, Self::CuNccl | Self::Okp))?;
            let part = &parts[place.comm.rank()];
            let host = |staging| -> Result<Box<dyn Product>> {
                Ok(Box::new(HostProduct::new(&rank, parts, staging, board.clone())?))
            };
            let product = match self {
                Self::CuSolver => host(Staging::Whole)?,
                Self::CuSolverPacked => host(Staging::Packed)?,
                Self::CuNccl => {
                    let [m, l] = [0, 1].map(|t: usize| &*part.terms.terms[t].1);
                    let matrices = CuSolver::of(&rank.vendor, &part.terms, [m, l], 1, true)?;
                    Box::new(NcclProduct::new(&rank, matrices, &part.halo)?)
                }
                Self::Okp => Box::new(OkpProduct::new(&rank, part)?),
            };
            let how = if self == Self::CuNccl { How::Cgs2 } else { How::Mgs };
            RankMachine::new(&rank, product, how, rhs, s, restart, iterations)
        })
    }
}
