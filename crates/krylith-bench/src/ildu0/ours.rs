//! Krylith's entries of the suite: `precond::Ildu` on the case's boxes, and BiCGSTAB with it.
//!
//! Only this file adds them; a device that implements `SubdomainFactors` calls [`add`] from its
//! `Ground::ours`. They are checked, timed and reported like every baseline.

use super::{Application, Candidates, Case, Ground, Of, Setup, Solver, Solves, TOLERANCE};
use crate::platform::{OnSpace, read};
use crate::samples::Samples;
use krylith_core::method::{Bicgstab, BicgstabOptions};
use krylith_core::operator::{LinearOperator, PointBlock, PointBlockSum, Terms};
use krylith_core::partition::Subdomains;
use krylith_core::precond::{Ildu, IlduOptions, Plan, SubdomainFactors};
use krylith_core::space::Space;
use krylith_core::{Precision, Result, Stop};
use std::rc::Rc;

struct Preconditioner<S: SubdomainFactors> {
    space: Rc<S>,
    ildu: Rc<Ildu<S>>,
    of: Of,
    precision: Precision,
}

impl<S: SubdomainFactors> Preconditioner<S> {
    fn name(&self) -> String {
        let matrix = if self.of == Of::Whole { ", whole matrix" } else { "" };
        let precision = if self.precision == Precision::F32 { ", f32 factors" } else { "" };
        format!("Krylith ILDU(0){matrix}{precision}")
    }
}

/// BiCGSTAB with one of Krylith's applications.
struct OurSolver<S: SubdomainFactors + PointBlockSum> {
    preconditioner: Rc<Preconditioner<S>>,
    operator: Rc<PointBlock<S>>,
    method: Bicgstab<S>,
    b: S::Vector,
    x: S::Vector,
    zero: S::Vector,
    setup: f64,
}

impl<S: SubdomainFactors + PointBlockSum> Solver for OurSolver<S> {
    fn name(&self) -> String {
        self.preconditioner.name()
    }
    fn ours(&self) -> bool {
        true
    }
    fn setup(&self) -> f64 {
        self.setup
    }
    fn solve(&mut self, rtol: f64, most: usize) -> Result<Vec<f64>> {
        let (space, ildu) = (&self.preconditioner.space, &self.preconditioner.ildu);
        let stop = Stop { rtol, atol: 0.0, max_iters: most, ..Stop::DEFAULT };
        space.copy(&self.zero, &mut self.x)?;
        let (a, b, x) = (self.operator.as_ref(), &self.b, &mut self.x);
        let history = self.method.solve(space, a, Some(ildu.as_ref()), b, x, &stop, &mut ())?;
        Ok(history.residuals.clone())
    }
    fn solution(&mut self) -> Result<Vec<f64>> {
        read(self.preconditioner.space.as_ref(), &self.x)
    }
}

/// Adds Krylith's applications and solvers: on the boxes in f64 and f32, and for the `whole` matrix as one
/// subdomain if the device supports any size. A failure is listed and does not affect the others.
pub(crate) fn add<'a, P: Ground>(
    p: &'a P,
    case: &'a Case,
    whole: bool,
    made: &mut Candidates<'a>,
) -> Result<()>
where
    P::Space: SubdomainFactors + 'a,
{
    let space = Rc::new(p.space(case.a.rows())?);
    let operator = Rc::new(PointBlock::bsr(space.as_ref(), &case.a, Precision::F64)?);
    let mut all = vec![(Of::Decomposed, Precision::F64), (Of::Decomposed, Precision::F32)];
    if whole {
        all.push((Of::Whole, Precision::F64));
    }
    for (of, precision) in all {
        if let Err(e) = one(p, case, (of, precision), &space, &operator, made) {
            made.failures.push(format!("Krylith ILDU(0), {of:?}, {precision:?}: {e}"));
        }
    }
    Ok(())
}

fn one<'a, P: Ground>(
    p: &'a P,
    case: &'a Case,
    (of, precision): (Of, Precision),
    shared: &Rc<P::Space>,
    operator: &Rc<PointBlock<P::Space>>,
    made: &mut Candidates<'a>,
) -> Result<()>
where
    P::Space: SubdomainFactors + 'a,
{
    let space = shared.as_ref();
    let (terms, options) = (Terms::bsr(&case.a), IlduOptions { precision, ..IlduOptions::default() });
    let (subdomains, cut) = p.timed(|| {
        Ok(match of {
            Of::Whole => Subdomains::whole(case.a.block_rows()),
            Of::Decomposed => Subdomains::boxes(case.grid, case.size),
        })
    })?;
    let (placed, upload) = p.timed(|| space.place(&terms))?;
    // The first ones may compile and load kernels, which is a cost per machine, not per matrix.
    space.analyse(&placed, &subdomains, 0)?;
    let (plan, analysis) = p.timed(|| space.analyse(&placed, &subdomains, 0))?;
    drop(Ildu::with_plan(space, &placed, plan.clone(), options)?);
    let (mut ildu, factors) = p.timed(|| Ildu::with_plan(space, &placed, plan.clone(), options))?;
    let again =
        (0..5).map(|_| p.time(&mut || ildu.update_values(space, &terms))).collect::<Result<Vec<_>>>()?;

    // The host's plan gives the device's order of elimination.
    let order = Plan::new(&terms, &subdomains, 0)?;
    let preconditioner =
        Rc::new(Preconditioner { space: shared.clone(), ildu: Rc::new(ildu), of, precision });
    let name = preconditioner.name();
    let steps = [
        ("partition", vec![cut]),
        ("upload", vec![upload]),
        ("plan", vec![analysis]),
        ("memory and first factorisation", vec![factors]),
    ];
    for (step, samples) in steps.into_iter().chain([("update_values", again)]) {
        made.setups.push(Setup { name: format!("{name}: {step}"), samples: Samples(samples) });
    }
    made.applications.push(Application {
        name,
        notes: String::new(),
        of,
        solves: Solves::All,
        // Positions are in the order of levels; elimination in this order gives the factors of the chosen
        // order.
        order: Some((order.rows, order.ptr)),
        ours: true,
        bytes: preconditioner.ildu.bytes(),
        // Rounding to f32 changes each factor by up to 6e-8 of its size, and these errors add up along a
        // chain of levels.
        tolerance: if precision == Precision::F32 { 1e-5 } else { TOLERANCE },
        vectors: OnSpace::new(shared, vec![Box::new(preconditioner.ildu.clone())])?,
    });
    let mut b = space.vector()?;
    space.write(&case.rhs, &mut b)?;
    made.solvers.push(Box::new(OurSolver {
        operator: operator.clone(),
        method: Bicgstab::new(space, BicgstabOptions::default())?,
        b,
        x: space.vector()?,
        zero: space.vector()?,
        setup: cut + upload + analysis + factors,
        preconditioner,
    }));
    Ok(())
}
