//! The entry point of JAX's foreign function interface (FFI): XLA calls Krylith from compiled programs.
//!
//! The types mirror `xla/ffi/api/c_api.h`, which jaxlib ships, as far as they are used here. Minor versions
//! append fields, and each structure has its size, so longer structures are accepted. A handler describes the
//! buffers of a call to one Python function: type, address and dimensions. It copies nothing.

use crate::errors::refuse_forked;
use pyo3::exceptions::PyKeyboardInterrupt;
use pyo3::prelude::*;
use std::ffi::{CString, c_char, c_int, c_void};
use std::mem::{offset_of, size_of};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::null_mut;
use std::sync::{Mutex, PoisonError};

/// Version of the interface that these types mirror. JAX accepts handlers of earlier minor versions.
const VERSION: (c_int, c_int) = (0, 1);

/// `XLA_FFI_Extension_Metadata`: XLA asks for the version and the traits of a handler.
const METADATA: c_int = 1;
/// `XLA_FFI_AttrType_STRING`.
const STRING: c_int = 4;
/// `XLA_FFI_ArgType_BUFFER` and `XLA_FFI_RetType_BUFFER`.
const BUFFER: c_int = 1;

/// Stages of an execution. Only the last one may read buffers.
const INSTANTIATE: c_int = 0;
const INITIALIZE: c_int = 2;
const EXECUTE: c_int = 3;

/// Codes of errors.
const CANCELLED: c_int = 1;
const INVALID_ARGUMENT: c_int = 3;
const FAILED_PRECONDITION: c_int = 9;
const INTERNAL: c_int = 13;

#[repr(C)]
struct Extension {
    struct_size: usize,
    kind: c_int,
    next: *mut Extension,
}

#[repr(C)]
struct Version {
    struct_size: usize,
    extensions: *mut Extension,
    major: c_int,
    minor: c_int,
}

#[repr(C)]
struct Metadata {
    struct_size: usize,
    version: Version,
    traits: u32,
}

#[repr(C)]
struct MetadataExtension {
    base: Extension,
    metadata: *mut Metadata,
}

/// An error of XLA, which owns it.
#[repr(C)]
pub struct XlaError {
    private: [u8; 0],
}

#[repr(C)]
struct ErrorCreate {
    struct_size: usize,
    extensions: *mut Extension,
    message: *const c_char,
    code: c_int,
}

#[repr(C)]
struct StreamGet {
    struct_size: usize,
    extensions: *mut Extension,
    context: *mut c_void,
    stream: *mut c_void,
}

#[repr(C)]
struct OrdinalGet {
    struct_size: usize,
    extensions: *mut Extension,
    context: *mut c_void,
    ordinal: i32,
}

/// The functions of XLA, in the order of the header.
#[repr(C)]
struct Api {
    struct_size: usize,
    extensions: *mut Extension,
    version: Version,
    internal: *const c_void,
    error_create: Option<unsafe extern "C" fn(*mut ErrorCreate) -> *mut XlaError>,
    error_message: *const c_void,
    error_destroy: *const c_void,
    handler_register: *const c_void,
    stream_get: Option<unsafe extern "C" fn(*mut StreamGet) -> *mut XlaError>,
    /// Functions of types, contexts, states, memory, threads, futures and runs.
    others: [*const c_void; 12],
    ordinal_get: Option<unsafe extern "C" fn(*mut OrdinalGet) -> *mut XlaError>,
}

#[repr(C)]
struct Buffer {
    struct_size: usize,
    extensions: *mut Extension,
    dtype: c_int,
    data: *mut c_void,
    rank: i64,
    dims: *const i64,
}

#[repr(C)]
struct Text {
    at: *const u8,
    len: usize,
}

/// Arguments or results of a call.
#[repr(C)]
struct Buffers {
    struct_size: usize,
    extensions: *mut Extension,
    size: i64,
    types: *const c_int,
    at: *const *const Buffer,
}

#[repr(C)]
struct Attributes {
    struct_size: usize,
    extensions: *mut Extension,
    size: i64,
    types: *const c_int,
    names: *const *const Text,
    at: *const *const c_void,
}

/// A call of a handler.
#[repr(C)]
pub struct Frame {
    struct_size: usize,
    extensions: *mut Extension,
    api: *const Api,
    context: *mut c_void,
    stage: c_int,
    arguments: Buffers,
    results: Buffers,
    attributes: Attributes,
}

/// Size of the structure up to a field, as `XLA_FFI_STRUCT_SIZE` computes it.
macro_rules! size_to {
    ($type:ty, $field:ident: $of:ty) => {
        offset_of!($type, $field) + size_of::<$of>()
    };
}

