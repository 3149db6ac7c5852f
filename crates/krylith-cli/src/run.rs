//! One solve on one device, written once for every device.

use crate::auto::{self, Attempt};
use crate::failure::{Failure, Result, USAGE};
use crate::options::{Method, Precond, Settings};
use crate::precond::subdomains::Shared;
use crate::precond::{self, About, Boxed, Machine};
use crate::refine::{self, Parts};
use crate::report::Event;
use crate::residual::Given;
use crate::share::Cut;
use krylith::comm::{Communicator, agree};
use krylith::method::{self, Bicgstab, BicgstabOptions, Gmres, GmresOptions, Orthogonalization, Reductions};
use krylith::operator::{LinearOperator, PointBlock, Terms};
use krylith::space::Phases;
use krylith::{History, Observer, Stop, Store};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

/// What is to be done.
#[derive(Clone)]
pub struct Job<'a> {
    /// The operator, on the host.
    pub terms: &'a Terms<'a>,
    /// b, in the solver's order.
    pub rhs: &'a [f64],
    /// First guess.
    pub x0: &'a [f64],
    /// Null vectors to be projected out.
    pub null: &'a [Vec<f64>],
    /// Scale before the preconditioner is built.
    pub equilibrate: bool,
    /// Options, decided.
    pub settings: &'a Settings,
    /// Unknowns of the whole system.
    pub unknowns: usize,
    /// Block rows of the whole system that these are; `None` where they are all of them.
    pub numbers: Option<&'a [u64]>,
    /// The ranks that solve it together.
    pub comm: Arc<dyn Communicator>,
    /// Where nodes lie, if that is known: those of these rows, or of the whole system.
    pub coordinates: Option<&'a [[f64; 3]]>,
    /// Nodes in x, y and z of the whole system where they stand on a grid, numbered with x fastest.
    pub grid: Option<[usize; 3]>,
    /// How several GPUs of this process share the rows.
    pub cut: Cut,
    /// Subdomains of these rows that were cut in the whole system.
    pub subdomains: Option<&'a Shared>,
    /// Bytes free where it is solved, if that is known.
    pub room: Option<u64>,
}

/// What was done.
pub struct Solved {
    /// The best x so far.
    pub x: Vec<f64>,
    /// How it went.
    pub history: History,
    /// The attempt that ended the solve.
    pub last: Final,
    /// Where the time went, if the device keeps it.
    pub phases: Option<Phases>,
    /// Seconds before the first iteration.
    pub setup: f64,
    /// Seconds of iterating.
    pub solve: f64,
    /// Bytes that an iteration moves on all ranks, counted and not measured.
    pub bytes_per_iteration: f64,
    /// What a reader of the report should know.
    pub events: Vec<Event>,
}

/// The attempt that ended a solve.
pub struct Final {
    /// Its preconditioner.
    pub about: About,
    /// What it was.
    pub attempt: Attempt,
    /// Iterations before it.
    pub begun: usize,
    /// Restarts of it alone.
    pub restarts: usize,
}

