//! NVRTC, NVIDIA's run-time compiler, found at run time: that of CUDA 13 or 12.
//!
//! A driver loads machine code of compilers up to its own major version. So a driver of CUDA 12 needs NVRTC
//! 12, and one of CUDA 13 can use both. NVRTC is looked for where the system's loader looks, then in [the
//! folders that were named](add_folders), and in CUDA's usual places. `KRYLITH_NVRTC` names the library
//! itself.

use super::driver;
use crate::{Error, Result};
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, OnceLock};

type Code = c_int;
type Program = *mut c_void;

/// Supported major versions, best first.
const MAJORS: [i32; 2] = [13, 12];

/// The functions in use, with signatures that NVRTC has had since CUDA 11.1.
pub(super) struct Nvrtc {
    version: [c_int; 2],
    create: unsafe extern "C" fn(
        *mut Program,
        *const c_char,
        *const c_char,
        c_int,
        *const *const c_char,
        *const *const c_char,
    ) -> Code,
    compile: unsafe extern "C" fn(Program, c_int, *const *const c_char) -> Code,
    destroy: unsafe extern "C" fn(*mut Program) -> Code,
    log_size: Size,
    log: Fill,
    cubin_size: Size,
    cubin: Fill,
    ptx_size: Size,
    ptx: Fill,
    error: unsafe extern "C" fn(Code) -> *const c_char,
}

type Size = unsafe extern "C" fn(Program, *mut usize) -> Code;
type Fill = unsafe extern "C" fn(Program, *mut c_char) -> Code;

/// What a program is compiled to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    Cubin,
    Ptx,
}

/// Why a program was not compiled.
pub(super) enum Failure {
    /// The compiler's messages about the program.
    Program(String),
    /// A failure of the compiler itself.
    Compiler(String),
}

static FOLDERS: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

/// Names folders in which NVRTC may be, such as those of an application's packages. It has an effect before
/// the first kernel is compiled.
pub fn add_folders(folders: impl IntoIterator<Item = PathBuf>) {
    FOLDERS.lock().unwrap_or_else(|e| e.into_inner()).extend(folders);
}

