//! Krylith's solves of one problem's linear systems, with its options. Symbols are those of the paper that
//! `ras/mod.rs` names.

use super::cases::{Case, Kind, Way};
use crate::launch::Launch;
use krylith_core::operator::Terms;
use krylith_core::solver::SetupPart;
use krylith_core::{Error, Options, Problem, Result, Solver};

/// One solve, with its set-up.
#[derive(Debug, Clone)]
pub(crate) struct Run {
    /// Seconds before the factorisation, without compiling kernels: analysis of patterns, arrays and vectors.
    pub setup: f64,
    /// Seconds of the factorisation, T_f in the paper.
    pub factor: f64,
    /// Seconds of FGMRES, T_g in the paper.
    pub solve: f64,
    /// Iterations of FGMRES, I_g in the paper.
    pub iterations: usize,
    pub converged: bool,
    /// ‖b − A x‖/‖b‖, recomputed on the host; NaN if not computed.
    pub residual: f64,
}

/// An algorithm on the system of one Newton step.
pub(crate) struct Row {
    pub way: Way,
    /// Number of the Newton step, from 1.
    pub step: usize,
    pub gpus: usize,
    pub runs: Vec<Run>,
    /// Notes of the solver, or the vendor's settings.
    pub notes: Vec<String>,
    /// The reason of a failure.
    pub failure: Option<String>,
}

/// A mean with minimum and maximum.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Mean {
    pub mean: f64,
    pub deviation: f64,
    pub min: f64,
    pub max: f64,
}

impl Mean {
    pub fn of(values: impl Iterator<Item = f64> + Clone) -> Self {
        let count = values.clone().count() as f64;
        let mean = values.clone().sum::<f64>() / count;
        let squares: f64 = values.clone().map(|v| (v - mean).powi(2)).sum();
        Self {
            mean,
            deviation: (squares / (count - 1.0).max(1.0)).sqrt(),
            min: values.clone().fold(f64::INFINITY, f64::min),
            max: values.fold(f64::NEG_INFINITY, f64::max),
        }
    }

    /// Returns `12.3 (12.1–12.5)` in the unit given by `scale`; a dash without values.
    pub fn text(&self, scale: f64, digits: usize) -> String {
        if !self.mean.is_finite() {
            return "–".into();
        }
        let show = |v: f64| format!("{:.digits$}", v * scale);
        match self.min < self.max {
            true => format!("{} ({}–{})", show(self.mean), show(self.min), show(self.max)),
            false => show(self.mean),
        }
    }
}

impl Row {
    pub fn new(way: &Way, step: usize, gpus: usize) -> Self {
        Self { way: way.clone(), step, gpus, runs: Vec::new(), notes: Vec::new(), failure: None }
    }

    fn mean(&self, of: impl Fn(&Run) -> f64 + Clone) -> Mean {
        Mean::of(self.runs.iter().filter(|run| run.converged).map(of))
    }
    pub fn setup(&self) -> Mean {
        self.mean(|run| run.setup)
    }
    pub fn factor(&self) -> Mean {
        self.mean(|run| run.factor)
    }
    pub fn solve(&self) -> Mean {
        self.mean(|run| run.solve)
    }
    pub fn both(&self) -> Mean {
        self.mean(|run| run.factor + run.solve)
    }
    pub fn iterations(&self) -> Mean {
        self.mean(|run| run.iterations as f64)
    }
    /// Returns the largest residual.
    pub fn residual(&self) -> f64 {
        self.runs.iter().map(|run| run.residual).fold(f64::NAN, f64::max)
    }
    /// Returns the median number of iterations of all runs.
    pub fn median(&self) -> f64 {
        crate::samples::Samples(self.runs.iter().map(|run| run.iterations as f64).collect()).median()
    }
    /// Returns the result in a line; if the run is interrupted, only this line remains.
    pub fn line(&self) -> String {
        let (way, step) = (&self.way.name, self.step);
        match &self.failure {
            Some(failure) => format!("  step {step}, {way}: {failure}"),
            None => format!(
                "  step {step}, {way}: T_f {} + T_g {} ms, {} iterations",
                self.factor().text(1e3, 2),
                self.solve().text(1e3, 2),
                self.median()
            ),
        }
    }
    pub fn note(&mut self, text: &str) {
        if !self.notes.iter().any(|note| note == text) {
            self.notes.push(text.into());
        }
    }
}

/// Device, number of runs, and limits of the measurements.
#[derive(Debug, Clone)]
pub(crate) struct Effort<'a> {
    /// Options of the device, `device=…` and threads.
    pub device: &'a str,
    /// How the ranks of this device run.
    pub launch: &'a Launch,
    pub gpus: usize,
    pub runs: usize,
    /// Iteration limit.
    pub most: usize,
    /// Number of Newton steps; with 1, only the first.
    pub steps: usize,
    /// True to make a discarded run first: for the first of its kind on a GPU.
    pub warm: bool,
    /// True to continue after runs that do not converge, in order to count them.
    pub count_failures: bool,
}

