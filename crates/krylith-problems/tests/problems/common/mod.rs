//! Steps of the Stokes duct with a sparse direct solver: a reference for orders of convergence.
#![allow(dead_code)] // each test uses a part

pub mod lu;
pub mod meshes;
pub mod newton;

use krylith_core::matrix::{Bsr, Butcher};
use krylith_problems::{StokesDuct, StokesSteps};
use lu::Lu;

/// y = A x.
pub fn apply(a: &Bsr, x: &[f64]) -> Vec<f64> {
    let csr = a.to_csr();
    (0..csr.rows())
        .map(|i| {
            let (col, values) = csr.row(i);
            col.iter().zip(values).map(|(&j, v)| v * x[j as usize]).sum()
        })
        .collect()
}

/// A duct, its steps and its factors.
pub struct Solver {
    steps: StokesSteps,
    lu: Lu,
    rhs: Vec<f64>,
}

impl Solver {
    pub fn new(duct: &StokesDuct, scheme: &str, tau: f64) -> Self {
        let butcher = Butcher::by_name(scheme).unwrap();
        let system = duct.kronecker(&butcher, tau).unwrap();
        let rhs = vec![0.0; system.rows()];
        Self { steps: duct.steps(&butcher, tau).unwrap(), lu: Lu::new(&system.assemble().to_csr()), rhs }
    }

    /// One step from `t`; the stage derivatives are left in `self.stages()`.
    pub fn step(&mut self, t: f64, u: &mut [f64]) {
        self.steps.rhs_into(t, u, &mut self.rhs).unwrap();
        self.lu.solve(&mut self.rhs);
        self.steps.advance(&self.rhs, u).unwrap();
    }

    pub fn stages(&self) -> &[f64] {
        &self.rhs
    }
}

/// The state at `end` after `count` equal steps from rest at t = 0.
pub fn march(duct: &StokesDuct, scheme: &str, end: f64, count: usize) -> Vec<f64> {
    let tau = end / count as f64;
    let mut solver = Solver::new(duct, scheme, tau);
    let mut u = vec![0.0; duct.mass.rows()];
    for n in 0..count {
        solver.step(n as f64 * tau, &mut u);
    }
    u
}

/// Largest difference of velocities and of pressures.
pub fn difference(u: &[f64], v: &[f64]) -> [f64; 2] {
    let mut worst = [0.0f64; 2];
    for (i, (a, b)) in u.iter().zip(v).enumerate() {
        let kind = usize::from(i % 4 == 3);
        worst[kind] = worst[kind].max((a - b).abs());
    }
    worst
}
