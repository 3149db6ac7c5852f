//! Krylith's own GMRES on the same GPUs, for the same commands as the baselines.

use crate::multi::crew::{Crew, Member};
use crate::multi::{Job, Part, Session, Solve, Times};
use krylith::comm::{Communicator, TeamRank};
use krylith::device::cuda::{Cuda, Device, Fabric, Transport};
use krylith::method::{Gmres, GmresOptions};
use krylith::operator::PointBlock;
use krylith::space::{Clock, Space};
use krylith::{Result, Stop, Store};
use std::sync::Arc;
use std::time::Instant;

/// Makes it ready on the job's GPUs; `dense` uses no structure inside the blocks.
///
/// # Errors
/// A GPU or library that is missing, no room.
pub(crate) fn open(job: &Job, dense: bool) -> Result<Box<dyn Session>> {
    let (restart, iterations) = (job.restart, job.iterations);
    Crew::on(job, move |place, gpu, parts, rhs| {
        let comm: Arc<dyn Communicator> = place.comm.clone();
        let space = Cuda::distributed(&Fabric::new(&Device::open(gpu)?, &comm, Transport::Auto)?, rhs.len())?;
        let options = GmresOptions { restart, ..GmresOptions::default() };
        let mut b = space.vector()?;
        space.write(rhs, &mut b)?;
        Ok(Ours {
            operator: PointBlock::new(&space, &parts[comm.rank()].terms, Store::F64, dense)?,
            gmres: Gmres::new(&space, options)?,
            zero: space.vector()?,
            x: space.vector()?,
            b,
            space,
            comm: place.comm.clone(),
            // Nothing stops before the last iteration.
            stop: Stop { rtol: 0.0, atol: 0.0, max_iterations: iterations },
        })
    })
}

struct Ours {
    space: Cuda,
    operator: PointBlock<Cuda>,
    gmres: Gmres<Cuda>,
    b: <Cuda as Space>::Vector,
    x: <Cuda as Space>::Vector,
    zero: <Cuda as Space>::Vector,
    comm: Arc<TeamRank>,
    stop: Stop,
}

impl Member for Ours {
    fn solve(&mut self, timed: bool) -> Result<Solve> {
        let space = &self.space;
        space.keep_time(timed);
        space.copy(&self.zero, &mut self.x)?;
        space.wait()?;
        self.comm.sum(&mut [])?;
        let begin = Instant::now();
        let history =
            self.gmres.solve(space, &self.operator, None, &self.b, &mut self.x, &self.stop, &mut ())?;
        space.wait()?;
        let seconds = begin.elapsed().as_secs_f64();
        // The history counts from ‖b‖, which is the first residual as x starts from 0.
        let norm = history.rhs_norm;
        let residuals = history.residuals.iter().map(|r| r * norm).collect();
        let mut times = Times::default();
        if let Some(phases) = space.take_phases().filter(|_| timed) {
            times.add(Part::Product, phases.product);
            times.add(Part::Communication, phases.communication);
            times.add(Part::Orthogonalization, phases.orthogonalization);
            times.add(Part::Other, phases.other);
        }
        space.keep_time(false);
        Ok(Solve { seconds, residuals, times })
    }
    fn solution(&mut self) -> Result<Vec<f64>> {
        let mut host = vec![0.0; self.space.len()];
        self.space.read(&self.x, &mut host)?;
        Ok(host)
    }
}
