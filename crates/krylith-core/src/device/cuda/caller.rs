//! Device memory of the caller, used in the order of the caller's stream.
//!
//! Before Krylith touches the memory, its stream waits for an event in the caller's stream. Afterwards the
//! caller's stream waits for an event in ours, even where we only read, because the caller may overwrite or
//! free the memory. An event belongs to the context of the stream in which it is recorded; it is not
//! Krylith's context if the caller has made another.

use super::Cuda;
use super::bounce::{Event, Spot};
use super::driver::{Buffer, Device, devices, failure};
use super::resident;
use super::waiting::wait_for_caller;
use crate::memory::{
    Array, ArrayMut, Lease, Lent, Number, Numbers, NumbersMut, OnDevice, Pattern, Place, Reach, Remote,
    check_len,
};
use crate::space::Space;
use crate::space::Transfer;
use crate::{Error, Result};
use cudarc::driver::{CudaStream, sys};
use std::ffi::c_void;
use std::sync::Arc;

/// CU_STREAM_PER_THREAD, which is a different stream in every thread.
const PER_THREAD: usize = 2;
/// The largest value of CUstream that names a default stream of the current context.
const LAST_SPECIAL: usize = 2;

/// Arrays in the memory of a GPU: [`Array`] for reading, [`ArrayMut`] for writing.
///
/// # Examples
/// ```no_run
/// # fn main() -> krylith::Result<()> {
/// use krylith::device::{Device, FromDevice};
/// use krylith::memory::Numbers;
///
/// // What an application has: memory, and a stream that fills it.
/// let device = Device::open(0)?;
/// let theirs = device.upload(&[1.0, 2.0, 3.0], "values")?;
/// let stream = device.stream().cu_stream().cast();
///
/// // SAFETY: three numbers that live until the end, written by that stream alone.
/// let values = unsafe { Numbers::from_device(theirs.pointer(), 3, 0, Some(stream)) };
/// assert_eq!(values.to_vec()?, [1.0, 2.0, 3.0]);
/// # Ok(()) }
/// ```
pub trait FromDevice: sealed::Sealed + Sized {
    /// Describes `len` numbers at the address `pointer` of GPU `ordinal`, in CUDA's numbering.
    ///
    /// `stream` is the CUstream (or cudaStream_t) in which the caller produced the numbers. Krylith reads
    /// them after the work that the stream holds now; work added to the stream later waits until they have
    /// been read. Null is the legacy default stream. With `None` the caller has synchronised, and every call
    /// waits until it has read the numbers.
    ///
    /// # Safety
    /// The following must hold until the last call with this array (or a copy of it) has returned and, if a
    /// stream is given, until that stream has then completed its work:
    ///
    /// - `pointer` must be device, managed or pinned memory of at least `len` numbers that GPU `ordinal` can
    ///   read.
    /// - Nothing outside `stream` may write to the memory. If the array is written, nothing outside `stream`
    ///   may read it either.
    /// - `stream` must stay alive.
    unsafe fn from_device(pointer: u64, len: usize, ordinal: usize, stream: Option<*mut c_void>) -> Self;
}

mod sealed {
    pub trait Sealed {}
    impl<T: super::Number> Sealed for super::Array<'_, T> {}
    impl<T: super::Number> Sealed for super::ArrayMut<'_, T> {}
}

impl<T: Number> FromDevice for Array<'_, T> {
    unsafe fn from_device(pointer: u64, len: usize, ordinal: usize, stream: Option<*mut c_void>) -> Self {
        // SAFETY: the caller's promise.
        Self::of_remote(unsafe { remote(pointer, len, ordinal, stream) })
    }
}

impl<T: Number> FromDevice for ArrayMut<'_, T> {
    unsafe fn from_device(pointer: u64, len: usize, ordinal: usize, stream: Option<*mut c_void>) -> Self {
        // SAFETY: the caller's promise.
        Self::of_remote(unsafe { remote(pointer, len, ordinal, stream) })
    }
}

impl<'a, T: Number> From<&'a Buffer<T>> for Array<'a, T> {
    fn from(buffer: &'a Buffer<T>) -> Self {
        Self::of_remote(of_buffer(buffer))
    }
}

