//! Several ranks for each device. The rows of a group of ranks gather on its first rank, the leader, which
//! has a solver over the communicator of all leaders. The other ranks wait without work.
//!
//! This is a layer between the callers of a [`Solver`] and the solver over ranks. A solver of a group has the
//! problem as its rank gave it, no device, and [`Leaders`]; the leader's has an inner solver too. Each call
//! runs in four steps:
//!
//! 1. All ranks agree that their arguments are right.
//! 2. Numbers of own rows go to the leader: b and x₀, or new values in storage order.
//! 3. The leader calls its inner solver, and the others wait for it. This wait has no time limit, because the
//!    waits of the leader have theirs, and because it ends if the leader does.
//! 4. x goes back, and the leader's answer: a solution in bytes, or its error. So all ranks report the same.
//!
//! An application moves 3n numbers between ranks of a host: 24 bytes for each unknown.

mod answer;
mod message;
mod plan;
mod rows;
mod work;

use super::workers::WorkerGroup;
use super::{Refresh, Solution, Solver};
use crate::comm::{Channel, Communicator, Message, agree, gather};
use crate::device::workers::Waiting;
use crate::interrupt::Cancel;
use crate::method::{GmresOptions, MethodSpec};
use crate::options::{Options, RanksPerGpu};
use crate::profile::{self, SetupPart};
use crate::{Error, Problem, Result};
use message::{Parts, Writer};
use plan::Plan;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

/// One rank's place in a group of ranks, and its messages to and from the leader.
pub(super) struct Leaders {
    plan: Plan,
    /// The ranks of this group; the first is the leader.
    group: Vec<usize>,
    /// Number of unknowns of each rank of the group.
    lengths: Vec<usize>,
    /// The solver of the leader.
    inner: Option<Solver<'static>>,
    /// b and x of the others, to the leader.
    vectors: Box<dyn Channel>,
    /// x, from the leader.
    back: Box<dyn Channel>,
    /// A number from the leader once it is done.
    done: Box<dyn Channel>,
    /// New values of all terms, to the leader; the first update makes it.
    values: Option<Values>,
    /// b and x of all ranks of the group, on the leader.
    whole: [Vec<f64>; 2],
    /// Copies of vectors that are not on the host.
    scratch: [Vec<f64>; 2],
}

/// The channel of new values, and the number of values of each term of each rank of the group.
struct Values {
    channel: Box<dyn Channel>,
    counts: Vec<Vec<usize>>,
}

impl<'a> Solver<'a> {
    /// Makes a solver of a group of ranks if the options ask for groups; returns the problem if they do not.
    /// Collective.
    ///
    /// # Errors
    /// As [`Solver::new`], the same on every rank.
    pub(super) fn with_leaders(
        problem: Problem<'a>,
        options: &Arc<Options>,
        cancel: &Cancel,
        waiting: &mut Option<Waiting>,
    ) -> Result<std::result::Result<Self, Problem<'a>>> {
        let Some(plan) = Plan::of(&*problem.comm, options)? else { return Ok(Err(problem)) };
        let comm = problem.comm.clone();
        let group = plan.groups[plan.group_of(comm.rank())].clone();
        let is_leader = group[0] == comm.rank();
        let between = comm.split(usize::from(!is_leader))?;
        let mut workers = WorkerGroup::standby(if is_leader { None } else { waiting.take() })?;

        let clock = profile::begin(SetupPart::Other);
        let own = agree(&*comm, workers.first(|| rows::message(&problem)))?;
        let mut out = vec![Vec::new(); comm.size()];
        out[group[0]] = own;
        let mut came = comm.all_to_all(out)?;
        let lengths = lengths(&*comm, &group, &[problem.own_len()])?.concat();
        let leaders = Leaders {
            vectors: channel(
                &*comm,
                &group,
                &lengths.iter().map(|n| 2 * n).collect::<Vec<_>>(),
                Way::ToLeader,
            )?,
            back: channel(&*comm, &group, &lengths, Way::FromLeader)?,
            done: channel(&*comm, &group, &vec![1; group.len()], Way::FromLeader)?,
            values: None,
            whole: Default::default(),
            scratch: Default::default(),
            inner: None,
            plan,
            group,
            lengths,
        };
        drop(clock);
        let setup = profile::take();

