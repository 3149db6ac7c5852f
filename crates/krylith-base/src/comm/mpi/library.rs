//! Finds the MPI library of this process when ranks are requested; building Krylith needs no MPI.
//!
//! It tries, in this order: a library that is already in the process (mpi4py's, PETSc's, the program's own),
//! the one that `KRYLITH_MPI` names, the launcher's. A library is never closed.

use super::abi::{Abi, Constants, ERROR_TEXT, VERSION_TEXT};
use super::functions::{Functions, Handle, Symbols, Table};
use super::loaded;
use crate::comm::launch::{Launch, Launcher};
use crate::comm::peers::parent_of;
use crate::{Error, Result};
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// The environment variable that names a library: a path, or a name for the system's search.
const VARIABLE: &str = "KRYLITH_MPI";

/// An MPI library with all functions in use.
pub struct Library {
    pub symbols: Symbols,
    pub abi: Abi,
    pub constants: Constants,
    pub table: Table,
    /// The first words of the library's version text.
    version: String,
    /// Path of its file.
    path: String,
    /// True if it supports PMIx, as the launchers of Open MPI do.
    has_pmix: bool,
    /// `MPI_Comm_f2c`, or `MPI_Comm_fromint` of the standard ABI; `None` for MPICH, whose handles are
    /// Fortran's.
    from_fortran: Option<unsafe extern "C" fn(c_int) -> *mut c_void>,
    /// `MPI_Comm_c2f`, or `MPI_Comm_toint` of the standard ABI; `None` for MPICH.
    to_fortran: Option<unsafe extern "C" fn(*mut c_void) -> c_int>,
}

// SAFETY: holds addresses of functions and objects of a library that is never closed.
unsafe impl Send for Library {}
// SAFETY: as above; `World` lets one thread call MPI at a time.
unsafe impl Sync for Library {}

static CHOSEN: OnceLock<Library> = OnceLock::new();

/// Sizes in bytes, in the caller's MPI, of a communicator's handle and of a status.
pub type Sizes = (usize, usize);

