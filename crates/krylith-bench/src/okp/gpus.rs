//! The OKP paper's experiments on several GPUs: time of an iteration and of its parts (its Table 3 and Figs.
//! 9 to 13). Strong scaling is measured at the paper's size and at eight times it, weak scaling at the
//! paper's size per GPU.

use super::gpus_report::{Experiment, Findings, Run, make};
use super::orthogonalization::{delayed_bytes, mean_traffic};
use super::solve::{Entry, Rounds, measure};
use super::{RESTART, Series, TIMED};
use crate::cuda::CudaPlatform;
use crate::cuda::multi::{Baseline, ours};
use crate::multi::{Job, share};
use crate::options::{Asked, apart, counts};
use crate::platform::Platform;
use crate::publish::{Report, meta, sizes};
use crate::systems::{self, Case, PAPER};
use krylith_core::{Error, Precision, Result};
use serde_json::json;

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
    let one = CudaPlatform::open(gpus[0])?;
    let (describe, (_, bandwidth)) = (one.describe(), one.bandwidth()?);
    drop(one);
    let nccl = krylith_core::device::cuda::nccl_version();
    let solves = options.solves.unwrap_or(20);
    let plan = Plan { solves, iterations: options.iterations.unwrap_or(300) };
    // Cycles are alike, so two per solve suffice to time an iteration of large systems.
    let short = Plan { solves, iterations: options.iterations.unwrap_or(2 * RESTART) };
    let more = json!({
        "gpus": gpus, "nccl": nccl.as_ref().ok(), "solves": solves, "iterations": plan.iterations,
        "iterations_of_other_sizes": short.iterations, "restart": RESTART, "timed_solves": TIMED,
    });
    let mut meta = meta("okp", &options.command, describe, more);
    (meta["place"], meta["bandwidth"]) = (json!(options.launch.place()), json!(bandwidth));
    let nodes = systems::scaled(PAPER, options.scale.unwrap_or(1.0));
    let mut found = Findings::default();
    if let Err(e) = nccl {
        found.notes.push(e.to_string());
    }

    // Weak scaling starts on one GPU, too.
    let own = if series.contains(&Series::Strong) { gpus } else { &gpus[..1] };
    let strong = strong(own, nodes, &plan, &mut found.notes, progress)?;
    let first = strong.runs[0].clone();
    found.experiments.push(strong);
    // The remaining part takes long: keep the results so far in case it is interrupted.
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

/// Measures every solver on the same GPUs.
fn solvers(
    gpus: &[usize],
    case: &Case,
    nodes: [usize; 3],
    plan: &Plan,
    reference: Option<Vec<f64>>,
    notes: &mut Vec<String>,
) -> Result<Run> {
    let parts = share::cut(&case.kronecker, gpus.len())?;
    let job = Job { case, gpus, parts: &parts, restart: RESTART, iterations: plan.iterations };
    let new = |name: String, ours, traffic, session| Entry { name, ours, exact: true, traffic, session };
    let run = case.kronecker.block() * case.kronecker.stages();
    let longest = parts.iter().map(|part| part.halo.own * run).max().unwrap_or(0);
    let delayed = mean_traffic(|columns| delayed_bytes(Precision::F64, longest, columns));
    let theirs = |one: Baseline| mean_traffic(|columns| one.traffic(longest, columns));
    let baselines = Baseline::ALL.into_iter().map(|one| new(one.name(), false, theirs(one), one.open(&job)));
    let own = [("Krylith, dense blocks", true), ("Krylith, structured blocks", false)];
    let mut entries = Vec::new();
    for entry in baselines.chain(own.map(|(name, dense)| new(name.into(), true, delayed, ours(&job, dense))))
    {
        match &entry.session {
            Err(Error::Unsupported(why)) => {
                notes.push(format!("{}, {} GPUs: not available: {why}", entry.name, gpus.len()));
            }
            _ => entries.push(entry),
        }
    }
    let (place, rounds) =
        (format!(" on {} GPUs", gpus.len()), Rounds { warm: 1, solves: plan.solves, timed: TIMED });
    Ok(Run { gpus: gpus.len(), nodes, rows: measure(entries, &place, case, rounds, reference)? })
}
