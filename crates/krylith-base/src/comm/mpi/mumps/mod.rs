//! Direct factors of a distributed matrix by MUMPS (Amestoy, Duff, L'Excellent and Koster 2001), a library
//! that is found at run time ([`library`]) and calls MPI itself.
//!
//! Its calls enter MPI under the lock of [`World::inside`], on the caller's thread, on a duplicate of the
//! communicator. They cannot be interrupted: a rank that is gone ends the job through the launcher. All
//! ranks read the same error codes, so all return the same error.
//!
//! The structure of the C interface differs from version to version ([`layout`]). An instance is created in
//! memory that is larger than any of them. Its version is then read from where each layout has it.

mod layout;
mod library;
mod released;

use super::Mpi;
use super::world::World;
use crate::{Error, Result};
use layout::{BYTES, COMM, JOB, Layout, PAR, SYM, VERSION_TEXT, known};
use library::MumpsLibrary;
pub use released::free_released;
use std::ffi::{c_int, c_void};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// Largest share in percent by which the workspace may exceed its estimate, before a lack of it is an error.
const MOST_RELAXED: c_int = 800;
/// Pivots up to this size, relative to the scaled matrix, are listed as rows without a pivot.
const NO_PIVOT: f64 = 1e-13;

/// What is known of a matrix to factorise.
///
/// # Examples
/// ```
/// use krylith_base::comm::Symmetry;
/// assert_eq!(Symmetry::Definite as i32, 1); // the numbers of MUMPS
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Symmetry {
    /// A ≠ Aᵀ: L U.
    None = 0,
    /// A = Aᵀ with a positive diagonal: L D Lᵀ without pivoting. It fails if A is indefinite.
    Definite = 1,
    /// A = Aᵀ: L D Lᵀ with pivots of order 1 and 2.
    Indefinite = 2,
}

/// Estimates of an analysis.
///
/// # Examples
/// ```
/// use krylith_base::comm::Estimates;
/// let estimates = Estimates { numbers: 1e6, ..Estimates::default() };
/// assert_eq!(estimates.bytes, 0);
/// ```
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Estimates {
    /// Number of numbers in the factors, on all ranks.
    pub numbers: f64,
    /// Number of operations of the elimination, on all ranks.
    pub operations: f64,
    /// Bytes that this rank needs.
    pub bytes: u64,
}

/// An instance of MUMPS, with one rank's rows of a matrix. Every call is collective.
///
/// # Examples
/// ```
/// use krylith_base::comm::{Communicator, Mpi, Mumps, Symmetry};
/// if let Some(mpi) = Mpi::init()?
///     && Mumps::probe(&mpi).is_ok()
/// {
///     // Each rank has one row of 2 I.
///     let (n, row) = (mpi.size(), mpi.rank() as i32 + 1);
///     let mut mumps = Mumps::new(&mpi, Symmetry::None, n, vec![row], 1)?;
///     mumps.analyze(vec![row], vec![row])?;
///     mumps.factorize(&mut [2.0])?;
///     mumps.right_hand_side()[0] = 4.0;
///     mumps.solve(false)?;
///     assert!(mumps.solution().iter().all(|x| *x == 2.0));
/// }
/// # Ok::<(), krylith_base::Error>(())
/// ```
pub struct Mumps {
    /// Number of the instance on this communicator, the same on all ranks.
    id: u64,
    world: Arc<World>,
    library: &'static MumpsLibrary,
    layout: Layout,
    /// The structure, in words of 8 bytes.
    data: Box<[u64]>,
    version: String,
    threads: c_int,
    /// Rows and columns of own entries, from 1.
    rows: Vec<c_int>,
    columns: Vec<c_int>,
    /// Numbers of own unknowns, from 1, and their right-hand side.
    own: Vec<c_int>,
    rhs: Vec<f64>,
    /// The part of the solution that MUMPS leaves on this rank, and the numbers of its unknowns, from 1.
    solution: Vec<f64>,
    places: Vec<c_int>,
}

// SAFETY: the structure has addresses of the library and of the vectors beside it, and one thread calls at a
// time.
unsafe impl Send for Mumps {}

impl Mumps {
    /// Describes the library that the ranks of this communicator would use. Not collective.
    ///
    /// # Errors
    /// The reason why there is none.
    pub fn probe(mpi: &Mpi) -> Result<String, String> {
        library::find(mpi.world.library()).map(|library| library.path.clone())
    }

