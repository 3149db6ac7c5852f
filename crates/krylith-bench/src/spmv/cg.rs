//! Conjugate gradients of a fixed number of iterations, as in Figs. 15 to 17 of the paper that `spmv/mod.rs`
//! names.
//!
//! Many of the 24 matrices are not symmetric, and no solution is expected: the result is the time of the
//! paper's 1,000 iterations.

use super::Plan;
use super::found::Row;
use super::ground::Ground;
use super::matrix::Case;
use super::multi::{self, Mode, Way, rows_of};
use super::unchecked::UncheckedCg;
use crate::samples::together;
use krylith_core::comm::{Communicator, Solo, Team};
use krylith_core::operator::{Gathered, LinearOperator, PointBlock};
use krylith_core::space::Space;
use krylith_core::{Precision, Result, Stop};
use std::sync::Arc;

/// CG on one device, the baseline of speed-ups.
pub(super) const ONE: &str = "CG on one device";
/// CG with distributed vectors and halo exchanges.
pub(super) const HALO: &str = "CG, distributed vectors";
/// CG with distributed vectors and parts of the graph.
pub(super) const GRAPH: &str = "CG, parts of the graph";

/// The paper's baseline: distributed vectors, gathered before every product.
pub(super) const COMP: &str = "CG(comp)";

/// Number of solves, of which the fastest counts; each has a thousand products, so times vary little.
const SOLVES: usize = 2;
/// Iterations of the first solve, which compiles and records.
const WARM: usize = 16;

pub(super) fn measure<G: Ground>(
    ground: &G,
    case: &Case,
    plan: &Plan,
    progress: &mut dyn FnMut(&str),
) -> Vec<Row> {
    let (iterations, ranks) = (plan.iterations, ground.ranks());
    progress(&format!("{}: {iterations} iterations of CG on one device", case.name));
    let mut rows = vec![row(ONE, 1, alone(ground, case, iterations))];
    if ranks == 1 {
        return rows;
    }
    if ground.launch().comm().is_none() {
        progress(&format!("{}: {iterations} iterations of {COMP} on {ranks} ranks", case.name));
        rows.push(row(COMP, ranks, comp(ground, case, iterations)));
    }
    let held = multi::held(ground, case);
    for way in multi::ways(case, ground) {
        let name = match &way {
            Way::Vector(_) | Way::Replicated(Mode::TwoNz | Mode::Staged { blocks: 4 | 16 } | Mode::Fused) => {
                continue;
            }
            Way::Replicated(mode) => format!("CG({mode})"),
            Way::Halo => HALO.into(),
            Way::Graph => GRAPH.into(),
        };
        progress(&format!("{}: {iterations} iterations of {name} on {ranks} ranks", case.name));
        let parts = way.parts(ground, case).map(|made| made.0);
        let a = held.as_ref().unwrap_or(&case.a);
        let done = parts.and_then(|parts| {
            multi::on_ranks(ground, (case, a), &way, &parts, |space, comm, operator, own, _| {
                solves(space, comm, operator, &own.of(&case.x), iterations)
            })
        });
        rows.push(row(&name, ranks, done));
    }
    rows
}

fn row(name: &str, ranks: usize, done: Result<Vec<f64>>) -> Row {
    match done {
        Ok(samples) => Row { name: name.into(), ranks, samples, ..Row::default() },
        Err(e) => Row { ranks, ..Row::failed(name, e) },
    }
}

fn alone<G: Ground>(ground: &G, case: &Case, iterations: usize) -> Result<Vec<f64>> {
    let space = ground.alone(0, case.rows())?;
    let operator = PointBlock::csr(&space, &case.a, Precision::F64)?;
    solves(&space, &Solo, &operator, &case.x, iterations)
}

fn comp<G: Ground>(ground: &G, case: &Case, iterations: usize) -> Result<Vec<f64>> {
    let rows = rows_of(&case.a, ground.ranks())?;
    let all = Team::run(ground.ranks(), |comm| {
        let comm: Arc<dyn Communicator> = comm;
        let own = rows[comm.rank()].clone();
        let space = ground.joined(&comm, own.len())?;
        let operator = Gathered::new(&space, &comm, &case.a)?;
        solves(&space, &*comm, &operator, &case.x[own], iterations)
    })?;
    Ok(all.into_iter().next().unwrap_or_default())
}

fn solves<S: Space>(
    space: &S,
    comm: &dyn Communicator,
    operator: &dyn LinearOperator<S>,
    rhs: &[f64],
    iterations: usize,
) -> Result<Vec<f64>> {
    let mut cg = UncheckedCg::new(space, ())?;
    let (mut b, mut x) = (space.vector()?, space.vector()?);
    space.write(rhs, &mut b)?;
    let zero = space.vector()?;
    let mut seconds = Vec::new();
    for solve in 0..=SOLVES {
        space.copy(&zero, &mut x)?;
        let max_iters = if solve == 0 { WARM.min(iterations) } else { iterations };
        let stop = Stop { rtol: 0.0, atol: 0.0, max_iters, ..Stop::DEFAULT };
        let taken = together(space, comm, || {
            cg.solve(space, operator, None, &b, &mut x, &stop, &mut ()).map(|_| ())
        })?;
        if solve > 0 {
            seconds.push(taken);
        }
    }
    Ok(seconds)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::Asked;
    use krylith_core::device::cpu::Cpu;
    use krylith_core::matrix::Csr;
    use krylith_core::method::{Cg, CgOptions, Method};

    /// Returns iterations and norms.
    fn history<M: Method<Cpu>>(a: &Csr, max_iters: usize, make: fn(&Cpu) -> Result<M>) -> (usize, Vec<f64>) {
        let space = Cpu::new(a.rows(), 1);
        let operator = PointBlock::csr(&space, a, Precision::F64).unwrap();
        let (b, mut x) = (vec![1.0; a.rows()], vec![0.0; a.rows()]);
        let stop = Stop { rtol: 0.0, atol: 0.0, max_iters, ..Stop::DEFAULT };
        let mut cg = make(&space).unwrap();
        let made = cg.solve(&space, &operator, None, &b, &mut x, &stop, &mut ()).unwrap();
        (made.iterations, made.residuals.clone())
    }

    #[test]
    fn a_fixed_number_of_iterations_is_the_textbook_s_and_ends_for_nothing() {
        let unchecked = |space: &Cpu| UncheckedCg::new(space, ());
        let textbook = |space: &Cpu| Cg::new(space, CgOptions::default());
        let laplace = Case::new("laplace:6x5x4", &Plan::new(&Asked::default()).unwrap()).unwrap().a;
        assert_eq!(history(&laplace, 12, unchecked), history(&laplace, 12, textbook));
        // (p, A p) changes sign at once, which must not stop the iteration.
        let n = 50;
        let values = (0..n).map(|i| if i % 3 == 0 { -2.0 - i as f64 } else { 1.0 + i as f64 }).collect();
        let indefinite = Csr::new(n, n, (0..=n).collect(), (0..n as u32).collect(), values).unwrap();
        assert!(history(&indefinite, 40, textbook).0 < 40);
        assert_eq!(history(&indefinite, 40, unchecked).0, 40);
    }
}
