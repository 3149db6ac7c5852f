//! Finds the MUMPS library of this process; building Krylith needs no MUMPS.
//!
//! It must be linked with the MPI library that Krylith's ranks use. A sequential build of MUMPS brings a stub
//! of MPI, on which each process would solve a part as if it were the whole.

use super::super::functions::Symbols;
use super::super::library::{Library, last_error};
use super::super::loaded::{file_at, file_of};
use std::ffi::{CString, c_int, c_void};
use std::path::PathBuf;
use std::sync::OnceLock;

/// The environment variable that names a library: a path, or a name for the system's search.
const VARIABLE: &str = "KRYLITH_MUMPS";
/// Names to try, in order: those of Debian and Ubuntu, then the one that the sources build.
const NAMES: [&str; 5] =
    ["libdmumps-5.8.so", "libdmumps-5.7.so", "libdmumps-5.6.so", "libdmumps-5.5.so", "libdmumps.so"];

/// The library's one function.
pub type Call = unsafe extern "C" fn(*mut c_void);
type Get = unsafe extern "C" fn() -> c_int;
type Set = unsafe extern "C" fn(c_int);

/// A library that may be called on the ranks of Krylith's MPI.
pub struct MumpsLibrary {
    pub call: Call,
    pub path: String,
    /// Reads and sets the number of threads of OpenBLAS, if MUMPS uses it.
    pub blas_threads: Option<(Get, Set)>,
}

/// The library of this process for its MPI library, or the reason why there is none. Not collective.
pub fn find(mpi: &Library) -> Result<&'static MumpsLibrary, String> {
    static FOUND: OnceLock<Result<MumpsLibrary, String>> = OnceLock::new();
    FOUND.get_or_init(|| search(mpi)).as_ref().map_err(Clone::clone)
}

fn search(mpi: &Library) -> Result<MumpsLibrary, String> {
    if let Some(named) = std::env::var_os(VARIABLE).filter(|named| !named.is_empty()) {
        let named = named.to_string_lossy();
        return open(&named, mpi).map_err(|why| format!("{VARIABLE}={named}: {why}"));
    }
    let mut refused = None;
    for name in NAMES {
        match open(name, mpi) {
            Ok(library) => return Ok(library),
            // The loader's words for a missing file do not matter, but those for one that fails to load do.
            Err(why) if why.contains("No such file") => {}
            Err(why) => refused = refused.or(Some(format!("{name}: {why}"))),
        }
    }
    Err(refused.unwrap_or_else(|| format!("{} was not found", NAMES[NAMES.len() - 1])))
}

fn open(name: &str, mpi: &Library) -> Result<MumpsLibrary, String> {
    let text = CString::new(name).map_err(|_| format!("{name:?} has a NUL character"))?;
    // SAFETY: loading a library runs its initialisers; those of MUMPS have no precondition.
    let handle = unsafe { libc::dlopen(text.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
    if handle.is_null() {
        return Err(last_error());
    }
    checked(Symbols(handle), mpi).inspect_err(|_| {
        // SAFETY: no address of the library is kept.
        unsafe { libc::dlclose(handle) };
    })
}

fn checked(symbols: Symbols, mpi: &Library) -> Result<MumpsLibrary, String> {
    let call = symbols.find(c"dmumps_c").ok_or("the library does not define dmumps_c")?;
    let path = file_at(call).unwrap_or_else(|| "in this program".into());
    // A search from a library's handle finds what the library itself is linked with.
    let rank = symbols.find(c"MPI_Comm_rank").ok_or_else(|| format!("{path} is linked with no MPI"))?;
    let file = file_at(rank).unwrap_or_else(|| "this program".into());
    let fortran = symbols.find(c"mpi_comm_rank_").and_then(file_at);
    let is_stub = |file: &str| file.rsplit('/').next().is_some_and(|name| name.contains("mpiseq"));
    if is_stub(&file) || fortran.as_deref().is_some_and(is_stub) || file == path {
        return Err(format!("{path} is the sequential build of MUMPS, with a stub of MPI in {file}"));
    }
    let own = file_of(mpi.symbols).unwrap_or_default();
    if Some(rank) != mpi.symbols.find(c"MPI_Comm_rank") {
        return Err(format!("{path} is linked with {file}, but the ranks use {}", mpi.describe()));
    }
    // A loader that has one libmpi gives it to every library that asks for this name, of another MPI too.
    if let Some(fortran) = fortran.filter(|fortran| folder(fortran) != folder(&own)) {
        return Err(format!("{path} is linked with {fortran}, but the ranks use {}", mpi.describe()));
    }
    // SAFETY: the signatures of the headers of MUMPS and of OpenBLAS.
    let (call, blas_threads) = unsafe {
        let get =
            symbols.find(c"openblas_get_num_threads").map(|f| std::mem::transmute::<*mut c_void, Get>(f));
        let set =
            symbols.find(c"openblas_set_num_threads").map(|f| std::mem::transmute::<*mut c_void, Set>(f));
        (std::mem::transmute::<*mut c_void, Call>(call), get.zip(set))
    };
    Ok(MumpsLibrary { call, path, blas_threads })
}

/// The folder of a file, behind links.
fn folder(file: &str) -> Option<PathBuf> {
    std::fs::canonicalize(file).ok()?.parent().map(PathBuf::from)
}
