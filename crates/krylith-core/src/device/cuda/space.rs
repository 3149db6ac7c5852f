//! The operations of methods on one GPU.

use super::driver::{Buffer, Device};
use super::fabric::Fabric;
use super::scalars::CudaScalars;
use super::vectors::{
    STEP_THREADS, append, combine, combine_pair, project, step, step_key, sweep, sweep_key,
};
use crate::comm::Communicator;
use crate::space::{COLUMNS, MOST_COLUMNS, Phase, Precision, SmallStep, Space, Sweep, SweepSource};
use crate::{Error, Result};
use cudarc::driver::CudaEvent;
use std::cell::{Cell, RefCell};
use std::ops::Range;
use std::sync::Arc;

/// Columns start on multiples of this many numbers, so that 16-byte loads are aligned.
const ALIGN: usize = 16;
/// Largest number of sums of one sweep.
const MAX_SUMS: usize = 8;
/// Threads per thread block of a sweep.
const SWEEP_THREADS: usize = 256;
/// Bytes of a basis that stay in the second-level cache from the projection to the update (measured, H200).
const KEEP_BYTES: f64 = 30e6;

/// Vectors of one length on one GPU. All work goes to the device's main stream.
///
/// # Examples
/// As on a [`Cpu`](crate::device::cpu::Cpu), where there is a GPU:
/// ```
/// use krylith::device::{Cuda, Device};
/// use krylith::Outcome;
/// use krylith::Stop;
/// use krylith::Precision;
/// use krylith::matrix::Csr;
/// use krylith::method::{Cg, CgOptions};
/// use krylith::operator::{PointBlock, Space};
/// # if Device::open(0).is_err() { return Ok(()); }
/// let a = Csr::from_triplets(2, 2, &[(0, 0, 2.0), (0, 1, 1.0), (1, 0, 1.0), (1, 1, 3.0)])?;
/// let space = Cuda::new(&Device::open(0)?, 2)?;
/// let operator = PointBlock::csr(&space, &a, Precision::F64)?;
/// let (mut b, mut x) = (space.vector()?, space.vector()?);
/// space.write(&[3.0, 4.0], &mut b)?;
/// let mut cg = Cg::new(&space, CgOptions::default())?;
/// let history = cg.solve(&space, &operator, None, &b, &mut x, &Stop::default(), &mut ())?;
/// assert_eq!(history.outcome, Outcome::Converged);
/// # Ok::<(), krylith::Error>(())
/// ```
pub struct Cuda {
    pub(super) fabric: Arc<Fabric>,
    pub(super) device: Arc<Device>,
    len: usize,
    scratch: Buffer<f64>,
    /// The counter of a reduction, and the guard of several solves.
    counter: Buffer<u32>,
    /// Scratch for the sums of blocks of vectors, once such a block was made.
    pub(super) block_sums: RefCell<Option<Buffer<f64>>>,
    /// Addresses of the guards of several solves, and their number.
    pub(super) watched: Cell<([u64; MOST_COLUMNS], usize)>,
    /// Numbers of other GPUs that may hold a part of direct factors.
    pub(super) helpers: Vec<usize>,
    pub(super) timing: Cell<bool>,
    pub(super) marks: RefCell<Vec<(Phase, CudaEvent)>>,
}

/// Columns on a GPU, each aligned to 16 bytes, with the scratch for their reductions.
#[doc(hidden)]
pub struct CudaBasis {
    stride: usize,
    columns: usize,
    data: Data,
    scratch: Buffer<f64>,
    counter: Buffer<u32>,
}

enum Data {
    F64(Buffer<f64>),
    F32(Buffer<f32>),
}

impl Cuda {
    /// Makes the space of vectors with `len` numbers on a device.
    ///
    /// # Errors
    /// Out of device memory; a length that exceeds 32-bit kernel arguments.
    pub fn new(device: &Arc<Device>, len: usize) -> Result<Self> {
        Self::distributed(&Fabric::alone(device), len)
    }

