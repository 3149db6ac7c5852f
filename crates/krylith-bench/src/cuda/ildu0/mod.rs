//! The suite ildu0 on a GPU: cuSPARSE on the whole and on the decomposed matrix, the kernels of the paper
//! that the suite's `mod.rs` names, and BiCGSTAB with each.

mod answer;
mod bicgstab;
pub(in crate::cuda) mod factors;
pub(in crate::cuda) mod kernels;
mod paper;

pub use kernels::compile_all;

use super::CudaPlatform;
use super::products::{Matrix, OnDevice};
use super::vendor::Vendor;
use crate::ildu0::system::SubdomainSystem;
use crate::ildu0::{Application, Candidates, Case, Ground, Of, Solves, count, ours};
use crate::platform::Order;
use crate::samples::Samples;
use bicgstab::BiCgStab;
use cudarc::cusparse::sys as sparse;
use krylith_core::Result;
use std::rc::Rc;
use std::time::Instant;

/// Samples of each step of a set-up.
const SETUP_SAMPLES: usize = 5;

pub(in crate::cuda) type Policy = sparse::cusparseSolvePolicy_t;
pub(in crate::cuda) const POLICIES: [Policy; 2] =
    [Policy::CUSPARSE_SOLVE_POLICY_USE_LEVEL, Policy::CUSPARSE_SOLVE_POLICY_NO_LEVEL];

pub(in crate::cuda) fn policy_name(policy: Policy) -> &'static str {
    match policy {
        Policy::CUSPARSE_SOLVE_POLICY_USE_LEVEL => "levels",
        Policy::CUSPARSE_SOLVE_POLICY_NO_LEVEL => "no levels",
    }
}

/// Returns the result of `work`, and the seconds until the device has finished it.
pub(in crate::cuda) fn seconds<T>(vendor: &Vendor, work: impl FnOnce() -> Result<T>) -> Result<(T, f64)> {
    vendor.device.wait()?;
    let begin = Instant::now();
    let made = work()?;
    vendor.device.wait()?;
    Ok((made, begin.elapsed().as_secs_f64()))
}

/// Takes [`SETUP_SAMPLES`] of [`seconds`].
fn sampled(vendor: &Vendor, mut work: impl FnMut() -> Result<()>) -> Result<Samples> {
    (0..SETUP_SAMPLES).map(|_| Ok(seconds(vendor, &mut work)?.1)).collect::<Result<_>>().map(Samples)
}

/// A map from a vector at one address to a vector at another.
type Map = Rc<dyn Fn(u64, u64) -> Result<()>>;

/// A map with its vectors, in the order of its system.
fn applied<'a>(vendor: &Rc<Vendor>, system: &'a SubdomainSystem, map: &Map) -> Result<Box<OnDevice<'a>>> {
    let map = map.clone();
    OnDevice::new(vendor, (Order::Subdomains(system), system.len(), 1), None, move |_, x, y| map(x, y))
}