/// Measures runs of an algorithm on the systems of successive Newton steps. Each run sets up a new solver and
/// solves the first system twice; the second solve counts, because the first records graphs. Later steps only
/// update the values.
pub(crate) fn ours(case: &Case, way: &Way, effort: &Effort) -> Vec<Row> {
    let steps = case.steps.len().min(effort.steps);
    let mut rows: Vec<Row> =
        case.steps[..steps].iter().map(|step| Row::new(way, step.number, effort.gpus)).collect();
    let rtol = case.setting.rtol;
    let text = format!("{} {} rtol={rtol:e} max_iters={}", way.text, effort.device, effort.most);
    // The first run on a GPU compiles and loads kernels, which is a cost per machine, not per matrix.
    let warm = usize::from(effort.warm);
    for round in 0..warm + effort.runs {
        let done = run(case, (&text, effort.launch), &mut rows, round >= warm);
        if let Err(e) = done {
            rows.iter_mut().for_each(|row| row.failure = Some(format!("{}: {e}", way.name)));
            break;
        }
        // A variant that does not converge needs no second run.
        let lost = |row: &Row| !row.runs.is_empty() && row.runs.iter().all(|run| !run.converged);
        if !effort.count_failures && rows.iter().any(lost) {
            break;
        }
    }
    for row in &mut rows {
        if row.failure.is_none() && row.runs.iter().all(|run| !run.converged) {
            let iterations = row.runs.first().map_or(0, |run| run.iterations);
            row.failure = Some(format!(
                "{}: not converged to {rtol:.0e} within {iterations} iterations; ‖b − A x‖/‖b‖ is {:.1e}",
                way.name,
                row.residual()
            ));
        }
    }
    rows
}

fn run(case: &Case, (text, launch): (&str, &Launch), rows: &mut [Row], counts: bool) -> Result<()> {
    let (options, first): (Options, _) = (text.parse()?, &case.steps[0]);
    let share = launch.share(&Terms::bsr(&first.jacobian), case.coordinates.as_deref(), None, &options)?;
    let mut problem = match &share {
        Some(share) => share.problem()?,
        None => Problem::bsr(&first.jacobian)?,
    };
    if let Some(points) = &case.coordinates {
        problem = problem.with_coordinates(&points[..])?;
    }
    let mut solver = Solver::new(problem, &options)?;
    let own = |b: &[f64]| share.as_ref().map_or_else(|| b.to_vec(), |share| share.own(b));
    let mut x = own(&first.rhs);
    for (at, (step, row)) in case.steps.iter().zip(rows.iter_mut()).enumerate() {
        if at > 0 && share.is_some() {
            return Err(Error::Unsupported("ranks that are processes solve only the first system".into()));
        }
        if at > 0 {
            solver.update_values(step.jacobian.values())?;
        }
        let rhs = own(&step.rhs);
        x.fill(0.0);
        let mut solution = solver.solve(&rhs, &mut x)?;
        let parts = solution.setup_parts;
        if at == 0 {
            x.fill(0.0);
            solution = solver.solve(&rhs, &mut x)?;
        }
        if !counts {
            return Ok(());
        }
        let factor = launch.slowest(parts.of(SetupPart::Factors))?;
        let (converged, iterations) = (solution.converged(), solution.history.iterations);
        let solve = launch.slowest(solution.solve_seconds)?;
        let all =
            launch.slowest(parts.total() - parts.of(SetupPart::Compile) - parts.of(SetupPart::Device))?;
        for event in &solution.events {
            row.note(&event.detail);
        }
        // If the variant leaves the choice of algorithm open, report the name of the chosen one.
        if row.way.kind == Kind::Other {
            row.note(&format!("{} with {}", solution.method.title(), solution.precond.text));
        }
        let whole = share.as_ref().map(|share| share.whole(&x)).transpose()?;
        let residual = step.residual(whole.as_deref().unwrap_or(&x));
        row.runs.push(Run {
            setup: all - factor,
            factor,
            solve,
            iterations,
            converged: converged && residual <= 1.01 * case.setting.rtol,
            residual,
        });
    }
    Ok(())
}

/// Measures RAS on one core. A whole solve takes minutes, so one cycle is timed, and scaled to the iterations
/// of exact RAS on other devices.
pub(crate) fn one_core(case: &Case, exact: &[usize], steps: usize) -> Vec<Row> {
    let way = Way::one_core(case.setting);
    let (restart, rtol) = (case.setting.restart, case.setting.rtol);
    let text = format!("{} device=cpu threads=1 rtol={rtol:e} max_iters={restart}", way.text);
    let steps = case.steps.len().min(steps);
    let mut rows: Vec<Row> = case.steps[..steps].iter().map(|step| Row::new(&way, step.number, 0)).collect();
    if let Err(e) = run(case, (&text, &Launch::default()), &mut rows, true) {
        rows.iter_mut().for_each(|row| row.failure = Some(format!("{}: {e}", way.name)));
        return rows;
    }
    for (row, &iterations) in rows.iter_mut().zip(exact) {
        for run in row.runs.iter_mut().filter(|run| !run.converged) {
            run.solve *= iterations as f64 / run.iterations.max(1) as f64;
            // From here on the run represents a whole solve.
            (run.iterations, run.converged, run.residual) = (iterations, true, f64::NAN);
        }
        let note = format!("T_g of {restart} iterations, as many times as exact RAS takes");
        row.note(&note);
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn means_have_their_spread() {
        let mean = Mean::of([1.0, 2.0, 3.0].into_iter());
        assert_eq!((mean.mean, mean.deviation, mean.min, mean.max), (2.0, 1.0, 1.0, 3.0));
        assert_eq!(mean.text(1e3, 0), "2000 (1000–3000)");
        assert_eq!(Mean::of([5.0].into_iter()).text(1.0, 1), "5.0");
        assert_eq!(Mean::of(std::iter::empty()).text(1.0, 1), "–");
    }
}