/// Sets up and solves, by as many attempts as it takes ([`auto`]).
///
/// # Errors
/// A preconditioner that was asked for and cannot be built; a device without room.
pub fn run<S: Machine>(space: &S, job: &Job, observer: &mut dyn Observer) -> Result<Solved> {
    let start = Instant::now();
    let Job { terms, settings, .. } = *job;
    let comm = space.comm();
    // Every step of a set-up fails on all ranks or on none.
    let agreed = |f: Failure| Failure { agreed: true, ..f };
    let a = agree(comm, PointBlock::new(space, terms, settings.store, false));
    let a = Rc::new(a.map_err(|e| agreed(e.into()))?);
    let mut setup = start.elapsed().as_secs_f64();
    let _ = space.take_phases();
    let ladder = auto::ladder(job, space.most_rows(job.terms.block() * job.terms.stages()));
    let (mut x, mut events) = (job.x0.to_vec(), Vec::new());
    let (mut solve, mut moved, mut best) = (0.0, 0.0, f64::INFINITY);
    let mut all: Option<(History, Final)> = None;
    let open = settings.precond == Precond::Auto;
    // Beyond the first attempt a device without room is no reason to stop, where nobody else is concerned.
    let mild = |f: &Failure, k: usize| (open && f.code == USAGE) || (k > 0 && comm.size() == 1);
    for (k, attempt) in ladder.iter().enumerate() {
        let (done, next) = (all.as_ref().map_or(0, |(h, _)| h.iterations), ladder.get(k + 1));
        let goes_on = |why: String| {
            let next =
                next.map_or_else(|| "nothing stronger is left".into(), |n| format!("next {}", n.name()));
            Event::new("fallback", Some(done), format!("{}: {why}; {next}", attempt.name()))
        };
        if k > 0 && space.any(auto::too_large(job, attempt))? {
            events.push(goes_on("it may not fit the memory".into()));
            continue;
        }
        let start = Instant::now();
        let mut said = Vec::new();
        let (p, about, mut method) = match set_up(space, job, attempt, &a, &mut said) {
            Ok(parts) => parts,
            // Another preconditioner may be built; a device or a rank that failed has failed for all.
            Err(f) if next.is_some() && mild(&f, k) => {
                events.push(goes_on(f.message));
                continue;
            }
            Err(f) if all.is_some() && mild(&f, k) => {
                events.push(goes_on(f.message));
                break;
            }
            Err(f) => return Err(agreed(f)),
        };
        events.extend(said);
        setup += start.elapsed().as_secs_f64();

        let start = Instant::now();
        let left = settings.max_iters - done;
        let max_iterations = if next.is_some() { left.min(attempt.iterations) } else { left };
        let stop = Stop { rtol: settings.rtol, atol: settings.atol, max_iterations };
        let parts = Parts { space, a: &*a, p: p.as_deref(), rhs: job.rhs, stop };
        let mut tried = x.clone();
        let mut later = auto::Later { observer: &mut *observer, done };
        let history = solve_with(&parts, job, &mut *method, &mut tried, &mut later, &mut events)?;
        solve += start.elapsed().as_secs_f64();
        let fixed = a.bytes() + p.as_ref().map_or(0, |p| p.bytes());
        let bytes = iteration_bytes(settings, attempt, fixed, p.is_some(), space.len(), history.iterations);
        moved += bytes * history.iterations.max(1) as f64;

        let residual = history.true_relative_residual;
        if k == 0 {
            best = history.residuals.first().copied().unwrap_or(f64::INFINITY);
        }
        // The only attempt gives what it has.
        if residual <= best || ladder.len() == 1 {
            (x, best) = (tried, residual);
        }
        let last = Final { about, attempt: attempt.clone(), begun: done, restarts: history.restarts };
        let ended = format!("{} at relative residual {residual:.2e}", history.outcome);
        let again = auto::worth_another(&history) && done + history.iterations < settings.max_iters;
        match &mut all {
            None => all = Some((history, last)),
            Some((whole, end)) => {
                auto::join(whole, history);
                *end = last;
            }
        }
        if !again {
            break;
        }
        if let (Some((whole, _)), Some(next)) = (&all, next) {
            let detail = format!("{}: {ended}; next {}", attempt.name(), next.name());
            events.push(Event::new("fallback", Some(whole.iterations), detail));
        }
    }
    let (mut history, last) = all.ok_or_else(|| Failure::usage("no preconditioner can be built"))?;
    history.true_relative_residual = best;
    let mut bytes = [moved / history.iterations.max(1) as f64];
    comm.sum(&mut bytes)?;
    let phases = space.take_phases();
    Ok(Solved { x, last, phases, setup, solve, bytes_per_iteration: bytes[0], events, history })
}

type SetUp<'a, S> = (Boxed<S>, About, Box<dyn method::Method<S> + 'a>);

/// The preconditioner and the method of an attempt.
fn set_up<'a, S: Machine>(
    space: &S,
    job: &Job,
    attempt: &Attempt,
    a: &Rc<PointBlock<S>>,
    events: &mut Vec<Event>,
) -> Result<SetUp<'a, S>> {
    let (p, about) = precond::preconditioner(space, job, attempt, a, events)?;
    let method = build(space, job.settings, attempt).and_then(|m| space.wait().map(|()| m));
    Ok((p, about, agree(space.comm(), method)?))
}

/// One solve from `x`, or as many as a rounded matrix needs.
fn solve_with<S: Machine>(
    parts: &Parts<S>,
    job: &Job,
    method: &mut dyn method::Method<S>,
    x: &mut [f64],
    observer: &mut dyn Observer,
    events: &mut Vec<Event>,
) -> Result<History> {
    if job.settings.store == Store::F64 {
        return Ok(refine::once(parts, method, x, observer)?);
    }
    let given = Given { terms: job.terms, comm: parts.space.comm() };
    let (history, passes) = refine::refined(parts, method, given, x, observer)?;
    if passes > 1 {
        let detail =
            format!("{passes} passes of iterative refinement against the matrix in f64, stored in f32");
        events.push(Event::new("refinement", None, detail));
    }
    Ok(history)
}

