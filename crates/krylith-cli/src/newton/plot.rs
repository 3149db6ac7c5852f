//! A plot of ‖F‖ after every step, with bars for the linear iterations of each step.

use super::Finished;
use krylith_core::newton::NewtonOutcome;
use krylith_plot::residuals::{NewtonRun, newton};
use krylith_plot::scene::Scene;

/// Draws the plot.
pub fn draw(done: &Finished) -> Scene {
    let run = |run: &super::Run| NewtonRun {
        name: match (run.time, run.parameter, done.parameter) {
            (Some(time), _, _) => format!("t = {}", krylith_plot::ticks::number(time, 3)),
            (None, Some(value), Some(name)) => format!("{name} = {value}"),
            _ => String::new(),
        },
        norms: std::iter::once(run.report.first).chain(run.report.steps.iter().map(|s| s.after)).collect(),
        iterations: run.report.steps.iter().map(|s| s.iterations).collect(),
        target: run.report.target,
    };
    let runs: Vec<NewtonRun> = done.runs.iter().map(run).collect();
    let subtitle = match &done.linear {
        Some(linear) => {
            format!("{}, {} — {}", linear.method.title(), linear.precond.text, super::ending(done))
        }
        None => super::ending(done),
    };
    newton(&done.spec, &subtitle, &runs, done.outcome == NewtonOutcome::Converged)
}
