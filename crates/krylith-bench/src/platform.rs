//! What a suite asks of a device: Krylith's space, a clock, and the baselines that exist there.

use crate::textbook::Machine;
use krylith::Result;
use krylith::matrix::KroneckerSum;
use krylith::operator::PointBlockSum;
use serde_json::Value;

/// A product that is measured; some hold several sets of buffers, so that no cache helps.
pub(crate) trait Product {
    fn name(&self) -> String;
    /// Settings that were chosen by measurement, for the report.
    fn notes(&self) -> String {
        String::new()
    }
    /// x of every set, in Krylith's order.
    fn write(&mut self, x: &[f64]) -> Result<()>;
    /// NaN into y of a set.
    fn poison(&mut self, set: usize) -> Result<()>;
    /// y = A x on a set's buffers.
    fn run(&mut self, set: usize) -> Result<()>;
    /// y of a set, in Krylith's order; waits.
    fn read(&mut self, set: usize) -> Result<Vec<f64>>;
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
    /// The bandwidth that shares are taken of: its name and bytes a second.
    fn bandwidth(&self) -> Result<(&'static str, f64)>;
    /// Most f64 flops a second, for the roofline's roof, where it is known.
    fn peak(&self) -> Option<f64>;
    /// Bytes of memory that a case may take, all implementations together.
    fn room(&self) -> Result<u64>;
    /// Baselines of the product; the first is what speed-ups are counted from.
    fn products(&self, k: &KroneckerSum, sets: usize, effort: Effort) -> Result<Vec<Box<dyn Product + '_>>>;
    /// Baselines of an orthogonalisation against `columns` columns of `len` numbers.
    fn orthogonalizers(&self, len: usize, columns: usize) -> Result<Vec<Box<dyn Orthogonalizer + '_>>>;
    /// Baselines of GMRES; the first is what speed-ups are counted from.
    fn machines(&self, k: &KroneckerSum, rhs: &[f64], restart: usize) -> Result<Vec<Box<dyn Machine + '_>>>;
    fn describe(&self) -> Value;
    /// True where products use structure inside the blocks.
    fn structures(&self) -> bool;
    /// True where single launches and recorded work differ.
    fn records(&self) -> bool;
}
