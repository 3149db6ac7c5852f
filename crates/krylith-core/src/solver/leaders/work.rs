//! Calls of a solver whose rows gather on leaders.

use super::message::{Parts, Writer};
use super::{Leaders, Values, Way, answer, caught, channel, lengths};
use crate::comm::gather;
use crate::matrix::check_finite;
use crate::memory::{Numbers, NumbersMut};
use crate::problem::Gathered;
use crate::profile::SetupParts;
use crate::solver::attempt::{Coefficients, Operand};
use crate::solver::functions::Given;
use crate::solver::{DeviceUsed, Solution, Solver};
use crate::space::{Observer, Stop};
use crate::{Error, Result};
use std::ops::Range;
use std::sync::Arc;

/// The numbers of columns that ranks without rows have: any.
const ANY: u64 = u64::MAX;

fn nothing(_: &mut Writer, _: &(), _: Range<usize>) {}

impl Solver<'_> {
    /// Solves for this rank's b, from its x.
    pub(in crate::solver) fn run_on_leaders(
        &mut self,
        transposed: bool,
        b: Numbers,
        mut x: NumbersMut,
        observer: &mut (dyn Observer + Send),
    ) -> Result<()> {
        let (stop, limit) = (self.stop, self.time_limit);
        let checked = stop.check().and_then(|()| self.check_vectors([("b", b.len()), ("x", x.len())]));
        let mut setup = std::mem::take(&mut self.setup);
        let solution = self.on_leaders(|solver, leaders| {
            let brought = checked.and_then(|()| leaders.bring(Some(("b", b)), Some(("x0", x.as_array()))));
            if let Err(e) = solver.agreed(brought) {
                return own_error(solver, e);
            }
            leaders.collect()?;
            let made = leaders.lead(|inner, [b, x]| {
                (inner.stop, inner.time_limit) = (stop, limit);
                inner.run_given(
                    Given::default(),
                    transposed,
                    Numbers::from(&*b),
                    NumbersMut::from(&mut *x),
                    observer,
                )?;
                Ok(inner.solution().clone())
            });
            let made = made.map(|made| made.map(|solution| leaders.told(solution, &mut setup)));
            let done = leaders.exchange(solver, made, &write_one, &answer::read)?;
            let back = leaders.give_back(done.is_ok(), |own| x.write(own))?;
            Ok(done.and_then(|solution| back.map(|()| solution)))
        });
        self.solution = solution?;
        Ok(())
    }

    /// Solves for several right-hand sides.
    pub(in crate::solver) fn columns_on_leaders(
        &mut self,
        transposed: bool,
        stop: Stop,
        b: Numbers,
        mut x: NumbersMut,
        mut observer: Option<&mut (dyn Observer + Send)>,
    ) -> Result<Vec<Solution>> {
        self.check_whole()?;
        let limit = self.time_limit;
        let count = self.common_columns(b.len(), x.len())?;
        let n = self.problem.own_len();
        let (mut all, mut setup) = ([Vec::new(), Vec::new()], std::mem::take(&mut self.setup));
        let solutions = self.on_leaders(|solver, leaders| {
            let read = stop.check().and_then(|()| Ok([b.to_vec()?, x.as_array().to_vec()?]));
            let read = read.and_then(|own| {
                let finite = |k: usize| {
                    let of = |v: &'static str, from: &Vec<f64>| check_finite(v, &from[k * n..(k + 1) * n]);
                    of("b", &own[0]).and_then(|()| of("x0", &own[1])).map_err(|e| e.in_column(k))
                };
                (0..count).try_for_each(finite).map(|()| own)
            });
            let own = match solver.agreed(read) {
                Ok(own) => own,
                Err(e) => return own_error(solver, e),
            };
            for k in 0..count {
                let [b, x] = own.each_ref().map(|v| Numbers::from(&v[k * n..(k + 1) * n]));
                leaders.bring(Some(("b", b)), Some(("x0", x)))?;
                leaders.collect()?;
                for (all, whole) in all.iter_mut().zip(&leaders.whole) {
                    all.extend_from_slice(whole);
                }
            }
            let made = leaders.lead(|inner, _| {
                inner.time_limit = limit;
                let [b, x] = &mut all;
                let mut request = inner.request(&*b, &mut *x).stop(stop).transposed(transposed);
                if let Some(observer) = observer.take() {
                    request = request.observer(observer);
                }
                if count == 0 { Ok(Vec::new()) } else { request.columns() }
            });
            let made = made.map(|made| {
                made.map(|all| all.into_iter().map(|one| leaders.told(one, &mut setup)).collect::<Vec<_>>())
            });
            let write = |out: &mut Writer, all: &Vec<Solution>, run: Range<usize>| {
                out.list(all, |out, one| answer::write(out, one, run.clone()));
            };
            let done = leaders.exchange(solver, made, &write, &|from: &mut Parts| from.list(answer::read))?;
            let total = leaders.whole[1].len();
            let mut written = Ok(());
            for k in 0..count {
                if leaders.is_leader() {
                    leaders.whole[1].copy_from_slice(&all[1][k * total..(k + 1) * total]);
                }
                let back = leaders.give_back(true, |own| x.range(k * n..(k + 1) * n).write(own))?;
                written = written.and(back);
            }
            Ok(done.and_then(|all| written.map(|()| all)))
        })?;
        if let Some(last) = solutions.last() {
            self.solution = last.clone();
        }
        Ok(solutions)
    }

    /// Returns the number of columns, which must be that of all ranks. A rank without rows cannot know it.
    fn common_columns(&self, b: usize, x: usize) -> Result<usize> {
        let n = self.problem.own_len();
        let own = match (b == x, n) {
            (true, 0) if b == 0 => Ok(ANY),
            (true, 1..) if b.is_multiple_of(n) => Ok((b / n) as u64),
            _ => Err(Error::invalid(format!(
                "B has {b} numbers and X has {x}; both need the same whole number of columns with {n} numbers"
            ))),
        };
        let own = self.agreed(own)?;
        let all = gather(&*self.problem.comm, &own.to_le_bytes())?;
        let all = all.iter().map(|bytes| bytes.as_slice().try_into().map_or(ANY, u64::from_le_bytes));
        let mut known = all.enumerate().filter(|(_, count)| *count != ANY);
        let Some((first, count)) = known.next() else { return Ok(0) };
        match known.find(|(_, other)| *other != count) {
            None => Ok(count as usize),
            Some((rank, other)) => Err(Error::invalid(format!(
                "rank {first} gives {count} right-hand sides, and rank {rank} gives {other}; give the same \
                 number on every rank"
            ))),
        }
    }

    /// Applies A or P⁻¹, or the transpose of one.
    pub(in crate::solver) fn apply_on_leaders(
        &mut self,
        what: Operand,
        transposed: bool,
        x: Numbers,
        mut y: NumbersMut,
    ) -> Result<()> {
        let checked = self.check_vectors([("x", x.len()), ("y", y.len())]);
        self.on_leaders(|solver, leaders| {
            let brought = checked.and_then(|()| leaders.bring(Some(("x", x)), None));
            if let Err(e) = solver.agreed(brought) {
                return own_error(solver, e);
            }
            leaders.collect()?;
            let made = leaders.lead(|inner, [x, y]| {
                inner.apply(what, transposed, Numbers::from(&*x), NumbersMut::from(&mut *y))
            });
            let done = leaders.exchange(solver, made, &nothing, &|_| Ok(()))?;
            let back = leaders.give_back(done.is_ok(), |own| y.write(own))?;
            Ok(done.and(back))
        })
    }

    /// Gives new values and coefficients, which are checked already, to the leader.
    pub(in crate::solver) fn take_on_leaders(
        &mut self,
        new: &[(usize, Numbers)],
        coefficients: Option<Coefficients>,
    ) -> Result<()> {
        let refresh = self.refresh;
        let done = self.on_leaders(|solver, leaders| {
            let mut stored: Vec<(usize, Vec<f64>)> = Vec::new();
            let problem = &mut solver.problem;
            let ordered = solver.workers.first(|| {
                new.iter().try_for_each(|&(term, given)| {
                    let mut values = Vec::new();
                    if let Gathered::Same = problem.gather(term, given, &mut values)? {
                        values = given.to_vec()?;
                    }
                    problem.terms.update_values(term, &values[..])?;
                    stored.push((term, values));
                    Ok(())
                })
            });
            if let Err(e) = solver.agreed(ordered) {
                return own_error(solver, e);
            }
            let whole = if new.is_empty() { Vec::new() } else { leaders.collect_values(solver, &stored)? };
            let stages = solver.problem.stages.clone();
            let made = leaders.lead(|inner, _| {
                inner.set_refresh(refresh);
                match (&whole[..], coefficients, &stages) {
                    ([], Some(coefficients), _) => inner.set_tau(coefficients.tau()),
                    ([m, l], Some(coefficients), Some((a, b))) => {
                        inner.update_kronecker(a, b, coefficients.tau(), m, l)
                    }
                    (values, ..) => {
                        new.iter().zip(values).try_for_each(|((term, _), v)| inner.update_term(*term, v))
                    }
                }
            });
            leaders.exchange(solver, made, &nothing, &|_| Ok(()))
        });
        done?;
        self.scale(coefficients);
        Ok(())
    }

    /// Returns the solver that has the matrices that this rank's preconditioners name, besides this one.
    pub(in crate::solver) fn inner(&mut self) -> Option<&mut Solver<'static>> {
        self.leaders.as_mut().and_then(|leaders| leaders.inner.as_mut())
    }
}

