//! Copies from the memory of one GPU to that of another, independent of the pools that the memory comes from.
//!
//! Memory of a pool is closed to other GPUs. Opening a pool maps all of its memory, which takes 16 ms for a
//! matrix of 1.5 GB, every time. Copies therefore pass through a buffer of plain memory on the source GPU,
//! which the other GPU maps once per process. While the other GPU reads one half of the buffer, the other
//! half is filled.

use super::driver::{Buffer, Device};
use crate::Result;
use cudarc::driver::sys;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, OnceLock};

/// Bytes of one half: enough to hide the start-up cost of a copy, and little enough to hold until the process
/// ends.
const HALF: usize = 32 << 20;

/// Carries copies from a GPU and to it. There is one for each GPU, and it lives as long as the process.
struct Carrier {
    /// The GPU, with a stream of its own.
    device: Arc<Device>,
    bounce: Mutex<Bounce>,
}

#[derive(Default)]
struct Bounce {
    /// Both halves, allocated when something first leaves this GPU.
    buffer: Option<Buffer<u8>>,
    /// Marks the last read of each half.
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
    /// Allocates the buffer if there is none, and lets another GPU read it.
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

/// A place in GPU memory: the ordinal of the GPU and the address.
#[derive(Debug, Clone, Copy)]
pub(super) struct Spot {
    pub ordinal: usize,
    pub pointer: u64,
}

impl Device {
    /// Copies bytes between two GPUs, of which this may be one, in the order of this device's stream.
    ///
    /// # Safety
    /// Both addresses must be valid for that many bytes until this device's stream has passed the copy.
    ///
    /// # Errors
    /// GPUs that cannot reach each other; then nothing is copied.
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
            // SAFETY: `count` bytes of the caller's memory and of a half that is no longer being read.
            unsafe { near.copy_anywhere(between, from.pointer + at as u64, count)? };
            Event::record(near)?.awaited_by(far)?;
            // SAFETY: as above; the half is filled.
            unsafe { far.copy_anywhere(to.pointer + at as u64, between, count)? };
            read[half] = Some(Event::record(far)?);
        }
        Event::record(far)?.awaited_by(self)
    }
}

/// A mark in a stream, without timing.
pub(super) struct Event(sys::CUevent);

// SAFETY: the driver lets any thread use the handle.
unsafe impl Send for Event {}

impl Event {
    /// Records a mark in the device's stream.
    pub(super) fn record(device: &Device) -> Result<Self> {
        device.bind()?;
        Self::record_in(device.stream().cu_stream(), &|call, code| device.driver(call, code))
    }

    /// Makes and records a mark in the current context, which must be the stream's.
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

    /// Makes later work in the device's stream wait for the mark.
    pub(super) fn awaited_by(&self, device: &Device) -> Result<()> {
        device.bind()?;
        // SAFETY: both are alive.
        let code = unsafe { sys::cuStreamWaitEvent(device.stream().cu_stream(), self.0, 0) };
        device.driver("cuStreamWaitEvent", code)
    }

    /// Returns the driver's handle.
    pub(super) fn handle(&self) -> sys::CUevent {
        self.0
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        // SAFETY: made once; the driver keeps an event while streams still wait for it.
        let _ = unsafe { sys::cuEventDestroy_v2(self.0) };
    }
}