impl Library {
    /// The library of a program that has started MPI, or `None`. Examines only libraries in the process.
    pub fn running() -> Option<&'static Self> {
        if let Some(chosen) = CHOSEN.get() {
            return chosen.is_initialised().then_some(chosen);
        }
        let (found, _) = in_process();
        found.into_iter().find(Self::is_initialised).map(|library| CHOSEN.get_or_init(|| library))
    }

    /// The library of the caller's communicator, whose handle and status have these `sizes`, if the caller
    /// knows them.
    pub fn of_communicator(sizes: Option<Sizes>) -> Result<&'static Self> {
        let fits = |library: &Self| sizes.is_none_or(|sizes| library.sizes() == sizes);
        if let Some(chosen) = CHOSEN.get() {
            return if fits(chosen) { Ok(chosen) } else { Err(other_sizes(sizes, &[chosen])) };
        }
        let (mut found, reasons) = in_process();
        if found.is_empty() {
            let why = if reasons.is_empty() { String::new() } else { format!(" ({})", reasons.join("; ")) };
            return Err(Error::Library {
                library: "MPI".into(),
                message: format!(
                    "a communicator was passed, but no MPI library is loaded in this process{why}"
                ),
                remedy: "link the program with a shared MPI library, or import mpi4py first".into(),
            });
        }
        let Some(place) = (0..found.len())
            .filter(|&i| fits(&found[i]))
            .max_by_key(|&i| (found[i].is_initialised(), std::cmp::Reverse(i)))
        else {
            return Err(other_sizes(sizes, &found.iter().collect::<Vec<_>>()));
        };
        let library = found.swap_remove(place);
        Ok(CHOSEN.get_or_init(|| library))
    }

    /// The library for the ranks that a launcher started; the error lists what was tried.
    pub fn of_launch(launch: &Launch) -> Result<&'static Self> {
        if let Some(chosen) = CHOSEN.get() {
            return Ok(chosen);
        }
        let library = find(Some(launch)).map_err(|tried| Error::Library {
            library: "MPI".into(),
            message: format!("this process was started as {}, but {tried}", launch.describe()),
            remedy: format!("install the MPI library of the launcher, or give its file: {VARIABLE}=PATH"),
        })?;
        Ok(CHOSEN.get_or_init(|| library))
    }

    /// Describes the library that a launcher's ranks would use, as `Open MPI v4.1.4 (libmpi.so.40)`. Starts
    /// nothing.
    pub fn probe() -> std::result::Result<String, String> {
        find(Launch::here().as_ref()).map(|library| library.describe())
    }

    /// The library in use, once one was chosen.
    pub fn chosen() -> Option<&'static Self> {
        CHOSEN.get()
    }

    /// Describes the library, as `Open MPI v4.1.4 (/usr/lib/libmpi.so.40)`.
    pub fn describe(&self) -> String {
        format!("{} ({})", self.version, self.path)
    }

    /// Sizes of a handle and of a status in bytes.
    pub fn sizes(&self) -> Sizes {
        (self.table.width(), self.constants.status_bytes)
    }

    /// True if MPI has been started, by Krylith or by the program.
    pub fn is_initialised(&self) -> bool {
        let mut flag = 0;
        // SAFETY: may be called at any time; writes one int.
        unsafe { self.table.MPI_Initialized(&mut flag) };
        flag != 0
    }

    /// True if MPI has been finalised, by Krylith or by the program.
    pub fn is_finalised(&self) -> bool {
        let mut flag = 0;
        // SAFETY: may be called at any time; writes one int.
        unsafe { self.table.MPI_Finalized(&mut flag) };
        flag != 0
    }

    /// The communicator with this Fortran handle.
    ///
    /// # Safety
    /// MPI runs, and the handle is that of a live communicator.
    pub unsafe fn communicator(&self, fortran: c_int) -> Handle {
        match self.from_fortran {
            None => Handle(fortran as u32 as usize),
            // SAFETY: the caller's promise.
            Some(from) => Handle(unsafe { from(fortran) } as usize),
        }
    }

    /// The Fortran handle of a communicator.
    ///
    /// # Safety
    /// MPI runs, and the communicator is live.
    pub unsafe fn fortran_handle(&self, comm: Handle) -> c_int {
        match self.to_fortran {
            None => comm.0 as u32 as c_int,
            // SAFETY: the caller's promise.
            Some(to) => unsafe { to(comm.0 as *mut c_void) },
        }
    }

    /// `Ok` for the success code, else an error with the library's text for the code.
    pub fn checked(&self, call: &str, code: c_int) -> Result<()> {
        if code == 0 {
            return Ok(());
        }
        let (mut text, mut length) = ([0u8; ERROR_TEXT + 1], 0);
        // SAFETY: the buffer has the length that MPI asks for.
        unsafe { self.table.MPI_Error_string(code, text.as_mut_ptr().cast::<c_char>(), &mut length) };
        let message = String::from_utf8_lossy(&text[..usize::try_from(length).unwrap_or(0).min(ERROR_TEXT)]);
        Err(Error::Device { device: "MPI".into(), call: call.into(), message: message.into_owned() })
    }

    /// Refuses a library that cannot talk to the launcher, because such a library would abort the process.
    pub fn speaks_with(&self, launch: &Launch) -> Result<()> {
        let pmix = matches!(launch.launcher, Launcher::OpenMpi | Launcher::Pmix);
        if pmix && self.abi != Abi::OpenMpi && !self.has_pmix {
            return Err(self.foreign(launch, "it does not support PMIx"));
        }
        Ok(())
    }

    /// Refuses a library that sees only this process although a launcher started several. With such a
    /// library, each process would solve the whole system.
    pub fn sees(&self, launch: &Launch, rank: usize, size: usize) -> Result<()> {
        let several = match launch.ranks {
            Some(n) => n > 1,
            None => launch.rank.is_some_and(|launched| launched != rank),
        };
        if size == 1 && several {
            return Err(self.foreign(launch, "it sees only this process"));
        }
        Ok(())
    }

    fn foreign(&self, launch: &Launch, why: &str) -> Error {
        Error::Library {
            library: self.describe(),
            message: format!(
                "this process was started as {}, but this library belongs to another launcher: {why}",
                launch.describe()
            ),
            remedy: format!(
                "start with the mpirun of this library, or give the file of the launcher's library: \
                 {VARIABLE}=PATH"
            ),
        }
    }

    /// Wraps an open library with all its functions, or returns the reason why it cannot be used.
    fn of(symbols: Symbols) -> std::result::Result<Self, String> {
        // The version may be queried at any time; a library without this function is older than MPI 3.
        let name = c"MPI_Get_library_version";
        let version = symbols
            .find(name)
            .ok_or("it has no function MPI_Get_library_version, which MPI libraries have since version 3")?;
        // SAFETY: the signature is that of MPI 3.0.
        let ask: unsafe extern "C" fn(*mut c_char, *mut c_int) -> c_int =
            unsafe { std::mem::transmute(version) };
        let (mut text, mut length) = (vec![0u8; VERSION_TEXT + 1], 0);
        // SAFETY: the buffer is long enough for any library's text.
        unsafe { ask(text.as_mut_ptr().cast(), &mut length) };
        text.truncate(usize::try_from(length).unwrap_or(0));
        let text = String::from_utf8_lossy(&text).into_owned();
        let version = first_words(&text);
        let abi = Abi::of(symbols, &text).ok_or_else(|| {
            format!("{version}: its ABI is not that of Open MPI, MPICH or the MPI standard")
        })?;
        let missing = |name: &str| format!("{version}: the library does not define {name}");
        let table = match abi {
            Abi::Mpich => Functions::find(symbols).map(Table::Integers),
            Abi::OpenMpi | Abi::Standard => Functions::find(symbols).map(Table::Pointers),
        }
        .map_err(missing)?;
        let either = |names: [&'static CStr; 2]| {
            let [old, new] = names;
            let found = symbols.find(old).or_else(|| symbols.find(new));
            found.ok_or_else(|| missing(old.to_str().unwrap_or_default()))
        };
        let (from_fortran, to_fortran) = match abi {
            Abi::Mpich => (None, None),
            Abi::OpenMpi | Abi::Standard => {
                let from = either([c"MPI_Comm_f2c", c"MPI_Comm_fromint"])?;
                let to = either([c"MPI_Comm_c2f", c"MPI_Comm_toint"])?;
                // SAFETY: both names of each have this signature, where a handle is a pointer.
                unsafe {
                    (
                        Some(std::mem::transmute::<*mut c_void, unsafe extern "C" fn(c_int) -> *mut c_void>(
                            from,
                        )),
                        Some(std::mem::transmute::<*mut c_void, unsafe extern "C" fn(*mut c_void) -> c_int>(
                            to,
                        )),
                    )
                }
            }
        };
        let constants = Constants::find(abi, symbols).map_err(missing)?;
        let path = loaded::file_of(symbols).unwrap_or_else(|| "in this program".into());
        let has_pmix = symbols.find(c"PMIx_Init").is_some();
        Ok(Self { symbols, abi, constants, table, version, path, has_pmix, from_fortran, to_fortran })
    }

    /// Opens a library by name or path.
    fn open(file: &str) -> std::result::Result<Self, String> {
        let name = CString::new(file).map_err(|_| format!("{file:?}: the name has a NUL character"))?;
        // SAFETY: loading a library runs its initialisers; MPI's have no precondition.
        let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        if handle.is_null() {
            return Err(last_error());
        }
        let library = Self::of(Symbols(handle)).map_err(|why| format!("{file}: {why}"))?;
        if library.abi == Abi::OpenMpi {
            // Its plug-ins look for its symbols in the global scope. SAFETY: already open; only its scope
            // changes.
            unsafe {
                libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_GLOBAL | libc::RTLD_NOLOAD);
            }
        }
        Ok(library)
    }
}

