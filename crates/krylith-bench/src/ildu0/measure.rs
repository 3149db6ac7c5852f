//! Checks and times everything that runs on one case.

use super::reference::Factors;
use super::system::SubdomainSystem;
use super::{Application, Case, Ground, Of, Setup, Solver, Solves, levels};
use crate::samples::{Samples, in_turn};
use crate::systems::Random;
use krylith::{Error, Result};

/// How much is measured.
#[derive(Debug, Clone, Copy)]
pub(super) struct Plan {
    pub repetitions: usize,
    pub solves: usize,
    pub iterations: usize,
    pub rtol: f64,
}

/// One application, checked and timed.
pub(super) struct Row {
    pub name: String,
    pub notes: String,
    pub of: Of,
    pub solves: Solves,
    pub ours: bool,
    pub bytes: u64,
    /// Again and again on the same buffers.
    pub alone: Samples,
    /// After other data went through the caches.
    pub cold: Samples,
    /// Largest relative difference from the reference, or what went wrong.
    pub check: std::result::Result<f64, String>,
}

/// One solver.
pub(super) struct Solve {
    pub name: String,
    pub ours: bool,
    pub setup: f64,
    pub samples: Samples,
    /// Fewest and most iterations of all runs: atomics add in another order each time.
    pub iterations: [usize; 2],
    pub residuals: Vec<f64>,
    /// ‖b − A x‖/‖b‖ at the end, recomputed on the host, or what went wrong.
    pub check: std::result::Result<f64, String>,
}

/// One case.
pub(super) struct Found {
    pub name: String,
    pub spec: String,
    pub grid: [usize; 3],
    pub size: [usize; 3],
    pub block: usize,
    pub block_rows: usize,
    pub blocks: usize,
    pub dropped: usize,
    pub subdomains: usize,
    pub levels: [usize; 2],
    pub rows: Vec<Row>,
    pub solves: Vec<Solve>,
    pub setups: Vec<Setup>,
    pub failures: Vec<String>,
}

pub(super) fn case<P: Ground>(
    p: &P,
    case: &Case,
    plan: &Plan,
    progress: &mut dyn FnMut(&str),
) -> Result<Found> {
    progress(&format!("{}: setting up", case.name));
    let mut all = p.baselines(case, progress)?;
    p.ours(case, &mut all)?;

    progress(&format!("{}: the reference, and every result against it", case.name));
    let x = Random(31).numbers(case.a.rows());
    let mut rows = check(case, &x, &mut all.applications)?;
    let right: Vec<usize> = (0..rows.len()).filter(|&i| rows[i].check.is_ok()).collect();

    progress(&format!("{}: applications", case.name));
    let alone = in_turn(right.len(), 3, plan.repetitions, |i| {
        let application = &mut all.applications[right[i]];
        application.apply()?;
        p.time(&mut || application.apply())
    })?;
    let cold = in_turn(right.len(), 1, plan.repetitions, |i| {
        p.evict()?;
        p.time(&mut || all.applications[right[i]].apply())
    })?;
    for ((&i, alone), cold) in right.iter().zip(alone).zip(cold) {
        (rows[i].alone, rows[i].cold) = (alone, cold);
    }

    progress(&format!("{}: BiCGSTAB to {:e}", case.name, plan.rtol));
    let solves = solves(p, case, plan, &mut all.solvers)?;
    let depth = |t| levels::levels(&case.decomposed, t).into_iter().max().map_or(0, |l| l as usize + 1);
    Ok(Found {
        name: case.name.clone(),
        spec: case.spec.clone(),
        grid: case.grid,
        size: case.size,
        block: case.a.block(),
        block_rows: case.a.block_rows(),
        blocks: case.a.blocks(),
        dropped: case.decomposed.dropped,
        subdomains: case.decomposed.count(),
        levels: [levels::Triangle::Lower, levels::Triangle::Upper].map(depth),
        rows,
        solves,
        setups: all.setups,
        failures: all.failures,
    })
}

/// What an application must answer, in the order of the given matrix.
fn expected(s: &SubdomainSystem, f: &Factors, x: &[f64], solves: Solves) -> Vec<f64> {
    let lower = f.lower(s, &s.sort(x));
    let y = match solves {
        Solves::LowerInBlocks => f.lower_in_blocks(s, &lower),
        Solves::LowerScaled => f.scale(s, &lower),
        Solves::All => f.upper(s, &f.scale(s, &lower)),
    };
    s.unsort(&y)
}

