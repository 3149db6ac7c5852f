//! GMRES by the vendor's libraries, vectors stage after stage: Gram–Schmidt modified (CU-Solver) or classical twice.

use super::products::CuSolver;
use super::vendor::Vendor;
use crate::platform::{Orthogonalizer, STEPS};
use crate::systems::Random;
use crate::textbook::Machine;
use cudarc::driver::CudaEvent;
use cudarc::driver::sys::CUevent_flags;
use krylith::Result;
use krylith::device::cuda::Buffer;
use krylith::io::{from_stage_by_stage, to_stage_by_stage};
use krylith::matrix::KroneckerSum;
use krylith::space::{Phase, Phases};
use std::rc::Rc;

/// How a vector is made orthogonal to the basis.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum How {
    /// `cublasDdot` and `cublasDaxpy` a column, as the paper's CU-Solver: the host holds every scalar.
    Mgs,
    /// `cublasDgemv` four times; one wait a step, for the norm, by which the coefficients have arrived too.
    Cgs2,
}

impl How {
    fn name(self) -> &'static str {
        match self {
            How::Mgs => "cuBLAS MGS (dot + axpy)",
            How::Cgs2 => "cuBLAS CGS2 (gemv)",
        }
    }
}

/// Sums over the ranks that share a vector.
pub(super) trait Sums {
    /// Of numbers on the host.
    fn host(&self, values: &mut [f64]) -> Result<()>;
    /// Of `n` numbers at a device address, in stream order.
    fn device(&self, at: u64, n: usize) -> Result<()>;
    /// ‖x‖ on the host; waits.
    fn norm(&self, vendor: &Vendor, n: usize, x: u64) -> Result<f64> {
        let mut square = [vendor.dot(n, x, x)?];
        self.host(&mut square)?;
        Ok(square[0].sqrt())
    }
}

/// One GPU has nobody to sum with.
struct Alone;

impl Sums for Alone {
    fn host(&self, _: &mut [f64]) -> Result<()> {
        Ok(())
    }
    fn device(&self, _: u64, _: usize) -> Result<()> {
        Ok(())
    }
    fn norm(&self, vendor: &Vendor, n: usize, x: u64) -> Result<f64> {
        vendor.norm(n, x)
    }
}

/// Makes `w` orthonormal to the first `columns` columns of `v`; `h` receives the coefficients and the norm.
pub(super) fn orthogonalize(
    vendor: &Vendor,
    sums: &dyn Sums,
    how: How,
    n: usize,
    columns: usize,
    v: u64,
    w: u64,
    scratch: u64,
    h: &mut [f64],
) -> Result<()> {
    match how {
        How::Mgs => {
            for k in 0..columns {
                let vk = v + 8 * (k * n) as u64;
                h[k] = vendor.dot(n, vk, w)?;
                sums.host(&mut h[k..=k])?;
                vendor.axpy(n, -h[k], vk, w)?;
            }
            h[columns] = sums.norm(vendor, n, w)?;
        }
        How::Cgs2 => {
            // Slot 0 of the pinned memory is the norm's.
            for pass in 0..2 {
                let c = scratch + 8 * (pass * columns) as u64;
                vendor.gemv(true, (n, columns), 1.0, v, w, 0.0, c)?;
                sums.device(c, columns)?;
                vendor.gemv(false, (n, columns), -1.0, v, c, 1.0, w)?;
            }
            vendor.fetch(scratch, 1, 2 * columns)?;
            h[columns] = sums.norm(vendor, n, w)?;
            for k in 0..columns {
                h[k] = vendor.pinned(1 + k) + vendor.pinned(1 + columns + k);
            }
        }
    }
    vendor.scale(n, 1.0 / h[columns], w)
}

/// [`STEPS`] vectors against a basis of fixed size.
pub(super) struct VendorOrthogonalizer {
    vendor: Rc<Vendor>,
    how: How,
    n: usize,
    columns: usize,
    v: Buffer<f64>,
    fresh: Buffer<f64>,
    w: Buffer<f64>,
    scratch: Buffer<f64>,
    h: Vec<f64>,
}

impl VendorOrthogonalizer {
    pub fn new(vendor: &Rc<Vendor>, how: How, n: usize, columns: usize) -> Result<Self> {
        let mut random = Random(77);
        let device = &vendor.device;
        let v = device.upload(&random.numbers(n * columns), "a basis")?;
        let fresh = device.upload(&random.numbers(n * STEPS), "vectors")?;
        let (w, scratch) = (vendor.zeros(n * STEPS)?, vendor.zeros(2 * columns)?);
        let mut h = vec![0.0; columns + 1];
        for k in 0..columns {
            // Twice, so that the basis is orthonormal to rounding.
            for _ in 0..2 {
                let (basis, column, scratch) = (v.pointer(), v.at(k * n), scratch.pointer());
                orthogonalize(vendor, &Alone, How::Mgs, n, k, basis, column, scratch, &mut h)?;
            }
        }
        Ok(Self { vendor: vendor.clone(), how, n, columns, v, fresh, w, scratch, h })
    }
}

impl Orthogonalizer for VendorOrthogonalizer {
    fn name(&self) -> String {
        self.how.name().into()
    }
    fn refresh(&mut self) -> Result<()> {
        self.vendor.copy(self.fresh.pointer(), self.w.pointer(), self.fresh.len())
    }
    fn run(&mut self) -> Result<()> {
        for i in 0..STEPS {
            let (v, w, scratch) = (self.v.pointer(), self.w.at(i * self.n), self.scratch.pointer());
            orthogonalize(&self.vendor, &Alone, self.how, self.n, self.columns, v, w, scratch, &mut self.h)?;
        }
        Ok(())
    }
    fn defect(&mut self) -> Result<f64> {
        let w = self.w.at((STEPS - 1) * self.n);
        let mut sum = (1.0 - self.vendor.dot(self.n, w, w)?).powi(2);
        for k in 0..self.columns {
            sum += self.vendor.dot(self.n, self.v.at(k * self.n), w)?.powi(2);
        }
        Ok(sum.sqrt())
    }
    fn tolerance(&self) -> f64 {
        1e-11
    }
}

