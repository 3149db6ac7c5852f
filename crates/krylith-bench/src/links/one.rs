//! Kernels of one device: times of a product and of an orthogonalisation at several sizes, within GMRES(30).

use super::{Ground, Plan, RESTART, per_step};
use crate::samples::repeated;
use crate::systems::{self, Case};
use krylith_core::method::gmres::{Arrays, Scalars, delayed_step};
use krylith_core::method::{Gmres, GmresOptions};
use krylith_core::operator::{LinearOperator, PointBlock, Terms};
use krylith_core::space::{BATCH, FLAGS, LIMIT, Schedule, Space};
use krylith_core::{Error, Precision, Result, Stop};
use krylith_model::{Machine, cycle_bytes, orthogonalization_bytes};
use std::time::Instant;

krylith_core::sweeps! {
    /// A pass so short that only its launch costs time.
    pub(super) const SWEEPS;
    /// y += x.
    touch: () [x] [y] -> [] { y += x; }
}

/// Fills the machine's data on one device; a failure leaves a note.
pub(super) fn measure<G: Ground>(
    ground: &G,
    plan: &Plan,
    machine: &mut Machine,
    progress: &mut dyn FnMut(&str),
) {
    progress("read bandwidth, and a launch in a graph");
    match ground.read() {
        Ok(read) if read.is_finite() && read > 0.0 => machine.read = read,
        Ok(read) => machine.notes.push(format!("read bandwidth: {read}")),
        Err(e) => machine.notes.push(format!("read bandwidth: {e}")),
    }
    match launch(ground, plan) {
        Ok(seconds) => machine.launch = seconds,
        Err(e) => machine.notes.push(format!("a launch in a graph: {e}")),
    }
    for &mesh in &plan.meshes {
        let [x, y, z] = mesh;
        progress(&format!("GMRES({RESTART}) and its orthogonalisation on one GPU, {x}×{y}×{z} nodes"));
        if let Err(e) = size(ground, plan, mesh, machine) {
            progress(&format!("{x}×{y}×{z} nodes: {e}"));
            machine.notes.push(format!("one GPU, {x}×{y}×{z} nodes: {e}"));
        }
    }
}

fn launch<G: Ground>(ground: &G, plan: &Plan) -> Result<f64> {
    let space = ground.alone(0, plan.short)?;
    let (x, mut y, mut scalars) = (space.vector()?, space.vector()?, space.scalars(1)?);
    per_step(&space, plan, 4 * plan.repeats, |s| s.sweep(touch, &mut scalars, [], [&x], [&mut y], []))
}

/// Measures one size: the product's time is that of GMRES minus orthogonalisation and the passes of a cycle.
fn size<G: Ground>(ground: &G, plan: &Plan, mesh: [usize; 3], machine: &mut Machine) -> Result<()> {
    let case = systems::stokes(mesh)?;
    let unknowns = case.kronecker.rows();
    let space = ground.alone(0, unknowns)?;
    let orthogonalization = orthogonalization(&space, plan)?;
    let bytes = orthogonalization_bytes(unknowns as f64, RESTART);
    machine.kernels.orthogonalization.0.push([bytes, orthogonalization]);
    let m = RESTART as f64;
    let passes = cycle_bytes(unknowns as f64, RESTART) / machine.read;
    for dense in [true, false] {
        let (bytes, iteration) = iteration(&space, plan, &case, dense)?;
        let product = m / (m + 1.0) * (iteration - orthogonalization) - passes / (m + 1.0);
        if !(product > 0.0) {
            return Err(Error::invalid(format!(
                "an iteration takes {iteration:e} s, too little for its orthogonalisation \
                 ({orthogonalization:e} s) and the end of a cycle"
            )));
        }
        let curve = if dense { &mut machine.kernels.dense } else { &mut machine.kernels.structured };
        curve.0.push([bytes, product]);
    }
    Ok(())
}

/// Returns the seconds of a mean step of a cycle: projection and update against 0, 1, …, m − 1 columns.
fn orthogonalization<S: Space>(space: &S, plan: &Plan) -> Result<f64> {
    let layout = Arrays::at(RESTART);
    let mut random = systems::Random(5);
    let (mut w, mut z) = (space.vector()?, space.vector()?);
    let (mut v, mut scalars) = (space.basis(RESTART, Precision::F64)?, space.scalars(layout.len)?);
    let numbers = random.numbers(space.len());
    space.write(&numbers, &mut z)?;
    space.write(&numbers, &mut w)?;
    let mut flags = [0; FLAGS];
    (flags[LIMIT], flags[BATCH]) = (i32::MAX, RESTART as i32);
    space.write_scalars(&mut scalars, 0, &[1.0; Scalars::LEN], &flags)?;
    // Without a guard nothing halts, whatever the numbers become, and all data are moved.
    space.guard(None);
    let cycle = per_step(space, plan, 1, |s| {
        (0..RESTART).try_for_each(|j| {
            s.project_pair(&v, j, &w, &z, &mut scalars, layout.dots)?;
            s.update_pair(&mut v, j, &mut w, &z, &mut scalars, layout.dots, delayed_step)
        })
    })?;
    Ok(cycle / RESTART as f64)
}

/// Returns the bytes of a product, and the seconds of an iteration of GMRES(30).
fn iteration<S: krylith_core::operator::PointBlockSum>(
    space: &S,
    plan: &Plan,
    case: &Case,
    dense: bool,
) -> Result<(f64, f64)> {
    let operator = PointBlock::new(space, &Terms::kronecker(&case.kronecker), Precision::F64, dense)?;
    let mut gmres = Gmres::new(space, GmresOptions { restart: RESTART, ..GmresOptions::default() })?;
    let (mut b, mut x, zero) = (space.vector()?, space.vector()?, space.vector()?);
    space.write(&case.rhs, &mut b)?;
    let stop = Stop { rtol: 0.0, atol: 0.0, max_iters: plan.iterations, ..Stop::DEFAULT };
    let samples = repeated(2, plan.samples, || {
        space.copy(&zero, &mut x)?;
        space.wait()?;
        let begin = Instant::now();
        let taken = gmres.solve(space, &operator, None, &b, &mut x, &stop, &mut ())?.iterations;
        space.wait()?;
        match taken {
            0 => Err(Error::invalid("GMRES took no iteration")),
            _ => Ok(begin.elapsed().as_secs_f64() / taken as f64),
        }
    })?;
    Ok((operator.bytes() as f64, samples.median()))
}
