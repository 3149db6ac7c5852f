//! cuDSS, NVIDIA's library of direct factors, found at run time: versions 0.8 and 1.
//!
//! It is looked for where the system's loader looks, and in the folders where NVRTC may be. `KRYLITH_CUDSS`
//! names the library itself. Building Krylith needs no cuDSS. Versions before 0.8 cannot read row pointers of
//! 64 bits beside columns of 32.

use crate::device::cuda::{driver, nvrtc};
use crate::{Error, Result};
use cudarc::driver::sys::CUstream;
use std::ffi::{CString, c_char, c_int, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

pub(super) type Code = c_int;
pub(super) type Handle = *mut c_void;

/// The environment variable that names the library.
const VARIABLE: &str = "KRYLITH_CUDSS";
/// Names to try, in order.
const NAMES: [&str; 2] = ["libcudss.so.1", "libcudss.so.0"];
/// The oldest version whose functions have the signatures below.
const OLDEST: [c_int; 3] = [0, 8, 0];

/// The functions in use, with the signatures of cuDSS 0.8 and 1.
pub(super) struct Library {
    pub version: [c_int; 3],
    /// The library that starts threads for cuDSS, if it lies beside cuDSS.
    pub threads: Option<CString>,
    pub create: unsafe extern "C" fn(*mut Handle) -> Code,
    /// Creates a handle of several GPUs: their count and numbers, of which the first is that of this thread.
    pub create_mg: unsafe extern "C" fn(*mut Handle, c_int, *const c_int) -> Code,
    pub destroy: unsafe extern "C" fn(Handle) -> Code,
    pub set_stream: unsafe extern "C" fn(Handle, CUstream) -> Code,
    /// Sets one stream for each GPU of a handle of several.
    pub set_streams: unsafe extern "C" fn(Handle, *const CUstream, c_int) -> Code,
    pub set_threading: unsafe extern "C" fn(Handle, *const c_char) -> Code,
    pub config_create: unsafe extern "C" fn(*mut Handle) -> Code,
    pub config_destroy: unsafe extern "C" fn(Handle) -> Code,
    pub config_set: unsafe extern "C" fn(Handle, c_int, *const c_void, usize) -> Code,
    pub data_create: unsafe extern "C" fn(Handle, *mut Handle) -> Code,
    pub data_destroy: unsafe extern "C" fn(Handle, Handle) -> Code,
    pub data_set: unsafe extern "C" fn(Handle, Handle, c_int, *const c_void, usize) -> Code,
    pub data_get: unsafe extern "C" fn(Handle, Handle, c_int, *mut c_void, usize, *mut usize) -> Code,
    pub execute: unsafe extern "C" fn(Handle, c_int, Handle, Handle, Handle, Handle, Handle) -> Code,
    pub create_dense: unsafe extern "C" fn(*mut Handle, i64, i64, i64, *const c_void, c_int, c_int) -> Code,
    pub create_csr: unsafe extern "C" fn(
        *mut Handle,
        i64,
        i64,
        i64,
        *const c_void,
        *const c_void,
        *const c_void,
        *const c_void,
        c_int,
        c_int,
        c_int,
        c_int,
        c_int,
        c_int,
    ) -> Code,
    pub set_values: unsafe extern "C" fn(Handle, *const c_void) -> Code,
    pub destroy_matrix: unsafe extern "C" fn(Handle) -> Code,
}

impl Library {
    /// Returns the library, which is loaded once.
    ///
    /// # Errors
    /// The library is missing or too old.
    pub fn get() -> Result<&'static Self> {
        static FOUND: OnceLock<std::result::Result<Library, String>> = OnceLock::new();
        FOUND.get_or_init(Self::find).as_ref().map_err(|message| missing(message))
    }

    fn find() -> std::result::Result<Self, String> {
        if let Some(path) = std::env::var_os(VARIABLE).filter(|path| !path.is_empty()) {
            let path = PathBuf::from(path);
            return Self::open(&path).map_err(|e| format!("{VARIABLE}={}: {e}", path.display()));
        }
        let folders = nvrtc::folders(driver::cuda_major().unwrap_or(13));
        let mut refused = None;
        for name in NAMES {
            for folder in std::iter::once(PathBuf::new()).chain(folders.iter().cloned()) {
                let path = folder.join(name);
                if folder.as_os_str().is_empty() || path.exists() {
                    match Self::open(&path) {
                        Ok(library) => return Ok(library),
                        // A name that the loader does not find is not an error by itself.
                        Err(why) if folder.as_os_str().is_empty() && why.contains("No such file") => {}
                        Err(why) => refused = refused.or(Some(format!("{}: {why}", path.display()))),
                    }
                }
            }
        }
        Err(refused.unwrap_or_else(|| "it was not found".into()))
    }

    fn open(path: &Path) -> std::result::Result<Self, String> {
        let library = nvrtc::load(path)?;
        macro_rules! find {
            ($name:literal) => {{
                // SAFETY: the library is open and stays open.
                let symbol = unsafe { libc::dlsym(library, $name.as_ptr()) };
                if symbol.is_null() {
                    return Err(nvrtc::last_error());
                }
                // SAFETY: the signatures above are those of cuDSS's headers, for versions from `OLDEST` on.
                unsafe { std::mem::transmute_copy::<*mut c_void, _>(&symbol) }
            }};
        }
        let property: unsafe extern "C" fn(c_int, *mut c_int) -> Code = find!(c"cudssGetProperty");
        let mut version = [0; 3];
        for (kind, value) in (0..).zip(&mut version) {
            // SAFETY: writes one integer.
            if unsafe { property(kind, value) } != 0 {
                return Err("it does not tell its version".into());
            }
        }
        if version < OLDEST {
            let [major, minor, patch] = version;
            return Err(format!("version {major}.{minor}.{patch} is too old; 0.8 is the oldest that works"));
        }
        let create: unsafe extern "C" fn(*mut Handle) -> Code = find!(c"cudssCreate");
        Ok(Self {
            version,
            threads: threads_beside(create as *const c_void, version[0]),
            create,
            create_mg: find!(c"cudssCreateMg"),
            destroy: find!(c"cudssDestroy"),
            set_stream: find!(c"cudssSetStream"),
            set_streams: find!(c"cudssSetMgStreams"),
            set_threading: find!(c"cudssSetThreadingLayer"),
            config_create: find!(c"cudssConfigCreate"),
            config_destroy: find!(c"cudssConfigDestroy"),
            config_set: find!(c"cudssConfigSet"),
            data_create: find!(c"cudssDataCreate"),
            data_destroy: find!(c"cudssDataDestroy"),
            data_set: find!(c"cudssDataSet"),
            data_get: find!(c"cudssDataGet"),
            execute: find!(c"cudssExecute"),
            create_dense: find!(c"cudssMatrixCreateDn"),
            create_csr: find!(c"cudssMatrixCreateCsr"),
            set_values: find!(c"cudssMatrixSetValues"),
            destroy_matrix: find!(c"cudssMatrixDestroy"),
        })
    }

    /// Returns the name and the version: `cuDSS 1.0.0`.
    pub fn name(&self) -> String {
        let [major, minor, patch] = self.version;
        format!("cuDSS {major}.{minor}.{patch}")
    }
}