impl<'a, T: Number> From<&'a mut Buffer<T>> for ArrayMut<'a, T> {
    fn from(buffer: &'a mut Buffer<T>) -> Self {
        Self::of_remote(of_buffer(buffer))
    }
}

/// Access to the GPUs of this process, for owners of memory on one of them.
#[derive(Debug)]
struct Gpus;

impl Reach for Gpus {
    fn read(&self, from: &Remote, size: usize, to: &mut [u8]) -> Result<()> {
        read(from, size, to)
    }

    fn write(&self, from: &[u8], size: usize, to: &Remote) -> Result<()> {
        write(from, size, to)
    }

    fn matrix(
        &self,
        columns: usize,
        row_ptr: Lent,
        col: Lent,
        values: Remote,
    ) -> Result<Option<Arc<dyn OnDevice>>> {
        resident::take(columns, row_ptr, col, values)
    }

    fn values<'p>(
        &self,
        values: Remote,
        here: Option<Arc<dyn OnDevice>>,
        pattern: &dyn Fn() -> &'p Pattern,
    ) -> Result<Arc<dyn OnDevice>> {
        resident::updated(values, here, pattern)
    }
}

/// Describes memory of a GPU of this process.
///
/// # Safety
/// As [`Remote::new`].
unsafe fn remote(pointer: u64, len: usize, ordinal: usize, stream: Option<*mut c_void>) -> Remote {
    let stream = stream.map(|s| s as usize);
    // SAFETY: the caller's promise.
    unsafe { Remote::new(Lease { pointer, len, ordinal, stream, reach: &Gpus }) }
}

pub(super) fn of_buffer<T: Number>(buffer: &Buffer<T>) -> Remote {
    let device = buffer.device();
    let stream = Some(device.stream().cu_stream().cast());
    // SAFETY: the buffer's own numbers; arrays made of them borrow it.
    unsafe { remote(buffer.pointer(), buffer.len(), device.info().ordinal, stream) }
}

impl Spot {
    fn of(memory: &Remote) -> Self {
        Self { ordinal: memory.ordinal, pointer: memory.pointer }
    }
}

impl Transfer for Cuda {
    fn write_from(&self, from: Numbers, to: &mut Buffer<f64>) -> Result<()> {
        self.device().copy_from(from, to)
    }

    fn read_into(&self, from: &Buffer<f64>, to: NumbersMut) -> Result<()> {
        check_len(from.len(), to.len())?;
        match to.into_place() {
            Place::Host(host) => self.read(from, host),
            Place::Device(remote) => self.device().copy_out(from, &remote),
        }
    }
}

impl Device {
    /// Fills a buffer from the host, from this GPU or from another one. Numbers on the host may be changed as
    /// soon as this returns.
    #[doc(hidden)] // for krylith-problems
    pub fn copy_from<T: Number>(&self, from: Array<T>, to: &mut Buffer<T>) -> Result<()> {
        check_len(from.len(), to.len())?;
        match from.place() {
            Place::Host(host) => {
                self.write(host, to, 0)?;
                self.wait()
            }
            Place::Device(remote) => self.copy_in(&remote, to),
        }
    }

    /// Calls `work` with an address at which this GPU finds the numbers: their own address if they are on
    /// this GPU, otherwise the start of `staging`, which grows once. Launches of `work` are ordered with the
    /// caller's stream.
    pub(super) fn reading<R>(
        self: &Arc<Self>,
        from: Numbers,
        staging: &mut Buffer<f64>,
        work: impl FnOnce(u64) -> Result<R>,
    ) -> Result<R> {
        if let Place::Device(remote) = from.place()
            && remote.ordinal == self.info().ordinal
            && remote.len > 0
        {
            let caller = Caller::of(&remote, size_of::<f64>())?;
            return caller.ordered(self, || work(remote.pointer));
        }
        if staging.len() < from.len() {
            *staging = self.zeros(from.len(), "a staging buffer")?;
        }
        match from.place() {
            Place::Host(host) => self.write(host, staging, 0)?,
            Place::Device(remote) => self.copy_in(&remote, staging)?,
        }
        work(staging.pointer())
    }

