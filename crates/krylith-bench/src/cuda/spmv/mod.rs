//! GPUs for `krylith bench spmv`: the variants of a product on one GPU, and pCSR on several.

mod modes;
mod pcsr;
mod published;

pub use published::compile as compile_products;

use super::CudaPlatform;
use super::csr::SpMv;
use super::ground::Gpus;
use super::ildu0::seconds;
use super::kernels::Arg;
use super::products::OnDevice;
use super::vendor::Vendor;
use crate::launch::Launch;
use crate::platform::{Apply, OnSpace};
use crate::spmv::{CUSPARSE, Case, Given, Ground, One, Own, Piece, VECTOR, rows_of, runs_on_host};
use cudarc::cusparse::sys::cusparseSpMVAlg_t as Algorithm;
use krylith_core::comm::Communicator;
use krylith_core::device::cuda::{Buffer, Cuda, Fabric, Transport, split_runs};
use krylith_core::matrix::{Bsr, Csr};
use krylith_core::operator::{LinearOperator, PointBlock, Terms};
use krylith_core::partition::replicated::Mode;
use krylith_core::{Error, Precision, Result};
use krylith_model::spmv::OURS;
use modes::VectorMode;
use published::{Adaptive, CsrVector, Merge, threads_a_row};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

impl Ground for Gpus {
    type Space = Cuda;
    type One = CudaPlatform;
    fn ranks(&self) -> usize {
        self.devices.len()
    }
    fn launch(&self) -> &Launch {
        &self.launch
    }
    fn keep_time(space: &Cuda, on: bool) {
        space.keep_time(on);
    }
    fn one(&self) -> Result<CudaPlatform> {
        CudaPlatform::open(self.ordinals[0])
    }
    fn alone(&self, rank: usize, len: usize) -> Result<Cuda> {
        Cuda::new(&self.devices[rank], len)
    }
    fn joined(&self, comm: &Arc<dyn Communicator>, len: usize) -> Result<Cuda> {
        Cuda::distributed(&Fabric::new(&self.devices[comm.rank()], comm, Transport::Auto)?, len)
    }
    fn parts(&self, case: &Case) -> Result<(Vec<Piece>, f64)> {
        if self.launch.comm().is_some() {
            return runs_on_host(case, self.ranks());
        }
        let begin = Instant::now();
        let runs = rows_of(&case.a, self.ranks())?;
        let parts = split_runs(&Terms::csr(&case.a)?, &runs, &self.ordinals)?;
        let pieces =
            runs.into_iter().zip(parts).map(|(rows, terms)| Piece { rows: Own::Run(rows), terms }).collect();
        Ok((pieces, begin.elapsed().as_secs_f64()))
    }
    fn vector_modes(&self) -> bool {
        true
    }
    fn vector(
        &self,
        space: &Cuda,
        comm: &Arc<dyn Communicator>,
        (case, held): (&Case, &Csr),
        mode: Mode,
    ) -> Result<(Box<dyn LinearOperator<Cuda>>, f64)> {
        let device = &self.devices[comm.rank()];
        let (made, setup) = VectorMode::new(space, comm, device, (&case.a, held), mode)?;
        Ok((Box::new(made), setup))
    }
    fn pcsr(&self, case: &Case, samples: usize) -> Result<(f64, Vec<f64>, Vec<f64>)> {
        pcsr::measure(&self.devices, &case.a, &case.x, samples)
    }
}

/// A matrix and two vectors on the device, for all published products.
pub(super) struct Held {
    pub rows: usize,
    pub entries: usize,
    ptr: Buffer<i64>,
    col: Buffer<u32>,
    values: Buffer<f64>,
}

impl Held {
    fn arrays(&self) -> [Arg; 3] {
        [self.ptr.pointer(), self.col.pointer(), self.values.pointer()].map(Arg::Pointer)
    }
}

/// Data shared by all candidates on one GPU.
struct Shared {
    vendor: Rc<Vendor>,
    held: Held,
    /// Row pointers for cuSPARSE.
    short: Option<Buffer<i32>>,
    x: Rc<Buffer<f64>>,
    y: Rc<Buffer<f64>>,
}

