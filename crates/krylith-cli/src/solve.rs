//! `krylith solve`: from the command line to an answer, a report and an exit code.

use crate::args::SolveArgs;
use crate::failure::{DONE, Failure, INTERRUPTED, NOT_CONVERGED, Result};
use crate::options::{NearNull, Null, Rhs, settle};
use crate::output::{self, check_target};
use crate::progress::Watch;
use crate::report::{self, Event, Report};
use crate::summary;
use crate::system::{self, System};
use crate::words::{self, Language};
use crate::{files, interrupt, null_space, picture, plot, ranks, share};
use krylith::operator::Format;
use krylith::solver::{Solution, check_gpus, open_ahead};
use krylith::{DeviceSpec, History, Options, Outcome, Solver, Store, io};
use std::path::Path;
use std::time::Instant;

/// Everything about a finished solve.
pub struct Finished {
    /// The system.
    pub system: System,
    /// What the right-hand side was.
    pub rhs: String,
    /// Options, settled.
    pub options: Options,
    /// How it went; x is the whole one, on the rank that speaks.
    pub solution: Solution,
    /// ‖r_c‖/‖b‖.
    pub fields: Vec<f64>,
    /// Seconds of reading or generating the system.
    pub load: f64,
    /// Bytes a second that the devices read, if that was measured.
    pub bandwidth: Option<f64>,
}

/// Runs the command.
///
/// # Errors
/// Whatever keeps the solve from starting or its files from being written; non-convergence is an exit code.
pub fn solve(args: SolveArgs) -> Result<u8> {
    let comm = ranks::comm();
    let (block, ordering, given) = (args.block, args.ordering.unwrap_or_default(), args.options());
    let start = || -> Result<()> {
        interrupt::watch()?;
        check_targets(&args)?;
        match &given.device {
            Some(DeviceSpec::Cuda(list)) => {
                check_gpus(list).map_err(|e| Failure::machine(format!("--device {e}")))
            }
            _ => Ok(()),
        }
    };
    ranks::together(start())?;
    // The driver starts while the system is read; ranks open what is theirs.
    let _opening = match &given.device {
        Some(DeviceSpec::Cuda(list)) if comm.size() == 1 => Some(open_ahead(list)),
        _ => None,
    };
    let loading = Instant::now();
    let mut system = match comm.size() {
        1 => system::load(&args.system, block, ordering)?,
        _ => share::load(&comm, &args.system, block, ordering, &given)?,
    };
    let mut read = || -> Result<_> {
        let options = settle(&given, &system.solver, &args.system.display().to_string())?;
        let (rhs, name) = system.right_hand_side(args.rhs.as_ref())?;
        let x = match &args.x0 {
            Some(path) => system.vector("the first guess", path)?,
            None => vec![0.0; system.own_len()],
        };
        Ok((options, rhs, name, x))
    };
    let (options, b, rhs, mut x) = ranks::together(read())?;
    let load = loading.elapsed().as_secs_f64();
    let alike = Options { threads: None, ..options.clone() };
    ranks::same(
        "options",
        format!("{alike} {} {}", args.nullspace.is_some(), args.near_nullspace.is_some()).as_bytes(),
    )?;

    let mut watch = Watch::new(args.quiet || !output::speaks());
    let (mut solution, fields, bandwidth) = {
        let mut problem = system.problem()?;
        if let Some(wanted) = &args.nullspace {
            let vectors = ranks::together(null_space::vectors(wanted, &system, &problem))?;
            problem = problem.with_null_vectors(vectors)?;
        }
        if let Some(wanted) = &args.near_nullspace {
            let vectors = ranks::together(null_space::near_vectors(wanted, &system, &problem))?;
            let given = |e: krylith::Error| Failure::from(e).within("--near-nullspace");
            problem = ranks::together(problem.with_near_null_vectors(vectors).map_err(given))?;
        }
        // Every step of a set-up fails on all ranks or on none.
        let all = |e: krylith::Error| Failure { agreed: true, ..explained(e, &options) };
        let mut solver = Solver::new(problem, &options).map_err(all)?;
        interrupt::solving();
        let done = solver.solve_watched(&b, &mut x, &mut watch).cloned();
        watch.finish();
        interrupt::solved();
        let agreed = !solver.is_broken();
        let solution = done.map_err(|e| Failure { agreed, ..explained(e, &options) })?;
        let wanted = args.report.is_some() && worth_measuring(&solution);
        let bandwidth = if wanted { solver.read_bandwidth() } else { None };
        (solution, solver.field_residuals(&b, &x)?, bandwidth)
    };
    solution.x = share::gather(&system, x)?;
    conclude(Finished { system, rhs, options, solution, fields, load, bandwidth }, &args)
}

