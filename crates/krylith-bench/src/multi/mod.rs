//! GMRES on several GPUs of one process, a thread each: what the suite asks of a solver, and every part of the
//! baselines that needs no GPU.
//!
//! * [`share`]: block rows cut into slabs, main-diagonal and off-diagonal parts;
//! * [`mapping`]: parallel buffering and pre-mapping as the OKP paper has them (Alg. 5 and 6);
//! * [`crew`]: the threads of a team, and commands to all of them.

pub(crate) mod crew;
pub(crate) mod mapping;
pub(crate) mod share;

use krylith::Result;
use krylith::matrix::KroneckerSum;
use krylith::partition;
use std::sync::Arc;

pub(crate) struct Job<'a> {
    pub kronecker: &'a KroneckerSum,
    /// Right-hand side, in Krylith's order of unknowns.
    pub rhs: &'a [f64],
    /// GPUs by number; as many ranks.
    pub gpus: &'a [usize],
    /// The same system cut into slabs, one a GPU.
    pub parts: &'a Arc<Vec<partition::Part>>,
    /// GMRES(restart).
    pub restart: usize,
    /// Iterations of a solve, whatever the residual.
    pub iterations: usize,
}

/// A solver made ready on some GPUs: Krylith's, and each baseline's.
pub(crate) trait Session {
    /// One solve from x = 0; `timed` keeps time by part, which costs the overlap of communication and work.
    fn solve(&mut self, timed: bool) -> Result<Solve>;
    /// x of the last solve, in Krylith's order of unknowns.
    fn solution(&mut self) -> Result<Vec<f64>>;
}

#[derive(Debug, Clone, Default)]
pub(crate) struct Solve {
    /// Seconds, of the slowest rank.
    pub seconds: f64,
    /// ‖r‖ before the first iteration and after each.
    pub residuals: Vec<f64>,
    /// Seconds of each part, of the slowest rank; zeros unless the solve was timed.
    pub times: Times,
}

/// Where an iteration's time goes: Table 3 of the OKP paper.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part {
    /// T_dt: transfer between host and device, buffering and reordering.
    Transfer,
    /// T_Kx: the product without its communication.
    Product,
    /// T_c: communication of the product.
    Communication,
    /// T_Gn: orthogonalisation and normalisation, their sums over ranks included.
    Orthogonalization,
    /// The rest of T_all.
    Other,
}

/// Seconds a [`Part`], in the order of [`Times::NAMES`].
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(crate) struct Times(pub [f64; 5]);

impl Times {
    pub const NAMES: [&str; 5] = ["T_dt", "T_Kx", "T_c", "T_Gn", "other"];

    pub fn add(&mut self, part: Part, seconds: f64) {
        self.0[part as usize] += seconds;
    }
    /// The larger of each: the paper takes the maximum over processes of every operation.
    pub fn max(self, other: Self) -> Self {
        Self(std::array::from_fn(|i| self.0[i].max(other.0[i])))
    }
    pub fn mean(runs: &[Self]) -> Self {
        Self(std::array::from_fn(|i| runs.iter().map(|r| r.0[i]).sum::<f64>() / runs.len().max(1) as f64))
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