fn write_one(out: &mut Writer, solution: &Solution, run: Range<usize>) {
    answer::write(out, solution, run);
}

/// Returns an error on which the ranks agree. After one of a machine, ranks may be at different steps.
fn own_error<T>(solver: &mut Solver, e: Error) -> Result<Result<T>> {
    if e.is_fatal() {
        solver.broken = Some(e.to_string());
    }
    Ok(Err(e))
}

impl Leaders {
    /// Prepares own vectors for their way to the leader, after a look for numbers that are not finite.
    fn bring(&mut self, b: Option<(&str, Numbers)>, x: Option<(&str, Numbers)>) -> Result<()> {
        let total = self.lengths.iter().sum();
        for ((place, given), scratch) in [b, x].into_iter().enumerate().zip(&mut self.scratch) {
            let Some((name, numbers)) = given else { continue };
            let own = numbers.on_host(scratch)?;
            check_finite(name, own)?;
            let n = own.len();
            match self.inner {
                Some(_) => {
                    self.whole[place].resize(total, 0.0);
                    self.whole[place][..n].copy_from_slice(own);
                }
                None => self.vectors.outgoing()[place * n..(place + 1) * n].copy_from_slice(own),
            }
        }
        Ok(())
    }

    /// Brings the vectors of the group to the leader.
    fn collect(&mut self) -> Result<()> {
        let total = self.lengths.iter().sum();
        self.vectors.start()?;
        let came = self.vectors.finish()?;
        if self.inner.is_some() {
            let (mut from, mut to) = (0, self.lengths[0]);
            self.whole.iter_mut().for_each(|v| v.resize(total, 0.0));
            for &n in &self.lengths[1..] {
                for whole in &mut self.whole {
                    whole[to..to + n].copy_from_slice(&came[from..from + n]);
                    from += n;
                }
                to += n;
            }
        }
        Ok(())
    }

