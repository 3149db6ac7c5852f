//! `krylith solve`: from the command line to a solution, a report and an exit code.

use crate::args::SolveArgs;
use crate::failure::{DONE, Failure, INTERRUPTED, NOT_CONVERGED, Result, code_with};
use crate::options::{NearNull, Null, Rhs, settle};
use crate::output::{self, Target, Targets, check_target};
use crate::progress::Watch;
use crate::summary;
use crate::system::{self, System};
use crate::{defaults, field, files, interrupt, null_space, picture, process, ranks, report, share};
use krylith_core::solver::{Cancel, Solution, check_gpus, open_ahead};
use krylith_core::text::name;
use krylith_core::{DeviceSpec, History, Options, Outcome, Solver};
use krylith_report::plot;
use krylith_report::words::{self, Language};
use std::time::Instant;

/// The solve of one right-hand side.
pub struct Solved {
    /// The result.
    pub solution: Solution,
    /// The residuals ‖r_c‖/‖b‖ of the components c.
    pub fields: Vec<f64>,
}

/// Everything about a finished solve.
pub struct Finished {
    /// The system.
    pub system: System,
    /// The source of the right-hand side.
    pub rhs: String,
    /// The source of the initial guess.
    pub x0: String,
    /// The sources of null vectors and near-null vectors.
    pub null_vectors: Vec<String>,
    /// Options given on the command line or in a file.
    pub given: Options,
    /// Options of the solve, complete and checked.
    pub options: Options,
    /// The result for each right-hand side that was solved.
    pub solved: Vec<Solved>,
    /// Each whole x, on the rank that prints.
    pub x: Vec<Vec<f64>>,
    /// Number of right-hand sides that were given; an interrupted command does not solve all of them.
    pub wanted: usize,
    /// Seconds spent on reading or generating the system.
    pub load: f64,
    /// Read bandwidth of the devices in bytes per second, if it was measured.
    pub bandwidth: Option<f64>,
}

impl Finished {
    /// Returns the solve that summaries show: the first that did not converge, or else the first.
    pub fn shown(&self) -> &Solved {
        self.solved.iter().find(|s| !s.solution.converged()).unwrap_or(&self.solved[0])
    }
}

