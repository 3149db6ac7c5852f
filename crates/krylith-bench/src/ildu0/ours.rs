//! Krylith's entries of the suite: `precond::Ildu` on the case's subdomains, and BiCGSTAB with it alone and
//! after the coarse levels of algebraic multigrid (`coarse then ildu`).
//!
//! Only this file adds them; a device that implements `Coarsen` calls [`add`] from its `Ground::ours`. They
//! are checked, timed and reported like every baseline.

use super::cut::Cut;
use super::{Application, Candidates, Case, Ground, Of, Setup, Solver, Solves, TOLERANCE};
use crate::platform::{OnSpace, read};
use crate::samples::Samples;
use krylith_core::method::{Bicgstab, BicgstabOptions};
use krylith_core::operator::{LinearOperator, PointBlock, PointBlockSum, Terms};
use krylith_core::partition::{SubdomainCut, Subdomains};
use krylith_core::precond::{
    AmgSpec, Coarsen, Ildu, IlduOptions, Multilevel, MultilevelOptions, Multiplicative, Plan,
    SubdomainFactors,
};
use krylith_core::{Error, Precision, PrecondPrecision, Result, Stop};
use std::rc::Rc;

/// From this number of scalar rows on, `coarse` computes in f32, as in a solver.
const IN_F32: usize = 100_000;

/// Largest accepted difference of factors in f32 for each level of a triangle. Rounding changes a factor by
/// up to 6e-8 of its size, and these errors add up along a chain of levels.
const TOLERANCE_F32: f64 = 2.6e-7;

/// What all entries for a matrix share.
struct Shared<'a, S: Coarsen> {
    case: &'a Case,
    space: Rc<S>,
    operator: Rc<PointBlock<S>>,
}

/// Subdomains of a matrix, with the order of elimination in each.
struct Ready {
    of: Of,
    subdomains: Subdomains,
    /// Seconds of the partition.
    cut: f64,
    order: (Vec<u32>, Vec<usize>),
}

/// BiCGSTAB with a preconditioner of Krylith's.
struct OurSolver<S: Coarsen> {
    name: String,
    space: Rc<S>,
    preconditioner: Box<dyn LinearOperator<S>>,
    operator: Rc<PointBlock<S>>,
    method: Bicgstab<S>,
    b: S::Vector,
    x: S::Vector,
    zero: S::Vector,
    setup: f64,
}

impl<S: Coarsen> OurSolver<S> {
    fn new(
        shared: &Shared<S>,
        name: String,
        preconditioner: Box<dyn LinearOperator<S>>,
        setup: f64,
    ) -> Result<Box<Self>> {
        let (space, operator) = (shared.space.clone(), shared.operator.clone());
        let mut b = space.vector()?;
        space.write(&shared.case.rhs, &mut b)?;
        let (x, zero) = (space.vector()?, space.vector()?);
        let method = Bicgstab::new(space.as_ref(), BicgstabOptions::default())?;
        Ok(Box::new(Self { name, space, preconditioner, operator, method, b, x, zero, setup }))
    }
}

impl<S: Coarsen> Solver for OurSolver<S> {
    fn name(&self) -> String {
        self.name.clone()
    }
    fn ours(&self) -> bool {
        true
    }
    fn setup(&self) -> f64 {
        self.setup
    }
    fn solve(&mut self, rtol: f64, most: usize) -> Result<Vec<f64>> {
        let stop = Stop { rtol, atol: 0.0, max_iters: most, ..Stop::DEFAULT };
        self.space.copy(&self.zero, &mut self.x)?;
        let (a, p) = (self.operator.as_ref(), self.preconditioner.as_ref());
        let history = self.method.solve(&self.space, a, Some(p), &self.b, &mut self.x, &stop, &mut ())?;
        Ok(history.residuals.clone())
    }
    fn solution(&mut self) -> Result<Vec<f64>> {
        read(self.space.as_ref(), &self.x)
    }
}

