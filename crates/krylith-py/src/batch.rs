//! Batches of small systems for `krylith.solve_batch`.

use crate::errors::{bounded, refuse_forked};
use krylith_core::matrix::Bsr;
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
