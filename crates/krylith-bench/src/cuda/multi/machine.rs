//! GMRES of one rank: its share of the vectors, scalars on the host of every rank alike.

use super::super::machine::{How, Sums, orthogonalize};
use super::Product;
use super::rank::Rank;
use crate::multi::crew::Member;
use crate::multi::{Part, Solve};
use crate::textbook::{Machine, gmres};
use krylith::Result;
use krylith::device::cuda::Buffer;
use krylith::io::{from_stage_by_stage, to_stage_by_stage};
use krylith::space::{Phase, Phases};
use std::rc::Rc;
use std::time::Instant;

/// One rank's solver.
pub(super) struct RankMachine {
    rank: Rc<Rank>,
    product: Box<dyn Product>,
    how: How,
    stages: usize,
    restart: usize,
    iterations: usize,
    n: usize,
    v: Buffer<f64>,
    b: Buffer<f64>,
    x: Buffer<f64>,
    scratch: Buffer<f64>,
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
        let (vendor, n) = (&rank.vendor, rhs.len());
        Ok(Self {
            rank: rank.clone(),
            product,
            how,
            stages,
            restart,
            iterations,
            n,
            v: vendor.zeros(n * (restart + 1))?,
            b: vendor.device.upload(&to_stage_by_stage(rhs, stages), "b")?,
            x: vendor.zeros(n)?,
            scratch: vendor.zeros(2 * (restart + 1))?,
            unmarked: Ok(()),
        })
    }
    fn column(&self, j: usize) -> u64 {
        self.v.at(j * self.n)
    }
}

impl Machine for RankMachine {
    fn name(&self) -> String {
        format!("rank {}", self.rank.meet.rank())
    }
    fn reset(&mut self) -> Result<()> {
        self.rank.vendor.fill(self.x.pointer(), self.n, 0)
    }
    fn start(&mut self) -> Result<f64> {
        let (n, v0, vendor) = (self.n, self.column(0), &self.rank.vendor);
        self.product.multiply(self.x.pointer(), v0)?;
        self.rank.mark(Part::Other)?;
        vendor.scale(n, -1.0, v0)?;
        vendor.axpy(n, 1.0, self.b.pointer(), v0)?;
        let beta = self.rank.norm(vendor, n, v0)?;
        vendor.scale(n, 1.0 / beta, v0)?;
        Ok(beta)
    }
    fn product(&mut self, j: usize) -> Result<()> {
        self.product.multiply(self.column(j), self.column(j + 1))
    }
    fn orthogonalize(&mut self, j: usize, h: &mut [f64]) -> Result<()> {
        let (v, w, scratch) = (self.v.pointer(), self.column(j + 1), self.scratch.pointer());
        orthogonalize(&self.rank.vendor, &*self.rank, self.how, self.n, j + 1, v, w, scratch, h)
    }
    fn correct(&mut self, y: &[f64]) -> Result<()> {
        let vendor = &self.rank.vendor;
        match self.how {
            How::Mgs => {
                (0..y.len()).try_for_each(|i| vendor.axpy(self.n, y[i], self.column(i), self.x.pointer()))
            }
            How::Cgs2 => {
                // The pageable source is read before the copy returns.
                vendor.device.write(y, &mut self.scratch, 0)?;
                let (v, c, x) = (self.v.pointer(), self.scratch.pointer(), self.x.pointer());
                vendor.gemv(false, (self.n, y.len()), 1.0, v, c, 1.0, x)
            }
        }
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
        let mut host = vec![0.0; self.n];
        self.rank.vendor.device.read(&self.x, 0, &mut host)?;
        Ok(from_stage_by_stage(&host, self.stages))
    }
}

impl Member for RankMachine {
    fn solve(&mut self, timed: bool) -> Result<Solve> {
        let rank = self.rank.clone();
        self.keep_time(timed);
        rank.vendor.device.wait()?;
        // All begin together: a rank that waits for another at the start would count that.
        rank.meet.sum(&mut [])?;
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