    /// Calls `work` with the address of a caller's numbers of `size` bytes, which are on this GPU. Launches
    /// of `work` are ordered with the caller's stream.
    pub(super) fn lent<R>(
        &self,
        from: Remote,
        size: usize,
        work: impl FnOnce(u64) -> Result<R>,
    ) -> Result<R> {
        if from.len == 0 {
            return work(0);
        }
        if from.ordinal != self.info().ordinal {
            return Err(Error::invalid(format!(
                "an array is not in the memory of {}; use an array on the GPU of the solver",
                self.info().name
            )));
        }
        Caller::of(&from, size)?.ordered(self, || work(from.pointer))
    }

    /// Copies a caller's numbers to the front of a buffer, from this GPU or from another one.
    fn copy_in<T: Number>(&self, from: &Remote, to: &mut Buffer<T>) -> Result<()> {
        assert!(from.len <= to.len());
        if from.len == 0 {
            return Ok(());
        }
        let (own, theirs) = (self.at(to.pointer()), Spot::of(from));
        // SAFETY: in bounds of the buffer by the check above; the constructor's contract covers the caller's
        // memory.
        let done = Caller::of(from, size_of::<T>())?
            .ordered(self, || unsafe { self.copy_to_or_from(own, theirs, from.len * size_of::<T>()) });
        if done.is_ok() || from.ordinal == self.info().ordinal {
            return done;
        }
        // GPUs that cannot reach each other exchange data through the host.
        let mut host = vec![T::default(); from.len];
        read(from, size_of::<T>(), bytemuck::cast_slice_mut(&mut host))?;
        self.write(&host, to, 0)?;
        self.wait()
    }

    /// Copies the front of a buffer to a caller's numbers, on this GPU or on another one.
    pub(super) fn copy_out<T: Number>(&self, from: &Buffer<T>, to: &Remote) -> Result<()> {
        assert!(to.len <= from.len());
        if to.len == 0 {
            return Ok(());
        }
        let (own, theirs) = (self.at(from.pointer()), Spot::of(to));
        // SAFETY: in bounds of the buffer by the check above; the constructor's contract covers the caller's
        // memory.
        let done = Caller::of(to, size_of::<T>())?
            .ordered(self, || unsafe { self.copy_to_or_from(theirs, own, to.len * size_of::<T>()) });
        if done.is_ok() || to.ordinal == self.info().ordinal {
            return done;
        }
        let mut host = vec![T::default(); to.len];
        self.read(from, 0, &mut host)?;
        write(bytemuck::cast_slice(&host), size_of::<T>(), to)
    }

    /// Returns an address in the memory of this GPU as a [`Spot`].
    fn at(&self, pointer: u64) -> Spot {
        Spot { ordinal: self.info().ordinal, pointer }
    }

    /// Copies bytes within this GPU, or between it and another one, in the order of this device's stream.
    ///
    /// # Safety
    /// As [`copy_between`](Self::copy_between).
    unsafe fn copy_to_or_from(&self, to: Spot, from: Spot, bytes: usize) -> Result<()> {
        // SAFETY: the caller's promise.
        unsafe {
            match to.ordinal == from.ordinal {
                true => self.copy_anywhere(to.pointer, from.pointer, bytes),
                false => self.copy_between(to, from, bytes),
            }
        }
    }

    /// Copies bytes within memory that this GPU reaches, in this device's stream.
    ///
    /// # Safety
    /// Both addresses must be valid for that many bytes until the stream has done the copy.
    pub(super) unsafe fn copy_anywhere(&self, to: u64, from: u64, bytes: usize) -> Result<()> {
        // SAFETY: the caller's promise.
        unsafe { self.copy_beside(self.stream(), to, from, bytes) }
    }

    /// Copies as [`copy_anywhere`](Self::copy_anywhere) does, but in another stream of this device.
    ///
    /// # Safety
    /// As [`copy_anywhere`](Self::copy_anywhere), for that stream.
    pub(super) unsafe fn copy_beside(
        &self,
        stream: &CudaStream,
        to: u64,
        from: u64,
        bytes: usize,
    ) -> Result<()> {
        if bytes == 0 {
            return Ok(());
        }
        self.bind()?;
        // SAFETY: guaranteed by the caller; with unified addressing the driver knows the location of each
        // address.
        self.driver("cuMemcpyAsync", unsafe { sys::cuMemcpyAsync(to, from, bytes, stream.cu_stream()) })
    }
}

