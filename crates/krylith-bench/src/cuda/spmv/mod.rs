//! GPUs for `krylith bench spmv`: the ways to a product on one, and pCSR on several.

mod pcsr;
mod published;

pub use published::compile as compile_products;

use super::CudaPlatform;
use super::csr::SpMv;
use super::ildu0::seconds;
use super::kernels::Arg;
use super::vendor::Vendor;
use crate::spmv::{CUSPARSE, Candidate, Case, Given, Ground, One, Own, Piece, VECTOR, rows_of};
use cudarc::cusparse::sys::cusparseSpMVAlg_t as Algorithm;
use krylith::comm::Communicator;
use krylith::device::cuda::{Buffer, Cuda, Device, Fabric, Transport, split_runs};
use krylith::matrix::Bsr;
use krylith::operator::{LinearOperator, PointBlock, Terms};
use krylith::{Error, Result, Store};
use krylith_model::spmv::OURS;
use published::{Adaptive, CsrVector, Merge, Published, threads_a_row};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

/// Matrices below this many bytes are multiplied with cold caches.
const CACHE: u64 = 256 << 20;

/// GPUs of this host, one a rank.
pub(crate) struct Gpus {
    ordinals: Vec<usize>,
    devices: Vec<Arc<Device>>,
}

impl Gpus {
    pub fn open(gpus: &[usize]) -> Result<Self> {
        let devices = gpus.iter().map(|&gpu| Device::open(gpu)).collect::<Result<_>>()?;
        Ok(Self { ordinals: gpus.to_vec(), devices })
    }
}

impl Ground for Gpus {
    type Space = Cuda;
    type One = CudaPlatform;
    fn ranks(&self) -> usize {
        self.devices.len()
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
        let begin = Instant::now();
        let runs = rows_of(&case.a, self.ranks())?;
        let parts = split_runs(&Terms::csr(&case.a)?, &runs, &self.ordinals)?;
        let pieces =
            runs.into_iter().zip(parts).map(|(rows, terms)| Piece { rows: Own::Run(rows), terms }).collect();
        Ok((pieces, begin.elapsed().as_secs_f64()))
    }
    fn pcsr(&self, case: &Case, samples: usize) -> Result<(f64, Vec<f64>, Vec<f64>)> {
        pcsr::measure(&self.devices, &case.a, &case.x, samples)
    }
}

/// A matrix and two vectors on the device, for all that is published.
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

/// What every candidate of one GPU shares.
struct Shared {
    vendor: Rc<Vendor>,
    held: Held,
    /// Row pointers for cuSPARSE.
    short: Option<Buffer<i32>>,
    x: Buffer<f64>,
    y: Buffer<f64>,
}

impl Shared {
    fn read(&self) -> Result<Vec<f64>> {
        let host = self.vendor.read(&self.y)?;
        // What the next one does not write is no number.
        self.vendor.poison(&self.y)?;
        Ok(host)
    }
}

impl One for CudaPlatform {
    fn cache(&self) -> u64 {
        CACHE
    }
    fn evict(&self) -> Result<()> {
        self.empty_caches()
    }
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
        let (x, y) = (device.upload(&case.x, "x")?, device.zeros(rows, "y")?);
        let shared = Rc::new(Shared { vendor: vendor.clone(), held, short, x, y });
        let mut all = vec![ours(&shared)];
        let vectors = [shared.x.pointer(), shared.y.pointer()];
        let rule = CsrVector::new(vendor, &shared.held, threads_a_row(rows, entries), vectors);
        all.push(published(&shared, VECTOR, rule.map(|made| (Box::new(made) as _, 0.0))));
        let best = CsrVector::best(vendor, &shared.held, vectors);
        all.push(published(
            &shared,
            "CSR-vector, best threads a row",
            best.map(|made| (Box::new(made) as _, 0.0)),
        ));
        let merge = Merge::best(vendor, &shared.held, vectors);
        all.push(published(&shared, "merge-based (Merrill and Garland)", merge));
        let adaptive = Adaptive::make(vendor, row_ptr);
        all.push(published(&shared, "CSR-adaptive (Greathouse and Daga)", adaptive));
        for (algorithm, name) in [
            (Algorithm::CUSPARSE_SPMV_ALG_DEFAULT, "default"),
            (Algorithm::CUSPARSE_SPMV_CSR_ALG1, "ALG1"),
            (Algorithm::CUSPARSE_SPMV_CSR_ALG2, "ALG2"),
        ] {
            for preprocess in [false, true] {
                all.push(cusparse(&shared, algorithm, name, preprocess));
            }
        }
        Ok(all)
    }
}

