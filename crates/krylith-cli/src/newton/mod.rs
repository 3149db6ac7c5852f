//! `krylith newton`: solves a nonlinear problem with its time steps and continuation, and writes the report
//! and the plots.

mod plot;
pub(crate) mod report;
mod watch;

use crate::args::NewtonArgs;
use crate::failure::{DONE, Failure, INTERRUPTED, NOT_CONVERGED, Result, code_with};
use crate::output::{self, Target, Targets, check_target};
use crate::{files, interrupt, picture, process, ranks, summary, term};
use krylith_core::io::{Array, vtu};
use krylith_core::newton::{Continuation, Newton, NewtonOptions, NewtonOutcome, NewtonReport, Stage};
use krylith_core::solver::{Solution, check_gpus, open_ahead};
use krylith_core::text::{count, plural, seconds};
use krylith_core::{DeviceSpec, Options};
use krylith_problems::nonlinear::{Cells, Field, NonlinearProblem, by_text, by_text_on, catalogue};
use krylith_problems::share::Ranks;
use std::time::Instant;
use watch::Watch;

/// A run of Newton's method, for one time step and one value of the parameter.
pub struct Run {
    /// Number of the time step, from 1.
    pub step: usize,
    /// The time at the end of the time step.
    pub time: Option<f64>,
    /// The value of the continuation parameter.
    pub parameter: Option<f64>,
    /// The result of the run.
    pub report: NewtonReport,
}

/// Everything about a finished solve.
pub struct Finished {
    /// The text of the problem, with all defaults.
    pub spec: String,
    /// The key of the problem's parameter.
    pub parameter: Option<&'static str>,
    /// Numbers of unknowns, of unknowns per node, and of stored blocks.
    pub sizes: (usize, usize, usize),
    /// The distribution of nodes to ranks, and its reason, if there are several.
    pub partition: Option<String>,
    /// Options of Newton's method.
    pub options: NewtonOptions,
    /// Options of the linear solves, as given.
    pub given: Options,
    /// All runs, in order.
    pub runs: Vec<Run>,
    /// The outcome of the last run.
    pub outcome: NewtonOutcome,
    /// Numbers computed from the last x, to compare with published solutions.
    pub figures: Vec<(String, f64)>,
    /// The last linear solve; `None` if there was no step.
    pub linear: Option<Solution>,
    /// Seconds spent on generating the problem.
    pub load: f64,
    /// Seconds of the solve, after the problem was generated.
    pub total: f64,
}

