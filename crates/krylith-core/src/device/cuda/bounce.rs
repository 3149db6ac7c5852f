//! Copies from the memory of one GPU to that of another, whatever pools either comes from.
//!
//! Memory of a pool is closed to other GPUs, and to open a pool maps all that it holds: 16 ms for a matrix of 1.5 GB, every time. So numbers
//! pass through a buffer of plain memory on the GPU that they come from. The other GPU maps it once a process; while it reads one half,
//! the other half is filled.

use super::driver::{Buffer, Device};
use crate::Result;
use cudarc::driver::sys;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, OnceLock};

/// Bytes of a half: long enough to hide what a copy costs to begin, short enough to hold for as long as the process lives.
const HALF: usize = 32 << 20;

/// What carries numbers away from a GPU and to it; one for each, as long as the process.
struct Carrier {
    /// With a stream of its own.
    device: Arc<Device>,
    bounce: Mutex<Bounce>,
}

#[derive(Default)]
struct Bounce {
    /// Both halves, once something left this GPU.
    buffer: Option<Buffer<u8>>,
    /// When each half was last read.
    read: [Option<Event>; 2],
    /// The GPUs that map the buffer.
    open_to: Vec<usize>,
}

impl Carrier {
    fn of(ordinal: usize) -> Result<Arc<Self>> {
        static ALL: OnceLock<Mutex<HashMap<usize, Arc<Carrier>>>> = OnceLock::new();
        let mut all = ALL.get_or_init(Mutex::default).lock().unwrap_or_else(|e| e.into_inner());
        if let Some(known) = all.get(&ordinal) {
            return Ok(known.clone());
        }
        let carrier = Arc::new(Self { device: Device::open(ordinal)?, bounce: Mutex::default() });
        all.insert(ordinal, carrier.clone());
        Ok(carrier)
    }
}

impl Bounce {
    /// Makes the buffer, where there is none, and lets another GPU read it.
    fn open(&mut self, own: &Arc<Device>, to: &Device) -> Result<()> {
        if self.buffer.is_none() {
            self.buffer = Some(own.peer_zeros(2 * HALF, "copies to another GPU")?);
            own.wait()?;
        }
        if own.info().ordinal == to.info().ordinal || self.open_to.contains(&to.info().ordinal) {
            return Ok(());
        }
        to.bind()?;
        // SAFETY: a primary context, which its carrier keeps as long as the process lives.
        let code = unsafe { sys::cuCtxEnablePeerAccess(own.context_pointer() as sys::CUcontext, 0) };
        if code != sys::CUresult::CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED {
            to.driver("cuCtxEnablePeerAccess", code)?;
        }
        self.open_to.push(to.info().ordinal);
        Ok(())
    }
}

/// Memory of a GPU: its ordinal and the address there.
#[derive(Debug, Clone, Copy)]
pub(super) struct Spot {
    pub ordinal: usize,
    pub pointer: u64,
}

impl Device {
    /// Copies bytes between two GPUs, of which this may be one, in the order of this device's stream.
    ///
    /// # Safety
    /// Both addresses must have that many bytes until this device's stream has come to what follows.
    ///
    /// # Errors
    /// GPUs that cannot reach each other; then nothing was copied.
    pub(super) unsafe fn copy_between(&self, to: Spot, from: Spot, bytes: usize) -> Result<()> {
        let (source, target) = (Carrier::of(from.ordinal)?, Carrier::of(to.ordinal)?);
        let (near, far) = (&source.device, &target.device);
        let mut bounce = source.bounce.lock().unwrap_or_else(|e| e.into_inner());
        bounce.open(near, far)?;
        let Bounce { buffer: Some(buffer), read, .. } = &mut *bounce else {
            unreachable!("it was made above")
        };
        let begin = Event::record(self)?;
        begin.awaited_by(near)?;
        begin.awaited_by(far)?;
        for (piece, at) in (0..bytes).step_by(HALF).enumerate() {
            let (half, count) = (piece % 2, HALF.min(bytes - at));
            let between = buffer.at(half * HALF);
            if let Some(done) = &read[half] {
                done.awaited_by(near)?;
            }
            // SAFETY: `count` bytes of the caller's memory and of a half that nobody reads any more.
            unsafe { near.copy_anywhere(between, from.pointer + at as u64, count)? };
            Event::record(near)?.awaited_by(far)?;
            // SAFETY: as above; the half is filled.
            unsafe { far.copy_anywhere(to.pointer + at as u64, between, count)? };
            read[half] = Some(Event::record(far)?);
        }
        Event::record(far)?.awaited_by(self)
    }
}

/// A mark in a stream, without time.
pub(super) struct Event(sys::CUevent);

// SAFETY: a handle that the driver lets any thread use.
unsafe impl Send for Event {}

impl Event {
    /// A mark in the device's stream.
    pub(super) fn record(device: &Device) -> Result<Self> {
        device.bind()?;
        Self::record_in(device.stream().cu_stream(), &|call, code| device.driver(call, code))
    }

    /// Made and recorded in the context that is current, which must be the stream's.
    pub(super) fn record_in(
        stream: sys::CUstream,
        driver: &dyn Fn(&str, sys::CUresult) -> Result<()>,
    ) -> Result<Self> {
        let mut event = std::ptr::null_mut();
        let flags = sys::CUevent_flags_enum::CU_EVENT_DISABLE_TIMING as u32;
        // SAFETY: writes one handle.
        driver("cuEventCreate", unsafe { sys::cuEventCreate(&mut event, flags) })?;
        let event = Self(event);
        // SAFETY: a fresh event and a live stream.
        driver("cuEventRecord", unsafe { sys::cuEventRecord(event.0, stream) })?;
        Ok(event)
    }

    /// What follows in the device's stream comes after the mark.
    pub(super) fn awaited_by(&self, device: &Device) -> Result<()> {
        device.bind()?;
        // SAFETY: both are alive.
        let code = unsafe { sys::cuStreamWaitEvent(device.stream().cu_stream(), self.0, 0) };
        device.driver("cuStreamWaitEvent", code)
    }

    /// The driver's handle.
    pub(super) fn handle(&self) -> sys::CUevent {
        self.0
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        // SAFETY: made once; the driver keeps what streams still wait for.
        let _ = unsafe { sys::cuEventDestroy_v2(self.0) };
    }
}
