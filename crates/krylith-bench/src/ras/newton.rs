//! The linear systems of the first Newton steps, made once and given to every algorithm.

use krylith::matrix::Bsr;
use krylith::newton::NonlinearSystem;
use krylith::{Error, Problem, Result, Solver};
use std::ops::Range;
use std::time::Instant;

/// The linear system of one Newton step: J(x) s = −F(x).
pub(crate) struct Step {
    /// Counted from 1, as the paper's NT.
    pub number: usize,
    pub jacobian: Bsr,
    pub rhs: Vec<f64>,
    /// Seconds of evaluating F and J on the host.
    pub assembly: f64,
}

impl Step {
    /// ‖b − J s‖/‖b‖ by a plain loop on all cores.
    pub fn residual(&self, s: &[f64]) -> f64 {
        crate::systems::relative_residual(&self.jacobian, &self.rhs, s)
    }
}

/// How steps are taken.
pub(crate) struct Taking<'a> {
    /// Options of the linear solves that lead from one step to the next, with a tight tolerance.
    pub linear: &'a str,
    /// Newton steps (counted from 1) whose systems are kept.
    pub keep: Range<usize>,
    /// ‖F‖ below this share of the first one ends the iteration.
    pub end: f64,
}

/// Steps of Newton's method with backtracking from x, which becomes the last iterate. The system of the last step that is kept is
/// not solved.
///
/// # Errors
/// What the system cannot evaluate; a linear system whose solution does not bring ‖F‖ down.
pub(crate) fn steps(
    system: &mut dyn NonlinearSystem,
    x: &mut [f64],
    how: &Taking,
    progress: &mut dyn FnMut(&str),
) -> Result<Vec<Step>> {
    let (block, n) = (system.pattern().block(), system.pattern().block_rows());
    let (row_ptr, col) = (system.pattern().row_ptr().to_vec(), system.pattern().col().to_vec());
    let mut values = vec![0.0; system.pattern().values().len()];
    let coordinates = system.coordinates().map(<[_]>::to_vec);
    let mut f = vec![0.0; x.len()];
    let (mut kept, mut solver, mut first): (_, Option<Solver>, _) = (Vec::new(), None, None);
    for number in 1.. {
        let begin = Instant::now();
        system.residual(x, &mut f)?;
        system.jacobian(x, &mut values)?;
        let assembly = begin.elapsed().as_secs_f64();
        let size = norm(&f);
        progress(&format!("Newton step {number}: ‖F‖ = {size:.3e}"));
        if size <= how.end * *first.get_or_insert(size) || number >= how.keep.end.max(MOST) {
            break;
        }
        let rhs: Vec<f64> = f.iter().map(|f| -f).collect();
        if how.keep.contains(&number) {
            let jacobian = Bsr::new(block, n, n, row_ptr.clone(), col.clone(), values.clone())?;
            kept.push(Step { number, jacobian, rhs: rhs.clone(), assembly });
            if number + 1 == how.keep.end {
                break;
            }
        }
        match &mut solver {
            Some(solver) => solver.update_values(&values[..])?,
            None => {
                let a = Bsr::new(block, n, n, row_ptr.clone(), col.clone(), values.clone())?;
                let mut problem = Problem::bsr(&a)?.into_owned();
                if let Some(points) = &coordinates {
                    problem = problem.with_coordinates(points.clone())?;
                }
                solver = Some(Solver::new(problem, &how.linear.parse()?)?);
            }
        }
        let mut s = vec![0.0; x.len()];
        let Some(solver) = &mut solver else { break };
        solver.solve(&rhs, &mut s)?;
        let (mut length, mut tries) = (1.0, 0);
        let begin = x.to_vec();
        loop {
            x.iter_mut().zip(&begin).zip(&s).for_each(|((x, from), s)| *x = from + length * s);
            system.residual(x, &mut f)?;
            if norm(&f) <= (1.0 - 1e-4 * length) * size {
                break;
            }
            tries += 1;
            if tries > HALVINGS {
                return Err(Error::invalid(format!(
                    "Newton step {number}: ‖F‖ = {size:.3e} goes no further down along the solution of the linear system, whose residual is {:.1e}",
                    solver.solution().history.true_relative_residual
                )));
            }
            length *= 0.5;
        }
    }
    Ok(kept)
}

/// Newton steps of one time step, at most.
const MOST: usize = 30;
/// Halvings of a step.
const HALVINGS: usize = 12;

fn norm(f: &[f64]) -> f64 {
    f.iter().map(|f| f * f).sum::<f64>().sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;

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