/// What was made, with the seconds of its set-up, or why it was not.
fn given(name: impl Into<String>, made: Result<(f64, Box<dyn Candidate>)>) -> Given<'static> {
    let (setup, candidate) = match made {
        Ok((setup, candidate)) => (setup, Ok(candidate)),
        Err(e) => (0.0, Err(e)),
    };
    Given { name: name.into(), setup, candidate }
}

fn ours(shared: &Rc<Shared>) -> Given<'static> {
    let make = || -> Result<(f64, Box<dyn Candidate>)> {
        let (held, vendor) = (&shared.held, &shared.vendor);
        let a = Bsr::from_arrays(1, held.rows, held.rows, &held.ptr, &held.col, &held.values)?;
        let space = Cuda::new(&vendor.device, held.rows)?;
        // The first compiles kernels, which is paid once a machine.
        drop(PointBlock::bsr(&space, &a, Store::F64)?);
        let (product, setup) = seconds(vendor, || PointBlock::bsr(&space, &a, Store::F64))?;
        let y = vendor.device.zeros(held.rows, "y")?;
        Ok((setup, Box::new(Ours { shared: shared.clone(), space, product, y })))
    };
    given(OURS, make())
}

struct Ours {
    shared: Rc<Shared>,
    space: Cuda,
    product: PointBlock<Cuda>,
    y: Buffer<f64>,
}

impl Candidate for Ours {
    fn notes(&self) -> String {
        self.product.format().to_string()
    }
    fn run(&mut self) -> Result<()> {
        self.product.apply(&self.space, &self.shared.x, &mut self.y)
    }
    fn read(&mut self) -> Result<Vec<f64>> {
        self.shared.vendor.read(&self.y)
    }
}

fn published(shared: &Rc<Shared>, name: &str, made: Result<published::Made>) -> Given<'static> {
    let other = |(product, setup)| -> (f64, Box<dyn Candidate>) {
        (setup, Box::new(Other { shared: shared.clone(), product }))
    };
    given(name, made.map(other))
}

struct Other {
    shared: Rc<Shared>,
    product: Box<dyn Published>,
}

impl Candidate for Other {
    fn notes(&self) -> String {
        self.product.notes()
    }
    fn run(&mut self) -> Result<()> {
        let s = &self.shared;
        self.product.run(&s.held, s.x.pointer(), s.y.pointer())
    }
    fn read(&mut self) -> Result<Vec<f64>> {
        self.shared.read()
    }
}

fn cusparse(shared: &Rc<Shared>, algorithm: Algorithm, name: &str, preprocess: bool) -> Given<'static> {
    let how = if preprocess { ", preprocessed" } else { "" };
    let name = format!("{CUSPARSE} {name}{how}");
    let make = || -> Result<(f64, Box<dyn Candidate>)> {
        let (held, vendor) = (&shared.held, &shared.vendor);
        let Some(short) = &shared.short else {
            return Err(Error::Unsupported(format!(
                "{} nonzeros are more than 32-bit offsets count, and cuSPARSE wants columns as wide as offsets",
                held.entries
            )));
        };
        let arrays = [short.pointer(), held.col.pointer(), held.values.pointer(), shared.x.pointer()];
        let new = || SpMv::new(vendor, held.rows, held.entries, arrays, algorithm, preprocess);
        let (spmv, setup) = seconds(vendor, new)?;
        Ok((setup, Box::new(Library { shared: shared.clone(), spmv })))
    };
    given(name, make())
}

struct Library {
    shared: Rc<Shared>,
    spmv: SpMv,
}

impl Candidate for Library {
    fn run(&mut self) -> Result<()> {
        self.spmv.run(self.shared.x.pointer(), 0.0, self.shared.y.pointer())
    }
    fn read(&mut self) -> Result<Vec<f64>> {
        self.shared.read()
    }
}
