//! Calls of the caller's functions, which launch their own work into the stream of a GPU.

use super::bounce::Event;
use super::driver::{Buffer, Device, context, devices, failure};
use super::space::Cuda;
use crate::operator::{DeviceVectors, FunctionOperator};
use crate::{Error, Result};
use cudarc::driver::CudaContext;
use cudarc::driver::sys::{self, CUstreamCaptureStatus};
use std::sync::Arc;

/// The first driver, as `cuDriverGetVersion` counts, that says into which graph a stream records.
const TELLS_GRAPH: i32 = 12030;

impl Cuda {
    /// Calls `y ← function(x)` with the addresses of the vectors and the stream of this GPU.
    pub(crate) fn call_function(
        &self,
        function: &FunctionOperator<'_>,
        x: &Buffer<f64>,
        y: &mut Buffer<f64>,
    ) -> Result<()> {
        let device = &*self.device;
        // The function's libraries take the current context for theirs.
        device.bind()?;
        let before = device.recorded()?;
        let vectors = DeviceVectors {
            x: x.pointer(),
            y: y.pointer(),
            len: x.len().min(y.len()),
            gpu: device.info().ordinal,
            stream: device.stream().cu_stream() as usize,
            recording: before.is_some(),
        };
        let called = function.call_on_device(&vectors);
        called.unwrap_or_else(|| Err(Error::Internal("a function of the host on a GPU".into())))?;
        // It may have made another context current.
        device.bind()?;
        match before {
            Some(Some(nodes)) if device.recorded()? == Some(Some(nodes)) => Err(Error::invalid(
                "a function is declared capturable, but put no work in the stream that was recorded; let it work in \
                 the stream that it gets, or declare it not capturable",
            )),
            _ => Ok(()),
        }
    }
}

impl Device {
    /// Returns whether the stream records a graph, and then the number of launches recorded so far if the
    /// driver tells it.
    fn recorded(&self) -> Result<Option<Option<usize>>> {
        let (stream, mut status) =
            (self.stream().cu_stream(), CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE);
        // SAFETY: a live stream; writes one number.
        self.driver("cuStreamIsCapturing", unsafe { sys::cuStreamIsCapturing(stream, &mut status) })?;
        match status {
            CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE => return Ok(None),
            CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_ACTIVE => {}
            CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_INVALIDATED => {
                return Err(Error::invalid(
                    "a function is declared capturable, but made a call that a recording does not allow, such as \
                     a wait for the GPU; declare it not capturable",
                ));
            }
        }
        let mut version = 0;
        // SAFETY: writes one integer.
        let _ = unsafe { sys::cuDriverGetVersion(&mut version) };
        if version < TELLS_GRAPH {
            return Ok(Some(None));
        }
        let (mut graph, mut nodes, null) = (std::ptr::null_mut(), 0, std::ptr::null_mut());
        // SAFETY: a live stream; the call writes one number and one handle, and leaves out the rest.
        let code = unsafe {
            sys::cuStreamGetCaptureInfo_v3(
                stream,
                &mut status,
                std::ptr::null_mut(),
                &mut graph,
                std::ptr::null_mut(),
                std::ptr::null_mut(),
                std::ptr::null_mut(),
            )
        };
        self.driver("cuStreamGetCaptureInfo", code)?;
        // SAFETY: the graph of a recording under way; without an array the call writes the number alone.
        self.driver("cuGraphGetNodes", unsafe { sys::cuGraphGetNodes(graph, null, &mut nodes) })?;
        Ok(Some(Some(nodes)))
    }
}

/// Makes work that a stream of a GPU gets later wait for the work that another stream of it has now. Streams
/// are given as numbers.
///
/// # Errors
/// A GPU that is not there; streams of another context than the primary one.
pub fn order_streams(gpu: usize, first: usize, later: usize) -> Result<()> {
    let (name, context) = primary(gpu)?;
    let driver = |call: &str, code: sys::CUresult| code.result().map_err(|e| failure(&name, call, e));
    context.bind_to_thread().map_err(|e| failure(&name, "cuCtxSetCurrent", e))?;
    let event = Event::record_in(first as sys::CUstream, &driver)?;
    // SAFETY: the event is alive, and the driver refuses a handle that it does not know.
    let code = unsafe { sys::cuStreamWaitEvent(later as sys::CUstream, event.handle(), 0) };
    driver("cuStreamWaitEvent", code)
}

/// Starts to copy `len` numbers in f64 from one address on a GPU to another, as work of a stream, which is
/// given as a number.
///
/// # Safety
/// Both addresses must be valid for that many numbers until the stream has passed the copy.
///
/// # Errors
/// A GPU that is not there; a stream of another context than the primary one.
pub unsafe fn copy_in_stream(gpu: usize, to: u64, from: u64, len: usize, stream: usize) -> Result<()> {
    if len == 0 || to == from {
        return Ok(());
    }
    let (name, context) = primary(gpu)?;
    context.bind_to_thread().map_err(|e| failure(&name, "cuCtxSetCurrent", e))?;
    // SAFETY: the caller's promise.
    let code =
        unsafe { sys::cuMemcpyDtoDAsync_v2(to, from, len * size_of::<f64>(), stream as sys::CUstream) };
    code.result().map_err(|e| failure(&name, "cuMemcpyDtoDAsync", e))
}

/// Returns the name and the primary context of a GPU.
fn primary(gpu: usize) -> Result<(String, Arc<CudaContext>)> {
    let Some(info) = devices()?.into_iter().nth(gpu) else {
        return Err(Error::invalid(format!("there is no GPU {gpu}")));
    };
    let context = context(gpu).map_err(|e| failure(&info.name, "cuDevicePrimaryCtxRetain", e))?;
    Ok((info.name, context))
}