/// Returns the error of a missing library.
fn missing(message: &str) -> Error {
    let wheel = match driver::cuda_major() {
        Some(12) => "nvidia-cudss-cu12",
        _ => "nvidia-cudss-cu13",
    };
    Error::Library {
        library: NAMES[0].into(),
        message: message.into(),
        remedy: format!("install cuDSS (pip install {wheel}), or name the library in {VARIABLE}"),
    }
}

/// Returns the path of the library that starts threads for cuDSS, beside the file with this function.
fn threads_beside(function: *const c_void, major: c_int) -> Option<CString> {
    // SAFETY: `dladdr` fills the structure, or returns 0.
    let (found, info) = unsafe {
        let mut info: libc::Dl_info = std::mem::zeroed();
        (libc::dladdr(function, &mut info), info)
    };
    if found == 0 || info.dli_fname.is_null() {
        return None;
    }
    // SAFETY: a path that ends with a zero, kept by the loader.
    let path = unsafe { std::ffi::CStr::from_ptr(info.dli_fname) };
    let folder = Path::new(std::ffi::OsStr::from_bytes(path.to_bytes())).parent()?;
    let beside = folder.join(format!("libcudss_mtlayer_gomp.so.{major}"));
    beside.exists().then(|| CString::new(beside.as_os_str().as_bytes()).ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_is_no_library_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("libcudss.so.1");
        std::fs::write(&file, "no library").unwrap();
        assert!(Library::open(&file).is_err_and(|e| e.contains("libcudss.so.1")));
    }

    #[test]
    fn the_remedy_names_a_package_and_the_variable() {
        let e = missing("it was not found").to_string();
        assert!(e.contains("pip install nvidia-cudss-cu1") && e.contains("KRYLITH_CUDSS"), "{e}");
    }
}
