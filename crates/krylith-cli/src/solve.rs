//! `krylith solve`: from the command line to an answer, a report and an exit code.

use crate::args::SolveArgs;
use crate::devices::Ran;
use crate::failure::{DONE, Failure, INTERRUPTED, NOT_CONVERGED, Result};
use crate::options::{Device, Method, Rhs, Settings};
use crate::output::{self, check_target};
use crate::progress::Watch;
use crate::report::{self, Event, Report};
use crate::residual::Given;
use crate::run::{Final, Job, Solved};
use crate::summary;
use crate::system::{self, System};
use crate::{devices, interrupt, null_space, plot, ranks, share};
use krylith::comm::{self, Communicator};
use krylith::{History, Outcome, io};
use std::path::Path;

/// What stands around the preconditioner.
pub struct Extras {
    /// Rows and columns were scaled for it.
    pub equilibrated: bool,
    /// Null vectors projected out.
    pub null_vectors: usize,
}

/// Everything about a finished solve.
pub struct Finished {
    /// The system.
    pub system: System,
    /// What the right-hand side was.
    pub rhs: String,
    /// Options, decided.
    pub settings: Settings,
    /// What was done.
    pub solved: Solved,
    /// Where.
    pub ran: Ran,
    /// What stands around the preconditioner.
    pub extras: Extras,
    /// ‖r_c‖/‖b‖.
    pub fields: Vec<f64>,
    /// Iterations at which a cycle began.
    pub restarts: Vec<usize>,
    /// ‖r‖/‖b‖ that ends the solve.
    pub target: f64,
}

/// Runs the command.
///
/// # Errors
/// Whatever keeps the solve from starting or its files from being written; non-convergence is an exit code.
pub fn solve(args: SolveArgs) -> Result<u8> {
    let comm = ranks::comm();
    let (block, ordering, cut) =
        (args.block, args.ordering.unwrap_or_default(), args.partition.unwrap_or_default());
    let start = || -> Result<()> {
        interrupt::watch()?;
        check_targets(&args)?;
        devices::check(args.device.as_ref())
    };
    ranks::together(start())?;
    let mut system = match comm.size() {
        1 => system::load(&args.system, block, ordering)?,
        _ => share::load(&comm, &args.system, block, ordering, cut, &args.given())?,
    };
    let mut read = || -> Result<_> {
        let settings = args.given().settle(&system.solver, &args.system)?;
        let (rhs, name) = system.right_hand_side(args.rhs.as_ref())?;
        let x0 = match &args.x0 {
            Some(path) => system.vector("the first guess", path)?,
            None => vec![0.0; system.own_len()],
        };
        Ok((settings, rhs, name, x0))
    };
    let (settings, mut rhs, rhs_name, mut x0) = ranks::together(read())?;
    ranks::same(
        "options",
        format!("{settings:?} {} {}", args.equilibrate, args.nullspace.is_some()).as_bytes(),
    )?;
    let null = match &args.nullspace {
        Some(wanted) => ranks::together(null_space::vectors(wanted, &system))?,
        None => Vec::new(),
    };

    // Norms are sums of squares: far from 1 they overflow, or vanish and make any x look right. A power of two costs
    // no digit.
    let unit = unit(system.comm(), &rhs)?;
    rhs.iter_mut().chain(&mut x0).for_each(|v| *v *= unit);
    let in_unit = Settings { atol: settings.atol * unit, ..settings.clone() };

    let mut watch = Watch::new(args.quiet || !output::speaks());
    let terms = system.operator.terms();
    let equilibrate = args.equilibrate;
    let job = Job {
        terms: &terms,
        rhs: &rhs,
        x0: &x0,
        null: &null,
        equilibrate,
        settings: &in_unit,
        unknowns: system.len(),
        numbers: system.share.numbers.as_deref(),
        comm: system.share.comm.clone(),
        coordinates: system.coordinates.as_deref(),
        grid: system.grid,
        cut,
        subdomains: system.share.subdomains.as_ref(),
        room: None,
    };
    interrupt::solving();
    let done = devices::solve(&job, args.threads, args.report.is_some(), &mut watch);
    watch.finish();
    interrupt::solved();
    let (mut solved, ran) = done?;

    let history = &solved.history;
    let norm_b = history.rhs_norm;
    let relative = |r: f64| if norm_b > 0.0 { r / norm_b } else { r };
    let given = Given { terms: &terms, comm: system.comm() };
    let r = given.residual(&rhs, &solved.x)?;
    let fields = given.by_field(&r)?.into_iter().map(relative).collect();
    // BiCGSTAB tells of each restart, and may begin one without an iteration in between.
    let mut events: Vec<Event> =
        watch.restarts.iter().map(|&(i, why)| Event::new("restart", Some(i), why)).collect();
    let Final { attempt, begun, restarts: count, .. } = &solved.last;
    if attempt.method != Method::Bicgstab {
        let watched: Vec<usize> = watch.cycles.iter().copied().filter(|i| i > begun).collect();
        let full = |k: usize| begun + k * attempt.restart;
        let told = if watched.len() == *count { watched } else { (1..=*count).map(full).collect() };
        let why = "the basis was full, or its estimate was wrong";
        events.extend(told.into_iter().map(|i| Event::new("restart", Some(i), why)));
    }
    let restarts = events.iter().filter_map(|e| e.iteration).collect();
    let mut choices = Vec::new();
    let extras_scaled = solved.last.attempt.equilibrate && !args.equilibrate;
    if settings.device == Device::Auto {
        choices.push(Event::new("choice", None, format!("device {}, {}", ran.device, ran.reason)));
    }
    if extras_scaled {
        choices.push(Event::new(
            "choice",
            None,
            "rows and columns scaled: their largest entries differ too much",
        ));
    }
    if system.block_detected {
        let reason = format!("block {}: {}", system.order.block, system.block_reason);
        choices.push(Event::new("choice", None, reason));
    }
    solved.events.splice(0..0, choices);
    solved.events.extend(events);
    if history.outcome == Outcome::Interrupted {
        solved.events.push(Event::new("interrupted", Some(history.iterations), "by Ctrl-C or a signal"));
    }
    let target = relative((in_unit.rtol * norm_b).max(in_unit.atol));
    solved.x.iter_mut().for_each(|v| *v /= unit);
    solved.history.rhs_norm /= unit;
    solved.x = share::gather(&system, solved.x)?;
    if system.share.numbers.is_some() {
        solved.events.insert(0, Event::new("choice", None, system.share.reason.clone()));
    }
    let extras = Extras { equilibrated: solved.last.attempt.equilibrate, null_vectors: null.len() };
    drop(terms);
    let done = Finished { system, rhs: rhs_name, settings, solved, ran, extras, fields, restarts, target };
    conclude(done, &args)
}

