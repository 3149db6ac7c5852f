//! `krylith steps`: advances M u′ + L u = f in time, with one set-up for all steps.

mod checkpoint;
mod system;

use crate::args::StepsArgs;
use crate::failure::{DONE, Failure, INTERRUPTED, NOT_CONVERGED, Result, code_with};
use crate::output::{self, Target, check_target};
use crate::progress::Watch;
use crate::{files, interrupt, picture, process, ranks, term};
use checkpoint::Checkpoint;
use krylith_core::io::Array;
use krylith_core::solver::{Cancel, Solution, check_gpus};
use krylith_core::text::{count, name, plural, seconds};
use krylith_core::{DeviceSpec, Options, Outcome, Solver};
use krylith_problems::StokesDomain;
use krylith_report::words::{self, Language};
use std::path::Path;
use std::time::Instant;
use system::{System, vector, write_vtu};

/// Runs the command.
///
/// # Errors
/// The steps cannot start, or a file cannot be written. A step without convergence is no error; it has an
/// exit code.
pub fn steps(args: StepsArgs) -> Result<u8> {
    let begin = || -> Result<_> {
        if ranks::comm().size() > 1 {
            let message =
                "`krylith steps` runs in one process; omit mpirun, and name GPUs by --device cuda:0,1";
            return Err(Failure::usage(message));
        }
        interrupt::watch()?;
        process::start_threads(args.flags.0.threads)?;
        check_outputs(&args)?;
        let options = crate::options::settle(&args.flags.0, &Options::default(), "")?;
        if let Some(DeviceSpec::Cuda(list)) = &options.device {
            check_gpus(list).map_err(|e| Failure::machine(format!("--device cuda: {e}")))?;
        }
        Ok(options)
    };
    let options = ranks::together(begin())?;
    let loading = Instant::now();
    let mut system = System::load(&args)?;
    for (option, path) in [("--vtu", &args.vtu), ("--picture", &args.picture)] {
        path.iter().try_for_each(|path| system.check_drawn(option, path))?;
    }
    let mut state = first(&args, &system)?;
    let options = resumed(&args.flags.0, &state, options);
    let load = loading.elapsed().as_secs_f64();
    let done = march(&args, &options, &mut system, &mut state)?;
    Ok(conclude(&args, &options, &system, &state, done, load))
}

/// The result of all steps.
#[derive(Default)]
struct Done {
    /// The last solve; `None` if there was no step to do.
    last: Option<Solution>,
    steps: usize,
    iterations: usize,
    setup: f64,
    solve: f64,
    wrote: Vec<String>,
    trouble: Vec<Failure>,
}

/// Returns the state at the beginning.
fn first(args: &StepsArgs, system: &System) -> Result<Checkpoint> {
    let (operator, kept) = (system.operator(), system.kept());
    let (rows, unknowns) = (operator.m.rows(), operator.rows());
    let Some(path) = &args.resume else {
        let u = match &args.u0 {
            Some(path) => vector("the state", path, rows)?,
            None => vec![0.0; rows],
        };
        let (solver, k) = (String::new(), vec![0.0; unknowns]);
        return Ok(Checkpoint { system: kept, solver, step: 0, time: 0.0, u, k });
    };
    let mut state = Checkpoint::read(path)?;
    let wrong = |message: String| Err(Failure::usage(format!("--resume {}: {message}", name(path))));
    if state.u.len() != rows {
        return wrong(format!("its state has {} numbers, and M has {rows} rows", state.u.len()));
    }
    if state.system != kept {
        return wrong(format!("it is a checkpoint of `{}`; name this system, or give --u0", state.system));
    }
    if state.step > args.steps {
        let message = format!("it is after step {}; --steps counts from time 0, so raise it", state.step);
        return wrong(message);
    }
    // Another scheme has other stages, and its first solve begins from zero.
    if state.k.len() != unknowns {
        state.k = vec![0.0; unknowns];
    }
    Ok(state)
}