/// The first words, such as `Open MPI v4.1.4`, of a library's version text.
fn first_words(text: &str) -> String {
    let line = text.lines().next().unwrap_or_default();
    let line = line.split(',').next().unwrap_or_default();
    let line = line.trim_end_matches('\0').replace("Version:", "");
    line.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The complete libraries in this process, and the reasons why others are not usable.
fn in_process() -> (Vec<Library>, Vec<String>) {
    let (mut found, mut reasons) = (Vec::new(), Vec::new());
    for (file, symbols) in loaded::libraries() {
        match Library::of(symbols) {
            Ok(library) => found.push(library),
            Err(why) => reasons.push(format!("{file}: {why}")),
        }
    }
    (found, reasons)
}

/// The library for ranks of a launcher; the error lists what was tried.
fn find(launch: Option<&Launch>) -> std::result::Result<Library, String> {
    let (mut found, _) = in_process();
    if !found.is_empty() {
        let place = found.iter().position(Library::is_initialised).unwrap_or(0);
        return Ok(found.swap_remove(place));
    }
    if let Some(named) = std::env::var_os(VARIABLE).filter(|named| !named.is_empty()) {
        let named = named.to_string_lossy();
        return Library::open(&named).map_err(|why| format!("{VARIABLE}={named}: {why}"));
    }
    let mut reasons = Vec::new();
    for file in candidates(launch.map(|launch| launch.launcher)) {
        match Library::open(&file) {
            Ok(library) => return Ok(library),
            // For each name without a path the loader only says that there is no such file: that is not worth
            // listing.
            Err(why) if file.contains('/') => reasons.push(why),
            Err(_) => reasons.push(file),
        }
    }
    Err(format!("no MPI library was found ({})", reasons.join(", ")))
}

/// File names to try, in order: those beside the launcher, then those for the system's search.
fn candidates(launcher: Option<Launcher>) -> Vec<String> {
    let order = match launcher {
        None | Some(Launcher::OpenMpi | Launcher::Pmix) => [Abi::OpenMpi, Abi::Mpich, Abi::Standard],
        Some(Launcher::Pmi) => [Abi::Mpich, Abi::Standard, Abi::OpenMpi],
    };
    let names: Vec<&str> = order.into_iter().flat_map(Abi::files).copied().collect();
    let folders = if launcher.is_some() { launcher_folders() } else { Vec::new() };
    let beside = folders.iter().flat_map(|folder| names.iter().map(move |name| folder.join(name)));
    let beside = beside.filter(|path| path.exists()).map(|path| path.to_string_lossy().into_owned());
    beside.chain(names.iter().map(|name| name.to_string())).collect()
}

/// Library folders of the launchers that started this process: `lib` and `lib64` beside the `bin` folder of
/// each mpirun, the nearest launcher first.
fn launcher_folders() -> Vec<PathBuf> {
    /// Number of ancestor processes to examine for mpirun; shells and wrappers may lie between.
    const ABOVE: usize = 8;
    let launchers = ["mpirun", "mpiexec", "orte", "prte", "hydra", "pmi_proxy"];
    let (mut folders, mut pid) = (Vec::new(), std::process::id());
    for _ in 0..ABOVE {
        let Some(parent) = parent_of(pid).filter(|parent| *parent > 1) else { break };
        pid = parent;
        let Ok(program) = std::fs::read_link(format!("/proc/{pid}/exe")) else { continue };
        let name = program.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let is_launcher = launchers.iter().any(|launcher| name.contains(launcher)) || name == "prted";
        let prefix = program.parent().and_then(Path::parent);
        if let Some(prefix) = prefix.filter(|prefix| is_launcher && *prefix != Path::new("/usr")) {
            folders.extend(["lib", "lib64"].map(|name| prefix.join(name)));
        }
    }
    folders
}

fn other_sizes(sizes: Option<Sizes>, found: &[&Library]) -> Error {
    let (handle, status) = sizes.unwrap_or_default();
    let found = found.iter().map(|library| {
        let (handle, status) = library.sizes();
        format!("{} has {handle}-byte handles and {status}-byte statuses", library.describe())
    });
    Error::Library {
        library: "MPI".into(),
        message: format!(
            "the communicator comes from an MPI library with {handle}-byte handles and {status}-byte \
             statuses, which is not the one found: {}",
            found.collect::<Vec<_>>().join(", ")
        ),
        remedy: "use only one MPI library in this process; for example, build mpi4py for the library that \
                 was found"
            .into(),
    }
}

/// The loader's text for its last failure.
pub fn last_error() -> String {
    // SAFETY: returns a string or null.
    let text = unsafe { libc::dlerror() };
    if text.is_null() {
        return "it cannot be loaded".into();
    }
    // SAFETY: not null, and NUL-terminated.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_library_is_described_by_its_first_words() {
        for (text, words) in [
            ("Open MPI v5.0.11, package: Open MPI, ident: 5\0", "Open MPI v5.0.11"),
            ("MPICH Version:      5.0.2\nMPICH Release date: Fri\n", "MPICH 5.0.2"),
            ("Intel(R) MPI Library 2021.9 for Linux* OS\n", "Intel(R) MPI Library 2021.9 for Linux* OS"),
            ("", ""),
        ] {
            assert_eq!(first_words(text), words);
        }
    }

    #[test]
    fn libraries_without_mpi_are_refused_with_the_reason() {
        let refused = |file| Library::open(file).err().unwrap_or_default();
        assert!(refused("libm.so.6").contains("libm.so.6: it has no function MPI_Get_library_version"));
        assert!(refused("/nowhere/libmpi.so").contains("/nowhere/libmpi.so"));
        assert!(refused("a\0b").contains("NUL character"));
    }

    #[test]
    fn the_launchers_family_is_tried_first() {
        let first = |launcher| candidates(launcher).into_iter().find(|name| !name.contains('/'));
        assert_eq!(first(Some(Launcher::Pmi)).as_deref(), Some("libmpi.so.12"));
        assert_eq!(first(Some(Launcher::OpenMpi)).as_deref(), Some("libmpi.so.40"));
        assert_eq!(candidates(None).len(), 5);
        assert_eq!(parent_of(std::process::id()), Some(std::os::unix::process::parent_id()));
    }
}
