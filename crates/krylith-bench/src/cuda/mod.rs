//! GPU baselines, all on the stream of Krylith's own device.

mod calls;
pub(crate) mod cbcg;
mod csr;
pub(crate) mod gram_schmidt;
pub(crate) mod ground;
pub(crate) mod ildu0;
mod kernels;
mod machine;
pub(crate) mod multi;
pub(crate) mod paper;
mod products;
mod ras;
pub(crate) mod spmv;
mod vendor;

use crate::answer::ours::from_device;
use crate::answer::system::System;
use crate::answer::{Named, Take};
use crate::cbcg::{Case as GridCase, Kernel as GridKernel, Solve, Storage};
use crate::platform::{self, Order, Orthogonalizer, Platform, Product};
use crate::ras::cases::Case;
use crate::ras::measure::{Effort, Row};
use crate::systems::Random;
use crate::textbook::Machine;
use cudarc::driver::CudaEvent;
use cudarc::driver::sys::CUdevice_attribute as Attribute;
use kernels::{Arg, LIBRARY, Module};
use krylith_core::device::cuda::{Buffer, Cuda, Device};
use krylith_core::matrix::{Bsr, KroneckerSum};
use krylith_core::{Error, Options, Result};
use machine::{How, VendorMachine, VendorOrthogonalizer};
use products::{CuSolver, Layout, Matrix, OnDevice, Pairs};
use serde_json::{Value, json};
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use vendor::Vendor;

pub(crate) struct CudaPlatform {
    device: Arc<Device>,
    vendor: Rc<Vendor>,
    events: [CudaEvent; 2],
    /// Data to read in order to empty the caches.
    evicted: RefCell<Option<Buffer<f64>>>,
}

impl CudaPlatform {
    /// # Errors
    /// Returns an error that names what is missing: a usable GPU, cuBLAS or cuSPARSE.
    pub fn open(ordinal: usize) -> Result<Self> {
        let device = Device::open(ordinal)?;
        let vendor = Vendor::open(&device)?;
        let events = [vendor.event(true)?, vendor.event(true)?];
        Ok(Self { events, device, vendor, evicted: RefCell::default() })
    }

    /// Creates the OKP paper's product with the fastest number of threads per block; the paper gives none.
    fn okp_product(&self, k: &KroneckerSum, sets: usize) -> Result<paper::Paper> {
        let v = &self.vendor;
        let [x, y] = [v.zeros(k.rows())?, v.zeros(k.rows())?];
        let new = |threads| paper::Paper::new(v, k, 1, threads);
        let run = |paper: &paper::Paper| paper.multiply(0, x.pointer(), y.pointer());
        let threads = fastest(v, [64, 128, 256], new, run)?.1.threads();
        paper::Paper::new(v, k, sets, threads)
    }

    fn attribute(&self, attribute: Attribute) -> Option<f64> {
        self.device.stream().context().attribute(attribute).ok().map(f64::from)
    }
}

/// Returns the seconds of one run, a median of five after two: for choosing settings, not for reports.
fn quick(vendor: &Vendor, run: &mut dyn FnMut() -> Result<()>) -> Result<f64> {
    let mut times = Vec::new();
    for i in 0..7 {
        vendor.device.wait()?;
        let begin = std::time::Instant::now();
        run()?;
        vendor.device.wait()?;
        if i > 1 {
            times.push(begin.elapsed().as_secs_f64());
        }
    }
    times.sort_by(f64::total_cmp);
    Ok(times[times.len() / 2])
}

/// Returns the result of `make` for the candidate with the fastest `run`, and its time.
fn fastest<C, T>(
    vendor: &Vendor,
    candidates: impl IntoIterator<Item = C>,
    mut make: impl FnMut(C) -> Result<T>,
    run: impl Fn(&T) -> Result<()>,
) -> Result<(f64, T)> {
    least(candidates, |candidate| {
        let made = make(candidate)?;
        Ok((quick(vendor, &mut || run(&made))?, made))
    })
}

/// Returns the fastest of the items made from candidates, each with its time.
fn least<C, T>(
    candidates: impl IntoIterator<Item = C>,
    mut timed: impl FnMut(C) -> Result<(f64, T)>,
) -> Result<(f64, T)> {
    let mut best: Option<(f64, T)> = None;
    for candidate in candidates {
        let made = timed(candidate)?;
        if best.as_ref().is_none_or(|b| made.0 < b.0) {
            best = Some(made);
        }
    }
    best.ok_or_else(|| Error::invalid("nothing was tried"))
}

