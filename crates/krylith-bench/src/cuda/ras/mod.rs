//! Restricted additive Schwarz from cuSPARSE, inside Krylith's flexible GMRES with Krylith's product:
//! bsrilu02 on the filled pattern of all subdomain matrices, and bsrsv2.
//!
//! All subdomains form one block-diagonal matrix, so levels of different subdomains run concurrently. Both
//! layouts of blocks and both policies are timed, and the fastest is used.

use super::CudaPlatform;
use super::ildu0::factors::{Ilu, Solve};
use super::ildu0::kernels::{Arg, File, Kernel};
use super::ildu0::{POLICIES, policy_name, seconds};
use super::least;
use super::products::{Blocks, Layout};
use super::vendor::Vendor;
use crate::ras::cases::{Case, Kind, Way};
use crate::ras::measure::{Effort, Row, Run};
use crate::ras::plan::plan;
use krylith_core::device::cuda::{Buffer, Cuda};
use krylith_core::method::{Gmres, GmresOptions};
use krylith_core::operator::{LinearOperator, PointBlock, Terms};
use krylith_core::precond::SchwarzPlan;
use krylith_core::space::Space;
use krylith_core::{Error, Outcome, Precision, Result, Stop};
use std::rc::Rc;

const THREADS: usize = 256;
/// Largest number of thread blocks per launch; the kernels loop over the rest.
const MOST_BLOCKS: usize = 1 << 16;

/// The vendor's factors, with the vectors of an application.
struct Schwarz {
    vendor: Rc<Vendor>,
    arrays: Blocks,
    ilu: Ilu,
    lower: Solve,
    upper: Solve,
    pattern: Rc<Pattern>,
    r: Buffer<f64>,
    t: Buffer<f64>,
    /// Seconds of the analyses.
    analysis: f64,
    notes: String,
}

/// Data that do not depend on the layout of blocks.
struct Pattern {
    node: Vec<u32>,
    pattern: Rc<(Buffer<i32>, Buffer<i32>)>,
    source: Buffer<u32>,
    nodes: Buffer<u32>,
    results: Buffer<u32>,
    entries: usize,
    own: usize,
    block: usize,
    gather_values: Kernel,
    gather_nodes: Kernel,
}

impl Pattern {
    fn new(vendor: &Rc<Vendor>, plan: &SchwarzPlan) -> Result<Self> {
        if plan.entries() > i32::MAX as usize {
            return Err(Error::invalid(format!(
                "the factors have {} blocks; bsrilu02 counts them in 32 bits",
                plan.entries()
            )));
        }
        let device = &vendor.device;
        let row_ptr: Vec<i32> = plan.row_ptr.iter().map(|&p| p as i32).collect();
        let columns: Vec<i32> = plan.column.iter().map(|&c| c as i32).collect();
        let module = File::Schwarz.load(vendor, plan.block, THREADS)?;
        Ok(Self {
            node: plan.node.clone(),
            pattern: Rc::new((device.upload(&row_ptr, "row pointers")?, device.upload(&columns, "columns")?)),
            source: device.upload(&plan.source, "places of entries")?,
            nodes: device.upload(&plan.node, "nodes of rows")?,
            results: device.upload(&plan.result, "rows of nodes")?,
            entries: plan.entries(),
            own: plan.result.len(),
            block: plan.block,
            gather_values: module.kernel("gather_values", 0)?,
            gather_nodes: module.kernel("gather_nodes", 0)?,
        })
    }

    /// Copies the values of the matrix into the pattern.
    fn fill(&self, values: &Buffer<f64>, arrays: &Blocks) -> Result<()> {
        let numbers = self.entries * self.block * self.block;
        self.gather_values.launch(
            numbers.div_ceil(THREADS).clamp(1, MOST_BLOCKS),
            &[
                Arg::Unsigned(self.entries as u32),
                Arg::Int((arrays.layout == Layout::Columns).into()),
                Arg::Pointer(self.source.pointer()),
                Arg::Pointer(values.pointer()),
                Arg::Pointer(arrays.values.pointer()),
            ],
        )
    }