/// Bytes that an average iteration of an attempt moves on this rank; `fixed` are those of operator and preconditioner.
fn iteration_bytes(
    settings: &Settings,
    attempt: &Attempt,
    fixed: u64,
    preconditioned: bool,
    len: usize,
    iterations: usize,
) -> f64 {
    let (fixed, n) = (fixed as f64, len as f64);
    match attempt.method {
        Method::Auto | Method::Gmres => {
            fixed + n * orthogonalization_bytes(settings, attempt.restart, iterations)
        }
        Method::Bicgstab => 2.0 * fixed + n * bicgstab_bytes(settings.reductions, preconditioned),
    }
}

/// Bytes an unknown that orthogonalisation moves in an average iteration: the ledger of `method/gmres.rs`, with the
/// basis counted in its own precision.
fn orthogonalization_bytes(settings: &Settings, restart: usize, iterations: usize) -> f64 {
    let column = settings.store.bytes() as f64;
    let (whole, rest) = ((iterations / restart) as f64, (iterations % restart) as f64);
    let (m, n) = (restart as f64, iterations.max(1) as f64);
    // The mean of j over all iterations, j counting from 0 in each cycle.
    let j = (whole * m * (m - 1.0) / 2.0 + rest * (rest - 1.0).max(0.0) / 2.0) / n;
    match settings.orthogonalization {
        Orthogonalization::Lowsync => (2.0 * j + 1.0) * column + 5.0 * 8.0,
        Orthogonalization::Cgs2 => (4.0 * j + 1.0) * column + 7.0 * 8.0,
        Orthogonalization::Mgs => (2.0 * j + 1.0) * column + (2.0 * j + 4.0) * 8.0,
    }
}

/// Bytes an unknown of the vector passes of an iteration: the ledger of `method/bicgstab.rs`.
fn bicgstab_bytes(reductions: Reductions, preconditioned: bool) -> f64 {
    let vectors = match (reductions, preconditioned) {
        (Reductions::Merged, true) => 18,
        (Reductions::Merged, false) => 16,
        (Reductions::Classical, true) => 19,
        (Reductions::Classical, false) => 18,
    };
    8.0 * f64::from(vectors)
}

/// The method that the settings name, with its workspace.
fn build<'a, S: Machine>(
    space: &S,
    settings: &Settings,
    attempt: &Attempt,
) -> krylith::Result<Box<dyn method::Method<S> + 'a>> {
    let restart = attempt.restart;
    Ok(match attempt.method {
        Method::Auto | Method::Gmres => {
            let orthogonalization = settings.orthogonalization;
            Box::new(Gmres::new(space, GmresOptions { restart, orthogonalization, basis: settings.store })?)
        }
        Method::Bicgstab => {
            Box::new(Bicgstab::new(space, BicgstabOptions { reductions: settings.reductions })?)
        }
    })
}

/// Bytes that a solve will want beside the system itself; for refusals before hours of waiting, and for `info`.
pub fn memory(terms: &Terms, method: Method, restart: usize, store: Store, precond: &Precond) -> Memory {
    let n = terms.rows() as u64;
    let width = store.bytes() as u64;
    let shared = terms.shared_pattern();
    let matrix = terms.terms.iter().enumerate().map(|(t, (_, a))| {
        let pattern = if t > 0 && shared { 0 } else { 4 * a.blocks() + 8 * a.row_ptr().len() };
        width * a.values().len() as u64 + pattern as u64
    });
    // Columns of a basis and other vectors: those of the method, of the caller, and scratch.
    let (m, vectors) = match method {
        Method::Auto | Method::Gmres => (restart as u64, 10),
        Method::Bicgstab => (0, 15),
    };
    Memory {
        matrix: matrix.sum(),
        preconditioner: precond::memory(terms, precond, store),
        basis: n * m * width,
        vectors: vectors * n * 8 + 2 * (m + 1) * (m + 2) * 8,
    }
}

/// Bytes by purpose.
pub struct Memory {
    /// Values and pattern.
    pub matrix: u64,
    /// Inverted diagonal blocks, or factors.
    pub preconditioner: u64,
    /// GMRES's basis.
    pub basis: u64,
    /// Everything else that is as long as x, and the small dense side of GMRES.
    pub vectors: u64,
}

impl Memory {
    /// All of it.
    pub fn total(&self) -> u64 {
        self.matrix + self.preconditioner + self.basis + self.vectors
    }
}
