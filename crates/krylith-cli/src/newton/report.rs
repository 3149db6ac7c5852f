//! The report of `krylith newton` as JSON. The fields are a contract, and the comments here are their table in the guide, as of
//! [`crate::report`].

use super::Finished;
use crate::report::described::described;
use crate::report::{Choice, Preconditioner, Versions, finite, parameters, provenance};
use krylith_core::newton::{NewtonReport as OfRun, NewtonSeconds, NewtonStep};

/// The version of these fields.
const SCHEMA: u32 = 1;

described! {
/// A whole report.
pub struct NewtonReport {
    /// Version of these fields.
    pub schema: u32,
    /// Krylith's version.
    pub krylith: String,
    /// The command line.
    pub command: String,
    /// When it began: UTC, RFC 3339.
    pub date: String,
    /// The machine's name.
    pub host: String,
    /// As in the report of a linear solve.
    pub versions: Versions,
    /// What was solved.
    pub problem: Problem,
    /// What Newton's method was given.
    pub newton: Given,
    /// The last linear solve's means; null where there was no step.
    pub linear: Option<Linear>,
    /// What was left open: `option`, what was `taken`, and the `reason`.
    pub automatic: Vec<Choice>,
    /// `converged`, `max-steps`, `line-search`, `linear-solve`, `not-finite` or `interrupted`: of the last run.
    pub outcome: String,
    /// Newton steps of all runs.
    pub steps: usize,
    /// Linear iterations of all runs.
    pub iterations: usize,
    /// One for each time step and each value of `--continuation`, in order.
    pub runs: Vec<Run>,
    /// Numbers of the last x by which it is compared with published solutions.
    pub figures: Vec<Figure>,
    /// Where the time went.
    pub seconds: Total,
}
/// What was solved.
pub struct Problem {
    /// With every key.
    pub name: String,
    /// Unknowns.
    pub unknowns: usize,
    /// Components of a node.
    pub block: usize,
    /// Blocks of the Jacobian.
    pub blocks: usize,
    /// The key that `--continuation` changes; null where there is none.
    pub parameter: Option<String>,
}
/// What Newton's method was given.
pub struct Given {
    /// `--newton-rtol`.
    pub rtol: f64,
    /// `--newton-atol`.
    pub atol: f64,
    /// `--max-steps`.
    pub max_steps: usize,
    /// `--forcing`.
    pub forcing: String,
}
/// The last linear solve's means.
pub struct Linear {
    /// Method with its options.
    pub method: String,
    /// Preconditioner: `name`, `parameters` and `fill` as in the report of a linear solve.
    pub preconditioner: Preconditioner,
    /// `cpu` or `cuda`.
    pub device: String,
    /// Name of each device.
    pub devices: Vec<String>,
    /// GPUs that solved together.
    pub ranks: usize,
    /// Threads of the CPU team.
    pub threads: usize,
}
/// Newton's method once.
pub struct Run {
    /// As above.
    pub outcome: String,
    /// ‖F(x₀)‖.
    pub first: Option<f64>,
    /// ‖F(x)‖ at the end.
    pub last: Option<f64>,
    /// What was to be reached.
    pub target: Option<f64>,
    /// Every step.
    pub steps: Vec<Step>,
    /// What happened on the way: the `step`, and a `detail` in words.
    pub events: Vec<Happened>,
    /// Where the time went.
    pub seconds: Spent,
    /// Number of the time step, from 1.
    pub time_step: usize,
    /// The time at its end; null for a steady problem.
    pub time: Option<f64>,
    /// The parameter's value; null without `--continuation`.
    pub parameter: Option<f64>,
}
/// One step.
pub struct Step {
    /// From 1.
    pub step: usize,
    /// ‖F‖ before it.
    pub before: Option<f64>,
    /// ‖F‖ after it.
    pub after: Option<f64>,
    /// η: ‖J s + F‖ ≤ η ‖F‖ was asked of the linear solve.
    pub forcing: f64,
    /// How the linear solve ended.
    pub linear_outcome: String,
    /// Its iterations.
    pub iterations: usize,
    /// ‖J s + F‖/‖F‖ that it reached.
    pub linear_residual: Option<f64>,
    /// Share of the step that was taken.
    pub damping: f64,
    /// Shares that the line search tried.
    pub trials: usize,
    /// Where the time went.
    pub seconds: Spent,
}
/// Something that happened on the way.
pub struct Happened {
    /// The step.
    pub step: usize,
    /// In words.
    pub detail: String,
}
/// Seconds.
pub struct Spent {
    /// F.
    pub residual: f64,
    /// J.
    pub jacobian: f64,
    /// Set-up of linear solves.
    pub setup: f64,
    /// Their iterations.
    pub solve: f64,
    /// All of it.
    pub total: f64,
}
/// A number to compare.
pub struct Figure {
    /// What it is.
    pub name: String,
    /// The number.
    pub value: Option<f64>,
}
/// Seconds of the command.
pub struct Total {
    /// Making the problem.
    pub load: f64,
    /// Everything after that.
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