    /// Gathers whole nodes of x by the list.
    fn gather(&self, count: usize, list: &Buffer<u32>, x: u64, y: u64) -> Result<()> {
        self.gather_nodes.launch(
            (count * self.block).div_ceil(THREADS).clamp(1, MOST_BLOCKS),
            &[Arg::Unsigned(count as u32), Arg::Pointer(list.pointer()), Arg::Pointer(x), Arg::Pointer(y)],
        )
    }
}

impl Schwarz {
    /// Tries every setting on these values and keeps the one with the fastest solve, factorised.
    ///
    /// # Errors
    /// Returns an error if memory is not sufficient, if a pivot cannot be inverted, and for errors of
    /// cuSPARSE.
    fn new(vendor: &Rc<Vendor>, pattern: &Rc<Pattern>, values: &Buffer<f64>) -> Result<Self> {
        let (rows, block) = (pattern.node.len(), pattern.block);
        let (r, t) = (vendor.zeros(rows * block)?, vendor.zeros(rows * block)?);
        let (_, (arrays, ilu, [lower, upper], analysis, notes)) = least(Layout::BOTH, |layout| {
            let arrays = Blocks {
                rows,
                columns: rows,
                block,
                count: pattern.entries,
                layout,
                pattern: pattern.pattern.clone(),
                values: vendor.zeros(pattern.entries * block * block)?,
            };
            let (_, (ilu, factors, of_ilu)) = least(POLICIES, |policy| {
                let (ilu, analysis) = seconds(vendor, || Ilu::new(vendor, &arrays, policy))?;
                let mut last = 0.0;
                for _ in 0..2 {
                    pattern.fill(values, &arrays)?;
                    last = seconds(vendor, || ilu.factorize(&arrays))?.1;
                }
                Ok((last, (ilu, policy, analysis)))
            })?;
            pattern.fill(values, &arrays)?;
            ilu.factorize(&arrays)?;
            ilu.check(&pattern.node)?;
            let (time, (made, policy, of_solves)) = least(POLICIES, |policy| {
                let new = |upper| Solve::new(vendor, &arrays, upper, policy);
                let (made, analysis) = seconds(vendor, || Ok([new(false)?, new(true)?]))?;
                let time = super::quick(vendor, &mut || {
                    made[0].run(&arrays, r.pointer(), t.pointer())?;
                    made[1].run(&arrays, t.pointer(), r.pointer())
                })?;
                Ok((time, (made, policy, analysis)))
            })?;
            let notes = format!(
                "{}; bsrilu02 with {}, bsrsv2 with {}; L and U in {:.3} ms",
                layout.notes(),
                policy_name(factors),
                policy_name(policy),
                1e3 * time
            );
            Ok((time, (arrays, ilu, made, of_ilu + of_solves, notes)))
        })?;
        let (vendor, pattern) = (vendor.clone(), pattern.clone());
        Ok(Self { vendor, arrays, ilu, lower, upper, pattern, r, t, analysis, notes })
    }

    /// Gathers and factorises new values; returns the seconds.
    fn refresh(&self, values: &Buffer<f64>) -> Result<f64> {
        let (_, time) = seconds(&self.vendor, || {
            self.pattern.fill(values, &self.arrays)?;
            self.ilu.factorize(&self.arrays)
        })?;
        self.ilu.check(&self.pattern.node)?;
        Ok(time)
    }
}

impl LinearOperator<Cuda> for Schwarz {
    fn apply(&self, _: &Cuda, x: &Buffer<f64>, y: &mut Buffer<f64>) -> Result<()> {
        let (p, r, t) = (&self.pattern, self.r.pointer(), self.t.pointer());
        p.gather(p.node.len(), &p.nodes, x.pointer(), r)?;
        self.lower.run(&self.arrays, r, t)?;
        self.upper.run(&self.arrays, t, r)?;
        p.gather(p.own, &p.results, r, y.pointer())
    }
    fn key(&self) -> u64 {
        self.r.pointer()
    }
    fn bytes(&self) -> u64 {
        let numbers = self.pattern.entries * self.pattern.block * self.pattern.block;
        8 * numbers as u64 + 4 * self.pattern.entries as u64 + 48 * self.r.len() as u64
    }
    /// Returns false: the vendor's calls choose their launches themselves.
    fn recordable(&self) -> bool {
        false
    }
}