/// max |y − e| / max |e|; NaN counts as wrong.
fn difference(y: &[f64], expected: &[f64]) -> f64 {
    let size = expected.iter().fold(0.0f64, |m, e| m.max(e.abs()));
    let mut worst = 0.0f64;
    for (y, e) in y.iter().zip(expected) {
        let d = (y - e).abs();
        worst = if d.is_nan() { f64::INFINITY } else { worst.max(d) };
    }
    worst / size
}

/// Answers that are known by now.
struct Known<'a> {
    case: &'a Case,
    x: &'a [f64],
    whole: Option<Factors>,
    answers: Vec<((Of, Solves), Vec<f64>)>,
    ordered: Vec<Ordered>,
}

/// The answer after elimination in an order of its own.
struct Ordered {
    what: (Of, Solves),
    rows: Vec<u32>,
    answer: Vec<f64>,
}

impl Known<'_> {
    fn system(&self, of: Of) -> &SubdomainSystem {
        if of == Of::Whole { &self.case.whole } else { &self.case.decomposed }
    }

    /// In the order of the case's systems.
    fn answer(&mut self, of: Of, solves: Solves) -> Result<&[f64]> {
        if of == Of::Whole && self.whole.is_none() {
            self.whole = Some(Factors::new(&self.case.whole)?);
        }
        let at = match self.answers.iter().position(|k| k.0 == (of, solves)) {
            Some(at) => at,
            None => {
                let factors = self.whole.as_ref().filter(|_| of == Of::Whole).unwrap_or(&self.case.factors);
                let answer = expected(self.system(of), factors, self.x, solves);
                self.answers.push(((of, solves), answer));
                self.answers.len() - 1
            }
        };
        Ok(&self.answers[at].1)
    }

    /// After elimination in another order.
    fn ordered(&mut self, of: Of, solves: Solves, rows: &[u32], ptr: &[usize]) -> Result<&[f64]> {
        let at = match self.ordered.iter().position(|k| k.what == (of, solves) && k.rows == rows) {
            Some(at) => at,
            None => {
                let system = self.system(of).regrouped(&self.case.a, rows, ptr)?;
                let answer = expected(&system, &Factors::new(&system)?, self.x, solves);
                self.ordered.push(Ordered { what: (of, solves), rows: rows.to_vec(), answer });
                self.ordered.len() - 1
            }
        };
        Ok(&self.ordered[at].answer)
    }
}