/// Returns the options of the solves: with `auto`, method and preconditioner of the checkpoint.
fn resumed(given: &Options, state: &Checkpoint, options: Options) -> Options {
    let kept = state.solver.parse::<Options>().ok();
    let kept = kept.filter(|_| given.method.is_none() && given.precond.is_none());
    kept.and_then(|kept| crate::options::settle(given, &kept, "").ok()).unwrap_or(options)
}

/// Returns method and preconditioner of a solve as options, for a checkpoint.
fn solver_of(solution: &Solution) -> String {
    let method = Options::one("method", &solution.method.to_string()).unwrap_or_default();
    let precond = Options::one("precond", &solution.precond.name).unwrap_or_default();
    method.and(&precond).to_string()
}

/// Does the steps that are left, and writes outputs.
fn march(args: &StepsArgs, options: &Options, system: &mut System, state: &mut Checkpoint) -> Result<Done> {
    let mut done = Done::default();
    let label = system.label();
    if state.step == args.steps {
        interrupt::writing();
        write(args, system.domain(), &label, state, &mut done);
        return Ok(done);
    }
    let tau = system.scheme().1;
    let mut rhs = vec![0.0; state.k.len()];
    let (problem, mut stepping, domain) = system.parts()?;
    let cancel = Cancel::default();
    let meanwhile = crate::progress::of_first_use(args.quiet, interrupt::passed_on_to(&cancel));
    let mut solver = Solver::new_cancellable(problem, options, &cancel, Some(meanwhile))?;
    interrupt::solving();
    while state.step < args.steps {
        stepping.rhs(state.time, &state.u, &mut rhs)?;
        let before = state.k.clone();
        let mut watch = Watch::new(args.quiet);
        let solved = solver.request(&rhs, &mut state.k).observer(&mut watch).run();
        watch.finish();
        let solution = solved?.clone();
        let converged = solution.converged();
        done.iterations += solution.history.iterations;
        done.solve += solution.solve_seconds;
        done.setup = done.setup.max(solution.setup_seconds);
        if !converged {
            // The checkpoint is that of the last whole step.
            state.k = before;
            done.last = Some(solution);
            break;
        }
        stepping.advance(&state.k, &mut state.u)?;
        state.solver = solver_of(&solution);
        state.step += 1;
        state.time += tau;
        done.steps += 1;
        if state.step < args.steps && args.every.is_some_and(|n| state.step.is_multiple_of(n)) {
            if !args.quiet {
                let of = plural(solution.history.iterations, "iteration");
                output::note(&format!("step {}, t = {}: {of}", state.step, short(state.time)));
            }
            write(args, domain, &label, state, &mut done);
        }
        done.last = Some(solution);
    }
    interrupt::writing();
    // Without convergence the state is that of the last whole step.
    if done.steps > 0 {
        write(args, domain, &label, state, &mut done);
    }
    Ok(done)
}

/// Writes the checkpoint and the outputs of a step. An error does not end the steps.
fn write(args: &StepsArgs, domain: Option<&StokesDomain>, label: &str, state: &Checkpoint, done: &mut Done) {
    let mut keep =
        |option: &str, path: &Path, what: &str, write: &dyn Fn(Target) -> krylith_core::Result<()>| {
            match Target::new(option, path).and_then(|target| {
                let name = target.to_string();
                write(target).map(|()| name).map_err(Failure::from)
            }) {
                Ok(name) => {
                    let line = format!("{name} ({what})");
                    // A checkpoint replaces the one before.
                    done.wrote.retain(|other| *other != line);
                    done.wrote.push(line);
                }
                Err(failure) => done.trouble.push(failure),
            }
        };
    let named = |path: &Path| match args.every {
        Some(_) => files::numbered(path, state.step),
        None => path.to_path_buf(),
    };
    if let Some(path) = &args.checkpoint {
        keep("--checkpoint", path, "checkpoint", &|target| state.write(target));
    }
    if let Some(path) = &args.out {
        keep("--out", &named(path), "u", &|target| {
            let format = output::vector_format(target.path());
            target.write(|out| format.write(out, &Array::vector(state.u.clone())))
        });
    }
    let Some(domain) = domain else { return };
    if let Some(path) = &args.vtu {
        keep("--vtu", &named(path), "velocity and pressure", &|target| write_vtu(domain, &state.u, target));
    }
    if let Some(path) = &args.picture {
        keep("--picture", &named(path), "speed", &|target| {
            let shown = domain.picture(short(state.time), &state.u)?;
            target.write_picture(&picture::draw(&shown, label))
        });
    }
}

