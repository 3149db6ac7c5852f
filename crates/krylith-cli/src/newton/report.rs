//! The report of `krylith newton`, as JSON. Users rely on its fields. The guide lists them with the comments
//! of this file; see [`crate::report`].

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
    /// Krylith's version.
    pub krylith: String,
    /// The command line.
    pub command: String,
    /// The start of the command, in UTC, as RFC 3339 writes it.
    pub date: String,
    /// The name of the machine.
    pub host: String,
    /// As in the report of a linear solve.
    pub versions: Versions,
    /// The nonlinear problem.
    pub problem: Problem,
    /// The settings of Newton's method.
    pub newton: Given,
    /// The settings of the last linear solve; null without a Newton step.
    pub linear: Option<Linear>,
    /// The automatic choices: `option`, `taken` and `reason`, as in the report of a linear solve.
    pub automatic: Vec<Choice>,
    /// The outcome of the last run: `converged`, `max-steps`, `line-search`, `linear-solve`, `not-finite` or
    /// `interrupted`.
    pub outcome: String,
    /// The number of Newton steps of all runs.
    pub steps: usize,
    /// The number of linear iterations of all runs.
    pub iterations: usize,
    /// One run for each time step and each value of `--continuation`, in order.
    pub runs: Vec<Run>,
    /// Numbers of the last x to compare with published solutions.
    pub figures: Vec<Figure>,
    /// The time, in seconds.
    pub seconds: Total,
}
/// The nonlinear problem.
pub struct Problem {
    /// The name, with all keys.
    pub name: String,
    /// The number of unknowns.
    pub unknowns: usize,
    /// The number of unknowns of a node.
    pub block: usize,
    /// The number of blocks of the Jacobian.
    pub blocks: usize,
    /// The key that `--continuation` changes; null if there is none.
    pub parameter: Option<String>,
}
/// The settings of Newton's method.
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
/// The settings of the last linear solve.
pub struct Linear {
    /// The method with its options.
    pub method: String,
    /// The preconditioner: `name`, `parameters` and `fill`, as in the report of a linear solve.
    pub preconditioner: Preconditioner,
    /// The kind of device: `cpu` or `cuda`.
    pub device: String,
    /// The name of each device.
    pub devices: Vec<String>,
    /// The number of GPUs.
    pub ranks: usize,
    /// The number of CPU threads.
    pub threads: usize,
}
/// One run of Newton's method.
pub struct Run {
    /// The outcome of this run.
    pub outcome: String,
    /// ‖F(x₀)‖ at the start.
    pub first: Option<f64>,
    /// ‖F(x)‖ at the end.
    pub last: Option<f64>,
    /// The tolerance for ‖F(x)‖.
    pub target: Option<f64>,
    /// The Newton steps.
    pub steps: Vec<Step>,
    /// The events of the run.
    pub events: Vec<Happened>,
    /// The time, in seconds.
    pub seconds: Spent,
    /// The number of the time step, counted from 1.
    pub time_step: usize,
    /// The time at the end of the time step; null for a steady problem.
    pub time: Option<f64>,
    /// The value of the parameter; null without `--continuation`.
    pub parameter: Option<f64>,
}
/// One step.
pub struct Step {
    /// The number of the step, counted from 1.
    pub step: usize,
    /// ‖F‖ before the step.
    pub before: Option<f64>,
    /// ‖F‖ after the step.
    pub after: Option<f64>,
    /// The forcing term η: the linear solve stops at ‖J s + F‖ ≤ η ‖F‖.
    pub forcing: f64,
    /// The outcome of the linear solve.
    pub linear_outcome: String,
    /// The number of iterations of the linear solve.
    pub iterations: usize,
    /// ‖J s + F‖/‖F‖ at the end of the linear solve.
    pub linear_residual: Option<f64>,
    /// The share of the step that the line search took.
    pub damping: f64,
    /// The number of shares that the line search tried.
    pub trials: usize,
    /// The time, in seconds.
    pub seconds: Spent,
}
/// An event.
pub struct Happened {
    /// The number of the step.
    pub step: usize,
    /// A description.
    pub detail: String,
}
/// Seconds.
pub struct Spent {
    /// Evaluations of F.
    pub residual: f64,
    /// Evaluations of J.
    pub jacobian: f64,
    /// Set-up of linear solves.
    pub setup: f64,
    /// Iterations of linear solves.
    pub solve: f64,
    /// The sum.
    pub total: f64,
}
/// A number to compare.
pub struct Figure {
    /// The name of the number.
    pub name: String,
    /// Its value.
    pub value: Option<f64>,
}
/// Seconds of the command.
pub struct Total {
    /// The time to set up the problem.
    pub load: f64,
    /// The time of everything after that.
    pub total: f64,
}
}

/// Writes the report; it appears whole or not at all.
///
/// # Errors
/// What the file system says.
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
