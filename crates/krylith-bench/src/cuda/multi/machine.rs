//! GMRES of one rank: its share of the vectors, scalars on the host of every rank alike.

use super::super::machine::{How, Vectors};
use super::Product;
use super::rank::Rank;
use crate::multi::crew::Member;
use crate::multi::{Part, Solve};
use crate::textbook::{Machine, gmres};
use krylith::Result;
use krylith::comm::Communicator;
use krylith::space::{Phase, Phases};
use std::rc::Rc;
use std::time::Instant;

pub(super) struct RankMachine {
    rank: Rc<Rank>,
    product: Box<dyn Product>,
    restart: usize,
    iterations: usize,
    vectors: Vectors,
    /// The first event that could not be recorded; a mark has no other way to say so.
    unmarked: Result<()>,
}

impl RankMachine {
    pub fn new(
        rank: &Rc<Rank>,
        product: Box<dyn Product>,
        how: How,
        rhs: &[f64],
        stages: usize,
        restart: usize,
        iterations: usize,
    ) -> Result<Self> {
        let vectors = Vectors::new(&rank.vendor, how, rhs, stages, restart)?;
        Ok(Self { rank: rank.clone(), product, restart, iterations, vectors, unmarked: Ok(()) })
    }
}

impl Machine for RankMachine {
    fn name(&self) -> String {
        format!("rank {}", self.rank.comm.rank())
    }
    fn reset(&mut self) -> Result<()> {
        self.vectors.reset()
    }
    fn start(&mut self) -> Result<f64> {
        self.product.multiply(self.vectors.x(), self.vectors.column(0))?;
        self.rank.mark(Part::Other)?;
        self.vectors.start(&*self.rank)
    }
    fn product(&mut self, j: usize) -> Result<()> {
        self.product.multiply(self.vectors.column(j), self.vectors.column(j + 1))
    }
    fn orthogonalize(&mut self, j: usize, h: &mut [f64]) -> Result<()> {
        self.vectors.orthogonalize(&*self.rank, j, h)
    }
    fn correct(&mut self, y: &[f64]) -> Result<()> {
        self.vectors.correct(y)
    }
    fn mark(&mut self, phase: Phase) {
        let part = match phase {
            // The product marks its own parts.
            Phase::Product => return,
            Phase::Orthogonalization => Part::Orthogonalization,
            _ => Part::Other,
        };
        let done = self.rank.mark(part);
        if self.unmarked.is_ok() {
            self.unmarked = done;
        }
    }
    fn keep_time(&mut self, on: bool) {
        self.rank.keep_time(on);
    }
    fn take_phases(&mut self) -> Phases {
        Phases::default()
    }
    fn solution(&mut self) -> Result<Vec<f64>> {
        self.vectors.solution()
    }
}

impl Member for RankMachine {
    fn solve(&mut self, timed: bool) -> Result<Solve> {
        let rank = self.rank.clone();
        self.keep_time(timed);
        rank.vendor.device.wait()?;
        // All begin together: a rank that waits for another at the start would count that.
        rank.comm.sum(&mut [])?;
        let begin = Instant::now();
        let (restart, iterations) = (self.restart, self.iterations);
        let residuals = gmres(self, restart, iterations)?;
        rank.vendor.device.wait()?;
        let seconds = begin.elapsed().as_secs_f64();
        std::mem::replace(&mut self.unmarked, Ok(()))?;
        let times = if timed { rank.times()? } else { Default::default() };
        self.keep_time(false);
        Ok(Solve { seconds, residuals, times })
    }
    fn solution(&mut self) -> Result<Vec<f64>> {
        Machine::solution(self)
    }
}