    /// Makes the space of this rank's part, `len` numbers, of vectors that are distributed over the ranks of
    /// a fabric.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn distributed(fabric: &Arc<Fabric>, len: usize) -> Result<Self> {
        let device = fabric.device();
        if len > i32::MAX as usize {
            return Err(Error::Unsupported(format!(
                "one GPU would hold {len} unknowns, and at most {} are supported; use more GPUs",
                i32::MAX
            )));
        }
        let blocks = 8 * device.multiprocessors();
        Ok(Self {
            fabric: fabric.clone(),
            device: device.clone(),
            len,
            scratch: device.zeros(MAX_SUMS * blocks, "reduction scratch")?,
            counter: device.zeros(2, "a reduction counter")?,
            block_sums: RefCell::default(),
            watched: Cell::default(),
            helpers: Vec::new(),
            timing: Cell::new(false),
            marks: RefCell::default(),
        })
    }

    /// Returns the device.
    pub fn device(&self) -> &Arc<Device> {
        &self.device
    }

    /// Returns the links of this GPU to those of other ranks.
    pub fn fabric(&self) -> &Arc<Fabric> {
        &self.fabric
    }

    /// Switches timing by phase on or off. While it is on, every batch runs as single launches, which costs a
    /// few percent.
    pub fn keep_time(&self, on: bool) {
        self.timing.set(on);
        self.marks.borrow_mut().clear();
    }

    /// Address of the flag that ends launches early, or null.
    pub(super) fn halt(&self) -> u64 {
        self.device.halt()
    }

    /// Number of values of a vector on this GPU.
    pub(super) fn vector_len(&self) -> usize {
        self.len
    }

    /// Address of the counter for the thread blocks of a launch.
    pub(super) fn counter_pointer(&self) -> u64 {
        self.counter.pointer()
    }

    /// Address of the guard that is raised once all watched solves have ended.
    pub(super) fn common_guard(&self) -> u64 {
        self.counter.at(1)
    }

    fn check_len(&self, n: usize) -> Result<()> {
        if n == self.len {
            return Ok(());
        }
        Err(Error::invalid(format!("a vector has {n} numbers; {} were expected", self.len)))
    }

    /// Returns an error if sums are NaN because a kernel timed out while it waited for a rank.
    pub(super) fn check_sums(&self, sums: &[f64]) -> Result<()> {
        if sums.iter().any(|v| v.is_nan()) { self.fabric.check() } else { Ok(()) }
    }

    /// Returns how much of a projection's reads should stay in the cache for the update, in sixteenths.
    fn keep(&self, columns: usize, precision: Precision) -> i32 {
        let bytes = self.len as f64 * (columns * precision.bytes() + 16) as f64;
        (16.0 * KEEP_BYTES / bytes).round().clamp(1.0, 16.0) as i32
    }

    fn launch_project(
        &self,
        v: &CudaBasis,
        columns: Range<usize>,
        w: u64,
        z: u64,
        norm: bool,
        out: u64,
        followed: bool,
    ) -> Result<()> {
        let precision = v.store();
        let vectors = if w == 0 { 1 } else { 2 };
        let function = self.device.function(&project::of(precision, vectors))?;
        let keep = if followed { self.keep(columns.len(), precision) } else { 0 };
        let sums = vectors * columns.len() + if norm { 2 * vectors - 1 } else { 0 };
        function.on(&self.device, self.device.multiprocessors(), 512).run(
            self.halt(),
            v.pointer(0),
            v.stride as i64,
            self.len as i32,
            columns.start as i32,
            columns.end as i32,
            w,
            z,
            norm as i32,
            keep,
            out,
            &v.scratch,
            &v.counter,
            self.fabric.group(),
        )?;
        self.fabric.total(out, sums)
    }

    fn launch_combine(
        &self,
        v: &CudaBasis,
        columns: Range<usize>,
        count: u64,
        coefficients: u64,
        alpha: f64,
        x: u64,
    ) -> Result<()> {
        let function = self.device.function(&combine::of(v.store()))?;
        let shared = 8 * columns.len().div_ceil(8).max(1) * 8;
        function.on(&self.device, 2 * self.device.multiprocessors(), 256).shared(shared).run(
            self.halt(),
            v.pointer(0),
            v.stride as i64,
            self.len as i32,
            columns.start as i32,
            columns.end as i32,
            count,
            coefficients,
            alpha,
            0u64,
            x,
        )
    }

    /// Launches a sweep with all arguments of its kernel. Shared by all sweeps, so it is compiled once.
    fn launch_sweep(
        &self,
        source: &SweepSource,
        scalars: &CudaScalars,
        a: &[usize],
        x: &[&Buffer<f64>],
        y: &[&mut Buffer<f64>],
        o: &[usize],
    ) -> Result<()> {
        for n in x.iter().map(|x| x.len()).chain(y.iter().map(|y| y.len())) {
            self.check_len(n)?;
        }
        let function = self.device.function_of(sweep_key(source), || sweep::of(source))?;
        // The grid depends only on the length, so that sums are reproducible.
        let blocks = self.len.div_ceil(SWEEP_THREADS).clamp(1, 8 * self.device.multiprocessors());
        let (mut halt, mut n) = (self.halt(), self.len as i64);
        let (mut scratch, mut counter) = (self.scratch.pointer(), self.counter.pointer());
        let mut group = self.fabric.group();
        let mut pointers = [0u64; 32];
        let count = a.len() + x.len() + y.len() + o.len();
        let all = a
            .iter()
            .map(|&slot| scalars.value(slot))
            .chain(x.iter().map(|x| x.pointer()))
            .chain(y.iter().map(|y| y.pointer()))
            .chain(o.iter().map(|&slot| scalars.value(slot)));
        pointers.iter_mut().zip(all).for_each(|(to, from)| *to = from);
        let mut arguments = [std::ptr::null_mut::<std::ffi::c_void>(); 37];
        arguments[0] = &mut halt as *mut u64 as _;
        arguments[1] = &mut n as *mut i64 as _;
        arguments[2] = &mut scratch as *mut u64 as _;
        arguments[3] = &mut counter as *mut u64 as _;
        arguments[4] = &mut group as *mut u64 as _;
        for k in 0..count {
            arguments[5 + k] = &mut pointers[k] as *mut u64 as _;
        }
        // SAFETY: the kernel was made from the same declaration; lengths were checked.
        unsafe { function.on(&self.device, blocks, SWEEP_THREADS).launch(&mut arguments[..5 + count])? };
        match o.windows(2).all(|pair| pair[1] == pair[0] + 1) {
            // Adjacent slots are reduced in one message.
            true if !o.is_empty() => self.fabric.total(scalars.value(o[0]), o.len()),
            _ => o.iter().try_for_each(|&slot| self.fabric.total(scalars.value(slot), 1)),
        }
    }
}