/// Runs the command.
///
/// # Errors
/// The solve cannot start, or a file cannot be written. A solve without convergence is no error; it has an
/// exit code.
pub fn solve(mut args: SolveArgs) -> Result<u8> {
    let comm = ranks::comm();
    let given = args.flags.0.clone();
    let mut start = || -> Result<Targets> {
        interrupt::watch()?;
        let named = defaults::take(&mut args)?;
        process::start_threads(args.flags.0.threads)?;
        check_targets(&args)?;
        defaults::check_own(&args.system, &named)?;
        if let Some(DeviceSpec::Cuda(list)) = &given.device {
            check_gpus(list).map_err(|e| Failure::machine(format!("--device cuda: {e}")))?;
        }
        Targets::new([&args.out, &args.report, &args.plot, &args.picture, &args.vtu])
    };
    let targets = ranks::together(start())?;
    let (block, ordering) = (args.block, args.ordering.unwrap_or_default());
    if [&args.out, &args.report].into_iter().flatten().any(|path| output::is_stdout(path)) {
        output::leave_stdout();
    }
    // The driver starts while the system is read; with several ranks, each opens its own device later.
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
        system.take_fields(args.fields.as_deref(), &args.matrix)?;
        if let Some(path) = &args.vtu {
            field::check(&system, path)?;
        }
        let options = settle(&given, &system.solver, &name(&args.system))?;
        let (rhs, name) = system.right_hand_side(args.rhs.as_ref())?;
        let (x, x0) = match &args.x0 {
            Some(path) => (system.columns("the initial guess", path)?, path.display().to_string()),
            None => (vec![vec![0.0; system.own_len()]], "zeros".to_string()),
        };
        let x = match (x.len(), rhs.len()) {
            (guesses, k) if guesses == k => x,
            (1, k) => vec![x[0].clone(); k],
            (guesses, k) => {
                let message =
                    format!("{guesses} initial guesses for {k} right-hand sides; give one, or one for each");
                return Err(Failure::usage(format!("--x0 {x0}: {message}")));
            }
        };
        Ok((options, rhs, name, x, x0))
    };
    let (options, b, rhs, mut x, x0) = ranks::together(read())?;
    let load = loading.elapsed().as_secs_f64();
    let alike = Options { threads: None, ..options.clone() };
    ranks::same(
        "options",
        format!("{alike} {} {} {}", args.nullspace.is_some(), args.near_nullspace.is_some(), b.len())
            .as_bytes(),
    )?;

    let mut watch = Watch::new(args.quiet || !output::speaks());
    let (solved, bandwidth) = {
        let mut problem = system.problem()?;
        if let Some(wanted) = &args.nullspace {
            let vectors = ranks::together(null_space::vectors(wanted, &system, &problem))?;
            problem = problem.with_null_vectors(vectors)?;
        }
        if let Some(wanted) = &args.near_nullspace {
            problem = ranks::together(null_space::with_near_null(wanted, &system, problem))?;
        }
        // Each step of a set-up fails on all ranks or on none.
        let all = |e: krylith_core::Error| Failure { agreed: true, ..explained(e, &options) };
        let cancel = Cancel::default();
        let meanwhile = crate::progress::of_first_use(args.quiet, interrupt::passed_on_to(&cancel));
        let mut solver = Solver::new_cancellable(problem, &options, &cancel, Some(meanwhile)).map_err(all)?;
        interrupt::solving();
        let solved = match b.len() {
            1 => {
                let done = solver.request(&b[0], &mut x[0]).observer(&mut watch).run().cloned();
                watch.finish();
                done.map(|solution| vec![solution])
            }
            _ => together(&mut solver, &b, &mut x),
        };
        let agreed = !solver.is_broken();
        let solutions = solved.map_err(|e| Failure { agreed, ..explained(e, &options) })?;
        let mut solved = Vec::with_capacity(solutions.len());
        for ((solution, b), x) in solutions.into_iter().zip(&b).zip(&x) {
            solved.push(Solved { solution, fields: solver.field_residuals(b, x)? });
        }
        interrupt::writing();
        let longest =
            solved.iter().map(|s| &s.solution).max_by(|a, b| a.solve_seconds.total_cmp(&b.solve_seconds));
        let wanted = args.report.is_some() && longest.is_some_and(worth_measuring);
        let bandwidth = if wanted { solver.read_bandwidth() } else { None };
        (solved, bandwidth)
    };
    let wanted = b.len();
    let run = system.order.block * system.order.stages;
    let x = x.into_iter().map(|x| share::gather(&system, x, run)).collect::<Result<Vec<_>>>()?;
    let null_vectors = null_sources(&args);
    let given = given.or(&system.solver);
    conclude(
        Finished { system, rhs, x0, null_vectors, given, options, solved, x, wanted, load, bandwidth },
        &args,
        targets,
    )
}

/// Solves for several right-hand sides, together if that is faster. No progress is shown.
fn together(solver: &mut Solver, b: &[Vec<f64>], x: &mut [Vec<f64>]) -> krylith_core::Result<Vec<Solution>> {
    let (right, mut left) = (b.concat(), x.concat());
    let solved = solver.request(&right, &mut left).columns();
    let n = x.first().map_or(0, Vec::len).max(1);
    x.iter_mut().zip(left.chunks(n)).for_each(|(x, left)| x.copy_from_slice(left));
    solved
}

/// Returns the sources of null vectors and near-null vectors.
fn null_sources(args: &SolveArgs) -> Vec<String> {
    let null = args.nullspace.as_ref().map(|null| match null {
        Null::Constant => "constant".into(),
        Null::File(path) => path.display().to_string(),
    });
    let near = args.near_nullspace.as_ref().map(|near| match near {
        NearNull::Rigid => "rigid".into(),
        NearNull::File(path) => path.display().to_string(),
    });
    null.into_iter().chain(near).collect()
}

/// Returns true if a solve is long enough to measure the bandwidth for its report. A measurement takes about
/// 0.3 s on a CPU, as it fills a buffer larger than the caches, and 0.02 s on a GPU. A shorter solve has its
/// vectors in caches, so a share of bandwidth says little.
fn worth_measuring(solution: &Solution) -> bool {
    solution.solve_seconds >= if solution.device.kind == "cpu" { 0.25 } else { 0.01 }
}

/// Converts an error of the library, and names the option that it belongs to.
fn explained(error: krylith_core::Error, options: &Options) -> Failure {
    let of_device =
        matches!(&error, krylith_core::Error::NoDevice { .. } | krylith_core::Error::Device { .. });
    let failure = Failure::from(error);
    match &options.device {
        Some(DeviceSpec::Cuda(_)) if of_device => failure.within("--device cuda"),
        _ => failure,
    }
}

