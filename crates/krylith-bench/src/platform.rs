//! What a suite asks of a device: Krylith's space, a clock, and the baselines that exist there.

use crate::answer::system::System;
use crate::answer::{Named, Take};
use crate::ildu0::system::SubdomainSystem;
use crate::ras;
use crate::ras::cases::Case;
use crate::textbook::Machine;
use krylith_core::io::{from_stage_by_stage, to_stage_by_stage};
use krylith_core::matrix::{Bsr, KroneckerSum};
use krylith_core::operator::{LinearOperator, PointBlockSum};
use krylith_core::space::Space;
use krylith_core::{Error, Options, Result};
use serde_json::Value;
use std::rc::Rc;

/// y = A x on vectors of its own, told and asked in the order of the given matrix; some hold several sets of buffers, so that no cache
/// helps.
pub(crate) trait Apply {
    /// x of every set.
    fn write(&mut self, x: &[f64]) -> Result<()>;
    /// NaN into y of a set.
    fn poison(&mut self, set: usize) -> Result<()>;
    /// Once, on a set's buffers; it may still run when this returns.
    fn run(&mut self, set: usize) -> Result<()>;
    /// y of a set; waits.
    fn read(&mut self, set: usize) -> Result<Vec<f64>>;
}

/// A product that is measured.
pub(crate) struct Product<'a> {
    pub name: String,
    /// Settings that were chosen by measurement, for the report.
    pub notes: String,
    pub on: Box<dyn Apply + 'a>,
}

/// Where the numbers of a vector stand that is not in the order of the given matrix.
#[derive(Clone, Copy)]
pub(crate) enum Order<'a> {
    /// It is.
    Given,
    /// Stage after stage.
    Stages(usize),
    /// Subdomain after subdomain.
    Subdomains(&'a SubdomainSystem),
}

impl Order<'_> {
    pub fn sort(self, x: &[f64]) -> Vec<f64> {
        match self {
            Order::Given => x.to_vec(),
            Order::Stages(stages) => to_stage_by_stage(x, stages),
            Order::Subdomains(system) => system.sort(x),
        }
    }
    pub fn unsort(self, x: &[f64]) -> Vec<f64> {
        match self {
            Order::Given => x.to_vec(),
            Order::Stages(stages) => from_stage_by_stage(x, stages),
            Order::Subdomains(system) => system.unsort(x),
        }
    }
}

/// Gets the number of a set, x and y.
type Loop<'a> = Box<dyn FnMut(usize, &[f64], &mut [f64]) + 'a>;

/// A loop on the host between vectors of some order.
pub(crate) struct OnHost<'a> {
    order: Order<'a>,
    sets: Vec<[Vec<f64>; 2]>,
    run: Loop<'a>,
}

impl<'a> OnHost<'a> {
    /// `run` gets the number of a set, x and y, of `n` numbers each.
    pub fn new(
        order: Order<'a>,
        n: usize,
        sets: usize,
        run: impl FnMut(usize, &[f64], &mut [f64]) + 'a,
    ) -> Box<Self> {
        let set = || [vec![0.0; n], vec![0.0; n]];
        Box::new(Self { order, sets: (0..sets).map(|_| set()).collect(), run: Box::new(run) })
    }
}

impl Apply for OnHost<'_> {
    fn write(&mut self, x: &[f64]) -> Result<()> {
        self.sets.iter_mut().for_each(|set| set[0] = self.order.sort(x));
        Ok(())
    }
    fn poison(&mut self, set: usize) -> Result<()> {
        self.sets[set][1].fill(f64::NAN);
        Ok(())
    }
    fn run(&mut self, set: usize) -> Result<()> {
        let [x, y] = &mut self.sets[set];
        (self.run)(set, x, y);
        Ok(())
    }
    fn read(&mut self, set: usize) -> Result<Vec<f64>> {
        Ok(self.order.unsort(&self.sets[set][1]))
    }
}

type Operator<'a, S> = Box<dyn LinearOperator<S> + 'a>;

/// Operators of Krylith's, each with vectors of its own.
pub(crate) struct OnSpace<'a, S: Space> {
    space: Rc<S>,
    sets: Vec<(Operator<'a, S>, S::Vector, S::Vector)>,
}

impl<'a, S: Space> OnSpace<'a, S> {
    pub fn new(space: &Rc<S>, operators: Vec<Operator<'a, S>>) -> Result<Box<Self>> {
        let set = |operator| Ok((operator, space.vector()?, space.vector()?));
        let sets = operators.into_iter().map(set).collect::<Result<_>>()?;
        Ok(Box::new(Self { space: space.clone(), sets }))
    }
}

