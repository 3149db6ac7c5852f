//! The published solvers on several GPUs of one process, one thread each, and the strongest simple solver.

mod direct;
mod host;
mod rank;

pub use rank::compile_for as compile_exchange_kernels;

use super::machine::{How, Product, Sums, VendorMachine};
use super::products::CuSolver;
use crate::multi::crew::Crew;
use crate::multi::{Job, Session};
use crate::textbook::{Ours, Textbook, together};
use direct::{NcclProduct, OkpProduct};
use host::{Board, HostProduct, Staging};
use krylith_core::comm::Communicator;
use krylith_core::device::cuda::{Cuda, Device, Fabric, Transport};
use krylith_core::method::GmresOptions;
use krylith_core::{Error, Result};
use rank::Rank;
use std::rc::Rc;
use std::sync::{Arc, OnceLock};

/// A baseline solver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Baseline {
    /// CU-Solver as published: x̃ goes through the host, stage by stage, and MGS has its scalars on the host.
    CuSolver,
    /// CU-Solver, but the device packs what neighbours need before the copy to the host.
    CuSolverPacked,
    /// CU-Solver's kernels, one exchange per product by NCCL, and Gram–Schmidt with NCCL's all-reduce.
    CuNccl(How),
    /// The OKP paper's kernels, buffering and maps, device to device. Its solver as published has MGS with
    /// scalars on the host; otherwise NCCL's all-reduce makes the sums.
    Okp(How),
}

impl Baseline {
    /// All solvers in the order of the tables; speed-ups relate to the first.
    pub const ALL: [Self; 8] = [
        Self::CuSolver,
        Self::CuSolverPacked,
        Self::CuNccl(How::Cgs2),
        Self::CuNccl(How::FusedMgs),
        Self::CuNccl(How::FusedCgs2),
        Self::Okp(How::Mgs),
        Self::Okp(How::FusedMgs),
        Self::Okp(How::FusedCgs2),
    ];

    pub fn name(self) -> String {
        match self {
            Self::CuSolver => "CU-Solver".into(),
            Self::CuSolverPacked => "CU-Solver, packed".into(),
            Self::CuNccl(How::Cgs2) => "CU kernels, NCCL, CGS2".into(),
            Self::CuNccl(how) => format!("CU kernels, NCCL, {}", how.short()),
            Self::Okp(How::Mgs) => "OKP-Solver".into(),
            Self::Okp(how) => format!("OKP kernels, {}", how.short()),
        }
    }

    /// Returns the bytes of one orthogonalisation of `n` numbers against `columns` columns.
    pub fn traffic(self, n: usize, columns: usize) -> u64 {
        self.how().traffic(n, columns)
    }

    fn how(self) -> How {
        match self {
            Self::CuSolver | Self::CuSolverPacked => How::Mgs,
            Self::CuNccl(how) | Self::Okp(how) => how,
        }
    }

    /// Sets up the solver on the job's GPUs.
    ///
    /// # Errors
    /// Returns an error if a GPU or library is missing, or if memory is not sufficient.
    pub fn open(self, job: &Job) -> Result<Box<dyn Session>> {
        if !matches!(self, Self::Okp(_)) && job.case.kronecker.block() == 1 {
            return Err(Error::Unsupported("cusparseDbsrmv needs a block size of at least 2".into()));
        }
        let (s, restart, iterations) = (job.case.kronecker.stages(), job.restart, job.iterations);
        let (norm, board): (f64, Board) =
            (job.case.norm(), Arc::new(job.gpus.iter().map(|_| OnceLock::new()).collect()));
        Crew::on(job, move |place, gpu, parts, rhs| {
            let rank = Rank::open(gpu, place, matches!(self, Self::CuNccl(_) | Self::Okp(_)))?;
            let part = &parts[place.comm.rank()];
            let host = |staging| -> Result<Product> {
                let made = HostProduct::new(&rank, parts, staging, board.clone())?;
                Ok(Box::new(move |x, y| made.multiply(x, y)))
            };
            let product = match self {
                Self::CuSolver => host(Staging::Whole)?,
                Self::CuSolverPacked => host(Staging::Packed)?,
                Self::CuNccl(_) => {
                    let [m, l] = [0, 1].map(|t: usize| &*part.terms.terms()[t].1);
                    let matrices = CuSolver::of(&rank.vendor, &part.terms, [m, l], 1, true)?;
                    let made = NcclProduct::new(&rank, matrices, &part.halo)?;
                    Box::new(move |x, y| made.multiply(x, y))
                }
                Self::Okp(_) => {
                    let made = OkpProduct::new(&rank, part)?;
                    Box::new(move |x, y| made.multiply(x, y))
                }
            };
            let around = (product, rank.clone() as Rc<dyn Sums>, rank.clock.clone());
            let way = (self.name(), self.how());
            let machine = Box::new(VendorMachine::new(&rank.vendor, way, around, (rhs, s), restart)?);
            let time = together(place.comm.clone(), move || rank.vendor.device.wait());
            Ok(Textbook { machine, restart, iterations, norm, time })
        })
    }
}

/// Sets up Krylith's GMRES on the job's GPUs; `dense` ignores structure inside the blocks.
///
/// # Errors
/// Returns an error if a GPU or library is missing, or if memory is not sufficient.
pub(crate) fn ours(job: &Job, dense: bool) -> Result<Box<dyn Session>> {
    let options = (GmresOptions { restart: job.restart, ..GmresOptions::default() }, job.iterations);
    Crew::on(job, move |place, gpu, parts, rhs| {
        let (comm, device): (Arc<dyn Communicator>, _) = (place.comm.clone(), Device::open(gpu)?);
        let fabric = Fabric::new(&device, &comm, Transport::Auto)?;
        let space = Rc::new(Cuda::distributed(&fabric, rhs.len())?);
        let terms = &parts[comm.rank()].terms;
        Ours::on_rank(&space, &comm, (terms, rhs), dense, options, Cuda::keep_time)
    })
}
