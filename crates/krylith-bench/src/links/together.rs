//! Several devices, one rank each: the additional cost of sums and exchanges, compared with the same kernels
//! on one device.

use super::ring::{BLOCK, NODE, STAGES, neighbours, ring, source, value};
use super::{Ground, Make, Plan, RESTART, Way, per_step};
use krylith_core::comm::{Communicator, Team};
use krylith_core::method::gmres::{Arrays, Scalars};
use krylith_core::operator::{LinearOperator, PointBlock};
use krylith_core::space::{BATCH, FLAGS, LIMIT, Space};
use krylith_core::{Error, Precision, Result};
use krylith_model::{Curve, Host};
use std::sync::Arc;
use std::time::Instant;

/// Measurements of one rank, in seconds.
#[derive(Default)]
struct Seen {
    all_reduce: f64,
    /// A sum over the ranks' host threads.
    host_sum: f64,
    /// Exchanges that no product hides, one per message size.
    exchange: Vec<f64>,
    /// Exchanges during a product of interior rows, one per message size.
    overlapped: Vec<f64>,
}

/// Measures everything on `gpus` devices by one transport; the slowest rank counts. Also returns notes on
/// suspect values.
///
/// # Errors
/// Returns an error if the transport does not work here, if memory is not sufficient, if a rank failed, or if
/// a result is wrong.
pub(super) fn measure<G: Ground>(
    ground: &G,
    plan: &Plan,
    gpus: usize,
    way: Way,
) -> Result<(Host, Vec<String>)> {
    let all = Team::run(gpus, |comm| {
        let comm: Arc<dyn Communicator> = comm;
        let make = ground.join(&comm, way)?;
        let mut seen = Seen { host_sum: host_sum(&*comm, plan)?, ..Seen::default() };
        seen.all_reduce = time_all_reduce(ground, &make, plan, &comm)?;
        for &message in &plan.messages {
            seen.exchange.push(exchange(ground, &make, plan, &comm, message, 0)?);
        }
        for &message in &plan.hidden {
            seen.overlapped.push(exchange(ground, &make, plan, &comm, message, plan.interior)?);
        }
        Ok(seen)
    })?;
    let most = |of: &dyn Fn(&Seen) -> f64| all.iter().map(of).fold(f64::NEG_INFINITY, f64::max);
    let mut notes = Vec::new();
    let mut cost = |what: String, seconds: f64| {
        if seconds < 0.0 {
            notes.push(format!(
                "{gpus} GPUs, {what}: {:e} s less than one GPU alone; recorded as 0",
                -seconds
            ));
        }
        seconds.max(0.0)
    };
    let sent = |message: usize| (neighbours(0, gpus).len() * message * NODE) as f64;
    let curve =
        |messages: &[usize], of: &dyn Fn(&Seen, usize) -> f64, cost: &mut dyn FnMut(String, f64) -> f64| {
            let points = messages.iter().enumerate();
            Curve(
                points
                    .map(|(i, &m)| [sent(m), cost(format!("{} bytes", sent(m)), most(&|s| of(s, i)))])
                    .collect(),
            )
        };
    let exchange = curve(&plan.messages, &|s, i| s.exchange[i], &mut cost);
    let hidden = curve(&plan.hidden, &|s, i| s.overlapped[i], &mut cost);
    let all_reduce = cost("all-reduce".into(), most(&|s| s.all_reduce));
    let host = Host { gpus, all_reduce, meeting: most(&|s| s.host_sum), exchange, hidden };
    Ok((host, notes))
}

/// Returns the seconds of a sum over the ranks' host threads.
fn host_sum(comm: &dyn Communicator, plan: &Plan) -> Result<f64> {
    let mut begin = Instant::now();
    for i in 0..2 * plan.meetings {
        if i == plan.meetings {
            begin = Instant::now();
        }
        comm.sum(&mut [1.0])?;
    }
    Ok(begin.elapsed().as_secs_f64() / plan.meetings as f64)
}

/// Returns how much longer a projection on 15 columns (33 sums) takes on all ranks than on one device alone,
/// in seconds. Collective.
fn time_all_reduce<G: Ground>(
    ground: &G,
    make: &Make<'_, G::Space>,
    plan: &Plan,
    comm: &Arc<dyn Communicator>,
) -> Result<f64> {
    let alone = projection(&ground.alone(comm.rank(), plan.short)?, plan, 1)?;
    let space = make(plan.short)?;
    Ok(projection(&space, plan, comm.size())? - alone)
}