impl Platform for CudaPlatform {
    type Space = Cuda;
    fn space(&self, len: usize) -> Result<Cuda> {
        Cuda::new(&self.device, len)
    }
    fn keep_time(&self, space: &Cuda, on: bool) {
        space.keep_time(on);
    }
    fn time(&self, work: &mut dyn FnMut() -> Result<()>) -> Result<f64> {
        let (stream, [begin, end]) = (self.device.stream(), &self.events);
        self.device.wait()?;
        let fail = |e| self.vendor.failure("cuEventRecord", e);
        begin.record(stream).map_err(fail)?;
        work()?;
        end.record(stream).map_err(fail)?;
        begin.elapsed_ms(end).map(|ms| ms as f64 * 1e-3).map_err(fail)
    }
    fn bandwidth(&self) -> Result<(&'static str, f64)> {
        // 2 GB, forty times the second-level cache.
        let numbers = ((1u64 << 28).min(self.device.free_memory()? / 16) as usize).next_multiple_of(2);
        let mut array = self.vendor.zeros(numbers)?;
        // Random numbers, because zeros need less power in memory.
        let random = Random(99).numbers(numbers.min(1 << 22));
        for at in (0..numbers).step_by(random.len()) {
            self.device.write(&random[..random.len().min(numbers - at)], &mut array, at)?;
        }
        let out = self.vendor.zeros(1)?;
        let module = Module::load(&self.vendor, ("read.cu", include_str!("read.cu")), &[])?;
        let read = module.kernel("read", 512, 0)?;
        let args =
            [Arg::Pointer(array.pointer()), Arg::Pointer(out.pointer()), Arg::Long(numbers as i64 / 2)];
        let mut best = f64::INFINITY;
        // The fastest of several shapes, so that shares relate to the most that the device gives.
        for per_processor in [4, 8, 16, 32] {
            let blocks = per_processor * self.device.multiprocessors();
            let all = crate::samples::in_turn(1, 3, 20, |_| self.time(&mut || read.launch(blocks, &args)))?;
            best = best.min(all[0].median());
        }
        Ok(("read", 8.0 * numbers as f64 / best))
    }
    fn peak(&self) -> Option<f64> {
        // f64 units per multiprocessor by compute capability: 64 on data-centre chips, with 2 flops each.
        let units = match self.device.info().arch {
            (9, 0) | (10, 0) => 64.0,
            (8, 0) => 32.0,
            _ => return None,
        };
        let kilohertz = self.attribute(Attribute::CU_DEVICE_ATTRIBUTE_CLOCK_RATE)?;
        Some(2.0 * units * self.device.multiprocessors() as f64 * kilohertz * 1e3)
    }
    fn room(&self) -> Result<u64> {
        self.device.free_memory()
    }
    fn cache(&self) -> u64 {
        256 << 20
    }
    /// Reads 256 MB, more than twice the largest second-level cache.
    fn evict(&self) -> Result<()> {
        const NUMBERS: usize = 32 << 20;
        let mut buffer = self.evicted.borrow_mut();
        if buffer.is_none() {
            *buffer = Some(self.vendor.zeros(NUMBERS + 1)?);
        }
        if let Some(buffer) = buffer.as_ref() {
            // Only reads, so that nothing has to be written back.
            self.vendor.dot_on_device(NUMBERS, buffer.pointer(), buffer.pointer(), buffer.at(NUMBERS))?;
        }
        Ok(())
    }
    fn products(&self, k: &KroneckerSum, sets: usize, effort: platform::Effort) -> Result<Vec<Product<'_>>> {
        let (v, n) = (&self.vendor, k.rows());
        let vectors = (Order::Stages(k.stages()), n, sets);
        let cu = CuSolver::new(v, k, sets)?;
        let (notes, middle) = (cu.notes(), cu.through());
        let on = OnDevice::new(v, vectors, middle, move |set, x, y| cu.multiply(set, x, y))?;
        let mut products = vec![Product { name: "CU-Solver (axpy + bsrmv)".into(), notes, on }];
        let probe = [Rc::new(v.zeros(n)?), Rc::new(v.zeros(n)?)];
        let [x, y] = [probe[0].pointer(), probe[1].pointer()];
        if k.block() > 1 && effort >= platform::Effort::Vendor {
            let new = |layout| Ok((layout, Pairs::new(v, k, layout, 1)?));
            // bsrmm does not offer all layouts and block sizes; the other baselines are still measured.
            let faster = fastest(v, Layout::BOTH, new, |(_, pairs)| pairs.bsrmm(0, x, y));
            if let Ok((_, (layout, one))) = faster {
                drop(one);
                let pairs = Pairs::new(v, k, layout, sets)?;
                let (name, notes) = ("cuSPARSE bsrmm ×2 (gemm before)".into(), layout.notes());
                let middle = Some(pairs.middle.clone());
                let on = OnDevice::new(v, vectors, middle, move |set, x, y| pairs.bsrmm(set, x, y))?;
                products.push(Product { name, notes, on });
            }
        }
        if effort == platform::Effort::All {
            if k.block() <= 5 {
                let paper = self.okp_product(k, sets)?;
                let (name, middle) =
                    ("the paper's kernels (Alg. 2 + 3)".into(), Some(paper.pairs.middle.clone()));
                let threads = paper.threads();
                let on = OnDevice::new(v, vectors, middle, move |set, x, y| paper.multiply(set, x, y))?;
                products.push(Product { name, notes: format!("{threads} threads a block"), on });
            }
            let nonzeros = k.m.values().len() * k.stages() * k.stages();
            if nonzeros > i32::MAX as usize || !k.m.same_pattern(&k.l) {
                return Err(Error::Unsupported(format!(
                    "the assembled matrix of {nonzeros} nonzeros cannot be measured; it may have {} nonzeros \
                     at most, and M and L must have the same pattern",
                    i32::MAX
                )));
            }
            // Only one set of vectors, because the matrix is s² times larger.
            let matrix = Matrix::best(v, &Bsr::from_csr(&k.assemble().to_csr(), 1)?)?;
            let (name, notes) = ("assembled CSR (cusparseSpMV)".into(), matrix.notes());
            let on = OnDevice::shared(v, probe, move |x, y| matrix.multiply(x, 0.0, y));
            products.push(Product { name, notes, on });
        }
        Ok(products)
    }
    fn orthogonalizers(&self, len: usize, columns: usize) -> Result<Vec<Box<dyn Orthogonalizer + '_>>> {
        let new = |how| -> Result<Box<dyn Orthogonalizer>> {
            Ok(Box::new(VendorOrthogonalizer::new(&self.vendor, how, len, columns)?))
        };
        How::ALL.into_iter().map(new).collect()
    }
    fn machines(&self, k: &KroneckerSum, rhs: &[f64], restart: usize) -> Result<Vec<Box<dyn Machine + '_>>> {
        let (v, around) = (&self.vendor, (rhs, k.stages()));
        let cu = |how: How| -> Result<Box<dyn Machine>> {
            let name = match how {
                How::Mgs => "CU-Solver (MGS)".into(),
                _ => format!("CU kernels, {}", how.short()),
            };
            let cu = CuSolver::new(v, k, 1)?;
            let product = move |x, y| cu.multiply(0, x, y);
            Ok(Box::new(VendorMachine::alone(v, (name, how), product, around, restart)?))
        };
        let mut all = How::ALL.into_iter().map(cu).collect::<Result<Vec<_>>>()?;
        if k.block() <= 5 {
            for how in How::ALL {
                let paper = self.okp_product(k, 1)?;
                let name = format!("the paper's kernels, {}", how.short());
                let product = move |x, y| paper.multiply(0, x, y);
                all.push(Box::new(VendorMachine::alone(v, (name, how), product, around, restart)?));
            }
        }
        Ok(all)
    }
    fn answers(&self, a: &Bsr, symmetric: bool, rhs: &[f64], most: usize) -> Result<Vec<Named<'static>>> {
        self.vendor_answers(a, symmetric, rhs, most)
    }
    fn resident<'a>(&'a self, system: &'a System, options: &'a Options, rhs: &'a [f64]) -> Option<Take<'a>> {
        Some(Box::new(move || from_device(&self.device, system, options, rhs)))
    }
    fn schwarz(&self, case: &Case, effort: &Effort) -> Result<Vec<Row>> {
        Ok(self.schwarz_rows(case, effort))
    }
    fn cbcg_kernels<'k>(&self, case: &'k GridCase, check: bool) -> Result<Vec<GridKernel<'k>>> {
        self.paper_kernels(case, check)
    }
    fn cbcg_solvers<'k>(&self, case: &'k GridCase, tile: [usize; 3]) -> Vec<(Storage, Result<Solve<'k>>)> {
        self.paper_solvers(case, tile)
    }
    fn used(&self) -> Option<u64> {
        self.device.free_memory().ok().map(|free| self.device.info().memory.saturating_sub(free))
    }
    fn describe(&self) -> Value {
        let (info, (blas, sparse)) = (self.device.info(), self.vendor.versions());
        let mut driver = 0;
        // SAFETY: writes one integer.
        let _ = unsafe { cudarc::driver::sys::cuDriverGetVersion(&mut driver) };
        let (mut major, mut minor) = (0, 0);
        // SAFETY: writes two integers; NVRTC was loaded for the bandwidth's kernel, or is loaded here.
        let _ = vendor::loading(LIBRARY, || unsafe {
            let _ = cudarc::nvrtc::sys::nvrtcVersion(&mut major, &mut minor);
            Ok(())
        });
        let release = std::fs::read_to_string("/proc/driver/nvidia/version").unwrap_or_default();
        json!({
            "kind": "cuda", "name": info.name, "compute_capability": format!("{}.{}", info.arch.0, info.arch.1),
            "memory": info.memory, "multiprocessors": self.device.multiprocessors(),
            "cuda_driver": driver, "driver_release": release.lines().next(),
            "cublas": blas, "cusparse": sparse, "nvrtc": format!("{major}.{minor}"),
        })
    }
    fn structures(&self) -> bool {
        true
    }
    fn records(&self) -> bool {
        true
    }
}