    /// Creates an instance for a matrix of n rows, of which this rank has the unknowns `own`, numbered from
    /// 1, with at most `threads` threads on each rank. Collective.
    ///
    /// # Errors
    /// [`Error::Library`] if there is no library, or one of an unknown version; an error of MUMPS.
    pub fn new(mpi: &Mpi, symmetry: Symmetry, n: usize, own: Vec<i32>, threads: usize) -> Result<Self> {
        let library = library::find(mpi.world.library()).map_err(|why| failed("MUMPS", why))?;
        let count = |n: usize| {
            c_int::try_from(n).map_err(|_| {
                Error::Unsupported(format!(
                    "lu: {n} unknowns; MUMPS supports at most {}; use ras or amg",
                    c_int::MAX
                ))
            })
        };
        let n = count(n)?;
        let layouts = known();
        let mut mumps = Self {
            id: mpi.world.instances.fetch_add(1, Relaxed),
            world: mpi.world.clone(),
            library,
            layout: layouts[0].1,
            data: vec![0u64; BYTES / 8].into(),
            version: String::new(),
            threads: count(threads.max(1))?,
            rows: Vec::new(),
            columns: Vec::new(),
            rhs: vec![0.0; own.len()],
            own,
            solution: Vec::new(),
            places: Vec::new(),
        };
        // No member that is read now changes its place from version to version.
        mumps.write(SYM, symmetry as c_int);
        mumps.write(PAR, 1 as c_int);
        let comm = mumps.world.fortran_handle();
        mumps.write(COMM, comm);
        mumps.raw(-1)?;
        let found = layouts.into_iter().find_map(|(versions, layout)| {
            let text = mumps.text(layout.version_number);
            versions
                .iter()
                .any(|v| text.strip_prefix(v).is_some_and(|rest| rest.starts_with('.')))
                .then_some((text, layout))
        });
        let Some((version, layout)) = found else {
            // The instance stays, because where it would be freed is not known.
            return Err(failed(
                &library.path,
                "its version is not one of 5.5 to 5.8 with 32-bit integers".to_string(),
            ));
        };
        (mumps.version, mumps.layout) = (version, layout);
        mumps.checked("start")?;
        mumps.write(mumps.layout.n, n);
        let threads = mumps.threads;
        // Distributed entries, right-hand sides and solutions; no output.
        for (i, value) in
            [(1, -1), (2, -1), (3, -1), (4, 0), (5, 0), (16, threads), (18, 3), (20, 10), (21, 1)]
        {
            mumps.set_control(i, value);
        }
        Ok(mumps)
    }

    /// The version of the library, such as `5.5.1`.
    pub fn version(&self) -> &str {
        &self.version
    }

    /// Analyses the pattern of own entries, with row and column numbers from 1. Of a symmetric matrix they
    /// are the entries of one triangle. Collective.
    ///
    /// # Errors
    /// An error of MUMPS.
    pub fn analyze(&mut self, rows: Vec<i32>, columns: Vec<i32>) -> Result<Estimates> {
        (self.rows, self.columns) = (rows, columns);
        let (count, layout) = (self.rows.len() as i64, self.layout);
        self.write(layout.nnz_loc, count);
        let (rows, columns) = (self.rows.as_mut_ptr(), self.columns.as_mut_ptr());
        self.write(layout.irn_loc, rows);
        self.write(layout.jcn_loc, columns);
        self.call(1, "the analysis")?;
        let numbers = f64::from(self.global(20));
        Ok(Estimates {
            // A negative number is in millions, and bytes are in millions.
            numbers: if numbers < 0.0 { -1e6 * numbers } else { numbers },
            operations: self.read::<f64>(self.layout.rinfog),
            bytes: (self.local(15).max(0) as u64) << 20,
        })
    }

    /// Factorises values of the entries that were analysed. Returns false if the matrix has no inverse by the
    /// pivots that its symmetry allows. Collective.
    ///
    /// # Errors
    /// Out of memory; other errors of MUMPS. Then there are no factors.
    pub fn factorize(&mut self, values: &mut [f64]) -> Result<bool> {
        if values.len() != self.rows.len() {
            return Err(Error::Internal(format!(
                "MUMPS got {} values of {} entries",
                values.len(),
                self.rows.len()
            )));
        }
        self.write(self.layout.a_loc, values.as_mut_ptr());
        let mut relaxed = self.control(14).max(20);
        loop {
            self.set_control(14, relaxed);
            self.raw(2)?;
            // Workspaces or buffers were smaller than delayed pivots need.
            let is_short = matches!(self.global(1), -8 | -9 | -11 | -12 | -14 | -15 | -17 | -20);
            if !is_short || relaxed >= MOST_RELAXED {
                break;
            }
            relaxed *= 2;
        }
        if matches!(self.global(1), -10 | -40) {
            return Ok(false);
        }
        self.checked("the factorisation")?;
        let length = self.local(23).max(1) as usize;
        self.solution.resize(length, 0.0);
        self.places.resize(length, 0);
        Ok(true)
    }

