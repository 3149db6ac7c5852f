//! P-CG and P-CBCG over ranks with slow messages: the delay from which fewer sums win.
//!
//! Ranks are threads of this process with one core's work each. The communicator delays every message, halos
//! included. The delay must not change any bit of the result. The measurements are compared with t(0) + m d:
//! m sequential messages per iteration, with delay d each.

use super::{MOST, RTOL, resized};
use crate::options::Asked;
use crate::publish::Check;
use crate::samples::together;
use krylith_core::comm::{Communicator, Team};
use krylith_core::device::cpu::{Cpu, Pool};
use krylith_core::method::{CgForm, CgOptions, MethodSpec};
use krylith_core::operator::PointBlock;
use krylith_core::partition::{Part, distribute};
use krylith_core::precond::BlockJacobi;
use krylith_core::{Outcome, Precision, Result, Stop};
use std::sync::Arc;
use std::time::Duration;

#[path = "../../../krylith-core/tests/ranks/delayed.rs"]
mod delayed;
use delayed::Delayed;

/// Delays of a message in µs.
pub(super) const DELAYS: [u64; 6] = [0, 20, 50, 100, 200, 500];
/// Number of cells of all ranks together: little work per iteration, as on very many ranks.
const CELLS: [usize; 3] = [32, 32, 64];
const METHODS: [&str; 6] =
    ["cg", "cg:form=one-reduction", "cg:form=pipelined", "cbcg:s=4", "cbcg:s=8", "cbcg:s=12"];
/// Number of solves after a discarded one; the fastest counts.
const ROUNDS: usize = 2;

pub(super) struct Network {
    pub spec: String,
    pub ranks: usize,
    pub rows: Vec<Row>,
}

pub(super) struct Row {
    pub method: String,
    pub iterations: usize,
    /// Messages per iteration that nothing hides.
    pub messages: f64,
    /// Seconds of a solve, for each delay.
    pub seconds: Vec<f64>,
    pub check: Check,
}

impl Row {
    /// Returns the seconds of a solve predicted as the sum of work and delays.
    pub fn predicted(&self, delay: usize) -> f64 {
        let first = self.seconds.first().copied().unwrap_or(f64::NAN);
        first + self.iterations as f64 * self.messages * 1e-6 * DELAYS[delay] as f64
    }
}

#[derive(PartialEq)]
struct One {
    iterations: usize,
    reductions: usize,
    residuals: Vec<f64>,
    outcome: Outcome,
    residual: f64,
}

pub(super) fn measure(
    spec: &str,
    ranks: usize,
    options: &Asked,
    progress: &mut dyn FnMut(&str),
) -> Result<Network> {
    let shrunk = options.scale.map_or(1.0, |scale| (64.0 * scale).min(1.0));
    let mut grid = crate::systems::scaled(CELLS, shrunk);
    grid[2] = grid[2].next_multiple_of(ranks);
    let (spec, mut rows) = (resized(spec, grid), Vec::new());
    for text in METHODS {
        let method: MethodSpec = text.parse()?;
        progress(&format!("{ranks} ranks with delays: {text}"));
        let mut row = Row {
            method: text.into(),
            iterations: 0,
            messages: f64::NAN,
            seconds: Vec::new(),
            check: Ok(f64::NAN),
        };
        let mut first: Option<One> = None;
        for delay in DELAYS.map(Duration::from_micros) {
            let most = options.iterations.unwrap_or(MOST);
            let all = Team::run(ranks, |comm| rank(comm, &spec, method, delay, most));
            let (one, seconds) = match all {
                Ok(mut all) => all.swap_remove(0),
                Err(e) => {
                    row.check = Err(format!("{text} with {delay:?} a message: {e}"));
                    break;
                }
            };
            if one.outcome != Outcome::Converged || !(one.residual <= RTOL * (1.0 + 1e-6)) {
                row.check = Err(format!("{text}: {} at {:.1e}", one.outcome, one.residual));
                break;
            }
            if first.as_ref().is_some_and(|first| *first != one) {
                row.check = Err(format!("{text}: {delay:?} a message change its residuals"));
                break;
            }
            let sums = one.reductions as f64 / one.iterations.max(1) as f64;
            row.messages = match method {
                // The sum and the halo are sent at the same time.
                MethodSpec::Cg(CgOptions { form: CgForm::Pipelined }) => sums,
                _ => sums + 1.0,
            };
            (row.iterations, row.check) = (one.iterations, Ok(one.residual));
            row.seconds.push(seconds);
            first.get_or_insert(one);
        }
        rows.push(row);
    }
    Ok(Network { spec, ranks, rows })
}

fn rank(
    comm: Arc<dyn Communicator>,
    spec: &str,
    method: MethodSpec,
    delay: Duration,
    most: usize,
) -> Result<(One, f64)> {
    let made = krylith_problems::generate_rows(spec, comm.rank(), comm.size())?;
    let rhs = made.rhs;
    let comm: Arc<dyn Communicator> = match delay.is_zero() {
        true => comm,
        false => Arc::new(Delayed::new(comm, delay)),
    };
    let Part { terms, .. } = distribute(&*comm, made.rows)?;
    let space = Cpu::distributed(rhs.len(), Arc::new(Pool::new(1)), comm.clone());
    let a = PointBlock::new(&space, &terms, Precision::F64, false)?;
    let jacobi = BlockJacobi::new(&space, &terms, Precision::F64)?;
    let mut method = method.build(&space)?;
    let (mut x, mut best, mut one) = (vec![0.0; rhs.len()], f64::INFINITY, None);
    let stop = Stop { rtol: RTOL, atol: 0.0, max_iters: most, ..Stop::DEFAULT };
    for round in 0..=ROUNDS {
        x.fill(0.0);
        let seconds = together(&space, &*comm, || {
            let history = method.solve(&space, &a, Some(&jacobi), &rhs, &mut x, &stop, &mut ())?;
            one = Some(One {
                iterations: history.iterations,
                reductions: history.reductions,
                residuals: history.residuals.clone(),
                outcome: history.outcome,
                residual: history.true_relative_residual,
            });
            Ok(())
        })?;
        if round > 0 {
            best = best.min(seconds);
        }
    }
    let one = one.ok_or_else(|| krylith_core::Error::invalid("nothing was solved"))?;
    Ok((one, best))
}
