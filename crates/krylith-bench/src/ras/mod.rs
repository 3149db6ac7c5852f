//! The experiments of Ma, Le and Cai on randomized point-block Schwarz (paper 5 in docs/papers.md). The
//! linear systems of Newton steps of its three problems are solved by FGMRES with restricted additive
//! Schwarz. The subdomain solves are exact (one core, cuSPARSE, Krylith) or randomized.
//!
//! A problem's systems are generated once, by Newton steps with tightly solved linear systems, and given to
//! every algorithm in the same numbering. Every solve is checked by b − A x on the host.

pub(crate) mod cases;
pub(crate) mod measure;
mod newton;
#[cfg_attr(not(feature = "cuda"), allow(dead_code))] // its tests run without CUDA
pub(crate) mod plan;
mod report;
mod targets;

use crate::launch::Launch;
use crate::options::{self, Asked};
use crate::platform::Platform;
use crate::publish::{Report, meta};
use cases::{ARTERY, CAVITY_600, CAVITY_1200, Case, Kind, Setting, VENTRICLE, Way, ways};
use krylith_core::Result;
use measure::{Effort, Row};
use report::{Found, Made};
use serde_json::json;

options::parts! {
    /// A part of the suite.
    Part {
        /// The driven cavity on 600² nodes.
        Cavity600 = "cavity600",
        /// The driven cavity on 1200² nodes.
        Cavity1200 = "cavity1200",
        /// The left ventricle.
        Ventricle = "ventricle",
        /// The artery.
        Artery = "artery",
        /// Repeated independent runs on the cavity of 600² nodes.
        Repeat = "repeat",
        /// Scaling from one GPU to several, on the artery; the part for processes of a launcher.
        Scaling = "scaling",
        /// Exact RAS on one core, for each problem.
        OneCore = "one-core",
        /// cuSPARSE's RAS for each problem, on a GPU.
        Vendor = "vendor",
        /// Krylith's solves of each problem: exact RAS, the default of `ras`, and other preconditioners.
        Ours = "ours",
        /// Solves with randomized sweeps, in the numbers of sweeps that the paper uses, for each problem.
        Sweeps = "sweeps",
    }
}

/// Sweeps of the factorisation (η), sweeps of the triangular solves (γ) and rows per warp (f_dp) of the
/// repeated runs: first those of the paper's Fig. 10, then with more triangular sweeps.
const REPEATED: [[usize; 3]; 2] = [[10, 5, 8], [10, 8, 8]];
/// η, γ and f_dp of the runs on several GPUs.
const SCALED: [usize; 3] = [8, 5, 8];

/// Problems in the order of measurement.
const PROBLEMS: [(Part, &Setting); 4] = [
    (Part::Cavity600, &CAVITY_600),
    (Part::Cavity1200, &CAVITY_1200),
    (Part::Ventricle, &VENTRICLE),
    (Part::Artery, &ARTERY),
];

/// Runs the suite; `progress` receives a line before each part.
///
/// # Errors
/// Returns an error if a device or library is missing (by name), if a problem cannot be created, or if an
/// output file cannot be written. A solve that does not converge is no error: it is a row without times. It
/// is listed under `failures` if it should converge.
pub fn ras(options: &Asked, progress: &mut dyn FnMut(&str)) -> Result<Report> {
    options.check()?;
    let parts = Part::named("--parts", &options.parts)?;
    let parts = options.launch.parts(parts, &options.parts, &[("scaling", Part::Scaling)])?;
    options::on_device!(options, |p| run(p, options, &parts, progress))
}

fn run<P: Platform>(
    p: &P,
    options: &Asked,
    parts: &[Part],
    progress: &mut dyn FnMut(&str),
) -> Result<Report> {
    let (gpu, scale) = (options.device.is_gpu(), options.scale(1.0 / 64.0));
    let wanted = |part| parts.contains(&part);
    let folder = options.out.as_deref();
    let first = options.device.options(1, options.threads);
    let effort = Effort {
        device: &first,
        launch: &Launch::default(),
        gpus: usize::from(gpu),
        runs: options.solves.unwrap_or(3),
        most: options.iterations.unwrap_or(3000),
        steps: usize::MAX,
        warm: gpu,
        count_failures: false,
    };
    let more = json!({ "scale": scale, "runs": effort.runs, "most_iterations": effort.most });
    let meta = meta("ras", &options.command, options.launch.describe(p.describe()), more);
    let mut made = Made { meta, ..Made::default() };
    let several = options.device.gpus().len() > 1 || options.launch.comm().is_some();
    let several = several && wanted(Part::Scaling);
    for (part, setting) in PROBLEMS {
        let repeats = part == Part::Cavity600 && wanted(Part::Repeat);
        let scales = several && part == Part::Artery;
        if !(wanted(part) || repeats || scales) {
            continue;
        }
        let case = Case::new(setting, &setting.spec(scale), &first, progress);
        let case = cases::common(&options.launch, case)?;
        if wanted(part) {
            let found = problem(p, &case, options.full, parts, &effort, progress)?;
            made.found.push(found);
            // The next part may take long: keep the results so far in case it is interrupted.
            report::write(&made, folder)?;
        }
        if repeats {
            made.repeated = Some(repeated(&case, options.rounds.unwrap_or(100), &effort, progress));
            report::write(&made, folder)?;
        }
        if scales {
            made.scaling.push(scaling(&case, options, &effort, progress));
            report::write(&made, folder)?;
        }
    }
    report::write(&made, folder)
}