impl CudaBasis {
    fn store(&self) -> Precision {
        match self.data {
            Data::F64(_) => Precision::F64,
            Data::F32(_) => Precision::F32,
        }
    }
    fn pointer(&self, column: usize) -> u64 {
        match &self.data {
            Data::F64(v) => v.at(column * self.stride),
            Data::F32(v) => v.at(column * self.stride),
        }
    }
}

impl Space for Cuda {
    type Vector = Buffer<f64>;
    type Basis = CudaBasis;

    fn comm(&self) -> &dyn Communicator {
        &**self.fabric.comm()
    }
    fn len(&self) -> usize {
        self.len
    }
    fn vector(&self) -> Result<Buffer<f64>> {
        self.device.zeros(self.len, "a vector")
    }
    fn basis(&self, columns: usize, precision: Precision) -> Result<CudaBasis> {
        self.fabric.check_sums(2 * columns + 3)?;
        let stride = self.len.next_multiple_of(ALIGN);
        let data = match precision {
            Precision::F64 => Data::F64(self.device.zeros(stride * columns, "a Krylov basis")?),
            Precision::F32 => Data::F32(self.device.zeros(stride * columns, "a Krylov basis")?),
        };
        Ok(CudaBasis {
            stride,
            columns,
            data,
            scratch: self
                .device
                .zeros(self.device.multiprocessors() * (2 * columns + 3), "reduction scratch")?,
            counter: self.device.zeros(columns.div_ceil(32).max(1), "reduction counters")?,
        })
    }
    fn write(&self, host: &[f64], to: &mut Buffer<f64>) -> Result<()> {
        self.check_len(host.len())?;
        self.device.write(host, to, 0)?;
        self.wait()
    }
    fn read(&self, from: &Buffer<f64>, host: &mut [f64]) -> Result<()> {
        self.check_len(host.len())?;
        self.device.read(from, 0, host)
    }
    fn copy(&self, from: &Buffer<f64>, to: &mut Buffer<f64>) -> Result<()> {
        self.check_len(from.len())?;
        self.check_len(to.len())?;
        self.device.copy(from, to, self.len)
    }
    fn block(&self, columns: usize) -> Result<Vec<Buffer<f64>>> {
        self.make_block(columns)
    }
    fn fill_random(&self, seed: u64, to: &mut Buffer<f64>) -> Result<()> {
        self.check_len(to.len())?;
        self.random(seed, None, 1, to)
    }
    fn wait(&self) -> Result<()> {
        self.device.wait()
    }

    fn sweep<K, const A: usize, const X: usize, const Y: usize, const O: usize>(
        &self,
        _: K,
        scalars: &mut CudaScalars,
        a: [usize; A],
        x: [&Buffer<f64>; X],
        y: [&mut Buffer<f64>; Y],
        o: [usize; O],
    ) -> Result<()>
    where
        K: Sweep<A, X, Y, O>,
    {
        const { assert!(O <= MAX_SUMS) };
        self.launch_sweep(&K::SOURCE, scalars, &a, &x, &y, &o)
    }