/// Writes the files, prints the summary, and returns the exit code.
fn conclude(mut done: Finished, args: &SolveArgs, targets: Targets) -> Result<u8> {
    let code = done.solved.iter().map(|s| code_of(&s.solution.history)).max().unwrap_or(DONE);
    let mut wrote = Vec::new();
    let mut trouble = Vec::new();
    let points = if args.vtu.is_some() { field::points(&done.system)? } else { Vec::new() };
    if !output::speaks() {
        return ranks::together(Ok(())).map(|()| code);
    }
    let mut keep = |target: Target, what: &str, write: &dyn Fn(Target) -> krylith_core::Result<()>| {
        let name = target.to_string();
        match write(target) {
            Ok(()) => wrote.push(format!("{name} ({what})")),
            Err(e) => trouble.push(Failure::from(e)),
        }
    };
    let finite = done.x.iter().flatten().all(|v| v.is_finite());
    for target in [&targets.out, &targets.vtu].into_iter().flatten().filter(|_| !finite) {
        output::note(&format!("{target} is not written: x has entries that are not finite"));
    }
    // x is written first: it is the most important file, if time or disk space run out.
    if let Some(target) = targets.out.filter(|_| finite) {
        let is_wanted_again = targets.vtu.is_some() || targets.picture.is_some();
        let x = if is_wanted_again { done.x.clone() } else { std::mem::take(&mut done.x) };
        let array = done.system.user_array(x)?;
        let shape = array.shape().iter().map(usize::to_string).collect::<Vec<_>>().join(", ");
        let format = output::vector_format(target.path());
        keep(target, &format!("x, shape ({shape})"), &|target| target.write(|out| format.write(out, &array)));
    }
    if let Some(target) = targets.report {
        let report = report::report(&done, args.rhs.as_ref());
        keep(target, "report", &|target| report.write(target));
    }
    if let Some(target) = targets.plot {
        let scene = plot::residuals(&summary::label(&done), &done.shown().solution);
        keep(target, "residuals", &|target| target.write_picture(&scene));
    }
    if let Some(target) = targets.picture {
        match krylith_problems::picture(&done.system.name, &done.x[0])? {
            Some(shown) => {
                let scene = picture::draw(&shown, &done.system.name);
                keep(target, "solution", &|target| target.write_picture(&scene));
            }
            None => output::note(&format!("{target} is not written: the problem has no grid")),
        }
    }
    if let Some(target) = targets.vtu.filter(|_| finite) {
        keep(target, "solution", &|target| field::write(&done.system, &points, &done.x, target));
    }
    if !args.quiet {
        let lost = args.out.is_none() && args.vtu.is_none();
        output::print(&summary::text(&done, &wrote, args.verbose, lost));
    }
    if code != DONE {
        output::error(&words::verdict(
            &summary::label(&done),
            &done.shown().solution,
            &done.options,
            Language::Flags,
        ));
    }
    for failure in &trouble {
        output::error(&failure.message);
    }
    ranks::together(Ok(()))?; // the other ranks wait until everything is written and printed
    Ok(code_with(code, &trouble))
}

/// Returns the exit code of an outcome.
fn code_of(history: &History) -> u8 {
    match history.outcome {
        Outcome::Converged => DONE,
        Outcome::Interrupted => INTERRUPTED,
        _ => NOT_CONVERGED,
    }
}

fn check_targets(args: &SolveArgs) -> Result<()> {
    if let Some(path) = args.picture.as_ref().filter(|_| !system::is_problem(&args.system)) {
        let message = "a file has no grid for an image; --picture works only for generated problems";
        return Err(Failure::usage(format!("--picture {}: {message}", name(path))));
    }
    let targets = [
        ("--out", &args.out),
        ("--report", &args.report),
        ("--plot", &args.plot),
        ("--picture", &args.picture),
        ("--vtu", &args.vtu),
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
    files::check_apart(&inputs, &targets)?;
    args.out.iter().try_for_each(|path| output::check_vector("--out", path))?;
    args.report.iter().try_for_each(|path| output::check_report("--report", path))?;
    args.plot.iter().try_for_each(|path| output::check_picture("--plot", path))?;
    args.picture.iter().try_for_each(|path| output::check_picture("--picture", path))?;
    args.vtu.iter().try_for_each(|path| output::check_vtu("--vtu", path))
}