/// Runs the command.
///
/// # Errors
/// The solve cannot start, or a file cannot be written. A solve without convergence is no error; it has an
/// exit code.
pub fn newton(args: NewtonArgs) -> Result<u8> {
    let Some(named) = &args.problem else {
        if output::speaks() {
            output::print(&crate::problem::catalogue(catalogue()));
        }
        return Ok(DONE);
    };
    let comm = ranks::comm();
    let given = args.linear();
    let start = || -> Result<_> {
        interrupt::watch()?;
        process::start_threads(args.flags.0.threads)?;
        check_targets(&args)?;
        let targets = Targets::new([&args.out, &args.report, &args.plot, &args.picture, &args.vtu])?;
        let linear = crate::options::settle(&given, &Options::default(), "")?;
        if let Some(DeviceSpec::Cuda(list)) = &linear.device {
            check_gpus(list).map_err(|e| Failure::machine(format!("--device cuda: {e}")))?;
        }
        Ok((targets, linear))
    };
    let (targets, linear) = ranks::together(start())?;
    if [&args.out, &args.report].into_iter().flatten().any(|path| output::is_stdout(path)) {
        output::leave_stdout();
    }
    let _opening = match &linear.device {
        Some(DeviceSpec::Cuda(list)) if comm.size() == 1 => Some(open_ahead(list)),
        _ => None,
    };
    let loading = Instant::now();
    let mut problem = ranks::together(open(named, &linear, &args))?;
    let load = loading.elapsed().as_secs_f64();
    let options = NewtonOptions {
        rtol: args.newton_rtol,
        atol: args.newton_atol,
        max_steps: args.max_steps,
        forcing: args.forcing,
        ..NewtonOptions::default()
    };
    let alike = Options { threads: None, ..linear.clone() };
    let input = format!("{} {alike} {options:?} {:?}", problem.spec(), args.continuation);
    ranks::same("a problem or options", input.as_bytes())?;
    let parameter = problem.parameter().map(|p| p.0);
    let mut newton = ranks::together(Newton::new(options, &linear).map_err(Failure::from))?;
    let mut watch = Watch::new(args.quiet || !output::speaks());
    let mut x = problem.initial();
    let (mut runs, mut wrote, mut trouble) = (Vec::new(), Vec::new(), None);
    let start = Instant::now();
    interrupt::solving();
    let outcome = loop {
        let step = runs.last().map_or(1, |run: &Run| run.step + 1);
        let done = solve(&mut newton, &mut *problem, &args.continuation, &mut x, &mut watch);
        watch.finish();
        let agreed = !newton.is_broken();
        let done = done.map_err(|e| Failure { agreed, ..Failure::from(e) })?;
        let time = problem.time();
        runs.extend(done.stages.into_iter().map(|stage| Run {
            step,
            time,
            parameter: (!args.continuation.is_empty()).then_some(stage.value),
            report: stage.report,
        }));
        if let (Some(path), Some(_)) = (&args.vtu, time) {
            let x = whole(&*problem, &x)?;
            let written = || -> Result<Option<String>> {
                if !output::speaks() {
                    return Ok(None);
                }
                let target = Target::new("--vtu", &files::numbered(path, step))?;
                let name = target.to_string();
                write_vtu(&*problem, &x, target)?;
                Ok(Some(format!("{name} (solution)")))
            };
            match written() {
                Ok(name) => wrote.extend(name),
                Err(failure) => trouble = trouble.or(Some(failure)),
            }
        }
        if done.outcome != NewtonOutcome::Converged || !problem.next_step(&mut x)? {
            break done.outcome;
        }
    };
    interrupt::writing();
    let total = start.elapsed().as_secs_f64();
    let x = whole(&*problem, &x)?;
    let pattern = problem.pattern();
    let mut sizes = [pattern.rows() as f64, pattern.blocks() as f64];
    comm.sum(&mut sizes)?;
    let done = Finished {
        spec: problem.spec().into(),
        parameter,
        sizes: (sizes[0] as usize, pattern.block(), sizes[1] as usize),
        partition: problem.share().map(|share| share.reason().to_string()),
        options,
        given,
        runs,
        outcome,
        figures: if output::speaks() { problem.figures(&x) } else { Vec::new() },
        linear: newton.linear().cloned(),
        load,
        total,
    };
    let code = if output::speaks() {
        conclude(done, &*problem, x, &args, targets, wrote, trouble)
    } else {
        Ok(code_of(outcome))
    };
    ranks::together(code) // the other ranks wait until everything is written and printed
}

/// Creates the problem, or this rank's share of it.
fn open(named: &str, linear: &Options, args: &NewtonArgs) -> Result<Box<dyn NonlinearProblem>> {
    let comm = ranks::comm();
    let problem = match comm.size() {
        1 => by_text(named)?,
        _ => by_text_on(named, &Ranks { comm, partition: linear.partition.unwrap_or_default() })?,
    };
    if !args.continuation.is_empty() && problem.parameter().is_none() {
        let message =
            format!("--continuation: {} has no parameter to change; omit the option", problem.spec());
        return Err(Failure::usage(message));
    }
    Ok(problem)
}

/// Returns the whole x on rank 0. Collective.
fn whole(problem: &dyn NonlinearProblem, x: &[f64]) -> Result<Vec<f64>> {
    match problem.share() {
        None => Ok(x.to_vec()),
        Some(share) => {
            ranks::gathered(&*ranks::comm(), share.numbers(), share.nodes(), x, problem.pattern().block())
        }
    }
}

/// Solves one time step, for each value of the parameter, or for the problem's own value.
fn solve(
    newton: &mut Newton,
    problem: &mut dyn NonlinearProblem,
    values: &[f64],
    x: &mut [f64],
    watch: &mut Watch,
) -> krylith_core::Result<Continuation> {
    if !values.is_empty() {
        return newton.continuation(
            problem,
            values,
            x,
            &mut |problem, value| problem.set_parameter(value),
            watch,
        );
    }
    let report = newton.solve_observed(problem, x, watch)?.clone();
    let stage = Stage { value: f64::NAN, report };
    Ok(Continuation { outcome: stage.report.outcome, reached: None, stages: vec![stage] })
}

