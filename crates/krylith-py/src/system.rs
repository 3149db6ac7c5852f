//! Systems from the arrays of Python matrices.

use crate::arrays::{IndexArray, Indices, Lent, of_any_width};
use crate::errors::{bounded, exception, refuse_forked};
use crate::ranks;
use krylith_core::comm::agree;
use krylith_core::matrix::{Csr, Dense};
use krylith_core::options::DeviceSpec;
use krylith_core::{Error, Field, Options, Problem};
use krylith_report::words;
use numpy::{PyReadonlyArray1, PyReadonlyArray2, PyUntypedArrayMethods};
use pyo3::prelude::*;

/// A system without its right-hand side.
#[pyclass(frozen)]
pub struct System {
    pub problem: Problem<'static>,
    /// A description of the system for summaries.
    pub lines: Vec<String>,
    /// The number of threads in its options, if given.
    threads: Option<usize>,
}

/// A field as Python gives it; see [`System::with_fields`].
type GivenField<'py> = (
    String,
    PyReadonlyArray1<'py, i64>,
    usize,
    Option<Vec<Vec<f64>>>,
    bool,
    Option<PyReadonlyArray2<'py, f64>>,
);

/// A matrix as Python gives it: rows, columns, offsets, columns of the entries, and values.
pub type GivenMatrix<'py> =
    (usize, usize, PyReadonlyArray1<'py, i64>, PyReadonlyArray1<'py, i64>, PyReadonlyArray1<'py, f64>);

#[pymethods]
impl System {
    /// Creates a system from a scalar matrix in CSR format; without a block size, chooses the one that suits
    /// the pattern. With options that select a GPU, the arrays are uploaded at once.
    #[staticmethod]
    #[pyo3(signature = (rows, columns, row_ptr, col, values, block, threads=None, options=None))]
    fn csr(
        py: Python<'_>,
        rows: usize,
        columns: usize,
        row_ptr: Indices<'_>,
        col: Indices<'_>,
        values: Lent<'_>,
        block: Option<usize>,
        threads: Option<usize>,
        options: Option<&str>,
    ) -> PyResult<Self> {
        refuse_forked()?;
        let (row_ptr, col, values) = (row_ptr.array()?, col.array()?, values.array()?);
        let (options, shape) = (on_host_unless(options), [rows, columns]);
        bounded(py, threads, || {
            let problem = of_any_width!(row_ptr, col, |p, j| {
                Problem::from_csr_arrays(shape, p, j, values, block, &options)
            })?;
            Ok(Self::of(problem, values.len(), "CSR", threads))
        })
    }

    /// Creates a system from this rank's rows of a distributed scalar matrix; each rank holds consecutive
    /// rows, and columns are numbered in the whole matrix. Collective.
    #[staticmethod]
    #[pyo3(signature = (comm, rows, columns, row_ptr, col, values, block, threads=None))]
    fn distributed(
        py: Python<'_>,
        comm: ranks::Handle,
        rows: usize,
        columns: usize,
        row_ptr: Indices<'_>,
        col: Indices<'_>,
        values: Lent<'_>,
        block: Option<usize>,
        threads: Option<usize>,
    ) -> PyResult<Self> {
        refuse_forked()?;
        let (row_ptr, col, values) = (row_ptr.array()?, col.array()?, values.array()?);
        bounded(py, threads, || {
            let a = of_any_width!(row_ptr, col, |p, j| Csr::from_arrays(rows, columns, p, j, values));
            ranks::system(comm, a, block, threads)
        })
    }

    /// Creates a system from a matrix of square blocks, as [`csr`](Self::csr) does from scalar rows.
    #[staticmethod]
    #[pyo3(signature = (block, block_rows, block_columns, row_ptr, col, values, threads=None, options=None))]
    fn bsr(
        py: Python<'_>,
        block: usize,
        block_rows: usize,
        block_columns: usize,
        row_ptr: Indices<'_>,
        col: Indices<'_>,
        values: Lent<'_>,
        threads: Option<usize>,
        options: Option<&str>,
    ) -> PyResult<Self> {
        refuse_forked()?;
        let (row_ptr, col, values) = (row_ptr.array()?, col.array()?, values.array()?);
        let (options, shape) = (on_host_unless(options), [block_rows, block_columns]);
        bounded(py, threads, || {
            let problem = of_any_width!(row_ptr, col, |p, j| {
                Problem::from_block_arrays(block, shape, p, j, values, &options)
            })?;
            Ok(Self::of(problem, values.len(), "BSR", threads))
        })
    }

    /// Creates the system A⊗M + τB⊗L; `m` and `l` are systems of one matrix each, with the same block size.
    /// Both may be distributed, with the same rows on each rank; then all ranks call this together.
    #[staticmethod]
    fn kronecker(
        py: Python<'_>,
        a: PyReadonlyArray2<'_, f64>,
        b: PyReadonlyArray2<'_, f64>,
        tau: f64,
        m: &System,
        l: &System,
    ) -> PyResult<Self> {
        let coefficients = dense(&a).and_then(|a| Ok((a, dense(&b)?)));
        bounded(py, m.threads, || {
            let (a, b) = agree(&**m.problem.comm(), coefficients)?;
            let sum = Problem::kronecker_of(a, b, tau, &m.problem, &l.problem)?;
            Ok(Self::of(sum, m.entries() + l.entries(), "A⊗M + τB⊗L", m.threads))
        })
    }

    /// Returns the system with coordinates of its nodes, n × 2 or n × 3.
    fn with_coordinates(&self, py: Python<'_>, points: PyReadonlyArray2<'_, f64>) -> PyResult<Self> {
        let points = points_of(&points).map_err(exception)?;
        self.with(py, |problem| problem.with_coordinates(points))
    }

    /// Returns the system with its nodes on a grid.
    fn with_grid(&self, py: Python<'_>, grid: [usize; 3]) -> PyResult<Self> {
        self.with(py, |problem| problem.with_grid(grid))
    }

    /// Returns the system with null vectors; `None` means the constant vectors that the system maps to zero.
    fn with_null_vectors(&self, py: Python<'_>, vectors: Option<Vec<Vec<f64>>>) -> PyResult<Self> {
        let vectors = bounded(py, self.threads, || match vectors {
            None => self.problem.constant_null_vectors(),
            Some(vectors) => {
                vectors.iter().try_for_each(|v| match v.len() == self.problem.own_len() {
                    true => self.problem.check_null_vector(v),
                    false => Ok(()), // reported below
                })?;
                Ok(vectors)
            }
        })?;
        self.with(py, |problem| problem.with_null_vectors(vectors))
    }

    /// Returns the system with near-null vectors; `None` means rigid modes.
    fn with_near_null_vectors(&self, py: Python<'_>, vectors: Option<Vec<Vec<f64>>>) -> PyResult<Self> {
        self.with(py, |problem| match vectors {
            None => problem.with_rigid_modes(),
            Some(vectors) => problem.with_near_null_vectors(vectors),
        })
    }

    /// Returns the system with fields: name, unknowns, block size, near-null vectors, whether these are rigid
    /// modes, and coordinates of each.
    fn with_fields(&self, py: Python<'_>, fields: Vec<GivenField<'_>>) -> PyResult<Self> {
        let make = |(name, unknowns, block, near, rigid, points): GivenField<'_>| {
            let numbers: Vec<u32> = unknowns.as_array().iter().map(|&i| i as u32).collect();
            let field = Field::new(&name, numbers).in_blocks(block);
            let field = match points {
                Some(points) => field.with_coordinates(points_of(&points)?),
                None => field,
            };
            match near {
                _ if rigid => field.with_rigid_modes(),
                Some(near) => Ok(field.with_near_null_vectors(near)),
                None => Ok(field),
            }
        };
        let fields =
            fields.into_iter().map(make).collect::<krylith_core::Result<Vec<_>>>().map_err(exception)?;
        self.with(py, |problem| problem.with_fields(fields))
    }

    /// Returns the system with a matrix that preconditioners name.
    fn with_matrix(&self, py: Python<'_>, name: &str, arrays: GivenMatrix<'_>) -> PyResult<Self> {
        let matrix = named_matrix(name, arrays)?;
        self.with(py, |problem| problem.with_matrix(name, matrix))
    }

    /// Number of unknowns.
    #[getter]
    fn unknowns(&self) -> usize {
        self.problem.unknowns()
    }

    /// Number of unknowns that this process holds.
    #[getter]
    fn own(&self) -> usize {
        self.problem.own_len()
    }

    /// Number of unknowns of a node.
    #[getter]
    fn block(&self) -> usize {
        self.problem.block()
    }

    /// Number of stages.
    #[getter]
    fn stages(&self) -> usize {
        self.problem.stages()
    }
}

