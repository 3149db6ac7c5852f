//! One solve on one device, written once for every device.

use crate::failure::{Failure, Result};
use crate::options::{Method, Precond, Settings};
use crate::precond::{self, About, Machine};
use crate::refine::{self, Parts};
use crate::report::Event;
use crate::residual::Given;
use crate::share::Cut;
use krylith::comm::{Communicator, agree};
use krylith::method::{self, Bicgstab, BicgstabOptions, Gmres, GmresOptions, Orthogonalization, Reductions};
use krylith::operator::{LinearOperator, PointBlock, PointBlockSum, Terms};
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
    /// Basis vectors; not more than could ever be used.
    pub restart: usize,
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
}

/// What was done.
pub struct Solved {
    /// The best x so far.
    pub x: Vec<f64>,
    /// How it went.
    pub history: History,
    /// The preconditioner.
    pub precond: About,
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

/// Sets up and solves.
///
/// # Errors
/// A preconditioner that was asked for and cannot be built; a device without room.
pub fn run<S: Machine>(space: &S, job: &Job, observer: &mut dyn Observer) -> Result<Solved> {
    let start = Instant::now();
    let Job { terms, rhs, settings, restart, .. } = *job;
    let (mut x, mut events) = (job.x0.to_vec(), Vec::new());
    let comm = space.comm();
    let mut set_up = || -> Result<_> {
        let a = Rc::new(agree(comm, PointBlock::new(space, terms, settings.store, false))?);
        let p = precond::preconditioner(space, job, &a, &mut events)?;
        let method = build(space, settings, restart).and_then(|m| space.wait().map(|()| m));
        Ok((a, p, agree(comm, method)?))
    };
    // Every step above fails on all ranks or on none.
    let (a, (p, about), mut method) = set_up().map_err(|f| Failure { agreed: true, ..f })?;
    let p = p.as_deref();
    let setup = start.elapsed().as_secs_f64();

    let start = Instant::now();
    let _ = space.take_phases();
    let stop = Stop { rtol: settings.rtol, atol: settings.atol, max_iterations: settings.max_iters };
    let parts = Parts { space, a: &*a, p, rhs, stop };
    let history = match settings.store {
        Store::F64 => refine::once(&parts, &mut *method, &mut x, observer)?,
        Store::F32 => {
            let given = Given { terms, comm: space.comm() };
            let (history, passes) = refine::refined(&parts, &mut *method, given, &mut x, observer)?;
            if passes > 1 {
                let detail = format!(
                    "{passes} passes of iterative refinement against the matrix in f64, stored in f32"
                );
                events.push(Event::new("refinement", None, detail));
            }
            history
        }
    };
    let solve = start.elapsed().as_secs_f64();
    let fixed = a.bytes() + p.map_or(0, |p| p.bytes());
    let n = space.len() as f64;
    let own = match settings.method {
        Method::Auto | Method::Gmres => {
            fixed as f64 + n * orthogonalization_bytes(settings, restart, history.iterations)
        }
        Method::Bicgstab => 2.0 * fixed as f64 + n * bicgstab_bytes(settings.reductions, p.is_some()),
    };
    let mut bytes = [own];
    space.comm().sum(&mut bytes)?;
    let [bytes_per_iteration] = bytes;
    Ok(Solved {
        x,
        precond: about,
        phases: space.take_phases(),
        setup,
        solve,
        bytes_per_iteration,
        events,
        history,
    })
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
fn build<'a, S: PointBlockSum + 'a>(
    space: &S,
    settings: &Settings,
    restart: usize,
) -> krylith::Result<Box<dyn method::Method<S> + 'a>> {
    Ok(match settings.method {
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
