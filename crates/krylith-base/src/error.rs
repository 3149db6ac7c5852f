//! Errors that the caller or the machine causes; non-convergence is an `Outcome`.

use std::path::{Path, PathBuf};

/// `Result` with Krylith's [`Error`].
///
/// # Examples
/// ```
/// fn load(path: &str) -> krylith::Result<krylith::matrix::Csr> {
///     Ok(krylith::io::read_matrix(path)?.matrix.into_csr())
/// }
/// assert!(load("missing.mtx").is_err());
/// ```
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An error that names what failed (file and line, row, bytes) and the remedy.
///
/// # Examples
/// ```
/// use krylith::{Error, matrix::Csr};
/// let error = Csr::from_triplets(2, 2, &[(0, 5, 1.0)]).unwrap_err();
/// assert!(error.to_string().contains('5')); // the message names the entry
/// assert_eq!(error.exit_code(), 2); // the caller can fix it
/// match krylith::io::read_matrix("missing.mtx") {
///     Err(Error::Io { path, .. }) => assert_eq!(path.to_str(), Some("missing.mtx")),
///     other => panic!("{other:?}"),
/// }
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A file could not be read or written.
    #[error("{}: {source}", crate::text::name(path))]
    Io {
        /// The file.
        path: PathBuf,
        /// The error of the operating system.
        source: std::io::Error,
    },
    /// A file's content is malformed.
    #[error("{}:{line}: {message}", crate::text::name(path))]
    Parse {
        /// The file.
        path: PathBuf,
        /// One-based line.
        line: usize,
        /// The problem, and what was expected.
        message: String,
    },
    /// A file's content is malformed, and the file has no lines (binary formats, archives).
    #[error("{}: {message}", crate::text::name(path))]
    Format {
        /// The file.
        path: PathBuf,
        /// The problem, and what was expected.
        message: String,
    },
    /// Sizes, indices or values that do not fit together.
    #[error("{0}")]
    Invalid(String),
    /// A value that is NaN or infinite.
    #[error("{what}: entry ({row}, {column}) is {value}; every value must be finite")]
    NotFinite {
        /// The matrix or vector.
        what: String,
        /// Zero-based row.
        row: usize,
        /// Zero-based column.
        column: usize,
        /// NaN or an infinity.
        value: f64,
    },
    /// A diagonal block that a preconditioner cannot invert.
    #[error("block row {row} has a {kind} diagonal block; {remedy}")]
    SingularBlock {
        /// Zero-based block row.
        row: usize,
        /// `missing`, `zero` or `singular`.
        kind: &'static str,
        /// The remedy: what the user can try.
        remedy: &'static str,
    },
    /// A pivot of an incomplete factorisation that cannot be inverted.
    #[error("the factorisation meets a {kind} pivot in block row {row}; {remedy}")]
    Pivot {
        /// Zero-based block row.
        row: usize,
        /// `zero`, `tiny` or `non-finite`.
        kind: &'static str,
        /// The remedy: what the user can try.
        remedy: &'static str,
    },
    /// An option of a solve that conflicts with others, or is out of range.
    #[error("`{key}` {message}")]
    Option {
        /// The name of the option in `Options`.
        key: &'static str,
        /// The problem, as a continuation of the name.
        message: String,
    },
    /// A device that was requested and is not available.
    #[error("{device}: {message}")]
    NoDevice {
        /// The device as requested, such as `cuda:3`.
        device: String,
        /// The problem, and what is available.
        message: String,
    },
    /// A bug in Krylith.
    #[error("internal error, please report: {0}")]
    Internal(String),
    /// A feature that this build or this device does not offer.
    #[error("{0}")]
    Unsupported(String),

    /// A set-up needs more operations than `auto` allows.
    #[error("{what} takes more than {operations:.0e} operations; {remedy}")]
    TooLong {
        /// The work that needs too many operations.
        what: &'static str,
        /// Number of operations allowed.
        operations: f64,
        /// The remedy: what the user can try.
        remedy: &'static str,
    },
    /// Not enough memory on the host or a device.
    #[error("{what} needs {}, but only {} are free on {place}; {remedy}", crate::text::bytes(*needed), crate::text::bytes(*free))]
    Memory {
        /// The data to allocate.
        what: String,
        /// Number of bytes requested.
        needed: u64,
        /// Number of bytes free there.
        free: u64,
        /// `the host` or the device's name.
        place: String,
        /// The remedy: what the user can try.
        remedy: &'static str,
    },
    /// A shared library that is missing or too old.
    #[error("{library}: {message}; {remedy}")]
    Library {
        /// `libcuda.so.1`, `libnvrtc.so.13`, …
        library: String,
        /// The problem.
        message: String,
        /// The remedy: how to install or find the library.
        remedy: String,
    },
    /// A failed device call.
    #[error("{device}: {call}: {message}")]
    Device {
        /// The device.
        device: String,
        /// The call that failed.
        call: String,
        /// The error of the driver.
        message: String,
    },
    /// Another rank failed or ended.
    #[error("rank {rank}: {message}")]
    Rank {
        /// The rank, from 0.
        rank: usize,
        /// The error of that rank, or how the others noticed its end.
        message: String,
        /// The exit code of its error; 3 if the rank ended.
        exit_code: u8,
        /// True if it ran out of memory and is still running.
        memory: bool,
    },
    /// A wait exceeded its time limit: for a GPU, for a kernel that another thread compiles, or for ranks
    /// that cannot be identified.
    #[error("{0}")]
    NoAnswer(String),
    /// A set-up was interrupted, for this reason. An interrupted solve has an `Outcome` instead.
    #[error("interrupted before the solve could start: {0}")]
    Interrupted(&'static str),
}

