//! Repeated updates of values with a solve, on one solver: neither time nor memory may grow.

use super::measure::How;
use super::ways;
use crate::answer::RTOL;
use crate::answer::system::System;
use crate::platform::Platform;
use crate::samples::Samples;
use krylith_core::matrix::Bsr;
use krylith_core::{Options, Problem, Result, Solver};
use serde_json::{Value, json};
use std::time::Instant;

/// Results of repeating one variant.
#[derive(Default)]
pub(super) struct Updates {
    pub name: String,
    pub spec: String,
    pub way: String,
    /// The reason if some or all times are missing.
    pub failure: Option<String>,
    /// Seconds of each `update_values` and of the set-up that it requires before the next solve.
    pub seconds: Vec<f64>,
    /// Seconds of each update with its solve.
    pub together: Vec<f64>,
    pub iterations: Vec<usize>,
    /// Bytes in use after each update: on the GPU, or of this process if the system reports it.
    pub memory: Vec<u64>,
    /// The largest ‖b − A x‖/‖b‖, computed on the host.
    pub residual: f64,
}

impl Updates {
    /// Returns the median seconds of the last tenth of the updates, divided by those of the first tenth.
    pub fn slower(&self) -> f64 {
        let n = self.together.len();
        let tenth = n.div_ceil(10);
        let median = |part: &[f64]| Samples(part.to_vec()).median();
        // The first one may still record or allocate.
        match n > 2 * tenth {
            true => median(&self.together[n - tenth..]) / median(&self.together[1..=tenth]),
            false => f64::NAN,
        }
    }

    /// Returns the bytes in use after the last update, divided by those after the first tenth.
    pub fn larger(&self) -> f64 {
        let n = self.memory.len();
        match self.memory.get(n.div_ceil(10)) {
            Some(&first) if first > 0 => self.memory[n - 1] as f64 / first as f64,
            _ => f64::NAN,
        }
    }

    pub fn json(&self) -> Value {
        json!({
            "name": self.name, "system": self.spec, "way": self.way, "failure": self.failure,
            "update_seconds": self.seconds, "update_and_solve_seconds": self.together,
            "iterations": self.iterations, "bytes": self.memory, "relative_residual": self.residual,
            "slower": self.slower(), "larger": self.larger(),
        })
    }
}

/// Alternates two sets of values of one pattern, `count` times.
///
/// # Errors
/// Returns an error if memory is not sufficient for the system. Failures of the variant are part of the
/// result.
pub(super) fn repeat<P: Platform>(system: &System, way: &str, how: &How<P>, count: usize) -> Result<Updates> {
    let mut made = Updates {
        name: system.name.clone(),
        spec: system.spec.clone(),
        way: way.into(),
        ..Updates::default()
    };
    if let Err(e) = run(system, how, count, &mut made) {
        made.failure = Some(e.to_string());
    }
    Ok(made)
}

fn run<P: Platform>(system: &System, how: &How<P>, count: usize, made: &mut Updates) -> Result<()> {
    let options: Options = format!("{} {}", how.base, ways::options(&made.way)).parse()?;
    let a = system.assembled()?;
    let n = a.block_rows() * a.block();
    let rhs = vec![1.0; n];
    // The same system, and one with a slightly larger diagonal: about as hard, with different numbers.
    let heavier = heavier(&a)?;
    let mut solver = Solver::new(system.describe(Problem::bsr(&a)?)?, &options)?;
    let mut x = vec![0.0; n];
    solver.solve(&rhs, &mut x)?;
    for other in [&heavier, &a].into_iter().cycle().take(count) {
        x.fill(0.0);
        let begin = Instant::now();
        solver.update_values(other.values())?;
        let updated = begin.elapsed().as_secs_f64();
        let solution = solver.solve(&rhs, &mut x)?;
        made.together.push(begin.elapsed().as_secs_f64());
        made.seconds.push(updated);
        made.iterations.push(solution.history.iterations);
        let converged = solution.converged();
        let residual = crate::systems::relative_residual(other, &rhs, &x);
        made.residual = made.residual.max(residual);
        if !(converged && residual <= 10.0 * RTOL) {
            made.failure = Some(format!("update {}: relative residual {residual:.1e}", made.together.len()));
            break;
        }
        made.memory.extend(how.platform.and_then(P::used));
    }
    Ok(())
}

/// Returns a matrix with a diagonal larger by a thousandth.
fn heavier(a: &Bsr) -> Result<Bsr> {
    let (b, n, mut values) = (a.block(), a.block_rows(), a.values().to_vec());
    for i in 0..n {
        for p in a.row_ptr()[i]..a.row_ptr()[i + 1] {
            if a.col()[p] as usize == i {
                (0..b).for_each(|c| values[p * b * b + c * (b + 1)] *= 1.001);
            }
        }
    }
    Bsr::new(b, n, n, a.row_ptr().to_vec(), a.col().to_vec(), values)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn growth_is_that_of_the_last_tenth() {
        let together = vec![9.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 3.0];
        let memory = vec![10, 100, 100, 100, 100, 100, 100, 100, 100, 150];
        let made = Updates { together, memory, ..Updates::default() };
        assert_eq!((made.slower(), made.larger()), (3.0, 1.5));
        assert!(Updates::default().slower().is_nan() && Updates::default().larger().is_nan());
    }
}
