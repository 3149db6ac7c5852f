//! Krylith from arrays to x, by part.

use super::system::System;
use crate::launch::whole;
use krylith_core::comm::{Communicator, largest};
use krylith_core::matrix::{Bsr, Dense};
use krylith_core::partition::{RowBlocks, Rows, contiguous};
use krylith_core::precond::PrecondInfo;
use krylith_core::solver::SetupPart;
use krylith_core::{Error, Options, Outcome, Problem, Result, Solver};
use krylith_problems::SystemKind;
use std::sync::Arc;
use std::time::Instant;

/// One run of a variant.
#[derive(Default)]
pub(crate) struct Answer {
    /// Seconds of each part, in order.
    pub parts: Vec<(&'static str, f64)>,
    /// Seconds from arrays to x.
    pub total: f64,
    pub iterations: usize,
    /// True if the method reports convergence.
    pub converged: bool,
    pub x: Vec<f64>,
    /// The method and preconditioner, if `auto` chose them.
    pub means: String,
    /// Krylith's preconditioner at the end of the solve.
    pub precond: Option<Arc<PrecondInfo>>,
    /// Largest number of bytes in use on a device, if counted.
    pub device_memory: Option<u64>,
}

impl Answer {
    /// Returns the seconds before the first iteration.
    pub fn setup(&self) -> f64 {
        self.parts.iter().filter(|(name, _)| !matches!(*name, "solve" | "read back")).map(|p| p.1).sum()
    }
}

/// Columns of the table, and the parts of a set-up in each.
const COLUMNS: [(&str, &[SetupPart]); 8] = [
    ("device", &[SetupPart::Device]),
    ("upload", &[SetupPart::Upload]),
    ("product", &[SetupPart::Product]),
    ("survey", &[SetupPart::SystemAnalysis]),
    ("preconditioner", &[SetupPart::Subdomains, SetupPart::Analysis, SetupPart::Factors]),
    ("compile", &[SetupPart::Compile]),
    ("method", &[SetupPart::Method]),
    ("other", &[SetupPart::Other]),
];

/// Solves from host arrays, which are copied before the clock starts.
pub(crate) fn from_host(system: &System, options: &Options, rhs: &[f64]) -> Result<Answer> {
    let copied = |a: &Bsr| Some((a.row_ptr().to_vec(), a.col().to_vec(), a.values().to_vec()));
    let mut arrays: Vec<_> = system.matrices().into_iter().map(copied).collect();
    let mut x = touched(rhs.len());
    let begin = Instant::now();
    let made = system.with(|t| {
        let (b, (row_ptr, col, values)) =
            (system.matrices()[t].block(), arrays[t].take().unwrap_or_default());
        let n = row_ptr.len() - 1;
        Bsr::new(b, n, n, row_ptr, col, values)
    })?;
    let mut answer = solve(problem(system, &made)?, options, begin, |solver| {
        solver.solve(rhs, &mut x)?;
        Ok(())
    })?;
    answer.x = x;
    Ok(answer)
}

/// Solves from host arrays of each rank's rows, which are cut before the clock starts: a run of rows for each
/// process. Every rank returns the seconds of the slowest, and the whole x. Collective.
pub(crate) fn from_ranks(
    comm: &Arc<dyn Communicator>,
    system: &System,
    options: &Options,
    rhs: &[f64],
) -> Result<Answer> {
    let [a] = system.matrices()[..] else {
        return Err(Error::Unsupported("ranks that are processes need a system of one matrix".into()));
    };
    let b = a.block();
    let own = contiguous(a.block_rows(), comm.rank(), comm.size());
    let (ends, bb) = (&a.row_ptr()[own.start..=own.end], b * b);
    let (first, end) = (ends[0], ends[own.len()]);
    let blocks = RowBlocks {
        row_ptr: ends.iter().map(|end| end - first).collect(),
        col: a.col()[first..end].iter().map(|&j| j.into()).collect(),
        values: a.values()[first * bb..end * bb].to_vec(),
    };
    let numbers: Vec<u64> = own.clone().map(|row| row as u64).collect();
    let rows =
        Rows { numbers: numbers.clone(), block: b, terms: vec![(Dense::new(1, 1, vec![1.0])?, blocks)] };
    let rhs = &rhs[own.start * b..own.end * b];
    let mut x = touched(rhs.len());
    comm.sum(&mut [])?;
    let begin = Instant::now();
    let problem = system.describe(Problem::distributed(comm.clone(), rows)?)?;
    let mut answer = solve(problem, options, begin, |solver| {
        solver.solve(rhs, &mut x)?;
        Ok(())
    })?;
    for (_, seconds) in &mut answer.parts {
        *seconds = largest(&**comm, *seconds)?;
    }
    answer.total = largest(&**comm, answer.total)?;
    answer.x = whole(&**comm, &numbers, &x, (a.block_rows(), b))?;
    Ok(answer)
}

/// Solves from arrays in the memory of a GPU, which also holds b and x.
#[cfg(feature = "cuda")]
pub(crate) fn from_device(
    device: &std::sync::Arc<krylith_core::device::cuda::Device>,
    system: &System,
    options: &Options,
    rhs: &[f64],
) -> Result<Answer> {
    use krylith_core::device::cuda::Buffer;
    type Held = (Buffer<i64>, Buffer<u32>, Buffer<f64>);
    let put = |a: &Bsr| -> Result<Held> {
        let row_ptr: Vec<i64> = a.row_ptr().iter().map(|&p| p as i64).collect();
        let row_ptr = device.upload(&row_ptr, "row pointers")?;
        Ok((row_ptr, device.upload(a.col(), "columns")?, device.upload(a.values(), "values")?))
    };
    let (b, mut x) = (device.upload(rhs, "b")?, device.zeros::<f64>(rhs.len(), "x")?);
    let matrices = system.matrices();
    let held = matrices.iter().map(|a| put(a)).collect::<Result<Vec<Held>>>()?;
    device.wait()?;
    let begin = Instant::now();
    let made = system.with(|t| {
        let (n, (row_ptr, col, values)) = (matrices[t].block_rows(), &held[t]);
        Bsr::from_arrays(matrices[t].block(), n, n, row_ptr, col, values)
    })?;
    let mut answer = solve(problem(system, &made)?, options, begin, |solver| {
        solver.solve(&b, &mut x)?;
        Ok(())
    })?;
    answer.x = vec![0.0; rhs.len()];
    device.read(&x, 0, &mut answer.x)?;
    Ok(answer)
}

fn problem<'a>(system: &'a System, made: &'a SystemKind) -> Result<Problem<'a>> {
    system.describe(match made {
        SystemKind::Csr(a) => Problem::csr(a)?,
        SystemKind::Bsr(a) => Problem::bsr(a)?,
        SystemKind::Kronecker(k) => Problem::kronecker(k)?,
    })
}

fn solve<'a>(
    problem: Problem<'a>,
    options: &Options,
    begin: Instant,
    run: impl FnOnce(&mut Solver<'a>) -> Result<()>,
) -> Result<Answer> {
    let check = begin.elapsed().as_secs_f64();
    let mut solver = Solver::new(problem, options)?;
    run(&mut solver)?;
    let total = begin.elapsed().as_secs_f64();
    let solution = solver.solution();
    let set_up = &solution.setup_parts;
    let mut parts = vec![("check", check)];
    parts.extend(COLUMNS.map(|(name, of)| (name, of.iter().map(|part| set_up.of(*part)).sum::<f64>())));
    parts.push(("solve", solution.solve_seconds));
    // Copying b to the device and x back, and other work outside the solver's clocks.
    parts.push(("read back", total - check - set_up.total() - solution.solve_seconds));
    let attempts = solution.events.iter().filter(|e| e.kind.name() == "fallback").count();
    let fallbacks = if attempts > 0 { format!(", {attempts} fallbacks") } else { String::new() };
    Ok(Answer {
        parts,
        total,
        iterations: solution.history.iterations,
        converged: solution.outcome() == Outcome::Converged,
        x: Vec::new(),
        means: format!("{}, {}{fallbacks}", solution.method.title(), solution.precond.text),
        precond: Some(solution.precond.clone()),
        device_memory: solution.device_memory,
    })
}

/// Returns zeros with pages already mapped, so that no clock includes page faults.
fn touched(n: usize) -> Vec<f64> {
    let mut x = vec![1.0; n];
    x.fill(0.0);
    x
}