/// A change of `Options` that may avoid an error.
///
/// # Examples
/// ```
/// use krylith::{Options, Remedy, Solver, matrix::Csr};
/// let a = Csr::from_triplets(2, 2, &[(0, 1, 1.0), (1, 0, 1.0)])?; // an empty diagonal
/// let mut options: Options = "precond=jacobi device=cpu".parse()?;
/// if let Err(error) = Solver::new(&a, &options) {
///     if error.remedies().contains(&Remedy::NoPreconditioner) {
///         options = "precond=none device=cpu".parse()?;
///     }
/// }
/// assert!(Solver::new(&a, &options).is_ok());
/// # Ok::<(), krylith::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Remedy {
    /// Use a smaller restart of GMRES, or a method without one.
    SmallerRestart,
    /// Store matrix, preconditioner and basis in f32.
    SinglePrecision,
    /// Use no preconditioner, or another one.
    NoPreconditioner,
    /// Use another block size of the system.
    OtherBlockSize,
    /// Shift pivots that cannot be inverted.
    PivotShift,
    /// Use another device.
    OtherDevice,
}

/// Exit code after an interrupt, the same as shells use for Ctrl-C; ranks recognise each other's interrupts
/// by it.
const INTERRUPTED: u8 = 130;

impl Error {
    /// The error for a column, requested as a vector, of a basis stored in f32.
    #[doc(hidden)]
    pub fn narrow_column() -> Self {
        Error::Unsupported(
            "an operator cannot write into a basis that is stored in f32; use precision=f64".into(),
        )
    }

    /// Creates an [`Error::Invalid`] from any text.
    pub fn invalid(message: impl Into<String>) -> Self {
        Error::Invalid(message.into())
    }

    /// The same error, with the number of the right-hand side that it is about, from 0.
    #[doc(hidden)]
    pub fn in_column(self, k: usize) -> Self {
        match self {
            Error::Invalid(message) => Error::Invalid(format!("column {k}: {message}")),
            other => other,
        }
    }

    /// Creates an [`Error::Internal`] with the message of a caught panic.
    pub fn of_panic(panic: &(dyn std::any::Any + Send)) -> Self {
        let text = panic.downcast_ref::<&str>().map(|text| text.to_string());
        Error::Internal(text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default())
    }

    /// Creates an [`Error::Io`] for `path`.
    pub fn io(path: impl AsRef<Path>, source: std::io::Error) -> Self {
        Error::Io { path: path.as_ref().to_path_buf(), source }
    }

