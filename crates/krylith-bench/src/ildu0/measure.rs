//! Checks and times everything that runs on one case.

use super::cut::Cut;
use super::reference::Factors;
use super::system::SubdomainSystem;
use super::{Application, Case, Ground, Of, Setup, Solver, Solves, levels};
use crate::publish::Check;
use crate::samples::{Samples, in_turn_of};
use crate::systems::{Random, relative_residual};
use krylith_core::{Error, Result};

#[derive(Debug, Clone, Copy)]
pub(super) struct Plan {
    pub repetitions: usize,
    pub solves: usize,
    pub iterations: usize,
}

pub(super) struct Row {
    pub name: String,
    pub notes: String,
    pub of: Of,
    pub solves: Solves,
    pub ours: bool,
    pub bytes: u64,
    /// Repeated runs on the same buffers.
    pub alone: Samples,
    /// Runs after other data passed through the caches.
    pub cold: Samples,
    /// Largest relative difference from the reference, or the reason of a failure.
    pub check: Check,
}

pub(super) struct Solve {
    pub name: String,
    pub ours: bool,
    pub setup: f64,
    pub samples: Samples,
    /// Fewest and most iterations of all runs: atomics add in a different order each time.
    pub iterations: [usize; 2],
    pub residuals: Vec<f64>,
    /// ‖b − A x‖/‖b‖ at the end, recomputed on the host, or the reason of a failure.
    pub check: Check,
}

pub(super) struct Found {
    pub name: String,
    pub spec: String,
    pub rtol: f64,
    pub cut: Cut,
    pub block: usize,
    pub block_rows: usize,
    pub blocks: usize,
    pub dropped: usize,
    pub subdomains: usize,
    /// Block rows of the largest subdomain.
    pub largest: usize,
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
    let alone = in_turn_of(&right, 3, plan.repetitions, |i| {
        let application = &mut all.applications[i].vectors;
        application.run(0)?;
        p.time(&mut || application.run(0))
    })?;
    let cold = in_turn_of(&right, 1, plan.repetitions, |i| {
        p.evict()?;
        p.time(&mut || all.applications[i].vectors.run(0))
    })?;
    for ((i, alone), (_, cold)) in alone.into_iter().zip(cold) {
        (rows[i].alone, rows[i].cold) = (alone, cold);
    }

    progress(&format!("{}: BiCGSTAB to {:e}", case.name, case.rtol));
    let solves = solves(p, case, plan, &mut all.solvers)?;
    let depth = |t| levels::levels(&case.decomposed, t).into_iter().max().map_or(0, |l| l as usize + 1);
    Ok(Found {
        name: case.name.clone(),
        spec: case.spec.clone(),
        rtol: case.rtol,
        cut: case.cut,
        block: case.a.block(),
        block_rows: case.a.block_rows(),
        blocks: case.a.blocks(),
        dropped: case.decomposed.dropped,
        subdomains: case.decomposed.count(),
        largest: case.decomposed.largest(),
        levels: [levels::Triangle::Lower, levels::Triangle::Upper].map(depth),
        rows,
        solves,
        setups: of_host(case).into_iter().chain(all.setups).collect(),
        failures: all.failures,
    })
}

/// Returns the seconds of the steps on the host.
fn of_host(case: &Case) -> [Setup; 4] {
    let ([made, factors], [labelled, dropped]) = (case.others, case.partition);
    let step = |name: &str, seconds| Setup { name: format!("{name}, host"), samples: Samples(vec![seconds]) };
    [
        step("the matrix, generated or read", made),
        step("partition", labelled),
        step("reordering and dropping (Alg. 3.2)", dropped),
        step("the reference factors", factors),
    ]
}

/// Returns the expected result of an application, in the order of the given matrix.
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

/// Reference results computed so far, each with its order of elimination if that is not the case's.
struct Known<'a> {
    case: &'a Case,
    x: &'a [f64],
    whole: Option<Factors>,
    answers: Vec<(Of, Solves, Vec<u32>, Vec<f64>)>,
}

