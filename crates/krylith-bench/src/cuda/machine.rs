//! GMRES by the vendor's libraries, with vectors stored stage by stage, and Gram–Schmidt as CU-Solver has it
//! or faster.

use super::gram_schmidt::GramSchmidt;
use super::vendor::Vendor;
use crate::platform::{Orthogonalizer, STEPS};
use crate::systems::Random;
use crate::textbook::{Machine, Part, Times};
use cudarc::driver::CudaEvent;
use krylith_core::device::cuda::Buffer;
use krylith_core::io::{from_stage_by_stage, to_stage_by_stage};
use krylith_core::{Error, Result};
use std::cell::{Cell, RefCell};
use std::rc::Rc;

/// The orthogonalisation of a vector against the basis.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum How {
    /// `cublasDdot` and `cublasDaxpy` per column, as in CU-Solver of the OKP paper: the host holds every
    /// scalar.
    Mgs,
    /// `cublasDgemv` four times, and one wait per step, for coefficients and norm.
    Cgs2,
    /// MGS with one kernel per column, and the wait of [`How::Cgs2`].
    FusedMgs,
    /// CGS2 with three passes over the basis, and the wait of [`How::Cgs2`].
    FusedCgs2,
}

impl How {
    pub const ALL: [Self; 4] = [Self::Mgs, Self::Cgs2, Self::FusedMgs, Self::FusedCgs2];

    fn name(self) -> &'static str {
        match self {
            How::Mgs => "cuBLAS MGS (dot + axpy)",
            How::Cgs2 => "cuBLAS CGS2 (gemv)",
            How::FusedMgs => "fused MGS (a kernel a column)",
            How::FusedCgs2 => "fused CGS2 (three passes)",
        }
    }

    /// Returns the name in the name of a solver.
    pub fn short(self) -> &'static str {
        match self {
            How::Mgs => "MGS",
            How::Cgs2 => "CGS2 by gemv",
            How::FusedMgs => "fused MGS",
            How::FusedCgs2 => "fused CGS2",
        }
    }

    /// Returns the bytes that the kernels of one step read and write, if no cache holds anything.
    pub fn traffic(self, n: usize, columns: usize) -> u64 {
        let vectors = match self {
            // Per column a dot and an axpy; then norm and scaling, as for all.
            How::Mgs => 5 * columns + 3,
            How::Cgs2 => 4 * columns + 9,
            How::FusedMgs => 4 * columns + 3,
            How::FusedCgs2 => 3 * columns + 7,
        };
        8 * (n * vectors) as u64
    }
}

/// Sums over the ranks that share a vector.
pub(super) trait Sums {
    /// Sums numbers on the host.
    fn host(&self, values: &mut [f64]) -> Result<()>;
    /// Sums `n` numbers at a device address, in stream order.
    fn device(&self, at: u64, n: usize) -> Result<()>;
    /// Returns ‖x‖ on the host; waits.
    fn norm(&self, vendor: &Vendor, n: usize, x: u64) -> Result<f64> {
        let mut square = [vendor.dot(n, x, x)?];
        self.host(&mut square)?;
        Ok(square[0].sqrt())
    }
}

/// A single GPU, whose sums need no communication.
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

/// A way to orthogonalise on one device.
pub(super) struct Orthogonalization {
    vendor: Rc<Vendor>,
    kernels: GramSchmidt,
    how: How,
    /// Coefficients and w·w.
    sums: Buffer<f64>,
}

impl Orthogonalization {
    /// Prepares the way for at most `columns` columns.
    pub fn new(vendor: &Rc<Vendor>, how: How, columns: usize) -> Result<Self> {
        let (kernels, sums) = (GramSchmidt::new(vendor)?, vendor.zeros(2 * columns + 1)?);
        Ok(Self { vendor: vendor.clone(), kernels, how, sums })
    }