/// Prints the summary, and returns the exit code.
fn conclude(
    args: &StepsArgs,
    options: &Options,
    system: &System,
    state: &Checkpoint,
    done: Done,
    load: f64,
) -> u8 {
    let (operator, (butcher, tau)) = (system.operator(), system.scheme());
    let size = format!(
        "{}, blocks of {}, {}, order {}, τ = {tau}",
        plural(operator.rows(), "unknown"),
        operator.block(),
        plural(butcher.stages(), "stage"),
        butcher.order
    );
    let mut rows = vec![("system", vec![system.label(), size])];
    let failed = done.last.as_ref().filter(|last| !last.converged());
    if let Some(last) = &done.last {
        rows.push(("device", vec![words::device(last)]));
        rows.push(("method", words::description(last, options)));
    }
    let mut outcome = format!("step {}, t = {}", count(state.step), short(state.time));
    if let Some(last) = failed {
        outcome += &format!("; the next step: {}", last.outcome());
    }
    rows.push(("outcome", vec![outcome]));
    let mean = done.iterations as f64 / done.steps.max(1) as f64;
    rows.push((
        "steps",
        vec![format!(
            "{} here, {}, {mean:.1} a step",
            count(done.steps),
            plural(done.iterations, "iteration")
        )],
    ));
    let times = [("loaded", load), ("set up once", done.setup), ("solved", done.solve)];
    let times: Vec<String> = times.iter().map(|(what, t)| format!("{what} in {}", seconds(*t))).collect();
    rows.push(("time", vec![times.join(", ")]));
    if !done.wrote.is_empty() {
        rows.push(("wrote", done.wrote.clone()));
    }
    if !args.quiet {
        output::print(&term::table(&rows, term::columns(), |_| term::PLAIN));
    }
    let code = match failed.map(|last| last.history.outcome) {
        None => DONE,
        Some(Outcome::Interrupted) => INTERRUPTED,
        Some(_) => NOT_CONVERGED,
    };
    if let Some(last) = failed {
        let label = format!("step {} of {}", state.step + 1, system.label());
        output::error(&words::verdict(&label, last, options, Language::Flags));
    }
    done.trouble.iter().for_each(|failure| output::error(&failure.message));
    code_with(code, &done.trouble)
}

fn check_outputs(args: &StepsArgs) -> Result<()> {
    let outputs = [
        ("--out", &args.out),
        ("--checkpoint", &args.checkpoint),
        ("--vtu", &args.vtu),
        ("--picture", &args.picture),
    ];
    let outputs: Vec<files::Named> =
        outputs.into_iter().filter_map(|(option, path)| Some((option, path.clone()?))).collect();
    for (option, path) in &outputs {
        if output::is_stdout(path) {
            return Err(Failure::usage(format!("{option} -: steps write files; give a file name")));
        }
        check_target(option, path)?;
    }
    // A checkpoint may replace the one that the steps began with, which was read before.
    let inputs = [("--rhs", &args.rhs), ("--u0", &args.u0), ("", &args.stiffness)];
    let mut inputs: Vec<files::Named> =
        inputs.into_iter().filter_map(|(option, path)| Some((option, path.clone()?))).collect();
    inputs.push(("", args.system.clone()));
    files::check_apart(&inputs, &outputs)?;
    args.out.iter().try_for_each(|path| output::check_state("--out", path))?;
    args.vtu.iter().try_for_each(|path| output::check_vtu("--vtu", path))?;
    args.picture.iter().try_for_each(|path| output::check_picture("--picture", path))
}

/// Rounds a time to ten digits, to hide the rounding of sums of steps.
fn short(time: f64) -> f64 {
    format!("{time:.9e}").parse().unwrap_or(time)
}
