//! Scalar CSR products by `cusparseSpMV`: the assembled Kronecker sum, and point-block matrices of block size 1.

use super::products::Blocks;
use super::vendor::Vendor;
use crate::platform::Product;
use cudarc::cusparse::sys as sparse;
use cudarc::cusparse::sys::cusparseSpMVAlg_t as Algorithm;
use krylith::device::cuda::Buffer;
use krylith::matrix::KroneckerSum;
use krylith::{Error, Result};
use std::ffi::c_void;
use std::rc::Rc;

const TYPE: sparse::cudaDataType = sparse::cudaDataType::CUDA_R_64F;
const OP: sparse::cusparseOperation_t = sparse::cusparseOperation_t::CUSPARSE_OPERATION_NON_TRANSPOSE;

/// A CSR matrix, an algorithm and its analysed buffer. The arrays belong to the caller and must outlive it.
pub(crate) struct SpMv {
    vendor: Rc<Vendor>,
    matrix: sparse::cusparseSpMatDescr_t,
    x: sparse::cusparseDnVecDescr_t,
    y: sparse::cusparseDnVecDescr_t,
    algorithm: Algorithm,
    buffer: Option<Buffer<u8>>,
}

/// f64 on the host, as the generic interface takes them.
fn scalar(x: &f64) -> *const c_void {
    (x as *const f64).cast()
}

impl SpMv {
    pub fn new(
        vendor: &Rc<Vendor>,
        rows: usize,
        nonzeros: usize,
        arrays: [u64; 4],
        algorithm: Algorithm,
    ) -> Result<Self> {
        Self::prepared(vendor, rows, nonzeros, arrays, algorithm, true)
    }

    /// With or without `cusparseSpMV_preprocess`.
    pub fn prepared(
        vendor: &Rc<Vendor>,
        rows: usize,
        nonzeros: usize,
        [row_ptr, col, values, vector]: [u64; 4],
        algorithm: Algorithm,
        preprocess: bool,
    ) -> Result<Self> {
        let mut matrix: sparse::cusparseSpMatDescr_t = std::ptr::null_mut();
        let mut x: sparse::cusparseDnVecDescr_t = std::ptr::null_mut();
        let mut y: sparse::cusparseDnVecDescr_t = std::ptr::null_mut();
        let index = sparse::cusparseIndexType_t::CUSPARSE_INDEX_32I;
        let base = sparse::cusparseIndexBase_t::CUSPARSE_INDEX_BASE_ZERO;
        let (n, nnz) = (rows as i64, nonzeros as i64);
        // SAFETY: descriptors are made here and destroyed once, in `drop`; the arrays are the caller's.
        unsafe {
            let done = sparse::cusparseCreateCsr(
                &mut matrix,
                n,
                n,
                nnz,
                row_ptr as _,
                col as _,
                values as _,
                index,
                index,
                base,
                TYPE,
            );
            vendor.sparse("cusparseCreateCsr", done)?;
            vendor
                .sparse("cusparseCreateDnVec", sparse::cusparseCreateDnVec(&mut x, n, vector as _, TYPE))?;
            vendor
                .sparse("cusparseCreateDnVec", sparse::cusparseCreateDnVec(&mut y, n, vector as _, TYPE))?;
        }
        let mut made = Self { vendor: vendor.clone(), matrix, x, y, algorithm, buffer: None };
        let (one, zero, mut bytes) = (1.0, 0.0, 0usize);
        // SAFETY: descriptors are live; the size is written to one integer.
        let done = unsafe {
            sparse::cusparseSpMV_bufferSize(
                vendor.handle(),
                OP,
                scalar(&one),
                matrix.cast_const(),
                x.cast_const(),
                scalar(&zero),
                y,
                TYPE,
                algorithm,
                &mut bytes,
            )
        };
        vendor.sparse("cusparseSpMV_bufferSize", done)?;
        let buffer: Buffer<u8> = vendor.device.zeros(bytes.max(16), "SpMV's buffer")?;
        if !preprocess {
            made.buffer = Some(buffer);
            return Ok(made);
        }
        // SAFETY: as above, with a buffer of the size that was asked for.
        let done = unsafe {
            sparse::cusparseSpMV_preprocess(
                vendor.handle(),
                OP,
                scalar(&one),
                matrix.cast_const(),
                x.cast_const(),
                scalar(&zero),
                y,
                TYPE,
                algorithm,
                buffer.pointer() as _,
            )
        };
        vendor.sparse("cusparseSpMV_preprocess", done)?;
        made.buffer = Some(buffer);
        Ok(made)
    }

    /// A block-size-1 matrix with the faster algorithm.
    pub fn best(vendor: &Rc<Vendor>, a: &Blocks) -> Result<Self> {
        let (x, y) = (vendor.zeros(a.rows)?, vendor.zeros(a.rows)?);
        let (row_ptr, col) = a.pattern();
        let arrays = [row_ptr, col, a.values.pointer(), x.pointer()];
        fastest(vendor, a.rows, a.count, arrays, &x, &y)
    }

    /// y = A x + β y.
    pub fn run(&self, x: u64, beta: f64, y: u64) -> Result<()> {
        let one = 1.0;
        // SAFETY: the caller's vectors hold a number a row; the buffer lives in `self`.
        let done = unsafe {
            let _ = sparse::cusparseDnVecSetValues(self.x, x as _);
            let _ = sparse::cusparseDnVecSetValues(self.y, y as _);
            sparse::cusparseSpMV(
                self.vendor.handle(),
                OP,
                scalar(&one),
                self.matrix.cast_const(),
                self.x.cast_const(),
                scalar(&beta),
                self.y,
                TYPE,
                self.algorithm,
                self.buffer.as_ref().map_or(0, Buffer::pointer) as _,
            )
        };
        self.vendor.sparse("cusparseSpMV", done)
    }