    /// Factorises the values again to find rows that have no pivot above rounding errors; numbers from 0.
    /// Afterwards there are no factors of the matrix. Collective.
    ///
    /// # Errors
    /// Errors of MUMPS.
    pub fn rows_without_pivot(&mut self, values: &mut [f64]) -> Result<Vec<u64>> {
        self.set_control(24, 1);
        self.write(self.layout.cntl + 2 * size_of::<f64>(), NO_PIVOT);
        let made = self.factorize(values);
        self.set_control(24, 0);
        self.write(self.layout.cntl + 2 * size_of::<f64>(), 0.0f64);
        if !made? {
            return Ok(Vec::new());
        }
        let (list, count) = (self.read::<*const c_int>(self.layout.pivnul_list), self.global(28).max(0));
        if self.world.rank != 0 || list.is_null() {
            return Ok(Vec::new());
        }
        // SAFETY: on the first rank MUMPS keeps a list of so many rows, until the next factorisation.
        let list = unsafe { std::slice::from_raw_parts(list, count as usize) };
        Ok(list.iter().map(|&row| i64::from(row).unsigned_abs().saturating_sub(1)).collect())
    }

    /// Number of negative pivots of a symmetric matrix.
    pub fn negative_pivots(&self) -> usize {
        self.global(12).max(0) as usize
    }

    /// Number of numbers in the factors, on all ranks.
    pub fn numbers(&self) -> f64 {
        let numbers = f64::from(self.global(29));
        if numbers < 0.0 { -1e6 * numbers } else { numbers }
    }

    /// Megabytes that the factorisation has used, on all ranks.
    pub fn megabytes(&self) -> usize {
        self.global(22).max(0) as usize
    }

    /// The right-hand side of own unknowns, which the caller fills before a solve.
    pub fn right_hand_side(&mut self) -> &mut [f64] {
        &mut self.rhs
    }

    /// Solves A x = b, or Aᵀ x = b. Collective.
    ///
    /// # Errors
    /// An error of MUMPS.
    pub fn solve(&mut self, transposed: bool) -> Result<()> {
        let (layout, count, length) = (self.layout, self.own.len() as c_int, self.solution.len() as c_int);
        self.set_control(9, if transposed { 0 } else { 1 });
        for (at, value) in [
            (layout.nrhs, 1),
            (layout.nloc_rhs, count),
            (layout.lrhs_loc, count.max(1)),
            (layout.lsol_loc, length),
        ] {
            self.write(at, value);
        }
        let (rhs, own) = (self.rhs.as_mut_ptr(), self.own.as_mut_ptr());
        self.write(layout.rhs_loc, rhs);
        self.write(layout.irhs_loc, own);
        let (solution, places) = (self.solution.as_mut_ptr(), self.places.as_mut_ptr());
        self.write(layout.sol_loc, solution);
        self.write(layout.isol_loc, places);
        self.call(3, "the solve")
    }

    /// The part of the solution that is on this rank after a solve.
    pub fn solution(&self) -> &[f64] {
        &self.solution[..self.local(23).max(0) as usize]
    }

    /// Numbers of the unknowns of [`solution`](Self::solution), from 1. New factors may change them.
    pub fn places(&self) -> &[i32] {
        &self.places[..self.local(23).max(0) as usize]
    }

    fn call(&mut self, job: c_int, what: &str) -> Result<()> {
        self.raw(job)?;
        self.checked(what)
    }

    /// Runs a job of MUMPS. Its error code stays in the structure.
    fn raw(&mut self, job: c_int) -> Result<()> {
        self.write(JOB, job);
        let (library, threads, data) = (self.library, self.threads, self.data.as_mut_ptr().cast::<c_void>());
        // SAFETY: the structure is longer than that of any version, and the arrays that it has addresses of
        // are fields of `self` or live in the caller.
        self.world.inside(|| unsafe {
            let before = library.blas_threads.map(|(get, set)| {
                let before = get();
                set(threads);
                before
            });
            (library.call)(data);
            if let Some((before, (_, set))) = before.zip(library.blas_threads) {
                set(before);
            }
        })
    }

