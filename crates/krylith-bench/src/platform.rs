//! The requirements of a suite on a device: Krylith's space, a clock, and the baselines available there.

use crate::answer::system::System;
use crate::answer::{Named, Take};
use crate::cbcg;
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

/// A product y = A x on its own vectors, whose input and output are in the order of the given matrix. Some
/// hold several sets of buffers, so that caches do not help.
pub(crate) trait Apply {
    /// Writes x of every set.
    fn write(&mut self, x: &[f64]) -> Result<()>;
    /// Fills y of a set with NaN.
    fn poison(&mut self, set: usize) -> Result<()>;
    /// Runs once on a set's buffers; the work may continue after the return.
    fn run(&mut self, set: usize) -> Result<()>;
    /// Returns y of a set; waits.
    fn read(&mut self, set: usize) -> Result<Vec<f64>>;
}

/// A product to be measured.
pub(crate) struct Product<'a> {
    pub name: String,
    /// Settings chosen by measurement, for the report.
    pub notes: String,
    pub on: Box<dyn Apply + 'a>,
}

/// Order of a vector's numbers relative to the given matrix.
#[derive(Clone, Copy)]
pub(crate) enum Order<'a> {
    /// The order of the given matrix.
    Given,
    /// Stage by stage.
    Stages(usize),
    /// Subdomain by subdomain.
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

/// A function of the number of a set, x and y.
type Loop<'a> = Box<dyn FnMut(usize, &[f64], &mut [f64]) + 'a>;

/// A loop on the host between vectors in some order.
pub(crate) struct OnHost<'a> {
    order: Order<'a>,
    sets: Vec<[Vec<f64>; 2]>,
    run: Loop<'a>,
}

impl<'a> OnHost<'a> {
    /// `run` gets the number of a set, x and y, with `n` numbers each.
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

/// Krylith's operators, each with its own vectors.
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

/// Copies a vector to the host; waits.
pub(crate) fn read<S: Space>(space: &S, vector: &S::Vector) -> Result<Vec<f64>> {
    let mut host = vec![0.0; space.len()];
    space.read(vector, &mut host)?;
    Ok(host)
}

/// Selection of baselines of a product.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd)]
pub(crate) enum Effort {
    /// Only the baseline to which speed-ups relate.
    First,
    /// Also the vendor's other products.
    Vendor,
    /// Also the OKP paper's kernels and the assembled matrix.
    All,
}

/// A benchmark of ten orthogonalisations of fresh vectors against a basis of fixed size.
pub(crate) trait Orthogonalizer {
    fn name(&self) -> String;
    /// Returns the bytes that one step reads and writes if no cache holds anything, where they are more than
    /// the least.
    fn traffic(&self) -> Option<u64> {
        None
    }
    /// Writes fresh vectors; not timed.
    fn refresh(&mut self) -> Result<()>;
    /// Runs [`STEPS`] steps.
    fn run(&mut self) -> Result<()>;
    /// Returns ‖I − QᵀQ‖_F of the basis with the last vector.
    fn defect(&mut self) -> Result<f64>;
    /// Returns the largest acceptable defect.
    fn tolerance(&self) -> f64;
}

/// Orthogonalisations in one sample, so that the start of a graph or a clock does not matter.
pub(crate) const STEPS: usize = 10;

pub(crate) trait Platform {
    /// Krylith's vectors on this device.
    type Space: PointBlockSum;
    fn space(&self, len: usize) -> Result<Self::Space>;
    /// Switches Krylith's timing by phase on or off.
    fn keep_time(&self, space: &Self::Space, on: bool);
    /// Returns the seconds that `work` takes on the device.
    fn time(&self, work: &mut dyn FnMut() -> Result<()>) -> Result<f64>;
    /// Returns the result of `work` and the seconds that it takes on the device.
    fn timed<T>(&self, work: impl FnOnce() -> Result<T>) -> Result<(T, f64)> {
        let (mut work, mut made) = (Some(work), None);
        let seconds = self.time(&mut || {
            made = work.take().map(|work| work()).transpose()?;
            Ok(())
        })?;
        Ok((made.ok_or_else(|| Error::invalid("the clock did not run the work"))?, seconds))
    }
    /// Returns the bandwidth that is the reference for percentages: its name and bytes a second.
    fn bandwidth(&self) -> Result<(&'static str, f64)>;
    /// Returns the peak f64 flops a second, for the roofline, if known.
    fn peak(&self) -> Option<f64>;
    /// Returns the bytes of memory that a case may use, all implementations together.
    fn room(&self) -> Result<u64>;
    /// Returns the size in bytes below which data would stay in a cache between two products of the suite
    /// spmv.
    fn cache(&self) -> u64;
    /// Reads enough other data that no cache holds earlier data.
    fn evict(&self) -> Result<()>;
    /// Returns the baselines of the product; speed-ups relate to the first.
    fn products(&self, k: &KroneckerSum, sets: usize, effort: Effort) -> Result<Vec<Product<'_>>>;
    /// Returns the baselines of an orthogonalisation against `columns` columns of `len` numbers.
    fn orthogonalizers(&self, len: usize, columns: usize) -> Result<Vec<Box<dyn Orthogonalizer + '_>>>;
    /// Returns the baselines of GMRES; speed-ups relate to the first.
    fn machines(&self, k: &KroneckerSum, rhs: &[f64], restart: usize) -> Result<Vec<Box<dyn Machine + '_>>>;
    /// Returns solvers of A x = b by the vendor's libraries; empty if there are none.
    fn answers(&self, _: &Bsr, _symmetric: bool, _rhs: &[f64], _most: usize) -> Result<Vec<Named<'static>>> {
        Ok(Vec::new())
    }
    /// Returns Krylith's solver from arrays in the device's memory, if arrays can lie there.
    fn resident<'a>(&'a self, _: &'a System, _: &'a Options, _rhs: &'a [f64]) -> Option<Take<'a>> {
        None
    }
    /// Runs exact RAS by the vendor's libraries on the system of each Newton step, inside Krylith's FGMRES;
    /// empty if there are none.
    fn schwarz(&self, _: &Case, _: &ras::measure::Effort) -> Result<Vec<ras::measure::Row>> {
        Ok(Vec::new())
    }
    /// Returns the P-CBCG paper's own kernels on a case, if they run here. `check` is true if their results
    /// will be compared with the host's.
    fn cbcg_kernels<'k>(&self, _: &'k cbcg::Case, _check: bool) -> Result<Vec<cbcg::Kernel<'k>>> {
        Ok(Vec::new())
    }
    /// Returns the paper's P-CG with tiles of a shape, by the storage of the data; empty where its kernels do
    /// not run.
    fn cbcg_solvers<'k>(
        &self,
        _: &'k cbcg::Case,
        _tile: [usize; 3],
    ) -> Vec<(cbcg::Storage, Result<cbcg::Solve<'k>>)> {
        Vec::new()
    }
    /// Returns the bytes in use on the device, or by this process if the system reports it.
    fn used(&self) -> Option<u64>;
    fn describe(&self) -> Value;
    /// Returns true if products use structure inside the blocks.
    fn structures(&self) -> bool;
    /// Returns true if single launches and recorded work differ in time.
    fn records(&self) -> bool;
}