/// Adds Krylith's applications and solvers: on the subdomains in f64 and f32, after coarse levels, and for
/// the `whole` matrix as one subdomain if the device supports any size. A failure is listed and does not
/// affect the others.
pub(crate) fn add<'a, P: Ground>(
    p: &'a P,
    case: &'a Case,
    whole: bool,
    made: &mut Candidates<'a>,
) -> Result<()>
where
    P::Space: Coarsen + 'static,
{
    let space = Rc::new(p.space(case.a.rows())?);
    let operator = Rc::new(PointBlock::bsr(space.as_ref(), &case.a, Precision::F64)?);
    let shared = Shared { case, space, operator };
    for of in if whole { &[Of::Decomposed, Of::Whole][..] } else { &[Of::Decomposed] } {
        let what = format!("Krylith ILDU(0), {of:?}");
        let ready = match Ready::new(p, &shared, *of, made) {
            Ok(ready) => ready,
            Err(e) => {
                made.failures.push(format!("{what}: {e}"));
                continue;
            }
        };
        let precisions =
            if *of == Of::Whole { &[Precision::F64][..] } else { &[Precision::F64, Precision::F32] };
        for precision in precisions {
            if let Err(e) = one(p, &shared, &ready, *precision, made) {
                made.failures.push(format!("{what}, {precision:?}: {e}"));
            }
        }
    }
    Ok(())
}

impl Ready {
    /// Takes the case's subdomains, or the whole matrix. If this device cuts the graph, the time of the cut
    /// is its own, and it must find the case's subdomains.
    fn new<P: Ground>(p: &P, shared: &Shared<P::Space>, of: Of, made: &mut Candidates) -> Result<Self>
    where
        P::Space: Coarsen,
    {
        let Shared { case, space, .. } = shared;
        let terms = Terms::bsr(&case.a);
        let (subdomains, cut) = match (of, case.cut) {
            (Of::Whole, _) => p.timed(|| Ok(Subdomains::whole(case.a.block_rows())))?,
            (_, Cut::Boxes { grid, size }) => p.timed(|| Ok(Subdomains::boxes(grid, size)))?,
            (_, Cut::Graph { way: SubdomainCut::Multilevel, rows }) => {
                let placed = space.place(&terms)?;
                // The first cut may compile and load kernels.
                space.cut_graph(&placed, rows)?;
                let (found, seconds) = p.timed(|| space.cut_graph(&placed, rows))?;
                if found.as_ref().is_some_and(|found| *found != case.subdomains) {
                    made.failures.push("Krylith: the device cuts the graph unlike the host".into());
                }
                (case.subdomains.clone(), if found.is_some() { seconds } else { case.partition[0] })
            }
            (_, Cut::Graph { .. }) => (case.subdomains.clone(), case.partition[0]),
        };
        // The host's plan gives the device's order of elimination.
        let plan = Plan::new(&terms, &subdomains, 0)?;
        Ok(Self { of, subdomains, cut, order: (plan.rows, plan.ptr) })
    }
}

fn one<'a, P: Ground>(
    p: &'a P,
    shared: &Shared<'a, P::Space>,
    ready: &Ready,
    precision: Precision,
    made: &mut Candidates<'a>,
) -> Result<()>
where
    P::Space: Coarsen + 'static,
{
    let (case, space, of) = (shared.case, shared.space.as_ref(), ready.of);
    let matrix = if of == Of::Whole { ", whole matrix" } else { "" };
    let name = match precision {
        Precision::F32 => format!("Krylith ILDU(0){matrix}, f32 factors"),
        _ => format!("Krylith ILDU(0){matrix}"),
    };
    let (terms, options) = (Terms::bsr(&case.a), IlduOptions { precision, ..IlduOptions::default() });
    let (placed, upload) = p.timed(|| space.place(&terms))?;
    // The first ones may compile and load kernels, which is a cost per machine, not per matrix.
    space.analyse(&placed, &ready.subdomains, 0)?;
    let (plan, analysis) = p.timed(|| space.analyse(&placed, &ready.subdomains, 0))?;
    drop(Ildu::with_plan(space, &placed, plan.clone(), options)?);
    let (mut ildu, factors) = p.timed(|| Ildu::with_plan(space, &placed, plan.clone(), options))?;
    let again =
        (0..5).map(|_| p.time(&mut || ildu.update_values(space, &terms))).collect::<Result<Vec<_>>>()?;
    let ildu = Rc::new(ildu);
    let steps = [
        ("partition", vec![ready.cut]),
        ("upload", vec![upload]),
        ("plan", vec![analysis]),
        ("memory and first factorisation", vec![factors]),
    ];
    for (step, samples) in steps.into_iter().chain([("update_values", again)]) {
        made.setups.push(Setup { name: format!("{name}: {step}"), samples: Samples(samples) });
    }
    made.applications.push(Application {
        name: name.clone(),
        notes: String::new(),
        of,
        solves: Solves::All,
        // Positions are in the order of levels; elimination in this order gives the factors of the chosen
        // order.
        order: Some(ready.order.clone()),
        ours: true,
        bytes: ildu.bytes(),
        tolerance: match precision {
            Precision::F32 => TOLERANCE_F32 * ildu.outline().deepest.max(38) as f64,
            _ => TOLERANCE,
        },
        vectors: OnSpace::new(&shared.space, vec![Box::new(ildu.clone())])?,
    });
    let setup = ready.cut + upload + analysis + factors;
    made.solvers.push(OurSolver::new(shared, name, Box::new(ildu.clone()), setup)?);
    if of == Of::Decomposed && precision == Precision::F64 {
        let added = coarse_then(p, shared, (&placed, ildu, setup), "", made);
        added.map_err(|e| Error::invalid(format!("coarse then ildu: {e}")))?;
    }
    Ok(())
}

