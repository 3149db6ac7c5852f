//! The ranks of a measurement on several devices: threads of this process, or the processes that a launcher
//! such as mpirun started. A suite runs the same code on both.
//!
//! Under a launcher, a suite measures all ranks together. It runs Krylith alone, because the baselines run in
//! one process. Times are maxima over the ranks. Every rank has the same results, and rank 0 reports them.

use krylith_core::comm::{Communicator, Team, agree, gather, largest};
use krylith_core::operator::Terms;
use krylith_core::partition::{LocalSubdomains, Part, RowNumbers, assign_whole, split};
use krylith_core::{DeviceSpec, Error, Options, Problem, Result};
use serde_json::Value;
use std::sync::Arc;

/// How the ranks of a measurement run; the default is threads of this process.
#[derive(Clone, Default)]
pub struct Launch {
    processes: Option<Arc<dyn Communicator>>,
    device: DeviceSpec,
}

impl std::fmt::Debug for Launch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} on {}", self.processes.as_ref().map_or("threads", |_| "processes"), self.device)
    }
}

impl Launch {
    /// Makes the ranks of a communicator of processes. Each takes one of the GPUs of `device` on its host, or
    /// a share of the cores.
    pub fn processes(comm: Arc<dyn Communicator>, device: DeviceSpec) -> Self {
        Self { processes: Some(comm), device }
    }

    /// Returns the communicator of the processes, if ranks are processes.
    pub(crate) fn comm(&self) -> Option<&Arc<dyn Communicator>> {
        self.processes.as_ref()
    }

    /// Returns the number of processes; 1 if ranks are threads.
    pub(crate) fn size(&self) -> usize {
        self.comm().map_or(1, |comm| comm.size())
    }

    /// Returns the numbers of ranks to measure: 1, 2, 4, … and all of this process's devices, or all
    /// processes.
    pub(crate) fn counts(&self, devices: usize) -> Vec<usize> {
        self.comm().map_or_else(|| crate::options::counts(devices), |comm| vec![comm.size()])
    }

    /// Returns the options that give every rank its device.
    pub(crate) fn device(&self, threads: usize) -> String {
        match &self.device {
            DeviceSpec::Cuda(_) => format!("device={}", self.device),
            _ => format!("device=cpu threads={threads}"),
        }
    }

    /// Adds the number of processes to the description of a device.
    pub(crate) fn describe(&self, mut device: Value) -> Value {
        if let Some(comm) = self.comm() {
            device["processes"] = comm.size().into();
        }
        device
    }

    /// Returns the place of the ranks, for a report.
    pub(crate) fn place(&self) -> &'static str {
        if self.comm().is_some() { "a process each" } else { "a thread each in one process" }
    }

    /// Returns the seconds of the slowest rank, if ranks are processes. Collective.
    ///
    /// # Errors
    /// Returns an error if a rank failed.
    pub(crate) fn slowest(&self, seconds: f64) -> Result<f64> {
        self.comm().map_or(Ok(seconds), |comm| largest(&**comm, seconds))
    }

    /// Returns this rank's rows of a system, if ranks are processes. Collective.
    ///
    /// # Errors
    /// Returns the errors of [`Share::new`].
    pub(crate) fn share(
        &self,
        terms: &Terms,
        coordinates: Option<&[[f64; 3]]>,
        grid: Option<[usize; 3]>,
        options: &Options,
    ) -> Result<Option<Share>> {
        self.comm().map(|comm| Share::new(comm, terms, coordinates, grid, options)).transpose()
    }

    /// Runs work on `count` ranks, and returns the result of the first rank, or of this process's rank. Work
    /// that fails on one rank must fail on all.
    ///
    /// # Errors
    /// Returns the error of a rank.
    pub(crate) fn run<T: Send>(
        &self,
        count: usize,
        work: impl Fn(Arc<dyn Communicator>) -> Result<T> + Sync,
    ) -> Result<T> {
        match self.comm() {
            Some(comm) => work(comm.clone()),
            None => Ok(Team::run(count, |comm| work(comm))?.swap_remove(0)),
        }
    }

    /// Returns the parts to measure: those that are named, or all. Under a launcher they are `ours`.
    ///
    /// # Errors
    /// Returns an error if another part is named under a launcher.
    pub(crate) fn parts<T: Copy + PartialEq>(
        &self,
        wanted: Vec<T>,
        words: &[String],
        ours: &[(&str, T)],
    ) -> Result<Vec<T>> {
        if self.comm().is_none() {
            return Ok(wanted);
        }
        let is_ours = |part: &T| ours.iter().any(|(_, own)| own == part);
        match words.is_empty() || wanted.iter().all(is_ours) {
            true => Ok(wanted.into_iter().filter(is_ours).collect()),
            false => {
                let names: Vec<&str> = ours.iter().map(|(name, _)| *name).collect();
                Err(Error::Unsupported(format!(
                    "--parts {}: under mpirun this suite has the parts {}; start it without mpirun",
                    words.join(","),
                    names.join(", ")
                )))
            }
        }
    }
}

/// A rank's rows of a system that every rank holds.
pub(crate) struct Share {
    comm: Arc<dyn Communicator>,
    rows: Vec<u64>,
    terms: Terms<'static>,
    subdomains: Option<LocalSubdomains>,
    nodes: usize,
    /// Numbers of a vector per block row.
    run: usize,
}

