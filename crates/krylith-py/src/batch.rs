//! Batches of small systems for `krylith.solve_batch`.

use crate::arrays::{Lent, LentMut};
use crate::errors::{bounded, refuse_forked};
use krylith_core::device::cuda::CudaBatch;
use krylith_core::matrix::{Bsr, Csr};
use krylith_core::precond;
use numpy::{PyReadonlyArray1, PyReadwriteArray1};
use pyo3::prelude::*;

/// The residuals of systems, NaN for those without factors, and the numbers and errors of these.
type Ends = (Vec<f64>, Vec<(usize, String)>);

/// The pattern of a batch.
#[pyclass]
pub struct Batch {
    batch: precond::Batch,
    threads: Option<usize>,
}

#[pymethods]
impl Batch {
    /// Takes the pattern of square matrices of b×b blocks.
    #[new]
    fn new(
        py: Python<'_>,
        block: usize,
        nodes: usize,
        row_ptr: PyReadonlyArray1<'_, i64>,
        col: PyReadonlyArray1<'_, i64>,
        threads: Option<usize>,
    ) -> PyResult<Self> {
        refuse_forked()?;
        let (row_ptr, col) = (row_ptr.as_slice()?, col.as_slice()?);
        let batch = bounded(py, threads, || {
            let row_ptr = row_ptr.iter().map(|&p| p as usize).collect();
            let values = vec![0.0; col.len() * block * block];
            let col = col.iter().map(|&j| j as u32).collect();
            precond::Batch::new(Bsr::new(block, nodes, nodes, row_ptr, col, values)?, threads)
        })?;
        Ok(Self { batch, threads })
    }

    /// Solves systems whose values, right-hand sides and solutions follow one another.
    fn solve(
        &mut self,
        py: Python<'_>,
        values: PyReadonlyArray1<'_, f64>,
        b: PyReadonlyArray1<'_, f64>,
        mut x: PyReadwriteArray1<'_, f64>,
        rtol: f64,
        transposed: bool,
    ) -> PyResult<Ends> {
        refuse_forked()?;
        let (values, b, x) = (values.as_slice()?, b.as_slice()?, x.as_slice_mut()?);
        let (batch, threads) = (&mut self.batch, self.threads);
        let ends = bounded(py, threads, || batch.solve(values, b, x, rtol, transposed))?;
        let errors = ends.iter().enumerate();
        let errors = errors.filter_map(|(k, end)| Some((k, end.as_ref().err()?.to_string()))).collect();
        Ok((ends.into_iter().map(|end| end.unwrap_or(f64::NAN)).collect(), errors))
    }
}

/// The pattern of a batch in the memory of a GPU.
#[pyclass]
pub struct DeviceBatch(CudaBatch);

#[pymethods]
impl DeviceBatch {
    /// Takes the pattern of square scalar matrices for a GPU.
    #[new]
    fn new(
        py: Python<'_>,
        ordinal: usize,
        row_ptr: PyReadonlyArray1<'_, i64>,
        col: PyReadonlyArray1<'_, i64>,
    ) -> PyResult<Self> {
        refuse_forked()?;
        let (row_ptr, col) = (row_ptr.as_slice()?, col.as_slice()?);
        let batch = bounded(py, None, || {
            let row_ptr: Vec<usize> = row_ptr.iter().map(|&p| p as usize).collect();
            let (n, values) = (row_ptr.len() - 1, vec![0.0; col.len()]);
            let col = col.iter().map(|&j| j as u32).collect();
            CudaBatch::new(ordinal, &Csr::new(n, n, row_ptr, col, values)?)
        })?;
        Ok(Self(batch))
    }

    /// Solves systems whose values, right-hand sides and solutions follow one another in the memory of the
    /// GPU; returns their relative residuals.
    fn solve(
        &mut self,
        py: Python<'_>,
        values: Lent<'_>,
        b: Lent<'_>,
        mut x: LentMut<'_>,
        rtol: f64,
        transposed: bool,
    ) -> PyResult<Vec<f64>> {
        refuse_forked()?;
        let (values, b, x) = (values.array()?, b.array()?, x.array()?);
        let batch = &mut self.0;
        bounded(py, None, || batch.solve(values, b, x, rtol, transposed))
    }
}