impl<S: Space> Apply for OnSpace<'_, S> {
    fn write(&mut self, x: &[f64]) -> Result<()> {
        self.sets.iter_mut().try_for_each(|set| self.space.write(x, &mut set.1))
    }
    fn poison(&mut self, set: usize) -> Result<()> {
        self.space.write(&vec![f64::NAN; self.space.len()], &mut self.sets[set].2)
    }
    fn run(&mut self, set: usize) -> Result<()> {
        let (operator, x, y) = &mut self.sets[set];
        operator.apply(&self.space, x, y)
    }
    fn read(&mut self, set: usize) -> Result<Vec<f64>> {
        read(self.space.as_ref(), &self.sets[set].2)
    }
}

/// A vector on the host; waits.
pub(crate) fn read<S: Space>(space: &S, vector: &S::Vector) -> Result<Vec<f64>> {
    let mut host = vec![0.0; space.len()];
    space.read(vector, &mut host)?;
    Ok(host)
}

/// How many baselines of a product are wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd)]
pub(crate) enum Effort {
    /// The one that speed-ups are counted from.
    First,
    /// The vendor's others.
    Vendor,
    /// The paper's kernels and the assembled matrix too.
    All,
}

/// Ten orthogonalisations of fresh vectors against a basis of fixed size.
pub(crate) trait Orthogonalizer {
    fn name(&self) -> String;
    /// Fresh vectors, not timed.
    fn refresh(&mut self) -> Result<()>;
    /// [`STEPS`] steps.
    fn run(&mut self) -> Result<()>;
    /// ‖I − QᵀQ‖_F of basis and last vector.
    fn defect(&mut self) -> Result<f64>;
    /// What the defect must not exceed.
    fn tolerance(&self) -> f64;
}

/// Orthogonalisations in one sample, so that starting a graph or a clock does not count.
pub(crate) const STEPS: usize = 10;

pub(crate) trait Platform {
    /// Krylith's vectors there.
    type Space: PointBlockSum;
    fn space(&self, len: usize) -> Result<Self::Space>;
    /// Switches Krylith's time-keeping by phase.
    fn keep_time(&self, space: &Self::Space, on: bool);
    /// Seconds that `work` takes on the device.
    fn time(&self, work: &mut dyn FnMut() -> Result<()>) -> Result<f64>;
    /// What `work` makes, and the seconds that it takes on the device.
    fn timed<T>(&self, work: impl FnOnce() -> Result<T>) -> Result<(T, f64)> {
        let (mut work, mut made) = (Some(work), None);
        let seconds = self.time(&mut || {
            made = work.take().map(|work| work()).transpose()?;
            Ok(())
        })?;
        Ok((made.ok_or_else(|| Error::invalid("the clock did not run the work"))?, seconds))
    }
    /// The bandwidth that shares are taken of: its name and bytes a second.
    fn bandwidth(&self) -> Result<(&'static str, f64)>;
    /// Most f64 flops a second, for the roofline's roof, where it is known.
    fn peak(&self) -> Option<f64>;
    /// Bytes of memory that a case may take, all implementations together.
    fn room(&self) -> Result<u64>;
    /// What is smaller than so many bytes would stay in a cache between two products of the suite spmv.
    fn cache(&self) -> u64;
    /// Reads enough other data that no cache holds what came before.
    fn evict(&self) -> Result<()>;
    /// Baselines of the product; the first is what speed-ups are counted from.
    fn products(&self, k: &KroneckerSum, sets: usize, effort: Effort) -> Result<Vec<Product<'_>>>;
    /// Baselines of an orthogonalisation against `columns` columns of `len` numbers.
    fn orthogonalizers(&self, len: usize, columns: usize) -> Result<Vec<Box<dyn Orthogonalizer + '_>>>;
    /// Baselines of GMRES; the first is what speed-ups are counted from.
    fn machines(&self, k: &KroneckerSum, rhs: &[f64], restart: usize) -> Result<Vec<Box<dyn Machine + '_>>>;
    /// Ways to the answer of A x = b by the vendor's libraries, none where there are none.
    fn answers(&self, _: &Bsr, _symmetric: bool, _rhs: &[f64], _most: usize) -> Result<Vec<Named<'static>>> {
        Ok(Vec::new())
    }
    /// Krylith's way from arrays in the device's memory, where they can lie there.
    fn resident<'a>(&'a self, _: &'a System, _: &'a Options, _rhs: &'a [f64]) -> Option<Take<'a>> {
        None
    }
    /// Exact RAS by the vendor's libraries on the system of each Newton step, inside Krylith's FGMRES; nothing where there are none.
    fn schwarz(&self, _: &Case, _: &ras::measure::Effort) -> Result<Vec<ras::measure::Row>> {
        Ok(Vec::new())
    }
    /// Bytes in use on the device, or by this process where the system says so.
    fn used(&self) -> Option<u64>;
    fn describe(&self) -> Value;
    /// True where products use structure inside the blocks.
    fn structures(&self) -> bool;
    /// True where single launches and recorded work differ.
    fn records(&self) -> bool;
}