fn found(case: &Case, solves: Vec<Row>) -> Found {
    Found {
        setting: case.setting,
        spec: case.spec.clone(),
        rows: case.rows(),
        blocks: case.steps[0].jacobian.blocks(),
        assembly: case.steps.iter().map(|step| (step.number, step.assembly)).collect(),
        solves,
    }
}

/// Iteration limit of a solve with randomized sweeps, as a multiple of the iterations of an exact solve.
const SWEEP_ITERATION_FACTOR: usize = 10;

fn problem<P: Platform>(
    p: &P,
    case: &Case,
    full: bool,
    parts: &[Part],
    effort: &Effort,
    progress: &mut dyn FnMut(&str),
) -> Result<Found> {
    let wanted = |part| parts.contains(&part);
    let mut solves = Vec::new();
    let exact = |row: &&Row| matches!(row.way.kind, Kind::Exact | Kind::Vendor) && row.failure.is_none();
    if wanted(Part::Vendor) {
        progress(&format!("{}: exact RAS by cuSPARSE", case.setting.name));
        let rows = p.schwarz(case, effort)?;
        rows.iter().for_each(|row| progress(&row.line()));
        solves.extend(rows);
    }
    if wanted(Part::Ours) || wanted(Part::Sweeps) {
        let mut kinds = Vec::new();
        let named = |way: &Way| wanted(if way.sweeps.is_some() { Part::Sweeps } else { Part::Ours });
        for way in ways(case.setting, full).into_iter().filter(named) {
            progress(&format!("{}: {}", case.setting.name, way.name));
            // Kernels are compiled once per kind; the other preconditioners differ from row to row.
            let warm = effort.warm
                && (matches!(way.kind, Kind::Other | Kind::Ras | Kind::TwoLevel)
                    || !kinds.contains(&way.kind));
            kinds.push(way.kind);
            // A solve that needs so many times the iterations of the exact solve is useless; without this
            // limit each would take half a minute.
            let exact = solves.iter().filter(exact).map(|row| row.median() as usize).max();
            let most = exact
                .filter(|_| way.sweeps.is_some())
                .map_or(effort.most, |n| effort.most.min(SWEEP_ITERATION_FACTOR * n));
            let rows = measure::ours(case, &way, &Effort { warm, most, ..effort.clone() });
            rows.iter().for_each(|row| progress(&row.line()));
            solves.extend(rows);
        }
    }
    if wanted(Part::OneCore) {
        progress(&format!("{}: one core", case.spec));
        let iterations: Vec<usize> = case
            .steps
            .iter()
            .map(|step| {
                let found = solves.iter().filter(exact).find(|row: &&Row| row.step == step.number);
                found.map_or(case.setting.restart, |row| row.median() as usize)
            })
            .collect();
        solves.extend(measure::one_core(case, &iterations, effort.steps));
    }
    Ok(found(case, solves))
}

/// Fig. 10: repeats settings on the system of the first Newton step, and compares them with exact RAS.
fn repeated(case: &Case, repeats: usize, effort: &Effort, progress: &mut dyn FnMut(&str)) -> Found {
    let mut solves = Vec::new();
    let repeated = REPEATED.map(|sweeps| (Way::random(case.setting, Kind::Random, sweeps), repeats));
    for (way, runs) in std::iter::once((Way::exact(case.setting), effort.runs)).chain(repeated) {
        progress(&format!("{}: {} times {}", case.spec, runs, way.name));
        let effort = Effort { runs, steps: 1, count_failures: true, ..effort.clone() };
        solves.extend(measure::ours(case, &way, &effort));
    }
    found(case, solves)
}

/// Measures the first of the case's systems on 1, 2, … GPUs, always with the same number of subdomains.
fn scaling(case: &Case, options: &Asked, effort: &Effort, progress: &mut dyn FnMut(&str)) -> Found {
    let mut solves = Vec::new();
    let one_level = [Way::random(case.setting, Kind::Random, SCALED), Way::exact(case.setting)];
    for way in one_level.into_iter().chain(Way::two_level(case.setting)) {
        for gpus in options.launch.counts(options.device.gpus().len()) {
            progress(&format!("{}: {} on {gpus} GPUs", case.setting.name, way.name));
            let (device, launch) = (options.device_of(gpus), &options.launch);
            let effort = Effort { device: &device, launch, gpus, steps: 1, ..effort.clone() };
            let rows = measure::ours(case, &way, &effort);
            rows.iter().for_each(|row| progress(&row.line()));
            solves.extend(rows);
        }
    }
    found(case, solves)
}
