//! Whole solves, from x = 0 to the tolerance: Krylith with its options, and the vendor's libraries.

use super::{Case, MOST, Part, RTOL, resized};
use crate::launch::Launch;
use crate::options::Asked;
use crate::platform::Platform;
use crate::publish::Check;
use crate::samples::Samples;
use krylith_core::matrix::Bsr;
use krylith_core::operator::Terms;
use krylith_core::{Options, Problem, Result, Solver};
use std::borrow::Cow;
use std::time::Instant;

pub(super) struct Row {
    pub name: String,
    pub ours: bool,
    /// Seconds before the first iteration, without compiling kernels.
    pub setup: f64,
    /// Seconds of the iterations.
    pub samples: Samples,
    pub iterations: usize,
    /// Number of sums over all ranks.
    pub reductions: usize,
    pub residuals: Vec<f64>,
    /// ‖b − A x‖/‖b‖ at the end, recomputed on the host, or the reason of a failure.
    pub check: Check,
}

/// Tiles as large as those of Table I of the P-CBCG paper (16×32×4 to 8×8×1 cells), as far as a warp supports
/// them: at most 32 lines along x.
const TILES: [[usize; 3]; 9] = [
    [16, 8, 4],
    [32, 8, 4],
    [64, 4, 2],
    [32, 4, 4],
    [16, 16, 1],
    [8, 8, 4],
    [16, 4, 4],
    [8, 8, 1],
    [4, 4, 4],
];
/// Number of tiles measured without `--full`.
const SOME: usize = 2;

/// Returns the tiles to measure besides the device's default tile.
pub(super) fn shapes(options: &Asked) -> Vec<[usize; 3]> {
    let some = if options.full { TILES.len() } else { SOME };
    TILES[..options.pick(some, 0)].to_vec() // a CPU uses slabs
}

/// Steps of P-CBCG.
const STEPS: [usize; 8] = [2, 3, 4, 6, 8, 10, 12, 16];

/// Returns the options to measure.
fn candidates(options: &Asked) -> Vec<String> {
    let mut all: Vec<String> =
        ["jacobi", "ildu", "block-jacobi"].map(|p| format!("method=cg precond={p}")).into();
    let tiles = |[x, y, z]: [usize; 3]| format!("method=cg precond=block-jacobi:tile={x}x{y}x{z}");
    all.extend(shapes(options).into_iter().map(tiles));
    if !options.device.is_gpu() {
        all.push("method=cg precond=block-jacobi:tile=whole".into());
    }
    for form in ["one-reduction", "pipelined"] {
        all.push(format!("method=cg:form={form} precond=block-jacobi"));
    }
    let steps = STEPS.iter().filter(|s| options.full || [4, 12, 16].contains(s));
    all.extend(steps.map(|s| format!("method=cbcg:s={s} precond=block-jacobi")));
    all.push("method=cbcg:s=3,basis=monomial precond=block-jacobi".into());
    all
}

/// Checks and times the solves by Krylith and the vendor.
pub(super) fn measure<P: Platform>(
    p: &P,
    case: &Case,
    options: &Asked,
    parts: &[Part],
    progress: &mut dyn FnMut(&str),
) -> Result<Vec<Row>> {
    let most = options.iterations.unwrap_or(MOST);
    let rounds = options.solves.unwrap_or(options.pick(5, 3));
    let mut rows = Vec::new();
    let candidates = if parts.contains(&Part::Solves) { candidates(options) } else { Vec::new() };
    for text in candidates {
        progress(&text);
        let device = options.device.options(1, options.threads);
        rows.push(ours(case, &text, (&device, &Launch::default()), most, rounds));
    }
    let vendor = match parts.contains(&Part::Vendor) {
        true => p.answers(&Bsr::from_csr(&case.a, 1)?, true, &case.rhs, most)?,
        false => Vec::new(),
    };
    for (name, mut take) in vendor {
        progress(&name);
        let mut row = Row::empty(&name, false);
        for round in 0..=rounds {
            let answer = match take() {
                Ok(answer) => answer,
                Err(e) => {
                    row.check = Err(format!("{name}: {e}"));
                    break;
                }
            };
            row.judge(case.residual(&answer.x), answer.converged, answer.iterations);
            if row.check.is_err() {
                break;
            }
            if round > 0 {
                let solve =
                    answer.parts.iter().find(|part| part.0 == "solve").map_or(f64::NAN, |part| part.1);
                row.setup = answer.setup();
                row.samples.0.push(solve);
            }
        }
        rows.push(row);
    }
    Ok(rows)
}