    /// Orthonormalises `w` against the first `columns` columns of `v`; `h` receives the coefficients and the
    /// norm.
    pub fn run(
        &self,
        sums: &dyn Sums,
        (n, columns): (usize, usize),
        v: u64,
        w: u64,
        h: &mut [f64],
    ) -> Result<()> {
        let (vendor, at, all) = (&self.vendor, |k: usize| self.sums.at(k), (v, w, self.sums.pointer()));
        let reduce = |at, count| sums.device(at, count);
        let coefficients = match self.how {
            How::Mgs => {
                for k in 0..columns {
                    let vk = v + 8 * (k * n) as u64;
                    h[k] = vendor.dot(n, vk, w)?;
                    sums.host(&mut h[k..=k])?;
                    vendor.axpy(n, -h[k], vk, w)?;
                }
                h[columns] = sums.norm(vendor, n, w)?;
                return vendor.scale(n, 1.0 / h[columns], w);
            }
            How::Cgs2 => {
                for c in [at(0), at(columns)] {
                    vendor.gemv(true, (n, columns), 1.0, v, w, 0.0, c)?;
                    sums.device(c, columns)?;
                    vendor.gemv(false, (n, columns), -1.0, v, c, 1.0, w)?;
                }
                let square = at(2 * columns);
                vendor.dot_on_device(n, w, w, square)?;
                sums.device(square, 1)?;
                self.kernels.normalize(n, square, w)?;
                2 * columns
            }
            How::FusedMgs => {
                self.kernels.mgs((n, columns), all, reduce)?;
                columns
            }
            How::FusedCgs2 => {
                self.kernels.cgs2((n, columns), all, reduce)?;
                2 * columns
            }
        };
        vendor.fetch(self.sums.pointer(), 0, coefficients + 1)?;
        vendor.device.wait()?;
        for (k, h) in h[..columns].iter_mut().enumerate() {
            *h = (k..coefficients).step_by(columns).map(|k| vendor.pinned(k)).sum();
        }
        h[columns] = vendor.pinned(coefficients).sqrt();
        Ok(())
    }
}

/// Benchmark of [`STEPS`] vectors against a basis of fixed size.
pub(super) struct VendorOrthogonalizer {
    vendor: Rc<Vendor>,
    way: Orthogonalization,
    n: usize,
    columns: usize,
    v: Buffer<f64>,
    fresh: Buffer<f64>,
    w: Buffer<f64>,
    h: Vec<f64>,
}

impl VendorOrthogonalizer {
    pub fn new(vendor: &Rc<Vendor>, how: How, n: usize, columns: usize) -> Result<Self> {
        let mut random = Random(77);
        let device = &vendor.device;
        let v = device.upload(&random.numbers(n * columns), "a basis")?;
        let fresh = device.upload(&random.numbers(n * STEPS), "vectors")?;
        let (w, way) = (vendor.zeros(n * STEPS)?, Orthogonalization::new(vendor, how, columns)?);
        let (first, mut h) = (Orthogonalization::new(vendor, How::Mgs, columns)?, vec![0.0; columns + 1]);
        for k in 0..columns {
            // Twice, so that the basis is orthonormal to rounding.
            for _ in 0..2 {
                first.run(&Alone, (n, k), v.pointer(), v.at(k * n), &mut h)?;
            }
        }
        Ok(Self { vendor: vendor.clone(), way, n, columns, v, fresh, w, h })
    }
}

