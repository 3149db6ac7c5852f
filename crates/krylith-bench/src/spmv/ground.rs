//! The interface of a device for this suite, and its implementation for CPUs.

use super::matrix::Case;
use crate::cpu::{self, CpuPlatform};
use crate::launch::Launch;
use crate::options::Asked;
use crate::platform::{Apply, OnHost, OnSpace, Order, Platform};
use krylith_core::comm::Communicator;
use krylith_core::device::cpu::{Cpu, Pool};
use krylith_core::matrix::Csr;
use krylith_core::operator::{LinearOperator, PointBlock, PointBlockSum, SharedRows, Terms};
use krylith_core::partition::replicated::Mode;
use krylith_core::partition::{Partitioner, split};
use krylith_core::precond::SubdomainFactors;
use krylith_core::space::Clock;
use krylith_core::{Error, Precision, Result};
pub(crate) use krylith_model::spmv::OURS;
use std::borrow::Cow;
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

/// The baseline of the paper that `spmv/mod.rs` names.
pub(crate) const VECTOR: &str = "CSR-vector (the paper's rule)";
/// Prefix of the names of cuSPARSE's algorithms.
pub(crate) const CUSPARSE: &str = "cuSPARSE";

/// A variant of a product on one device.
pub(crate) struct Given<'a> {
    pub name: String,
    /// Seconds of the set-up, without compiling kernels.
    pub setup: f64,
    /// The product, with settings chosen by measurement.
    pub product: Result<(Box<dyn Apply + 'a>, String)>,
}

/// A device and its variants of a product.
pub(crate) trait One: Platform {
    /// Returns the candidates, Krylith's first.
    fn candidates<'a>(&'a self, case: &'a Case) -> Result<Vec<Given<'a>>>;
}

/// A rank's rows of the whole matrix.
pub(crate) enum Own {
    Run(Range<usize>),
    List(Vec<u64>),
}

impl Own {
    pub fn len(&self) -> usize {
        match self {
            Own::Run(rows) => rows.len(),
            Own::List(rows) => rows.len(),
        }
    }
    /// Returns the local number of a row of the whole matrix, if it is here. Lists ascend.
    pub fn place(&self, row: usize) -> Option<usize> {
        match self {
            Own::Run(rows) => rows.contains(&row).then(|| row - rows.start),
            Own::List(rows) => rows.binary_search(&(row as u64)).ok(),
        }
    }
    /// Returns this rank's share of a vector.
    pub fn of<'x>(&self, x: &'x [f64]) -> Cow<'x, [f64]> {
        match self {
            Own::Run(rows) => Cow::Borrowed(&x[rows.clone()]),
            Own::List(rows) => Cow::Owned(rows.iter().map(|&i| x[i as usize]).collect()),
        }
    }
}

/// A rank's rows for a product with halos.
pub(crate) struct Piece {
    /// The rows' numbers in the whole matrix.
    pub rows: Own,
    /// The rows in local numbers, with their halo.
    pub terms: Terms<'static>,
}

/// A product whose rows all ranks share.
pub(crate) type Shared<S> = Box<dyn LinearOperator<S>>;

/// Devices that work together, one per rank.
pub(crate) trait Ground: Sync {
    type Space: PointBlockSum + SharedRows + SubdomainFactors + 'static;
    type One: One;
    fn ranks(&self) -> usize;
    /// Returns how the ranks run.
    fn launch(&self) -> &Launch;
    /// Switches Krylith's timing by phase on or off.
    fn keep_time(space: &Self::Space, on: bool);
    /// Returns the first device, with its baselines.
    fn one(&self) -> Result<Self::One>;
    /// Creates vectors on this rank alone.
    fn alone(&self, rank: usize, len: usize) -> Result<Self::Space>;
    /// Creates this rank's share of vectors; collective.
    fn joined(&self, comm: &Arc<dyn Communicator>, len: usize) -> Result<Self::Space>;
    /// Returns the rows of each rank for a product with halos, and the seconds to cut them: contiguous rows
    /// with equal nonzeros.
    ///
    /// # Errors
    /// Returns an error if memory is not sufficient.
    fn parts(&self, case: &Case) -> Result<(Vec<Piece>, f64)> {
        runs_on_host(case, self.ranks())
    }
    /// Returns the same for parts of the graph.
    ///
    /// # Errors
    /// Returns an error if memory is not sufficient.
    fn graph_parts(&self, case: &Case) -> Result<(Vec<Piece>, f64)> {
        let begin = Instant::now();
        let terms = Terms::csr(&case.a)?;
        let partition = Partitioner::Multilevel.partition(&terms, None, self.ranks())?;
        let pieces = split(&terms, &partition)?.into_iter().map(|part| {
            let mut rows = part.rows;
            rows.truncate(part.halo.own);
            Piece { rows: Own::List(rows), terms: part.terms }
        });
        Ok((pieces.collect(), begin.elapsed().as_secs_f64()))
    }
    /// Returns true if [`vector`](Self::vector) is available.
    fn vector_modes(&self) -> bool {
        false
    }
    /// Returns the product in a mode with the paper's own kernel, and the seconds of its cuts. Collective.
    ///
    /// # Errors
    /// Returns an error if it is not available here, or if memory is not sufficient.
    fn vector(
        &self,
        _: &Self::Space,
        _: &Arc<dyn Communicator>,
        _: (&Case, &Csr),
        _: Mode,
    ) -> Result<(Shared<Self::Space>, f64)> {
        Err(Error::Unsupported("CSR-vector in the modes needs GPUs".into()))
    }
    /// Runs pCSR on all devices: returns seconds of its set-up and of every product, and y.
    ///
    /// # Errors
    /// Returns an error if it is not available here, or if memory is not sufficient.
    fn pcsr(&self, case: &Case, samples: usize) -> Result<(f64, Vec<f64>, Vec<f64>)>;
}