impl Nvrtc {
    /// Returns the compiler, which is loaded once.
    ///
    /// # Errors
    /// No compiler that suits the driver.
    pub fn get() -> Result<&'static Self> {
        static FOUND: OnceLock<std::result::Result<Nvrtc, String>> = OnceLock::new();
        FOUND.get_or_init(Self::find).as_ref().map_err(|message| missing(message.clone()))
    }

    /// Returns major and minor version.
    pub fn version(&self) -> [i32; 2] {
        self.version
    }

    fn find() -> std::result::Result<Self, String> {
        if let Some(path) = std::env::var_os("KRYLITH_NVRTC").filter(|path| !path.is_empty()) {
            let path = PathBuf::from(path);
            return Self::open(&path).map_err(|e| format!("KRYLITH_NVRTC={}: {e}", path.display()));
        }
        let newest = driver::cuda_major().unwrap_or(MAJORS[0]);
        let majors: Vec<i32> = MAJORS.into_iter().filter(|&major| major <= newest).collect();
        for major in &majors {
            let name = format!("libnvrtc.so.{major}");
            let places = std::iter::once(PathBuf::new()).chain(folders(*major));
            if let Some(found) =
                places.map(|folder| folder.join(&name)).find_map(|path| Self::open(&path).ok())
            {
                return Ok(found);
            }
        }
        let names: Vec<String> = majors.iter().map(|major| format!("libnvrtc.so.{major}")).collect();
        Err(format!("the CUDA runtime compiler was not found ({})", names.join(" or ")))
    }

    /// Opens the library at a path, or of a name that the system's loader resolves.
    fn open(path: &Path) -> std::result::Result<Self, String> {
        if path.components().count() > 1 {
            if !path.exists() {
                return Err("there is no such file".into());
            }
            // NVRTC opens its built-in functions by name: they are found if they are loaded already.
            for builtins in beside(path) {
                let _ = load(&builtins);
            }
        }
        let library = load(path)?;
        macro_rules! find {
            ($name:literal) => {{
                // SAFETY: the library is open and stays open.
                let symbol = unsafe { libc::dlsym(library, $name.as_ptr()) };
                if symbol.is_null() {
                    return Err(last_error());
                }
                // SAFETY: the signatures above are those of NVRTC's header.
                unsafe { std::mem::transmute_copy::<*mut c_void, _>(&symbol) }
            }};
        }
        let version: unsafe extern "C" fn(*mut c_int, *mut c_int) -> Code = find!(c"nvrtcVersion");
        let mut found = [0; 2];
        let [major, minor] = &mut found;
        // SAFETY: writes two integers.
        if unsafe { version(major, minor) } != 0 {
            return Err("it does not tell its version".into());
        }
        Ok(Self {
            version: found,
            create: find!(c"nvrtcCreateProgram"),
            compile: find!(c"nvrtcCompileProgram"),
            destroy: find!(c"nvrtcDestroyProgram"),
            log_size: find!(c"nvrtcGetProgramLogSize"),
            log: find!(c"nvrtcGetProgramLog"),
            cubin_size: find!(c"nvrtcGetCUBINSize"),
            cubin: find!(c"nvrtcGetCUBIN"),
            ptx_size: find!(c"nvrtcGetPTXSize"),
            ptx: find!(c"nvrtcGetPTX"),
            error: find!(c"nvrtcGetErrorString"),
        })
    }

    /// Compiles a source. `name` stands for its file in messages.
    pub fn compile(
        &self,
        source: &str,
        name: &str,
        options: &[String],
        form: Form,
    ) -> std::result::Result<Vec<u8>, Failure> {
        let text = |text: &str| {
            CString::new(text).map_err(|_| Failure::Program("the source contains a zero byte".into()))
        };
        let (source, name) = (text(source)?, text(name)?);
        let options = options.iter().map(|o| text(o)).collect::<std::result::Result<Vec<_>, _>>()?;
        let options: Vec<*const c_char> = options.iter().map(|o| o.as_ptr()).collect();
        let mut program: Program = std::ptr::null_mut();
        let none = std::ptr::null();
        // SAFETY: writes one handle; both texts end with a zero, and there are no headers.
        let code = unsafe { (self.create)(&mut program, source.as_ptr(), name.as_ptr(), 0, none, none) };
        self.check("nvrtcCreateProgram", code)?;
        let program = Owned { program, of: self };
        // SAFETY: a program, and as many texts as the number says.
        let code = unsafe { (self.compile)(program.program, options.len() as c_int, options.as_ptr()) };
        /// `NVRTC_ERROR_COMPILATION`
        const COMPILATION: Code = 6;
        if code == COMPILATION {
            let log = program.take(self.log_size, self.log).unwrap_or_default();
            let log = CStr::from_bytes_until_nul(&log).map(|log| log.to_string_lossy().into_owned());
            return Err(Failure::Program(log.unwrap_or_default()));
        }
        self.check("nvrtcCompileProgram", code)?;
        let (size, fill) = match form {
            Form::Cubin => (self.cubin_size, self.cubin),
            Form::Ptx => (self.ptx_size, self.ptx),
        };
        program.take(size, fill).ok_or_else(|| Failure::Compiler("it returned no code".into()))
    }

    fn check(&self, call: &str, code: Code) -> std::result::Result<(), Failure> {
        if code == 0 {
            return Ok(());
        }
        // SAFETY: returns a text of the library for any code.
        let text = unsafe { CStr::from_ptr((self.error)(code)) }.to_string_lossy();
        Err(Failure::Compiler(format!("{call}: {text}")))
    }
}

/// A program, destroyed when it is dropped.
struct Owned<'a> {
    program: Program,
    of: &'a Nvrtc,
}

impl Owned<'_> {
    /// Returns what a pair of functions yields.
    fn take(&self, size: Size, fill: Fill) -> Option<Vec<u8>> {
        let mut bytes = 0;
        // SAFETY: the size is asked for, then a buffer of that size is filled.
        unsafe {
            (size(self.program, &mut bytes) == 0).then_some(())?;
            let mut out = vec![0u8; bytes];
            (fill(self.program, out.as_mut_ptr().cast()) == 0).then_some(out)
        }
    }
}