/// Copies a caller's numbers to the host and waits.
fn read(from: &Remote, size: usize, to: &mut [u8]) -> Result<()> {
    assert_eq!(from.len * size, to.len());
    if from.len == 0 {
        return Ok(());
    }
    let (host, bytes) = (to.as_mut_ptr().cast(), to.len());
    let caller = Caller::of(from, size)?;
    // SAFETY: both have `bytes` bytes, the caller's by the constructor's contract; the copy is waited for.
    caller.within(|| unsafe {
        match caller.stream {
            None => caller.driver("cuMemcpyDtoH", sys::cuMemcpyDtoH_v2(host, from.pointer, bytes)),
            Some(stream) => {
                // A copy to pageable memory waits in the driver without a time limit, so wait for the stream
                // first.
                caller.driver("cuStreamQuery", wait_for_caller(stream)?)?;
                let code = sys::cuMemcpyDtoHAsync_v2(host, from.pointer, bytes, stream);
                caller.driver("cuMemcpyDtoHAsync", code)?;
                caller.driver("cuStreamQuery", wait_for_caller(stream)?)
            }
        }
    })
}

/// Copies host numbers to a caller's array and waits.
fn write(from: &[u8], size: usize, to: &Remote) -> Result<()> {
    assert_eq!(from.len(), to.len * size);
    if to.len == 0 {
        return Ok(());
    }
    let (host, bytes) = (from.as_ptr().cast(), from.len());
    let caller = Caller::of(to, size)?;
    // SAFETY: both have `bytes` bytes, the caller's by the constructor's contract; the copy is waited for.
    caller.within(|| unsafe {
        match caller.stream {
            None => caller.driver("cuMemcpyHtoD", sys::cuMemcpyHtoD_v2(to.pointer, host, bytes)),
            Some(stream) => {
                let code = sys::cuMemcpyHtoDAsync_v2(to.pointer, host, bytes, stream);
                caller.driver("cuMemcpyHtoDAsync", code)?;
                caller.driver("cuStreamQuery", wait_for_caller(stream)?)
            }
        }
    })
}

/// The owner of borrowed memory: the stream to be ordered with, and a context in which the memory can be
/// used.
struct Caller {
    name: String,
    context: sys::CUcontext,
    stream: Option<sys::CUstream>,
    /// The device whose primary context is retained while this lives.
    held: Option<sys::CUdevice>,
}

impl Caller {
    /// Checks borrowed memory before any work touches it: a wrong address would break the context for all its
    /// users.
    fn of(memory: &Remote, size: usize) -> Result<Self> {
        let all = devices()?;
        let Some(info) = all.into_iter().nth(memory.ordinal) else {
            return Err(Error::invalid(format!(
                "an array was declared to be on GPU {}, but this process has no such GPU",
                memory.ordinal
            )));
        };
        let mut caller = Self { name: info.name, context: std::ptr::null_mut(), stream: None, held: None };
        if memory.stream == Some(PER_THREAD) {
            return Err(Error::invalid(
                "the per-thread default stream is a different stream in every thread; pass a stream of your own, or null \
                 for the legacy default stream",
            ));
        }
        if memory.pointer == 0 {
            return Err(Error::invalid(format!(
                "an array of {} numbers has the device address 0; pass the address of allocated memory",
                memory.len
            )));
        }
        // Numbers are aligned to their size.
        if memory.pointer % size as u64 != 0 {
            return Err(Error::invalid(format!(
                "the device address {:#x} is not a multiple of {size}, the size of a number",
                memory.pointer
            )));
        }
        match memory.stream {
            Some(stream) if stream > LAST_SPECIAL => {
                // SAFETY: a live stream by the constructor's promise; writes one pointer.
                let code = unsafe { sys::cuStreamGetCtx(stream as sys::CUstream, &mut caller.context) };
                caller.driver("cuStreamGetCtx", code)?;
            }
            _ => {
                let mut device = 0;
                // SAFETY: writes one integer.
                let code = unsafe { sys::cuDeviceGet(&mut device, memory.ordinal as i32) };
                caller.driver("cuDeviceGet", code)?;
                // SAFETY: writes one pointer; released when the caller is dropped.
                let code = unsafe { sys::cuDevicePrimaryCtxRetain(&mut caller.context, device) };
                caller.driver("cuDevicePrimaryCtxRetain", code)?;
                caller.held = Some(device);
            }
        }
        caller.stream = memory.stream.map(|s| s as sys::CUstream);
        caller.within(|| caller.check_address(memory))?;
        Ok(caller)
    }