fn check(case: &Case, x: &[f64], applications: &mut [Box<dyn Application + '_>]) -> Result<Vec<Row>> {
    let mut known = Known { case, x, whole: None, answers: Vec::new(), ordered: Vec::new() };
    let mut rows = Vec::new();
    for application in applications {
        let (of, solves, mut notes) = (application.of(), application.solves(), application.notes());
        let order = application.order().map(|(rows, ptr)| (rows.to_vec(), ptr.to_vec()));
        let found = match &order {
            Some((rows, ptr)) => {
                known.ordered(of, solves, rows, ptr).and_then(|answer| one(application.as_mut(), x, answer))
            }
            None => known.answer(of, solves).and_then(|answer| one(application.as_mut(), x, answer)),
        };
        // Other factors than the baselines', and no worse for it; but a reader must know.
        if order.is_some() && found.is_ok() {
            let natural = difference(&application.read()?, known.answer(of, solves)?);
            if natural > application.tolerance() {
                notes = format!("{notes}eliminated in an order of its own");
            }
        }
        rows.push(Row {
            name: application.name(),
            notes,
            of,
            solves,
            ours: application.ours(),
            bytes: application.bytes(),
            alone: Samples::default(),
            cold: Samples::default(),
            check: found.map_err(|e| e.to_string()),
        });
    }
    Ok(rows)
}

/// Twice over a poisoned result, for state that a first run leaves behind.
fn one(application: &mut dyn Application, x: &[f64], answer: &[f64]) -> Result<f64> {
    let mut worst = 0.0f64;
    application.write(x)?;
    for _ in 0..2 {
        application.poison()?;
        application.apply()?;
        worst = worst.max(difference(&application.read()?, answer));
    }
    if worst <= application.tolerance() {
        return Ok(worst);
    }
    Err(Error::invalid(format!(
        "{}: differs from the reference by {worst:e}, more than {:e}",
        application.name(),
        application.tolerance()
    )))
}

fn solves<P: Ground>(
    p: &P,
    case: &Case,
    plan: &Plan,
    solvers: &mut [Box<dyn Solver + '_>],
) -> Result<Vec<Solve>> {
    let mut rows = Vec::new();
    for solver in solvers.iter_mut() {
        let name = solver.name();
        let (residuals, check) = match solver.solve(plan.rtol, plan.iterations) {
            Ok(residuals) => {
                let end = true_residual(case, &solver.solution()?);
                let last = residuals.last().copied().unwrap_or(f64::NAN);
                // The recurrence of BiCGSTAB may drift a little from the true residual, and no more.
                let check = if last <= plan.rtol && end <= 2.0 * plan.rtol {
                    Ok(end)
                } else {
                    Err(format!(
                        "{name}: after {} iterations its residual is {last:e} and the true one {end:e}",
                        residuals.len().saturating_sub(1)
                    ))
                };
                (residuals, check)
            }
            Err(e) => (Vec::new(), Err(format!("{name}: {e}"))),
        };
        let iterations = residuals.len().saturating_sub(1);
        rows.push(Solve {
            name,
            ours: solver.ours(),
            setup: solver.setup(),
            samples: Samples::default(),
            iterations: [iterations; 2],
            residuals,
            check,
        });
    }
    let right: Vec<usize> = (0..rows.len()).filter(|&i| rows[i].check.is_ok()).collect();
    let samples = in_turn(right.len(), 0, plan.solves, |i| {
        let (solver, row) = (&mut solvers[right[i]], &mut rows[right[i]]);
        let mut count = 0;
        let seconds = p.time(&mut || {
            count = solver.solve(plan.rtol, plan.iterations)?.len().saturating_sub(1);
            Ok(())
        })?;
        row.iterations = [row.iterations[0].min(count), row.iterations[1].max(count)];
        Ok(seconds)
    })?;
    for (&i, samples) in right.iter().zip(samples) {
        rows[i].samples = samples;
    }
    Ok(rows)
}

/// ‖b − A x‖/‖b‖ by a plain loop.
fn true_residual(case: &Case, x: &[f64]) -> f64 {
    let (a, b) = (&case.a, case.a.block());
    let (mut sum, mut norm) = (0.0, 0.0);
    let mut r = vec![0.0; b];
    for i in 0..a.block_rows() {
        r.copy_from_slice(&case.rhs[i * b..][..b]);
        norm += r.iter().map(|r| r * r).sum::<f64>();
        for p in a.row_ptr()[i]..a.row_ptr()[i + 1] {
            let xj = &x[a.col()[p] as usize * b..][..b];
            for (at, v) in a.block_values(p).iter().enumerate() {
                r[at / b] -= v * xj[at % b];
            }
        }
        sum += r.iter().map(|r| r * r).sum::<f64>();
    }
    (sum / norm).sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_or_missing_number_is_seen() {
        assert_eq!(difference(&[1.0, 2.0], &[1.0, 2.0]), 0.0);
        assert_eq!(difference(&[1.0, 2.5], &[1.0, 2.0]), 0.25);
        assert!(!(difference(&[f64::NAN, 2.0], &[1.0, 2.0]) < 1.0));
        assert!(!(difference(&[2.0, f64::NAN, 3.0], &[2.0, 1.0, 3.0]) < 1.0));
    }

    #[test]
    fn the_true_residual_is_that_of_the_matrix() {
        let case = crate::ildu0::case([4, 3, 2], 2).unwrap();
        assert!((true_residual(&case, &vec![0.0; 48]) - 1.0).abs() < 1e-15);
        let mut x = vec![0.0; 48];
        x[5] = 1.0;
        let column: f64 = (0..48).map(|i| (case.rhs[i] - case.a.to_csr().get(i, 5)).powi(2)).sum();
        let norm: f64 = case.rhs.iter().map(|b| b * b).sum();
        assert!((true_residual(&case, &x) - (column / norm).sqrt()).abs() < 1e-14);
    }
}
