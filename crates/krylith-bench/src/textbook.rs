//! Restarted GMRES as a user of vendor libraries writes it: the host holds the Hessenberg matrix and controls
//! the iteration. The interface for solving and timing is shared with Krylith's GMRES.

use krylith_core::comm::Communicator;
use krylith_core::method::{Gmres, GmresOptions};
use krylith_core::operator::{PointBlock, PointBlockSum, Terms};
use krylith_core::space::Phases;
use krylith_core::{Precision, Result, Stop};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

/// Part of an iteration's time, as in Table 3 of the OKP paper.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part {
    /// T_dt: transfer between host and device, buffering and reordering.
    #[cfg_attr(not(feature = "cuda"), allow(dead_code))]
    Transfer,
    /// T_Kx: the product without its communication.
    Product,
    /// T_c: communication of the product.
    Communication,
    /// T_Gn: orthogonalisation and normalisation, with their sums over ranks.
    Orthogonalization,
    /// The rest of T_all.
    Other,
}

/// Seconds per [`Part`], in the order of [`Times::NAMES`].
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(crate) struct Times(pub [f64; 5]);

#[cfg_attr(not(feature = "cuda"), allow(dead_code))]
impl Times {
    pub const NAMES: [&str; 5] = ["T_dt", "T_Kx", "T_c", "T_Gn", "other"];

    pub fn add(&mut self, part: Part, seconds: f64) {
        self.0[part as usize] += seconds;
    }
    /// Returns the larger of each part: the paper takes the maximum over processes of every operation.
    pub fn max(self, other: Self) -> Self {
        Self(std::array::from_fn(|i| self.0[i].max(other.0[i])))
    }
    pub fn mean(runs: &[Self]) -> Self {
        Self(std::array::from_fn(|i| runs.iter().map(|r| r.0[i]).sum::<f64>() / runs.len().max(1) as f64))
    }
    fn of(phases: Phases) -> Self {
        Self([0.0, phases.product, phases.communication, phases.orthogonalization, phases.other])
    }
}

#[derive(Debug, Clone, Default)]
pub(crate) struct Solve {
    /// Seconds of the slowest rank.
    pub seconds: f64,
    /// ‖r‖/‖b‖ before the first iteration and after each.
    pub residuals: Vec<f64>,
    /// Seconds of each part on the slowest rank; zeros unless the solve was timed.
    pub times: Times,
    /// Outcome of Krylith's solve.
    pub outcome: &'static str,
}

/// A solver that is set up on one device or several (Krylith's or a baseline's), or one rank's share of it.
pub(crate) trait Session {
    /// Runs a fixed number of iterations from x = 0. `timed` measures time by part, which prevents overlap of
    /// communication and work.
    fn solve(&mut self, timed: bool) -> Result<Solve>;
    /// Returns x of the last solve, in Krylith's order of unknowns.
    fn solution(&mut self) -> Result<Vec<f64>>;
}

/// Measures the seconds of some work, over all ranks if there are several.
pub(crate) type Timer<'a> = Box<dyn Fn(&mut dyn FnMut() -> Result<()>) -> Result<f64> + 'a>;

/// The operations that the host calls one after another; the machine owns A, b, x and the basis v.
pub(crate) trait Machine {
    fn name(&self) -> String;
    /// Sets x = 0.
    fn reset(&mut self) -> Result<()>;
    /// Computes v₀ = (b − A x)/β and returns β.
    fn start(&mut self) -> Result<f64>;
    /// Computes v_{j+1} = A v_j.
    fn product(&mut self, j: usize) -> Result<()>;
    /// Makes v_{j+1} orthonormal to v₀ … v_j; `h` receives column j of the Hessenberg matrix, j + 2 numbers.
    fn orthogonalize(&mut self, j: usize, h: &mut [f64]) -> Result<()>;
    /// Computes x += Σ y_i v_i.
    fn correct(&mut self, y: &[f64]) -> Result<()>;
    /// Attributes the following work to `part`, until the product marks its own parts.
    fn mark(&mut self, part: Part);
    /// Switches timing by part on or off.
    fn keep_time(&mut self, on: bool);
    /// Returns the seconds per part since timing was switched on.
    fn take_times(&mut self) -> Result<Times>;
    /// Returns x, in Krylith's order of unknowns.
    fn solution(&mut self) -> Result<Vec<f64>>;
}

/// Runs `iterations` of GMRES(restart) from x = 0, whatever the residual; returns ‖r‖ before the first and
/// after each.
///
/// At the end of a cycle the true residual replaces the estimate, as in Krylith's own histories.
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
            m.product(j)?;
            m.mark(Part::Orthogonalization);
            let column = &mut h[j * ld..(j + 1) * ld];
            m.orthogonalize(j, &mut column[..j + 2])?;
            m.mark(Part::Other);
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