impl CudaPlatform {
    /// Returns cuSPARSE on one of the matrices, as a lower solve, an application and a solver.
    fn vendor<'a>(
        &self,
        case: &'a Case,
        of: Of,
        matrix_of: &Rc<Matrix>,
        made: &mut Candidates<'a>,
    ) -> Result<()> {
        let v = &self.vendor;
        let (system, what) = match of {
            Of::Whole => (&case.whole, "cuSPARSE, whole matrix"),
            Of::Decomposed => (&case.decomposed, "cuSPARSE, decomposed"),
        };
        let from = made.setups.len();
        let triangles = Rc::new(factors::Factors::new(v, system, what, &mut made.setups)?);
        let cut: f64 = if of == Of::Decomposed { case.partition.iter().sum() } else { 0.0 };
        let setup = cut + made.setups[from..].iter().map(|s| s.samples.median()).sum::<f64>();
        let middle = v.zeros(system.len())?;
        let strict = system.strictly_lower();
        let (solves, notes) = (triangles.clone(), triangles.notes());
        let lower: Map = Rc::new(move |x, y| solves.lower(x, y));
        let solves = triangles.clone();
        let whole: Map = Rc::new(move |x, y| {
            solves.lower(x, middle.pointer())?;
            solves.upper(middle.pointer(), y)
        });
        let matrix = if of == Of::Whole { "whole matrix" } else { "decomposed" };
        let name = format!("{}, {matrix}", triangles.name());
        let lower_bytes = count::lower_triangle(system, strict);
        for (solves, bytes, map) in
            [(Solves::LowerInBlocks, lower_bytes, &lower), (Solves::All, count::triangles(system), &whole)]
        {
            let vectors = applied(v, system, map)?;
            let named = (name.as_str(), notes.clone());
            made.applications.push(Application::baseline(named, (of, solves), bytes, vectors));
        }
        made.solvers.push(Box::new(BiCgStab::new(v, matrix_of, system, &case.rhs, (name, whole), setup)?));
        Ok(())
    }

    /// Returns the paper's kernels on the decomposed matrix.
    fn paper<'a>(&self, case: &'a Case, matrix: &Rc<Matrix>, made: &mut Candidates<'a>) -> Result<()> {
        let v = &self.vendor;
        let shared = Rc::new(paper::Arrays::new(v, case, &mut made.setups)?);
        let dag = paper::device_levels(v, case, &mut made.setups)?;
        // Factors come from the vendor, as in the paper; converting them to L, D, U is not counted.
        let vendors: f64 = made
            .setups
            .iter()
            .filter(|s| s.name.contains("decomposed") && s.name.contains("ilu02"))
            .map(|s| s.samples.median())
            .sum();
        let setup = case.partition.iter().sum::<f64>() + vendors + dag;
        for variant in paper::Variant::ALL {
            let map = match paper::Paper::best(v, &shared, variant) {
                Ok(map) => map,
                Err(e) => {
                    made.failures.push(format!("{}: {e}", variant.name()));
                    continue;
                }
            };
            let (name, notes, bytes) = (variant.name().to_string(), map.notes(), map.bytes());
            let map: Map = Rc::new(move |x, y| map.run(x, y));
            let (vectors, what) = (applied(v, &case.decomposed, &map)?, (Of::Decomposed, variant.solves()));
            made.applications.push(Application::baseline((&name, notes), what, bytes, vectors));
            if variant.fused() {
                let solver = BiCgStab::new(v, matrix, &case.decomposed, &case.rhs, (name, map), setup)?;
                made.solvers.push(Box::new(solver));
            }
        }
        Ok(())
    }
}

impl Ground for CudaPlatform {
    fn baselines<'a>(&'a self, case: &'a Case, progress: &mut dyn FnMut(&str)) -> Result<Candidates<'a>> {
        let (v, mut made) = (&self.vendor, Candidates::default());
        progress(&format!("{}: cuSPARSE, whole matrix", case.name));
        let whole = Rc::new(Matrix::best(v, &case.a)?);
        if let Err(e) = self.vendor(case, Of::Whole, &whole, &mut made) {
            made.failures.push(format!("cuSPARSE, whole matrix: {e}"));
        }
        progress(&format!("{}: cuSPARSE, decomposed", case.name));
        let reordered = Rc::new(Matrix::best(v, &case.decomposed.reordered(&case.a)?)?);
        if let Err(e) = self.vendor(case, Of::Decomposed, &reordered, &mut made) {
            made.failures.push(format!("cuSPARSE, decomposed: {e}"));
        }
        progress(&format!("{}: the paper's kernels", case.name));
        if let Err(e) = self.paper(case, &reordered, &mut made) {
            made.failures.push(format!("the paper's kernels: {e}"));
        }
        Ok(made)
    }
    fn ours<'a>(&'a self, case: &'a Case, made: &mut Candidates<'a>) -> Result<()> {
        // The whole matrix as one subdomain does not fit a thread block.
        ours::add(self, case, false, made)?;
        ours::add_on_host(case, made);
        Ok(())
    }
}