impl One for CudaPlatform {
    fn candidates<'a>(&'a self, case: &'a Case) -> Result<Vec<Given<'a>>> {
        let (vendor, device) = (&self.vendor, &self.device);
        let row_ptr = case.a.row_ptr();
        let (rows, entries) = (case.a.rows(), case.a.nonzeros());
        let wide: Vec<i64> = row_ptr.iter().map(|&p| p as i64).collect();
        let held = Held {
            rows,
            entries,
            ptr: device.upload(&wide, "row pointers")?,
            col: device.upload(case.a.col(), "columns")?,
            values: device.upload(case.a.values(), "values")?,
        };
        drop(wide);
        let short = if entries <= i32::MAX as usize && rows <= i32::MAX as usize {
            let short: Vec<i32> = row_ptr.iter().map(|&p| p as i32).collect();
            Some(device.upload(&short, "32-bit row pointers")?)
        } else {
            None
        };
        let [x, y] = [Rc::new(device.upload(&case.x, "x")?), Rc::new(vendor.zeros(rows)?)];
        let shared = Rc::new(Shared { vendor: vendor.clone(), held, short, x, y });
        let (a, vectors) = (&shared.held, [shared.x.pointer(), shared.y.pointer()]);
        let mut all = vec![given(OURS, self.ours(&shared))];
        let rule = CsrVector::new(vendor, a, threads_a_row(rows, entries), vectors);
        let best = CsrVector::best(vendor, a, vectors);
        for (name, made) in [(VECTOR, rule), ("CSR-vector, best threads a row", best)] {
            let made = made.map(|kernel| (kernel.notes(), 0.0, boxed(move |a, x, y| kernel.run(a, x, y))));
            all.push(given(name, made.map(|made| on(&shared, made))));
        }
        // The search is part of every product, as in CUB.
        let merge = Merge::best(vendor, a, vectors)
            .map(|merge| (merge.notes(), 0.0, boxed(move |a, x, y| merge.run(a, x, y))));
        all.push(given("merge-based (Merrill and Garland)", merge.map(|made| on(&shared, made))));
        let adaptive = Adaptive::make(vendor, row_ptr)
            .map(|(made, setup)| (made.notes(), setup, boxed(move |a, x, y| made.run(a, x, y))));
        all.push(given("CSR-adaptive (Greathouse and Daga)", adaptive.map(|made| on(&shared, made))));
        for (algorithm, name) in [
            (Algorithm::CUSPARSE_SPMV_ALG_DEFAULT, "default"),
            (Algorithm::CUSPARSE_SPMV_CSR_ALG1, "ALG1"),
            (Algorithm::CUSPARSE_SPMV_CSR_ALG2, "ALG2"),
        ] {
            for preprocess in [false, true] {
                let how = if preprocess { ", preprocessed" } else { "" };
                let made = cusparse(&shared, algorithm, preprocess);
                all.push(given(format!("{CUSPARSE} {name}{how}"), made));
            }
        }
        Ok(all)
    }
}

/// A product that is set up, with its settings and the seconds of its set-up.
type Made = (String, f64, Box<dyn Apply>);
/// A product as a function of the matrix and the addresses of x and y.
type Run = Box<dyn Fn(&Held, u64, u64) -> Result<()>>;

fn boxed(run: impl Fn(&Held, u64, u64) -> Result<()> + 'static) -> Run {
    Box::new(run)
}

/// Creates a published product on the shared vectors.
fn on(shared: &Rc<Shared>, (notes, setup, run): (String, f64, Run)) -> Made {
    let (vectors, own) = ([shared.x.clone(), shared.y.clone()], shared.clone());
    (notes, setup, OnDevice::shared(&shared.vendor, vectors, move |x, y| run(&own.held, x, y)))
}

/// Returns a product, or the reason why it could not be created.
fn given(name: impl Into<String>, made: Result<Made>) -> Given<'static> {
    let (setup, product) = match made {
        Ok((notes, setup, product)) => (setup, Ok((product, notes))),
        Err(e) => (0.0, Err(e)),
    };
    Given { name: name.into(), setup, product }
}

impl CudaPlatform {
    fn ours(&self, shared: &Rc<Shared>) -> Result<Made> {
        let held = &shared.held;
        let a = Bsr::from_arrays(1, held.rows, held.rows, &held.ptr, &held.col, &held.values)?;
        let space = Rc::new(Cuda::new(&self.device, held.rows)?);
        // The first one compiles kernels, which is a cost per machine.
        drop(PointBlock::bsr(space.as_ref(), &a, Precision::F64)?);
        let (product, setup) = seconds(&self.vendor, || PointBlock::bsr(space.as_ref(), &a, Precision::F64))?;
        Ok((product.format().to_string(), setup, OnSpace::new(&space, vec![Box::new(product)])?))
    }
}

fn cusparse(shared: &Rc<Shared>, algorithm: Algorithm, preprocess: bool) -> Result<Made> {
    let (held, vendor) = (&shared.held, &shared.vendor);
    let Some(short) = &shared.short else {
        return Err(Error::Unsupported(format!(
            "{} nonzeros are more than 32-bit offsets count, and cuSPARSE needs columns as wide as offsets",
            held.entries
        )));
    };
    let arrays = [short.pointer(), held.col.pointer(), held.values.pointer(), shared.x.pointer()];
    let new = || SpMv::new(vendor, held.rows, held.entries, arrays, algorithm, preprocess);
    let (spmv, setup) = seconds(vendor, new)?;
    Ok(on(shared, (String::new(), setup, boxed(move |_, x, y| spmv.run(x, 0.0, y)))))
}