/// [`gmres`] on a machine.
pub(crate) struct Textbook<'a> {
    pub machine: Box<dyn Machine + 'a>,
    pub restart: usize,
    pub iterations: usize,
    /// ‖b‖.
    pub norm: f64,
    pub time: Timer<'a>,
}

impl Session for Textbook<'_> {
    fn solve(&mut self, timed: bool) -> Result<Solve> {
        let Self { machine, restart, iterations, norm, time } = self;
        let mut residuals = Vec::new();
        machine.keep_time(timed);
        let seconds = time(&mut || {
            residuals = gmres(machine.as_mut(), *restart, *iterations)?;
            Ok(())
        })?;
        let times = if timed { machine.take_times()? } else { Times::default() };
        machine.keep_time(false);
        residuals.iter_mut().for_each(|r| *r /= *norm);
        Ok(Solve { seconds, residuals, times, ..Solve::default() })
    }
    fn solution(&mut self) -> Result<Vec<f64>> {
        self.machine.solution()
    }
}

/// Switches a space's timing.
type Switch<'a, S> = Box<dyn Fn(&S, bool) + 'a>;

/// Krylith's GMRES.
pub(crate) struct Ours<'a, S: PointBlockSum> {
    space: Rc<S>,
    operator: PointBlock<S>,
    gmres: Gmres<S>,
    b: S::Vector,
    x: S::Vector,
    zero: S::Vector,
    stop: Stop,
    time: Timer<'a>,
    keep_time: Switch<'a, S>,
}

impl<'a, S: PointBlockSum> Ours<'a, S> {
    /// Creates the solver; `dense` ignores structure inside the blocks.
    pub fn new(
        space: &Rc<S>,
        (terms, rhs): (&Terms, &[f64]),
        dense: bool,
        (options, max_iters): (GmresOptions, usize),
        time: Timer<'a>,
        keep_time: impl Fn(&S, bool) + 'a,
    ) -> Result<Self> {
        let mut b = space.vector()?;
        space.write(rhs, &mut b)?;
        Ok(Self {
            operator: PointBlock::new(space.as_ref(), terms, Precision::F64, dense)?,
            gmres: Gmres::new(space.as_ref(), options)?,
            x: space.vector()?,
            zero: space.vector()?,
            b,
            // The solve must not stop before the last iteration.
            stop: Stop { rtol: 0.0, atol: 0.0, max_iters, ..Stop::DEFAULT },
            space: space.clone(),
            time,
            keep_time: Box::new(keep_time),
        })
    }
}

impl<S: PointBlockSum + 'static> Ours<'static, S> {
    /// Creates the solver of one rank, whose clock begins when all ranks have arrived.
    pub fn on_rank(
        space: &Rc<S>,
        comm: &Arc<dyn Communicator>,
        system: (&Terms, &[f64]),
        dense: bool,
        options: (GmresOptions, usize),
        keep_time: impl Fn(&S, bool) + 'static,
    ) -> Result<Self> {
        let own = space.clone();
        let time = together(comm.clone(), move || own.wait());
        Self::new(space, system, dense, options, time, keep_time)
    }
}

/// Returns the seconds of work that all ranks begin together; otherwise waiting for others at the start would
/// count.
pub(crate) fn together(
    comm: Arc<dyn Communicator>,
    wait: impl Fn() -> Result<()> + 'static,
) -> Timer<'static> {
    Box::new(move |work| {
        wait()?;
        comm.sum(&mut [])?;
        let begin = Instant::now();
        work()?;
        wait()?;
        Ok(begin.elapsed().as_secs_f64())
    })
}

impl<S: PointBlockSum> Session for Ours<'_, S> {
    fn solve(&mut self, timed: bool) -> Result<Solve> {
        let Self { space, operator, gmres, b, x, zero, stop, time, keep_time } = self;
        let mut made = Solve::default();
        keep_time(space, timed);
        space.copy(zero, x)?;
        made.seconds = time(&mut || {
            let history = gmres.solve(space.as_ref(), operator, None, b, x, stop, &mut ())?;
            (made.residuals, made.outcome) = (history.residuals.clone(), history.outcome.name());
            Ok(())
        })?;
        made.times = space.take_phases().filter(|_| timed).map_or(Times::default(), Times::of);
        keep_time(space, false);
        Ok(made)
    }
    fn solution(&mut self) -> Result<Vec<f64>> {
        crate::platform::read(self.space.as_ref(), &self.x)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_maxima_over_ranks_and_means_over_runs() {
        let (mut a, mut b) = (Times::default(), Times::default());
        a.add(Part::Transfer, 1.0);
        a.add(Part::Transfer, 1.0);
        b.add(Part::Other, 4.0);
        assert_eq!(a.max(b), Times([2.0, 0.0, 0.0, 0.0, 4.0]));
        assert_eq!(Times::mean(&[a, b]), Times([1.0, 0.0, 0.0, 0.0, 2.0]));
    }
}
