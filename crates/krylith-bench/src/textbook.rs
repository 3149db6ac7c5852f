//! Restarted GMRES as a user of vendor libraries writes it: the host holds the Hessenberg matrix and steers.

use krylith::Result;
use krylith::space::{Phase, Phases};

/// What the host asks for, one call after another; it owns A, b, x and the basis v.
pub(crate) trait Machine {
    fn name(&self) -> String;
    /// x = 0.
    fn reset(&mut self) -> Result<()>;
    /// v₀ = (b − A x)/β; returns β.
    fn start(&mut self) -> Result<f64>;
    /// v_{j+1} = A v_j.
    fn product(&mut self, j: usize) -> Result<()>;
    /// Makes v_{j+1} orthonormal to v₀ … v_j; `h` receives column j of the Hessenberg matrix, j + 2 numbers.
    fn orthogonalize(&mut self, j: usize, h: &mut [f64]) -> Result<()>;
    /// x += Σ y_i v_i.
    fn correct(&mut self, y: &[f64]) -> Result<()>;
    /// What follows belongs to `phase`.
    fn mark(&mut self, phase: Phase);
    /// Keeps time by phase from now on, or not.
    fn keep_time(&mut self, on: bool);
    /// Seconds a phase.
    fn take_phases(&mut self) -> Phases;
    /// x, in Krylith's order of unknowns.
    fn solution(&mut self) -> Result<Vec<f64>>;
}

/// `iterations` of GMRES(restart) from x = 0, whatever the residual; ‖r‖ before the first and after each.
///
/// Where a cycle ends the true residual replaces the estimate, as in Krylith's own histories.
pub(crate) fn gmres(m: &mut dyn Machine, restart: usize, iterations: usize) -> Result<Vec<f64>> {
    let mut residuals = Vec::with_capacity(iterations + 1);
    let ld = restart + 1;
    let (mut h, mut cs, mut sn) = (vec![0.0; ld * restart], vec![0.0; restart], vec![0.0; restart]);
    let mut gamma = vec![0.0; ld];
    m.reset()?;
    let mut beta = m.start()?;
    residuals.push(beta);
    let mut done = 0;
    while done < iterations && beta > 0.0 {
        gamma.fill(0.0);
        gamma[0] = beta;
        let width = restart.min(iterations - done);
        for j in 0..width {
            m.mark(Phase::Product);
            m.product(j)?;
            m.mark(Phase::Orthogonalization);
            let column = &mut h[j * ld..(j + 1) * ld];
            m.orthogonalize(j, &mut column[..j + 2])?;
            m.mark(Phase::Other);
            for i in 0..j {
                let (a, b) = (column[i], column[i + 1]);
                (column[i], column[i + 1]) = (cs[i] * a + sn[i] * b, cs[i] * b - sn[i] * a);
            }
            let length = column[j].hypot(column[j + 1]);
            (cs[j], sn[j]) =
                if length > 0.0 { (column[j] / length, column[j + 1] / length) } else { (1.0, 0.0) };
            column[j] = length;
            (gamma[j], gamma[j + 1]) = (cs[j] * gamma[j], -sn[j] * gamma[j]);
            residuals.push(gamma[j + 1].abs());
        }
        let mut y = gamma[..width].to_vec();
        for i in (0..width).rev() {
            for j in i + 1..width {
                y[i] -= h[j * ld + i] * y[j];
            }
            y[i] /= h[i * ld + i];
        }
        m.correct(&y)?;
        done += width;
        beta = m.start()?;
        *residuals.last_mut().expect("the first residual was pushed") = beta;
    }
    Ok(residuals)
}