    /// Creates an [`Error::Parse`] for `path` at one-based `line`.
    pub fn parse(path: impl AsRef<Path>, line: usize, message: impl Into<String>) -> Self {
        Error::Parse { path: path.as_ref().to_path_buf(), line, message: message.into() }
    }

    /// Creates an [`Error::Format`] for `path`.
    pub fn format(path: impl AsRef<Path>, message: impl Into<String>) -> Self {
        Error::Format { path: path.as_ref().to_path_buf(), message: message.into() }
    }

    /// True if this rank or another ran out of memory: an attempt that needs less may still work.
    ///
    /// ```
    /// use krylith::{Options, Solver, matrix::Csr};
    /// let a = Csr::from_triplets(2, 2, &[(0, 0, 2.0), (1, 1, 3.0)])?;
    /// let options: Options = "method=gmres:restart=30 device=cpu memory_limit=1".parse()?;
    /// let error = Solver::new(&a, &options).err().unwrap();
    /// assert!(error.is_memory() && error.exit_code() == 3);
    /// # Ok::<(), krylith::Error>(())
    /// ```
    pub fn is_memory(&self) -> bool {
        matches!(self, Error::Memory { .. } | Error::Rank { memory: true, .. })
    }

    /// True for a failure of the machine that other options cannot avoid: a device, a library, a rank that
    /// ended.
    #[doc(hidden)]
    pub fn is_fatal(&self) -> bool {
        self.exit_code() == 3 && !self.is_memory()
    }

    /// Changes of options that may help, for programs that show them in their own words.
    ///
    /// ```
    /// use krylith::{Options, Remedy, Solver, matrix::Csr};
    /// let a = Csr::from_triplets(2, 2, &[(0, 1, 1.0), (1, 0, 1.0)])?;
    /// let error = Solver::new(&a, &"precond=jacobi device=cpu".parse()?).err().unwrap();
    /// assert!(error.remedies().contains(&Remedy::NoPreconditioner));
    /// # Ok::<(), krylith::Error>(())
    /// ```
    pub fn remedies(&self) -> &'static [Remedy] {
        match self {
            Error::Memory { .. } => &[Remedy::SmallerRestart, Remedy::SinglePrecision, Remedy::OtherDevice],
            Error::SingularBlock { .. } => &[Remedy::NoPreconditioner, Remedy::OtherBlockSize],
            Error::Pivot { .. } => &[Remedy::PivotShift, Remedy::NoPreconditioner],
            Error::NoDevice { .. } => &[Remedy::OtherDevice],
            _ => &[],
        }
    }

    /// True if a cancel token or a time limit ended a set-up, here or on another rank. The system itself may
    /// be fine.
    ///
    /// ```
    /// use krylith::{Options, Solver, matrix::Csr, solver::Cancel};
    /// let a = Csr::from_triplets(2, 2, &[(0, 0, 2.0), (1, 1, 3.0)])?;
    /// let cancel = Cancel::default();
    /// cancel.cancel(); // usually from another thread
    /// let error = Solver::new_cancellable(&a, &"device=cpu".parse()?, &cancel, None).err().unwrap();
    /// assert!(error.is_interrupt());
    /// # Ok::<(), krylith::Error>(())
    /// ```
    pub fn is_interrupt(&self) -> bool {
        self.exit_code() == INTERRUPTED
    }

    /// The command line's exit code: 2 for an error that the caller can fix, 3 for the machine, 130 for an
    /// interrupt.
    pub fn exit_code(&self) -> u8 {
        match self {
            Error::Memory { .. } | Error::Library { .. } | Error::Device { .. } | Error::NoAnswer(_) => 3,
            Error::NoDevice { .. } | Error::Internal(_) => 3,
            Error::Rank { exit_code, .. } => *exit_code,
            Error::Interrupted(_) => INTERRUPTED,
            _ => 2,
        }
    }
}

/// Lets functions that accept fallible conversions also accept infallible ones.
impl From<std::convert::Infallible> for Error {
    fn from(never: std::convert::Infallible) -> Self {
        match never {}
    }
}
