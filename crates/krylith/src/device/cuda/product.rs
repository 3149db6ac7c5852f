//! Products of point-block terms on a GPU.

use super::Cuda;
use super::driver::{Buffer, launch};
use super::specialisations as special;
use crate::matrix::Dense;
use crate::operator::{PointBlockSum, Terms};
use crate::space::{Space, Store};
use crate::{Error, Result};
use cudarc::driver::CudaFunction;

/// Terms in device memory.
pub struct CudaProduct {
    block: usize,
    stages: usize,
    rows: usize,
    columns: usize,
    terms: Vec<Term>,
}
struct Term {
    row_ptr: Buffer<i64>,
    col: Buffer<u32>,
    values: Buffer<f64>,
    coefficients: Buffer<f64>,
    function: CudaFunction,
}

impl PointBlockSum for Cuda {
    type Product = CudaProduct;
    fn prepare(&self, terms: &Terms, _store: Store, _dense: bool) -> Result<CudaProduct> {
        let d = self.device();
        let all = terms.terms.iter().map(|(c, a)| {
            let row_ptr: Vec<i64> = a.row_ptr().iter().map(|&p| p as i64).collect();
            Ok(Term {
                row_ptr: d.upload(&row_ptr, "row pointers")?,
                col: d.upload(a.col(), "columns")?,
                values: d.upload(a.values(), "values")?,
                coefficients: d.upload(c.values(), "coefficients")?,
                function: d.function(&special::block_rows(terms.block(), terms.stages(), Store::F64))?,
            })
        });
        Ok(CudaProduct {
            block: terms.block(),
            stages: terms.stages(),
            rows: terms.block_rows(),
            columns: terms.terms[0].1.block_columns(),
            terms: all.collect::<Result<_>>()?,
        })
    }
    fn multiply(&self, p: &CudaProduct, x: &Buffer<f64>, y: &mut Buffer<f64>) -> Result<()> {
        for (t, term) in p.terms.iter().enumerate() {
            let threads = p.rows * p.block;
            // SAFETY: types match
            unsafe {
                launch!(
                    self.device(),
                    &term.function,
                    threads.div_ceil(128),
                    128,
                    0,
                    self.halt(),
                    p.rows as i64,
                    term.row_ptr.pointer(),
                    term.col.pointer(),
                    term.values.pointer(),
                    term.coefficients.pointer(),
                    (t > 0) as i32,
                    x.pointer(),
                    y.pointer()
                )?;
            }
        }
        let _ = p.columns;
        Ok(())
    }
    fn update_values(&self, p: &mut CudaProduct, t: usize, values: &[f64]) -> Result<()> {
        self.device().write(values, &mut p.terms[t].values, 0)?;
        self.wait()
    }
    fn update_coefficients(&self, p: &mut CudaProduct, coefficients: &[Dense]) -> Result<()> {
        for (t, c) in p.terms.iter_mut().zip(coefficients) {
            if c.rows() != p.stages {
                return Err(Error::Unsupported("stages".into()));
            }
            self.device().write(c.values(), &mut t.coefficients, 0)?;
        }
        self.wait()
    }
    fn product_bytes(_p: &CudaProduct) -> u64 {
        0
    }
    fn product_key(_p: &CudaProduct) -> u64 {
        0
    }
}
