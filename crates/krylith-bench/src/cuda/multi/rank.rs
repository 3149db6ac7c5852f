//! One rank of a baseline: its GPU, a second stream for messages, a clock by parts, and the packing kernels.

use super::super::kernels::{self, Arg, Kernel, Module, Source};
use super::super::machine::{Clock, Sums};
use super::super::vendor::Vendor;
use crate::multi::crew::Place;
use cudarc::driver::sys::CUstream;
use cudarc::driver::{CudaEvent, CudaStream, DriverError};
use cudarc::nvrtc::Ptx;
use krylith_core::comm::{Communicator, TeamRank};
use krylith_core::device::cuda::{Device, Nccl};
use krylith_core::{Error, Result};
use std::rc::Rc;
use std::sync::Arc;

/// Threads per block of the packing kernels.
const THREADS: usize = 256;

const SOURCE: Source = ("exchange.cu", include_str!("exchange.cu"));

/// Returns the PTX of the packing kernels for an architecture such as (9, 0).
///
/// # Errors
/// Returns an error if NVRTC is missing, or with the compiler's messages.
pub fn compile_for(arch: (i32, i32)) -> Result<Ptx> {
    kernels::compile(SOURCE, &[], arch)
}

/// The parts common to every rank's solver.
pub(super) struct Rank {
    pub vendor: Rc<Vendor>,
    pub comm: Arc<TeamRank>,
    pub nccl: Option<Arc<Nccl>>,
    /// Stream of messages and their packing, concurrent with the work on the device's own stream.
    second: Arc<CudaStream>,
    events: [CudaEvent; 2],
    buffering: Kernel,
    gather: Kernel,
    scatter: Kernel,
    pub clock: Rc<Clock>,
}

impl Rank {
    /// Opens GPU `ordinal`, and joins the other ranks by NCCL if `nccl` is set.
    ///
    /// # Errors
    /// Returns an error that names the missing GPU or library.
    pub fn open(ordinal: usize, place: &Place, nccl: bool) -> Result<Rc<Self>> {
        let device = Device::open(ordinal)?;
        let vendor = Vendor::open(&device)?;
        let fail = |call: &str, e: DriverError| vendor.failure(call, e);
        let module = Module::load(&vendor, SOURCE, &[])?;
        let kernel = |name: &str| module.kernel(name, THREADS, 0);
        let second = device.stream().context().new_stream().map_err(|e| fail("cuStreamCreate", e))?;
        let comm = place.comm.clone();
        let nccl = match nccl && comm.size() > 1 {
            true => Some(Arc::new(Nccl::new(&device, &*comm)?)),
            false => None,
        };
        if let Some(nccl) = nccl.clone() {
            place.on_failure(Box::new(move || nccl.abort()));
        }
        Ok(Rc::new(Self {
            events: [vendor.event(false)?, vendor.event(false)?],
            buffering: kernel("parallel_buffering")?,
            gather: kernel("gather")?,
            scatter: kernel("scatter")?,
            clock: Rc::new(Clock::new(&vendor)),
            vendor,
            comm,
            nccl,
            second,
        }))
    }

    fn fail(&self, call: &str, e: DriverError) -> Error {
        self.vendor.failure(call, e)
    }
    fn main(&self) -> &Arc<CudaStream> {
        self.vendor.device.stream()
    }
    /// Returns the stream of messages; while time is measured, the device's own one, so that parts do not
    /// overlap.
    fn lane(&self) -> &Arc<CudaStream> {
        if self.clock.is_on() { self.main() } else { &self.second }
    }
    /// Returns the stream of messages for driver calls.
    pub fn messages(&self) -> CUstream {
        self.lane().cu_stream()
    }
    fn order(&self, event: usize, first: &CudaStream, then: &CudaStream) -> Result<()> {
        if self.clock.is_on() {
            return Ok(());
        }
        self.events[event].record(first).map_err(|e| self.fail("cuEventRecord", e))?;
        then.wait(&self.events[event]).map_err(|e| self.fail("cuStreamWaitEvent", e))
    }
    /// Makes messages wait for the work enqueued so far.
    pub fn messages_after_work(&self) -> Result<()> {
        self.order(0, self.main(), &self.second)
    }
    /// Makes work wait for the messages enqueued so far.
    pub fn work_after_messages(&self) -> Result<()> {
        self.order(1, &self.second, self.main())
    }
    pub fn record(&self, event: &CudaEvent) -> Result<()> {
        event.record(self.lane()).map_err(|e| self.fail("cuEventRecord", e))
    }
    pub fn wait_for(&self, event: &CudaEvent) -> Result<()> {
        event.synchronize().map_err(|e| self.fail("cuEventSynchronize", e))
    }

    /// Runs Alg. 5 on the messages' stream: `l` numbers of s segments of `q` from `x`, by the index array
    /// `c`.
    pub fn buffer(&self, x: u64, q: usize, c: u64, l: usize, (b, s): (usize, usize), to: u64) -> Result<()> {
        let [x, c, to] = [x, c, to].map(Arg::Pointer);
        let [q, n, b, s] = [q, l, b, s].map(|size| Arg::Int(size as i32));
        self.buffering.launch_on(self.lane(), l.div_ceil(THREADS), &[x, q, c, n, b, s, to])
    }
    /// Sets to[i] = from[map[i]] for `l` numbers, on the messages' stream.
    pub fn gather(&self, l: usize, map: u64, from: u64, to: u64) -> Result<()> {
        self.reorder(self.lane(), &self.gather, l, map, from, to)
    }
    /// Sets to[i] = from[map[i]] for `l` numbers, on the device's own stream.
    pub fn gather_in_order(&self, l: usize, map: u64, from: u64, to: u64) -> Result<()> {
        self.reorder(self.main(), &self.gather, l, map, from, to)
    }
    /// Sets to[map[i]] = from[i] for `l` numbers, on the device's own stream.
    pub fn scatter_in_order(&self, l: usize, map: u64, from: u64, to: u64) -> Result<()> {
        self.reorder(self.main(), &self.scatter, l, map, from, to)
    }
    fn reorder(
        &self,
        stream: &Arc<CudaStream>,
        kernel: &Kernel,
        l: usize,
        map: u64,
        from: u64,
        to: u64,
    ) -> Result<()> {
        let [map, from, to] = [map, from, to].map(Arg::Pointer);
        kernel.launch_on(stream, l.div_ceil(THREADS), &[Arg::Int(l as i32), map, from, to])
    }
}

impl Sums for Rank {
    fn host(&self, values: &mut [f64]) -> Result<()> {
        self.comm.sum(values)
    }
    fn device(&self, at: u64, n: usize) -> Result<()> {
        match &self.nccl {
            // SAFETY: the caller's buffer holds n numbers and outlives the solve.
            Some(nccl) => unsafe { nccl.sum_at(at, n) },
            None => Ok(()),
        }
    }
}
