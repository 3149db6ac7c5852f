//! The differences between the three binary interfaces (ABIs) of MPI, except the type of handles.

use super::functions::{Handle, Symbols};
use std::ffi::{CStr, c_int, c_void};

/// A binary interface of MPI that Krylith supports without being rebuilt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Abi {
    /// Open MPI 3 to 5 and libraries based on it (IBM Spectrum MPI).
    OpenMpi,
    /// MPICH since 3.1 and libraries with its ABI: Intel MPI, MVAPICH, Cray MPICH, ParaStation MPI.
    Mpich,
    /// The ABI of MPI 5.0, chapter 20: `libmpi_abi`.
    Standard,
}

impl Abi {
    /// File names of a library with this ABI, the most likely first.
    pub fn files(self) -> &'static [&'static str] {
        match self {
            Abi::OpenMpi => &["libmpi.so.40"],
            Abi::Mpich => &["libmpi.so.12", "libmpich.so.12"], // the second on Debian
            Abi::Standard => &["libmpi_abi.so.1", "libmpi_abi.so.0"],
        }
    }

    /// The ABI of an open library, found by a symbol that only one ABI has and by the library's version text.
    pub fn of(symbols: Symbols, version: &str) -> Option<Self> {
        if symbols.find(c"ompi_mpi_comm_world").is_some() {
            return Some(Abi::OpenMpi);
        }
        if standard_version(symbols).is_some_and(|version| version >= 1) {
            return Some(Abi::Standard);
        }
        // Libraries with MPICH's ABI name themselves or MPICH in their version text.
        let family = ["MPICH", "Intel(R) MPI", "MVAPICH", "ParaStation"];
        family.iter().any(|name| version.contains(name)).then_some(Abi::Mpich)
    }
}

/// The version of the standard ABI; libraries with another ABI return -1.
fn standard_version(symbols: Symbols) -> Option<c_int> {
    let found = symbols.find(c"MPI_Abi_get_version")?;
    // SAFETY: the signature is that of MPI 5.0; it may be called at any time.
    let call: unsafe extern "C" fn(*mut c_int, *mut c_int) -> c_int = unsafe { std::mem::transmute(found) };
    let (mut major, mut minor) = (-1, -1);
    // SAFETY: writes two ints.
    (unsafe { call(&mut major, &mut minor) } == 0).then_some(major)
}

/// Constants of MPI's header.
#[derive(Debug, Clone, Copy)]
pub struct Constants {
    pub comm_world: Handle,
    pub request_null: Handle,
    pub double: Handle,
    pub uint8: Handle,
    pub uint64: Handle,
    pub sum: Handle,
    pub errors_return: Handle,
    /// `MPI_STATUSES_IGNORE`.
    pub no_statuses: *mut c_void,
    pub any_source: c_int,
    /// `MPI_TAG_UB`, a key of an attribute.
    pub tag_bound: c_int,
    pub thread_serialized: c_int,
    /// Size of a status in bytes.
    pub status_bytes: usize,
    /// Position of the source in a status, in ints.
    pub source: usize,
}

/// Number of ints of a status, large enough for each ABI.
pub const STATUS: usize = 8;
/// `MPI_MAX_ERROR_STRING`, the largest of the three.
pub const ERROR_TEXT: usize = 512;
/// `MPI_MAX_LIBRARY_VERSION_STRING`, the largest of the three.
pub const VERSION_TEXT: usize = 8192;

impl Constants {
    /// The constants of an open library, or the name of an object that it lacks.
    pub fn find(abi: Abi, symbols: Symbols) -> Result<Self, &'static str> {
        Ok(match abi {
            Abi::OpenMpi => {
                // Predefined handles are addresses of objects.
                let object = |name: &'static CStr| match symbols.find(name) {
                    Some(at) => Ok(Handle(at as usize)),
                    None => Err(name.to_str().unwrap_or_default()),
                };
                Self {
                    comm_world: object(c"ompi_mpi_comm_world")?,
                    request_null: object(c"ompi_request_null")?,
                    double: object(c"ompi_mpi_double")?,
                    uint8: object(c"ompi_mpi_uint8_t")?,
                    uint64: object(c"ompi_mpi_uint64_t")?,
                    sum: object(c"ompi_mpi_op_sum")?,
                    errors_return: object(c"ompi_mpi_errors_return")?,
                    no_statuses: std::ptr::null_mut(),
                    any_source: -1,
                    tag_bound: 0,
                    thread_serialized: 2,
                    status_bytes: 24,
                    source: 0,
                }
            }
            Abi::Mpich => Self {
                comm_world: Handle(0x4400_0000),
                request_null: Handle(0x2c00_0000),
                double: Handle(0x4c00_080b),
                uint8: Handle(0x4c00_013b),
                uint64: Handle(0x4c00_083e),
                sum: Handle(0x5800_0003),
                errors_return: Handle(0x5400_0001),
                no_statuses: std::ptr::without_provenance_mut(1),
                any_source: -2,
                tag_bound: 0x6440_0001,
                thread_serialized: 2,
                status_bytes: 20,
                source: 2,
            },
            Abi::Standard => Self {
                comm_world: Handle(0x101),
                request_null: Handle(0x180),
                double: Handle(0x214),
                uint8: Handle(0x241),
                uint64: Handle(0x259),
                sum: Handle(0x21),
                errors_return: Handle(0x143),
                no_statuses: std::ptr::null_mut(),
                any_source: -1,
                tag_bound: 501,
                thread_serialized: 2048,
                status_bytes: 32,
                source: 0,
            },
        })
    }
}
