//! The status of a call, and its error text, which is kept per thread.

use krylith_core::Error;
use krylith_core::device::cuda::KeptContext;
use krylith_report::words::Language;
use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// The status of a call. A solve that does not converge returns KRYLITH_OK; its outcome says why it ended.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    /// The call succeeded.
    KrylithOk = 0,
    /// An argument, an option or a matrix is wrong; the caller can correct it.
    KrylithInvalid = 1,
    /// A device, a library or another rank is missing or has failed.
    KrylithDevice = 2,
    /// Not enough memory on the host or a GPU.
    KrylithMemory = 3,
    /// A callback of the caller reported a failure.
    KrylithCallback = 4,
    /// A bug in Krylith; please report it.
    KrylithInternal = 5,
    /// krylith_solver_cancel ended an update of values, or a set-up before the first iteration of a solve. A
    /// solve that it ends later returns KRYLITH_OK.
    KrylithCancelled = 6,
}

/// The reasons why a call can fail.
pub enum Failure {
    Krylith(Error),
    /// The nonzero number that a callback returned.
    Callback(i32),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Krylith(error)
    }
}

pub type Result<T> = std::result::Result<T, Failure>;

thread_local! {
    static ERROR: RefCell<CString> = RefCell::default();
    static TEXT: RefCell<CString> = RefCell::default();
}

fn keep(place: &'static std::thread::LocalKey<RefCell<CString>>, text: String) -> *const c_char {
    let text = CString::new(text.replace('\0', " ")).unwrap_or_default();
    place.with(|kept| {
        *kept.borrow_mut() = text;
        kept.borrow().as_ptr()
    })
}

/// Stores a text for this thread and returns its address, which is valid until the thread asks for another
/// text.
pub fn say(text: String) -> *const c_char {
    keep(&TEXT, text)
}

/// Does the work of a call. An error or a panic becomes a status, and an error text for this thread.
pub fn guard(work: impl FnOnce() -> Result<()>) -> Status {
    // Other libraries find the GPU that was current before.
    let _kept = KeptContext::new();
    let done = catch_unwind(AssertUnwindSafe(|| {
        krylith_core::solver::host::refuse_forked()?;
        work()
    }));
    let error = match done {
        Ok(Ok(())) => return Status::KrylithOk,
        Ok(Err(Failure::Krylith(error))) => error,
        Ok(Err(Failure::Callback(code))) => {
            keep(&ERROR, format!("a callback of the program returned {code}"));
            return Status::KrylithCallback;
        }
        Err(panic) => Error::of_panic(&*panic),
    };
    let text = error.to_string() + &Language::Text.remedies(&error);
    keep(&ERROR, text);
    match &error {
        Error::Memory { .. } => Status::KrylithMemory,
        Error::Internal(_) => Status::KrylithInternal,
        error if error.is_interrupt() => Status::KrylithCancelled,
        error if error.exit_code() == 3 => Status::KrylithDevice,
        _ => Status::KrylithInvalid,
    }
}

/// Reads a text of the caller; a null pointer means an empty text.
pub fn text<'a>(text: *const c_char, what: &str) -> krylith_core::Result<&'a str> {
    if text.is_null() {
        return Ok("");
    }
    // SAFETY: the caller promises that the text ends with a zero and is valid during the call.
    let text = unsafe { CStr::from_ptr(text) };
    text.to_str().map_err(|_| Error::invalid(format!("{what} is not UTF-8 text")))
}

/// Reads a text that the caller must give; a null pointer is an error.
pub fn needed<'a>(from: *const c_char, what: &str) -> krylith_core::Result<&'a str> {
    given((!from.is_null()).then_some(from), what).and_then(|from| text(from, what))
}

/// Returns the target of a pointer of the caller; a null pointer is an error.
pub fn given<T>(pointer: Option<T>, what: &str) -> krylith_core::Result<T> {
    pointer.ok_or_else(|| Error::invalid(format!("{what} is a null pointer")))
}

/// Returns the error text of the last call of this thread that failed. The pointer is never null. The text is
/// valid until another call of this thread fails.
#[unsafe(no_mangle)]
pub extern "C" fn krylith_last_error() -> *const c_char {
    ERROR.with(|error| error.borrow().as_ptr())
}

/// Stores an error text for krylith_last_error, and returns KRYLITH_INVALID. For wrappers in other languages,
/// which check arguments themselves.
#[unsafe(no_mangle)]
pub extern "C" fn krylith_reject(why: *const c_char) -> Status {
    guard(|| Err(Error::invalid(text(why, "why")?).into()))
}

/// Returns the version of the library, such as "0.1.0"; KRYLITH_VERSION is the version of the header.
#[unsafe(no_mangle)]
pub extern "C" fn krylith_version() -> *const c_char {
    const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), "\0");
    VERSION.as_ptr().cast()
}