/// A buffer for Python: NumPy's name of the type, address and dimensions.
type Described = (&'static str, usize, Vec<i64>);

/// The Python function that solves: it gets the attribute `spec`, arguments, results, and GPU and stream.
static SOLVE: Mutex<Option<Py<PyAny>>> = Mutex::new(None);

/// A code of XLA and a text.
struct Failure(c_int, String);

impl Failure {
    fn of(error: &PyErr, py: Python<'_>) -> Self {
        // JAX may make other classes of exceptions from other codes.
        let code = if error.is_instance_of::<PyKeyboardInterrupt>(py) { CANCELLED } else { INTERNAL };
        let name = error.get_type(py).name().map_or_else(|_| "error".into(), |name| name.to_string());
        let ours = error.get_type(py).module().is_ok_and(|m| m.to_string().starts_with("krylith"));
        let text = error.value(py).to_string();
        Self(code, format!("{}{name}: {text}", if ours { "krylith." } else { "" }))
    }

    /// Gives the failure to XLA. Without XLA's functions there is no one to give it to.
    ///
    /// # Safety
    /// `api` is null or XLA's.
    unsafe fn raise(self, api: *const Api) -> *mut XlaError {
        // SAFETY: the caller's promise; `error_create` is part of every version.
        let Some(create) = (unsafe { api.as_ref() }).and_then(|api| api.error_create) else {
            return null_mut();
        };
        let message = CString::new(self.1.replace('\0', " ")).unwrap_or_default();
        let mut error = ErrorCreate {
            struct_size: size_to!(ErrorCreate, code: c_int),
            extensions: null_mut(),
            message: message.as_ptr(),
            code: self.0,
        };
        // SAFETY: the structure is that of the header, and XLA copies the text.
        unsafe { create(&mut error) }
    }
}

/// Returns a slice of an array of C, which is null if it is empty.
///
/// # Safety
/// `at` is null, or the address of `len` values that outlive the slice.
unsafe fn slice<'a, T>(at: *const T, len: i64) -> &'a [T] {
    match usize::try_from(len) {
        // SAFETY: the caller's promise.
        Ok(len) if len > 0 && !at.is_null() => unsafe { std::slice::from_raw_parts(at, len) },
        _ => &[],
    }
}

fn dtype(of: c_int) -> Result<&'static str, Failure> {
    Ok(match of {
        4 => "<i4",
        5 => "<i8",
        8 => "<u4",
        11 => "<f4",
        12 => "<f8",
        other => {
            return Err(Failure(INVALID_ARGUMENT, format!("a buffer has the unknown type {other} of XLA")));
        }
    })
}

impl Buffers {
    /// # Safety
    /// The structure is one of XLA's, in the current call.
    unsafe fn described(&self) -> Result<Vec<Described>, Failure> {
        // SAFETY: the caller's promise.
        let (types, at) = unsafe { (slice(self.types, self.size), slice(self.at, self.size)) };
        let describe = |(&kind, &at): (&c_int, &*const Buffer)| {
            if kind != BUFFER || at.is_null() {
                return Err(Failure(INVALID_ARGUMENT, format!("an argument has the unknown kind {kind}")));
            }
            // SAFETY: the caller's promise.
            let buffer = unsafe { &*at };
            // SAFETY: as above.
            let dims = unsafe { slice(buffer.dims, buffer.rank) };
            Ok((dtype(buffer.dtype)?, buffer.data as usize, dims.to_vec()))
        };
        types.iter().zip(at).map(describe).collect()
    }
}

impl Attributes {
    /// Returns the text of an attribute.
    ///
    /// # Safety
    /// The structure is one of XLA's, in the current call.
    unsafe fn text(&self, wanted: &str) -> Result<String, Failure> {
        let size = self.size;
        // SAFETY: the caller's promise.
        let (types, names, at) =
            unsafe { (slice(self.types, size), slice(self.names, size), slice(self.at, size)) };
        for ((&kind, &name), &at) in types.iter().zip(names).zip(at) {
            // SAFETY: the caller's promise.
            let name = unsafe { slice((*name).at, (*name).len as i64) };
            if name != wanted.as_bytes() || kind != STRING {
                continue;
            }
            let text = at.cast::<Text>();
            // SAFETY: attributes of this kind are texts.
            let text = unsafe { slice((*text).at, (*text).len as i64) };
            return Ok(String::from_utf8_lossy(text).into_owned());
        }
        Err(Failure(INVALID_ARGUMENT, format!("the call has no text attribute `{wanted}`")))
    }
}