/// Writes what was asked for, says how it went, and picks the exit code.
fn conclude(mut done: Finished, args: &SolveArgs) -> Result<u8> {
    // Reports and pictures first: they are small, and a full disk must not lose the story along with x.
    let mut wrote = Vec::new();
    let mut trouble = Vec::new();
    if !output::speaks() {
        return ranks::together(Ok(())).map(|()| code_of(&done.solved.history));
    }
    let mut keep = |path: &Path, what: &str, result: Result<()>| match result {
        Ok(()) => wrote.push(format!("{} ({what})", path.display())),
        Err(failure) => trouble.push(failure),
    };
    if let Some(path) = &args.report {
        keep(path, "report", report_of(&done, args).write(path).map_err(Failure::from));
    }
    if let Some(path) = &args.plot {
        keep(path, "residuals", draw(&done, path).map_err(Failure::from));
    }
    if let Some(path) = &args.out {
        let x = std::mem::take(&mut done.solved.x);
        if x.iter().all(|v| v.is_finite()) {
            let array = done.system.user_array(x)?;
            let shape = array.shape().iter().map(usize::to_string).collect::<Vec<_>>().join(", ");
            keep(path, &format!("x, shape ({shape})"), io::numpy::write(path, &array).map_err(Failure::from));
        } else {
            output::note(&format!("{} is not written: x has entries that are not finite", path.display()));
        }
    }
    if !args.quiet {
        output::print(&summary::text(&done, &wrote));
    }
    let code = code_of(&done.solved.history);
    if code != DONE {
        output::error(&summary::verdict(&done));
    }
    for failure in &trouble {
        output::error(&failure.message);
    }
    ranks::together(Ok(()))?; // the others wait until everything is written and said
    // A lost output file outranks the outcome, which was named above; Ctrl-C outranks both.
    match trouble.first() {
        Some(failure) if code != INTERRUPTED => Ok(failure.code),
        _ => Ok(code),
    }
}

/// The exit code that an outcome asks for.
fn code_of(history: &History) -> u8 {
    match history.outcome {
        Outcome::Converged => DONE,
        Outcome::Interrupted => INTERRUPTED,
        _ => NOT_CONVERGED,
    }
}