/// Cuts contiguous rows with equal nonzeros on the host, and returns the seconds.
pub(crate) fn runs_on_host(case: &Case, ranks: usize) -> Result<(Vec<Piece>, f64)> {
    let begin = Instant::now();
    let terms = Terms::csr(&case.a)?;
    let partition = Partitioner::Nonzeros.partition(&terms, None, ranks)?;
    let pieces = split(&terms, &partition)?.into_iter().map(|part| Piece {
        rows: Own::Run(
            part.rows.first().map_or(0..0, |&first| first as usize..first as usize + part.halo.own),
        ),
        terms: part.terms,
    });
    Ok((pieces.collect(), begin.elapsed().as_secs_f64()))
}

/// The cores of this machine, shared by several ranks.
pub(crate) struct Threads {
    /// Threads of all ranks together; 0 means all cores.
    pub threads: usize,
    pub ranks: usize,
    pub launch: Launch,
}

impl Threads {
    /// Returns the ground of processes, each with the threads that the options give it.
    pub fn processes(options: &Asked) -> Self {
        let (launch, ranks) = (options.launch.clone(), options.launch.size());
        Self { threads: options.threads * ranks, ranks, launch }
    }
    fn all(&self) -> usize {
        let cores = std::thread::available_parallelism().map_or(1, |n| n.get());
        if self.threads == 0 { cores } else { self.threads }
    }
    fn pool(&self) -> Arc<Pool> {
        Arc::new(Pool::new((self.all() / self.ranks).max(1)))
    }
}

impl Ground for Threads {
    type Space = Cpu;
    type One = CpuPlatform;
    fn ranks(&self) -> usize {
        self.ranks
    }
    fn launch(&self) -> &Launch {
        &self.launch
    }
    fn keep_time(space: &Cpu, _: bool) {
        space.take_phases(); // a CPU always measures phases; discard earlier ones
    }
    fn one(&self) -> Result<CpuPlatform> {
        // The device of a rank that is a process is its share of the cores.
        let ranks = if self.launch.comm().is_some() { self.ranks } else { 1 };
        Ok(CpuPlatform::new(self.threads / ranks))
    }
    fn alone(&self, _: usize, len: usize) -> Result<Cpu> {
        Ok(Cpu::with_pool(len, self.pool()))
    }
    fn joined(&self, comm: &Arc<dyn Communicator>, len: usize) -> Result<Cpu> {
        Ok(Cpu::distributed(len, self.pool(), comm.clone()))
    }
    fn pcsr(&self, _: &Case, _: usize) -> Result<(f64, Vec<f64>, Vec<f64>)> {
        Err(Error::Unsupported("pCSR copies sums from GPUs to the host, so it needs GPUs".into()))
    }
}

impl One for CpuPlatform {
    fn candidates<'a>(&'a self, case: &'a Case) -> Result<Vec<Given<'a>>> {
        let (n, space) = (case.rows(), Rc::new(self.space(case.rows())?));
        let (ours, setup) = self.timed(|| Ok(PointBlock::csr(space.as_ref(), &case.a, Precision::F64)))?;
        let ours = ours.and_then(|ours| OnSpace::new(&space, vec![Box::new(ours)]));
        // A plain implementation: equally many rows per thread, one sum per row.
        let plain = OnHost::new(Order::Given, n, 1, move |_, x, y| {
            cpu::parts(&self.pool, &cpu::equal(&self.pool, n), y, |range, part| {
                for (i, y) in range.zip(part) {
                    let (columns, values) = case.a.row(i);
                    *y = columns.iter().zip(values).map(|(&j, v)| v * x[j as usize]).sum();
                }
            });
        });
        let ours = ours.map(|ours| (ours as Box<dyn Apply>, String::new()));
        Ok(vec![
            Given { name: OURS.into(), setup, product: ours },
            Given {
                name: "plain loop, rows over threads".into(),
                setup: 0.0,
                product: Ok((plain, String::new())),
            },
        ])
    }
}
