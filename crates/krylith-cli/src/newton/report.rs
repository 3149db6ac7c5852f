//! The report of `krylith newton` as JSON. The fields are a stable interface, and the comments here are the
//! table in the guide, as for [`crate::report`].

use super::Finished;
use crate::report::described::described;
use crate::report::{Choice, Preconditioner, Versions, finite, parameters, provenance};
use krylith_core::newton::{NewtonReport as OfRun, NewtonSeconds, NewtonStep};

/// The version of these fields.
const SCHEMA: u32 = 1;

described! {
/// A whole report.
pub struct NewtonReport {
    /// The version of these fields.
    pub schema: u32,
    /// Version of Krylith.
    pub krylith: String,
    /// The command line.
    pub command: String,
    /// Start of the command: UTC, RFC 3339.
    pub date: String,
    /// Name of the machine.
    pub host: String,
    /// Versions of programs and libraries, as in the report of a linear solve.
    pub versions: Versions,
    /// The problem.
    pub problem: Problem,
    /// Options of Newton's method.
    pub newton: Given,
    /// Method, preconditioner and device of the last linear solve; null if there was no step.
    pub linear: Option<Linear>,
    /// Options that were not given: the `option`, the value that was `taken`, and the `reason`.
    pub automatic: Vec<Choice>,
    /// Outcome of the last run: `converged`, `max-steps`, `line-search`, `linear-solve`, `not-finite` or
    /// `interrupted`.
    pub outcome: String,
    /// Number of Newton steps of all runs.
    pub steps: usize,
    /// Number of linear iterations of all runs.
    pub iterations: usize,
    /// Runs of Newton's method: one for each time step and each value of `--continuation`, in order.
    pub runs: Vec<Run>,
    /// Numbers computed from the last x, to compare with published solutions.
    pub figures: Vec<Figure>,
    /// Times of the command, in seconds.
    pub seconds: Total,
}
/// The problem.
pub struct Problem {
    /// Name, with all keys.
    pub name: String,
    /// Number of unknowns.
    pub unknowns: usize,
    /// Number of unknowns of a node.
    pub block: usize,
    /// Number of blocks of the Jacobian.
    pub blocks: usize,
    /// The key that `--continuation` changes; null if the problem has no such key.
    pub parameter: Option<String>,
}
/// Options of Newton's method.
pub struct Given {
    /// The value of `--newton-rtol`.
    pub rtol: f64,
    /// The value of `--newton-atol`.
    pub atol: f64,
    /// The value of `--max-steps`.
    pub max_steps: usize,
    /// The value of `--forcing`.
    pub forcing: String,
}
/// Method, preconditioner and device of the last linear solve.
pub struct Linear {
    /// The method with its options.
    pub method: String,
    /// The preconditioner: `name`, `parameters` and `fill`, as in the report of a linear solve.
    pub preconditioner: Preconditioner,
    /// Kind of device: `cpu` or `cuda`.
    pub device: String,
    /// The name of each device.
    pub devices: Vec<String>,
    /// Number of ranks that solve together: GPUs of one process, or processes of mpirun.
    pub ranks: usize,
    /// Number of CPU threads.
    pub threads: usize,
}
/// A run of Newton's method.
pub struct Run {
    /// Outcome of this run, by the names of `outcome`.
    pub outcome: String,
    /// ‖F(x₀)‖ at the start.
    pub first: Option<f64>,
    /// ‖F(x)‖ at the end.
    pub last: Option<f64>,
    /// The largest ‖F(x)‖ that counts as converged.
    pub target: Option<f64>,
    /// All steps.
    pub steps: Vec<Step>,
    /// Events: the number of the `step`, and a description in `detail`.
    pub events: Vec<Happened>,
    /// Times of the run, in seconds.
    pub seconds: Spent,
    /// The number of the time step, counted from 1.
    pub time_step: usize,
    /// Time at the end of the time step; null for a steady problem.
    pub time: Option<f64>,
    /// Value of the parameter; null without `--continuation`.
    pub parameter: Option<f64>,
}
/// A step of Newton's method.
pub struct Step {
    /// Number of the step, from 1.
    pub step: usize,
    /// ‖F‖ before the step.
    pub before: Option<f64>,
    /// ‖F‖ after the step.
    pub after: Option<f64>,
    /// Tolerance η of the linear solve: ‖J s + F‖ ≤ η ‖F‖.
    pub forcing: f64,
    /// Outcome of the linear solve.
    pub linear_outcome: String,
    /// Number of iterations of the linear solve.
    pub iterations: usize,
    /// ‖J s + F‖/‖F‖ that the linear solve reached.
    pub linear_residual: Option<f64>,
    /// Step length of the line search.
    pub damping: f64,
    /// Number of step lengths that the line search tried.
    pub trials: usize,
    /// Times of the step, in seconds.
    pub seconds: Spent,
}
/// An event of the solve.
pub struct Happened {
    /// Number of the step.
    pub step: usize,
    /// Description.
    pub detail: String,
}
/// Times in seconds.
pub struct Spent {
    /// Computing F.
    pub residual: f64,
    /// Computing J.
    pub jacobian: f64,
    /// Set-up of linear solves.
    pub setup: f64,
    /// Iterations of linear solves.
    pub solve: f64,
    /// Sum of these times.
    pub total: f64,
}
/// A number to compare with published solutions.
pub struct Figure {
    /// Name of the quantity.
    pub name: String,
    /// Value of the quantity.
    pub value: Option<f64>,
}
/// Times of the command, in seconds.
pub struct Total {
    /// Generating the problem.
    pub load: f64,
    /// Solving it.
    pub total: f64,
}
}