/// A power of two that brings the largest entry near 1, or 1 where squares are safe anyway.
fn unit(comm: &dyn Communicator, b: &[f64]) -> Result<f64> {
    let own = b.iter().fold(0.0f64, |m, v| m.max(v.abs()));
    let largest = comm::largest(comm, own)?;
    if largest == 0.0 || (1e-120..=1e120).contains(&largest) {
        return Ok(1.0);
    }
    Ok((-largest.log2().floor()).clamp(-1000.0, 1000.0).exp2())
}

fn check_targets(args: &SolveArgs) -> Result<()> {
    let targets = [("--out", &args.out), ("--report", &args.report), ("--plot", &args.plot)];
    let given: Vec<_> = targets.iter().filter_map(|(o, p)| p.as_ref().map(|p| (*o, p))).collect();
    for (i, (option, path)) in given.iter().enumerate() {
        check_target(option, path)?;
        if let Some((other, _)) = given[..i].iter().find(|(_, p)| p == path) {
            return Err(Failure::usage(format!(
                "{other} and {option} name the same file, {}",
                path.display()
            )));
        }
    }
    Ok(())
}

fn report_of(done: &Finished, args: &SolveArgs) -> Report {
    let Finished { system, settings, solved, ran, .. } = done;
    let history = &solved.history;
    let phases = solved.phases;
    let Final { about, attempt, .. } = &solved.last;
    let mut parameters = about.parameters.clone();
    let bicgstab = attempt.method == Method::Bicgstab;
    if done.extras.equilibrated {
        parameters.insert("equilibrate".into(), true.into());
    }
    if done.extras.null_vectors > 0 {
        parameters.insert("nullspace".into(), done.extras.null_vectors.into());
    }
    let fill = (about.numbers > 0.0).then(|| about.numbers / system.nonzeros as f64);
    let moved = solved.bytes_per_iteration * history.iterations as f64;
    let fraction = ran.bandwidth.filter(|_| history.iterations > 0).map(|b| moved / solved.solve / b);
    Report {
        schema: report::SCHEMA,
        krylith: env!("CARGO_PKG_VERSION").into(),
        system: report::System {
            name: system.name.clone(),
            rows: system.len(),
            nonzeros: system.nonzeros,
            block: system.order.block,
            stages: system.order.stages,
            format: system.format.into(),
            ordering: summary::ordering(system.order.user).into(),
            rhs_norm: report::finite(history.rhs_norm),
        },
        run: report::Run {
            device: ran.device.into(),
            devices: ran.names.clone(),
            ranks: ran.ranks,
            threads: ran.threads,
            deterministic: args.deterministic,
            seed: if let Some(Rhs::Random(seed)) = args.rhs { Some(seed) } else { None },
            store: summary::store(settings.store).into(),
        },
        method: attempt.method.name().into(),
        parameters: report::Parameters {
            restart: (!bicgstab).then_some(attempt.restart),
            orthogonalization: (!bicgstab)
                .then(|| summary::orthogonalization(settings.orthogonalization).into()),
            reductions: bicgstab.then(|| summary::reductions(settings.reductions).into()),
            rtol: settings.rtol,
            atol: settings.atol,
            max_iters: settings.max_iters,
        },
        preconditioner: report::Preconditioner {
            name: summary::preconditioner_name(done).into(),
            parameters,
            fill,
        },
        outcome: history.outcome.name().into(),
        iterations: history.iterations,
        residuals: history.residuals.iter().map(|r| report::finite(*r)).collect(),
        true_relative_residual: report::finite(history.true_relative_residual),
        field_residuals: done.fields.iter().map(|r| report::finite(*r)).collect(),
        seconds: report::Seconds {
            setup: solved.setup,
            total: solved.setup + solved.solve,
            // A GPU's vectors travel while other work goes on: nobody keeps time of it.
            transfer: (ran.device == "cpu" && ran.ranks == 1).then_some(0.0),
            product: phases.map(|p| p.product),
            communication: if ran.ranks == 1 { Some(0.0) } else { phases.map(|p| p.communication) },
            orthogonalization: phases.map(|p| p.orthogonalization),
            preconditioner: phases.map(|p| p.preconditioner),
        },
        bytes_per_iteration: solved.bytes_per_iteration.round() as u64,
        bandwidth_fraction: fraction.and_then(report::finite),
        events: solved.events.clone(),
    }
}

fn draw(done: &Finished, path: &Path) -> krylith::Result<()> {
    let history = &done.solved.history;
    let subtitle = format!("{} — {}", summary::method(done), summary::outcome(done));
    plot::write(
        path,
        &plot::Plot {
            title: &done.system.label,
            subtitle: &subtitle,
            residuals: &history.residuals,
            true_residual: history.true_relative_residual,
            target: done.target,
            restarts: &done.restarts,
            converged: history.outcome == Outcome::Converged,
        },
    )
}