/// Whether the bandwidth is worth measuring for a report: it takes some 0.3 s on a CPU, where a buffer is to be filled that no
/// cache holds, and 0.02 s on a GPU. A shorter solve has its vectors in caches, and a share of bandwidth says little.
fn worth_measuring(solution: &Solution) -> bool {
    solution.solve_seconds >= if solution.device.kind == "cpu" { 0.25 } else { 0.01 }
}

/// An error of the library under the option that it belongs to.
fn explained(error: krylith::Error, options: &Options) -> Failure {
    let of_device = matches!(&error, krylith::Error::NoDevice { .. } | krylith::Error::Device { .. });
    let failure = Failure::from(error);
    match &options.device {
        Some(DeviceSpec::Cuda(_)) if of_device => failure.within("--device cuda"),
        _ => failure,
    }
}

/// Writes what was asked for, says how it went, and picks the exit code.
fn conclude(mut done: Finished, args: &SolveArgs) -> Result<u8> {
    // Reports and pictures first: they are small, and a full disk must not lose the story along with x.
    let mut wrote = Vec::new();
    let mut trouble = Vec::new();
    if !output::speaks() {
        return ranks::together(Ok(())).map(|()| code_of(&done.solution.history));
    }
    let mut keep = |path: &Path, what: &str, result: Result<()>| match result {
        Ok(()) => wrote.push(format!("{} ({what})", path.display())),
        Err(failure) => trouble.push(failure),
    };
    if let Some(path) = &args.report {
        keep(path, "report", report_of(&done, args).write(path).map_err(Failure::from));
    }
    if let Some(path) = &args.plot {
        let scene = plot::residuals(&done.system.label, &done.solution);
        keep(path, "residuals", plot::write(&scene, path).map_err(Failure::from));
    }
    if let Some(path) = &args.picture {
        match krylith_problems::picture(&done.system.name, &done.solution.x)? {
            Some(shown) => {
                let scene = picture::draw(&shown, &done.system.name);
                keep(path, "solution", plot::write(&scene, path).map_err(Failure::from));
            }
            None => output::note(&format!("{} is not written: the problem has no grid", path.display())),
        }
    }
    if let Some(path) = &args.out {
        let x = std::mem::take(&mut done.solution.x);
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
    let code = code_of(&done.solution.history);
    if code != DONE {
        output::error(&words::verdict(&done.system.label, &done.solution, &done.options, Language::Flags));
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

fn check_targets(args: &SolveArgs) -> Result<()> {
    if let Some(path) = args.picture.as_ref().filter(|_| !system::is_problem(&args.system)) {
        let message = "a file does not say where its unknowns lie; pictures are of generated problems";
        return Err(Failure::usage(format!("--picture {}: {message}", path.display())));
    }
    let targets = [
        ("--out", &args.out),
        ("--report", &args.report),
        ("--plot", &args.plot),
        ("--picture", &args.picture),
    ];
    let targets = targets.into_iter().filter_map(|(option, path)| Some((option, path.clone()?)));
    let targets: Vec<files::Named> = targets.collect();
    targets.iter().try_for_each(|(option, path)| check_target(option, path))?;
    let mut inputs = files::of_system(&args.system);
    if let Some(Rhs::File(path)) = &args.rhs {
        inputs.push(("--rhs", path.clone()));
    }
    inputs.extend(args.x0.iter().map(|path| ("--x0", path.clone())));
    if let Some(Null::File(path)) = &args.nullspace {
        inputs.push(("--nullspace", path.clone()));
    }
    if let Some(NearNull::File(path)) = &args.near_nullspace {
        inputs.push(("--near-nullspace", path.clone()));
    }
    files::check_apart(&inputs, &targets)
}

fn report_of(done: &Finished, args: &SolveArgs) -> Report {
    let Finished { system, options, solution, .. } = done;
    let (history, device, phases) = (&solution.history, &solution.device, solution.phases);
    let info = &solution.precond;
    let mut parameters = report::parameters(&info.parameters);
    if solution.equilibrated {
        parameters.insert("equilibrate".into(), true.into());
    }
    if solution.matched {
        parameters.insert("matching".into(), true.into());
    }
    if solution.null_vectors > 0 {
        parameters.insert("nullspace".into(), solution.null_vectors.into());
    }
    let fill = (info.numbers > 0.0).then(|| info.numbers / system.nonzeros as f64);
    let moved = solution.bytes_per_iteration * history.iterations as f64;
    let fraction =
        done.bandwidth.filter(|_| history.iterations > 0).map(|b| moved / solution.solve_seconds / b);
    let (own, stop) = (solution.method.options(), options.stop_of(system.len()));
    let mut events = Vec::new();
    if system.share.numbers.is_some() {
        events.push(Event::choice(&*system.share.reason));
    }
    if matches!(options.device, None | Some(DeviceSpec::Auto)) {
        events.push(Event::choice(format!("device {}, {}", device.kind, device.reason)));
    }
    if system.block_detected {
        events.push(Event::choice(format!("block {}: {}", system.order.block, system.block_reason)));
    }
    events.extend(solution.events.iter().map(Event::from));
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
            device: device.kind.into(),
            devices: device.names.clone(),
            ranks: device.ranks,
            threads: device.threads,
            deterministic: args.machine.deterministic,
            seed: if let Some(Rhs::Random(seed)) = args.rhs { Some(seed) } else { None },
            store: options.store.unwrap_or(Store::F64).name().into(),
            format: match solution.format {
                Format::Auto => "blocks".into(),
                format => format.name().into(),
            },
        },
        method: solution.method.name().name().into(),
        parameters: report::Parameters {
            restart: own.restart,
            orthogonalization: own.orthogonalization.map(|o| o.name().into()),
            reductions: own.reductions.map(|r| r.name().into()),
            form: own.form.map(|f| f.name().into()),
            s: own.s,
            basis: own.basis.map(|b| b.name().into()),
            rtol: stop.rtol,
            atol: stop.atol,
            max_iters: stop.max_iterations,
        },
        preconditioner: report::Preconditioner { name: solution.precond.name.clone(), parameters, fill },
        outcome: history.outcome.name().into(),
        reason: history.reason.map(String::from),
        iterations: history.iterations,
        residuals: history.residuals.iter().map(|r| report::finite(*r)).collect(),
        true_relative_residual: report::finite(history.true_relative_residual),
        rounding: report::finite(history.rounding),
        field_residuals: done.fields.iter().map(|r| report::finite(*r)).collect(),
        seconds: report::Seconds {
            load: done.load,
            setup: solution.setup_seconds,
            setup_parts: report::parts(&solution.setup_parts),
            total: solution.setup_seconds + solution.solve_seconds,
            // A GPU's vectors travel while other work goes on: nobody keeps time of it.
            transfer: (device.kind == "cpu" && device.ranks == 1).then_some(0.0),
            product: phases.map(|p| p.product),
            communication: if device.ranks == 1 { Some(0.0) } else { phases.map(|p| p.communication) },
            orthogonalization: phases.map(|p| p.orthogonalization),
            preconditioner: phases.map(|p| p.preconditioner),
        },
        bytes_per_iteration: solution.bytes_per_iteration.round() as u64,
        bandwidth_fraction: fraction.and_then(report::finite),
        events,
    }
}