    fn project(
        &self,
        v: &CudaBasis,
        columns: Range<usize>,
        x: &Buffer<f64>,
        scalars: &mut CudaScalars,
        to: usize,
    ) -> Result<()> {
        self.launch_project(v, columns, 0, x.pointer(), false, scalars.value(to), true)
    }
    fn subtract(
        &self,
        v: &CudaBasis,
        columns: Range<usize>,
        x: &mut Buffer<f64>,
        scalars: &mut CudaScalars,
        from: usize,
        norm2: Option<usize>,
    ) -> Result<()> {
        self.launch_combine(v, columns, 0, scalars.value(from), -1.0, x.pointer())?;
        match norm2 {
            None => Ok(()),
            Some(slot) => self.launch_project(v, 0..0, 0, x.pointer(), true, scalars.value(slot), false),
        }
    }
    fn expand(
        &self,
        v: &CudaBasis,
        x: &mut Buffer<f64>,
        scalars: &mut CudaScalars,
        from: usize,
    ) -> Result<()> {
        self.device.clear(x)?;
        let count = scalars.flag(COLUMNS);
        self.launch_combine(v, 0..v.columns, count, scalars.value(from), 1.0, x.pointer())
    }
    fn append(
        &self,
        v: &mut CudaBasis,
        column: usize,
        x: &mut Buffer<f64>,
        scalars: &mut CudaScalars,
        norm: usize,
    ) -> Result<()> {
        let function = self.device.function(&append::of(v.store()))?;
        let blocks = self.len.div_ceil(256).clamp(1, 8 * self.device.multiprocessors());
        let (norm, to) = (scalars.value(norm), v.pointer(column));
        function.on(&self.device, blocks, 256).run(self.halt(), self.len as i64, norm, to, &*x)
    }

    fn with_column(
        &self,
        v: &mut CudaBasis,
        k: usize,
        write: impl FnOnce(&mut Buffer<f64>) -> Result<()>,
    ) -> Result<()> {
        match &mut v.data {
            Data::F64(data) => data.with_part(k * v.stride, self.len, write),
            Data::F32(_) => Err(Error::narrow_column()),
        }
    }
    fn project_pair(
        &self,
        v: &CudaBasis,
        j: usize,
        w: &Buffer<f64>,
        z: &Buffer<f64>,
        scalars: &mut CudaScalars,
        to: usize,
    ) -> Result<()> {
        self.launch_project(v, 0..j, w.pointer(), z.pointer(), true, scalars.value(to), true)
    }
    fn update_pair<T: SmallStep>(
        &self,
        v: &mut CudaBasis,
        j: usize,
        w: &mut Buffer<f64>,
        z: &Buffer<f64>,
        scalars: &mut CudaScalars,
        from: usize,
        _: T,
    ) -> Result<()> {
        let key = step_key(&T::SOURCE, 1 + v.store().bytes());
        let function = self.device.function_of(key, || combine_pair::of(v.store(), &T::SOURCE))?;
        let shared = 2 * 8 * j.div_ceil(8).max(1) * 8;
        function.on(&self.device, 2 * self.device.multiprocessors(), 256).shared(shared).run(
            self.halt(),
            v.pointer(0),
            v.stride as i64,
            self.len as i32,
            j as i32,
            scalars.value(from),
            z,
            &*w,
            scalars.flag(0),
        )
    }
    fn block_products(
        &self,
        x: &[Buffer<f64>],
        y: &[Buffer<f64>],
        scalars: &mut CudaScalars,
        to: usize,
    ) -> Result<()> {
        self.products_of_blocks(x, y, scalars.value(to))
    }
    fn block_update(
        &self,
        basis: &[Buffer<f64>],
        products: &[Buffer<f64>],
        r: &Buffer<f64>,
        q: &mut [Buffer<f64>],
        aq: &mut [Buffer<f64>],
        scalars: &mut CudaScalars,
        b: usize,
        to: usize,
    ) -> Result<()> {
        self.check_len(r.len())?;
        self.update_by_blocks([basis, products], r, [q, aq], scalars.value(b), scalars.value(to))
    }
    fn block_advance(
        &self,
        q: &[Buffer<f64>],
        aq: &[Buffer<f64>],
        x: &mut Buffer<f64>,
        r: &mut Buffer<f64>,
        scalars: &mut CudaScalars,
        a: usize,
    ) -> Result<()> {
        self.check_len(x.len())?;
        self.check_len(r.len())?;
        self.advance_by_blocks([q, aq], [x, r], scalars.value(a))
    }
    fn step<T: SmallStep>(&self, _: T, scalars: &mut CudaScalars, j: usize) -> Result<()> {
        let key = step_key(&T::SOURCE, 0);
        let function = self.device.function_of(key, || step::of(&T::SOURCE))?;
        let threads = if T::SOURCE.parallel { STEP_THREADS } else { 1 };
        function.on(&self.device, 1, threads).run(self.halt(), scalars.flag(0), j as u64)
    }
}