impl Share {
    /// Cuts the rows as a solver of one process cuts them for its GPUs. Collective.
    ///
    /// # Errors
    /// Returns an error if there are more ranks than block rows, or if a rank failed.
    pub fn new(
        comm: &Arc<dyn Communicator>,
        terms: &Terms,
        coordinates: Option<&[[f64; 3]]>,
        grid: Option<[usize; 3]>,
        options: &Options,
    ) -> Result<Self> {
        let (nodes, run) = (terms.block_rows(), terms.block() * terms.stages());
        let cut = || -> Result<_> {
            let (spec, wanted) = (options.subdomains(run), options.partition.unwrap_or_default());
            let planes = options.planes();
            let all = assign_whole(terms, coordinates, grid, comm.size(), wanted, spec, planes)?;
            let part = split(terms, &all.partition)?.swap_remove(comm.rank());
            let subdomains = all.local(&part.rows)?;
            Ok((part, subdomains))
        };
        let (Part { rows, terms, .. }, subdomains) = agree(&**comm, cut())?;
        Ok(Self { comm: comm.clone(), rows, terms, subdomains, nodes, run })
    }

    /// Returns the problem of these rows. Collective.
    ///
    /// # Errors
    /// Returns an error if a rank failed.
    pub fn problem(&self) -> Result<Problem<'_>> {
        let problem = Problem::local(self.comm.clone(), &self.rows[..], self.terms.clone())?;
        Ok(problem.with_subdomains(self.subdomains.clone()))
    }

    /// Returns these rows of a vector.
    pub fn own(&self, x: &[f64]) -> Vec<f64> {
        let mut own = vec![0.0; self.rows.len() * self.run];
        RowNumbers::List(&self.rows).take(self.run, x, &mut own);
        own
    }

    /// Returns the whole vector on every rank. Collective.
    ///
    /// # Errors
    /// Returns an error if a rank failed.
    pub fn whole(&self, own: &[f64]) -> Result<Vec<f64>> {
        whole(&*self.comm, &self.rows, own, (self.nodes, self.run))
    }
}

/// Returns a vector of `nodes` rows of `run` numbers on every rank, from the rows that each owns. Collective.
///
/// # Errors
/// Returns an error if a rank failed.
pub(crate) fn whole(
    comm: &dyn Communicator,
    rows: &[u64],
    own: &[f64],
    (nodes, run): (usize, usize),
) -> Result<Vec<f64>> {
    let mut all = vec![f64::NAN; nodes * run];
    for message in gather(comm, &RowNumbers::List(rows).pack(own))? {
        RowNumbers::unpack(&message, run, &mut all);
    }
    Ok(all)
}

/// Replaces the numbers of every rank by those of rank 0. Collective.
///
/// # Errors
/// Returns an error if a rank failed.
pub(crate) fn of_first(comm: &dyn Communicator, numbers: &[f64]) -> Result<Vec<f64>> {
    let mut out = vec![Vec::new(); comm.size()];
    if comm.rank() == 0 {
        let bytes: Vec<u8> = numbers.iter().flat_map(|x| x.to_le_bytes()).collect();
        out = vec![bytes; comm.size()];
    }
    let all = comm.all_to_all(out)?;
    Ok(all[0].as_chunks::<8>().0.iter().map(|x| f64::from_le_bytes(*x)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_of_a_vector_make_the_whole_and_the_first_rank_decides() {
        let a = crate::ildu0::laplacian([4, 3, 5], 2).unwrap();
        let x: Vec<f64> = (0..a.rows()).map(|i| i as f64).collect();
        let options: Options = "precond=ildu".parse().unwrap();
        Team::run(3, |comm| {
            let comm: Arc<dyn Communicator> = comm;
            let share = Share::new(&comm, &Terms::bsr(&a), None, Some([4, 3, 5]), &options)?;
            assert_eq!(share.whole(&share.own(&x))?, x, "rank {}", comm.rank());
            assert_eq!(share.problem()?.unknowns(), x.len());
            let mine = [comm.rank() as f64 + 1.0, 2.0];
            assert_eq!(of_first(&*comm, &mine)?, [1.0, 2.0]);
            Ok(())
        })
        .unwrap();
    }

    #[test]
    fn processes_measure_all_ranks_and_only_their_parts() {
        let threads = Launch::default();
        assert_eq!((threads.counts(4), threads.size()), (vec![1, 2, 4], 1));
        assert_eq!(threads.run(2, |comm| Ok(comm.size())).unwrap(), 2);
        Team::run(2, |comm| {
            let launch = Launch::processes(comm, DeviceSpec::Cuda(vec![1, 0]));
            assert_eq!((launch.counts(1), launch.size()), (vec![2], 2));
            assert_eq!(launch.device(3), "device=cuda:1,0");
            assert_eq!(launch.run(7, |comm| Ok(comm.size()))?, 2);
            let ours = [("b", 2)];
            assert_eq!(launch.parts(vec![1, 2], &[], &ours)?, [2]);
            let error = launch.parts(vec![1], &["a".into()], &ours).unwrap_err().to_string();
            assert!(error.contains("--parts a") && error.contains("the parts b"), "{error}");
            Ok(())
        })
        .unwrap();
    }
}
