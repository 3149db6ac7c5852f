//! What can go wrong through the caller or the machine; non-convergence is an `Outcome`.

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

/// Names the thing (file and line, row, bytes) and the remedy.
///
/// # Examples
/// ```
/// use krylith::{Error, matrix::Csr};
/// let error = Csr::from_triplets(2, 2, &[(0, 5, 1.0)]).unwrap_err();
/// assert!(error.to_string().contains('5')); // the entry, and what there is
/// assert_eq!(error.exit_code(), 2); // the caller can mend it
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
        /// What the operating system said.
        source: std::io::Error,
    },
    /// A file's content is malformed.
    #[error("{}:{line}: {message}", crate::text::name(path))]
    Parse {
        /// The file.
        path: PathBuf,
        /// One-based line.
        line: usize,
        /// What is wrong and what was expected.
        message: String,
    },
    /// A file's content is malformed, and the file has no lines (binary formats, archives).
    #[error("{}: {message}", crate::text::name(path))]
    Format {
        /// The file.
        path: PathBuf,
        /// What is wrong and what was expected.
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
        /// What to try.
        remedy: &'static str,
    },
    /// A pivot of an incomplete factorisation that cannot be inverted.
    #[error("the factorisation meets a {kind} pivot in block row {row}; {remedy}")]
    Pivot {
        /// Zero-based block row.
        row: usize,
        /// `zero`, `tiny` or `non-finite`.
        kind: &'static str,
        /// What to try.
        remedy: &'static str,
    },
    /// An option of a solve that does not fit the others, or is out of its range.
    #[error("`{key}` {message}")]
    Option {
        /// Its name in `Options`.
        key: &'static str,
        /// What is wrong, to be read after the name.
        message: String,
    },
    /// A device that is asked for and is not there.
    #[error("{device}: {message}")]
    NoDevice {
        /// As it was asked for, such as `cuda:3`.
        device: String,
        /// What there is instead.
        message: String,
    },
    /// A fault of Krylith's own.
    #[error("internal error, please report: {0}")]
    Internal(String),
    /// Something that this build or this device does not offer.
    #[error("{0}")]
    Unsupported(String),

    /// A set-up takes more operations than `auto` allows it.
    #[error("{what} takes more than {operations:.0e} operations; {remedy}")]
    TooLong {
        /// What takes so long.
        what: &'static str,
        /// What it may take.
        operations: f64,
        /// What to do.
        remedy: &'static str,
    },
    /// Not enough memory on the host or a device.
    #[error("{what} needs {} and {} are free on {place}; {remedy}", crate::text::bytes(*needed), crate::text::bytes(*free))]
    Memory {
        /// What was to be allocated.
        what: String,
        /// Bytes asked for.
        needed: u64,
        /// Bytes free there.
        free: u64,
        /// `the host` or the device's name.
        place: String,
        /// What to try.
        remedy: &'static str,
    },
    /// A shared library that is missing or too old.
    #[error("{library}: {message}; {remedy}")]
    Library {
        /// `libcuda.so.1`, `libnvrtc.so.13`, …
        library: String,
        /// What happened.
        message: String,
        /// How to get it.
        remedy: String,
    },
    /// A device call failed.
    #[error("{device}: {call}: {message}")]
    Device {
        /// The device.
        device: String,
        /// The call that failed.
        call: String,
        /// What the driver said.
        message: String,
    },
    /// Another rank failed or is gone.
    #[error("rank {rank}: {message}")]
    Rank {
        /// The rank, from 0.
        rank: usize,
        /// Its own error, or how it was missed.
        message: String,
        /// The exit code of its error; 3 if it is gone.
        exit_code: u8,
        /// It had not enough memory, and goes on.
        memory: bool,
    },
    /// What was waited for did not come within the time limit: ranks of which it cannot be told which, a GPU, a kernel that another
    /// thread compiles.
    #[error("{0}")]
    NoAnswer(String),
    /// A set-up ended before it was done, for this reason. A solve that is interrupted has an `Outcome`.
    #[error("interrupted before there was anything to solve with: {0}")]
    Interrupted(&'static str),
}