    /// Brings new values of terms to the leader; returns those of the group, in the order of the terms.
    fn collect_values(&mut self, solver: &Solver, own: &[(usize, Vec<f64>)]) -> Result<Vec<Vec<f64>>> {
        let comm = &*solver.problem.comm;
        if self.values.is_none() {
            let terms = solver.problem.terms.terms.iter();
            let counts = lengths(comm, &self.group, &terms.map(|(_, a)| a.stored()).collect::<Vec<_>>())?;
            let sums: Vec<usize> = counts.iter().map(|terms| terms.iter().sum()).collect();
            self.values = Some(Values { channel: channel(comm, &self.group, &sums, Way::ToLeader)?, counts });
        }
        let Some(Values { channel, counts }) = &mut self.values else { return Ok(Vec::new()) };
        let before = |counts: &[usize], term: usize| counts[..term].iter().sum::<usize>();
        if self.inner.is_none() {
            let place = self.group.iter().position(|&rank| rank == comm.rank()).unwrap_or(0);
            for (term, values) in own {
                let start = before(&counts[place], *term);
                channel.outgoing()[start..start + values.len()].copy_from_slice(values);
            }
        }
        channel.start()?;
        let came = channel.finish()?;
        if self.inner.is_none() {
            return Ok(Vec::new());
        }
        let whole = own.iter().map(|(term, values)| {
            let (mut whole, mut start) = (values.clone(), 0);
            for counts in &counts[1..] {
                let from = start + before(counts, *term);
                whole.extend_from_slice(&came[from..from + counts[*term]]);
                start += counts.iter().sum::<usize>();
            }
            whole
        });
        Ok(whole.collect())
    }

    /// Runs the leader's work on its solver and on the vectors of the group; `None` on other ranks.
    fn lead<T>(
        &mut self,
        work: impl FnOnce(&mut Solver<'static>, &mut [Vec<f64>; 2]) -> Result<T>,
    ) -> Option<Result<T>> {
        let Self { inner, whole, .. } = self;
        inner.as_mut().map(|inner| caught(|| work(inner, whole)))
    }

    /// Sends x to the ranks of the group, and passes each its own part if the call has succeeded. Returns an
    /// error of `write` apart from those of the communicator.
    fn give_back(&mut self, is_valid: bool, write: impl FnOnce(&[f64]) -> Result<()>) -> Result<Result<()>> {
        if !is_valid {
            return Ok(Ok(())); // the same on every rank of the group
        }
        let own = self.lengths[0];
        if self.inner.is_some() {
            self.back.outgoing().copy_from_slice(&self.whole[1][own..]);
        }
        self.back.start()?;
        let came = self.back.finish()?;
        Ok(write(if self.inner.is_some() { &self.whole[1][..own] } else { came }))
    }

    /// Returns a solution of the inner solver with what is known of the groups. Takes the time of the set-up
    /// outside the inner solver.
    pub(super) fn told(&self, solution: Solution, setup: &mut SetupParts) -> Solution {
        let device = &*solution.device;
        let reason = format!("{}; {}", device.reason, self.plan.text);
        let device = Arc::new(DeviceUsed { reason, ..device.clone() });
        let mut told = Solution { x: Vec::new(), device, ..solution };
        let outside = std::mem::take(setup);
        if outside.total() > 0.0 {
            told.setup_parts.add(outside);
            told.setup_seconds = told.setup_parts.total();
        }
        told
    }
}