/// What GMRES by the vendor's libraries holds on a device: basis, right-hand side, answer.
pub(super) struct Vectors {
    vendor: Rc<Vendor>,
    how: How,
    stages: usize,
    n: usize,
    v: Buffer<f64>,
    b: Buffer<f64>,
    x: Buffer<f64>,
    scratch: Buffer<f64>,
}

impl Vectors {
    pub fn new(vendor: &Rc<Vendor>, how: How, rhs: &[f64], stages: usize, restart: usize) -> Result<Self> {
        let n = rhs.len();
        Ok(Self {
            vendor: vendor.clone(),
            how,
            stages,
            n,
            v: vendor.zeros(n * (restart + 1))?,
            b: vendor.device.upload(&to_stage_by_stage(rhs, stages), "b")?,
            x: vendor.zeros(n)?,
            scratch: vendor.zeros(2 * (restart + 1))?,
        })
    }
    pub fn column(&self, j: usize) -> u64 {
        self.v.at(j * self.n)
    }
    pub fn x(&self) -> u64 {
        self.x.pointer()
    }
    pub fn reset(&self) -> Result<()> {
        self.vendor.fill(self.x(), self.n, 0)
    }
    /// v₀ = (b − A x)/β, where v₀ holds A x; β.
    pub fn start(&self, sums: &dyn Sums) -> Result<f64> {
        let (n, v0, vendor) = (self.n, self.column(0), &self.vendor);
        vendor.scale(n, -1.0, v0)?;
        vendor.axpy(n, 1.0, self.b.pointer(), v0)?;
        let beta = sums.norm(vendor, n, v0)?;
        vendor.scale(n, 1.0 / beta, v0)?;
        Ok(beta)
    }
    pub fn orthogonalize(&self, sums: &dyn Sums, j: usize, h: &mut [f64]) -> Result<()> {
        let (v, w, scratch) = (self.v.pointer(), self.column(j + 1), self.scratch.pointer());
        orthogonalize(&self.vendor, sums, self.how, self.n, j + 1, v, w, scratch, h)
    }
    pub fn correct(&mut self, y: &[f64]) -> Result<()> {
        let vendor = &self.vendor;
        match self.how {
            How::Mgs => (0..y.len()).try_for_each(|i| vendor.axpy(self.n, y[i], self.column(i), self.x())),
            How::Cgs2 => {
                // The pageable source is read before the copy returns.
                vendor.device.write(y, &mut self.scratch, 0)?;
                let (v, c, x) = (self.v.pointer(), self.scratch.pointer(), self.x.pointer());
                vendor.gemv(false, (self.n, y.len()), 1.0, v, c, 1.0, x)
            }
        }
    }
    pub fn solution(&self) -> Result<Vec<f64>> {
        Ok(from_stage_by_stage(&self.vendor.read(&self.x)?, self.stages))
    }
}

/// GMRES with CU-Solver's product.
pub(super) struct VendorMachine {
    product: CuSolver,
    vectors: Vectors,
    marks: Vec<(Phase, CudaEvent)>,
    timing: bool,
}

impl VendorMachine {
    pub fn new(vendor: &Rc<Vendor>, how: How, k: &KroneckerSum, rhs: &[f64], restart: usize) -> Result<Self> {
        let product = CuSolver::new(vendor, k, 1)?;
        let vectors = Vectors::new(vendor, how, rhs, k.stages(), restart)?;
        Ok(Self { product, vectors, marks: Vec::new(), timing: false })
    }
}

impl Machine for VendorMachine {
    fn name(&self) -> String {
        match self.vectors.how {
            How::Mgs => "CU-Solver (MGS)".into(),
            How::Cgs2 => "CU kernels, CGS2 by gemv".into(),
        }
    }
    fn reset(&mut self) -> Result<()> {
        self.vectors.reset()
    }
    fn start(&mut self) -> Result<f64> {
        self.mark(Phase::Product);
        self.product.multiply(0, self.vectors.x(), self.vectors.column(0))?;
        self.mark(Phase::Other);
        self.vectors.start(&Alone)
    }
    fn product(&mut self, j: usize) -> Result<()> {
        self.product.multiply(0, self.vectors.column(j), self.vectors.column(j + 1))
    }
    fn orthogonalize(&mut self, j: usize, h: &mut [f64]) -> Result<()> {
        self.vectors.orthogonalize(&Alone, j, h)
    }
    fn correct(&mut self, y: &[f64]) -> Result<()> {
        self.vectors.correct(y)
    }
    fn mark(&mut self, phase: Phase) {
        let stream = self.vectors.vendor.device.stream();
        if self.timing
            && let Ok(event) = stream.record_event(Some(CUevent_flags::CU_EVENT_DEFAULT))
        {
            self.marks.push((phase, event));
        }
    }
    fn keep_time(&mut self, on: bool) {
        self.timing = on;
        self.marks.clear();
    }
    fn take_phases(&mut self) -> Phases {
        self.mark(Phase::Other);
        let mut phases = Phases::default();
        for pair in self.marks.windows(2) {
            let milliseconds = pair[0].1.elapsed_ms(&pair[1].1).unwrap_or(0.0);
            phases.add(pair[0].0, milliseconds as f64 * 1e-3);
        }
        self.marks.clear();
        phases
    }
    fn solution(&mut self) -> Result<Vec<f64>> {
        self.vectors.solution()
    }
}
