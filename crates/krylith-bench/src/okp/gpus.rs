//! The paper's experiments on several GPUs: time of an iteration and where it goes (its Table 3 and Figs. 9 to 13),
//! strong scaling at the paper's size and at eight times it, weak scaling at the paper's size a GPU.

use super::gpus_report::{Findings, make};
use super::{RESTART, Series};
use crate::cuda::CudaPlatform;
use crate::cuda::multi::{Baseline, ours};
use crate::multi::{Job, Session, Solve, Times, share};
use crate::options::{Asked, apart, counts};
use crate::platform::Platform;
use crate::publish::{Check, Report, meta, sizes};
use crate::samples::{Samples, in_turn};
use crate::systems::{self, Case, PAPER};
use krylith::{Error, Result};
use serde_json::json;

/// Instrumented runs whose mean is taken, as in the paper.
const TIMED: usize = 3;

/// One solver on one number of GPUs.
#[derive(Debug, Clone)]
pub(super) struct Row {
    pub name: String,
    /// Seconds of whole solves without instrumentation, of the slowest rank.
    pub samples: Samples,
    /// Seconds of each part in solves of their own, maxima over ranks; per solve.
    pub times: Vec<Times>,
    /// ‖r‖/‖b‖.
    pub residuals: Vec<f64>,
    /// Largest difference of the residuals over the first cycle from the reference's.
    pub agreement: f64,
    /// ‖b − A x‖/‖b‖ by a loop on the host, or what went wrong.
    pub check: Check,
}

impl Row {
    pub fn iterations(&self) -> usize {
        self.residuals.len().saturating_sub(1).max(1)
    }
    /// Seconds an iteration.
    pub fn iteration(&self) -> f64 {
        self.samples.median() / self.iterations() as f64
    }
    /// Seconds of each part an iteration: the mean of the instrumented runs.
    pub fn parts(&self) -> [f64; 5] {
        Times::mean(&self.times).0.map(|t| t / self.iterations() as f64)
    }
}

/// All solvers on one number of GPUs.
#[derive(Debug, Clone)]
pub(super) struct Run {
    pub gpus: usize,
    pub nodes: [usize; 3],
    pub rows: Vec<Row>,
}

/// A series over numbers of GPUs.
pub(super) struct Experiment {
    pub title: String,
    /// The system grows with the number of GPUs.
    pub weak: bool,
    pub runs: Vec<Run>,
}

struct Plan {
    solves: usize,
    iterations: usize,
}

pub(super) fn run(
    gpus: &[usize],
    options: &Asked,
    series: &[Series],
    progress: &mut dyn FnMut(&str),
) -> Result<Report> {
    apart(gpus)?;
    let describe = CudaPlatform::open(gpus[0])?.describe();
    let nccl = krylith::device::cuda::nccl_version();
    let solves = options.solves.unwrap_or(20);
    let plan = Plan { solves, iterations: options.iterations.unwrap_or(300) };
    // Cycles are alike, so two of them a solve tell an iteration's time of the systems that take long.
    let short = Plan { solves, iterations: options.iterations.unwrap_or(2 * RESTART) };
    let more = json!({
        "gpus": gpus, "nccl": nccl.as_ref().ok(), "solves": solves, "iterations": plan.iterations,
        "iterations_of_other_sizes": short.iterations, "restart": RESTART, "timed_solves": TIMED,
    });
    let meta = meta("okp", &options.command, describe, more);
    let nodes = systems::scaled(PAPER, options.scale.unwrap_or(1.0));
    let mut found = Findings::default();
    if let Err(e) = nccl {
        found.notes.push(e.to_string());
    }

    // One GPU is where weak scaling begins too.
    let own = if series.contains(&Series::Strong) { gpus } else { &gpus[..1] };
    let strong = strong(own, nodes, &plan, &mut found.notes, progress)?;
    let first = strong.runs[0].clone();
    found.experiments.push(strong);
    // The rest is long: what there is by now stays if it is interrupted.
    make(&found, meta.clone()).write(options.out.as_deref(), "okp")?;

    if series.contains(&Series::Weak) {
        let [x, y, z] = nodes;
        let each = x * y * z;
        let mut weak =
            Experiment { title: format!("Weak scaling, {each} nodes a GPU"), weak: true, runs: vec![first] };
        for count in counts(gpus.len()).into_iter().skip(1) {
            progress(&format!("weak scaling on {count} GPUs"));
            let nodes = [x, y, z * count];
            let case = systems::stokes(nodes)?;
            weak.runs.push(solvers(&gpus[..count], &case, nodes, &plan, None, &mut found.notes)?);
        }
        found.experiments.push(weak);
        make(&found, meta.clone()).write(options.out.as_deref(), "okp")?;
    }

    if series.contains(&Series::Large) {
        let nodes = nodes.map(|n| 2 * n);
        let strong = self::strong(gpus, nodes, &short, &mut found.notes, progress)?;
        found.experiments.push(strong);
    }
    let mut made = make(&found, meta);
    made.write(options.out.as_deref(), "okp")?;
    Ok(made)
}