/// Returns the seconds of a projection of short vectors; the sums are checked.
fn projection<S: Space>(space: &S, plan: &Plan, ranks: usize) -> Result<f64> {
    let (layout, columns) = (Arrays::at(RESTART), RESTART / 2);
    let (mut w, mut z) = (space.vector()?, space.vector()?);
    let (v, mut scalars) = (space.basis(RESTART, Precision::F64)?, space.scalars(layout.len)?);
    space.write(&vec![1.0; space.len()], &mut w)?;
    space.write(&vec![2.0; space.len()], &mut z)?;
    let mut flags = [0; FLAGS];
    (flags[LIMIT], flags[BATCH]) = (i32::MAX, RESTART as i32);
    space.write_scalars(&mut scalars, 0, &[1.0; Scalars::LEN], &flags)?;
    space.guard(None);
    let seconds = per_step(space, plan, plan.repeats, |s| {
        s.project_pair(&v, columns, &w, &z, &mut scalars, layout.dots)
    })?;
    // Vᵀw, Vᵀz, then wᵀw, wᵀz, zᵀz: 0 for the columns, then n, 2n, 4n.
    let mut sums = vec![f64::NAN; 2 * columns + 3];
    space.read_scalars(&scalars, layout.dots, &mut sums, &mut flags)?;
    let n = (ranks * space.len()) as f64;
    let expected = [n, 2.0 * n, 4.0 * n];
    let mut last = sums[2 * columns..].to_vec();
    last.sort_by(f64::total_cmp);
    if last != expected || sums[..2 * columns].iter().any(|&v| v != 0.0) {
        return Err(Error::invalid(format!(
            "an all-reduce gave {sums:?}; expected zeros, then {expected:?} in any order"
        )));
    }
    Ok(seconds)
}

/// Returns how much longer, in seconds, a product takes that copies `message` nodes from each neighbour than
/// one that copies only own nodes. Both have `interior` further rows. Collective.
pub(super) fn exchange<G: Ground>(
    ground: &G,
    make: &Make<'_, G::Space>,
    plan: &Plan,
    comm: &Arc<dyn Communicator>,
    message: usize,
    interior: usize,
) -> Result<f64> {
    let (rank, size) = (comm.rank(), comm.size());
    let rows = neighbours(rank, size).len();
    let len = (rows * message + interior) * BLOCK * STAGES;
    let alone = {
        let terms = ring(0, 1, rows, message, interior)?;
        time_copy(&ground.alone(rank, len)?, plan, terms, rank, &|i| (rank, i))?
    };
    let terms = ring(rank, size, rows, message, interior)?;
    let together = time_copy(&make(len)?, plan, terms, rank, &|i| source(rank, size, message, i))?;
    Ok(together - alone)
}

/// Returns the seconds of a product that copies nodes; its result is checked after the last one.
fn time_copy<S: krylith_core::operator::PointBlockSum>(
    space: &S,
    plan: &Plan,
    terms: krylith_core::operator::Terms<'static>,
    rank: usize,
    from: &dyn Fn(usize) -> (usize, usize),
) -> Result<f64> {
    let run = BLOCK * STAGES;
    // `true`: blocks are stored densely, as in a solve that uses no structure inside them.
    let operator = PointBlock::new(space, &terms, Precision::F64, true)?;
    let (mut x, mut y) = (space.vector()?, space.vector()?);
    let numbers: Vec<f64> = (0..space.len()).map(|k| value(rank, k / run, k % run)).collect();
    space.write(&numbers, &mut x)?;
    space.guard(None);
    space.comm().sum(&mut [0.0])?;
    let seconds = per_step(space, plan, plan.repeats, |s| operator.apply(s, &x, &mut y))?;
    let mut got = vec![f64::NAN; space.len()];
    space.read(&y, &mut got)?;
    let wrong = got.iter().enumerate().find(|(k, got)| {
        let (q, i) = from(k / run);
        **got != value(q, i, k % run)
    });
    match wrong {
        None => Ok(seconds),
        Some((k, got)) => {
            let (q, i) = from(k / run);
            Err(Error::invalid(format!(
                "an exchange gave the wrong value {got} for node {i} of rank {q}, on rank {rank}"
            )))
        }
    }
}