impl System {
    pub fn of(problem: Problem<'static>, entries: usize, format: &str, threads: Option<usize>) -> Self {
        let lines = words::system(&problem, entries, format);
        Self { problem, lines, threads }
    }

    /// Number of stored entries of its terms.
    fn entries(&self) -> usize {
        self.problem.terms().terms().iter().map(|(_, a)| a.stored()).sum()
    }

    fn with(
        &self,
        py: Python<'_>,
        change: impl FnOnce(Problem<'static>) -> krylith_core::Result<Problem<'static>> + Send,
    ) -> PyResult<Self> {
        let problem = bounded(py, self.threads, || change(self.problem.clone()))?;
        Ok(Self { problem, lines: self.lines.clone(), threads: self.threads })
    }
}

/// Copies points of two or three numbers.
fn points_of(points: &PyReadonlyArray2<'_, f64>) -> krylith_core::Result<Vec<[f64; 3]>> {
    let view = points.as_array();
    match view.ncols() {
        3 if view.is_standard_layout() => Ok(view.as_slice().unwrap_or(&[]).as_chunks().0.to_vec()),
        3 => Ok(view.rows().into_iter().map(|p| [p[0], p[1], p[2]]).collect()),
        2 => Ok(view.rows().into_iter().map(|p| [p[0], p[1], 0.0]).collect()),
        n => Err(Error::invalid(format!("the points have {n} coordinates each; expected 2 or 3"))),
    }
}

/// Copies a small dense matrix.
pub fn dense(of: &PyReadonlyArray2<'_, f64>) -> krylith_core::Result<Dense> {
    let (rows, columns) = (of.shape()[0], of.shape()[1]);
    let view = of.as_array();
    let places = (0..rows).flat_map(|i| (0..columns).map(move |j| [i, j]));
    Dense::new(rows, columns, places.map(|place| view[place]).collect())
}

/// Returns the options of the solver that a system is made for. Without any, or with options that the solver
/// will refuse, the matrix is made on the host.
fn on_host_unless(options: Option<&str>) -> Options {
    let host = || Options { device: Some(DeviceSpec::Cpu), ..Options::default() };
    options.and_then(|text| text.parse().ok()).unwrap_or_else(host)
}

/// Returns a matrix that the caller named, from its arrays.
pub fn named_matrix(name: &str, (rows, columns, row_ptr, col, values): GivenMatrix<'_>) -> PyResult<Csr> {
    let row_ptr = row_ptr.as_array().iter().map(|&p| p as usize).collect();
    let col = col.as_array().iter().map(|&j| j as u32).collect();
    let matrix = Csr::new(rows, columns, row_ptr, col, values.as_array().to_vec());
    matrix.map_err(|e| exception(Error::invalid(format!("matrix `{name}`: {e}"))))
}