/// Answers XLA's question for the version and the traits of a handler.
///
/// # Safety
/// The extension is one of XLA's of kind [`METADATA`].
unsafe fn answer(extension: *mut Extension) -> Result<(), Failure> {
    // SAFETY: the caller's promise.
    let metadata = unsafe { (*extension.cast::<MetadataExtension>()).metadata.as_mut() };
    match metadata.filter(|m| m.struct_size >= size_to!(Metadata, traits: u32)) {
        Some(metadata) => {
            metadata.version = Version {
                struct_size: size_to!(Version, minor: c_int),
                extensions: null_mut(),
                major: VERSION.0,
                minor: VERSION.1,
            };
            metadata.traits = 0;
            Ok(())
        }
        None => Err(Failure(FAILED_PRECONDITION, "XLA's metadata are shorter than in version 0.1".into())),
    }
}

/// Returns the GPU and the stream of a call.
///
/// # Safety
/// The frame is XLA's, in the current call, with checked version.
unsafe fn place(frame: &Frame) -> Result<(i32, usize), Failure> {
    let old = || Failure(FAILED_PRECONDITION, "this version of XLA does not name the GPU of a call".into());
    // SAFETY: the caller's promise.
    let api = unsafe { &*frame.api };
    let known = api.struct_size >= size_of::<Api>();
    let (Some(stream_get), Some(ordinal_get)) = (api.stream_get, api.ordinal_get.filter(|_| known)) else {
        return Err(old());
    };
    let context = frame.context;
    let mut stream = StreamGet {
        struct_size: size_of::<StreamGet>(),
        extensions: null_mut(),
        context,
        stream: null_mut(),
    };
    let mut ordinal = OrdinalGet {
        struct_size: size_to!(OrdinalGet, ordinal: i32),
        extensions: null_mut(),
        context,
        ordinal: 0,
    };
    // SAFETY: the structures are those of the header, and the context is that of the call.
    let errors = unsafe { [stream_get(&mut stream), ordinal_get(&mut ordinal)] };
    match errors.iter().all(|error| error.is_null()) {
        true => Ok((ordinal.ordinal, stream.stream as usize)),
        false => Err(old()), // the error is not freed: this ends the program of the caller
    }
}

/// # Safety
/// The frame is XLA's, in the current call.
unsafe fn called(frame: &Frame, on_gpu: bool) -> Result<(), Failure> {
    if frame.struct_size < size_of::<Frame>() {
        return Err(Failure(
            FAILED_PRECONDITION,
            format!(
                "a call of XLA has {} bytes; expected {} or more: update jaxlib",
                frame.struct_size,
                size_of::<Frame>()
            ),
        ));
    }
    let mut extension = frame.extensions;
    // SAFETY: the extensions are a list of XLA's.
    while let Some(one) = unsafe { extension.as_ref() } {
        if one.kind == METADATA {
            // SAFETY: of this kind.
            return unsafe { answer(extension) };
        }
        extension = one.next;
    }
    // SAFETY: a pointer of XLA.
    let version = unsafe { frame.api.as_ref() }.map_or((-1, 0), |api| (api.version.major, api.version.minor));
    if version.0 != VERSION.0 {
        return Err(Failure(
            FAILED_PRECONDITION,
            format!(
                "XLA's foreign function interface has version {}.{}; this Krylith knows {}.x: update krylith or jaxlib",
                version.0, version.1, VERSION.0
            ),
        ));
    }
    match frame.stage {
        EXECUTE => {}
        INSTANTIATE..=INITIALIZE => return Ok(()),
        other => return Err(Failure(INTERNAL, format!("XLA calls Krylith in the unknown stage {other}"))),
    }
    // SAFETY: the caller's promise, and the stage is that of an execution.
    let (spec, arguments, results, at) = unsafe {
        (
            frame.attributes.text("spec")?,
            frame.arguments.described()?,
            frame.results.described()?,
            if on_gpu { Some(place(frame)?) } else { None },
        )
    };
    let call = |py: Python<'_>| {
        let solve = SOLVE.lock().unwrap_or_else(PoisonError::into_inner).as_ref().map(|f| f.clone_ref(py));
        let Some(solve) = solve else {
            return Err(Failure(FAILED_PRECONDITION, "import krylith.jax before the program runs".into()));
        };
        solve.call1(py, (spec, arguments, results, at)).map(drop).map_err(|e| Failure::of(&e, py))
    };
    Python::try_attach(call).unwrap_or_else(|| Err(Failure(CANCELLED, "Python is ending".into())))
}

