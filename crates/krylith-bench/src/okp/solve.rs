//! Time of an iteration of unpreconditioned GMRES(30), and where it goes.

use super::{Plan, RESTART};
use crate::platform::Platform;
use crate::samples::{Samples, in_turn};
use crate::systems::Case;
use crate::textbook;
use krylith::method::{Gmres, GmresOptions};
use krylith::operator::{LinearOperator, PointBlock, PointBlockSum, Terms};
use krylith::space::{Clock, Phases, Space};
use krylith::{Result, Stop, Store};

pub(super) struct Row {
    pub name: String,
    pub ours: bool,
    /// f64 everywhere: its residuals must agree with the others'.
    pub exact: bool,
    /// Seconds of whole solves, without instrumentation.
    pub samples: Samples,
    pub iterations: usize,
    /// How the fixed number of iterations ended, for ours.
    pub outcome: String,
    /// Seconds of each phase in a run of its own, instrumented; per solve.
    pub phases: Phases,
    /// ‖r‖/‖b‖.
    pub residuals: Vec<f64>,
    /// Largest difference of the residuals over the first cycle from the first baseline's.
    pub agreement: f64,
    /// ‖b − A x‖/‖b‖ at the end, by Krylith's product, or what went wrong.
    pub check: std::result::Result<f64, String>,
}

impl Row {
    /// Seconds an iteration.
    pub fn iteration(&self) -> f64 {
        self.samples.median() / self.iterations.max(1) as f64
    }
    /// Seconds of product, orthogonalisation and the rest.
    pub fn phases(&self) -> [f64; 3] {
        [self.phases.product, self.phases.orthogonalization, self.phases.other]
    }
}

struct Ours<S: PointBlockSum> {
    name: String,
    operator: PointBlock<S>,
    gmres: Gmres<S>,
    exact: bool,
}

pub(super) fn measure<P: Platform>(
    p: &P,
    case: &Case,
    plan: &Plan,
    progress: &mut dyn FnMut(&str),
) -> Result<Vec<Row>> {
    let k = &case.kronecker;
    let space = p.space(k.rows())?;
    let mut b = space.vector()?;
    space.write(&case.rhs, &mut b)?;
    let (zero, mut x, mut y) = (space.vector()?, space.vector()?, space.vector()?);
    let norm_b = case.rhs.iter().map(|v| v * v).sum::<f64>().sqrt();
    // Nothing stops before the last iteration.
    let stop = Stop { rtol: 0.0, atol: 0.0, max_iterations: plan.iterations };

    let mut machines = p.machines(k, &case.rhs, RESTART)?;
    let terms = Terms::kronecker(k);
    let mut ours = Vec::new();
    for (name, dense, basis) in [
        ("Krylith, dense blocks", true, Store::F64),
        ("Krylith, structured blocks", false, Store::F64),
        ("Krylith, structured blocks, f32 basis", false, Store::F32),
    ] {
        // Where structure is not used, a row that says so would be the dense one again.
        let (name, dense) = match (dense || p.structures(), basis) {
            (true, _) => (name, dense),
            (false, Store::F32) => ("Krylith, dense blocks, f32 basis", true),
            (false, Store::F64) => continue,
        };
        ours.push(Ours {
            name: name.into(),
            operator: PointBlock::new(&space, &terms, Store::F64, dense)?,
            gmres: Gmres::new(&space, GmresOptions { restart: RESTART, basis, ..GmresOptions::default() })?,
            exact: basis == Store::F64,
        });
    }
    let reference = PointBlock::new(&space, &terms, Store::F64, true)?;
    let mut true_residual = |solution: &[f64]| -> Result<f64> {
        space.write(solution, &mut x)?;
        reference.apply(&space, &x, &mut y)?;
        let mut host = vec![0.0; solution.len()];
        space.read(&y, &mut host)?;
        let sum: f64 = case.rhs.iter().zip(&host).map(|(b, y)| (b - y) * (b - y)).sum();
        Ok(sum.sqrt() / norm_b)
    };

    // One solve of each: curves, and whether the answers are right.
    let mut rows: Vec<Row> = Vec::new();
    for machine in &mut machines {
        let residuals = textbook::gmres(machine.as_mut(), RESTART, plan.iterations)?;
        let residuals: Vec<f64> = residuals.iter().map(|r| r / norm_b).collect();
        let end = true_residual(&machine.solution()?)?;
        rows.push(Row::new(machine.name(), false, true, residuals, String::new(), end));
    }
    let mut answer = space.vector()?;
    let mut host = vec![0.0; k.rows()];
    for one in &mut ours {
        space.copy(&zero, &mut answer)?;
        let history = one.gmres.solve(&space, &one.operator, None, &b, &mut answer, &stop, &mut ())?;
        let (residuals, outcome) = (history.residuals.clone(), history.outcome.name().to_string());
        space.read(&answer, &mut host)?;
        let end = true_residual(&host)?;
        rows.push(Row::new(one.name.clone(), true, one.exact, residuals, outcome, end));
    }
    let first = rows[0].residuals.clone();
    for row in &mut rows {
        let cycle = row.residuals.iter().zip(&first).take(RESTART + 1);
        row.agreement = cycle.map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
        if row.exact && !(row.agreement <= 1e-8) {
            row.check = Err(format!(
                "{}: residuals of the first cycle differ from {}'s by {:e}",
                row.name, "the first baseline", row.agreement
            ));
        }
    }

    progress("GMRES: time of whole solves, without instrumentation");
    let count = machines.len();
    let samples = in_turn(rows.len(), 2, plan.solves, |i| {
        if i < count {
            let machine = machines[i].as_mut();
            return p.time(&mut || textbook::gmres(machine, RESTART, plan.iterations).map(|_| ()));
        }
        let one = &mut ours[i - count];
        space.copy(&zero, &mut answer)?;
        p.time(&mut || {
            one.gmres.solve(&space, &one.operator, None, &b, &mut answer, &stop, &mut ()).map(|_| ())
        })
    })?;
    for (row, samples) in rows.iter_mut().zip(samples) {
        if row.check.is_ok() {
            row.samples = samples;
        }
    }

    progress("GMRES: phases, in a run of their own");
    for (i, row) in rows.iter_mut().enumerate() {
        // The first instrumented solve makes the events' memory; the second counts.
        for _ in 0..2 {
            if i < count {
                let machine = machines[i].as_mut();
                machine.keep_time(true);
                textbook::gmres(machine, RESTART, plan.iterations)?;
                row.phases = machine.take_phases();
                machine.keep_time(false);
            } else {
                let one = &mut ours[i - count];
                p.keep_time(&space, true);
                space.copy(&zero, &mut answer)?;
                one.gmres.solve(&space, &one.operator, None, &b, &mut answer, &stop, &mut ())?;
                row.phases = space.take_phases().unwrap_or_default();
                p.keep_time(&space, false);
            }
        }
    }
    Ok(rows)
}

impl Row {
    fn new(name: String, ours: bool, exact: bool, residuals: Vec<f64>, outcome: String, end: f64) -> Self {
        // Cycles end with the true residual, so the last of the history must be that of the answer.
        let last = residuals.last().copied().unwrap_or(f64::NAN);
        let check = if (end - last).abs() <= 1e-9 + 1e-6 * end {
            Ok(end)
        } else {
            Err(format!("{name}: the residual of the answer is {end:e}, its history ends at {last:e}"))
        };
        Self {
            name,
            ours,
            exact,
            samples: Samples::default(),
            iterations: residuals.len().saturating_sub(1),
            outcome,
            phases: Phases::default(),
            residuals,
            agreement: 0.0,
            check,
        }
    }
}