/// What may help where an error can be mended by other `Options`.
///
/// # Examples
/// ```
/// use krylith::{Options, Remedy, Solver, matrix::Csr};
/// let a = Csr::from_triplets(2, 2, &[(0, 1, 1.0), (1, 0, 1.0)])?; // nothing on the diagonal
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
    /// A smaller restart of GMRES, or a method without one.
    SmallerRestart,
    /// Matrix, preconditioner and basis stored in f32.
    StoreF32,
    /// No preconditioner, or another one.
    NoPreconditioner,
    /// Another block size of the system.
    OtherBlockSize,
    /// A shift of pivots that cannot be inverted.
    PivotShift,
    /// Another device.
    OtherDevice,
}

/// Exit code of what was interrupted, as shells know it of Ctrl-C; ranks know each other's interrupts by it.
const INTERRUPTED: u8 = 130;

impl Error {
    /// A column of a basis in f32, asked for as a vector.
    #[doc(hidden)]
    pub fn narrow_column() -> Self {
        Error::Unsupported(
            "a basis stored in f32 has no columns that operators can write to; store it in f64".into(),
        )
    }

    /// An [`Error::Invalid`] from anything printable.
    pub fn invalid(message: impl Into<String>) -> Self {
        Error::Invalid(message.into())
    }

    /// The same where it is about one of several right-hand sides, from 0.
    #[doc(hidden)]
    pub fn in_column(self, k: usize) -> Self {
        match self {
            Error::Invalid(message) => Error::Invalid(format!("column {k}: {message}")),
            other => other,
        }
    }

    /// An [`Error::Internal`] with the words of a panic that was caught.
    pub fn of_panic(panic: &(dyn std::any::Any + Send)) -> Self {
        let text = panic.downcast_ref::<&str>().map(|text| text.to_string());
        Error::Internal(text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default())
    }

    /// An [`Error::Io`] on `path`.
    pub fn io(path: impl AsRef<Path>, source: std::io::Error) -> Self {
        Error::Io { path: path.as_ref().to_path_buf(), source }
    }

    /// An [`Error::Parse`] on `path` at one-based `line`.
    pub fn parse(path: impl AsRef<Path>, line: usize, message: impl Into<String>) -> Self {
        Error::Parse { path: path.as_ref().to_path_buf(), line, message: message.into() }
    }

    /// An [`Error::Format`] on `path`.
    pub fn format(path: impl AsRef<Path>, message: impl Into<String>) -> Self {
        Error::Format { path: path.as_ref().to_path_buf(), message: message.into() }
    }

    /// True where this rank or another had not enough memory: what needs less may still work.
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

    /// True where the machine failed in a way that no other choice mends: a device, a library, a rank that is gone.
    #[doc(hidden)]
    pub fn is_fatal(&self) -> bool {
        self.exit_code() == 3 && !self.is_memory()
    }

    /// What may help, for a program that has its own names for it.
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
            Error::Memory { .. } => &[Remedy::SmallerRestart, Remedy::StoreF32, Remedy::OtherDevice],
            Error::SingularBlock { .. } => &[Remedy::NoPreconditioner, Remedy::OtherBlockSize],
            Error::Pivot { .. } => &[Remedy::PivotShift, Remedy::NoPreconditioner],
            Error::NoDevice { .. } => &[Remedy::OtherDevice],
            _ => &[],
        }
    }

    /// True where a cancel token or a time limit ended a set-up, here or on another rank: nothing is wrong with the system.
    ///
    /// ```
    /// use krylith::{Options, Solver, matrix::Csr, solver::Cancel};
    /// let a = Csr::from_triplets(2, 2, &[(0, 0, 2.0), (1, 1, 3.0)])?;
    /// let cancel = Cancel::default();
    /// cancel.cancel(); // from another thread, as a rule
    /// let error = Solver::new_watched(&a, &"device=cpu".parse()?, &cancel, None).err().unwrap();
    /// assert!(error.is_interrupt());
    /// # Ok::<(), krylith::Error>(())
    /// ```
    pub fn is_interrupt(&self) -> bool {
        self.exit_code() == INTERRUPTED
    }

    /// The command line's exit code: 2 for what the caller can mend, 3 for the machine, 130 for what was interrupted.
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

/// For conversions that cannot fail, where those that can are taken too.
impl From<std::convert::Infallible> for Error {
    fn from(never: std::convert::Infallible) -> Self {
        match never {}
    }
}
