//! Continuation: solves a hard system through a sequence of easier ones.

use super::{Newton, NewtonObserver, NewtonOutcome, NewtonReport, NonlinearSystem};
use crate::Result;
use crate::comm::agree;

/// Largest number of values that are inserted before one of the caller's values, to reach it.
const MOST_BETWEEN: usize = 8;

/// Result of Newton's method for one value of the parameter.
///
/// # Examples
/// [`Newton::continuation`] has a complete example.
/// ```
/// use krylith::newton::{Continuation, Stage};
/// /// Log lines for a cavity at growing Reynolds numbers.
/// fn tell(done: &Continuation) -> Vec<String> {
///     let line = |s: &Stage| {
///         format!("Re {}: {} in {} steps", s.value, s.report.outcome, s.report.steps.len())
///     };
///     done.stages.iter().map(line).collect()
/// }
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct Stage {
    /// The value of the parameter.
    pub value: f64,
    /// The report of Newton's method for this value.
    pub report: NewtonReport,
}

/// The result of a continuation.
///
/// # Examples
/// [`Newton::continuation`] returns one.
/// ```
/// use krylith::newton::{Continuation, NewtonOutcome};
/// fn reached(done: &Continuation, wanted: f64) -> Result<(), String> {
///     match (done.outcome, done.reached) {
///         (NewtonOutcome::Converged, _) => Ok(()),
///         (why, Some(value)) => Err(format!("{why} between {value} and {wanted}; x belongs to {value}")),
///         (why, None) => Err(format!("{why} at the first value")),
///     }
/// }
/// let done = Continuation { outcome: NewtonOutcome::MaxSteps, reached: Some(400.0), stages: Vec::new() };
/// assert_eq!(reached(&done, 1000.0).unwrap_err(), "max-steps between 400 and 1000; x belongs to 400");
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct Continuation {
    /// Outcome of the last stage. It is `Converged` if the last of the caller's values was reached.
    pub outcome: NewtonOutcome,
    /// The last value for which the solve converged. The returned x belongs to it.
    pub reached: Option<f64>,
    /// All values that were tried, in order.
    pub stages: Vec<Stage>,
}

impl Newton {
    /// Solves for each of `values` of a parameter in turn, starting from the x of the previous value. If
    /// Newton's method fails, it tries a value between the last value that it solved and this value first.
    /// That is their geometric mean, or the arithmetic mean if the sign changes. `set` sets the parameter of
    /// the system.
    ///
    /// # Errors
    /// As [`solve`](Self::solve); errors of `set`.
    ///
    /// ```
    /// # use krylith::{matrix::Bsr, newton::{Newton, NewtonOptions, NonlinearSystem}};
    /// /// x³ = p.
    /// struct Cube(f64, Bsr);
    /// impl NonlinearSystem for Cube {
    ///     fn pattern(&self) -> &Bsr { &self.1 }
    ///     fn residual(&mut self, x: &[f64], f: &mut [f64]) -> krylith::Result<()> {
    ///         Ok(f[0] = x[0].powi(3) - self.0)
    ///     }
    ///     fn jacobian(&mut self, x: &[f64], values: &mut [f64]) -> krylith::Result<()> {
    ///         Ok(values[0] = 3.0 * x[0] * x[0])
    ///     }
    /// }
    /// let mut cube = Cube(1.0, Bsr::new(1, 1, 1, vec![0, 1], vec![0], vec![0.0])?);
    /// let mut newton = Newton::new(NewtonOptions::default(), &"device=cpu".parse()?)?;
    /// let mut x = [1.5];
    /// let set = &mut |cube: &mut Cube, p: f64| Ok(cube.0 = p);
    /// let done = newton.continuation(&mut cube, &[1.0, 8.0, 27.0], &mut x, set, &mut ())?;
    /// assert_eq!((done.reached, done.stages.len()), (Some(27.0), 3));
    /// assert!((x[0] - 3.0).abs() < 1e-6);
    /// # Ok::<(), krylith::Error>(())
    /// ```
    pub fn continuation<T: NonlinearSystem + ?Sized>(
        &mut self,
        system: &mut T,
        values: &[f64],
        x: &mut [f64],
        set: &mut dyn FnMut(&mut T, f64) -> Result<()>,
        observer: &mut (dyn NewtonObserver + Send),
    ) -> Result<Continuation> {
        let mut done = Continuation { outcome: NewtonOutcome::Converged, reached: None, stages: Vec::new() };
        let mut solved = x.to_vec();
        self.comm = system.problem()?.comm().clone();
        for &goal in values {
            let mut ahead = vec![goal];
            while let Some(&value) = ahead.last() {
                agree(&*self.comm, set(system, value))?;
                observer.parameter(value);
                let report = self.solve_observed(system, &mut *x, observer)?.clone();
                done.outcome = report.outcome;
                done.stages.push(Stage { value, report });
                if done.outcome == NewtonOutcome::Converged {
                    done.reached = Some(value);
                    solved.copy_from_slice(x);
                    ahead.pop();
                    continue;
                }
                let between =
                    done.reached.map(|from| between(from, value)).filter(|_| ahead.len() <= MOST_BETWEEN);
                match between {
                    Some(next) if done.outcome != NewtonOutcome::Interrupted => ahead.push(next),
                    _ => {
                        if done.reached.is_some() {
                            x.copy_from_slice(&solved);
                        }
                        return Ok(done);
                    }
                }
                x.copy_from_slice(&solved);
            }
        }
        Ok(done)
    }
}

/// Returns the value between two values that continuation tries.
fn between(a: f64, b: f64) -> f64 {
    if a * b > 0.0 { a.signum() * (a * b).sqrt() } else { 0.5 * (a + b) }
}