impl Orthogonalizer for VendorOrthogonalizer {
    fn name(&self) -> String {
        self.way.how.name().into()
    }
    fn traffic(&self) -> Option<u64> {
        Some(self.way.how.traffic(self.n, self.columns))
    }
    fn refresh(&mut self) -> Result<()> {
        self.vendor.copy(self.fresh.pointer(), self.w.pointer(), self.fresh.len())
    }
    fn run(&mut self) -> Result<()> {
        let Self { way, n, columns, v, w, h, .. } = self;
        (0..STEPS).try_for_each(|i| way.run(&Alone, (*n, *columns), v.pointer(), w.at(i * *n), h))
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

/// Measures time by part on a device's stream, with events that are created once and recorded in every solve.
pub(super) struct Clock {
    vendor: Rc<Vendor>,
    on: Cell<bool>,
    events: RefCell<Vec<CudaEvent>>,
    parts: RefCell<Vec<Part>>,
    /// Error of the first event that could not be recorded; `mark` cannot return it.
    failure: RefCell<Option<Error>>,
}

impl Clock {
    pub fn new(vendor: &Rc<Vendor>) -> Self {
        Self {
            vendor: vendor.clone(),
            on: Cell::new(false),
            events: RefCell::default(),
            parts: RefCell::default(),
            failure: RefCell::default(),
        }
    }
    pub fn is_on(&self) -> bool {
        self.on.get()
    }
    /// Switches timing on or off.
    pub fn keep(&self, on: bool) {
        self.on.set(on);
        self.parts.borrow_mut().clear();
    }
    /// Attributes the following work to `part`, if timing is on.
    pub fn mark(&self, part: Part) {
        if self.is_on()
            && let Err(e) = self.record(part)
        {
            self.failure.borrow_mut().get_or_insert(e);
        }
    }
    fn record(&self, part: Part) -> Result<()> {
        let (mut events, mut parts) = (self.events.borrow_mut(), self.parts.borrow_mut());
        if events.len() == parts.len() {
            events.push(self.vendor.event(true)?);
        }
        let recorded = events[parts.len()].record(self.vendor.device.stream());
        parts.push(part);
        recorded.map_err(|e| self.vendor.failure("cuEventRecord", e))
    }
    /// Returns the seconds per part since timing was switched on; waits.
    pub fn times(&self) -> Result<Times> {
        self.mark(Part::Other);
        if let Some(e) = self.failure.take() {
            return Err(e);
        }
        let (mut times, events, parts) = (Times::default(), self.events.borrow(), self.parts.borrow());
        for (part, pair) in parts.iter().zip(events[..parts.len()].windows(2)) {
            let milliseconds = pair[0].elapsed_ms(&pair[1]);
            let milliseconds = milliseconds.map_err(|e| self.vendor.failure("cuEventElapsedTime", e))?;
            times.add(*part, milliseconds as f64 * 1e-3);
        }
        Ok(times)
    }
}

/// Computes y = A x between addresses, for this rank's share if there are several, and marks its own parts.
pub(super) type Product = Box<dyn Fn(u64, u64) -> Result<()>>;

/// GMRES by the vendor's libraries with a given product, on one GPU or one rank; every rank's host holds the
/// same scalars.
pub(super) struct VendorMachine {
    name: String,
    vendor: Rc<Vendor>,
    product: Product,
    sums: Rc<dyn Sums>,
    clock: Rc<Clock>,
    way: Orthogonalization,
    stages: usize,
    n: usize,
    v: Buffer<f64>,
    b: Buffer<f64>,
    x: Buffer<f64>,
    /// Coefficients of a correction.
    y: Buffer<f64>,
}

impl VendorMachine {
    /// Creates the solver on one GPU with a product whose time is all of its own.
    pub fn alone(
        vendor: &Rc<Vendor>,
        (name, how): (String, How),
        product: impl Fn(u64, u64) -> Result<()> + 'static,
        (rhs, stages): (&[f64], usize),
        restart: usize,
    ) -> Result<Self> {
        let clock = Rc::new(Clock::new(vendor));
        let own = clock.clone();
        let product = Box::new(move |x, y| {
            own.mark(Part::Product);
            product(x, y)
        });
        Self::new(vendor, (name, how), (product, Rc::new(Alone), clock), (rhs, stages), restart)
    }

    pub fn new(
        vendor: &Rc<Vendor>,
        (name, how): (String, How),
        (product, sums, clock): (Product, Rc<dyn Sums>, Rc<Clock>),
        (rhs, stages): (&[f64], usize),
        restart: usize,
    ) -> Result<Self> {
        let n = rhs.len();
        Ok(Self {
            name,
            v: vendor.zeros(n * (restart + 1))?,
            b: vendor.device.upload(&to_stage_by_stage(rhs, stages), "b")?,
            x: vendor.zeros(n)?,
            y: vendor.zeros(restart)?,
            way: Orthogonalization::new(vendor, how, restart)?,
            vendor: vendor.clone(),
            product,
            sums,
            clock,
            stages,
            n,
        })
    }
    fn column(&self, j: usize) -> u64 {
        self.v.at(j * self.n)
    }
}

impl Machine for VendorMachine {
    fn name(&self) -> String {
        self.name.clone()
    }
    fn reset(&mut self) -> Result<()> {
        self.vendor.fill(self.x.pointer(), self.n, 0)
    }
    fn start(&mut self) -> Result<f64> {
        let (n, v0, vendor) = (self.n, self.column(0), &self.vendor);
        (self.product)(self.x.pointer(), v0)?;
        self.clock.mark(Part::Other);
        vendor.scale(n, -1.0, v0)?;
        vendor.axpy(n, 1.0, self.b.pointer(), v0)?;
        let beta = self.sums.norm(vendor, n, v0)?;
        vendor.scale(n, 1.0 / beta, v0)?;
        Ok(beta)
    }
    fn product(&mut self, j: usize) -> Result<()> {
        (self.product)(self.column(j), self.column(j + 1))
    }
    fn orthogonalize(&mut self, j: usize, h: &mut [f64]) -> Result<()> {
        self.way.run(&*self.sums, (self.n, j + 1), self.v.pointer(), self.column(j + 1), h)
    }
    fn correct(&mut self, y: &[f64]) -> Result<()> {
        let (vendor, x) = (&self.vendor, self.x.pointer());
        match self.way.how {
            How::Mgs => (0..y.len()).try_for_each(|i| vendor.axpy(self.n, y[i], self.column(i), x)),
            _ => {
                // The copy returns only after it has read the pageable source.
                vendor.device.write(y, &mut self.y, 0)?;
                let (v, c) = (self.v.pointer(), self.y.pointer());
                vendor.gemv(false, (self.n, y.len()), 1.0, v, c, 1.0, x)
            }
        }
    }
    fn mark(&mut self, part: Part) {
        self.clock.mark(part);
    }
    fn keep_time(&mut self, on: bool) {
        self.clock.keep(on);
    }
    fn take_times(&mut self) -> Result<Times> {
        self.clock.times()
    }
    fn solution(&mut self) -> Result<Vec<f64>> {
        Ok(from_stage_by_stage(&self.vendor.read(&self.x)?, self.stages))
    }
}
