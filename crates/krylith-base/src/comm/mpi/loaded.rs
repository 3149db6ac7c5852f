//! MPI libraries that are already in this process, whatever loaded them.

use super::functions::Symbols;
use std::ffi::{CStr, CString, c_int, c_void};

/// Each library once, with its name; the one that the program itself calls comes first.
pub fn libraries() -> Vec<(String, Symbols)> {
    let mut found: Vec<(String, Symbols)> = Vec::new();
    let mut known = Vec::new();
    let mut add = |name: String, symbols: Symbols| {
        // Libraries for Fortran and C++ export the functions of the C library on which they depend.
        if let Some(place) = symbols.find(c"MPI_Initialized").filter(|place| !known.contains(place)) {
            known.push(place);
            found.push((name, symbols));
        }
    };
    // The library with which the program is linked, or an MPI that is linked into the program and exported by
    // it.
    add("this program".into(), Symbols(libc::RTLD_DEFAULT));
    for name in names() {
        let Ok(text) = CString::new(name.as_bytes()) else { continue };
        // SAFETY: loads nothing; returns the handle of a library that is already loaded.
        let handle = unsafe { libc::dlopen(text.as_ptr(), libc::RTLD_NOW | libc::RTLD_NOLOAD) };
        if !handle.is_null() {
            add(name, Symbols(handle));
        }
    }
    found
}

/// The file that contains a library's functions.
pub fn file_of(symbols: Symbols) -> Option<String> {
    symbols.find(c"MPI_Initialized").and_then(file_at)
}

/// The file that contains the function or object at this address.
pub fn file_at(place: *mut c_void) -> Option<String> {
    let mut info = std::mem::MaybeUninit::<libc::Dl_info>::zeroed();
    // SAFETY: fills the record if it returns a value other than 0.
    let name = unsafe {
        if libc::dladdr(place, info.as_mut_ptr()) == 0 {
            return None;
        }
        info.assume_init().dli_fname
    };
    // SAFETY: null, or a string of the loader's.
    (!name.is_null()).then(|| unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned())
}

/// Names of loaded libraries that may be MPI's: every vendor calls them `libmpi…`.
#[cfg(target_os = "linux")]
fn names() -> Vec<String> {
    unsafe extern "C" fn note(info: *mut libc::dl_phdr_info, _: usize, names: *mut c_void) -> c_int {
        // SAFETY: the loader passes a record with a name that is a string or null, and its given address.
        let (name, names) = unsafe { ((*info).dlpi_name, &mut *names.cast::<Vec<String>>()) };
        if !name.is_null() {
            // SAFETY: as above.
            let name = unsafe { CStr::from_ptr(name) }.to_string_lossy();
            if name.rsplit('/').next().is_some_and(|file| file.starts_with("libmpi")) {
                names.push(name.into_owned());
            }
        }
        0
    }
    let mut names: Vec<String> = Vec::new();
    // SAFETY: the callback gets the address of `names`, which outlives the call.
    unsafe { libc::dl_iterate_phdr(Some(note), (&raw mut names).cast()) };
    names
}

#[cfg(not(target_os = "linux"))]
fn names() -> Vec<String> {
    Vec::new()
}
