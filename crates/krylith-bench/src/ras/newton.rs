//! The linear systems of the first Newton steps, generated once and given to every algorithm.

use krylith_core::matrix::Bsr;
use krylith_core::newton::{Forcing, Newton, NewtonObserver, NewtonOptions, NewtonOutcome, NonlinearSystem};
use krylith_core::{Error, Options, Result};
use std::ops::{ControlFlow, Range};
use std::time::Instant;

/// The linear system of one Newton step: J(x) s = −F(x).
pub(crate) struct Step {
    /// Number of the step, from 1; NT in the paper that `ras/mod.rs` names.
    pub number: usize,
    pub jacobian: Bsr,
    pub rhs: Vec<f64>,
    /// Seconds to evaluate F and J on the host.
    pub assembly: f64,
}

impl Step {
    /// Returns ‖b − J s‖/‖b‖ by a plain loop on all cores.
    pub fn residual(&self, s: &[f64]) -> f64 {
        crate::systems::relative_residual(&self.jacobian, &self.rhs, s)
    }
}

/// Options of the Newton steps.
pub(crate) struct Taking<'a> {
    /// Options of the linear solves between steps, with a tight tolerance.
    pub linear: &'a str,
    /// Newton steps (numbered from 1) whose systems are kept.
    pub keep: Range<usize>,
    /// Newton's method ends when ‖F‖ is below this share of the first one.
    pub end: f64,
}

/// Limit on the Newton steps of one time step.
const MOST: usize = 30;

/// A nonlinear system that keeps the linear systems of some steps.
struct Keeping<'a> {
    system: &'a mut dyn NonlinearSystem,
    keep: Range<usize>,
    kept: Vec<Step>,
    progress: &'a mut dyn FnMut(&str),
    number: usize,
    /// The last F, and the seconds of its evaluation.
    f: (Vec<f64>, f64),
}

impl NonlinearSystem for Keeping<'_> {
    fn pattern(&self) -> &Bsr {
        self.system.pattern()
    }
    fn residual(&mut self, x: &[f64], f: &mut [f64]) -> Result<()> {
        let begin = Instant::now();
        self.system.residual(x, f)?;
        self.f = (f.to_vec(), begin.elapsed().as_secs_f64());
        Ok(())
    }
    fn jacobian(&mut self, x: &[f64], values: &mut [f64]) -> Result<()> {
        let begin = Instant::now();
        self.system.jacobian(x, values)?;
        let assembly = self.f.1 + begin.elapsed().as_secs_f64();
        self.number += 1;
        (self.progress)(&format!("Newton step {}: ‖F‖ = {:.3e}", self.number, norm(&self.f.0)));
        if self.keep.contains(&self.number) {
            let mut jacobian = self.pattern().clone();
            jacobian.values_mut().copy_from_slice(values);
            let rhs = self.f.0.iter().map(|f| -f).collect();
            self.kept.push(Step { number: self.number, jacobian, rhs, assembly });
        }
        Ok(())
    }
    fn coordinates(&self) -> Option<&[[f64; 3]]> {
        self.system.coordinates()
    }
}

/// Ends Newton's method after a number of steps.
struct After(usize);

impl NewtonObserver for After {
    fn residual(&mut self, steps: usize, _: f64, _: f64) -> ControlFlow<()> {
        if steps == self.0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }
}

/// Makes steps of Newton's method from x, and writes the last iterate to x. The last kept system is not
/// solved.
///
/// # Errors
/// Returns an error if the system cannot be evaluated, or if the solution of a linear system does not reduce
/// ‖F‖.
pub(crate) fn steps(
    system: &mut dyn NonlinearSystem,
    x: &mut [f64],
    how: &Taking,
    progress: &mut dyn FnMut(&str),
) -> Result<Vec<Step>> {
    let keep = how.keep.clone();
    // Take only the steps before the last kept system; if none is kept, as many as convergence needs.
    let taken = if keep.is_empty() { usize::MAX } else { keep.end - 2 };
    let mut keeping = Keeping { system, keep, kept: Vec::new(), progress, number: 0, f: Default::default() };
    let linear: Options = how.linear.parse()?;
    let forcing = Forcing::Constant(linear.stop().rtol);
    let options = NewtonOptions { rtol: how.end, max_steps: MOST, forcing, ..NewtonOptions::default() };
    let mut newton = Newton::new(options, &linear)?;
    match newton.solve_observed(&mut keeping, &mut *x, &mut After(taken))?.outcome {
        NewtonOutcome::Converged | NewtonOutcome::MaxSteps => {}
        NewtonOutcome::Interrupted => {
            let mut values = vec![0.0; keeping.pattern().stored()];
            keeping.jacobian(x, &mut values)?;
        }
        outcome => {
            let step = keeping.number;
            return Err(Error::invalid(format!("Newton's method ended at step {step}: {}", outcome.name())));
        }
    }
    Ok(keeping.kept)
}

fn norm(f: &[f64]) -> f64 {
    crate::systems::dot(f, f).sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;
    use krylith_core::Solver;

    #[test]
    fn steps_of_the_cavity_are_linear_systems_whose_solutions_lead_on() {
        let mut cavity = krylith_problems::nonlinear::by_text("cavity:12x12,re=50").unwrap();
        let mut x = cavity.initial();
        let how = Taking { linear: "device=cpu threads=1 rtol=1e-10", keep: 2..4, end: 1e-11 };
        let mut heard = 0;
        let kept = steps(&mut *cavity, &mut x, &how, &mut |_| heard += 1).unwrap();
        assert_eq!(kept.iter().map(|step| step.number).collect::<Vec<_>>(), [2, 3]);
        assert_eq!(heard, 3);
        let size = |step: &Step| norm(&step.rhs);
        assert!(size(&kept[1]) < 0.2 * size(&kept[0]), "{} after {}", size(&kept[1]), size(&kept[0]));
        let none = vec![0.0; x.len()];
        assert!((kept[0].residual(&none) - 1.0).abs() < 1e-14);
        let mut s = none;
        let options = "device=cpu threads=1 precond=ildu rtol=1e-9".parse().unwrap();
        Solver::new(&kept[0].jacobian, &options).unwrap().solve(&kept[0].rhs, &mut s).unwrap();
        assert!(kept[0].residual(&s) < 2e-9);
    }
}
