//! How a call ended, and its words for the thread that made it.

use krylith_core::Error;
use krylith_report::words::Language;
use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// How a call ended. A solve that did not converge has ended well: its outcome says so.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    /// Done.
    KrylithOk = 0,
    /// An argument, an option or a matrix is wrong; the caller can mend it.
    KrylithInvalid = 1,
    /// A device, a library or another rank is missing or has failed.
    KrylithDevice = 2,
    /// Not enough memory on the host or a GPU.
    KrylithMemory = 3,
    /// A function of the caller said that it failed.
    KrylithCallback = 4,
    /// A fault of Krylith's own; please report it.
    KrylithInternal = 5,
    /// krylith_solver_cancel ended new values, or a set-up before the first iteration.
    KrylithCancelled = 6,
}

/// What a call can fail by.
pub enum Failure {
    Krylith(Error),
    /// A function of the caller returned this.
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
    static SAID: RefCell<CString> = RefCell::default();
}

fn keep(place: &'static std::thread::LocalKey<RefCell<CString>>, text: String) -> *const c_char {
    let text = CString::new(text.replace('\0', " ")).unwrap_or_default();
    place.with(|kept| {
        *kept.borrow_mut() = text;
        kept.borrow().as_ptr()
    })
}

/// Text for this thread, until it asks for another.
pub fn say(text: String) -> *const c_char {
    keep(&SAID, text)
}

/// Does the work of a call; an error or a panic of it becomes a status, and words for this thread.
pub fn guard(work: impl FnOnce() -> Result<()>) -> Status {
    let done = catch_unwind(AssertUnwindSafe(|| {
        krylith_core::solver::host::refuse_forked()?;
        work()
    }));
    let error = match done {
        Ok(Ok(())) => return Status::KrylithOk,
        Ok(Err(Failure::Krylith(error))) => error,
        Ok(Err(Failure::Callback(code))) => {
            keep(&ERROR, format!("a function of the program returned {code}"));
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

/// A text of the caller; a null pointer is an empty one.
pub fn text<'a>(text: *const c_char, what: &str) -> krylith_core::Result<&'a str> {
    if text.is_null() {
        return Ok("");
    }
    // SAFETY: the caller's promise: it ends with a zero, and lives during the call.
    let text = unsafe { CStr::from_ptr(text) };
    text.to_str().map_err(|_| Error::invalid(format!("{what} is not UTF-8")))
}

/// What a pointer of the caller shows, which must not be null.
pub fn given<T>(pointer: Option<T>, what: &str) -> krylith_core::Result<T> {
    pointer.ok_or_else(|| Error::invalid(format!("{what} is a null pointer")))
}

/// Why the last call of this thread that failed did. Never null; stays as it is until another call of this
/// thread fails.
#[unsafe(no_mangle)]
pub extern "C" fn krylith_last_error() -> *const c_char {
    ERROR.with(|error| error.borrow().as_ptr())
}

/// The version of the library, such as "0.1.0"; that of the header is KRYLITH_VERSION.
#[unsafe(no_mangle)]
pub extern "C" fn krylith_version() -> *const c_char {
    const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), "\0");
    VERSION.as_ptr().cast()
}