/// Writes the files, prints the summary, and returns the exit code.
fn conclude(
    done: Finished,
    problem: &dyn NonlinearProblem,
    x: Vec<f64>,
    args: &NewtonArgs,
    targets: Targets,
    mut wrote: Vec<String>,
    trouble: Option<Failure>,
) -> Result<u8> {
    let mut trouble: Vec<Failure> = trouble.into_iter().collect();
    let mut keep = |target: Target, what: &str, write: &dyn Fn(Target) -> krylith_core::Result<()>| {
        let name = target.to_string();
        match write(target) {
            Ok(()) => wrote.push(format!("{name} ({what})")),
            Err(e) => trouble.push(Failure::from(e)),
        }
    };
    // x is written first: it is the most important file, if time or disk space run out.
    if let Some(target) = targets.out {
        let array = Array::new(vec![x.len() / done.sizes.1, done.sizes.1], x.clone())?;
        let format = output::vector_format(target.path());
        keep(target, "x", &|target| target.write(|out| format.write(out, &array)));
    }
    if let Some(target) = targets.report {
        keep(target, "report", &|target| report::write(&done, target));
    }
    if let Some(target) = targets.plot {
        keep(target, "steps", &|target| target.write_picture(&plot::draw(&done)));
    }
    if let Some(target) = targets.picture {
        match problem.picture(&x) {
            Some(shown) => {
                let scene = picture::draw(&shown, &done.spec);
                keep(target, "picture", &|target| target.write_picture(&scene));
            }
            None => output::note(&format!("{target} is not written: the problem has no image")),
        }
    }
    if let (Some(target), None) = (targets.vtu, problem.time()) {
        keep(target, "solution", &|target| write_vtu(problem, &x, target));
    }
    if !args.quiet {
        output::print(&text(&done, &wrote, args.verbose));
    }
    let code = code_of(done.outcome);
    if code != DONE {
        output::error(&verdict(&done));
    }
    for failure in &trouble {
        output::error(&failure.message);
    }
    Ok(code_with(code, &trouble))
}

/// Returns the exit code of an outcome.
fn code_of(outcome: NewtonOutcome) -> u8 {
    match outcome {
        NewtonOutcome::Converged => DONE,
        NewtonOutcome::Interrupted => INTERRUPTED,
        _ => NOT_CONVERGED,
    }
}

fn write_vtu(problem: &dyn NonlinearProblem, x: &[f64], target: Target) -> krylith_core::Result<()> {
    let (points, fields) = (problem.points(), problem.fields(x));
    let fields: Vec<_> = fields
        .iter()
        .map(|(name, field)| match field {
            Field::Scalar(values) => (*name, vtu::Values::Scalar(values)),
            Field::Vector(values) => (*name, vtu::Values::Vector(values)),
        })
        .collect();
    match problem.cells() {
        Cells::Triangles(cells) => target.write(|out| vtu::write_to(out, &points, &cells, &fields)),
        Cells::Tetrahedra(cells) => target.write(|out| vtu::write_to(out, &points, &cells, &fields)),
    }
}

fn check_targets(args: &NewtonArgs) -> Result<()> {
    let targets = [
        ("--out", &args.out),
        ("--report", &args.report),
        ("--plot", &args.plot),
        ("--vtu", &args.vtu),
        ("--picture", &args.picture),
    ];
    let targets: Vec<files::Named> =
        targets.into_iter().filter_map(|(option, path)| Some((option, path.clone()?))).collect();
    targets.iter().try_for_each(|(option, path)| check_target(option, path))?;
    files::check_apart(&[], &targets)?;
    args.out.iter().try_for_each(|path| output::check_vector("--out", path))?;
    args.report.iter().try_for_each(|path| output::check_report("--report", path))?;
    args.plot.iter().try_for_each(|path| output::check_picture("--plot", path))?;
    args.picture.iter().try_for_each(|path| output::check_picture("--picture", path))?;
    args.vtu.iter().try_for_each(|path| output::check_vtu("--vtu", path))
}

/// Rounds a time or a parameter to six digits, such as `0.002`, to hide the rounding of sums of steps.
fn short(value: f64) -> f64 {
    format!("{value:.5e}").parse().unwrap_or(value)
}

/// Describes the end of the last run, such as `Re 400: converged after 5 steps`.
fn ending(done: &Finished) -> String {
    let Some(run) = done.runs.last() else { return String::new() };
    let place = match (run.time, run.parameter, done.parameter) {
        (Some(time), _, _) => format!("time step {} (t = {}): ", run.step, short(time)),
        (None, Some(value), Some(name)) => format!("{name} {}: ", short(value)),
        _ => String::new(),
    };
    format!("{place}{} after {}", done.outcome, plural(run.report.steps.len(), "step"))
}

