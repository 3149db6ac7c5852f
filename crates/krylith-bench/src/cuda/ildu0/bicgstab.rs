//! BiCGSTAB (van der Vorst 1992; Alg. 2.1 of the paper that `ildu0/mod.rs` names) with right preconditioning,
//! from the vendor's libraries: cuSPARSE's faster product, cuBLAS's dots, one kernel per update.
//!
//! Scalars stay on the device; one number per iteration returns to the host, ‖r‖ for the stopping test.

use super::Map;
use super::kernels::{Arg, File, Kernel, Loaded};
use crate::cuda::products::Matrix;
use crate::cuda::vendor::Vendor;
use crate::ildu0::Solver;
use crate::ildu0::system::SubdomainSystem;
use krylith_core::Result;
use krylith_core::device::cuda::Buffer;
use std::rc::Rc;

pub(super) struct Modules {
    single: Loaded,
    many: Loaded,
}

impl Modules {
    pub fn load(vendor: &Rc<Vendor>, block: usize) -> Result<Self> {
        Ok(Self {
            single: File::BiCgStab.load(vendor, block, 1)?,
            many: File::BiCgStab.load(vendor, block, THREADS)?,
        })
    }
}

/// Indices of the scalars, as in bicgstab.cu.
#[derive(Clone, Copy)]
enum Scalar {
    Rho,
    ShadowV = 2,
    Ts,
    Tt,
    Rr,
}

/// Number of scalars in bicgstab.cu.
const SCALARS: usize = 9;
const THREADS: usize = 256;

/// The solver with its vectors, in the order of its system.
pub(super) struct BiCgStab<'a> {
    vendor: Rc<Vendor>,
    matrix: Rc<Matrix>,
    name: String,
    map: Map,
    system: &'a SubdomainSystem,
    setup: f64,
    n: usize,
    b: Buffer<f64>,
    x: Buffer<f64>,
    r: Buffer<f64>,
    p: Buffer<f64>,
    v: Buffer<f64>,
    t: Buffer<f64>,
    p_hat: Buffer<f64>,
    s_hat: Buffer<f64>,
    scalars: Buffer<f64>,
    steps: [Kernel; 3],
    updates: [Kernel; 3],
}

impl<'a> BiCgStab<'a> {
    /// Creates the solver: `matrix` has the order of `system`, which `map` preconditions; `rhs` has the order
    /// of the given matrix.
    pub fn new(
        vendor: &Rc<Vendor>,
        matrix: &Rc<Matrix>,
        system: &'a SubdomainSystem,
        rhs: &[f64],
        map: (String, Map),
        setup: f64,
    ) -> Result<Self> {
        let b = vendor.device.upload(&system.sort(rhs), "the right-hand side")?;
        Self::around(vendor, matrix.clone(), system, b, map, setup, &Modules::load(vendor, system.a.block())?)
    }

    /// Creates the solver for any product, with b on the device.
    pub fn around(
        vendor: &Rc<Vendor>,
        matrix: Rc<Matrix>,
        system: &'a SubdomainSystem,
        b: Buffer<f64>,
        (name, map): (String, Map),
        setup: f64,
        modules: &Modules,
    ) -> Result<Self> {
        let n = system.len();
        let Modules { single, many: module } = modules;
        let new = || vendor.zeros(n);
        Ok(Self {
            vendor: vendor.clone(),
            matrix,
            name,
            map,
            system,
            setup,
            n,
            b,
            x: new()?,
            r: new()?,
            p: new()?,
            v: new()?,
            t: new()?,
            p_hat: new()?,
            s_hat: new()?,
            scalars: vendor.zeros(SCALARS)?,
            steps: single.kernels(["first_scalars", "second_scalars", "third_scalars"])?,
            updates: module.kernels(["direction", "half_step", "finish"])?,
        })
    }

    fn step(&self, which: usize) -> Result<()> {
        self.steps[which].launch(1, &[Arg::Pointer(self.scalars.pointer())])
    }
    fn update(&self, which: usize, vectors: &[&Buffer<f64>]) -> Result<()> {
        let mut args = vec![Arg::Int(self.n as i32), Arg::Pointer(self.scalars.pointer())];
        args.extend(vectors.iter().map(|v| Arg::Pointer(v.pointer())));
        let most = 8 * self.vendor.device.multiprocessors();
        self.updates[which].launch(self.n.div_ceil(THREADS).min(most), &args)
    }
    fn dot(&self, x: &Buffer<f64>, y: &Buffer<f64>, to: Scalar) -> Result<()> {
        self.vendor.dot_on_device(self.n, x.pointer(), y.pointer(), self.scalars.at(to as usize))
    }
    /// Computes z = K⁻¹ x and y = A z.
    fn product(&self, x: &Buffer<f64>, z: &Buffer<f64>, y: &Buffer<f64>) -> Result<()> {
        (self.map)(x.pointer(), z.pointer())?;
        self.matrix.multiply(z.pointer(), 0.0, y.pointer())
    }
    /// Returns the buffer of x.
    pub fn x(&self) -> &Buffer<f64> {
        &self.x
    }
    /// Returns ‖r‖; waits.
    fn residual(&self) -> Result<f64> {
        self.dot(&self.r, &self.r, Scalar::Rr)?;
        self.vendor.fetch(self.scalars.at(Scalar::Rr as usize), 0, 1)?;
        self.vendor.device.wait()?;
        Ok(self.vendor.pinned(0).sqrt())
    }
}

impl Solver for BiCgStab<'_> {
    fn name(&self) -> String {
        self.name.clone()
    }
    fn setup(&self) -> f64 {
        self.setup
    }
    fn solve(&mut self, rtol: f64, most: usize) -> Result<Vec<f64>> {
        let v = &self.vendor;
        // x = 0, so r = r̂ = b; β, ω and v start at zero, so the first direction is r.
        for zero in [&self.x, &self.p, &self.v, &self.scalars] {
            v.fill(zero.pointer(), zero.len(), 0)?;
        }
        v.copy(self.b.pointer(), self.r.pointer(), self.n)?;
        self.dot(&self.b, &self.r, Scalar::Rho)?;
        let norm = self.residual()?;
        let mut residuals = vec![1.0];
        while residuals.last().is_some_and(|r| *r > rtol) && residuals.len() <= most {
            self.update(0, &[&self.r, &self.v, &self.p])?;
            self.product(&self.p, &self.p_hat, &self.v)?;
            self.dot(&self.b, &self.v, Scalar::ShadowV)?;
            self.step(0)?;
            self.update(1, &[&self.v, &self.r])?;
            self.product(&self.r, &self.s_hat, &self.t)?;
            self.dot(&self.t, &self.r, Scalar::Ts)?;
            self.dot(&self.t, &self.t, Scalar::Tt)?;
            self.step(1)?;
            self.update(2, &[&self.p_hat, &self.s_hat, &self.t, &self.x, &self.r])?;
            self.dot(&self.b, &self.r, Scalar::Rho)?;
            self.step(2)?;
            residuals.push(self.residual()? / norm);
        }
        Ok(residuals)
    }
    fn solution(&mut self) -> Result<Vec<f64>> {
        Ok(self.system.unsort(&self.vendor.read(&self.x)?))
    }
}