/// # Safety
/// `frame` is null or XLA's, in the current call.
unsafe fn handle(frame: *const Frame, on_gpu: bool) -> *mut XlaError {
    // SAFETY: the caller's promise.
    let Some(frame) = (unsafe { frame.as_ref() }) else { return null_mut() };
    // SAFETY: the caller's promise.
    let done = catch_unwind(AssertUnwindSafe(|| unsafe { called(frame, on_gpu) }));
    let failure = match done {
        Ok(Ok(())) => return null_mut(),
        Ok(Err(failure)) => failure,
        Err(_) => Failure(INTERNAL, "a panic in Krylith; this is a bug".into()),
    };
    // SAFETY: XLA's functions.
    unsafe { failure.raise(frame.api) }
}

/// Handles calls on the host.
///
/// # Safety
/// `frame` is null or XLA's, in the current call.
pub unsafe extern "C" fn on_host(frame: *const Frame) -> *mut XlaError {
    // SAFETY: the caller's promise.
    unsafe { handle(frame, false) }
}

/// Handles calls on a GPU.
///
/// # Safety
/// `frame` is null or XLA's, in the current call.
pub unsafe extern "C" fn on_gpu(frame: *const Frame) -> *mut XlaError {
    // SAFETY: the caller's promise.
    unsafe { handle(frame, true) }
}

/// Sets the function that solves, and returns the addresses of the handlers for the host and for GPUs.
#[pyfunction]
pub fn xla_handlers(solve: Py<PyAny>) -> PyResult<(usize, usize)> {
    refuse_forked()?;
    *SOLVE.lock().unwrap_or_else(PoisonError::into_inner) = Some(solve);
    Ok((on_host as *const () as usize, on_gpu as *const () as usize))
}

/// Returns the offsets of the last field that is used of each structure, by its name in the header.
#[pyfunction]
pub fn xla_layout() -> Vec<(&'static str, &'static str, usize)> {
    vec![
        ("XLA_FFI_Extension_Base", "next", offset_of!(Extension, next)),
        ("XLA_FFI_Api_Version", "minor_version", offset_of!(Version, minor)),
        ("XLA_FFI_Metadata", "traits", offset_of!(Metadata, traits)),
        ("XLA_FFI_Metadata_Extension", "metadata", offset_of!(MetadataExtension, metadata)),
        ("XLA_FFI_Error_Create_Args", "errc", offset_of!(ErrorCreate, code)),
        ("XLA_FFI_Stream_Get_Args", "stream", offset_of!(StreamGet, stream)),
        ("XLA_FFI_DeviceOrdinal_Get_Args", "device_ordinal", offset_of!(OrdinalGet, ordinal)),
        ("XLA_FFI_Api", "XLA_FFI_Error_Create", offset_of!(Api, error_create)),
        ("XLA_FFI_Api", "XLA_FFI_Stream_Get", offset_of!(Api, stream_get)),
        ("XLA_FFI_Api", "XLA_FFI_DeviceOrdinal_Get", offset_of!(Api, ordinal_get)),
        ("XLA_FFI_Buffer", "dtype", offset_of!(Buffer, dtype)),
        ("XLA_FFI_Buffer", "data", offset_of!(Buffer, data)),
        ("XLA_FFI_Buffer", "rank", offset_of!(Buffer, rank)),
        ("XLA_FFI_Buffer", "dims", offset_of!(Buffer, dims)),
        ("XLA_FFI_ByteSpan", "len", offset_of!(Text, len)),
        ("XLA_FFI_Args", "types", offset_of!(Buffers, types)),
        ("XLA_FFI_Args", "args", offset_of!(Buffers, at)),
        ("XLA_FFI_Rets", "rets", offset_of!(Buffers, at)),
        ("XLA_FFI_Attrs", "names", offset_of!(Attributes, names)),
        ("XLA_FFI_Attrs", "attrs", offset_of!(Attributes, at)),
        ("XLA_FFI_CallFrame", "api", offset_of!(Frame, api)),
        ("XLA_FFI_CallFrame", "ctx", offset_of!(Frame, context)),
        ("XLA_FFI_CallFrame", "stage", offset_of!(Frame, stage)),
        ("XLA_FFI_CallFrame", "args", offset_of!(Frame, arguments)),
        ("XLA_FFI_CallFrame", "rets", offset_of!(Frame, results)),
        ("XLA_FFI_CallFrame", "attrs", offset_of!(Frame, attributes)),
    ]
}