/// Returns a line for stderr about a solve that did not converge: the outcome by name, and what to try.
fn verdict(done: &Finished) -> String {
    let remedy = match done.outcome {
        NewtonOutcome::Converged => "",
        NewtonOutcome::MaxSteps => "; raise --max-steps",
        NewtonOutcome::LineSearch if done.parameter.is_some() => {
            "; raise the parameter in steps with --continuation, or give --newton-atol if rounding prevents \
             a smaller ‖F‖"
        }
        NewtonOutcome::LineSearch => "; give --newton-atol if rounding prevents a smaller ‖F‖",
        NewtonOutcome::LinearSolve => {
            "; try a --precond with more fill, a longer --restart or more --max-iters"
        }
        NewtonOutcome::NotFinite => {
            "; F of the initial guess is NaN or infinite: give another initial guess or parameter"
        }
        NewtonOutcome::Interrupted => "; x is that of the last step",
    };
    let (last, target) =
        done.runs.last().map_or((f64::NAN, f64::NAN), |run| (run.report.last, run.report.target));
    format!("{}: {}, ‖F‖ {last:.2e}, wanted {target:.2e}{remedy}", done.spec, ending(done))
}

/// Returns the summary for stdout.
fn text(done: &Finished, wrote: &[String], verbose: u8) -> String {
    let (unknowns, block, blocks) = done.sizes;
    let mut steps = Vec::new();
    let head = "step      ‖F‖ damping tolerance iterations    time";
    for run in &done.runs {
        let report = &run.report;
        let name = match (run.time, run.parameter, done.parameter) {
            (Some(time), _, _) => format!("t = {}: ", short(time)),
            (None, Some(value), Some(name)) => format!("{name} = {}: ", short(value)),
            _ => String::new(),
        };
        steps.push(format!("{name}‖F‖ {:.2e} to reach {:.2e}", report.first, report.target));
        steps.push(head.into());
        for step in &report.steps {
            steps.push(format!(
                "{:4} {:>8.2e} {:7.3} {:>9.1e} {:>10} {:>7}",
                step.number,
                step.after,
                step.damping,
                step.forcing,
                count(step.iterations),
                seconds(step.seconds.total())
            ));
        }
        steps.extend(report.events.iter().map(|event| format!("step {}: {}", event.step, event.detail)));
    }
    let mut sum = krylith_core::newton::NewtonSeconds::default();
    for run in &done.runs {
        sum.residual += run.report.seconds.residual;
        sum.jacobian += run.report.seconds.jacobian;
        sum.setup += run.report.seconds.setup;
        sum.solve += run.report.seconds.solve;
    }
    let iterations: usize = done.runs.iter().map(|run| run.report.iterations()).sum();
    let newton: usize = done.runs.iter().map(|run| run.report.steps.len()).sum();
    let mut rows = vec![(
        "problem",
        [
            done.spec.clone(),
            format!("{}, {} of {block}×{block}", plural(unknowns, "unknown"), plural(blocks, "block")),
        ]
        .into_iter()
        .chain(done.partition.clone())
        .collect(),
    )];
    if let Some(linear) = &done.linear {
        rows.push(("linear", vec![format!("{}, {}", linear.method.title(), linear.precond.text)]));
        rows.push(("device", vec![format!("{} ({})", linear.device.names.join(", "), linear.device.reason)]));
    }
    rows.push(("steps", steps));
    rows.push((
        "outcome",
        vec![format!(
            "{}; in all {}, {}",
            ending(done),
            plural(newton, "step"),
            plural(iterations, "linear iteration")
        )],
    ));
    if !done.figures.is_empty() {
        let figures = done.figures.iter().map(|(name, value)| format!("{name}: {value:.5}"));
        rows.push(("figures", figures.collect()));
    }
    rows.push((
        "time",
        vec![format!(
            "{}: F {}, J {}, set-up {}, linear solves {}; problem generated in {}",
            seconds(done.total),
            seconds(sum.residual),
            seconds(sum.jacobian),
            seconds(sum.setup),
            seconds(sum.solve),
            seconds(done.load)
        )],
    ));
    if let Some(linear) = done.linear.as_ref().filter(|_| verbose > 0) {
        rows.push(("chosen", summary::choices(&crate::report::automatic(linear, &done.given))));
        if verbose > 1 {
            rows.push(("set-up", summary::set_up(linear)));
            rows.push(("machine", summary::machine(linear)));
        }
    }
    if !wrote.is_empty() {
        rows.push(("wrote", wrote.to_vec()));
    }
    let converged = done.outcome == NewtonOutcome::Converged;
    term::table(&rows, term::columns(), |label| match (label, converged) {
        ("outcome", true) => term::GOOD,
        ("outcome", false) => term::BAD,
        _ => term::PLAIN,
    })
}