impl CudaPlatform {
    fn schwarz_solves(&self, case: &Case, effort: &Effort, rows: &mut [Row]) -> Result<()> {
        let v = &self.vendor;
        let first = &case.steps[0].jacobian;
        let plan = plan(first, case.coordinates.as_deref(), case.setting.shape)?;
        let (subdomains, entries) = (plan.count(), plan.entries());
        let pattern = Rc::new(Pattern::new(v, &plan)?);
        drop(plan);
        let mut values = v.device.upload(first.values(), "values")?;
        let schwarz = Schwarz::new(v, &pattern, &values)?;
        let space = Cuda::new(&self.device, first.rows())?;
        let options =
            GmresOptions { restart: case.setting.restart, flexible: true, ..GmresOptions::default() };
        let mut method = Gmres::new(&space, options)?;
        let stop = Stop { rtol: case.setting.rtol, atol: 0.0, max_iters: effort.most, ..Stop::DEFAULT };
        let (mut b, mut x, zero) = (space.vector()?, space.vector()?, space.vector()?);
        let mut host = vec![0.0; first.rows()];
        for (at, (step, row)) in case.steps.iter().zip(rows.iter_mut()).enumerate() {
            row.note(&schwarz.notes);
            row.note(&format!("{subdomains} subdomains, {entries} blocks in the factors"));
            v.device.write(step.jacobian.values(), &mut values, 0)?;
            space.write(&step.rhs, &mut b)?;
            let product = PointBlock::new(&space, &Terms::bsr(&step.jacobian), Precision::F64, false)?;
            // The very first run loads kernels.
            let warm = usize::from(at == 0);
            for round in 0..warm + effort.runs {
                let factor = schwarz.refresh(&values)?;
                space.copy(&zero, &mut x)?;
                let ((converged, iterations), solve) = seconds(v, || {
                    let history =
                        method.solve(&space, &product, Some(&schwarz), &b, &mut x, &stop, &mut ())?;
                    Ok((history.outcome == Outcome::Converged, history.iterations))
                })?;
                if round < warm {
                    continue;
                }
                space.read(&x, &mut host)?;
                let residual = step.residual(&host);
                row.runs.push(Run {
                    setup: if at == 0 { schwarz.analysis } else { 0.0 },
                    factor,
                    solve,
                    iterations,
                    converged: converged && residual <= 1.01 * case.setting.rtol,
                    residual,
                });
                if !converged {
                    row.failure = Some(format!(
                        "{}: not converged within {iterations} iterations; ‖b − A x‖/‖b‖ is {residual:.1e}",
                        row.way.name
                    ));
                    break;
                }
            }
        }
        Ok(())
    }
}

impl CudaPlatform {
    pub fn schwarz_rows(&self, case: &Case, effort: &Effort) -> Vec<Row> {
        let way = Way {
            name: "PB-RAS, cuSPARSE".into(),
            kind: Kind::Vendor,
            text: format!("FGMRES({}), bsrilu02, bsrsv2", case.setting.restart),
            sweeps: None,
        };
        let steps = case.steps.len().min(effort.steps);
        let mut rows: Vec<Row> =
            case.steps[..steps].iter().map(|step| Row::new(&way, step.number, 1)).collect();
        if let Err(e) = self.schwarz_solves(case, effort, &mut rows) {
            // Failures of the vendor are results, and Krylith's rows remain valid.
            for row in rows.iter_mut().filter(|row| row.runs.is_empty()) {
                row.failure = Some(format!("{}: {e}", way.name));
            }
        }
        rows
    }
}