fn strong(
    gpus: &[usize],
    nodes: [usize; 3],
    plan: &Plan,
    notes: &mut Vec<String>,
    progress: &mut dyn FnMut(&str),
) -> Result<Experiment> {
    let grid = sizes(nodes);
    progress(&format!("strong scaling: assembling {grid} nodes"));
    let case = systems::stokes(nodes)?;
    let mut runs: Vec<Run> = Vec::new();
    for count in counts(gpus.len()) {
        progress(&format!("strong scaling, {grid} nodes on {count} GPUs"));
        let sound = runs.iter().flat_map(|r| &r.rows).find(|r| r.check.is_ok());
        let reference = sound.map(|r| r.residuals.clone());
        runs.push(solvers(&gpus[..count], &case, nodes, plan, reference, notes)?);
    }
    let title = format!("Strong scaling, {grid} = {} nodes", nodes.iter().product::<usize>());
    Ok(Experiment { title, weak: false, runs })
}

/// Every solver on the same GPUs: checked first, then timed in turn.
fn solvers(
    gpus: &[usize],
    case: &Case,
    nodes: [usize; 3],
    plan: &Plan,
    mut reference: Option<Vec<f64>>,
    notes: &mut Vec<String>,
) -> Result<Run> {
    let parts = share::cut(&case.kronecker, gpus.len())?;
    let (kronecker, rhs) = (&case.kronecker, case.rhs.as_slice());
    let job = Job { kronecker, rhs, gpus, parts: &parts, restart: RESTART, iterations: plan.iterations };
    let norm_b = rhs.iter().map(|v| v * v).sum::<f64>().sqrt();
    let mut opened: Vec<(String, Result<Box<dyn Session>>)> =
        Baseline::ALL.into_iter().map(|b| (b.name().to_string(), b.open(&job))).collect();
    for (name, dense) in [("Krylith, dense blocks", true), ("Krylith, structured blocks", false)] {
        opened.push((name.into(), ours::open(&job, dense)));
    }

    let (mut rows, mut sessions) = (Vec::new(), Vec::new());
    for (name, session) in opened {
        let mut session = match session {
            Ok(session) => session,
            Err(Error::Unsupported(why)) => {
                notes.push(format!("{name}, {} GPUs: not offered: {why}", gpus.len()));
                continue;
            }
            Err(e) => {
                rows.push(Row::failed(&name, gpus.len(), &e));
                sessions.push(None);
                continue;
            }
        };
        match first(&mut *session, &name, case, norm_b, &mut reference) {
            Ok(row) => {
                sessions.push(row.check.is_ok().then_some(session));
                rows.push(row);
            }
            Err(e) => {
                rows.push(Row::failed(&name, gpus.len(), &e));
                sessions.push(None);
            }
        }
    }

    // A solver that fails on the way loses its times; the others go on.
    let samples = in_turn(rows.len(), 1, plan.solves, |i| {
        let Some(session) = &mut sessions[i] else { return Ok(f64::NAN) };
        Ok(session.solve(false).map(|s| s.seconds).unwrap_or_else(|e| {
            (rows[i], sessions[i]) = (Row::failed(&rows[i].name, gpus.len(), &e), None);
            f64::NAN
        }))
    })?;
    for (row, samples) in rows.iter_mut().zip(samples) {
        if row.check.is_ok() {
            row.samples = samples;
        }
    }
    for (row, session) in rows.iter_mut().zip(&mut sessions) {
        let Some(session) = session else { continue };
        // The first makes the events.
        let times: Result<Vec<Times>> = (0..=TIMED).map(|_| session.solve(true).map(|s| s.times)).collect();
        match times {
            Ok(times) => row.times = times[1..].to_vec(),
            Err(e) => *row = Row::failed(&row.name, gpus.len(), &e),
        }
    }
    Ok(Run { gpus: gpus.len(), nodes, rows })
}

/// The first solve: is it right? Its residuals become the reference if there is none yet.
fn first(
    session: &mut dyn Session,
    name: &str,
    case: &Case,
    norm_b: f64,
    reference: &mut Option<Vec<f64>>,
) -> Result<Row> {
    let Solve { residuals, .. } = session.solve(false)?;
    let residuals: Vec<f64> = residuals.iter().map(|r| r / norm_b).collect();
    let end = systems::residual(&case.kronecker, &case.rhs, &session.solution()?) / norm_b;
    // Cycles end with the true residual, so the last of the history must be that of the answer.
    let last = residuals.last().copied().unwrap_or(f64::NAN);
    let reference = reference.get_or_insert_with(|| residuals.clone());
    let cycle = residuals.iter().zip(&*reference).take(RESTART + 1);
    let agreement = cycle.map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
    let check = if !((end - last).abs() <= 1e-9 + 1e-6 * end) {
        Err(format!("{name}: the residual of the answer is {end:e}, its history ends at {last:e}"))
    } else if !(agreement <= 1e-8) {
        Err(format!("{name}: residuals of the first cycle differ from the reference's by {agreement:e}"))
    } else {
        Ok(end)
    };
    let (samples, times) = (Samples::default(), Vec::new());
    Ok(Row { name: name.into(), samples, times, residuals, agreement, check })
}

impl Row {
    fn failed(name: &str, gpus: usize, e: &Error) -> Self {
        Self {
            name: name.into(),
            samples: Samples::default(),
            times: Vec::new(),
            residuals: Vec::new(),
            agreement: f64::NAN,
            check: Err(format!("{name} on {gpus} GPUs: {e}")),
        }
    }
}
