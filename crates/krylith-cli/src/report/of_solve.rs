//! The report of `krylith solve`.

use super::{Column, Event, Parameters, Preconditioner, Report, Run, SCHEMA, Seconds, Sources, System};
use super::{automatic, choice, finite, parameters, parts, provenance};
use crate::options::Rhs;
use crate::solve::{Finished, Solved};
use crate::summary;
use krylith_core::operator::Format;
use krylith_core::{DeviceSpec, Precision};

/// Returns the report of a solve; `rhs` is the right-hand side of the command line.
pub fn report(done: &Finished, rhs: Option<&Rhs>) -> Report {
    let Finished { system, options, .. } = done;
    let Solved { solution, fields } = done.shown();
    let (history, device, phases) = (&solution.history, &solution.device, solution.phases);
    let info = &solution.precond;
    let mut given = parameters(&info.parameters);
    if solution.equilibrated {
        given.insert("equilibrate".into(), true.into());
    }
    if solution.matched {
        given.insert("matching".into(), true.into());
    }
    if solution.null_vectors > 0 {
        given.insert("nullspace".into(), solution.null_vectors.into());
    }
    let fill = (info.numbers > 0.0).then(|| info.numbers / system.nonzeros as f64);
    let moved = solution.bytes_per_iteration * history.iterations as f64;
    let fraction =
        done.bandwidth.filter(|_| history.iterations > 0).map(|b| moved / solution.solve_seconds / b);
    let (own, stop) = (solution.method.options(), options.stop_of(system.len()));
    let mut events = Vec::new();
    let mut choices = automatic(solution, &done.given);
    if system.share.numbers.is_some() {
        events.push(Event::choice(&*system.share.reason));
        for choice in choices.iter_mut().filter(|choice| choice.option == "partition") {
            choice.reason = Some(system.share.reason.clone());
        }
    }
    if matches!(options.device, None | Some(DeviceSpec::Auto)) {
        events.push(Event::choice(format!("device {}, {}", device.kind, device.reason)));
    }
    if system.block_detected {
        events.push(Event::choice(format!("block {}: {}", system.order.block, system.block_reason)));
        let block = system.order.block.to_string();
        choices.insert(0, choice("block", block, Some(system.block_reason.clone())));
    }
    if rhs.is_none() {
        choices.insert(0, choice("rhs", done.rhs.clone(), None));
    }
    events.extend(solution.events.iter().map(Event::from));
    let sum = |of: fn(&Solved) -> f64| done.solved.iter().map(of).sum::<f64>();
    let setup = sum(|s| s.solution.setup_seconds);
    Report {
        schema: SCHEMA,
        krylith: env!("CARGO_PKG_VERSION").into(),
        command: provenance::command(),
        date: provenance::date(),
        host: provenance::host(),
        versions: provenance::versions(device.kind == "cuda"),
        system: System {
            name: system.name.clone(),
            rows: system.len(),
            nonzeros: system.nonzeros,
            block: system.order.block,
            stages: system.order.stages,
            format: system.format.into(),
            ordering: summary::ordering(system.order.user).into(),
            rhs_norm: finite(history.rhs_norm),
        },
        sources: Sources {
            rhs: done.rhs.clone(),
            x0: done.x0.clone(),
            null_vectors: done.null_vectors.clone(),
        },
        run: Run {
            device: device.kind.into(),
            devices: device.names.clone(),
            ranks: device.ranks,
            threads: device.threads,
            deterministic: options.deterministic.unwrap_or(false),
            seed: if let Some(Rhs::Random(seed)) = rhs { Some(*seed) } else { None },
            store: options.precision.unwrap_or(Precision::F64).name().into(),
            format: match solution.format {
                Format::Auto => "blocks".into(),
                format => format.name().into(),
            },
            share: solution.share.as_deref().map(Into::into),
        },
        method: solution.method.name().name().into(),
        parameters: Parameters {
            restart: own.restart,
            orthogonalization: own.orthogonalization.map(|o| o.name().into()),
            reductions: own.reductions.map(|r| r.name().into()),
            form: own.form.map(|f| f.name().into()),
            s: own.s,
            basis: own.basis.map(|b| b.name().into()),
            rtol: stop.rtol,
            atol: stop.atol,
            max_iters: stop.max_iters,
        },
        preconditioner: Preconditioner { name: info.name.clone(), parameters: given, fill },
        automatic: choices,
        outcome: history.outcome.name().into(),
        reason: history.reason.map(String::from),
        iterations: history.iterations,
        residuals: history.residuals.iter().map(|r| finite(*r)).collect(),
        convergence_factor: history.convergence_factor(),
        true_relative_residual: finite(history.true_relative_residual),
        criterion: history.criterion.name().into(),
        relative_to: history.relative_to.name().into(),
        criterion_value: finite(history.criterion_value),
        row_scaled_residual: solution.row_scaled_residual.and_then(finite),
        rounding: finite(history.rounding),
        field_residuals: fields.iter().map(|r| finite(*r)).collect(),
        columns: if done.solved.len() > 1 { done.solved.iter().map(column).collect() } else { Vec::new() },
        seconds: Seconds {
            load: done.load,
            setup,
            setup_parts: parts(&done.solved[0].solution.setup_parts),
            total: setup + sum(|s| s.solution.solve_seconds),
            // On a GPU, transfers overlap with other work and are not timed.
            transfer: (device.kind == "cpu" && device.ranks == 1).then_some(0.0),
            product: phases.map(|p| p.product),
            communication: if device.ranks == 1 { Some(0.0) } else { phases.map(|p| p.communication) },
            orthogonalization: phases.map(|p| p.orthogonalization),
            preconditioner: phases.map(|p| p.preconditioner),
        },
        bytes_per_iteration: solution.bytes_per_iteration.round() as u64,
        bandwidth_fraction: fraction.and_then(finite),
        events,
    }
}

fn column(solved: &Solved) -> Column {
    let Solved { solution, fields } = solved;
    let history = &solution.history;
    Column {
        outcome: history.outcome.name().into(),
        reason: history.reason.map(String::from),
        iterations: history.iterations,
        residuals: history.residuals.iter().map(|r| finite(*r)).collect(),
        true_relative_residual: finite(history.true_relative_residual),
        criterion_value: finite(history.criterion_value),
        rounding: finite(history.rounding),
        field_residuals: fields.iter().map(|r| finite(*r)).collect(),
        rhs_norm: finite(history.rhs_norm),
        method: krylith_report::words::method(solution),
        seconds: solution.setup_seconds + solution.solve_seconds,
        events: solution.events.iter().map(Event::from).collect(),
    }
}