/// Writes the report atomically.
///
/// # Errors
/// The file system reports an error.
pub fn write(done: &Finished, target: crate::output::Target) -> krylith_core::Result<()> {
    let report = of(done);
    target.write(|out| {
        serde_json::to_writer_pretty(&mut *out, &report)?;
        out.write_all(b"\n")
    })
}

fn of(done: &Finished) -> NewtonReport {
    let (unknowns, block, blocks) = done.sizes;
    let linear = done.linear.as_ref();
    NewtonReport {
        schema: SCHEMA,
        krylith: env!("CARGO_PKG_VERSION").into(),
        command: provenance::command(),
        date: provenance::date(),
        host: provenance::host(),
        versions: provenance::versions(linear.is_some_and(|linear| linear.device.kind == "cuda")),
        problem: Problem {
            name: done.spec.clone(),
            unknowns,
            block,
            blocks,
            parameter: done.parameter.map(String::from),
        },
        newton: Given {
            rtol: done.options.rtol,
            atol: done.options.atol,
            max_steps: done.options.max_steps,
            forcing: done.options.forcing.to_string(),
        },
        linear: linear.map(|linear| Linear {
            method: linear.method.to_string(),
            preconditioner: Preconditioner {
                name: linear.precond.name.clone(),
                parameters: parameters(&linear.precond.parameters),
                fill: None,
            },
            device: linear.device.kind.into(),
            devices: linear.device.names.clone(),
            ranks: linear.device.ranks,
            threads: linear.device.threads,
        }),
        automatic: linear.map(|linear| crate::report::automatic(linear, &done.given)).unwrap_or_default(),
        outcome: done.outcome.name().into(),
        steps: done.runs.iter().map(|run| run.report.steps.len()).sum(),
        iterations: done.runs.iter().map(|run| run.report.iterations()).sum(),
        runs: done
            .runs
            .iter()
            .map(|run| Run {
                time_step: run.step,
                time: run.time,
                parameter: run.parameter,
                ..of_run(&run.report)
            })
            .collect(),
        figures: (done.figures.iter())
            .map(|(name, value)| Figure { name: name.to_string(), value: finite(*value) })
            .collect(),
        seconds: Total { load: done.load, total: done.total },
    }
}

fn of_run(report: &OfRun) -> Run {
    Run {
        outcome: report.outcome.name().into(),
        first: finite(report.first),
        last: finite(report.last),
        target: finite(report.target),
        steps: report.steps.iter().map(of_step).collect(),
        events: (report.events.iter())
            .map(|event| Happened { step: event.step, detail: event.detail.clone() })
            .collect(),
        seconds: of_seconds(&report.seconds),
        time_step: 1,
        time: None,
        parameter: None,
    }
}

fn of_step(step: &NewtonStep) -> Step {
    Step {
        step: step.number,
        before: finite(step.before),
        after: finite(step.after),
        forcing: step.forcing,
        linear_outcome: step.linear.name().into(),
        iterations: step.iterations,
        linear_residual: finite(step.linear_residual),
        damping: step.damping,
        trials: step.trials,
        seconds: of_seconds(&step.seconds),
    }
}

fn of_seconds(seconds: &NewtonSeconds) -> Spent {
    Spent {
        residual: seconds.residual,
        jacobian: seconds.jacobian,
        setup: seconds.setup,
        solve: seconds.solve,
        total: seconds.total(),
    }
}
