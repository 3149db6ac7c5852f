//! Krylith's GMRES(30) on the processes that a launcher started: the same systems, rows and tables as on
//! several GPUs of one process. The baselines need the memory of one process, so they are left out.

use super::gpus_report::{Experiment, Findings, Run, make};
use super::orthogonalization::{delayed_bytes, mean_traffic};
use super::solve::{Entry, Rounds, measure};
use super::{RESTART, Series, TIMED};
use crate::launch::whole;
use crate::multi::share;
use crate::options::Asked;
use crate::platform::Platform;
use crate::publish::{Report, meta, sizes};
use crate::spmv::Ground;
use crate::systems::{self, Case, PAPER};
use crate::textbook::{Ours, Session, Solve, Times};
use krylith_core::comm::{Communicator, agree, gather};
use krylith_core::method::GmresOptions;
use krylith_core::partition::Part;
use krylith_core::{Error, Precision, Result};
use serde_json::json;
use std::rc::Rc;
use std::sync::Arc;

/// Measures all processes together.
pub(super) fn run<G: Ground + 'static>(
    ground: &G,
    comm: &Arc<dyn Communicator>,
    options: &Asked,
    series: &[Series],
    progress: &mut dyn FnMut(&str),
) -> Result<Report> {
    let (one, ranks) = (ground.one()?, ground.ranks());
    let (describe, structures) = (ground.launch().describe(one.describe()), one.structures());
    let (_, bandwidth) = one.bandwidth()?;
    drop(one);
    let rounds = Rounds { warm: 1, solves: options.solves.unwrap_or(options.pick(20, 3)), timed: TIMED };
    let iterations = options.iterations.unwrap_or(options.pick(300, 60));
    let short = options.iterations.unwrap_or(2 * RESTART);
    let more = json!({
        "gpus": ranks, "nccl": null, "place": ground.launch().place(), "bandwidth": bandwidth, "solves": rounds.solves,
        "iterations": iterations, "iterations_of_other_sizes": short, "restart": RESTART,
        "timed_solves": TIMED,
    });
    let meta = meta("okp", &options.command, describe, more);
    let nodes = systems::scaled(PAPER, options.scale(0.125));
    let mut found = Findings::default();
    for series in series {
        let (title, weak, [x, y, z], iterations) = match series {
            Series::Strong => ("Strong scaling", false, nodes, iterations),
            Series::Weak => ("Weak scaling", true, [nodes[0], nodes[1], nodes[2] * ranks], iterations),
            Series::Large => ("Strong scaling", false, nodes.map(|n| 2 * n), short),
        };
        progress(&format!("{title}, {} nodes on {ranks} ranks", sizes([x, y, z])));
        let case = systems::stokes([x, y, z])?;
        let parts = share::cut(&case.kronecker, ranks)?;
        let run = case.kronecker.block() * case.kronecker.stages();
        let longest = parts.iter().map(|part| part.halo.own * run).max().unwrap_or(0);
        let traffic = mean_traffic(|columns| delayed_bytes(Precision::F64, longest, columns));
        let mut entries = Vec::new();
        for (name, dense) in [("Krylith, dense blocks", true), ("Krylith, structured blocks", false)] {
            if dense || structures {
                let session = member(ground, comm, &case, &parts[comm.rank()], (dense, iterations));
                entries.push(Entry { name: name.into(), ours: true, exact: true, traffic, session });
            }
        }
        let rows = measure(entries, &format!(" on {ranks} ranks"), &case, rounds, None)?;
        let title = format!("{title}, {} = {} nodes", sizes([x, y, z]), x * y * z);
        let run = Run { gpus: ranks, nodes: [x, y, z], rows };
        found.experiments.push(Experiment { title, weak, runs: vec![run] });
        // The remaining part may take long: keep the results so far in case it is interrupted.
        make(&found, meta.clone()).write(options.out.as_deref(), "okp")?;
    }
    let mut made = make(&found, meta);
    made.write(options.out.as_deref(), "okp")?;
    Ok(made)
}

/// Sets up this process's rank of GMRES. Collective.
fn member<G: Ground + 'static>(
    ground: &G,
    comm: &Arc<dyn Communicator>,
    case: &Case,
    part: &Part,
    (dense, iterations): (bool, usize),
) -> Result<Box<dyn Session>> {
    let k = &case.kronecker;
    let (rows, run) = (part.rows[..part.halo.own].to_vec(), k.block() * k.stages());
    let first = rows.first().map_or(0, |&row| row as usize * run);
    let rhs = &case.rhs[first..first + rows.len() * run];
    let space = Rc::new(agree(&**comm, ground.joined(comm, rhs.len()))?);
    let options = (GmresOptions { restart: RESTART, ..GmresOptions::default() }, iterations);
    let inner = Ours::on_rank(&space, comm, (&part.terms, rhs), dense, options, G::keep_time);
    let inner = agree(&**comm, inner)?;
    Ok(Box::new(Member { inner, comm: comm.clone(), rows, shape: (k.m.block_rows(), run) }))
}

/// A rank of a solve, whose results are those of all ranks.
struct Member<S> {
    inner: S,
    comm: Arc<dyn Communicator>,
    /// Numbers of the own block rows.
    rows: Vec<u64>,
    /// Number of block rows, and of numbers in each.
    shape: (usize, usize),
}

impl<S: Session> Session for Member<S> {
    fn solve(&mut self, timed: bool) -> Result<Solve> {
        let mut made = agree(&*self.comm, self.inner.solve(timed))?;
        let own = [&[made.seconds][..], &made.times.0, &made.residuals].concat();
        let bytes: Vec<u8> = own.iter().flat_map(|x| x.to_le_bytes()).collect();
        for (rank, bytes) in gather(&*self.comm, &bytes)?.iter().enumerate() {
            let numbers: Vec<f64> = bytes.as_chunks::<8>().0.iter().map(|x| f64::from_le_bytes(*x)).collect();
            let (times, residuals) = numbers.split_at(6.min(numbers.len()));
            if times.len() < 6 || residuals != made.residuals {
                return Err(Error::invalid(format!("rank {rank} has other residuals than other ranks")));
            }
            made.seconds = made.seconds.max(times[0]);
            made.times = Times::max(made.times, Times(std::array::from_fn(|i| times[1 + i])));
        }
        Ok(made)
    }
    fn solution(&mut self) -> Result<Vec<f64>> {
        let own = agree(&*self.comm, self.inner.solution())?;
        whole(&*self.comm, &self.rows, &own, self.shape)
    }
}