        let mut solver = Self {
            stop: options.stop_of(problem.unknowns()),
            solution: Solution::unsolved(MethodSpec::Gmres(GmresOptions::default())),
            leaders: Some(Box::new(leaders)),
            blocks: Default::default(),
            dropped: None,
            fixed: None,
            recognised: None,
            options: options.clone(),
            pending: None,
            rows: None,
            is_renewed: false,
            is_scaled: false,
            time_limit: options.time_limit.and_then(|limit| Duration::try_from_secs_f64(limit).ok()),
            cancel: cancel.clone(),
            refresh: Refresh::default(),
            trial: None,
            column: None,
            adjoint: None,
            is_without_matrix: false,
            broken: None,
            problem,
            workers,
            setup,
        };
        let options = Options { ranks_per_gpu: Some(RanksPerGpu::Count(1)), ..(**options).clone() };
        solver.solution = solver.on_leaders(|solver, leaders| {
            let made = is_leader.then(|| {
                caught(|| {
                    let messages =
                        leaders.group.iter().map(|&q| (q, std::mem::take(&mut came[q]))).collect::<Vec<_>>();
                    let problem = rows::problem(&solver.problem, between.clone(), &messages);
                    let problem = agree(&*between, problem)?;
                    drop(messages);
                    let waiting = waiting.take();
                    let inner = Solver::new_cancellable(problem, &options, cancel, waiting)?;
                    let solution = leaders.told(inner.solution().clone(), &mut Default::default());
                    leaders.inner = Some(inner);
                    Ok(solution)
                })
            });
            leaders.exchange(
                solver,
                made,
                &|out, solution, run| answer::write(out, solution, run),
                &answer::read,
            )
        })?;
        Ok(Ok(solver))
    }

    /// Runs a step of this solver with its leaders. A failure of the communicator breaks the solver.
    fn on_leaders<T>(
        &mut self,
        step: impl FnOnce(&mut Self, &mut Leaders) -> Result<Result<T>>,
    ) -> Result<T> {
        let missing = || Error::Internal("a solver without leaders".into());
        let mut leaders = self.leaders.take().ok_or_else(missing)?;
        let done = step(self, &mut leaders);
        self.leaders = Some(leaders);
        done.unwrap_or_else(|lost| {
            self.broken = Some(lost.to_string());
            // If a failure ends the whole job, the caller decides when.
            if self.problem.comm.outlives_failure() {
                self.problem.comm.fail(&lost.to_string());
            }
            Err(lost)
        })
    }
}

impl Leaders {
    /// Ends a step: waits for the leader, and gives its answer to all ranks of the group. `made` is that of
    /// the leader. Collective.
    fn exchange<T>(
        &mut self,
        solver: &mut Solver,
        made: Option<Result<T>>,
        write: &dyn Fn(&mut Writer, &T, Range<usize>),
        read: &dyn Fn(&mut Parts) -> Result<T>,
    ) -> Result<Result<T>> {
        let comm = solver.problem.comm.clone();
        let done = &mut self.done;
        done.start()?;
        solver.workers.first(|| done.finish_when_ready().map(drop))?;
        let mut out = vec![Vec::new(); comm.size()];
        let made = made.map(|made| made.map_err(|e| self.renumbered(e)));
        if let Some(made) = &made {
            let is_broken = self.inner.as_ref().is_some_and(Solver::is_broken);
            for (k, &rank) in self.group.iter().enumerate() {
                let mut to = Writer::default();
                to.flag(is_broken);
                to.option(made.as_ref().err(), |to, e| failure(to, e, self.group[0]));
                if let Ok(made) = made {
                    let start = self.lengths[..k].iter().sum::<usize>();
                    write(&mut to, made, start..start + self.lengths[k]);
                }
                out[rank] = to.0;
            }
        }
        let mut came = comm.all_to_all(out)?;
        let answer = std::mem::take(&mut came[self.group[0]]);
        let mut parts = Parts::new(&answer, self.group[0]);
        let (is_broken, error) = (parts.flag()?, parts.option(read_failure)?);
        let error = match made {
            Some(Err(own)) => Some(own),
            _ => error,
        };
        Ok(match error {
            Some(e) => {
                if is_broken {
                    solver.broken = Some(e.to_string());
                }
                Err(e)
            }
            None => read(&mut parts),
        })
    }