    /// Refuses an address that the driver does not know, or that belongs to another GPU.
    fn check_address(&self, memory: &Remote) -> Result<()> {
        use sys::CUpointer_attribute as Attribute;
        let (mut kind, mut managed, mut ordinal) = (0u32, 0u32, -1i32);
        let mut attributes = [
            Attribute::CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
            Attribute::CU_POINTER_ATTRIBUTE_IS_MANAGED,
            Attribute::CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
        ];
        let mut values =
            [&raw mut kind as *mut c_void, &raw mut managed as *mut c_void, &raw mut ordinal as *mut c_void];
        // SAFETY: three attributes of four bytes each.
        let code = unsafe {
            sys::cuPointerGetAttributes(3, attributes.as_mut_ptr(), values.as_mut_ptr(), memory.pointer)
        };
        self.driver("cuPointerGetAttributes", code)?;
        let device = sys::CUmemorytype_enum::CU_MEMORYTYPE_DEVICE as u32;
        if kind == 0 {
            return Err(Error::invalid(format!(
                "the CUDA driver does not know the address {:#x}; pass host memory as a slice",
                memory.pointer
            )));
        }
        if kind == device && managed == 0 && ordinal >= 0 && ordinal as usize != memory.ordinal {
            return Err(Error::invalid(format!(
                "the address {:#x} belongs to GPU {ordinal}, but was declared to be on GPU {}",
                memory.pointer, memory.ordinal
            )));
        }
        Ok(())
    }

    /// Runs `work` with the caller's context current, then restores the context that was current before.
    fn within<R>(&self, work: impl FnOnce() -> Result<R>) -> Result<R> {
        // SAFETY: a live context: that of a live stream, or one that is held.
        self.driver("cuCtxPushCurrent", unsafe { sys::cuCtxPushCurrent_v2(self.context) })?;
        let done = work();
        let mut popped = std::ptr::null_mut();
        // SAFETY: pops the context that was pushed above.
        let code = unsafe { sys::cuCtxPopCurrent_v2(&mut popped) };
        let done = done?;
        self.driver("cuCtxPopCurrent", code)?;
        Ok(done)
    }

    /// Runs `work` on the device's stream after the present work of the caller's stream. The caller's stream
    /// then waits for it; without one, this function waits.
    fn ordered<R>(&self, device: &Device, work: impl FnOnce() -> Result<R>) -> Result<R> {
        let ours = device.stream().cu_stream();
        let apart = self.stream.filter(|&theirs| theirs != ours);
        if let Some(theirs) = apart {
            let event = self.within(|| Event::record_in(theirs, &|call, code| self.driver(call, code)))?;
            event.awaited_by(device)?;
        }
        let done = work();
        // Also after an error, because part of the work may still run.
        let after = match apart {
            Some(theirs) => Event::record(device).and_then(|event| {
                self.within(|| {
                    // SAFETY: both are alive.
                    self.driver("cuStreamWaitEvent", unsafe {
                        sys::cuStreamWaitEvent(theirs, event.handle(), 0)
                    })
                })
            }),
            None if self.stream.is_none() => device.wait(),
            None => Ok(()),
        };
        let done = done?;
        after?;
        Ok(done)
    }

    fn driver(&self, call: &str, code: sys::CUresult) -> Result<()> {
        code.result().map_err(|e| failure(&self.name, call, e))
    }
}

impl Drop for Caller {
    fn drop(&mut self) {
        if let Some(device) = self.held {
            // SAFETY: retained once.
            let _ = unsafe { sys::cuDevicePrimaryCtxRelease_v2(device) };
        }
    }
}
