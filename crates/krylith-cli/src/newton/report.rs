//! The report of `krylith newton` as JSON. The fields are a contract; docs/guide.md.

use super::Finished;
use crate::report::{finite, parameters};
use krylith::newton::{NewtonReport, NewtonSeconds};
use serde_json::{Value, json};
use std::path::Path;

/// The version of these fields.
const SCHEMA: u32 = 1;

/// Writes the report; it appears whole or not at all.
///
/// # Errors
/// What the file system says.
pub fn write(done: &Finished, path: &Path) -> krylith::Result<()> {
    let report = of(done);
    krylith::io::atomic::write(path, |out| {
        serde_json::to_writer_pretty(&mut *out, &report)?;
        out.write_all(b"\n")
    })
}

fn of(done: &Finished) -> Value {
    let (unknowns, block, blocks) = done.sizes;
    let runs: Vec<Value> = done
        .runs
        .iter()
        .map(|run| {
            let mut value = of_run(&run.report);
            value["time_step"] = run.step.into();
            value["time"] = json!(run.time);
            value["parameter"] = json!(run.parameter);
            value
        })
        .collect();
    let linear = done.linear.as_ref().map(|linear| {
        json!({
            "method": linear.method.to_string(),
            "preconditioner": { "name": linear.precond.name, "parameters": parameters(&linear.precond.parameters) },
            "device": linear.device.kind,
            "devices": linear.device.names,
            "ranks": linear.device.ranks,
            "threads": linear.device.threads,
        })
    });
    json!({
        "schema": SCHEMA,
        "krylith": env!("CARGO_PKG_VERSION"),
        "problem": { "name": done.spec, "unknowns": unknowns, "block": block, "blocks": blocks, "parameter": done.parameter },
        "newton": {
            "rtol": done.options.rtol,
            "atol": done.options.atol,
            "max_steps": done.options.max_steps,
            "forcing": done.options.forcing.to_string(),
        },
        "linear": linear,
        "outcome": done.outcome.name(),
        "steps": done.runs.iter().map(|run| run.report.steps.len()).sum::<usize>(),
        "iterations": done.runs.iter().map(|run| run.report.iterations()).sum::<usize>(),
        "runs": runs,
        "figures": done.figures.iter().map(|(name, value)| json!({ "name": name, "value": finite(*value) })).collect::<Vec<_>>(),
        "seconds": { "load": done.load, "total": done.total },
    })
}

fn of_run(report: &NewtonReport) -> Value {
    let steps: Vec<Value> = report
        .steps
        .iter()
        .map(|step| {
            json!({
                "step": step.number,
                "before": finite(step.before),
                "after": finite(step.after),
                "forcing": step.forcing,
                "linear_outcome": step.linear.name(),
                "iterations": step.iterations,
                "linear_residual": finite(step.linear_residual),
                "damping": step.damping,
                "trials": step.trials,
                "seconds": of_seconds(&step.seconds),
            })
        })
        .collect();
    let events: Vec<Value> =
        report.events.iter().map(|event| json!({ "step": event.step, "detail": event.detail })).collect();
    json!({
        "outcome": report.outcome.name(),
        "first": finite(report.first),
        "last": finite(report.last),
        "target": finite(report.target),
        "steps": steps,
        "events": events,
        "seconds": of_seconds(&report.seconds),
    })
}

fn of_seconds(seconds: &NewtonSeconds) -> Value {
    json!({
        "residual": seconds.residual,
        "jacobian": seconds.jacobian,
        "setup": seconds.setup,
        "solve": seconds.solve,
        "total": seconds.total(),
    })
}
