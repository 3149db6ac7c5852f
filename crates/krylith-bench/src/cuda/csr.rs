//! Scalar CSR products by `cusparseSpMV`.

use super::calls::{Numbers, OP, TYPE, call, scalar, workspace};
use super::fastest;
use super::products::Blocks;
use super::vendor::Vendor;
use cudarc::cusparse::sys as sparse;
use cudarc::cusparse::sys::cusparseSpMVAlg_t as Algorithm;
use krylith_core::Result;
use krylith_core::device::cuda::Buffer;
use std::rc::Rc;

/// A CSR matrix, an algorithm and its analysed buffer. The caller owns the arrays, which must outlive it.
pub(crate) struct SpMv {
    numbers: Numbers,
    pub algorithm: Algorithm,
    buffer: Buffer<u8>,
    vendor: Rc<Vendor>,
}

impl SpMv {
    /// Creates the product with or without `cusparseSpMV_preprocess`.
    pub fn new(
        vendor: &Rc<Vendor>,
        rows: usize,
        nonzeros: usize,
        arrays: [u64; 4],
        algorithm: Algorithm,
        preprocess: bool,
    ) -> Result<Self> {
        let numbers = Numbers::new(vendor, rows, nonzeros, arrays)?;
        let (one, zero, mut bytes) = (1.0, 0.0, 0usize);
        let (matrix, x, y) = numbers.operands();
        let (alpha, beta) = (scalar(&one), scalar(&zero));
        call!(vendor, cusparseSpMV_bufferSize(OP, alpha, matrix, x, beta, y, TYPE, algorithm, &mut bytes))?;
        let buffer = workspace(vendor, bytes)?;
        if preprocess {
            let at = buffer.pointer() as _;
            call!(vendor, cusparseSpMV_preprocess(OP, alpha, matrix, x, beta, y, TYPE, algorithm, at))?;
        }
        Ok(Self { vendor: vendor.clone(), numbers, algorithm, buffer })
    }

    /// Returns the faster algorithm for a scalar matrix.
    pub fn faster(vendor: &Rc<Vendor>, a: &Blocks) -> Result<Algorithm> {
        let (x, y) = (vendor.zeros(a.rows)?, vendor.zeros(a.rows)?);
        let [row_ptr, col, values] = a.addresses();
        let arrays = [row_ptr, col, values, x.pointer()];
        let both = [Algorithm::CUSPARSE_SPMV_CSR_ALG1, Algorithm::CUSPARSE_SPMV_CSR_ALG2];
        let new = |algorithm| Self::new(vendor, a.rows, a.count, arrays, algorithm, true);
        Ok(fastest(vendor, both, new, |spmv| spmv.run(x.pointer(), 0.0, y.pointer()))?.1.algorithm)
    }

    /// Computes y = A x + β y; the caller's vectors hold a number per row.
    pub fn run(&self, x: u64, beta: f64, y: u64) -> Result<()> {
        let ((matrix, x, y), one, buffer) = (self.numbers.at(x, y), 1.0, self.buffer.pointer() as _);
        let (alpha, beta) = (scalar(&one), scalar(&beta));
        call!(self.vendor, cusparseSpMV(OP, alpha, matrix, x, beta, y, TYPE, self.algorithm, buffer))
    }
}