impl Known<'_> {
    /// Returns the reference result, in the order of the case's systems.
    fn answer(&mut self, of: Of, solves: Solves, order: Option<&(Vec<u32>, Vec<usize>)>) -> Result<&[f64]> {
        let rows = order.map_or(&[][..], |order| &order.0);
        let at = match self.answers.iter().position(|k| (k.0, k.1) == (of, solves) && k.2 == rows) {
            Some(at) => at,
            None => {
                let case = self.case;
                let system = if of == Of::Whole { &case.whole } else { &case.decomposed };
                let answer = match order {
                    Some((rows, ptr)) => {
                        let system = system.regrouped(&case.a, rows, ptr)?;
                        expected(&system, &Factors::new(&system)?, self.x, solves)
                    }
                    None => {
                        if of == Of::Whole && self.whole.is_none() {
                            self.whole = Some(Factors::new(system)?);
                        }
                        let factors =
                            self.whole.as_ref().filter(|_| of == Of::Whole).unwrap_or(&case.factors);
                        expected(system, factors, self.x, solves)
                    }
                };
                self.answers.push((of, solves, rows.to_vec(), answer));
                self.answers.len() - 1
            }
        };
        Ok(&self.answers[at].3)
    }
}

fn check(case: &Case, x: &[f64], applications: &mut [Application]) -> Result<Vec<Row>> {
    let mut known = Known { case, x, whole: None, answers: Vec::new() };
    let mut rows = Vec::new();
    for application in applications {
        let (of, solves, mut notes) = (application.of, application.solves, application.notes.clone());
        let order = application.order.take();
        let found = known.answer(of, solves, order.as_ref()).and_then(|answer| one(application, x, answer));
        // These factors differ from the baselines' and are equally good, but the report must say so.
        if order.is_some() && found.is_ok() {
            let natural = difference(&application.vectors.read(0)?, known.answer(of, solves, None)?);
            if natural > application.tolerance {
                notes = format!("{notes}eliminated in an order of its own");
            }
        }
        rows.push(Row {
            name: application.name.clone(),
            notes,
            of,
            solves,
            ours: application.ours,
            bytes: application.bytes,
            alone: Samples::default(),
            cold: Samples::default(),
            check: found.map_err(|e| e.to_string()),
        });
    }
    Ok(rows)
}

/// Checks twice with a poisoned result, to detect state that a first run leaves.
fn one(application: &mut Application, x: &[f64], answer: &[f64]) -> Result<f64> {
    let (Application { name, tolerance, vectors, .. }, mut worst) = (application, 0.0f64);
    vectors.write(x)?;
    for _ in 0..2 {
        vectors.poison(0)?;
        vectors.run(0)?;
        worst = worst.max(difference(&vectors.read(0)?, answer));
    }
    if worst <= *tolerance {
        return Ok(worst);
    }
    Err(Error::invalid(format!("{name}: differs from the reference by {worst:e}, more than {tolerance:e}")))
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
        let (residuals, check) = match solver.solve(case.rtol, plan.iterations) {
            Ok(residuals) => {
                let end = relative_residual(&case.a, &case.rhs, &solver.solution()?);
                let last = residuals.last().copied().unwrap_or(f64::NAN);
                // The recurrence of BiCGSTAB may drift slightly from the true residual, but no more.
                let check = if last <= case.rtol && end <= 2.0 * case.rtol {
                    Ok(end)
                } else {
                    Err(format!(
                        "{name}: after {} iterations the recurrence gives a residual of {last:e}; \
                         the true residual is {end:e}",
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
    let samples = in_turn_of(&right, 0, plan.solves, |i| {
        let (solver, row) = (&mut solvers[i], &mut rows[i]);
        let mut count = 0;
        let seconds = p.time(&mut || {
            count = solver.solve(case.rtol, plan.iterations)?.len().saturating_sub(1);
            Ok(())
        })?;
        row.iterations = [row.iterations[0].min(count), row.iterations[1].max(count)];
        Ok(seconds)
    })?;
    samples.into_iter().for_each(|(i, samples)| rows[i].samples = samples);
    Ok(rows)
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
}