    /// The algorithm that it was analysed for.
    pub fn algorithm(&self) -> Algorithm {
        self.algorithm
    }

    pub fn notes(&self) -> &'static str {
        if self.algorithm == Algorithm::CUSPARSE_SPMV_CSR_ALG2 { "CSR_ALG2" } else { "CSR_ALG1" }
    }
}

impl Drop for SpMv {
    fn drop(&mut self) {
        // SAFETY: made once in `new`.
        unsafe {
            let _ = sparse::cusparseDestroySpMat(self.matrix.cast_const());
            let _ = sparse::cusparseDestroyDnVec(self.x.cast_const());
            let _ = sparse::cusparseDestroyDnVec(self.y.cast_const());
        }
    }
}

/// Both algorithms timed, the faster one kept.
fn fastest(
    vendor: &Rc<Vendor>,
    rows: usize,
    nonzeros: usize,
    arrays: [u64; 4],
    x: &Buffer<f64>,
    y: &Buffer<f64>,
) -> Result<SpMv> {
    let mut best: Option<(f64, SpMv)> = None;
    for algorithm in [Algorithm::CUSPARSE_SPMV_CSR_ALG1, Algorithm::CUSPARSE_SPMV_CSR_ALG2] {
        let candidate = SpMv::new(vendor, rows, nonzeros, arrays, algorithm)?;
        let seconds = super::quick(vendor, &mut || candidate.run(x.pointer(), 0.0, y.pointer()))?;
        if best.as_ref().is_none_or(|b| seconds < b.0) {
            best = Some((seconds, candidate));
        }
    }
    best.map(|b| b.1).ok_or_else(|| Error::invalid("no SpMV algorithm"))
}

/// The Kronecker sum assembled to one CSR matrix; a single set, for it is s² times larger.
pub(super) struct Assembled {
    // Before the arrays, so that descriptors go first.
    spmv: SpMv,
    x: Buffer<f64>,
    y: Buffer<f64>,
    _arrays: (Buffer<i32>, Buffer<i32>, Buffer<f64>),
}

impl Assembled {
    /// # Errors
    /// More nonzeros than 32-bit offsets can count, or different patterns.
    pub fn new(vendor: &Rc<Vendor>, k: &KroneckerSum) -> Result<Self> {
        let (b, s, n) = (k.block(), k.stages(), k.m.block_rows());
        let (bs, nonzeros) = (b * s, k.m.values().len() * s * s);
        if nonzeros > i32::MAX as usize || !k.m.same_pattern(&k.l) {
            return Err(Error::Unsupported(format!("an assembled matrix of {nonzeros} nonzeros")));
        }
        let (mut row_ptr, mut col) = (Vec::with_capacity(n * bs + 1), Vec::with_capacity(nonzeros));
        let mut values = Vec::with_capacity(nonzeros);
        row_ptr.push(0i32);
        for i in 0..n {
            for (r, q) in (0..b).flat_map(|r| (0..s).map(move |q| (r, q))) {
                for p in k.m.row_ptr()[i]..k.m.row_ptr()[i + 1] {
                    let j = k.m.col()[p] as usize;
                    for c in 0..b {
                        let at = (p * b + r) * b + c;
                        let (m, l) = (k.m.values()[at], k.tau * k.l.values()[at]);
                        for t in 0..s {
                            col.push(((j * b + c) * s + t) as i32);
                            values.push(k.a[(q, t)] * m + k.b[(q, t)] * l);
                        }
                    }
                }
                row_ptr.push(col.len() as i32);
            }
        }
        let device = &vendor.device;
        let arrays = (
            device.upload(&row_ptr, "row pointers")?,
            device.upload(&col, "columns")?,
            device.upload(&values, "values")?,
        );
        let (x, y) = (vendor.zeros(n * bs)?, vendor.zeros(n * bs)?);
        let pointers = [arrays.0.pointer(), arrays.1.pointer(), arrays.2.pointer(), x.pointer()];
        let spmv = fastest(vendor, n * bs, nonzeros, pointers, &x, &y)?;
        Ok(Self { spmv, x, y, _arrays: arrays })
    }
}

impl Product for Assembled {
    fn name(&self) -> String {
        "assembled CSR (cusparseSpMV)".into()
    }
    fn notes(&self) -> String {
        self.spmv.notes().into()
    }
    fn write(&mut self, x: &[f64]) -> Result<()> {
        self.spmv.vendor.device.write(x, &mut self.x, 0)?;
        self.spmv.vendor.device.wait()
    }
    fn poison(&mut self, _: usize) -> Result<()> {
        self.spmv.vendor.fill(self.y.pointer(), self.y.len(), 0xFF)
    }
    fn run(&mut self, _: usize) -> Result<()> {
        self.spmv.run(self.x.pointer(), 0.0, self.y.pointer())
    }
    fn read(&mut self, _: usize) -> Result<Vec<f64>> {
        let mut host = vec![0.0; self.y.len()];
        self.spmv.vendor.device.read(&self.y, 0, &mut host)?;
        Ok(host)
    }
}
