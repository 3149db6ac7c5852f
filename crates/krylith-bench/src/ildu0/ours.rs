//! Krylith's own entries of the suite: `precond::Ildu` on the case's boxes, and BiCGSTAB with it.
//!
//! The one place where the suite meets them; a device that implements `SubdomainFactors` calls [`add`] from its
//! `Ground::ours`. What is added here is checked, timed and reported like every baseline.

use super::{Application, Candidates, Case, Ground, Of, Setup, Solver, Solves, TOLERANCE, Vectors};
use crate::samples::Samples;
use krylith::method::{Bicgstab, BicgstabOptions};
use krylith::operator::{LinearOperator, PointBlock, PointBlockSum, Terms};
use krylith::partition::Subdomains;
use krylith::precond::{Ildu, IlduOptions, Plan, SubdomainFactors};
use krylith::space::Space;
use krylith::{Error, Result, Stop, Store};
use std::rc::Rc;

struct Preconditioner<S: SubdomainFactors> {
    space: Rc<S>,
    ildu: Ildu<S>,
    of: Of,
    store: Store,
}

impl<S: SubdomainFactors> Preconditioner<S> {
    fn name(&self) -> String {
        let matrix = if self.of == Of::Whole { ", whole matrix" } else { "" };
        let store = if self.store == Store::F32 { ", f32 factors" } else { "" };
        format!("Krylith ILDU(0){matrix}{store}")
    }
}

struct Ours<S: SubdomainFactors> {
    preconditioner: Rc<Preconditioner<S>>,
    x: S::Vector,
    y: S::Vector,
}

impl<S: SubdomainFactors> Vectors for Ours<S> {
    fn write(&mut self, x: &[f64]) -> Result<()> {
        self.preconditioner.space.write(x, &mut self.x)
    }
    fn poison(&mut self) -> Result<()> {
        let space = &self.preconditioner.space;
        space.write(&vec![f64::NAN; space.len()], &mut self.y)
    }
    fn apply(&mut self) -> Result<()> {
        self.preconditioner.ildu.apply(&self.preconditioner.space, &self.x, &mut self.y)
    }
    fn read(&mut self) -> Result<Vec<f64>> {
        let mut host = vec![0.0; self.preconditioner.space.len()];
        self.preconditioner.space.read(&self.y, &mut host)?;
        Ok(host)
    }
}

/// BiCGSTAB with one of them.
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
        let stop = Stop { rtol, atol: 0.0, max_iterations: most };
        space.copy(&self.zero, &mut self.x)?;
        let (a, b, x) = (self.operator.as_ref(), &self.b, &mut self.x);
        let history = self.method.solve(space, a, Some(ildu), b, x, &stop, &mut ())?;
        Ok(history.residuals.clone())
    }
    fn solution(&mut self) -> Result<Vec<f64>> {
        let mut host = vec![0.0; self.preconditioner.space.len()];
        self.preconditioner.space.read(&self.x, &mut host)?;
        Ok(host)
    }
}

/// Adds Krylith's applications and solvers: on the boxes in f64 and f32, and `whole` as one subdomain where the device
/// takes any size. One that fails is listed and leaves the others.
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
    let operator = Rc::new(PointBlock::bsr(space.as_ref(), &case.a, Store::F64)?);
    let mut all = vec![(Of::Decomposed, Store::F64), (Of::Decomposed, Store::F32)];
    if whole {
        all.push((Of::Whole, Store::F64));
    }
    for (of, store) in all {
        if let Err(e) = one(p, case, (of, store), &space, &operator, made) {
            made.failures.push(format!("Krylith ILDU(0), {of:?}, {store:?}: {e}"));
        }
    }
    Ok(())
}

fn one<'a, P: Ground>(
    p: &'a P,
    case: &'a Case,
    (of, store): (Of, Store),
    shared: &Rc<P::Space>,
    operator: &Rc<PointBlock<P::Space>>,
    made: &mut Candidates<'a>,
) -> Result<()>
where
    P::Space: SubdomainFactors + 'a,
{
    let space = shared.as_ref();
    let (terms, options) = (Terms::bsr(&case.a), IlduOptions { store, ..IlduOptions::default() });
    let (mut subdomains, mut plan, mut ildu) = (None, None, None);
    let cut = p.time(&mut || {
        subdomains = Some(match of {
            Of::Whole => Subdomains::whole(case.a.block_rows()),
            Of::Decomposed => Subdomains::boxes(case.grid, case.size),
        });
        Ok(())
    })?;
    let missing = || Error::invalid("the clock did not run the work");
    let subdomains = subdomains.ok_or_else(missing)?;
    let mut placed = None;
    let upload = p.time(&mut || {
        placed = Some(space.place(&terms)?);
        Ok(())
    })?;
    let placed = placed.ok_or_else(missing)?;
    // The first ones may compile and load kernels, which is paid once a machine and not once a matrix.
    space.analyse(&placed, &subdomains, 0)?;
    let analysis = p.time(&mut || {
        plan = Some(space.analyse(&placed, &subdomains, 0)?);
        Ok(())
    })?;
    let plan = plan.ok_or_else(missing)?;
    drop(Ildu::with_plan(space, &placed, plan.clone(), options)?);
    let factors = p.time(&mut || {
        ildu = Some(Ildu::with_plan(space, &placed, plan.clone(), options)?);
        Ok(())
    })?;
    let mut ildu = ildu.ok_or_else(missing)?;
    let again =
        (0..5).map(|_| p.time(&mut || ildu.update_values(space, &terms))).collect::<Result<Vec<_>>>()?;

    // The host's plan says in what order the device eliminates.
    let order = Plan::new(&terms, &subdomains, 0)?;
    let preconditioner = Rc::new(Preconditioner { space: shared.clone(), ildu, of, store });
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
    let (x, y) = (space.vector()?, space.vector()?);
    made.applications.push(Application {
        name,
        notes: String::new(),
        of,
        solves: Solves::All,
        // Positions are in the order of levels, in which elimination gives the factors of the order that was chosen.
        order: Some((order.rows, order.ptr)),
        ours: true,
        bytes: preconditioner.ildu.bytes(),
        // Rounding a factor to f32 changes it by up to 6e-8 of itself, along every chain of levels.
        tolerance: if store == Store::F32 { 1e-5 } else { TOLERANCE },
        vectors: Box::new(Ours { preconditioner: preconditioner.clone(), x, y }),
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