    /// The error of the last job, which is the same on all ranks.
    fn checked(&self, what: &str) -> Result<()> {
        let (code, detail) = (self.global(1), self.global(2));
        if code >= 0 {
            return Ok(());
        }
        let by = format!("lu: MUMPS {}, {what}", self.version);
        Err(match code {
            -6 => Error::invalid(format!(
                "{by}: the matrix is structurally singular, of rank {detail}; give all null vectors, or try \
                 incomplete factors, such as ildu:shift=1e-6"
            )),
            -5 | -7 | -8 | -9 | -13 | -14 | -19 | -22 => {
                let needed = match detail {
                    d if d < 0 => i64::from(-d) * 1_000_000,
                    d => i64::from(d),
                };
                Error::Memory {
                    what: format!("{by}, code {code}"),
                    needed: 8 * needed as u64,
                    free: 0,
                    place: "a host of the ranks".into(),
                    remedy: "use more hosts, or fewer ranks on each, or incomplete factors, such as ras",
                }
            }
            _ => Error::Device {
                device: format!("MUMPS {}", self.version),
                call: what.into(),
                message: format!(
                    "INFOG(1) = {code}, INFOG(2) = {detail}; the manual of MUMPS names the cause; lu:over=one \
                     does without MUMPS"
                ),
            },
        })
    }

    /// ICNTL(i).
    fn control(&self, i: usize) -> c_int {
        self.read(self.layout.icntl + (i - 1) * size_of::<c_int>())
    }

    fn set_control(&mut self, i: usize, value: c_int) {
        self.write(self.layout.icntl + (i - 1) * size_of::<c_int>(), value);
    }

    /// INFOG(i).
    fn global(&self, i: usize) -> c_int {
        self.read(self.layout.infog + (i - 1) * size_of::<c_int>())
    }

    /// INFO(i).
    fn local(&self, i: usize) -> c_int {
        self.read(self.layout.info + (i - 1) * size_of::<c_int>())
    }

    fn text(&self, at: usize) -> String {
        let bytes: [u8; VERSION_TEXT] = self.read(at);
        let text = bytes.split(|&b| b == 0).next().unwrap_or_default();
        String::from_utf8_lossy(text).trim().to_string()
    }

    fn read<T: Copy>(&self, at: usize) -> T {
        assert!(at + size_of::<T>() <= BYTES, "a member behind the structure");
        // SAFETY: within the structure; integers, numbers, bytes and raw pointers may have any bits.
        unsafe { self.data.as_ptr().cast::<u8>().add(at).cast::<T>().read_unaligned() }
    }

    fn write<T: Copy>(&mut self, at: usize, value: T) {
        assert!(at + size_of::<T>() <= BYTES, "a member behind the structure");
        // SAFETY: within the structure.
        unsafe { self.data.as_mut_ptr().cast::<u8>().add(at).cast::<T>().write_unaligned(value) }
    }
}

impl Mumps {
    /// Frees the factors. After the end of MPI, or on ranks that have lost another one, they stay.
    /// Collective.
    fn free(mut self) {
        let _ = self.raw(-2); // nothing is left to do after an error
        self.version.clear(); // so that nothing is released
    }
}

impl Drop for Mumps {
    /// Keeps the instance until all ranks have dropped it; [`free_released`] then frees it.
    fn drop(&mut self) {
        if !self.version.is_empty() && !std::thread::panicking() {
            released::keep(Self {
                id: self.id,
                world: self.world.clone(),
                library: self.library,
                layout: self.layout,
                data: std::mem::take(&mut self.data),
                version: std::mem::take(&mut self.version),
                threads: self.threads,
                rows: std::mem::take(&mut self.rows),
                columns: std::mem::take(&mut self.columns),
                own: std::mem::take(&mut self.own),
                rhs: std::mem::take(&mut self.rhs),
                solution: std::mem::take(&mut self.solution),
                places: std::mem::take(&mut self.places),
            });
        }
    }
}

fn failed(library: &str, message: String) -> Error {
    Error::Library {
        library: library.into(),
        message,
        remedy: "install MUMPS 5.5 to 5.8 for the MPI library of the ranks, or give its file: \
                 KRYLITH_MUMPS=PATH; lu:over=one does without MUMPS"
            .into(),
    }
}