/// Adds the solver with `coarse then ildu` on all cores of the host, beside those of a GPU. A failure is
/// listed.
#[cfg(any(feature = "cuda", test))]
pub(crate) fn add_on_host<'a>(case: &'a Case, made: &mut Candidates<'a>) {
    use crate::platform::Platform;
    let mut solver = || {
        let p = crate::cpu::CpuPlatform::new(0);
        let space = Rc::new(p.space(case.a.rows())?);
        let (operator, made_operator) =
            p.timed(|| PointBlock::bsr(space.as_ref(), &case.a, Precision::F64))?;
        let terms = Terms::bsr(&case.a);
        let options = IlduOptions::default();
        let (ildu, factors) = p.timed(|| Ildu::new(space.as_ref(), &terms, &case.subdomains, options))?;
        let before = case.partition[0] + made_operator + factors;
        let shared = Shared { case, space, operator: Rc::new(operator) };
        coarse_then(&p, &shared, (&terms, Rc::new(ildu), before), ", host", made)
    };
    if let Err(e) = solver() {
        made.failures.push(format!("Krylith coarse then ILDU(0), host: {e}"));
    }
}

/// Adds BiCGSTAB with `coarse then ildu`: a correction by the coarse levels of algebraic multigrid, then ILDU
/// on the residual that it leaves.
fn coarse_then<'a, P: Ground>(
    p: &P,
    shared: &Shared<'a, P::Space>,
    (placed, ildu, before): (&Terms, Rc<Ildu<P::Space>>, f64),
    place: &str,
    made: &mut Candidates<'a>,
) -> Result<()>
where
    P::Space: Coarsen + 'static,
{
    let (space, (order, rows)) = (shared.space.as_ref(), (shared.case.a.block(), shared.case.a.rows()));
    let options = AmgSpec::default().of_system(order, rows, false).options(order, Precision::F64);
    let in_f32 = order == 1 && rows >= IN_F32 && space.computes_in_f32();
    let compute = if in_f32 { PrecondPrecision::F32 } else { options.compute };
    let options = MultilevelOptions { smooth_finest: false, compute, ..options };
    // The first one may compile and load kernels.
    drop(Multilevel::new(space, placed, options)?);
    let (coarse, seconds) = p.timed(|| Multilevel::new(space, placed, options))?;
    let name = format!("Krylith coarse then ILDU(0){place}");
    let (levels, samples) = (coarse.levels().len(), Samples(vec![seconds]));
    made.setups.push(Setup { name: format!("{name}: the {levels} levels of coarse"), samples });
    let both = Multiplicative::new(space, coarse, ildu, shared.operator.clone())?;
    made.solvers.push(OurSolver::new(shared, name, Box::new(both), before + seconds)?);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ildu0::cut::Way;
    use crate::ildu0::systems::Wanted;
    use crate::systems::relative_residual;

    #[test]
    fn the_host_solves_beside_a_gpu() {
        let system = Wanted::Spec("radiation:12x12x12,components=3".into()).make(1.0, None).unwrap();
        let cut = Cut::new(Way::Multilevel, &system.a, system.grid, false).unwrap();
        let case = crate::ildu0::case(&system, cut).unwrap();
        let mut made = Candidates::default();
        add_on_host(&case, &mut made);
        let [solver] = &mut made.solvers[..] else { panic!("{:?}", made.failures) };
        assert_eq!(solver.name(), "Krylith coarse then ILDU(0), host");
        let residuals = solver.solve(1e-8, 100).unwrap();
        assert!(residuals.len() > 2 && residuals[residuals.len() - 1] <= 1e-8, "{residuals:?}");
        assert!(relative_residual(&case.a, &case.rhs, &solver.solution().unwrap()) <= 2e-8);
        assert!(made.setups.iter().any(|step| step.name.ends_with("levels of coarse")));
    }
}