    /// Returns an error of the inner solver with the number that its rank has among all.
    fn renumbered(&self, e: Error) -> Error {
        match e {
            Error::Rank { rank, message, exit_code, memory } => {
                let rank = self.plan.groups.get(rank).map_or(rank, |group| group[0]);
                Error::Rank { rank, message, exit_code, memory }
            }
            other => other,
        }
    }

    /// Returns true on the rank that solves.
    fn is_leader(&self) -> bool {
        self.inner.is_some()
    }
}

/// Writes the error of a leader, or that of the rank that it names.
fn failure(out: &mut Writer, e: &Error, leader: usize) {
    let (rank, message) = match e {
        Error::Rank { rank, message, .. } => (*rank, message.clone()),
        other => (leader, other.to_string()),
    };
    out.word(rank as u64);
    out.text(&message);
    out.word(u64::from(e.exit_code()));
    out.flag(e.is_memory());
}

fn read_failure(from: &mut Parts) -> Result<Error> {
    Ok(Error::Rank {
        rank: from.count()?,
        message: from.text()?,
        exit_code: from.word()? as u8,
        memory: from.flag()?,
    })
}

/// Runs the work of a leader. A panic becomes an error, since the other ranks wait for the end of the work.
fn caught<T>(work: impl FnOnce() -> Result<T>) -> Result<T> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| Err(Error::of_panic(&*panic)))
}

/// Collects a few counts of each rank of a group. Collective.
fn lengths(comm: &dyn Communicator, group: &[usize], own: &[usize]) -> Result<Vec<Vec<usize>>> {
    let bytes: Vec<u8> = own.iter().flat_map(|n| (*n as u64).to_le_bytes()).collect();
    let all = gather(comm, &bytes)?;
    let counts =
        |bytes: &Vec<u8>| bytes.as_chunks().0.iter().map(|w| u64::from_le_bytes(*w) as usize).collect();
    Ok(group.iter().map(|&rank| counts(&all[rank])).collect())
}

/// The way of messages in a group.
#[derive(Clone, Copy, PartialEq)]
enum Way {
    ToLeader,
    FromLeader,
}

/// Creates the channel of numbers that go this way between a leader and the ranks of its group: as many as
/// `counts` says for each rank. Collective.
fn channel(comm: &dyn Communicator, group: &[usize], counts: &[usize], way: Way) -> Result<Box<dyn Channel>> {
    comm.channel(&messages(comm.rank(), group, counts, way))
}

/// Lists the messages of a rank of a group.
fn messages(rank: usize, group: &[usize], counts: &[usize], way: Way) -> Vec<Message> {
    let is_leader = rank == group[0];
    let of = |other: usize, numbers: Range<usize>| match is_leader == (way == Way::FromLeader) {
        true => Message { rank: other, send: numbers, receive: 0..0 },
        false => Message { rank: other, send: 0..0, receive: numbers },
    };
    if !is_leader {
        let own = group.iter().position(|&other| other == rank).map_or(0, |k| counts[k]);
        return vec![of(group[0], 0..own)];
    }
    let mut start = 0;
    let others = group.iter().zip(counts).skip(1).map(|(&other, count)| {
        start += count;
        of(other, start - count..start)
    });
    others.collect()
}