impl Row {
    pub fn empty(name: &str, ours: bool) -> Self {
        Self {
            name: name.into(),
            ours,
            setup: f64::NAN,
            samples: Samples::default(),
            iterations: 0,
            reductions: 0,
            residuals: Vec::new(),
            check: Ok(f64::NAN),
        }
    }

    /// Judges a solve: recurrences of baselines may drift slightly from the true residual, but no more.
    pub fn judge(&mut self, residual: f64, converged: bool, iterations: usize) {
        let most = if self.ours { RTOL * (1.0 + 1e-6) } else { 2.0 * RTOL };
        self.iterations = iterations;
        self.check = match converged && residual <= most {
            true => Ok(residual),
            false => Err(format!(
                "{}: after {iterations} iterations ‖b − A x‖/‖b‖ is {residual:.1e}; the \
                 tolerance is {RTOL:.0e}",
                self.name
            )),
        };
        if self.check.is_err() {
            self.samples = Samples::default();
        }
    }
}

pub(super) fn ours(case: &Case, text: &str, on: (&str, &Launch), most: usize, rounds: usize) -> Row {
    let name = text.replace("method=", "").replace(" precond=", ", ");
    let mut row = Row::empty(&name, true);
    let (device, launch) = on;
    let text = format!("{text} {device} rtol={RTOL:e} max_iters={most}");
    if let Err(e) = solve(case, &text, launch, rounds, &mut row) {
        (row.check, row.samples) = (Err(format!("{name}: {e}")), Samples::default());
    }
    row
}

fn solve(case: &Case, text: &str, launch: &Launch, rounds: usize, row: &mut Row) -> Result<()> {
    let options: Options = text.parse()?;
    let share = launch.share(&Terms::csr(&case.a)?, None, Some(case.grid), &options)?;
    let solver = || -> Result<Solver> {
        let problem = match &share {
            Some(share) => share.problem()?,
            None => Problem::csr(&case.a)?,
        };
        Solver::new(problem.with_grid(case.grid)?, &options)
    };
    let rhs = share.as_ref().map_or(Cow::Borrowed(&case.rhs[..]), |share| share.own(&case.rhs).into());
    let mut x = vec![0.0; rhs.len()];
    // The first solver compiles and loads kernels, which is a cost per machine, not per matrix.
    solver()?.solve(&rhs[..], &mut x)?;
    let begin = Instant::now();
    let mut solver = solver()?;
    row.setup = launch.slowest(begin.elapsed().as_secs_f64())?;
    for round in 0..=rounds {
        x.fill(0.0);
        let solution = solver.solve(&rhs[..], &mut x)?;
        let (seconds, iterations) = (launch.slowest(solution.solve_seconds)?, solution.history.iterations);
        (row.reductions, row.residuals) = (solution.history.reductions, solution.history.residuals.clone());
        let converged = solution.converged();
        if round == 0 {
            let whole = share.as_ref().map(|share| share.whole(&x)).transpose()?;
            row.judge(case.residual(whole.as_deref().unwrap_or(&x)), converged, iterations);
        }
        if row.check.is_err() {
            return Ok(());
        }
        if round > 0 {
            row.samples.0.push(seconds);
        }
    }
    Ok(())
}

/// A measurement of one size on one number of GPUs.
pub(super) struct Scaled {
    pub series: &'static str,
    pub gpus: usize,
    pub grid: [usize; 3],
    pub row: Row,
}

/// Measures P-CG and P-CBCG on 1, 2, 4, … GPUs, or on the processes of a launcher, with a fixed system or a
/// fixed share per GPU.
pub(super) fn scaling(spec: &str, options: &Asked, progress: &mut dyn FnMut(&str)) -> Result<Vec<Scaled>> {
    let (grid, mut rows) = (Case::new(spec)?.grid, Vec::new());
    for (series, weak) in [("strong", false), ("weak", true)] {
        let launch = &options.launch;
        for gpus in launch.counts(options.device.gpus().len()) {
            let [x, y, z] = grid;
            let grid = [x, y, if weak { z * gpus } else { z }];
            let case = Case::new(&resized(spec, grid))?;
            for text in ["method=cg precond=block-jacobi", "method=cbcg:s=12 precond=block-jacobi"] {
                progress(&format!("{series} scaling: {text} on {gpus} GPUs, {x}×{y}×{} cells", grid[2]));
                let device = options.device_of(gpus);
                let row = ours(
                    &case,
                    text,
                    (&device, launch),
                    options.iterations.unwrap_or(MOST),
                    options.solves.unwrap_or(3),
                );
                rows.push(Scaled { series, gpus, grid, row });
            }
        }
    }
    Ok(rows)
}