impl Drop for Owned<'_> {
    fn drop(&mut self) {
        // SAFETY: created once, not used again.
        unsafe { (self.of.destroy)(&mut self.program) };
    }
}

/// Returns an error for a compiler that is missing or fails, with the remedy for the present driver.
pub(super) fn missing(message: impl Into<String>) -> Error {
    let (wheel, major) = match driver::cuda_major() {
        Some(12) => ("nvidia-cuda-nvrtc-cu12", 12),
        _ => ("nvidia-cuda-nvrtc", 13),
    };
    Error::Library {
        library: format!("libnvrtc.so.{major}"),
        message: message.into(),
        remedy: format!(
            "install the CUDA {major} runtime compiler (pip install {wheel}), or name the library in KRYLITH_NVRTC"
        ),
    }
}

/// Returns the folders that may hold NVRTC of a major version, and other libraries of CUDA.
pub(super) fn folders(major: i32) -> Vec<PathBuf> {
    let mut all = FOLDERS.lock().unwrap_or_else(|e| e.into_inner()).clone();
    let variables = ["CUDA_HOME", "CUDA_PATH"].into_iter().filter_map(std::env::var_os).map(PathBuf::from);
    let toolkits =
        variables.chain([format!("/usr/local/cuda-{major}"), "/usr/local/cuda".into()].map(PathBuf::from));
    all.extend(toolkits.flat_map(|folder| [folder.join("lib64"), folder.join("targets/x86_64-linux/lib")]));
    all
}

/// Returns the libraries of built-in functions beside NVRTC.
fn beside(path: &Path) -> Vec<PathBuf> {
    let folder = path.parent().map(std::fs::read_dir);
    let files = folder.into_iter().flatten().flatten().flatten().map(|entry| entry.path());
    let major = path.extension().map(|major| major.to_os_string()).unwrap_or_default();
    let wanted = format!("libnvrtc-builtins.so.{}.", major.to_string_lossy());
    let is_wanted =
        |file: &PathBuf| file.file_name().is_some_and(|name| name.to_string_lossy().starts_with(&wanted));
    files.filter(is_wanted).collect()
}

/// Loads a library, of which nobody else needs the symbols.
pub(super) fn load(path: &Path) -> std::result::Result<*mut c_void, String> {
    let name = CString::new(path.as_os_str().as_bytes()).map_err(|e| e.to_string())?;
    // SAFETY: loading a library runs its initialisers; NVRTC's have no precondition.
    let library = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
    if library.is_null() { Err(last_error()) } else { Ok(library) }
}

/// Returns the loader's message about the last failure.
pub(super) fn last_error() -> String {
    // SAFETY: dlerror gives a string or null.
    let text = unsafe { libc::dlerror() };
    if text.is_null() {
        return "it cannot be loaded".into();
    }
    // SAFETY: not null, and ended by a zero.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_is_missing_or_no_library_is_refused() {
        let Err(e) = Nvrtc::open(Path::new("/nowhere/libnvrtc.so.13")) else { panic!() };
        assert_eq!(e, "there is no such file");
        let folder = tempfile::tempdir().unwrap();
        let (file, builtins) =
            (folder.path().join("libnvrtc.so.13"), folder.path().join("libnvrtc-builtins.so.13.0"));
        std::fs::write(&file, "no library").unwrap();
        std::fs::write(&builtins, "").unwrap();
        std::fs::write(folder.path().join("libnvrtc-builtins.so.12.8"), "").unwrap();
        assert_eq!(beside(&file), [builtins]);
        assert!(Nvrtc::open(&file).is_err_and(|e| e.contains("libnvrtc.so.13")));
    }

    #[test]
    fn the_remedy_names_a_package() {
        let e = missing("it is away").to_string();
        assert!(e.contains("pip install nvidia-cuda-nvrtc"), "{e}");
    }
}
